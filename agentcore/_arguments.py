"""The arguments of a tool call against the tool's schema: coerce what failed, validate, say what is wrong.

A schema is compiled once for each tool and kept on it. `jsonschema` and `referencing` are imported when the first
schema is compiled. Nothing is ever fetched: a reference resolves inside the schema, or the schema is refused.

Threads: every function may be called from any thread.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any, NoReturn, Protocol, cast

from agentcore._argument_work import TooMuchWork, Work, limited, take
from agentcore._coercion import NOTHING, Mender, NotJsonError, coerced, copied, holds_whole_float
from agentcore._problems import cut, dotted, kind_of, problems_of, shown_as_json
from agentcore._records import represented
from agentcore.errors import ToolArgumentsError

__all__ = ["ToolSchema", "check_arguments", "compile_schema", "validate_arguments"]

_DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MOST_PROBLEMS = 50
_LONGEST_PROBLEM = 400
_LONGEST_VALUE = 100
_LONGEST_RECEIVED = 500
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "extends")
_REFERENCES = ("$ref", "$dynamicRef")
_MULTIPLYING = ("anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "$recursiveRef")


class ToolSchema(Protocol):
    """What is needed of a tool: its name, its schema, and the place where the compiled schema is kept."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def compiled(self) -> Any: ...


class _Compiled:
    """The validators of a schema; copies share them, and a pickle leaves them behind to be compiled again.

    For `strict` a float is no integer, not even 5.0, so that it gets noticed and made one; `plain` has the last word.
    """

    __slots__ = ("plain", "strict")

    def __init__(self, strict: Any, plain: Any) -> None:
        self.strict = strict
        self.plain = plain

    def __deepcopy__(self, memo: Any) -> _Compiled:
        return self

    def __reduce__(self) -> Any:
        return (_not_compiled, ())


def _not_compiled() -> None:
    return None


# --- compiling ------------------------------------------------------------------------------------------------------


def compile_schema(tool: ToolSchema) -> None:
    """Check a tool's schema and keep its validator on the tool; does nothing when it is there already.

    Raises `ValueError`, naming the tool, for a schema that is malformed, that cannot describe an object, or that has
    a reference to something outside of itself.
    """
    if tool.compiled is not None:
        return
    try:
        compiled = _compiled(tool.parameters)
    except RecursionError:
        raise ValueError(f"the schema of tool {tool.name!r} is nested too deeply") from None
    except _Refused as refused:
        raise ValueError(f"the schema of tool {tool.name!r} cannot be used: {refused}") from None
    # The tool is frozen; two threads that compile at once write equal things.
    object.__setattr__(tool, "compiled", compiled)


class _Refused(Exception):
    """Why a schema cannot be used."""


def _compiled(parameters: dict[str, Any]) -> _Compiled:
    from referencing import Registry
    from referencing.jsonschema import specification_with

    # A copy, since `$schema` is taken out of it: the validator would otherwise leave our class at each such place.
    schema = copy.deepcopy(parameters)
    dialect = schema.pop("$schema", _DEFAULT_DIALECT)
    classes = _validator_classes(dialect) if isinstance(dialect, str) else None
    if classes is None:
        raise _Refused(f"`$schema` names no known draft of JSON Schema: {shown_as_json(dialect, _LONGEST_VALUE)}")
    strict, plain = classes
    _SchemaCheck(plain, dialect, specification_with(dialect), schema).run()
    return _Compiled(strict(schema, registry=Registry()), plain(schema, registry=Registry()))


@lru_cache(maxsize=16)
def _validator_classes(dialect: str) -> tuple[Any, Any] | None:
    """Return the strict and the plain validator of a draft; `None` for a draft that is not known.

    In the strict one an error of `anyOf` or `oneOf` keeps the validator that found it, which knows the place that
    references are relative to. Both count what they do.
    """
    from jsonschema import validators

    base = validators.validator_for({"$schema": dialect}, default=cast(Any, None))
    if base is None:
        return None
    counted = {name: _counting(base.VALIDATORS[name]) for name in _MULTIPLYING if name in base.VALIDATORS}
    remembered = {name: _remembering(counted[name]) for name in ("anyOf", "oneOf") if name in counted}
    extend: Any = validators.extend
    plain = extend(base, validators=counted)
    strict = base.TYPE_CHECKER.redefine("integer", _is_integer)
    return extend(plain, validators=remembered, type_checker=strict), plain


def _is_integer(checker: Any, instance: Any) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


