"""What the records of the package have in common: a short `repr`, and a form that JSON can hold."""

from __future__ import annotations

import enum
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import islice
from typing import Any

import attrs

__all__ = ["Record", "Valued", "is_a", "json_safe", "now_ms", "represented", "shortened", "text_of"]

_LONGEST_TEXT = 60
_MOST_ITEMS = 6
_LONGEST_REPR = 500
_DEEPEST_SHOWN = 3
# Each level takes up to three frames of the interpreter's stack, and JSON itself gives up at some depth.
_DEEPEST = 200
# More digits than `int` and `json` convert by default.
_MOST_BITS = 14_000


def now_ms() -> int:
    """Return the time as integer milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def is_a(cls: type, *, optional: bool = False) -> Callable[[Any, Any, Any], None]:
    """Return a validator of fields: a value is of a class, or `None` where that is allowed; it raises `TypeError`."""

    def check(record: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, cls) and not (optional and value is None):
            raise TypeError(f"`{field.name}` is a `{cls.__name__}`, not {type(value).__name__}")

    return check


def shortened(value: Any, depth: int = 0) -> str:
    """Return a `repr` that stays short whatever it shows; never raises."""
    try:
        if isinstance(value, str):
            more = f"… ({len(value)} characters)" if len(value) > _LONGEST_TEXT else ""
            return represented(value[:_LONGEST_TEXT]) + more
        if isinstance(value, (tuple, list, dict)):
            opening, closing = "()" if isinstance(value, tuple) else "[]" if isinstance(value, list) else "{}"
            return opening + (_items(value, depth + 1) if depth < _DEEPEST_SHOWN else "…" if value else "") + closing
        text = represented(value)
        return text if isinstance(value, Record) else _cut(text, 2 * _LONGEST_TEXT)
    except Exception:
        return _nameless(value)


def _items(value: tuple[Any, ...] | list[Any] | dict[Any, Any], depth: int) -> str:
    first = islice(value, _MOST_ITEMS)
    if isinstance(value, dict):
        shown = [f"{shortened(key, depth)}: {shortened(value[key], depth)}" for key in first]
    else:
        shown = [shortened(item, depth) for item in first]
    if len(value) > _MOST_ITEMS:
        shown.append(f"… {len(value) - _MOST_ITEMS} more")
    return ", ".join(shown) + ("," if isinstance(value, tuple) and len(value) == 1 else "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


@cache
def _compared(cls: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(cls) if field.eq)


def _values(record: Any) -> list[Any]:
    return [getattr(record, name) for name in _compared(type(record))]  # type: ignore[arg-type]


class Valued:
    """The base of what compares by value: same class, equal fields. Not hashable.

    attrs can generate these methods for each class; that takes a tenth of a millisecond a class at import.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    __hash__: Any = None


class Record(Valued):
    """The base of frozen records: its `repr` leaves out what is unset and shortens what is long."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash((type(self), *_values(self)))

    def __repr__(self) -> str:
        shown = []
        for field in attrs.fields(type(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is None or field.name == "timestamp" or not field.repr or _is_default(value, field.default):
                continue
            text = field.repr(value) if callable(field.repr) else shortened(value)
            shown.append(f"{field.name}={text}")
        return f"{type(self).__name__.lstrip('_')}({_cut(', '.join(shown), _LONGEST_REPR)})"


def _is_default(value: Any, default: Any) -> bool:
    # Values of other types may compare as they like, arrays for one have no truth value.
    return value is default or (
        type(value) is type(default) and isinstance(value, (str, int, tuple)) and value == default
    )


def json_safe(value: Any) -> Any:
    """Return the nearest thing to a value that JSON can hold; never raises.

    Records (attrs, dataclasses, anything with `to_dict`) become dicts, tuples and sets lists, enums their values,
    paths, dates and integers of thousands of digits strings, keys strings; NaN, infinities and everything else their
    `repr`; cycles and what is nested deeper than 200 levels `"…"`.
    """
    return _safe(value, ())


def _safe(value: Any, above: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if value.bit_length() <= _MOST_BITS else hex(value)
    try:
        if id(value) in above or len(above) >= _DEEPEST:
            return "…"
        return _converted(value, (*above, id(value)))
    except Exception:
        return represented(value)


# Sequences that are better shown than listed: one number a byte says little, and a range may be endless.
_NOT_LISTED = (bytes, bytearray, memoryview, range)


def _converted(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _safe(value.value, above)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(value)
    if isinstance(value, int):
        return _safe(int(value), above)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_key(key): _safe(item, above) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((_safe(item, above) for item in value), key=repr)
    if isinstance(value, os.PathLike) or _is_of(value, "uuid", "UUID") or _is_of(value, "decimal", "Decimal"):
        return str(value)
    if _is_of(value, "datetime", "date", "time"):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, _NOT_LISTED):
        return [_safe(item, above) for item in value]
    if not isinstance(value, type):
        if callable(to_dict := getattr(value, "to_dict", None)):
            return _safe(to_dict(), above)
        if attrs.has(type(value)):
            fields = attrs.fields(type(value))
            return {field.name: _safe(getattr(value, field.name), above) for field in fields}
        dataclasses = sys.modules.get("dataclasses")
        if dataclasses is not None and dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: _safe(getattr(value, name), above) for name in names}
    return represented(value)


def _is_of(value: Any, module: str, *classes: str) -> bool:
    """Return whether a value is of classes of a module, which need not be imported to know that it is not."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(value, tuple(getattr(imported, name) for name in classes))


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if type(key) is str:
        return key
    try:
        return str.__str__(key) if isinstance(key, str) else str(key)
    except Exception:
        return represented(key)


def represented(value: Any) -> str:
    """Return the `repr` of a value; never raises."""
    try:
        return repr(value)
    except Exception:
        return _nameless(value)


def text_of(value: Any) -> str:
    """Return the `str` of a value; never raises."""
    try:
        return str(value)
    except Exception:
        return represented(value)


def _nameless(value: Any) -> str:
    return f"<{type(value).__name__}>"
