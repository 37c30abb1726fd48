"""Keeping what a model reads within a number of lines and bytes, at either end of a text of any length."""

from __future__ import annotations

import codecs
from collections import deque
from typing import Final, Literal

import attrs

from agentcore._records import Record

__all__ = ["Head", "MAX_BYTES", "MAX_LINES", "Tail", "Truncation", "byte_length", "count_of", "line_count", "size_of"]

MAX_LINES: Final = 2_000
MAX_BYTES: Final = 50 * 1024


@attrs.frozen(kw_only=True, repr=False)
class Truncation(Record):
    """What was left out of a text: `kept` says which end is shown, `limit` which limit was reached.

    Bytes are those of the shown text's UTF-8. A total is `None` when it was not counted to the end. `partial_line`:
    one line alone was too long, and a part of it is shown.
    """

    kept: Literal["head", "tail"]
    limit: Literal["lines", "bytes"]
    shown_lines: int
    shown_bytes: int
    total_lines: int | None = None
    total_bytes: int | None = None
    partial_line: bool = False


class Head:
    """The first lines of a text that fit."""

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self.max_lines = max_lines
        self.max_bytes = max_bytes
        self.lines: list[str] = []
        self.size = 0
        self.limit: Literal["lines", "bytes"] | None = None

    def take(self, line: str) -> bool:
        """Add a line, with its end, if it fits; else return false and set `limit`."""
        size = byte_length(line)
        if len(self.lines) >= self.max_lines:
            self.limit = "lines"
        elif self.size + size > self.max_bytes:
            self.limit = "bytes"
        else:
            self.lines.append(line)
            self.size += size
            return True
        return False

    def take_part(self, line: bytes) -> int:
        """Add as much of the beginning of a line as fits; return how many of its bytes that is.

        Bytes that are not UTF-8 count as the replacement character that stands for them.
        """
        self.limit = "bytes"
        room = self.max_bytes - self.size
        data = line[:room]
        while True:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            text = decoder.decode(data, final=len(data) == len(line))
            size = byte_length(text)
            used = len(data) - len(decoder.getstate()[0])
            if size <= room:
                break
            data = data[: len(data) * room // size]
        self.lines.append(text)
        self.size += size
        return used


class Tail:
    """The end of a text that is fed piece by piece; holds no more than it may show and one piece.

    `cut` turns true with the piece that breaks a limit; until then, and until `trim`, `pieces` is the whole text.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        self.max_lines = max_lines
        self.max_bytes = max_bytes
        self.total_bytes = 0
        self.cut = False
        self.pieces: deque[str] = deque()
        self._kept = 0  # characters in the pieces: never more than bytes
        self._newlines = 0
        self._line_open = False

    @property
    def total_lines(self) -> int:
        """The lines so far, counting one that has not ended."""
        return self._newlines + self._line_open

    def feed(self, text: str) -> None:
        """Take the next piece in."""
        if not text:
            return
        self.total_bytes += byte_length(text)
        self._newlines += text.count("\n")
        self._line_open = not text.endswith("\n")
        self.pieces.append(text)
        self._kept += len(text)
        self.cut = self.cut or self.total_bytes > self.max_bytes or self.total_lines > self.max_lines

    def trim(self) -> None:
        """Let go of the pieces that can no longer be shown."""
        while self._kept - len(self.pieces[0]) > self.max_bytes:
            self._kept -= len(self.pieces.popleft())

    def shown(self) -> tuple[str, Truncation | None]:
        """Return the last lines that fit, and what is missing before them."""
        text = "".join(self.pieces)
        if not self.cut:
            return text, None
        text, partial, cut_by_bytes = self._last_bytes(text)
        text, cut_by_lines = self._last_lines(text)
        return text, Truncation(
            kept="tail",
            limit="bytes" if cut_by_bytes and not cut_by_lines else "lines",
            shown_lines=line_count(text),
            shown_bytes=byte_length(text),
            total_lines=self.total_lines,
            total_bytes=self.total_bytes,
            partial_line=partial,
        )

    def _last_bytes(self, text: str) -> tuple[str, bool, bool]:
        """Return whole lines within the limit, or the end of the last one; whether it is that; whether any was cut."""
        data = text.encode()
        if len(data) <= self.max_bytes:
            return text, False, False
        # One byte more than fits: it tells whether a line begins right after it.
        data = data[-self.max_bytes - 1 :]
        start = data.find(b"\n", 0, -1) + 1
        if start:
            return data[start:].decode(), False, True
        return data[1:].decode(errors="ignore"), True, True

    def _last_lines(self, text: str) -> tuple[str, bool]:
        excess = line_count(text) - self.max_lines
        if excess <= 0:
            return text, False
        return text.split("\n", excess)[-1], True


def line_count(text: str) -> int:
    """Return how many lines a text has; what follows the last line end counts as one."""
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def byte_length(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def size_of(number: int) -> str:
    """Return a number of bytes as people write it: `512 B`, `50 KiB`, `2.9 GiB`."""
    size, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{number} B" if unit == "B" else f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `2,000 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
