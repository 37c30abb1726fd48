"""Read a JSON object that has not finished arriving.

What is there for certain is given: members that are complete, and the strings, arrays and objects that have begun. What
could still turn into something else is left out: half a key, a key without a value, a number that more digits may
follow, half a literal, half an escape sequence. Text that is no JSON ends the reading, like the end of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["parse_partial_object"]

_MAX_DEPTH = 200
"""How deep an unfinished object is read: far beyond real arguments, yet safe for whoever walks the result."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(
    r"(?P<literal>true|false|null|NaN|Infinity|-Infinity)|(?P<whole>-?(?:0|[1-9]\d*))(?P<rest>(?:\.\d+)?(?:[eE][-+]?\d+)?)",
    re.ASCII,
)
_LITERALS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_STRING_PART = re.compile(r'[^"\\]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*)*')
_STRINGS = json.JSONDecoder(strict=False)
"""Reads one string; raw line breaks in it are no reason to stop at a text that is incomplete anyway."""

_NOTHING = object()


def parse_partial_object(text: str) -> dict[str, Any]:
    """Return what can be read of a JSON object of which `text` is the beginning, or all.

    A complete object gives what `json.loads` gives; text that does not begin an object gives `{}`. Never raises, and
    takes time in proportion to the text.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _Reader(text).read()
    return value if isinstance(value, dict) else {}


class _Reader:
    """Reads one unfinished text from the front, with a stack of its own instead of recursion."""

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self) -> dict[str, Any]:
        root: dict[str, Any] = {}
        if not self._take("{"):
            return root
        # The containers that are open, innermost last. A container gets into its parent when it begins, so that the
        # root is right whenever the reading ends.
        stack: list[Any] = [root]
        first = True
        while stack:
            container = stack[-1]
            if self._take("}" if isinstance(container, dict) else "]"):
                stack.pop()
                first = False
                continue
            if not first and not self._take(","):
                break
            key = None
            if isinstance(container, dict):
                key = self._key()
                if key is None:
                    break
            value, complete = self._value()
            if value is _NOTHING:
                break
            if isinstance(container, dict):
                container[key] = value
            else:
                container.append(value)
            first = isinstance(value, (dict, list))
            if first:
                stack.append(value)
            if not complete or len(stack) > _MAX_DEPTH:
                break
        return root

    def _peek(self) -> str:
        """Return the next character that is no white space, or an empty string at the end."""
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position
        return self._text[self._position : self._position + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._position += 1
        return True

    def _key(self) -> str | None:
        """Return a key that its colon follows, or `None` if there is none yet."""
        if not self._take('"'):
            return None
        key, complete = self._string()
        return key if complete and self._take(":") else None

    def _value(self) -> tuple[Any, bool]:
        """Return the next value, or `_NOTHING`, and whether the reading can go on after it.

        An array or object is returned empty, and read by the caller.
        """
        character = self._peek()
        if character in ("{", "["):
            self._position += 1
            return ({} if character == "{" else []), True
        if character == '"':
            self._position += 1
            return self._string()
        return self._scalar()

    def _scalar(self) -> tuple[Any, bool]:
        match = _SCALAR.match(self._text, self._position)
        if match is None:
            return _NOTHING, False
        self._position = match.end()
        if match["literal"]:
            return _LITERALS[match["literal"]], True
        # Only what follows a number shows that it has ended.
        if self._text[self._position : self._position + 1] not in tuple(",]} \t\n\r"):
            return _NOTHING, False
        try:
            return (float(match[0]) if match["rest"] else int(match[0])), True
        except ValueError:  # more digits than Python converts
            return _NOTHING, False

    def _string(self) -> tuple[str, bool]:
        """Return the string whose opening quote is behind us, as far as it goes, and whether it is complete."""
        try:
            value, self._position = _STRINGS.raw_decode(self._text, self._position - 1)
        except ValueError:
            # Unterminated, or not a string of JSON: it is good up to the first escape that is none, or not yet.
            match = _STRING_PART.match(self._text, self._position)
            value, _ = _STRINGS.raw_decode(f'"{match[0] if match else ""}"')
            self._position = len(self._text)
            # Half of a surrogate pair is no character yet.
            return (value[:-1] if "\ud800" <= value[-1:] <= "\udbff" else value), False
        return value, True
