"""What annotations say once the strings in them are looked up: those of a function's parameters and of a class's fields."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Mapping
from types import FrameType
from typing import Any

import attrs

__all__ = ["ClassField", "NO_DEFAULT", "Place", "fields_of", "names_around", "qualified", "shown"]

NO_DEFAULT: Any = inspect.Parameter.empty


def shown(hint: Any) -> str:
    """Return an annotation as one would write it."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return f"`{hint.__name__}`"
    return f"`{hint!r}`".replace("typing.", "")


@attrs.frozen(eq=False)
class Place:
    """Where an annotation stands, in words, and which names it may use: `names` first, then `outer_names`."""

    words: str
    names: Mapping[str, Any]
    outer_names: dict[str, Any]
    classes_see: Mapping[str, Any]
    """The local names around the function: those that a class defined in a function may use too."""

    def resolved(self, annotation: Any) -> Any:
        """Return an annotation with the strings in it replaced by what they name; raises `TypeError` for unknown ones.

        Unlike `typing.get_type_hints` on a whole function it looks at one annotation: the others may be what they
        like, and a default of `None` changes nothing.
        """
        # On a class, for there `Final` and the like may be in the string.
        holder = type("holder", (), {"__annotations__": {"it": annotation}})
        try:
            return typing.get_type_hints(holder, self.outer_names, dict(self.names), include_extras=True)["it"]
        except Exception as error:
            what = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
            hint = "; a name imported below `if TYPE_CHECKING:` does not exist at run time"
            why = f"{error}{hint if isinstance(error, NameError) else ''}"
            raise TypeError(f"{self.words}: the annotation {what!r} cannot be resolved: {why}") from error

    def in_class(self, cls: type, field: str) -> Place:
        """Return the place of a field's annotation in a class."""
        # The names in the class body come last: in `date: "date" = None` the annotation does not mean the default.
        return Place(
            f"{self.words}, field `{field}`",
            {**_module_names(cls), **(self.classes_see if "<locals>" in cls.__qualname__ else {})},
            {**vars(cls), cls.__name__: cls},
            self.classes_see,
        )

    def of_definition(self, definition: Any) -> Place:
        """Return this place for an annotation that a function or a name for a type brings from where it is defined."""
        return attrs.evolve(self, names={**self.names, **_module_names(definition)}, outer_names={})


def _module_names(definition: Any) -> dict[str, Any]:
    return getattr(sys.modules.get(definition.__module__), "__dict__", {})


