"""Putting new content in the place of a file: afterwards there is the old content or the new, never a part."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable
from typing import Final

if sys.platform != "win32":
    import fcntl

__all__ = ["replace_content"]

_PREFIX: Final = ".agentcore-write-"
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
    descriptor, temporary = _create(folder, where, 0o666 if old is None else 0o600)
    try:
        try:
            _write(descriptor, data)
            if old is not None:
                _copy_attributes(folder, name, old, descriptor)
            os.fsync(descriptor)
            if sys.platform == "win32":
                os.close(descriptor)  # an open file cannot be renamed there
                descriptor = -1
            still_wanted()
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            _unlink(folder, temporary)
            raise
    finally:
        # Closing gives up the lock that tells a cleaner "in use": only after the rename.
        if descriptor >= 0:
            os.close(descriptor)


def _create(folder: int | None, where: str, mode: int) -> tuple[int, str]:
    """Make a temporary file, and lock it as in use."""
    while True:
        temporary = os.path.join(where, f"{_PREFIX}{secrets.token_hex(8)}.tmp")
        descriptor = os.open(temporary, _FLAGS, mode, dir_fd=folder)
        _lock(descriptor)
        if sys.platform == "win32" or os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        os.close(descriptor)  # a cleaner came between the two


def _lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _clean_up(folder: int | None, where: str) -> None:
    """Remove the temporary files of writers that no longer live: their locks went with them."""
    for name in _leftovers(folder, where):
        path = os.path.join(where, name)
        try:
            # For writing, because some network file systems lock nothing else.
            descriptor = os.open(
                path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), dir_fd=folder
            )
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor):
                _unlink(folder, path)
        finally:
            os.close(descriptor)


def _leftovers(folder: int | None, where: str) -> list[str]:
    descriptor = -1
    try:
        if folder is not None:
            # The folder may have been opened for passing through only.
            descriptor = os.open(".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), dir_fd=folder)
        with os.scandir(where or "." if folder is None else descriptor) as entries:
            return [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
    except OSError:
        return []
    finally:
        if descriptor >= 0:
            os.close(descriptor)


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
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    try:
        for attribute in os.listxattr(source):
            try:
                os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
            except OSError:
                continue  # not ours to set
    except OSError:
        pass  # the file system has none
    finally:
        os.close(source)


def _unlink(folder: int | None, path: str) -> None:
    try:
        os.unlink(path, dir_fd=folder)
    except OSError:
        pass
