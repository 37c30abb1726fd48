"""Putting new content in the place of a file: afterwards there is the old content or the new, never a part."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from typing import Final

from agentcore.toolkit._files import close_all, descriptors, open_into

if sys.platform != "win32":
    import fcntl

__all__ = ["replace_content"]

_PREFIX: Final = ".agentcore-write-"
_CLEANING: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
# Where nothing can be locked, age must do.
_ABANDONED_AFTER: Final = 60 * 60
_FLAGS: Final = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def replace_content(
    folder: int | None, name: str, data: bytes, old: os.stat_result | None, still_wanted: Callable[[], None]
) -> None:
    """Write a temporary file in the same folder and rename it to `name`, which is a path if `folder` is `None`.

    With `old`, the file that is there, its mode, owner and extended attributes are kept as far as the system allows;
    a new file gets the mode that any program's would. `still_wanted` is called right before the rename, and stops it
    by raising. What earlier writers that were killed have left in the folder is cleaned up.
    """
    if old is not None and not _is_writable(folder, name):
        raise PermissionError(errno.EACCES, "the file is write-protected")
    where = os.path.dirname(name) if folder is None else ""
    _clean_up(folder, where)
    temporary = _Temporary(folder, where)
    try:
        descriptor = temporary.make(0o666 if old is None else 0o600)
        _write(descriptor, data)
        if old is not None:
            _copy_attributes(folder, name, old, descriptor)
        os.fsync(descriptor)
        if sys.platform == "win32":
            close_all(temporary.held)  # an open file cannot be renamed there
        still_wanted()
        os.replace(temporary.path, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        try:
            temporary.remove()
        finally:
            temporary.remove()  # for an interrupt just before; otherwise there is nothing left to remove


class _Temporary:
    """A temporary file in a folder, locked as in use as long as its descriptor is held."""

    def __init__(self, folder: int | None, where: str) -> None:
        self.folder = folder
        self.where = where
        self.path = ""
        self.held: list[int] = []

    def make(self, mode: int) -> int:
        """Make the file and return its descriptor."""
        while True:
            self.path = os.path.join(self.where, f"{_PREFIX}{secrets.token_hex(8)}.tmp")
            descriptor = open_into(self.held, self.path, _FLAGS, mode, dir_fd=self.folder)
            _lock(descriptor)
            if sys.platform == "win32" or os.fstat(descriptor).st_nlink:
                return descriptor
            close_all(self.held)  # a cleaner came between the two

    def remove(self) -> None:
        """Remove the file, unless it was renamed (then nothing has its name), and give up the lock."""
        if self.path:
            _unlink(self.folder, self.path)
        close_all(self.held)  # not before: without its lock the file counts as left behind


def _lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _clean_up(folder: int | None, where: str) -> None:
    """Remove the temporary files of writers that no longer live: their locks went with them."""
    for name in _leftovers(folder, where):
        path = os.path.join(where, name)
        # For writing first, because some network file systems lock nothing else.
        for access in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY):
            try:
                if sys.platform != "win32":
                    _remove_if_unlocked(folder, path, access)
                elif time.time() - os.stat(path).st_mtime > _ABANDONED_AFTER:
                    os.unlink(path)
                break
            except PermissionError:
                continue  # it has got the mode of the file that it was for
            except OSError:
                break


def _remove_if_unlocked(folder: int | None, path: str, access: int) -> None:
    with descriptors() as held:
        descriptor = open_into(held, path, _CLEANING | access, dir_fd=folder)
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor):
            os.unlink(path, dir_fd=folder)


def _leftovers(folder: int | None, where: str) -> list[str]:
    try:
        with descriptors() as held:
            place: int | str = where or "."
            if folder is not None:
                # Opened anew: the descriptor that is there may be good for passing through only.
                place = open_into(held, ".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            return [name for name in os.listdir(place) if name.startswith(_PREFIX)]
    except OSError:
        return []


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_writable(folder: int | None, name: str) -> bool:
    # The rename asks only the folder; a file that its owner has protected is to stay as it is.
    effective = os.access in os.supports_effective_ids
    return os.access(name, os.W_OK, dir_fd=folder, effective_ids=effective)


def _copy_attributes(folder: int | None, name: str, old: os.stat_result, descriptor: int) -> None:
    if sys.platform == "win32":
        return
    mode = stat.S_IMODE(old.st_mode)
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            mode &= 0o777  # a set-user-id program must not change hands
    _copy_extended_attributes(folder, name, descriptor)
    os.fchmod(descriptor, mode)


def _copy_extended_attributes(folder: int | None, name: str, descriptor: int) -> None:
    """Copy access lists and labels (Linux)."""
    if sys.platform != "linux":
        return
    try:
        with descriptors() as held:
            source = open_into(held, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            for attribute in os.listxattr(source):
                try:
                    os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
                except OSError:
                    continue  # not ours to set
    except OSError:
        pass  # not ours to read, or the file system has none


def _unlink(folder: int | None, path: str) -> None:
    try:
        os.unlink(path, dir_fd=folder)
    except OSError:
        pass
