"""Finding the real file that a model means by a path, inside a root if there is one."""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from agentcore.toolkit._results import Refusal, os_error_text

__all__ = ["Place", "Target"]

_NEAR_NAMES: Final = 3
_MOST_NAMES: Final = 20_000
_FOLDER_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)


@attrs.frozen
class Target:
    """A real path (no symlink in it when it was looked at) and how the model wrote it."""

    given: str
    path: str
    root: str | None = None

    @contextmanager
    def folder(self, *, create: bool = False) -> Iterator[tuple[int | None, str]]:
        """Give the target's folder as a descriptor, and the target's name in it.

        Within a root every folder on the way is opened from the one above without following symlinks, so that a path
        that was checked cannot be turned aside afterwards. Elsewhere the descriptor is `None` and the name a path.
        """
        if self.root is None or os.open not in os.supports_dir_fd:
            if create:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            yield None, self.path
            return
        *folders, name = os.path.relpath(self.path, self.root).split(os.sep)
        descriptor = os.open(self.root, _FOLDER_FLAGS)
        try:
            for folder in folders:
                if create:
                    try:
                        os.mkdir(folder, dir_fd=descriptor)
                    except FileExistsError:
                        pass
                below = os.open(folder, _FOLDER_FLAGS | _NO_FOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)


@attrs.frozen
class Place:
    """Where paths start (`cwd`) and what they may not leave (`root`, symlinks included)."""

    cwd: str | None
    root: str | None

    @classmethod
    def make(cls, cwd: str | os.PathLike[str] | None, root: str | os.PathLike[str] | None) -> Place:
        """Make a place; without `cwd` it is the root, or else the process's working directory at each call.

        Raises `ValueError` if the root is no existing folder or `cwd` lies outside it.
        """
        folder = None if cwd is None else os.path.abspath(os.path.expanduser(os.fspath(cwd)))
        if root is None:
            return cls(folder, None)
        real = os.path.realpath(os.path.expanduser(os.fspath(root)))
        if not os.path.isdir(real):
            raise ValueError(f"`root` is not an existing folder: {os.fspath(root)!r}")
        place = cls(folder or real, real)
        if not place._contains(os.path.realpath(place.cwd or real)):
            raise ValueError(f"`cwd` {os.fspath(cwd or '')!r} is outside `root` {os.fspath(root)!r}")
        return place

    def current(self) -> str:
        """Return the folder that relative paths start from."""
        if self.cwd is not None:
            return self.cwd
        try:
            return os.getcwd()
        except FileNotFoundError:
            raise Refusal("The current folder does not exist any more. Give absolute paths.") from None

    def existing(self, given: str) -> Target:
        """Return the file that a path means, though it was quoted, or written with look-alike characters.

        Raises `Refusal`, with near names, if there is none; a near name is only suggested, never taken.
        """
        for spelling in _spellings(given):
            target = self._resolve(given, spelling)
            if os.path.lexists(target.path):
                return target
        for spelling in _spellings(given):
            twin = self._twin(self._resolve(given, spelling))
            if twin is not None:
                return twin
        raise Refusal(self._missing(self._resolve(given, _spellings(given)[0])))

    def new_or_existing(self, given: str) -> Target:
        """Return the file that a path means, which need not exist."""
        first, *others = _spellings(given)
        target = self._resolve(given, first)
        if not os.path.lexists(target.path):
            for spelling in others:
                # `@scope/name` is a name in itself; quotes around a name, and `~`, hardly ever are.
                if not given.startswith("@"):
                    return self._resolve(given, spelling)
        return target

    def folder(self, given: str) -> str:
        """Return the folder that a path means; raises `Refusal` if it is outside the root."""
        return self._resolve(given, _spellings(given)[-1]).path

    def _resolve(self, given: str, spelling: str) -> Target:
        try:
            path = os.path.realpath(os.path.join(self.current(), spelling))
            os.fsencode(path)
        except (ValueError, OSError) as error:
            reason = "it holds a NUL character" if "\0" in given else str(error)
            raise Refusal(f"{given!r} is not a usable path: {reason}.") from None
        if not self._contains(path):
            raise Refusal(
                f"{given} is outside the folder that this tool may use ({self.root}). Nothing was done. "
                "Use a path inside it."
            )
        return Target(given, path, self.root)

    def _contains(self, path: str) -> bool:
        """Return whether a real path is in the root, told by identity: `/Src` and `/src` can be one folder."""
        if self.root is None or path == self.root or path.startswith(self.root.rstrip(os.sep) + os.sep):
            return True
        root = os.stat(self.root)
        for folder in (Path(path), *Path(path).parents):
            try:
                found = os.stat(folder)
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (root.st_dev, root.st_ino):
                return True
        return False

    def _twin(self, target: Target) -> Target | None:
        """Return the one file whose name looks the same: composed or decomposed, with typographic quotes or spaces."""
        folder, name = os.path.split(target.path)
        wanted = _plain(name)
        twins = [other for other in _names_in(folder) if _plain(other) == wanted]
        if len(twins) != 1:
            return None
        return self._resolve(target.given, os.path.join(folder, twins[0]))

    def _missing(self, target: Target) -> str:
        folder, name = os.path.split(target.path)
        text = f"{target.given} does not exist."
        if not os.path.isdir(folder):
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            return f"{text} The deepest folder of that path that exists is {folder}."
        names = _names_in(folder)
        by_lower_case: dict[str, str] = {}
        for other in names:
            by_lower_case.setdefault(_plain(other).lower(), other)
        near = difflib.get_close_matches(_plain(name).lower(), list(by_lower_case), n=_NEAR_NAMES, cutoff=0.6)
        if near:
            shown = ", ".join(os.path.join(os.path.dirname(target.given), by_lower_case[each]) for each in near)
            return f"{text} Near names: {shown}."
        return f"{text} Its folder, {folder}, exists and holds {len(names)} other entries."


def _spellings(given: str) -> list[str]:
    """Return a path as it was given, then what is left of it without quotes, a leading `@`, or `~`."""
    if not given.strip():
        raise Refusal("The path is empty. Give the path of a file.")
    found = [given]
    bare = given.strip()
    if len(bare) > 2 and bare[0] == bare[-1] and bare[0] in "\"'`":
        bare = bare[1:-1]
    for spelling in (bare, bare.removeprefix("@")):
        spelling = os.path.expanduser(spelling)
        if spelling and spelling not in found:
            found.append(spelling)
    return found


_LOOK_ALIKES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " "),
    }
)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).translate(_LOOK_ALIKES)


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False))
    except OSError:
        return []


def describe(error: OSError, given: str, action: str) -> str:
    """Return what the system's refusal means, for a model."""
    return f"Could not {action} {given}: {os_error_text(error)}."
