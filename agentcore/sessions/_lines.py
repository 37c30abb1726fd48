"""The lines of a session file: how they are written, and what can be read of a file whatever happened to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from agentcore._records import Record, json_safe
from agentcore.sessions.tree import SessionEntry, SessionProblem, SessionTree

__all__ = ["Header", "Loaded", "VERSION", "encoded", "entry_line", "load"]

VERSION = 1
_BOM = b"\xef\xbb\xbf"
_HEADER_BEGINS = b'{"type":"session",'


@attrs.frozen(kw_only=True, repr=False)
class Header(Record):
    """What the first line of a session file says."""

    version: int
    id: str
    created: int
    cwd: str

    def line(self) -> bytes:
        """Return the header as it is written."""
        return encoded({"type": "session", **attrs.asdict(self)}) + b"\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Header | None:
        """Return the header that a line holds, or `None` if it is none of ours."""
        version, id, created, cwd = (data.get(name) for name in ("version", "id", "created", "cwd"))
        if data.get("type") != "session" or not isinstance(id, str) or not isinstance(created, int):
            return None
        if not isinstance(version, int) or version < 1:
            return None
        return cls(version=version, id=id, created=created, cwd=cwd if isinstance(cwd, str) else "")


# --- writing --------------------------------------------------------------------------------------------------------


def encoded(data: Mapping[str, Any]) -> bytes:
    """Return data as JSON on one line; text that UTF-8 cannot hold is escaped."""
    safe = json_safe(data)
    try:
        return json.dumps(safe, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(safe, separators=(",", ":")).encode()


def entry_line(entry: SessionEntry, rest: bytes) -> bytes:
    """Return the line of an entry: the common fields, then the rest, which is an encoded object."""
    begin = encoded(entry.common())
    return begin + b"\n" if rest == b"{}" else begin[:-1] + b"," + rest[1:] + b"\n"


# --- reading --------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Loaded:
    """What could be read of a file; `foreign_line` is the first line that belongs in no session, if there is one."""

    header: Header | None = None
    tree: SessionTree = attrs.field(factory=SessionTree)
    problems: list[SessionProblem] = attrs.field(factory=list)
    ends_whole: bool = True
    foreign_line: int | None = None

    @property
    def is_session(self) -> bool:
        """Whether the file is a session, or so far nothing at all."""
        return self.header is not None or bool(self.tree.entries) or self.foreign_line is None


def load(lines: Iterable[bytes]) -> Loaded:
    """Read the lines of a file, which end with LF, as far as they can be read."""
    loaded = Loaded()
    for number, line in enumerate(lines, 1):
        loaded.ends_whole = line.endswith(b"\n")
        _take(loaded, number, line.removeprefix(_BOM) if number == 1 else line)
    if loaded.header is None and loaded.tree.entries:
        loaded.problems.insert(0, SessionProblem(1, "the header is missing"))
    return loaded


def _take(loaded: Loaded, number: int, line: bytes) -> None:
    """Take a line in, or note what is wrong with it."""
    if not line.strip():
        return
    try:
        text = line.decode()
        damage = None
    except UnicodeDecodeError:
        # One bad byte must not cost a whole message: what can be read around it is used.
        text = line.decode(errors="replace")
        damage = "bytes that are no UTF-8; they were replaced"
    try:
        what = _used(loaded, number, json.loads(text)) or damage
    except (ValueError, RecursionError):
        what = "no JSON; skipped" if loaded.ends_whole else "cut off before its end; skipped"
        # The beginning of a header is what a crash while one is written leaves.
        if not (line.startswith(_HEADER_BEGINS) or _HEADER_BEGINS.startswith(line.rstrip(b"\n"))):
            _note_foreign(loaded, number)
    if what is not None:
        loaded.problems.append(SessionProblem(number, what))


def _note_foreign(loaded: Loaded, number: int) -> None:
    if loaded.foreign_line is None:
        loaded.foreign_line = number


def _used(loaded: Loaded, number: int, data: Any) -> str | None:
    """Take in what a line says; return what is wrong with it."""
    if not isinstance(data, dict):
        _note_foreign(loaded, number)
        return f"no entry but {'null' if data is None else type(data).__name__}; skipped"
    header = Header.from_dict(data)
    if header is not None:
        return _used_header(loaded, header)
    try:
        entry = SessionEntry.from_dict(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _note_foreign(loaded, number)
        return f"no entry ({str(error) or type(error).__name__}); skipped"
    tree = loaded.tree
    if entry.id in tree.entries:
        return f"the id {entry.id!r} was used before; skipped"
    if entry.parent_id is None or entry.parent_id in tree.entries:
        tree.add(entry)
        return None
    # The line it follows is gone; what stands before it in the file is the best guess.
    tree.add(attrs.evolve(entry, parent_id=tree.leaf_id))
    return f"its parent {entry.parent_id!r} is missing; taken to follow the entry before it"


def _used_header(loaded: Loaded, header: Header) -> str | None:
    if loaded.header is not None:
        return "a second header; skipped"
    loaded.header = header
    if header.version <= VERSION:
        return None
    return f"written by a newer version ({header.version}; this one knows {VERSION}); read as far as it is known"
