"""Sessions: conversations in files, one JSON line an entry, with all their branches.

The first line is the header. A line is written with one `write`, so a process that is killed leaves whole lines and at
the most one torn one, at the end. What cannot be read is skipped and reported, and never overwritten. Lines are ended
by LF only; a torn end is left as it is, and the next entry begins on a line of its own.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from agentcore._records import json_safe, now_ms
from agentcore.errors import SessionError
from agentcore.messages import AgentMessage, BranchSummaryMessage, CompactionSummaryMessage
from agentcore.partial import PartialMessage
from agentcore.sessions._files import SessionFile, load_file, session_path
from agentcore.sessions._lines import VERSION, Header, Loaded, encoded, entry_line
from agentcore.sessions.tree import KINDS, SessionEntry, SessionProblem

__all__ = ["Session", "session_path"]

_LEAF = object()


class Session:
    """A conversation in a file, with all its branches.

    `create` makes a new file, `open` goes on with one, `read` only looks. `durable=True` makes every entry safe against
    a power failure too (fsync), not only against the end of the process. `problems` lists the lines that could not be
    used as they were. Use it in a `with` block, or `close` it, so that others may write.

    Messages are stored exactly, but for `details` of tool results and custom messages, which are stored as the nearest
    thing that JSON can hold: records as dicts, paths and dates as text, sets as lists, anything else as its `repr`.

    Threads: every method may be called from any thread; an entry is written whole, one after the other. A second
    writer, in any process, gets `SessionLockedError`; readers need no lock. A forked process cannot write.
    """

    def __init__(self, path: Path, file: SessionFile | None, loaded: Loaded) -> None:
        self._path = path
        self._file = file
        self._lock = threading.RLock()
        self._header = loaded.header
        self._tree = loaded.tree
        self._problems = tuple(loaded.problems)

    # --- making and opening -----------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path, *, cwd: str | Path | None = None, durable: bool = False) -> Session:
        """Make a new session file, readable by its owner only, and the folder it is in if that is missing.

        `cwd` is the folder that the conversation is about; the current one, when left out. Raises `FileExistsError` if
        there is a file that is not empty, or a link, and `SessionLockedError` if somebody writes to it.
        """
        file = SessionFile.create(Path(path), durable=durable)
        return cls(Path(path), file, Loaded())._begun(cwd)

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = False) -> Session:
        """Go on with a session file; one that is empty is begun.

        Raises `FileNotFoundError`, `SessionCorruptError` for a file that is no session (it is left untouched), and
        `SessionLockedError` at once if somebody else writes to it.
        """
        file, loaded = SessionFile.open(Path(path), durable=durable)
        session = cls(Path(path), file, loaded)
        return session if session._header is not None else session._begun(None)

    @classmethod
    def read(cls, path: str | Path) -> Session:
        """Load a session file without writing to it; another process may write meanwhile.

        Raises what `open` raises, but never `SessionLockedError`.
        """
        return cls(Path(path), None, load_file(Path(path)))

    def _begun(self, cwd: str | Path | None) -> Session:
        """Write the header of a session that has none."""
        where = str(Path.cwd() if cwd is None else cwd)
        header = Header(version=VERSION, id=uuid.uuid4().hex, created=now_ms(), cwd=where)
        try:
            self._write(header.line())
        except BaseException:
            self.close()
            raise
        self._header = header
        return self

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def id(self) -> str:
        """The session's own id; empty if the file to be read has no header."""
        return self._header.id if self._header is not None else ""

    @property
    def cwd(self) -> str:
        """The folder that the session was begun in."""
        return self._header.cwd if self._header is not None else ""

    @property
    def created(self) -> int:
        """When it was begun: integer milliseconds since the epoch."""
        return self._header.created if self._header is not None else 0

    @property
    def problems(self) -> tuple[SessionProblem, ...]:
        """The lines that could not be used as they were."""
        return self._problems

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
        given: object = message
        if not isinstance(given, AgentMessage) or isinstance(given, (type, PartialMessage)):
            raise TypeError(f"a session holds messages such as `UserMessage(…)`, not {type(message).__name__}")
        kind = "branch_summary" if isinstance(message, BranchSummaryMessage) else "message"
        return self._append(kind, {}, message)

    def append_compaction(self, summary: CompactionSummaryMessage, kept: Iterable[AgentMessage]) -> str:
        """Have a summary stand for the conversation so far, but for the messages `kept`, which are messages of it.

        Raises `ValueError` for one that is not.
        """
        with self._lock:
            path = self._tree.path()
        return self._append("compaction", {"kept": _ids_of(list(kept), path)}, summary)

    def append_model_change(self, provider: str, model: str) -> str:
        """Note that another model answers from here on."""
        return self._append("model_change", {"provider": provider, "model": model})

    def append_custom(self, custom_type: str, data: Any) -> str:
        """Note something of an application's own, which is no part of the conversation."""
        return self._append("custom", {"custom_type": custom_type, "data": json_safe(data)})

    def branch(self, entry_id: str | None, summary: str | None = None) -> str:
        """Go on from an earlier entry, or with `None` from before the first; return the id of the new leaf.

        With a `summary` of what is left, that becomes the first message of the new branch. Raises `KeyError` for an id
        that is not there.
        """
        with self._lock:
            if entry_id is not None and entry_id not in self._tree.entries:
                raise KeyError(f"the session has no entry {entry_id!r}")
            if summary is None:
                return self._append("branch", {}, parent_id=entry_id)
            left = self._tree.leaf_id or ""
            return self._append("branch_summary", {}, BranchSummaryMessage(summary, left), parent_id=entry_id)

    def fork(self, path: str | Path) -> Session:
        """Make a new session file of the entries that lead to the leaf; return it, open for writing."""
        with self._lock:
            entries = self._tree.path()
        lines = [encoded(entry.to_dict()) + b"\n" for entry in entries]
        durable = self._file is not None and self._file.durable
        new = Session.create(path, cwd=self.cwd, durable=durable)
        try:
            new._write(b"".join(lines))
        except BaseException:
            new.close()
            raise
        for entry in entries:
            new._tree.add(entry)
        return new

    def _append(
        self, kind: str, data: Mapping[str, Any], message: AgentMessage | None = None, *, parent_id: Any = _LEAF
    ) -> str:
        assert kind in KINDS
        # Encoded before the lock is taken: it may take its time, and `to_dict` may be an application's own.
        rest = encoded({**({} if message is None else {"message": message.to_dict()}), **data})
        with self._lock:
            parent = self._tree.leaf_id if parent_id is _LEAF else parent_id
            entry = SessionEntry(self._new_id(), parent, now_ms(), kind, data, message)
            self._write(entry_line(entry, rest))
            # Not before it is written. If an interrupt comes in between, the line is a branch that nothing follows.
            self._tree.add(entry)
            return entry.id

    def _new_id(self) -> str:
        while (id := secrets.token_hex(6)) in self._tree.entries:
            pass
        return id

    def _write(self, lines: bytes) -> None:
        if self._file is None:
            raise SessionError(f"{self._path} was opened for reading only; `Session.open` opens it for writing")
        if self._header is not None and self._header.version > VERSION:
            raise SessionError(f"{self._path} was written by a newer version; it can be read but not added to")
        self._file.write(lines)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let others write; the session can still be looked at. Once more does no harm."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Session holds an open file and cannot be pickled or copied; open its file there")

    def __repr__(self) -> str:
        return f"Session({str(self._path)!r}, {len(self._tree.entries)} entries)"


def _ids_of(kept: Sequence[AgentMessage], path: Sequence[SessionEntry]) -> list[str]:
    """Return the ids of the entries that hold these messages: the very objects, else equal ones; in their order."""
    ids: list[str] = []
    taken: set[str] = set()
    by_object = {id(entry.message): entry for entry in path}
    for message in kept:
        entry = by_object.get(id(message))
        if entry is None or entry.id in taken:
            same = (one for one in path if one.id not in taken and one.message == message)
            entry = next(same, None)
        if entry is None:
            raise ValueError("a message that a compaction keeps is no message of the session")
        taken.add(entry.id)
        ids.append(entry.id)
    return ids
