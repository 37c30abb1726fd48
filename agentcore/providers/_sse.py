"""Bytes in, server-sent events out.

Follows the event-stream format of the HTML standard: UTF-8 whatever a header says, lines that end with CR, LF or CRLF
and with nothing else, a byte-order mark, comments, `data` over several lines, fields without a space. `id` and `retry`
are for clients that reconnect; they are read and forgotten.

Two deviations, because providers need them: the standard throws away an event that the end of the stream cuts off before
its blank line, but real servers end their body right after the last `data` line. `SseDecoder.close()` therefore gives
that event. If the cut went through the data itself, the JSON in it does not parse, and the reader of the JSON says so.
The other one: a field `error`, by which older builds of llama.cpp tell what stopped them, is an event of that name, and
so is the bare JSON of an error, which other local servers and gateways write into a stream that has begun. As the unknown
fields that they are, the `[DONE]` after them would make a success of the response.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

__all__ = ["SseDecoder", "SseEvent", "read_events"]

SseEvent = tuple[str, str]
"""The name of an event (`message` if it has none) and its data."""

_BLOCK_END = b"\n\n"
_BARE_ERROR = '{"error"'


class SseDecoder:
    """Turns the bytes of one stream, cut anywhere, into its events.

    Threads: one thread at a time.
    """

    __slots__ = ("_after_carriage_return", "_at_start", "_pending")

    def __init__(self) -> None:
        # Bytes after the last blank line, with LF line ends. A list, because joining at each feed would cost the
        # square of the length of an event that arrives in small pieces.
        self._pending: list[bytes] = []
        self._after_carriage_return = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take the next bytes, return the events that they complete."""
        if self._at_start or self._after_carriage_return or b"\r" in chunk:
            chunk = self._normalised(chunk)
        pending = self._pending
        if not pending:
            whole, blank, rest = chunk.rpartition(_BLOCK_END)
            if not blank:
                if rest:
                    pending.append(rest)
                return []
        elif _BLOCK_END in chunk or (chunk[:1] == b"\n" and pending[-1][-1:] == b"\n"):
            pending.append(chunk)
            whole, _, rest = b"".join(pending).rpartition(_BLOCK_END)
            pending.clear()
        else:
            if chunk:
                pending.append(chunk)
            return []
        if rest:
            pending.append(rest)
        return _events(whole)

    def close(self) -> list[SseEvent]:
        """Take the end of the stream, return the event that it cut off before its blank line, if there is one."""
        rest = b"".join(self._pending)
        self._pending.clear()
        self._at_start = False
        return _events(rest)

    def _normalised(self, chunk: bytes) -> bytes:
        """Return the bytes without a byte-order mark at the start of the stream, and with LF for every line end."""
        if self._at_start:
            chunk = b"".join(self._pending) + chunk
            self._pending.clear()
            if codecs.BOM_UTF8.startswith(chunk):
                # Nothing yet, or the first bytes of a mark: too little to tell.
                if chunk:
                    self._pending.append(chunk)
                return b""
            self._at_start = False
            if chunk.startswith(codecs.BOM_UTF8):
                chunk = chunk[len(codecs.BOM_UTF8) :]
        if self._after_carriage_return and chunk:
            # The CR was taken as a line end when it came, so that its event was not kept waiting.
            self._after_carriage_return = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_carriage_return = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk


def read_events(blocks: Iterable[bytes]) -> Iterator[SseEvent]:
    """Yield the events of a body that arrives in blocks of bytes."""
    decoder = SseDecoder()
    for block in blocks:
        yield from decoder.feed(block)
    yield from decoder.close()


def _events(lines: bytes) -> list[SseEvent]:
    """Return the events of whole lines.

    Most blocks are one `data` line, or an `event` line before it: those two shapes are taken apart with single string
    operations, because this runs for every delta. All else goes line by line.
    """
    events: list[SseEvent] = []
    for block in lines.decode("utf-8", "replace").split("\n\n"):
        if block.startswith("data: "):
            if "\n" not in block:
                events.append(("message", block[6:]))
                continue
        elif block.startswith("event: "):
            first, _, second = block.partition("\n")
            if second.startswith("data: ") and "\n" not in second:
                events.append((first[7:] or "message", second[6:]))
                continue
        events.extend(_events_by_line(block))
    return events


def _events_by_line(block: str) -> Iterator[SseEvent]:
    """Yield the events of lines that may hold anything, taking their end for a blank line."""
    name = ""
    data: list[str] = []
    # A blank line at the end closes the last event, even if the block did not bring its own.
    for line in [*block.split("\n"), ""]:
        if not line:
            if data:
                yield name or "message", "\n".join(data)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        if value.startswith(" "):
            value = value[1:]
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field in ("error", _BARE_ERROR):
            name = "error"
            data.append(line if field == _BARE_ERROR else value)