def _counting(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def counting(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        take(len(value) if isinstance(value, list) else 1)
        return keyword(validator, value, instance, schema)

    return counting


def _remembering(keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def remembering(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        for error in keyword(validator, value, instance, schema) or ():
            error.found_by = validator
            yield error

    return remembering


def _check_form(cls: Any, part: Any, whole: Any) -> None:
    from jsonschema.exceptions import SchemaError

    try:
        cls.check_schema(part)
    except SchemaError as error:
        place = (*_place_of(part, whole), *error.path)
        raise _Refused(f"{dotted(place)}: {cut(error.message, _LONGEST_PROBLEM)}") from None
    except RecursionError:
        raise
    except Exception as error:  # a key that is no str, and whatever else JSON cannot hold
        raise _Refused(f"it is no JSON ({type(error).__name__}: {cut(str(error), _LONGEST_PROBLEM)})") from None


def _place_of(part: Any, whole: Any) -> tuple[str | int, ...]:
    """Return the path to a part of a schema; only asked for when something is wrong with it."""
    pending: list[tuple[tuple[str | int, ...], Any]] = []
    path: tuple[str | int, ...] = ()
    value = whole
    while value is not part:
        if isinstance(value, dict):
            pending += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [((*path, index), item) for index, item in enumerate(value)]
        path, value = pending.pop()
    return path


def _spell_out_false(part: dict[str, Any]) -> None:
    """Write `false` for a property as a schema that allows nothing: the error of `false` does not say where it is."""
    for keyword in ("properties", "patternProperties"):
        for name, schema in part.get(keyword, {}).items():
            if schema is False:
                part[keyword][name] = {"not": {}}


class _SchemaCheck:
    """Goes through the parts of a schema and follows its references."""

    def __init__(self, cls: Any, dialect: str, specification: Any, schema: dict[str, Any]) -> None:
        self.cls = cls
        self.dialect = dialect
        self.specification = specification
        self.schema = schema
        self.targets: dict[int, list[Any]] = {}
        self.parts: dict[int, dict[str, Any]] = {}
        self.allowing: dict[int, bool] = {}

    def run(self) -> None:
        """Refuse a malformed schema, references that do not resolve, circles of them, and one that allows no object."""
        from referencing import Registry

        _check_form(self.cls, self.schema, self.schema)
        root = self.specification.create_resource(self.schema)
        linked = self._visit(root, Registry().resolver_with_root(root))
        while linked:
            contents, resolver = linked.pop()
            if isinstance(contents, dict) and id(contents) not in self.parts:
                # A target at a place where the draft keeps no schemas has not been checked with the whole.
                _check_form(self.cls, contents, self.schema)
                linked += self._visit(self.specification.create_resource(contents), resolver)
        self._refuse_circles()
        if not self._allows_an_object(self.schema):
            raise _Refused("it allows no object, and the arguments of a tool are one")

    def _visit(self, resource: Any, resolver: Any) -> list[tuple[Any, Any]]:
        """Go through a part and all parts in it; return what their references point to."""
        linked: list[tuple[Any, Any]] = []
        pending = [(resource, resolver)]
        while pending:
            part, resolver = pending.pop()
            contents = part.contents
            if not isinstance(contents, dict) or id(contents) in self.parts:
                continue
            self.parts[id(contents)] = contents
            if str(contents.get("$schema", "")).rstrip("#") == self.dialect.rstrip("#"):
                del contents["$schema"]
            _spell_out_false(contents)
            targets = [
                self._followed(contents, contents[keyword], resolver)
                for keyword in _REFERENCES
                if isinstance(contents.get(keyword), str)
            ]
            self.targets[id(contents)] = [target for target, _ in targets]
            linked += targets
            pending += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
        return linked

    def _followed(self, part: dict[str, Any], reference: str, resolver: Any) -> tuple[Any, Any]:
        shown = f"the reference {shown_as_json(reference, _LONGEST_VALUE)}"
        try:
            resolved = resolver.lookup(reference)
        except Exception:  # besides its own errors, an odd pointer makes the lookup raise several built-in ones
            hint = "does not point to a part of the schema" if reference.startswith("#") else "points out of the schema"
            self._refuse(part, f"{shown} {hint}; nothing is fetched")
        if not isinstance(resolved.contents, (dict, bool)):
            self._refuse(part, f"{shown} does not point to a schema")
        return resolved.contents, resolved.resolver

    def _refuse(self, part: dict[str, Any], why: str) -> NoReturn:
        raise _Refused(f"{dotted(_place_of(part, self.schema))}: {why}") from None

    def _refuse_circles(self) -> None:
        """Refuse parts that apply to the same value as themselves: following them would never end."""
        from graphlib import CycleError, TopologicalSorter

        graph = {key: [id(inner) for inner in self._in_place(part)] for key, part in self.parts.items()}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            self._refuse(self.parts[error.args[1][0]], "its references lead back to itself")

    def _in_place(self, part: dict[str, Any]) -> Iterator[Any]:
        yield from self.targets[id(part)]
        for keyword in _IN_PLACE:
            value = part.get(keyword)
            if isinstance(value, list):
                yield from value
            elif keyword == "dependentSchemas" and isinstance(value, dict):
                yield from value.values()
            elif value is not None:
                yield value

    def _allows_an_object(self, part: Any) -> bool:
        """Return whether a part may allow an object; `False` only where that is plain to see."""
        if not isinstance(part, dict):
            return part is not False
        if id(part) not in self.allowing:
            self.allowing[id(part)] = self._looks_like_an_object(part)
        return self.allowing[id(part)]

    def _looks_like_an_object(self, part: dict[str, Any]) -> bool:
        kinds = part.get("type", "object")
        if "object" not in ([kinds] if isinstance(kinds, str) else kinds) and "any" not in kinds:
            return False
        if "const" in part and not isinstance(part["const"], dict):
            return False
        if "enum" in part and not any(isinstance(member, dict) for member in part["enum"]):
            return False
        needed = [*self.targets.get(id(part), []), *part.get("allOf", [])]
        return all(self._allows_an_object(inner) for inner in needed) and all(
            any(self._allows_an_object(inner) for inner in part[keyword])
            for keyword in ("anyOf", "oneOf")
            if keyword in part
        )


# --- validating -----------------------------------------------------------------------------------------------------


def validate_arguments(tool: ToolSchema, arguments: Any) -> dict[str, Any]:
    """Return the arguments as the tool's schema wants them, in a dict of their own.

    What does not validate is coerced where that is safe, and validated again: `"5"` to 5, `"true"` to `True`, 5 to
    `"5"`, a JSON string to the object or array it holds; `null` for an optional property is left out. What validates
    is not touched, but for a float like 5.0 where only an integer is allowed. Raises `ToolArgumentsError`, which lists
    every problem and shows what was received, and `ValueError` for a schema that cannot be used.
    """
    return _checked(tool, arguments, lenient=True)


def check_arguments(tool: ToolSchema, arguments: Any) -> dict[str, Any]:
    """Return the arguments in a dict of their own if they validate as they are; the errors of `validate_arguments`.

    A float like 5.0 counts as the integer that it equals.
    """
    return _checked(tool, arguments, lenient=False)


def _checked(tool: ToolSchema, arguments: Any, *, lenient: bool) -> dict[str, Any]:
    compile_schema(tool)
    try:
        if lenient and isinstance(arguments, str):
            parsed = coerced(arguments, "object")
            arguments = arguments if parsed is NOTHING else parsed
        if not isinstance(arguments, dict):
            shown = f"{kind_of(arguments)}: {shown_as_json(arguments, _LONGEST_RECEIVED)}"
            raise ToolArgumentsError(f"the arguments must be a JSON object, not {shown}")
        try:
            value: dict[str, Any] = copied(arguments)
        except NotJsonError:
            _raise(tool, arguments, _not_json(arguments, ()))
        value, errors = _mended(tool.compiled, value, lenient)
        if errors:
            _raise(tool, arguments, [line for error in errors for line in problems_of(error)])
        return value
    except ToolArgumentsError:
        raise
    except RecursionError:
        raise ToolArgumentsError(f"the arguments of tool {tool.name!r} are nested too deeply") from None
    except TooMuchWork:
        raise ToolArgumentsError(
            f"the arguments of tool {tool.name!r} do not fit its schema in a way that could be told in reasonable time; "
            "simpler ones, with fewer levels inside each other, can be checked"
        ) from None
    except Exception as error:  # such as a number too large for the arithmetic of `multipleOf`
        reason = f"{type(error).__name__}: {cut(str(error), _LONGEST_VALUE)}"
        raise ToolArgumentsError(f"the arguments of tool {tool.name!r} cannot be validated ({reason})") from error


def _mended(compiled: _Compiled, value: dict[str, Any], lenient: bool) -> tuple[Any, list[Any]]:
    """Return the value as the schema wants it, and what is wrong with it all the same."""
    # Only about whole floats the two validators may disagree: under `not`, `if` or `oneOf` the strict one may pass
    # what is not valid, or fail what is.
    original = copied(value) if holds_whole_float(value) else None
    value, errors = Mender(lenient, Work(value)).mend(value, partial(_errors, compiled.strict))
    if original is not None:
        errors = errors or _errors(compiled.plain, value)
        if errors and _is_valid(compiled.plain, original):
            return original, []
    return value, errors


def _errors(validator: Any, value: Any) -> list[Any]:
    with limited(Work(value)):
        return list(validator.iter_errors(value))


def _is_valid(validator: Any, value: Any) -> bool:
    with limited(Work(value)):
        return bool(validator.is_valid(value))


def _raise(tool: ToolSchema, received: Any, problems: Iterable[str]) -> NoReturn:
    lines = list(dict.fromkeys(problems))
    if len(lines) > _MOST_PROBLEMS:
        lines[_MOST_PROBLEMS:] = [f"… and {len(lines) - _MOST_PROBLEMS} more problems"]
    listed = "\n".join(f"- {line}" for line in lines)
    shown = shown_as_json(received, _LONGEST_RECEIVED)
    raise ToolArgumentsError(f"the arguments do not fit the schema of tool {tool.name!r}:\n{listed}\nReceived: {shown}")


def _not_json(value: Any, path: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _not_json(item, (*path, key))
            else:
                yield f"{dotted(path)}: the key {cut(represented(key), _LONGEST_VALUE)} is not a string"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_json(item, (*path, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{dotted(path)}: must be a finite number, not {value!r}"