def names_around(function: Any) -> dict[str, Any]:
    """Return the local names that a function's annotations may use: those of the functions it is defined in.

    Only what the function's body uses is kept by the function itself; the rest is known as long as the function around
    it still runs, which is so while a decorator is at work.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    names: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if any(constant is code for constant in frame.f_code.co_consts) and frame.f_locals is not frame.f_globals:
            names = {**frame.f_locals, **names}
            code = frame.f_code
        frame = frame.f_back
    return names


# --- the fields of classes ------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class ClassField:
    """A field that a class is made with: its name in the call, its annotation, whether it must be given."""

    name: str
    hint: Any
    place: Place
    required: bool
    default: Any = NO_DEFAULT


def qualified(hint: Any) -> str | None:
    """Return `Required`, `NotRequired` or the like if that is what a hint is wrapped in."""
    name = getattr(typing.get_origin(hint), "_name", None)
    return name if name in ("Required", "NotRequired", "ReadOnly", "Final") else None


def fields_of(cls: type, place: Place) -> list[ClassField] | None:
    """Return the fields of a class that a JSON object can be made into, `None` for any other class.

    Those are dataclasses, attrs classes, named tuples and typed dicts. Raises `TypeError` for one that cannot be made
    of its fields alone.
    """
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):  # a `TypedDict`, be it of `typing_extensions`
        return [_typed_key(cls, name, place) for name in _annotations(cls)]
    if dataclasses.is_dataclass(cls):
        fields = [_dataclass_field(cls, field, place) for field in dataclasses.fields(cls) if field.init]
    elif attrs.has(cls):
        fields = [_attrs_field(cls, field, place) for field in attrs.fields(cls) if field.init]
    elif issubclass(cls, tuple) and hasattr(cls, "_field_defaults"):
        fields = [_tuple_field(cls, name, place) for name in cls._fields]  # type: ignore[attr-defined]
    else:
        return None
    _check_made_of(cls, {field.name for field in fields}, place)
    return fields


def _annotations(cls: type) -> dict[str, tuple[Any, type]]:
    """Return each annotation in a class and those it comes from, with the class that it stands in."""
    found: dict[str, tuple[Any, type]] = {}
    for base in reversed(cls.__mro__):
        found.update({name: (annotation, base) for name, annotation in inspect.get_annotations(base).items()})
    return found


def _hint(cls: type, name: str, place: Place, otherwise: Any = Any) -> tuple[Any, Place]:
    annotation, base = _annotations(cls).get(name, (otherwise, cls))
    inner = place.in_class(base, name)
    return inner.resolved(annotation), inner


def _typed_key(cls: Any, name: str, place: Place) -> ClassField:
    hint, inner = _hint(cls, name, place)
    # What the class says is wrong where its annotations are strings.
    required, wrapped = name in cls.__required_keys__, hint
    while (qualifier := qualified(wrapped)) is not None or typing.get_origin(wrapped) is typing.Annotated:
        required = {"Required": True, "NotRequired": False}.get(qualifier or "", required)
        wrapped = typing.get_args(wrapped)[0]
    return ClassField(name, hint, inner, required)


def _dataclass_field(cls: type, field: dataclasses.Field[Any], place: Place) -> ClassField:
    missing = dataclasses.MISSING
    required = field.default is missing and field.default_factory is missing
    hint, inner = _hint(cls, field.name, place, field.type)
    return ClassField(field.name, hint, inner, required, NO_DEFAULT if field.default is missing else field.default)


def _attrs_field(cls: type, field: attrs.Attribute[Any], place: Place) -> ClassField:
    hint, inner = _hint(cls, field.name, place, Any if field.type is None else field.type)
    if field.converter is not None:
        hint = _taken_by(field.converter, inner, hint)
    known = field.default is not attrs.NOTHING and not isinstance(field.default, attrs.Factory)  # type: ignore[arg-type]
    name = field.alias or field.name
    return ClassField(name, hint, inner, field.default is attrs.NOTHING, field.default if known else NO_DEFAULT)


def _taken_by(converter: Any, place: Place, otherwise: Any) -> Any:
    """Return what a converter says it takes; if it says nothing, it takes what it gives, as converters should."""
    converter = getattr(converter, "converter", converter)
    if not inspect.isfunction(converter):
        return otherwise
    annotation = next((one.annotation for one in inspect.signature(converter).parameters.values()), NO_DEFAULT)
    if annotation is NO_DEFAULT:
        return otherwise
    hint = place.of_definition(converter).resolved(annotation)
    return otherwise if hint is Any else hint


def _tuple_field(cls: Any, name: str, place: Place) -> ClassField:
    hint, inner = _hint(cls, name, place)
    default = cls._field_defaults.get(name, NO_DEFAULT)
    return ClassField(name, hint, inner, default is NO_DEFAULT, default)


def _check_made_of(cls: type, fields: set[str], place: Place) -> None:
    """Raise `TypeError` for a class that wants more than its fields, or not all of them, when it is made."""
    what = f"{place.words}: `{cls.__name__}`"
    if inspect.isabstract(cls):
        raise TypeError(f"{what} is abstract; nothing can be made of it")
    parameters = inspect.signature(cls).parameters.values()
    for parameter in parameters:
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.default is parameter.empty and parameter.name not in fields:
            raise TypeError(f"{what} cannot be made without `{parameter.name}`, which is no field of it")
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for field in sorted(fields - {parameter.name for parameter in parameters}):
            raise TypeError(f"{what} cannot be made with its field `{field}`")
