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

from agentcore.toolkit._files import descriptors, open_into
from agentcore.toolkit._results import Refusal, os_error_text

__all__ = ["Place", "Target"]

_NEAR_NAMES: Final = 3
_NAMES_COMPARED: Final = 20_000

# O_PATH (Linux) asks for no more than the right to pass through a folder.
_PASSING: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)


@attrs.frozen
class Target:
    """What a model has `given` for a path, and the real path of it; with a root, also its way from there."""

    given: str
    path: str
    root: str | None = None
    below_root: str = ""

    @contextmanager
    def folder(self, *, create: bool = False) -> Iterator[tuple[int | None, str]]:
        """Give the target's folder as a descriptor, and the target's name in it.

        Within a root every folder on the way is opened from the one above, links not followed: a path that was found
        to be inside cannot be led outside by a link that is put in its way afterwards. Without one the descriptor is
        `None` and the name a path.
        """
        if self.root is None or os.open not in os.supports_dir_fd:
            if create:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            yield None, self.path
            return
        *folders, name = self.below_root.split(os.sep)
        with descriptors() as held:
            descriptor = open_into(held, self.root, _PASSING)
            for folder in folders:
                if create:
                    try:
                        os.mkdir(folder, dir_fd=descriptor)
                    except FileExistsError:
                        pass
                descriptor = open_into(held, folder, _PASSING | _NO_LINK, dir_fd=descriptor)
            yield descriptor, name


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
        if folder is not None and place._below_root(os.path.realpath(folder)) is None:
            raise ValueError(f"`cwd` {folder!r} is outside `root` {os.fspath(root)!r}")
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
        targets = [self._resolved(given, spelling) for spelling in _spellings(given)]
        for target in targets:
            if _is_there(target):
                return target
        for target in targets:
            twin = self._twin(target)
            if twin is not None:
                return twin
        raise Refusal(self._missing(targets[-1]))

    def new_or_existing(self, given: str) -> Target:
        """Return the file that a path means, which need not exist."""
        target = self._resolved(given, given)
        if _is_there(target):
            return target
        bare = _bare(given)
        if bare.endswith(("/", os.sep)):
            raise Refusal(f"{given} ends like the path of a folder. Give the path of a file.")
        return self._resolved(given, bare)

    def folder(self, given: str) -> str:
        """Return the folder that a path means, which need not exist."""
        return self._resolved(given, _bare(given)).path

    def _resolved(self, given: str, spelling: str) -> Target:
        try:
            path = os.path.realpath(os.path.join(self.current(), spelling))
            os.fsencode(path)
        except (ValueError, OSError) as error:
            if "\0" in given:
                why = "it holds a NUL character"
            else:
                why = os_error_text(error) if isinstance(error, OSError) else "it holds half of a character"
            raise Refusal(f"{given!r} is not a usable path: {why}.") from None
        if self.root is None:
            return Target(given, path)
        below_root = self._below_root(path)
        if below_root is None:
            raise Refusal(
                f"{given} is outside the folder that this tool may use, {self.root}. Nothing was done. "
                "Use a path inside it."
            )
        return Target(given, path, self.root, below_root)

    def _below_root(self, path: str) -> str | None:
        """Return the way from the root to a real path, `None` if it is outside."""
        root = self.root or ""
        if path == root:
            return "."
        prefix = root.rstrip(os.sep) + os.sep
        if path.startswith(prefix):
            return path[len(prefix) :]
        # By identity: where the file system does not tell case apart, `/Src` and `/src` are one folder.
        for folder in Path(path).parents:
            try:
                if os.path.samefile(folder, root):
                    return str(Path(path).relative_to(folder))
            except OSError:
                continue
        return None

    def _twin(self, target: Target) -> Target | None:
        """Return the one file whose name looks the same: composed or decomposed, with typographic quotes or spaces."""
        folder, name = os.path.split(target.path)
        wanted = _plain(name)
        twins = [other for other in _names_in(folder) if _plain(other) == wanted]
        return self._resolved(target.given, os.path.join(folder, twins[0])) if len(twins) == 1 else None

    def _missing(self, target: Target) -> str:
        folder, name = os.path.split(target.path)
        text = f"{target.given} does not exist."
        link = os.path.join(self.current(), _bare(target.given))
        if os.path.islink(link):
            return f"{target.given} is a symbolic link to {target.path}, which does not exist."
        if not os.path.isdir(folder):
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            return f"{text} Of the folders on the way, the last that exists is {folder}."
        names: dict[str, str] = {}
        for other in _names_in(folder):
            names.setdefault(_plain(other).casefold(), other)
        near = difflib.get_close_matches(_plain(name).casefold(), list(names), n=_NEAR_NAMES, cutoff=0.6)
        if near:
            beside = os.path.dirname(_bare(target.given))
            return f"{text} Near names: {', '.join(os.path.join(beside, names[each]) for each in near)}."
        return f"{text} Nothing in {folder} has a similar name."


def _is_there(target: Target) -> bool:
    try:
        os.lstat(target.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Refusal(f"{target.given} cannot be reached: {os_error_text(error)}.") from None
    return True


def _spellings(given: str) -> list[str]:
    """Return a path as it was given, and what is left of it without quotes and a leading `@`, with `~` filled in."""
    return list(dict.fromkeys([given, _bare(given), _bare(given.strip().removeprefix("@"))]))


def _bare(given: str) -> str:
    bare = given.strip()
    if len(bare) > 2 and bare[0] == bare[-1] and bare[0] in "\"'`":
        bare = bare[1:-1]
    if not bare or bare == "@":
        raise Refusal("The path is empty. Give the path of a file.")
    return os.path.expanduser(bare)


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
        return sorted(os.listdir(folder))[:_NAMES_COMPARED]
    except OSError:
        return []
