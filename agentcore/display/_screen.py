"""A terminal screen: lines that are printed for good, and below them some that keep changing.

One thread owns the screen and everything that is shown on it. Who wants to change something posts a function; the
thread calls it and draws. So an interrupt of the main thread never tears a drawing, and no lock is needed.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from time import monotonic
from typing import TYPE_CHECKING, Final, TextIO

import attrs

from agentcore._mailbox import Mailbox, start_daemon
from agentcore.abort import AbortController
from agentcore.display._text import encodable

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Frame", "Screen"]

_logger = logging.getLogger("agentcore.display")

_SECONDS_A_FRAME: Final = 0.04
_SECONDS_A_TICK: Final = 0.1
_SECONDS_TO_CLOSE: Final = 5.0

# Terminals that know this show a drawing at once; the others ignore it.
_BEGIN: Final = "\x1b[?2026h\x1b[?25l"
_END: Final = "\x1b[?2026l"
_SHOW_CURSOR: Final = "\x1b[?25h"


@attrs.frozen
class Frame:
    """The changing lines, each at most as wide as the terminal, and where among them the cursor stands, if it shows.

    `moving` says that they change with time, such as a spinner.
    """

    rows: Sequence[Text]
    cursor: tuple[int, int] | None = None
    moving: bool = False


class Screen:
    """Draws on a terminal from a thread of its own.

    `frame(width, height)` returns the lines below; it runs on the screen's thread, as do the functions given to
    `post`, which alone may call `print`. `on_failure` is called there, once, when the terminal cannot be written to.

    Threads: `post` and `close` may be called from any thread.
    """

    def __init__(
        self, file: TextIO, frame: Callable[[int, int], Frame], on_failure: Callable[[], object] = lambda: None
    ) -> None:
        from rich.console import Console

        self._file = file
        self._frame = frame
        self._on_failure = on_failure
        # It only renders: what is written, and when, is decided here.
        self._console = Console(
            file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self._jobs: Mailbox[Callable[[], object] | None] = Mailbox()
        self._closed = AbortController()
        self._printed: list[str] = []
        self._shown: Frame = Frame(())
        self._shown_width = 0
        self._paused = False
        self._after_drawing: list[Callable[[], object]] = []
        self._failed = False
        start_daemon(self._run, "agentcore-screen")

    def post(self, job: Callable[[], object]) -> None:
        """Have a function called on the screen's thread, and the screen drawn after it."""
        self._jobs.put(job)

    def print(self, line: Text, *, wrap: bool = False) -> None:
        """Print a line for good, above those that change; only on the screen's thread.

        What is too long is broken by the terminal, which knows that it is one line; with `wrap`, between words.
        """
        rows = self.wrapped(line, self._size()[0]) if wrap else [line]
        self._printed += [self._rendered(row) + "\n" for row in rows]

    def send(self, sequence: str) -> None:
        """Send something to the terminal that shows nothing; only on the screen's thread."""
        self._printed.append(sequence)

    def wrapped(self, line: Text, width: int) -> list[Text]:
        """Return a line broken between words into rows that fit."""
        return list(line.wrap(self._console, width)) or [line]

    def pause(self) -> None:
        """Take the changing lines away and draw none until `resume`; wait for that."""
        drawn = AbortController()
        self.post(partial(self._set_paused, True))
        self.post(partial(self._after_drawing.append, drawn.abort))
        drawn.signal.wait(_SECONDS_TO_CLOSE)

    def resume(self) -> None:
        """Draw the changing lines again."""
        self.post(partial(self._set_paused, False))

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused

    def close(self) -> None:
        """Draw for the last time, take the changing lines away, and wait for that."""
        self._jobs.put(None)
        self._closed.signal.wait(_SECONDS_TO_CLOSE)

    def _run(self) -> None:
        try:
            drawn_at = 0.0
            going = True
            while going:
                going = self._work(drawn_at)
                self._draw(going and not self._paused)
                drawn_at = monotonic()
                while self._after_drawing:
                    self._after_drawing.pop()()
        finally:
            self._closed.abort("closed")

    def _work(self, drawn_at: float) -> bool:
        """Do what has been posted, until it is time to draw; return whether the screen stays open."""
        timeout = _SECONDS_A_TICK if self._shown.moving else None
        while True:
            try:
                job = self._jobs.get(timeout)
            except Empty:
                return True
            if job is None:
                return False
            try:
                job()
            except Exception:  # one thing that cannot be shown must not keep all others from being seen
                _logger.exception("something could not be shown")
            # More may be on its way: what comes within a frame is drawn at once.
            timeout = max(0.0, drawn_at + _SECONDS_A_FRAME - monotonic())

    # --- drawing ----------------------------------------------------------------------------------------------------

    def _draw(self, with_frame: bool) -> None:
        width, height = self._size()
        frame = self._frame(width, height) if with_frame else Frame(())
        if not self._printed and frame == self._shown and width == self._shown_width and with_frame:
            return
        text = "".join(
            [
                _BEGIN,
                self._erased(width),
                *self._printed,
                "\n".join(self._rendered(row) for row in frame.rows),
                _to_cursor(frame),
                _SHOW_CURSOR if frame.cursor is not None or not with_frame else "",
                _END,
            ]
        )
        self._printed.clear()
        self._shown, self._shown_width = frame, width
        self._write(text)

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._file.fileno())
        except (OSError, ValueError):
            return 80, 24
        # A terminal that has not been told its size says 0.
        return size.columns or 80, size.lines or 24

    def _erased(self, width: int) -> str:
        """Return what takes the changing lines away, with the cursor where they began."""
        frame = self._shown
        if not frame.rows:
            return ""
        row, column = frame.cursor or (len(frame.rows) - 1, frame.rows[-1].cell_len - 1)
        # A terminal that has become narrower has broken the lines that were there.
        above = sum(_height(line.cell_len, width) for line in frame.rows[:row]) + max(0, column) // width
        return (f"\x1b[{above}A" if above else "") + "\r\x1b[J"

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as capture:
            self._console.print(line, end="")
        return capture.get()

    def _write(self, text: str) -> None:
        if self._failed:
            return
        try:
            self._file.write(encodable(text, self._file.encoding or "ascii"))
            self._file.flush()
        except (OSError, ValueError):  # the terminal is gone, or the file closed
            self._failed = True
            self._on_failure()


def _height(cells: int, width: int) -> int:
    return max(1, -(-cells // width))


def _to_cursor(frame: Frame) -> str:
    if frame.cursor is None:
        return ""
    row, column = frame.cursor
    up = len(frame.rows) - 1 - row
    return (f"\x1b[{up}A" if up else "") + "\r" + (f"\x1b[{column}C" if column else "")
