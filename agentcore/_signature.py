"""A function as a tool: its annotations and docstring as a JSON schema, and how it is called with JSON arguments."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import attrs

from agentcore._annotations import NO_DEFAULT, Place, names_around
from agentcore._docstrings import read_docstring
from agentcore._shapes import Seen, Shape, Shapes, annotated_text, described, is_union
from agentcore.errors import ToolArgumentsError

__all__ = ["FunctionSignature", "signature_of"]


@attrs.frozen(eq=False)
class FunctionSignature:
    """What a model is told of a function, and how the function is called.

    `schema` is the JSON schema of the arguments. `call(arguments, injected)` calls the function with the values that
    the arguments stand for; `injected` maps the annotations that are not the model's to give (`inject_types`) to their
    values. It raises `ToolArgumentsError` for an argument of which no value can be made, and what the function raises.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[dict[str, Any], dict[Any, Any]], Any]


def signature_of(function: Callable[..., Any], inject_types: tuple[Any, ...] = ()) -> FunctionSignature:
    """Look at a function; parameters annotated with one of `inject_types` are not shown to the model.

    Raises `TypeError` for an `async` function, and, naming it, for a parameter that has no annotation, one that cannot
    be resolved, or one that JSON cannot express.
    """
    name, inner = _name(function), _innermost(function)
    parameters = _parameters(function, name)
    # The `def` knows the names that the annotations use.
    target = inner if inspect.isroutine(inner) else inspect.unwrap(type(inner).__call__)
    said, texts = read_docstring(_docstring(inner, target))
    names, module_names = names_around(target), getattr(target, "__globals__", {})
    shapes = Shapes()
    shown: dict[str, Shape] = {}
    injected: dict[str, Any] = {}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    for parameter in parameters:
        place = Place(f"parameter `{parameter.name}` of `{name}`", names, module_names, names)
        _check_named_and_annotated(parameter, place)
        hint = place.resolved(parameter.annotation)
        key = _injected_as(hint, inject_types)
        if key is not None:
            injected[parameter.name] = key
            continue
        shape = shown[parameter.name] = shapes.of(hint, place)
        text = annotated_text(hint) or texts.get(parameter.name)
        schema["properties"][parameter.name] = described(shape, text, parameter.default)
    required = [one.name for one in parameters if one.name in shown and one.default is NO_DEFAULT]
    if required:
        schema["required"] = required
    if shapes.definitions:
        schema["$defs"] = shapes.definitions
    return FunctionSignature(name, said, schema, _caller(function, parameters, shown, injected))


# --- looking at the function ----------------------------------------------------------------------------------------


def _name(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if isinstance(name, str):
        return name
    return _name(function.func) if isinstance(function, functools.partial) else type(function).__name__


def _innermost(function: Any) -> Any:
    """Return the callable below decorators and `functools.partial`."""
    inner: Any = None
    while inner is not function:
        inner, function = function, inspect.unwrap(function)
        if isinstance(function, functools.partial):
            function = function.func
    return function


def _docstring(inner: Any, target: Any) -> str | None:
    if inner is target and getattr(target, "__name__", "") != "__call__":
        return inspect.getdoc(target)
    # `inspect.getdoc` would find what Python says of calling objects in general.
    text = target.__doc__ or (None if inner is target else type(inner).__doc__)
    return inspect.cleandoc(text) if text else None


def _parameters(function: Any, name: str) -> list[inspect.Parameter]:
    called = function if inspect.isroutine(function) else type(function).__call__
    if any(check(one) for check in _ASYNC_CHECKS for one in (function, called)):
        raise TypeError(f"`{name}` is `async`; tools run on threads: write it with `def`")
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TypeError(f"the parameters of `{name}` cannot be read: {error}") from error


_ASYNC_CHECKS = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def _check_named_and_annotated(parameter: inspect.Parameter, place: Place) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"{place.words} takes any number of arguments, which a schema cannot say; name them")
    if parameter.annotation is parameter.empty:
        if parameter.name in ("self", "cls"):
            raise TypeError(
                f"{place.words} is given by an object: make the tool of its method, as in `tool(it.search)`"
            )
        raise TypeError(f"{place.words} has no annotation; annotate it with the type that the model shall give")


def _injected_as(hint: Any, inject_types: tuple[Any, ...]) -> Any:
    """Return the injected type that an annotation asks for, `X | None` and `Annotated[X, ...]` included."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    for candidate in (hint, *(typing.get_args(hint) if is_union(hint) else ())):
        for injected in inject_types:
            if candidate is injected or candidate == injected:
                return injected
    return None


# --- calling it -----------------------------------------------------------------------------------------------------


def _caller(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    shapes: dict[str, Shape],
    injected: dict[str, Any],
) -> Callable[[dict[str, Any], dict[Any, Any]], Any]:
    def call(arguments: dict[str, Any], values: dict[Any, Any]) -> Any:
        first: list[Any] = []
        named: dict[str, Any] = {}
        seen: Seen = {}
        for parameter in parameters:
            name = parameter.name
            if name in injected:
                value = values[injected[name]]
            elif name in arguments:
                value = _made(shapes[name], arguments[name], name, seen)
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                value = parameter.default  # one after it may be given
            else:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                first.append(value)
            else:
                named[name] = value
        return function(*first, **named)

    return call


def _made(shape: Shape, data: Any, name: str, seen: Seen) -> Any:
    try:
        return shape.make(data, seen)
    except Exception as error:
        raise ToolArgumentsError(f"the argument `{name}` cannot be used: {error}") from error
