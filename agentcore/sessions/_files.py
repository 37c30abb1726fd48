"""Session files on disk: made for their owner alone, locked for one writer, and only ever appended to."""

from __future__ import annotations

import errno
import os
import re
import stat
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from agentcore.errors import SessionCorruptError, SessionError, SessionLockedError
from agentcore.sessions._lines import Loaded, load

__all__ = ["SessionFile", "load_file", "session_path"]

_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NOT_THROUGH_LINKS = getattr(os, "O_NOFOLLOW", 0)
_OWNER_ONLY = 0o600
_LONGEST_HEADER = 1 << 20

_LONGEST_NAME = 100
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def session_path(folder: str | Path, name: str) -> Path:
    """Return the file of a session by its name.

    Raises `ValueError` for a name that is no plain name: letters, digits, `.`, `_` and `-`, beginning with a letter or
    a digit and not ending with a dot, at most 100 characters, and no device of any system.
    """
    good = len(name) <= _LONGEST_NAME and _PLAIN_NAME.fullmatch(name) and not _DEVICE_NAME.fullmatch(name)
    if not good or name.endswith("."):
        raise ValueError(
            f"{name[:_LONGEST_NAME]!r} is no name for a session: use up to {_LONGEST_NAME} letters, digits, dots, "
            "dashes and underscores, beginning with a letter or a digit"
        )
    return Path(folder) / f"{name}.jsonl"


def load_file(path: Path) -> Loaded:
    """Read a session file; raises `FileNotFoundError`, and `SessionCorruptError` for a file that is no session."""
    _check_is_regular(path, path.stat().st_mode)  # a device or a pipe would never end
    with path.open("rb") as file:
        return _loaded(path, file)


class SessionFile:
    """A session file that is open for writing.

    Threads: not safe by itself; the session that owns it locks.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self.durable = durable
        self.ends_whole = True
        self._file: FileIO | None = None
        self._lock: Any = None
        self._owner = os.getpid()

    @classmethod
    def create(cls, path: Path, *, durable: bool) -> SessionFile:
        """Make a new file, and the folder it is in; one that is there already has to be empty."""
        exists = FileExistsError(f"{path} exists already; `Session.open` goes on with it")
        # Looked at before the lock is made as well, so that nothing is left behind beside a file that is refused.
        if path.is_symlink():
            raise exists
        if path.exists():
            _check_is_regular(path, path.stat().st_mode)
            if path.stat().st_size:
                raise exists
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = cls(path, durable=durable)
        try:
            file._acquire()
            try:
                file._open(_FLAGS | os.O_CREAT | _NOT_THROUGH_LINKS)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise exists from None
            if file.size():
                raise exists
            if durable:
                _sync_folder(path.parent)
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def open(cls, path: Path, *, durable: bool) -> tuple[SessionFile, Loaded]:
        """Open a file that exists, and read it."""
        if not path.exists():
            raise FileNotFoundError(f"there is no session file {path}; `Session.create` makes one")
        if not _begins_with_header(path):
            load_file(path)  # nothing is left behind beside a file that is refused
        file = cls(path, durable=durable)
        try:
            file._acquire()
            fd = file._open(_FLAGS).fileno()
            with os.fdopen(fd, "rb", closefd=False) as content:
                loaded = _loaded(path, content)
        except BaseException:
            file.close()
            raise
        file.ends_whole = loaded.ends_whole
        return file, loaded

    def _acquire(self) -> None:
        """Lock the file for this process, whatever path leads to it."""
        try:
            from filelock import FileLock, Timeout
        except ImportError:
            raise SessionError(
                "writing sessions needs the package `filelock`: pip install 'agentcore-loop[sessions]'"
            ) from None
        real = Path(os.path.realpath(self.path))
        beside = real.with_name(real.name + ".lock")
        if beside.is_symlink():
            raise SessionError(f"{beside}, which would be the lock of a session, is a link; remove it")
        lock = FileLock(beside, timeout=0, thread_local=False, mode=_OWNER_ONLY)
        self._lock = lock
        try:
            lock.acquire()
        except Timeout:
            raise SessionLockedError(
                f"{self.path} is open for writing elsewhere; close it there, or `Session.read` it"
            ) from None

    def _open(self, flags: int) -> FileIO:
        # An object that closes itself when it is dropped, without a line of Python that Ctrl-C could get lost in.
        file = self._file = FileIO(os.open(self.path, flags, _OWNER_ONLY), "r+")
        _check_is_regular(self.path, os.fstat(file.fileno()).st_mode)
        return file

    def size(self) -> int:
        """Return the length in bytes."""
        assert self._file is not None
        return os.fstat(self._file.fileno()).st_size

    def write(self, lines: bytes) -> None:
        """Append whole lines; what a failure leaves of them is a torn line, and the next one begins after it."""
        file = self._file
        if file is None:
            raise SessionError(f"{self.path} is not open for writing")
        if os.getpid() != self._owner:
            raise SessionError(
                f"{self.path} was opened by the parent of this process; open it here after closing it there"
            )
        rest = memoryview(lines if self.ends_whole else b"\n" + lines)
        self.ends_whole = False
        while rest:
            rest = rest[file.write(rest) :]
        self.ends_whole = True
        if self.durable:
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the file and let others write; once more does no harm."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _check_is_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; a session is a file")
    if not stat.S_ISREG(mode):
        raise SessionCorruptError(f"{path} is no ordinary file", path=str(path))


def _begins_with_header(path: Path) -> bool:
    _check_is_regular(path, path.stat().st_mode)
    with path.open("rb") as file:
        return load([file.readline(_LONGEST_HEADER)]).header is not None


def _loaded(path: Path, file: BinaryIO) -> Loaded:
    loaded = load(file)
    if not loaded.is_session:
        raise SessionCorruptError(f"{path} is no session file", path=str(path), line=loaded.foreign_line)
    return loaded


def _sync_folder(folder: Path) -> None:
    """Make a new file's name safe against a power failure."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
