"""What the records of the package have in common: a short `repr`, and a form that JSON can hold."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

import attrs

__all__ = ["Record", "json_safe", "now_ms", "represented", "shortened"]

_LONGEST_TEXT = 60
_MOST_ITEMS = 6
_DEEPEST = 100


def now_ms() -> int:
    """Return the time as integer milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def shortened(value: Any) -> str:
    """Return a `repr` that stays short whatever it shows."""
    if isinstance(value, str):
        if len(value) <= _LONGEST_TEXT:
            return repr(value)
        return f"{value[:_LONGEST_TEXT]!r}… ({len(value)} characters)"
    if isinstance(value, (tuple, list)):
        opening, closing = ("(", ")") if isinstance(value, tuple) else ("[", "]")
        shown = [shortened(item) for item in value[:_MOST_ITEMS]]
        if len(value) > _MOST_ITEMS:
            shown.append(f"… {len(value) - _MOST_ITEMS} more")
        return opening + ", ".join(shown) + closing
    if isinstance(value, dict):
        items = list(value.items())
        shown = [f"{key!r}: {shortened(item)}" for key, item in items[:_MOST_ITEMS]]
        if len(items) > _MOST_ITEMS:
            shown.append(f"… {len(items) - _MOST_ITEMS} more")
        return "{" + ", ".join(shown) + "}"
    text = repr(value)
    return text if isinstance(value, Record) or len(text) <= 2 * _LONGEST_TEXT else text[: 2 * _LONGEST_TEXT] + "…"


class Record:
    """The base of frozen records: its `repr` leaves out what is unset and shortens what is long."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = []
        for field in attrs.fields(type(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is None or field.name == "timestamp" or not field.repr:
                continue
            if field.default is not attrs.NOTHING and value == field.default:
                continue
            shown.append(f"{field.name}={shortened(value)}")
        return f"{type(self).__name__.lstrip('_')}({', '.join(shown)})"


def json_safe(value: Any) -> Any:
    """Return the nearest thing to a value that JSON can hold; never raises.

    Records (attrs, dataclasses, anything with `to_dict`) become dicts, tuples and sets lists, enums their values,
    paths and dates strings, keys strings; NaN, infinities, cycles and everything else their `repr`.
    """
    return _safe(value, ())


def _safe(value: Any, above: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind is str or kind is bool or kind is int or value is None:
        return value
    try:
        if id(value) in above or len(above) >= _DEEPEST:
            return "…"
        return _converted(value, (*above, id(value)))
    except Exception:
        return represented(value)


def _converted(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _safe(value.value, above)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    for plain in (bool, int, str):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, Mapping):
        return {_key(key): _safe(item, above) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((_safe(item, above) for item in value), key=repr)
    if isinstance(value, (os.PathLike, uuid.UUID, Decimal)):
        return str(value)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_safe(item, above) for item in value]
    if not isinstance(value, type):
        if callable(to_dict := getattr(value, "to_dict", None)):
            return _safe(to_dict(), above)
        if attrs.has(type(value)):
            fields = attrs.fields(type(value))
            return {field.name: _safe(getattr(value, field.name), above) for field in fields}
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: _safe(getattr(value, name), above) for name in names}
    return represented(value)


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    return key if type(key) is str else str(key)


def represented(value: Any) -> str:
    """Return the `repr` of a value; never raises."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
