"""Session files: one JSON line an entry, only ever appended to.

The first line is the header. A line is written with one `write`, so a process that is killed leaves whole lines and at
the most one torn one, at the end. What cannot be read is skipped and reported, and never overwritten. Lines are ended
by LF only; a torn end is left as it is, and the next entry begins on a line of its own.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from agentcore._records import json_safe, now_ms
from agentcore.errors import SessionCorruptError, SessionError, SessionLockedError
from agentcore.messages import AgentMessage, BranchSummaryMessage, CompactionSummaryMessage
from agentcore.sessions.tree import KINDS, SessionEntry, SessionProblem, SessionTree

__all__ = ["Session", "session_path"]

VERSION = 1
_HEADER_BEGINS = b'{"type":"session"'
_LONGEST_NAME = 100
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DEVICE_NAME = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def session_path(folder: str | Path, name: str) -> Path:
    """Return the file of a session by its name.

    Raises `ValueError` for a name that is no plain name: letters, digits, `.`, `_` and `-`, not beginning with a dot
    or a dash, at most 100 characters, and no device of any system.
    """
    good = len(name) <= _LONGEST_NAME and _PLAIN_NAME.fullmatch(name) and not _DEVICE_NAME.fullmatch(name)
    if not good or name.endswith("."):
        raise ValueError(
            f"{name[:_LONGEST_NAME]!r} is no name for a session: use up to {_LONGEST_NAME} letters, digits, dots, dashes "
            "and underscores, beginning with a letter or a digit"
        )
    return Path(folder) / f"{name}.jsonl"


def _line(data: Mapping[str, Any]) -> bytes:
    """Return a line of a session file; text that UTF-8 cannot hold is escaped."""
    safe = json_safe(data)
    try:
        return json.dumps(safe, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(safe, separators=(",", ":")).encode() + b"\n"


class Session:
    """A conversation in a file, with all its branches.

    `create` makes a new file, `open` goes on with one, `read` only looks. `durable=True` makes every entry safe against
    a power failure too (fsync), not only against the end of the process. `problems` lists the lines that could not be
    used. Use it in a `with` block, or `close` it, so that others may write.

    Messages are stored exactly, but for `details` of tool results and custom messages, which are stored as the nearest
    thing that JSON can hold.

    Threads: every method may be called from any thread; an entry is written whole, one after the other. A second
    writer, in any process, gets `SessionLockedError`; readers need no lock.
    """

    def __init__(self, path: Path, *, lock: Any, durable: bool) -> None:
        self._path = path
        self._file_lock = lock
        self._durable = durable
        self._lock = threading.RLock()
        self._tree = SessionTree()
        self._fd: int | None = None
        self._ends_whole = True
        self._version = VERSION
        self._id = ""
        self._cwd = ""
        self._created = 0
        self._problems: list[SessionProblem] = []

    # --- making and opening -----------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path, *, cwd: str | Path | None = None, durable: bool = False) -> Session:
        """Make a new session file, readable by its owner only.

        Raises `FileExistsError` if there is a file that is not empty, `SessionLockedError` if somebody writes to it.
        """
        session = cls._locked(Path(path), durable)
        try:
            session._open_file(new=True)
            if session._size():
                raise FileExistsError(f"{session._path} exists already; `Session.open` goes on with it")
            session._begin(cwd)
        except BaseException:
            session.close()
            raise
        return session

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = False) -> Session:
        """Go on with a session file; one that is empty is begun.

        Raises `FileNotFoundError`, `SessionCorruptError` for a file that is no session (it is left untouched), and
        `SessionLockedError` at once if somebody else writes to it.
        """
        given = Path(path)
        if not given.exists():
            raise FileNotFoundError(f"there is no session file {given}; `Session.create` makes one")
        session = cls._locked(given, durable)
        try:
            session._open_file(new=False)
            if not session._load(given.read_bytes()):
                session._begin(None)
        except BaseException:
            session.close()
            raise
        return session

    @classmethod
    def read(cls, path: str | Path) -> Session:
        """Load a session file without writing to it; another process may write meanwhile.

        Raises what `open` raises, but never `SessionLockedError`.
        """
        session = cls(Path(path), lock=None, durable=False)
        session._load(session._path.read_bytes())
        return session

    @classmethod
    def _locked(cls, path: Path, durable: bool) -> Session:
        try:
            from filelock import FileLock, Timeout
        except ImportError:
            raise SessionError(
                "writing sessions needs the package `filelock`: pip install 'agentcore-loop[sessions]'"
            ) from None
        real = Path(os.path.realpath(path))
        lock = FileLock(real.with_name(real.name + ".lock"), timeout=0, thread_local=False, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            raise SessionLockedError(
                f"{path} is open for writing elsewhere; close it there, or `Session.read` it"
            ) from None
        return cls(path, lock=lock, durable=durable)

    def _open_file(self, *, new: bool) -> None:
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        if new:
            flags |= os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._fd = os.open(self._path, flags, 0o600)

    def _size(self) -> int:
        return self._path.stat().st_size

    def _begin(self, cwd: str | Path | None) -> None:
        """Write the header."""
        self._id, self._created = uuid.uuid4().hex, now_ms()
        self._cwd = str(Path.cwd() if cwd is None else cwd)
        header = {"type": "session", "version": VERSION, "id": self._id, "created": self._created, "cwd": self._cwd}
        self._write(_line(header))

    # --- loading ----------------------------------------------------------------------------------------------------

    def _load(self, content: bytes) -> bool:
        """Take in what a file holds; return whether it has a header."""
        if not content:
            return False
        lines = content.split(b"\n")
        self._ends_whole = not lines[-1]
        if self._ends_whole:
            lines.pop()
        first = self._load_header(lines)
        if first is None:
            return False
        for number, line in enumerate(lines[first:], start=first + 1):
            self._load_entry(number, line)
        return True

    def _load_header(self, lines: list[bytes]) -> int | None:
        """Find the header; return the number of lines up to it, or `None` if it was torn and there is nothing else."""
        for number, line in enumerate(lines[:2]):
            header = _parsed(line)
            if isinstance(header, dict) and header.get("type") == "session":
                self._take_header(number + 1, header)
                return number + 1
            torn = _HEADER_BEGINS.startswith(line) or line.startswith(_HEADER_BEGINS)
            if number or not torn:
                raise SessionCorruptError(f"{self._path} is no session file", path=str(self._path), line=number + 1)
            self._problems.append(SessionProblem(1, "the header is cut off"))
        return None

    def _take_header(self, line: int, header: Mapping[str, Any]) -> None:
        version = header.get("version")
        self._version = version if isinstance(version, int) else VERSION
        if self._version > VERSION:
            what = f"written by a newer version ({self._version}; this one knows {VERSION}): read as far as known"
            self._problems.append(SessionProblem(line, what))
        self._id, self._cwd = str(header.get("id") or ""), str(header.get("cwd") or "")
        created = header.get("created")
        self._created = created if isinstance(created, int) else 0

    def _load_entry(self, number: int, line: bytes) -> None:
        if not line.strip():
            return
        data = _parsed(line)
        if not isinstance(data, dict):
            what = "no JSON" if data is _NOTHING else f"no entry but {type(data).__name__}"
            self._problems.append(SessionProblem(number, f"{what}; skipped"))
            return
        try:
            entry = SessionEntry.from_dict(data)
        except (ValueError, TypeError, KeyError) as error:
            self._problems.append(SessionProblem(number, f"no entry ({error}); skipped"))
            return
        tree = self._tree
        if entry.id in tree.entries:
            self._problems.append(SessionProblem(number, f"the id {entry.id!r} was used before; skipped"))
            return
        if entry.parent_id is not None and entry.parent_id not in tree.entries:
            # The line it follows is gone; what stands before it in the file is the best guess.
            what = f"its parent {entry.parent_id!r} is missing; taken to follow the entry before it"
            self._problems.append(SessionProblem(number, what))
            entry = SessionEntry(entry.id, tree.leaf_id, entry.timestamp, entry.kind, entry.data, entry.message)
        tree.add(entry)

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def id(self) -> str:
        """The session's own id."""
        return self._id

    @property
    def cwd(self) -> str:
        """The folder that the session was begun in."""
        return self._cwd

    @property
    def created(self) -> int:
        """When it was begun: integer milliseconds since the epoch."""
        return self._created

    @property
    def problems(self) -> tuple[SessionProblem, ...]:
        """The lines that could not be used as they were."""
        return tuple(self._problems)

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next one follows."""
        return self._tree.leaf_id

    def entries(self) -> tuple[SessionEntry, ...]:
        """Return all entries of all branches, in the order of the file."""
        with self._lock:
            return tuple(self._tree.entries.values())

    def messages(self) -> list[AgentMessage]:
        """Return the conversation from the root to the leaf, the last compaction applied."""
        with self._lock:
            return [entry.message for entry in self._tree.conversation() if entry.message is not None]

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, message: AgentMessage) -> str:
        """Add a message after the leaf; return the id of its entry."""
        kind = "branch_summary" if isinstance(message, BranchSummaryMessage) else "message"
        return self._append(kind, {"message": message.to_dict()}, message)

    def append_compaction(self, summary: CompactionSummaryMessage, kept: Iterable[AgentMessage]) -> str:
        """Have a summary stand for the conversation so far, but for the messages `kept`, which are messages of it."""
        with self._lock:
            ids = _matching(self._tree.conversation(), list(kept))
            return self._append("compaction", {"message": summary.to_dict(), "kept": ids}, summary)

    def append_model_change(self, provider: str, model: str) -> str:
        """Note that another model answers from here on."""
        return self._append("model_change", {"provider": provider, "model": model})

    def append_custom(self, custom_type: str, data: Any) -> str:
        """Note something of an application's own, which is no part of the conversation."""
        return self._append("custom", {"custom_type": custom_type, "data": json_safe(data)})

    def branch(self, entry_id: str, summary: str | None = None) -> str:
        """Go on from an earlier entry; with a `summary` of what is left, that becomes a message of the new branch.

        Raises `KeyError` for an id that is not there.
        """
        with self._lock:
            if entry_id not in self._tree.entries:
                raise KeyError(f"the session has no entry {entry_id!r}")
            left = self._tree.leaf_id or entry_id
            if summary is None:
                return self._append("branch", {}, None, parent_id=entry_id)
            message = BranchSummaryMessage(summary, left)
            return self._append("branch_summary", {"message": message.to_dict()}, message, parent_id=entry_id)

    def fork(self, path: str | Path) -> Session:
        """Make a new session file of the entries that lead to the leaf; return it."""
        with self._lock:
            entries = self._tree.path()
            new = Session.create(path, cwd=self._cwd, durable=self._durable)
        for entry in entries:
            new._put(entry)
        return new

    def _append(
        self, kind: str, data: Mapping[str, Any], message: AgentMessage | None = None, *, parent_id: str | None = None
    ) -> str:
        assert kind in KINDS
        with self._lock:
            parent = self._tree.leaf_id if parent_id is None else parent_id
            entry = SessionEntry(self._new_id(), parent, now_ms(), kind, data, message)
            self._put(entry)
            return entry.id

    def _new_id(self) -> str:
        while True:
            id = secrets.token_hex(6)
            if id not in self._tree.entries:
                return id

    def _put(self, entry: SessionEntry) -> None:
        line = _line(entry.to_dict())
        with self._lock:
            if self._version > VERSION:
                raise SessionError(f"{self._path} was written by a newer version; it can be read but not added to")
            self._write(line)
            self._tree.add(entry)

    def _write(self, line: bytes) -> None:
        if self._fd is None:
            raise SessionError(f"{self._path} is not open for writing")
        rest = memoryview(line if self._ends_whole else b"\n" + line)
        while rest:
            self._ends_whole = False
            rest = rest[os.write(self._fd, rest) :]
        self._ends_whole = True
        if self._durable:
            os.fsync(self._fd)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let others write; the session can still be looked at."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)
            lock, self._file_lock = self._file_lock, None
            if lock is not None:
                lock.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", None) is not None:
            self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Session holds an open file and cannot be pickled or copied; open its file there")

    def __repr__(self) -> str:
        return f"Session({str(self._path)!r}, {len(self._tree.entries)} entries)"


_NOTHING = object()


def _parsed(line: bytes) -> Any:
    """Return what a line holds, or `_NOTHING` if that is no JSON."""
    try:
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return _NOTHING


def _matching(conversation: list[SessionEntry], kept: list[AgentMessage]) -> list[str]:
    """Return the ids of the entries that hold the kept messages: the very objects, else equal ones; in order."""
    ids: list[str] = []
    taken: set[str] = set()
    by_object = {id(entry.message): entry for entry in conversation}
    for message in kept:
        entry = by_object.get(id(message))
        if entry is None or entry.id in taken:
            same = (one for one in conversation if one.id not in taken and one.message == message)
            entry = next(same, None)
        if entry is None:
            raise ValueError("a message that a compaction keeps is no message of the session")
        taken.add(entry.id)
        ids.append(entry.id)
    return ids
