"""A function's annotations and docstring as a tool: its JSON schema, and how its arguments are made from JSON.

Each annotation becomes a `Shape`: a schema for the model, a check whether data has that shape, and a function that
makes the annotated value of it. What JSON cannot express raises `TypeError` when the function is looked at, naming the
parameter, never when it is called.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import enum
import inspect
import pathlib
import types
import typing
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs

__all__ = ["FunctionSignature", "Shape", "signature_of"]

_DEFS = "#/$defs/"


@attrs.frozen(eq=False)
class Shape:
    """One annotation: its JSON schema, whether JSON data has its shape, and the value that data stands for."""

    schema: dict[str, Any]
    accepts: Callable[[Any], bool]
    make: Callable[[Any], Any]


@attrs.frozen(eq=False)
class FunctionSignature:
    """What a model is told of a function, and how the function is called.

    `schema` is the JSON schema of the arguments. `call(arguments, injected)` calls the function; `injected` maps the
    annotations that are not the model's to give (`inject_types`) to their values.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[dict[str, Any], dict[Any, Any]], Any]


def signature_of(function: Callable[..., Any], inject_types: tuple[Any, ...] = ()) -> FunctionSignature:
    """Look at a function; parameters annotated with one of `inject_types` are not shown to the model.

    Raises `TypeError` for a parameter that has no annotation, one that cannot be resolved, or one that JSON cannot
    express.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        hints = typing.get_type_hints(_hinted(function), include_extras=True)
    except Exception as error:
        raise TypeError(f"an annotation of `{name}` cannot be resolved: {error}") from error
    description, described = _docstring(function)
    shapes = _Shapes()
    properties: dict[str, Any] = {}
    required: list[str] = []
    makers: dict[str, Shape] = {}
    injected: dict[str, Any] = {}
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        where = f"parameter `{parameter.name}` of `{name}`"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{where} takes any number of arguments, which a schema cannot say; name them")
        if parameter.name not in hints:
            raise TypeError(f"{where} has no annotation; annotate it with the type that the model shall give")
        hint = hints[parameter.name]
        key = _injected_as(hint, inject_types)
        if key is not None:
            injected[parameter.name] = key
            continue
        shape = shapes.of(hint, where)
        schema = dict(shape.schema)
        text = _annotated_text(hint) or described.get(parameter.name)
        if text:
            schema["description"] = text
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif parameter.default is not None and _is_json(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
        makers[parameter.name] = shape
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if shapes.definitions:
        schema["$defs"] = shapes.definitions
    return FunctionSignature(name, description, schema, _caller(function, parameters, makers, injected))


def _hinted(function: Callable[..., Any]) -> Any:
    """Return the object that holds a callable's annotations."""
    unwrapped: Any = inspect.unwrap(function)
    while hasattr(unwrapped, "func") and not inspect.isfunction(unwrapped) and not inspect.ismethod(unwrapped):
        unwrapped = unwrapped.func  # functools.partial
    if inspect.isroutine(unwrapped):
        return unwrapped
    return type(unwrapped).__call__


def _injected_as(hint: Any, inject_types: tuple[Any, ...]) -> Any:
    """Return the injected type that an annotation asks for, `X | None` included."""
    for candidate in (hint, *(typing.get_args(hint) if _is_union(hint) else ())):
        for injected in inject_types:
            if candidate is injected or candidate == injected:
                return injected
    return None


def _caller(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    makers: dict[str, Shape],
    injected: dict[str, Any],
) -> Callable[[dict[str, Any], dict[Any, Any]], Any]:
    positional = {parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY}

    def call(arguments: dict[str, Any], values: dict[Any, Any]) -> Any:
        first: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in parameters:
            name = parameter.name
            if name in injected:
                value = values[injected[name]]
            elif name in arguments:
                value = makers[name].make(arguments[name])
            elif parameter.default is not parameter.empty:
                value = parameter.default
            else:
                continue  # required, so validation has refused the call before
            if name in positional:
                first.append(value)
            else:
                named[name] = value
        return function(*first, **named)

    return call


def _is_json(value: Any) -> bool:
    if isinstance(value, enum.Enum):
        return False
    if isinstance(value, (list, tuple)):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, (str, int, float, bool))


