"""An annotation as JSON: the schema a model is told, whether data has that shape, and the value that data stands for.

What JSON cannot express raises `TypeError`, in words that name the place of the annotation.
"""

from __future__ import annotations

import collections.abc
import datetime as dt
import enum
import inspect
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

import attrs

from agentcore._annotations import NO_DEFAULT, ClassField, Place, fields_of, qualified, shown
from agentcore._docstrings import read_docstring
from agentcore._records import json_safe, shortened

__all__ = ["Seen", "Shape", "Shapes", "annotated_text", "described", "is_union"]

Seen = dict[tuple[int, int], "int | None"]
"""How well pieces of data fit shapes, by the identities of both; it lives as long as the data is looked at."""


@attrs.frozen(eq=False)
class Shape:
    """One annotation: its JSON schema, whether JSON data has its shape, and the value that data stands for.

    `misfit(data, seen)` is `None` for data of another shape, else how much of the data would be lost or changed: 0 is
    a perfect fit. `make(data, seen)` is the annotated value, for data that fits.
    """

    schema: dict[str, Any]
    misfit: Callable[[Any, Seen], int | None]
    make: Callable[[Any, Seen], Any]


def _same(value: Any, seen: Seen) -> Any:
    return value


def _plain(name: str, kind: type) -> Shape:
    def misfit(value: Any, seen: Seen) -> int | None:
        return 0 if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) else None

    return Shape({"type": name}, misfit, _same)


def _float_misfit(value: Any, seen: Seen) -> int | None:
    if isinstance(value, float):
        return 0
    return 1 if isinstance(value, int) and not isinstance(value, bool) else None


_ANYTHING = Shape({}, lambda value, seen: 0, _same)

_PLAIN: dict[Any, Shape] = {
    str: _plain("string", str),
    int: _plain("integer", int),
    float: Shape({"type": "number"}, _float_misfit, lambda value, seen: float(value)),
    bool: _plain("boolean", bool),
    type(None): _plain("null", type(None)),
    None: _plain("null", type(None)),
    Any: _ANYTHING,
    object: _ANYTHING,
}


def _text(what: str, parse: Callable[[str], Any], **schema: Any) -> Shape:
    """Return the shape of text that is parsed; `what` says what it has to be."""

    def make(value: Any, seen: Seen) -> Any:
        try:
            return parse(value)
        except (ValueError, ArithmeticError):
            raise ValueError(f"{shortened(value)} is not {what}") from None

    def misfit(value: Any, seen: Seen) -> int | None:
        if not isinstance(value, str):
            return None
        try:
            parse(value)
        except (ValueError, ArithmeticError):
            return None
        return 0

    return Shape({"type": "string", **(schema or {"description": what})}, misfit, make)


def _with_zone(text: str) -> str:
    return text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text  # 3.10 does not know the letter


_TEXTS: dict[Any, Shape] = {
    pathlib.Path: _text("a path", pathlib.Path),
    pathlib.PurePath: _text("a path", pathlib.PurePath),
    dt.datetime: _text(
        "a date and time like 2024-12-31T23:59:00Z",
        lambda text: dt.datetime.fromisoformat(_with_zone(text)),
        format="date-time",
    ),
    dt.date: _text("a date like 2024-12-31", dt.date.fromisoformat, format="date"),
    dt.time: _text("a time like 23:59:00", lambda text: dt.time.fromisoformat(_with_zone(text)), format="time"),
    uuid.UUID: _text("a UUID", uuid.UUID, format="uuid"),
    Decimal: _text("a decimal number", Decimal),
}

_LISTS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def is_union(hint: Any) -> bool:
    """Return whether a hint is a union, however it is written."""
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def annotated_text(hint: Any) -> str | None:
    """Return the text in `Annotated[..., "text"]`."""
    if typing.get_origin(hint) is typing.Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, str)), None)
    return None


def described(shape: Shape, text: str | None, default: Any = NO_DEFAULT) -> dict[str, Any]:
    """Return a shape's schema with a description, and with a default if JSON data stands for it exactly."""
    schema = {**shape.schema, "description": text} if text else dict(shape.schema)
    if default is NO_DEFAULT or default is None:
        return schema
    data = json_safe(default)
    try:
        stands_for_it = shape.misfit(data, {}) is not None and bool(shape.make(data, {}) == default)
    except Exception:  # values compare as they like
        return schema
    return {**schema, "default": data} if stands_for_it else schema


def _total(misfits: Iterable[int | None]) -> int | None:
    total = 0
    for misfit in misfits:
        if misfit is None:
            return None
        total += misfit
    return total


def _remembered(misfit: Callable[[Any, Seen], int | None]) -> Callable[[Any, Seen], int | None]:
    """Return a function that looks at a piece of data once: unions in unions would look at it again for each branch."""

    def remembered(value: Any, seen: Seen) -> int | None:
        key = (id(remembered), id(value))
        if key not in seen:
            seen[key] = misfit(value, seen)
        return seen[key]

    return remembered


