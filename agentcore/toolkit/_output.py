"""What a command has printed: its end, to be shown, and all of it in a private file once that is not all."""

from __future__ import annotations

import os
import secrets
import tempfile
from typing import Final

from agentcore.toolkit._files import close_all, open_into
from agentcore.toolkit._results import os_error_text
from agentcore.toolkit._terminal_text import TerminalText
from agentcore.toolkit._truncate import Tail, Truncation, count_of, size_of

__all__ = ["CommandOutput", "OutputFile"]


_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class OutputFile:
    """A private file, made when something is written to it; removed by `close`, unless `keep` was called.

    Only the first `room` bytes are kept: a program that prints without end must not fill the disk.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, room: int) -> None:
        self.folder = folder
        self.room = room
        self.path: str | None = None
        self.problem: str | None = None
        self._held: list[int] = []
        self._made = ""
        self._kept = False

    def write(self, text: str) -> None:
        """Add text; a failure is remembered in `problem`, not raised, and ends the writing."""
        if self.problem is not None:
            return
        data = text.encode()
        fits = len(data) <= self.room
        view = memoryview(data)[: self.room]
        try:
            if self.path is None:
                self._make()
            while view:
                written = os.write(self._held[0], view)
                self.room -= written
                view = view[written:]
        except OSError as error:
            self.problem = f"not all of it could be kept: {os_error_text(error)}"
        else:
            if not fits:
                self.problem = "only its first part: there is more than the tool keeps"

    def _make(self) -> None:
        """Make the file: nobody else may read it, nobody can guess its name, and nothing planted there is followed."""
        folder = os.path.abspath(self.folder or tempfile.gettempdir())
        while not self._held:
            self._made = os.path.join(folder, f"agentcore-bash-{secrets.token_hex(8)}.log")
            try:
                open_into(self._held, self._made, _FLAGS, 0o600)
            except FileExistsError:
                continue
        self.path = self._made

    def keep(self) -> None:
        """Have the file stay after `close`."""
        self._kept = True

    def close(self) -> None:
        """Close the file."""
        if self._held and not self._kept:
            try:
                os.unlink(self._made)
            except OSError:
                pass
        close_all(self._held)


class CommandOutput:
    """Takes the bytes of a command in, and says what of its text is shown and where the rest is.

    `advice` is what to add to where that is.
    """

    def __init__(self, file: OutputFile, max_lines: int, max_bytes: int, advice: str = "") -> None:
        self.file = file
        self._advice = advice
        self._text = TerminalText()
        self._tail = Tail(max_lines, max_bytes)

    @property
    def size(self) -> int:
        """The bytes of text so far."""
        return self._tail.total_bytes

    def feed(self, data: bytes) -> None:
        """Take the next bytes in."""
        self._take(self._text.feed(data))

    def finish(self) -> None:
        """Take in what was held back: the output has ended."""
        self._take(self._text.finish())

    def shown(self) -> tuple[str, Truncation | None]:
        """Return the text that is shown, and what is left out."""
        return self._tail.shown()

    def missing(self, truncation: Truncation) -> str:
        """Return in words what is left out, and where it is."""
        lines, size = truncation.total_lines or 0, truncation.total_bytes or 0
        if truncation.partial_line:
            shown = f"the last {size_of(truncation.shown_bytes)} of the last line"
        else:
            shown = f"lines {lines - truncation.shown_lines + 1}-{lines}"
        left_out = (
            count_of(lines - truncation.shown_lines, "line") if lines > truncation.shown_lines else "a part of it"
        )
        return (
            f"Output of {count_of(lines, 'line')}, {size_of(size)}; shown: {shown}; left out before: {left_out}, "
            f"{size_of(size - truncation.shown_bytes)}. {self._where()}"
        )

    def _where(self) -> str:
        if self.file.path is None:
            return f"The rest is lost ({self.file.problem})."
        problem = f" ({self.file.problem})" if self.file.problem else ""
        return f"Full output: {self.file.path}{problem}{self._advice}"

    def _take(self, text: str) -> None:
        tail = self._tail
        was_cut = tail.cut
        tail.feed(text)
        if tail.cut:
            self.file.write(text if was_cut else "".join(tail.pieces))
            tail.trim()