# --- docstrings -----------------------------------------------------------------------------------------------------


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return what a docstring says about the function, and about each parameter: Google, NumPy or Sphinx style."""
    text = inspect.getdoc(_hinted(function)) or ""
    if not text:
        return "", {}
    from docstring_parser import parse

    parsed = parse(text)
    said = "\n\n".join(filter(None, [parsed.short_description, parsed.long_description]))
    parameters = {param.arg_name: " ".join(param.description.split()) for param in parsed.params if param.description}
    return said or text, parameters


def _annotated_text(hint: Any) -> str | None:
    if typing.get_origin(hint) is typing.Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, str)), None)
    return None


# --- shapes ---------------------------------------------------------------------------------------------------------


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _same(value: Any) -> Any:
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_PLAIN: dict[Any, Shape] = {
    str: Shape({"type": "string"}, lambda value: isinstance(value, str), _same),
    int: Shape({"type": "integer"}, _is_integer, _same),
    float: Shape({"type": "number"}, _is_number, float),
    bool: Shape({"type": "boolean"}, lambda value: isinstance(value, bool), _same),
    type(None): Shape({"type": "null"}, lambda value: value is None, _same),
    None: Shape({"type": "null"}, lambda value: value is None, _same),
    Any: Shape({}, lambda value: True, _same),
    object: Shape({}, lambda value: True, _same),
    list: Shape({"type": "array"}, lambda value: isinstance(value, list), _same),
    tuple: Shape({"type": "array"}, lambda value: isinstance(value, list), tuple),
    dict: Shape({"type": "object"}, lambda value: isinstance(value, dict), _same),
}


def _parsed_text(parse: Callable[[str], Any], **schema: Any) -> Shape:
    def accepts(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        try:
            parse(value)
        except (ValueError, ArithmeticError):
            return False
        return True

    return Shape({"type": "string", **schema}, accepts, parse)


def _datetime(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


_TEXTS: dict[Any, Shape] = {
    pathlib.Path: _parsed_text(pathlib.Path, description="a path"),
    dt.datetime: _parsed_text(_datetime, format="date-time"),
    dt.date: _parsed_text(dt.date.fromisoformat, format="date"),
    dt.time: _parsed_text(dt.time.fromisoformat, format="time"),
    uuid.UUID: _parsed_text(uuid.UUID, format="uuid"),
    Decimal: _parsed_text(Decimal, description="a decimal number"),
}

_LISTS: dict[Any, Callable[[Any], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
}
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class _Shapes:
    """The shapes of one function; classes with fields are defined once, by name, so that they may hold themselves."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._classes: dict[Any, Shape] = {}

    def of(self, hint: Any, where: str) -> Shape:
        """Return the shape of an annotation; raises `TypeError` for one that JSON cannot express."""
        try:
            plain = _PLAIN.get(hint) or _TEXTS.get(hint)
        except TypeError:  # not hashable, such as `Annotated[int, {}]`
            plain = None
        if plain is not None:
            return plain
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            shape, text = self.of(arguments[0], where), _annotated_text(hint)
            return attrs.evolve(shape, schema={**shape.schema, "description": text}) if text else shape
        if origin is typing.Literal:
            return _choices([(choice, choice) for choice in arguments])
        if _is_union(hint):
            return self._union(arguments, where)
        if getattr(origin, "_name", None) in ("Required", "NotRequired"):
            return self.of(arguments[0], where)
        if origin is tuple:
            return self._tuple(arguments, where)
        if origin in _LISTS:
            return self._list(self.of(arguments[0], where), _LISTS[origin])
        if origin in _DICTS:
            return self._dict(arguments, where)
        if isinstance(hint, type):
            return self._class(hint, where)
        if isinstance(hint, typing.NewType):
            return self.of(hint.__supertype__, where)
        raise TypeError(f"{where}: {_shown(hint)} cannot be expressed in JSON")

    def _union(self, arguments: tuple[Any, ...], where: str) -> Shape:
        branches = [self.of(argument, where) for argument in arguments]

        def make(value: Any) -> Any:
            for branch in branches:
                if branch.accepts(value):
                    return branch.make(value)
            raise ValueError(f"{value!r} is none of the types it may be")

        return Shape(
            {"anyOf": [branch.schema for branch in branches]},
            lambda value: any(branch.accepts(value) for branch in branches),
            make,
        )

    def _list(self, item: Shape, kind: Callable[[Any], Any]) -> Shape:
        schema: dict[str, Any] = {"type": "array", "items": item.schema}
        if kind in (set, frozenset):
            schema["uniqueItems"] = True
        return Shape(
            schema,
            lambda value: isinstance(value, list) and all(item.accepts(one) for one in value),
            lambda value: kind(item.make(one) for one in value),
        )

    def _tuple(self, arguments: tuple[Any, ...], where: str) -> Shape:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return self._list(self.of(arguments[0], where), tuple)
        items = [self.of(argument, where) for argument in arguments if argument != ()]
        size = len(items)
        return Shape(
            {"type": "array", "prefixItems": [item.schema for item in items], "minItems": size, "maxItems": size},
            lambda value: (
                isinstance(value, list)
                and len(value) == size
                and all(item.accepts(one) for item, one in zip(items, value, strict=True))
            ),
            lambda value: tuple(item.make(one) for item, one in zip(items, value, strict=True)),
        )

    def _dict(self, arguments: tuple[Any, ...], where: str) -> Shape:
        key, value_shape = self.of(arguments[0], where), self.of(arguments[1], where)
        if key.schema.get("type") != "string":
            raise TypeError(f"{where}: the keys of a JSON object are text, not {_shown(arguments[0])}")
        return Shape(
            {"type": "object", "additionalProperties": value_shape.schema},
            lambda value: isinstance(value, dict) and all(value_shape.accepts(one) for one in value.values()),
            lambda value: {key.make(name): value_shape.make(one) for name, one in value.items()},
        )

    def _class(self, cls: Any, where: str) -> Shape:
        if issubclass(cls, enum.Enum):
            return _choices([(member.value, member) for member in cls])
        fields = _fields_of(cls)
        if fields is None:
            raise TypeError(f"{where}: `{cls.__name__}` cannot be expressed in JSON; use a dataclass or plain types")
        if cls not in self._classes:
            name = cls.__name__
            while name in self.definitions:
                name += "_"
            reference = {"$ref": _DEFS + name}
            self.definitions[name] = {}  # claimed: the class may hold itself
            inner: dict[str, Shape] = {}
            required = {field for field, (_, needed) in fields.items() if needed}

            def accepts(value: Any) -> bool:
                return (
                    isinstance(value, dict)
                    and required <= value.keys()
                    and all(field not in inner or inner[field].accepts(one) for field, one in value.items())
                )

            def make(value: Any) -> Any:
                return cls(**{field: inner[field].make(one) for field, one in value.items() if field in inner})

            self._classes[cls] = Shape(reference, accepts, make)
            inner.update({field: self.of(hint, f"{where}, field `{field}`") for field, (hint, _) in fields.items()})
            self.definitions[name] = _object_schema(cls, fields, inner)
        return self._classes[cls]


