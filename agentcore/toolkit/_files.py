"""Opening what is a regular file, and nothing else, without waiting for anybody."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Final

from agentcore.toolkit._results import Refusal

__all__ = ["opened", "refuse_special"]

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


@contextmanager
def opened(folder: int | None, name: str, given: str) -> Iterator[BufferedReader]:
    """Open a file for reading; `given` is how the model wrote its path. Raises `Refusal` for anything but a file."""
    # Looked at first: opening a device can already do something.
    refuse_special(os.stat(name, dir_fd=folder, follow_symlinks=False), folder, name, given)
    descriptor = os.open(name, _FLAGS, dir_fd=folder)
    with open(descriptor, "rb") as file:
        refuse_special(os.fstat(descriptor), folder, name, given)
        yield file


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
    descriptor = -1
    try:
        if folder is not None:
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.scandir(name if folder is None else descriptor) as entries:
            names = sorted(entry.name + "/" * entry.is_dir() for entry in entries)
    except OSError:
        return "what cannot be listed"
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    more = f", … ({len(names):,} entries in all)" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more or "nothing"
