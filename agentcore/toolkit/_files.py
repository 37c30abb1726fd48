"""Opening files: without losing a descriptor, without waiting for anybody, and regular files only."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader, FileIO
from typing import Any, Final

from agentcore.toolkit._results import Refusal

__all__ = ["close_all", "descriptors", "open_into", "opened", "refuse_special"]

_NAMES_SHOWN: Final = 50

# O_NONBLOCK: a pipe that has taken the file's place must not make us wait. O_NOFOLLOW: nor a link lead elsewhere.
_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def open_into(held: list[int], path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file and put its descriptor into a list, in one step.

    The interpreter looks for Ctrl-C between bytecodes only, and all of this is one: no descriptor gets lost.
    """
    held.extend(map(partial(os.open, dir_fd=dir_fd), (path,), (flags,), (mode,)))
    return held[-1]


def close_all(held: list[int]) -> None:
    """Close the descriptors of a list and empty it, each in one step too: none is closed twice or forgotten."""
    [*map(os.close, map(held.pop, [-1] * len(held)))]


@contextmanager
def descriptors() -> Iterator[list[int]]:
    """Give a list for `open_into`, and close what is in it in the end."""
    held: list[int] = []
    try:
        yield held
    finally:
        try:
            close_all(held)
        finally:
            close_all(held)  # for an interrupt just before; otherwise there is nothing left


@contextmanager
def opened(folder: int | None, name: str, given: str) -> Iterator[BufferedReader]:
    """Open a file for reading; `given` is how the model wrote its path. Raises `Refusal` for anything but a file."""
    # Looked at first: opening a device can already do something.
    refuse_special(os.stat(name, dir_fd=folder, follow_symlinks=False), folder, name, given)
    with descriptors() as held:
        descriptor = open_into(held, name, _FLAGS, dir_fd=folder)
        refuse_special(os.fstat(descriptor), folder, name, given)
        reader: BufferedReader = BufferedReader(_NeverWaiting(descriptor, closefd=False))
        with reader as file:
            yield file


class _NeverWaiting(FileIO):
    """A file whose content may be yet to come, as that of some files of the kernel: an error, not `None` for bytes."""

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; raises `BlockingIOError` if there is nothing now."""
        length = super().readinto(buffer)
        if length is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return length


def refuse_special(found: os.stat_result, folder: int | None, name: str, given: str) -> None:
    """Raise `Refusal` for what is no regular file."""
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise Refusal(f"{given} is a folder, not a file. It holds: {_entries(folder, name)}.")
    kinds = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a symbolic link"))
    kind = next((kind for is_kind, kind in kinds if is_kind(found.st_mode)), "a device")
    raise Refusal(f"{given} is {kind}, not a regular file. This tool works on regular files only.")


def _entries(folder: int | None, name: str) -> str:
    try:
        with descriptors() as held:
            where: int | str = name
            if folder is not None:
                where = open_into(held, name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            with os.scandir(where) as entries:
                names = sorted(entry.name + "/" * _is_folder(entry) for entry in entries)
    except OSError:
        return "what cannot be listed"
    more = f", … ({len(names):,} entries in all)" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more or "nothing"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle, or to where we may not look
        return False