def _object_schema(cls: Any, fields: dict[str, tuple[Any, bool]], shapes: dict[str, Shape]) -> dict[str, Any]:
    _, described = _docstring(cls) if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(") else ("", {})
    properties = {}
    for name, (hint, _) in fields.items():
        text = _annotated_text(hint) or described.get(name)
        properties[name] = {**shapes[name].schema, "description": text} if text else shapes[name].schema
    required = [name for name, (_, needed) in fields.items() if needed]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _fields_of(cls: Any) -> dict[str, tuple[Any, bool]] | None:
    """Return the fields of a class that JSON objects can be made into: annotation, and whether it is required."""
    if typing.is_typeddict(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        return {name: (hint, name in cls.__required_keys__) for name, hint in hints.items()}
    if dataclasses.is_dataclass(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        missing = dataclasses.MISSING
        return {
            field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(cls)
            if field.init
        }
    if attrs.has(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        return {
            field.alias or field.name: (hints.get(field.name, Any), field.default is attrs.NOTHING)
            for field in attrs.fields(cls)
            if field.init
        }
    return None


def _choices(pairs: list[tuple[Any, Any]]) -> Shape:
    """Return the shape of a choice among values, given with what each stands for."""

    def place(value: Any) -> int | None:
        return next((at for at, (word, _) in enumerate(pairs) if word == value and type(word) is type(value)), None)

    def make(value: Any) -> Any:
        at = place(value)
        if at is None:
            raise ValueError(f"{value!r} is none of {[word for word, _ in pairs]}")
        return pairs[at][1]

    return Shape({"enum": [word for word, _ in pairs]}, lambda value: place(value) is not None, make)


def _shown(hint: Any) -> str:
    return f"`{hint.__name__}`" if isinstance(hint, type) else f"`{hint}`".replace("typing.", "")
