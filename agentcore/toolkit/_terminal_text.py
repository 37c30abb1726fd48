"""Turning the bytes that a program prints into harmless text, piece by piece."""

from __future__ import annotations

import codecs
import re
from typing import Final

__all__ = ["TerminalText"]

# Escape sequences colour and move things on a terminal; to a model they are noise, on a person's terminal a danger.
# The lengths are bounded so that an opening without an end cannot swallow what follows.
_STRING: Final = r"[^\x00-\x1f\x7f-\x9f]{0,4096}"
_INTRODUCERS: Final = frozenset("\x1b\x90\x98\x9b\x9d\x9e\x9f")
# Every alternative begins behind one of these characters: matching by them first is what makes the search fast.
_SEQUENCE: Final = re.compile(
    r"[\x1b\x90\x98\x9b\x9d-\x9f](?:"
    r"(?:(?<=\x1b)\[|(?<=\x9b))[0-?]{0,256}[ -/]{0,16}[@-~]"  # control sequences: colours, cursor movements
    rf"|(?:(?<=\x1b)[\]PX^_]|(?<=[\x90\x98\x9d-\x9f])){_STRING}(?:\x07|\x1b\\|\x9c)"  # titles, links, clipboard
    r"|(?<=\x1b)[ -/]{1,16}[0-~]"  # character sets
    r"|(?<=\x1b)[0-OQ-WYZ\\`-~])"  # all two-character ones that open nothing
)
# What might become a sequence when more arrives.
_UNFINISHED: Final = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}"
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_STRING}\x1b?"
    r"|\x1b[ -/]{0,16})\Z"
)
_LONGEST_UNFINISHED: Final = 4096 + 8

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROL_BYTES: Final = bytes(code for code in (*range(32), 127) if code not in (9, 10))
# Shown as what Unicode has to picture them: dropping a NUL would join the two words that it separates.
_PICTURES: Final = {
    **{chr(code): chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"},
    "\x7f": "\u2421",
    **{chr(code): "\ufffd" for code in range(0x80, 0xA0)},
}


class TerminalText:
    """Decodes output incrementally: UTF-8, escape sequences left out, control characters made visible.

    Bytes that are not UTF-8 become U+FFFD. CRLF and CR become LF. The text does not depend on how the bytes were cut.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        # A CR at the end of what is left when sequences are out: a LF may follow, be it behind another sequence.
        self._return = ""

    def feed(self, data: bytes) -> str:
        """Return the text of the next bytes; the end of it may be held back until more is known."""
        plain = data.isascii() and len(data.translate(None, _CONTROL_BYTES)) == len(data)
        held = self._unfinished + self._return
        text = self._unfinished + self._decoder.decode(data)
        self._unfinished = ""
        if not held and ((plain and len(text) == len(data)) or not _CONTROL.search(text)):
            return text  # by far the most common case, and several times faster
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_UNFINISHED))
        if unfinished:
            text, self._unfinished = text[: unfinished.start()], unfinished.group()
        text = self._return + _without_sequences(text)
        self._return = "\r" if text.endswith("\r") else ""
        return _harmless(text.removesuffix("\r"))

    def finish(self) -> str:
        """Return what was held back; the output has ended."""
        text = self._return + _without_sequences(self._unfinished + self._decoder.decode(b"", final=True))
        self._unfinished = self._return = ""
        return _harmless(text)


def _without_sequences(text: str) -> str:
    return text if _INTRODUCERS.isdisjoint(text) else _SEQUENCE.sub("", text)


def _harmless(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for character in _PICTURES.keys() & set(text):
        text = text.replace(character, _PICTURES[character])
    return text