class Shapes:
    """The shapes of one function; `definitions` are the schemas of those that have a name and so may hold themselves."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._named: dict[Any, Shape] = {}

    def of(self, hint: Any, place: Place) -> Shape:
        """Return the shape of an annotation; raises `TypeError` for one that JSON cannot express."""
        if isinstance(hint, (str, typing.ForwardRef)):  # `list["Item"]` keeps its string on 3.10
            hint = place.resolved(hint)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            shape = self.of(arguments[0], place)
            return attrs.evolve(shape, schema=described(shape, annotated_text(hint)))
        if origin is typing.Literal:
            return self._literal(arguments, place)
        if is_union(hint):
            return self._union([self.of(argument, place) for argument in arguments])
        if qualified(hint) is not None:
            return self.of(arguments[0], place)
        return self._generic(hint, origin or hint, arguments, place)

    def _generic(self, hint: Any, origin: Any, arguments: tuple[Any, ...], place: Place) -> Shape:
        try:
            hash(origin)
        except TypeError:
            raise _inexpressible(hint, place) from None
        if origin in _PLAIN or origin in _TEXTS:
            return _PLAIN.get(origin) or _TEXTS[origin]
        if origin is tuple:
            # Bare `Tuple` is any tuple, `tuple[()]` the empty one.
            bare = hint in (tuple, typing.Tuple)  # noqa: UP006
            return self._tuple((Any, ...) if bare else arguments, place)
        if origin in _LISTS:
            return self._list(arguments[0] if arguments else Any, _LISTS[origin], place)
        if origin in _DICTS:
            return self._dict(arguments or (Any, Any), place)
        if isinstance(hint, typing.NewType):
            return self.of(hint.__supertype__, place)
        if type(hint).__name__ == "TypeAliasType":  # `type Name = ...`
            return self._reference(hint, hint.__name__, lambda: self.of(hint.__value__, place.of_definition(hint)))
        if isinstance(hint, type) and not arguments:
            return self._class(hint, place)
        raise _inexpressible(hint, place)

    # --- choices and unions ---

    def _literal(self, choices: tuple[Any, ...], place: Place) -> Shape:
        if any(isinstance(choice, bytes) for choice in choices):
            raise _inexpressible(typing.Literal[choices], place)
        return _choice([(_word(choice) if isinstance(choice, enum.Enum) else choice, choice) for choice in choices])

    def _union(self, branches: list[Shape]) -> Shape:
        def fits(value: Any, seen: Seen) -> Iterator[tuple[int, int]]:
            for number, branch in enumerate(branches):
                if (misfit := branch.misfit(value, seen)) is not None:
                    yield misfit, number

        def make(value: Any, seen: Seen) -> Any:
            best = min(fits(value, seen), default=None)
            if best is None:
                raise ValueError(f"{shortened(value)} is none of what it may be")
            return branches[best[1]].make(value, seen)

        def misfit(value: Any, seen: Seen) -> int | None:
            return min((misfit for misfit, _ in fits(value, seen)), default=None)

        return Shape({"anyOf": [branch.schema for branch in branches]}, _remembered(misfit), make)

    # --- arrays and objects ---

    def _list(self, hint: Any, kind: Callable[[Iterable[Any]], Any], place: Place) -> Shape:
        item = self.of(hint, place)
        if kind in (set, frozenset) and getattr(typing.get_origin(hint) or hint, "__hash__", None) is None:
            raise TypeError(f"{place.words}: a set cannot hold {shown(hint)}, which is not hashable")
        return Shape(
            {"type": "array", "items": item.schema},
            lambda value, seen: _total(item.misfit(one, seen) for one in value) if isinstance(value, list) else None,
            lambda value, seen: kind(item.make(one, seen) for one in value),
        )

    def _tuple(self, arguments: tuple[Any, ...], place: Place) -> Shape:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return self._list(arguments[0], tuple, place)
        items = [self.of(argument, place) for argument in arguments if argument != ()]
        schemas, size = [item.schema for item in items], len(items)
        schema: dict[str, Any] = {"type": "array", "minItems": size, "maxItems": size}
        if size:
            alike = all(one == schemas[0] for one in schemas)
            schema = {**schema, "items": schemas[0]} if alike else {**schema, "prefixItems": schemas}

        def misfit(value: Any, seen: Seen) -> int | None:
            if not isinstance(value, list) or len(value) != size:
                return None
            return _total(item.misfit(one, seen) for item, one in zip(items, value, strict=True))

        return Shape(
            schema,
            misfit,
            lambda value, seen: tuple(item.make(one, seen) for item, one in zip(items, value, strict=True)),
        )

    def _dict(self, arguments: tuple[Any, ...], place: Place) -> Shape:
        key_hint, value_hint = arguments
        key, item = self.of(key_hint, place), self.of(value_hint, place)
        if key.schema and key.schema.get("type") != "string":
            raise TypeError(f"{place.words}: the keys of a JSON object are text, not {shown(key_hint)}")
        schema: dict[str, Any] = {"type": "object"}
        if item.schema:
            schema["additionalProperties"] = item.schema
        if len(key.schema) > 1:
            schema["propertyNames"] = key.schema

        def misfit(value: Any, seen: Seen) -> int | None:
            if not isinstance(value, dict):
                return None
            return _total(
                fit for name, one in value.items() for fit in (key.misfit(name, seen), item.misfit(one, seen))
            )

        return Shape(
            schema,
            misfit,
            lambda value, seen: {key.make(name, seen): item.make(one, seen) for name, one in value.items()},
        )

    # --- what has a name ---

    def _reference(self, key: Any, name: str, build: Callable[[], Shape]) -> Shape:
        """Return the shape by its name, which is claimed before the shape is built: it may hold itself."""
        if key not in self._named:
            while name in self.definitions:
                name += "_"
            self.definitions[name] = {}
            built: list[Shape] = []

            def misfit(value: Any, seen: Seen) -> int | None:
                return built[0].misfit(value, seen)

            def make(value: Any, seen: Seen) -> Any:
                return built[0].make(value, seen)

            self._named[key] = Shape({"$ref": f"#/$defs/{name}"}, _remembered(misfit), make)
            built.append(build())
            self.definitions[name] = built[0].schema
        return self._named[key]

    def _class(self, cls: type, place: Place) -> Shape:
        if issubclass(cls, enum.Enum):
            return _enum(cls, place)
        fields = None if cls in self._named else fields_of(cls, place)
        if fields is None and cls not in self._named:
            raise TypeError(f"{place.words}: {shown(cls)} cannot be expressed in JSON; use a dataclass or plain types")
        return self._reference(cls, cls.__name__, lambda: self._object(cls, fields or []))

    def _object(self, cls: type, fields: list[ClassField]) -> Shape:
        shapes = {field.name: self.of(field.hint, field.place) for field in fields}
        required = [field.name for field in fields if field.required]
        said, texts = _class_docstring(cls)
        schema: dict[str, Any] = {"type": "object", **({"description": said} if said else {})}
        schema["properties"] = {
            field.name: described(
                shapes[field.name], annotated_text(field.hint) or texts.get(field.name), field.default
            )
            for field in fields
        }
        if required:
            schema["required"] = required

        def misfit(value: Any, seen: Seen) -> int | None:
            if not isinstance(value, dict) or not all(name in value for name in required):
                return None
            # A key that is no field would be lost.
            return _total(shapes[name].misfit(one, seen) if name in shapes else 1 for name, one in value.items())

        def make(value: Any, seen: Seen) -> Any:
            return cls(**{name: shapes[name].make(one, seen) for name, one in value.items() if name in shapes})

        return Shape(schema, misfit, make)


def _inexpressible(hint: Any, place: Place) -> TypeError:
    return TypeError(f"{place.words}: {shown(hint)} cannot be expressed in JSON")


def _class_docstring(cls: type) -> tuple[str, dict[str, str]]:
    text = cls.__dict__.get("__doc__")
    # Dataclasses and named tuples without a docstring are given one that repeats the fields.
    if not text or text.startswith(f"{cls.__name__}("):
        return "", {}
    return read_docstring(inspect.cleandoc(text))


def _enum(cls: type[enum.Enum], place: Place) -> Shape:
    """Return the shape of an enum: its values, or its names when a value is more than JSON can hold."""
    members = list(cls)
    if not members:
        raise TypeError(f"{place.words}: the enum `{cls.__name__}` has no members")
    by_value = all(_word(member) is member.value for member in members)
    return _choice([(member.value if by_value else member.name, member) for member in members])


def _word(member: enum.Enum) -> Any:
    return member.value if type(member.value) in _KINDS else member.name


_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _choice(pairs: list[tuple[Any, Any]]) -> Shape:
    """Return the shape of a choice among values, each given with what it stands for."""
    kinds = list(dict.fromkeys(_KINDS[type(word)] for word, _ in pairs))

    def place(value: Any) -> int | None:
        # JSON has one kind of numbers, so 1.0 is 1; but `True` is not.
        same = (
            at
            for at, (word, _) in enumerate(pairs)
            if word == value and isinstance(word, bool) is isinstance(value, bool)
        )
        return next(same, None)

    def make(value: Any, seen: Seen) -> Any:
        at = place(value)
        if at is None:
            raise ValueError(f"{shortened(value)} is none of {', '.join(shortened(word) for word, _ in pairs)}")
        return pairs[at][1]

    schema = {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": [word for word, _ in pairs]}
    return Shape(schema, lambda value, seen: None if place(value) is None else 0, make)
