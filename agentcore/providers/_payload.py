"""The JSON of a request's payload, in which what was sent before is not written again.

A conversation grows at its end, and every request sends all of it. So what a message, or a tool, is sent as is a
`Fragment`: its JSON is made once and used again in the requests that follow.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["Fragment", "encoded"]

_DEEPEST_FRAGMENT = 4
"""How many lists and objects may be around a fragment: the payload, its list, a message, and the list in that."""

_LONGEST_KEPT = 1 << 18
"""Bytes. Long texts, images above all, are written about as fast as copied, and would be in memory once more."""


class Fragment(dict[str, Any]):
    """An object in a payload that nobody changes any more; a copy of it is an ordinary dict, which may be changed."""

    __slots__ = ("_kept",)
    _kept: bytes

    def json(self) -> bytes:
        """Return the JSON of the object; raises as `json.dumps` does."""
        try:
            return self._kept
        except AttributeError:
            text = _written(self)
        if len(text) <= _LONGEST_KEPT:
            self._kept = text
        return text

    def copy(self) -> dict[str, Any]:
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> Any:
        return (dict, (dict(self),))


def encoded(payload: Any) -> bytes:
    """Return a payload as JSON, or bytes as they are; raises `TypeError`, `ValueError` or `RecursionError`.

    Half a surrogate pair, which would stop the request, becomes a question mark.
    """
    return payload if isinstance(payload, bytes) else _encoded(payload, _DEEPEST_FRAGMENT)


def _encoded(value: Any, levels: int) -> bytes:
    """Return the JSON of a value in which fragments may be, this many lists and objects down."""
    kind = type(value)
    if kind is Fragment:
        fragment: Fragment = value
        return fragment.json()
    if not _holds_fragment(value, levels):
        return _written(value)
    if kind is list:
        parts = [item.json() if type(item) is Fragment else _encoded(item, levels - 1) for item in value]
        return b"[%b]" % b",".join(parts)
    return b"{%b}" % b",".join(_members(value, levels - 1))


def _members(value: dict[str, Any], levels: int) -> Iterator[bytes]:
    plain: dict[str, Any] = {}
    for name, item in value.items():
        if not _holds_fragment(item, levels):
            plain[name] = item
            continue
        if plain:
            yield _written(plain)[1:-1]
            plain = {}
        yield b"%b:%b" % (_written(name), _encoded(item, levels))
    if plain:
        yield _written(plain)[1:-1]


def _holds_fragment(value: Any, levels: int) -> bool:
    kind = type(value)
    if kind is Fragment:
        return True
    if levels and kind is list:
        return any(_holds_fragment(item, levels - 1) for item in value)
    if levels and kind is dict and all(type(name) is str for name in value):
        return any(_holds_fragment(item, levels - 1) for item in value.values())
    return False


_write: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _written(value: Any) -> bytes:
    return _write(value).encode("utf-8", "replace")
