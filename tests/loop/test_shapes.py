"""An annotation becomes a schema, and JSON data becomes what the annotation says."""

# Every way to write a type is meant.
# ruff: noqa: UP006, UP007, UP035, UP045

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import sys
import time
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from typing import (
    Annotated,
    Any,
    ClassVar,
    Dict,
    Final,
    List,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    Protocol,
    Set,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

import attrs
import pytest

from agentcore._signature import signature_of
from agentcore.config import ModelContext, StreamOptions
from agentcore.errors import ToolArgumentsError
from agentcore.messages import UserMessage
from agentcore.models import Model
from agentcore.providers import anthropic_messages, google_generative_ai, openai_completions, openai_responses
from agentcore.tools import AgentTool
from tests.loop.signature_support import (
    BOOLEAN,
    INTEGER,
    NULL,
    NUMBER,
    STRING,
    WORDS,
    arriving,
    called,
    definitions_of,
    property_of,
    taking,
    tool_of,
)

typing_extensions = pytest.importorskip("typing_extensions")

T = TypeVar("T")

# --- plain types ---


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    CRIMSON = "red"  # noqa: PIE796


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(str, enum.Enum):
    FAST = "fast"


class Size(enum.Enum):
    SMALL = (1, 1)
    LARGE = (9, 9)


class Mixed(enum.Enum):
    TWO = 2
    TEXT = "text"
    NOTHING = None
    YES = True


UserId = NewType("UserId", int)
PathId = NewType("PathId", pathlib.Path)
Pair = typing_extensions.TypeAliasType("Pair", tuple[int, int])
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | float | bool | None")

MOMENT = dt.datetime(2024, 12, 31, 23, 59, tzinfo=dt.timezone.utc)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
ANYTHING_LISTED = {"type": "array", "items": {}}

SHAPES: list[tuple[Any, dict[str, Any], list[tuple[Any, Any]], list[Any]]] = [
    # hint, schema, data and what arrives, data that is refused
    (str, STRING, [("a", "a"), ("", ""), (5, "5")], [["a"], None]),
    (int, INTEGER, [(5, 5), ("5", 5), (5.0, 5)], ["five", 5.5, True]),
    (float, NUMBER, [(0.5, 0.5), (5, 5.0), ("5", 5.0)], ["five", True]),
    (bool, BOOLEAN, [(True, True), ("false", False)], [1, "yes"]),
    (None, NULL, [(None, None)], ["a"]),
    (type(None), NULL, [(None, None)], ["a"]),
    (Any, {}, [([1, {"a": None}], [1, {"a": None}]), (None, None)], []),
    (object, {}, [(5, 5)], []),
    # unions
    (Optional[int], {"anyOf": [INTEGER, NULL]}, [(5, 5), (None, None), ("5", 5)], ["five"]),
    (int | None, {"anyOf": [INTEGER, NULL]}, [(5, 5), (None, None)], ["five"]),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}, [(5, 5), ("5", "5"), (5.0, 5)], [[]]),
    (str | int, {"anyOf": [STRING, INTEGER]}, [(5, 5), ("5", "5")], [[]]),
    (int | bool, {"anyOf": [INTEGER, BOOLEAN]}, [(1, 1), (True, True), (0, 0), (False, False)], ["x"]),
    (bool | int, {"anyOf": [BOOLEAN, INTEGER]}, [(1, 1), (True, True)], ["x"]),
    (float | int, {"anyOf": [NUMBER, INTEGER]}, [(5, 5), (0.5, 0.5), (5.0, 5.0)], ["x"]),
    (float | bool, {"anyOf": [NUMBER, BOOLEAN]}, [(True, True), (5, 5.0)], ["x"]),
    (float | None, {"anyOf": [NUMBER, NULL]}, [(5, 5.0), (None, None)], ["x"]),
    (
        list[int] | list[str],
        {"anyOf": [{"type": "array", "items": INTEGER}, WORDS]},
        [([1], [1]), (["a"], ["a"])],
        [[None]],
    ),
    (
        dt.date | str,
        {"anyOf": [{"type": "string", "format": "date"}, STRING]},
        [("2024-12-31", dt.date(2024, 12, 31)), ("x", "x")],
        [],
    ),
    # choices
    (Literal["a"], {"type": "string", "enum": ["a"]}, [("a", "a")], ["b", 1]),
    (Literal[1, 2], {"type": "integer", "enum": [1, 2]}, [(2, 2), ("2", 2), (1.0, 1)], [3, True]),
    (
        Literal["a", 1, True, None],
        {"type": ["string", "integer", "boolean", "null"], "enum": ["a", 1, True, None]},
        [("a", "a"), (1, 1), (True, True), (None, None)],
        ["b", 2, False],
    ),
    (Literal[Color.RED, "x"], {"type": "string", "enum": ["red", "x"]}, [("red", Color.RED), ("x", "x")], ["blue"]),
    (Literal[Size.SMALL], {"type": "string", "enum": ["SMALL"]}, [("SMALL", Size.SMALL)], ["LARGE"]),
    (Literal["a"] | None, {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}, [("a", "a"), (None, None)], ["b"]),
    (Color, {"type": "string", "enum": ["red", "blue"]}, [("red", Color.RED)], ["RED"]),
    (Level, {"type": "integer", "enum": [1, 2]}, [(2, Level.HIGH), ("2", Level.HIGH)], [3]),
    (Mode, {"type": "string", "enum": ["fast"]}, [("fast", Mode.FAST)], ["slow"]),
    (Size, {"type": "string", "enum": ["SMALL", "LARGE"]}, [("LARGE", Size.LARGE)], ["MEDIUM"]),
    (
        Mixed,
        {"type": ["integer", "string", "null", "boolean"], "enum": [2, "text", None, True]},
        [(2, Mixed.TWO), (True, Mixed.YES), (None, Mixed.NOTHING), (2.0, Mixed.TWO)],
        [False, 1],
    ),
    # arrays
    (list, ANYTHING_LISTED, [([1, "a"], [1, "a"]), ("[1]", [1])], ["x", {}]),
    (List, ANYTHING_LISTED, [([1, "a"], [1, "a"])], [{}]),
    (list[str], WORDS, [(["a"], ["a"]), ([], []), ([5], ["5"])], [[None]]),
    (List[str], WORDS, [(["a"], ["a"])], [[None]]),
    (list[float], {"type": "array", "items": NUMBER}, [([1, 0.5], [1.0, 0.5])], [["x"]]),
    (Sequence[str], WORDS, [(["a"], ["a"])], ["x"]),
    (Sequence, ANYTHING_LISTED, [([1], [1])], ["x"]),
    (Iterable[int], {"type": "array", "items": INTEGER}, [([1], [1])], ["x"]),
    (set[str], WORDS, [(["a", "b", "a"], {"a", "b"})], ["x"]),
    (Set[str], WORDS, [(["a"], {"a"})], ["x"]),
    (set, ANYTHING_LISTED, [([1], {1})], ["x"]),
    (frozenset[int], {"type": "array", "items": INTEGER}, [([1, 1], frozenset({1}))], ["x"]),
    (
        AbstractSet[Color],
        {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
        [(["red"], {Color.RED})],
        ["x"],
    ),
    (tuple, ANYTHING_LISTED, [([1, "a"], (1, "a"))], ["x"]),
    (Tuple, ANYTHING_LISTED, [([1, "a"], (1, "a"))], ["x"]),
    (tuple[int, ...], {"type": "array", "items": INTEGER}, [([1, 2], (1, 2)), ([], ())], [["x"]]),
    (
        tuple[float, float],
        {"type": "array", "minItems": 2, "maxItems": 2, "items": NUMBER},
        [([1, 2], (1.0, 2.0))],
        [[1]],
    ),
    (
        tuple[str, int],
        {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [STRING, INTEGER]},
        [(["a", 1], ("a", 1)), (["a", "1"], ("a", 1))],
        [["a"], ["a", 1, 2], ["a", "x"]],
    ),
    (
        Tuple[str, int] | None,
        {"anyOf": [{"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [STRING, INTEGER]}, NULL]},
        [(["a", 1], ("a", 1)), (None, None)],
        [["a"]],
    ),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}, [([], ())], [[1]]),
    (
        list[tuple[str, set[int]]],
        {
            "type": "array",
            "items": {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [STRING, {"type": "array", "items": INTEGER}],
            },
        },
        [([["a", [1]]], [("a", {1})])],
        [["a"]],
    ),
    # objects
    (dict, {"type": "object"}, [({"a": 1}, {"a": 1}), ('{"a": 1}', {"a": 1})], ["x", []]),
    (Dict, {"type": "object"}, [({"a": 1}, {"a": 1})], ["x"]),
    (dict[str, Any], {"type": "object"}, [({"a": [1]}, {"a": [1]})], ["x"]),
    (dict[Any, Any], {"type": "object"}, [({"a": [1]}, {"a": [1]})], ["x"]),
    (dict[str, float], {"type": "object", "additionalProperties": NUMBER}, [({"a": 1}, {"a": 1.0})], [{"a": "x"}]),
    (Dict[str, int], {"type": "object", "additionalProperties": INTEGER}, [({"a": "1"}, {"a": 1})], [{"a": "x"}]),
    (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}, [({"a": 1}, {"a": 1})], [{"a": "x"}]),
    (MutableMapping, {"type": "object"}, [({"a": 1}, {"a": 1})], ["x"]),
    (
        dict[Literal["a", "b"], int],
        {"type": "object", "additionalProperties": INTEGER, "propertyNames": {"type": "string", "enum": ["a", "b"]}},
        [({"a": 1}, {"a": 1})],
        [{"c": 1}],
    ),
    (
        dict[Color, str] | None,
        {
            "anyOf": [
                {
                    "type": "object",
                    "additionalProperties": STRING,
                    "propertyNames": {"type": "string", "enum": ["red", "blue"]},
                },
                NULL,
            ]
        },
        [({"red": "a"}, {Color.RED: "a"})],
        [{"green": "a"}],
    ),
    # text that stands for something
    (pathlib.Path, {"type": "string", "description": "a path"}, [("a/b", pathlib.Path("a/b"))], [[]]),
    (pathlib.PurePath, {"type": "string", "description": "a path"}, [("a", pathlib.PurePath("a"))], [[]]),
    (
        dt.datetime,
        {"type": "string", "format": "date-time"},
        [("2024-12-31T23:59:00Z", MOMENT), ("2024-12-31T23:59:00+00:00", MOMENT)],
        ["soon"],
    ),
    (dt.date, {"type": "string", "format": "date"}, [("2024-12-31", dt.date(2024, 12, 31))], ["soon", "2024-02-30"]),
    (dt.time, {"type": "string", "format": "time"}, [("23:59:00Z", dt.time(23, 59, tzinfo=dt.timezone.utc))], ["soon"]),
    (uuid.UUID, {"type": "string", "format": "uuid"}, [(str(ID), ID)], ["12"]),
    (
        decimal.Decimal,
        {"type": "string", "description": "a decimal number"},
        [("0.10", decimal.Decimal("0.10")), (5, decimal.Decimal(5))],
        ["x"],
    ),
    (uuid.UUID | int, {"anyOf": [{"type": "string", "format": "uuid"}, INTEGER]}, [(str(ID), ID), (5, 5)], ["12x"]),
    # names for types
    (UserId, INTEGER, [(5, 5)], ["x"]),
    (PathId, {"type": "string", "description": "a path"}, [("a", pathlib.Path("a"))], [[]]),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, [(5, 5)], ["x"]),
    (Annotated[int, [], "how many", "ignored"], {"type": "integer", "description": "how many"}, [(5, 5)], ["x"]),
    (Annotated[int, 5], INTEGER, [(5, 5)], ["x"]),
    (
        Annotated[int, "how many"] | None,
        {"anyOf": [{"type": "integer", "description": "how many"}, NULL]},
        [(5, 5)],
        ["x"],
    ),
    (
        list[Annotated[str, "a word"]],
        {"type": "array", "items": {"type": "string", "description": "a word"}},
        [(["a"], ["a"])],
        [],
    ),
    (Final[int], INTEGER, [(5, 5)], ["x"]),
    (Pair, {"$ref": "#/$defs/Pair"}, [([1, 2], (1, 2))], [[1]]),
]
IDS = [f"{number} {str(shape[0]).replace('typing.', '')}" for number, shape in enumerate(SHAPES)]


@pytest.mark.parametrize(("hint", "schema", "arrivals", "refused"), SHAPES, ids=IDS)
def test_an_annotation_is_told_as_a_schema_and_arrives_as_it_says(
    hint: Any, schema: dict[str, Any], arrivals: list[tuple[Any, Any]], refused: list[Any]
) -> None:
    assert property_of(hint) == schema
    for data, expected in arrivals:
        value = arriving(hint, data)
        assert value == expected
        assert type(value) is type(expected)
    for data in refused:
        with pytest.raises(ToolArgumentsError):
            arriving(hint, data)


@pytest.mark.parametrize("hint", [shape[0] for shape in SHAPES], ids=IDS)
def test_an_annotation_as_a_string_is_told_the_same(hint: Any) -> None:
    function = taking("hint_under_test")
    function.__globals__["hint_under_test"] = hint

    assert signature_of(function).schema == signature_of(taking(hint)).schema


# --- what JSON cannot express ---


class Opaque:
    pass


class Empty(enum.Enum):
    pass


class Speaks(Protocol):
    def speak(self) -> str: ...


class Text(str):
    pass


@dataclass
class Box(typing.Generic[T]):
    content: T


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Opaque, "`Opaque` cannot be expressed in JSON; use a dataclass or plain types"),
        (Speaks, "`Speaks` cannot be expressed in JSON"),
        (Text, "`Text` cannot be expressed in JSON"),
        (bytes, "`bytes` cannot be expressed in JSON"),
        (complex, "`complex` cannot be expressed in JSON"),
        (type[int], "`type[int]` cannot be expressed in JSON"),
        (Callable[[int], str], "cannot be expressed in JSON"),
        (collections.deque[int], "`collections.deque[int]` cannot be expressed in JSON"),
        (T, "`~T` cannot be expressed in JSON"),
        (Box[int], "cannot be expressed in JSON"),
        (Box, "field `content`: `~T` cannot be expressed in JSON"),
        (typing.NoReturn, "`NoReturn` cannot be expressed in JSON"),
        (Literal["a", b"b"], "`Literal['a', b'b']` cannot be expressed in JSON"),
        (list[Opaque], "`Opaque` cannot be expressed in JSON"),
        (dict[str, Opaque], "`Opaque` cannot be expressed in JSON"),
        (Opaque | None, "`Opaque` cannot be expressed in JSON"),
        (tuple[int, Opaque], "`Opaque` cannot be expressed in JSON"),
        (dict[int, str], "the keys of a JSON object are text, not `int`"),
        (dict[Level, str], "the keys of a JSON object are text, not `Level`"),
        (dict[str | int, str], "the keys of a JSON object are text, not `str | int`"),
        (set[list[int]], "a set cannot hold `list[int]`, which is not hashable"),
        (frozenset[dict], "a set cannot hold `dict`, which is not hashable"),
        (Empty, "the enum `Empty` has no members"),
        (5, "`5` cannot be expressed in JSON"),
        ([int], "cannot be"),
    ],
)
def test_what_json_cannot_express_is_refused_with_the_name_of_the_parameter(hint: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        signature_of(taking(hint))

    assert str(caught.value).startswith("parameter `value` of `f`")
    assert said in str(caught.value)


# --- classes with fields ---


@dataclass
class Point:
    """A place.

    Attributes:
        x: Across.
    """

    x: float
    y: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Query:
    text: str
    where: Point = field(default_factory=lambda: Point(1, 1))
    tags: list[str] = field(default_factory=list)
    color: Annotated[Color, "the colour"] = Color.BLUE
    limit: int | None = None
    made: ClassVar[int] = 0
    hidden: int = field(default=7, init=False)
    extra: InitVar[int] = 3


@attrs.define
class Order:
    """An order.

    Parameters
    ----------
    id : int
        Its number.
    """

    id: int
    _secret: str
    count: int = attrs.field(default=1, converter=int)
    renamed: str = attrs.field(default="r", alias="other")
    made: list[Point] = attrs.field(factory=list)
    when: dt.date = attrs.field(default=dt.date(2024, 1, 1))
    hidden: int = attrs.field(default=7, init=False)


class Place(NamedTuple):
    name: str
    zoom: int = 3


class Base(TypedDict):
    id: int


class Partial(Base, total=False):
    words: list[str]


class Loose(typing_extensions.TypedDict, total=False):
    """Loose keys.

    :param must: It must be there.
    """

    must: typing_extensions.Required[int]
    may: typing_extensions.Annotated[typing_extensions.ReadOnly[str], "may be there"]  # noqa: F722


class Strict(typing_extensions.TypedDict):
    must: int
    may: typing_extensions.NotRequired[Point]


def test_a_dataclass_is_an_object_with_its_docstring_and_arrives_as_an_instance() -> None:
    assert property_of(Point) == {"$ref": "#/$defs/Point"}
    assert definitions_of(Point)["Point"] == {
        "type": "object",
        "description": "A place.",
        "properties": {
            "x": {"type": "number", "description": "Across."},
            "y": {"type": "number", "default": 0.0},
        },
        "required": ["x"],
    }
    assert arriving(Point, {"x": 1}) == Point(1.0)
    assert arriving(Point, {"x": "1", "y": 2, "more": 3}) == Point(1.0, 2.0)
    assert type(arriving(Point, {"x": 1}).x) is float
    assert arriving(list[Point], [{"x": 1}]) == [Point(1)]


def test_a_dataclass_gives_only_the_fields_that_it_is_made_with() -> None:
    assert definitions_of(Query)["Query"] == {
        "type": "object",
        "properties": {
            "text": STRING,
            "where": {"$ref": "#/$defs/Point"},
            "tags": WORDS,
            "color": {"type": "string", "enum": ["red", "blue"], "description": "the colour", "default": "blue"},
            "limit": {"anyOf": [INTEGER, NULL]},
        },
        "required": ["text"],
    }
    made = arriving(Query, {"text": "a", "where": {"x": 2}, "color": "red", "limit": None, "hidden": 1, "made": 1})
    assert made == Query(text="a", where=Point(2), color=Color.RED)
    assert made.hidden == 7


def test_an_attrs_class_is_given_by_the_names_it_is_made_with() -> None:
    assert definitions_of(Order)["Order"] == {
        "type": "object",
        "description": "An order.",
        "properties": {
            "id": {"type": "integer", "description": "Its number."},
            "secret": STRING,
            "count": {"type": "integer", "default": 1},
            "other": {"type": "string", "default": "r"},
            "made": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            "when": {"type": "string", "format": "date", "default": "2024-01-01"},
        },
        "required": ["id", "secret"],
    }
    made = arriving(Order, {"id": 1, "secret": "s", "other": "o", "made": [{"x": 1}], "when": "2024-12-31"})
    assert made == Order(1, "s", other="o", made=[Point(1)], when=dt.date(2024, 12, 31))


def _day(text: "str") -> dt.date:
    return dt.date.fromisoformat(text)


def _anything(value: Any) -> tuple[Any, ...]:
    return tuple(value)


def _bare(value):  # type: ignore[no-untyped-def]
    return value


def test_a_converter_is_given_what_it_says_that_it_takes() -> None:
    @attrs.define
    class Day:
        day: dt.date = attrs.field(converter=_day)
        words: tuple[str, ...] = attrs.field(converter=_anything)
        bare: int = attrs.field(converter=_bare)
        wrapped: dt.date = attrs.field(converter=attrs.Converter(_day))  # type: ignore[call-overload]

    assert definitions_of(Day)["Day"]["properties"] == {
        "day": STRING,
        "words": WORDS,
        "bare": INTEGER,
        "wrapped": STRING,
    }
    made = arriving(Day, {"day": "2024-12-31", "words": ["a"], "bare": 1, "wrapped": "2024-12-30"})
    assert (made.day, made.words, made.wrapped) == (dt.date(2024, 12, 31), ("a",), dt.date(2024, 12, 30))


def test_an_attrs_field_without_an_annotation_takes_its_type_or_anything() -> None:
    @attrs.define(auto_attribs=False)
    class Old:
        typed = attrs.field(default=5, type=int)
        untyped = attrs.field(default=None)

    assert definitions_of(Old)["Old"]["properties"] == {"typed": {"type": "integer", "default": 5}, "untyped": {}}


def test_a_named_tuple_is_an_object() -> None:
    assert definitions_of(Place)["Place"] == {
        "type": "object",
        "properties": {"name": STRING, "zoom": {"type": "integer", "default": 3}},
        "required": ["name"],
    }
    assert arriving(Place, {"name": "a", "zoom": "4"}) == Place("a", 4)
    assert type(arriving(Place, {"name": "a"})) is Place
    untyped = collections.namedtuple("untyped", "a b", defaults=[1])
    assert definitions_of(untyped)["untyped"]["properties"] == {"a": {}, "b": {"default": 1}}


def test_a_typed_dict_says_which_keys_it_needs() -> None:
    assert definitions_of(Partial)["Partial"] == {
        "type": "object",
        "properties": {"id": INTEGER, "words": WORDS},
        "required": ["id"],
    }
    assert definitions_of(Loose)["Loose"] == {
        "type": "object",
        "description": "Loose keys.",
        "properties": {
            "must": {"type": "integer", "description": "It must be there."},
            "may": {"type": "string", "description": "may be there"},
        },
        "required": ["must"],
    }
    assert definitions_of(Strict)["Strict"]["required"] == ["must"]
    assert arriving(Strict, {"must": "1", "may": {"x": 1}, "more": 1}) == {"must": 1, "may": Point(1)}
    assert arriving(Partial, {"id": 1}) == {"id": 1}
    with pytest.raises(ToolArgumentsError, match="must"):
        arriving(Loose, {"may": "a"})


@dataclass
class NeedsMore:
    x: int
    seed: InitVar[int]


@dataclass
class OwnInit:
    x: int
    y: int

    def __init__(self, x: int) -> None:
        self.x = self.y = x


@dataclass
class TakesAll:
    x: int
    y: int = 0

    def __init__(self, *values: int, **named: int) -> None:
        self.x, self.y = named["x"], named.get("y", 0)


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (NeedsMore, "`NeedsMore` cannot be made without `seed`, which is no field of it"),
        (OwnInit, "`OwnInit` cannot be made with its field `y`"),
    ],
)
def test_a_class_that_cannot_be_made_of_its_fields_is_refused_when_decorating(cls: Any, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        signature_of(taking(cls))

    assert str(caught.value) == f"parameter `value` of `f`: {said}"


def test_an_abstract_class_is_refused_when_decorating() -> None:
    import abc

    @dataclass
    class Sketch(abc.ABC):
        x: int

        @abc.abstractmethod
        def draw(self) -> None: ...

    with pytest.raises(TypeError, match="parameter `value` of `f`: `Sketch` is abstract"):
        signature_of(taking(Sketch))


def test_a_class_that_takes_any_names_is_made_of_its_fields() -> None:
    assert arriving(TakesAll, {"x": 1, "y": 2, "z": 3}).y == 2


def test_a_field_that_json_cannot_express_is_named() -> None:
    @dataclass
    class Inner:
        it: Opaque

    @dataclass
    class Outer:
        inner: list[Inner]

    with pytest.raises(TypeError) as caught:
        signature_of(taking(Outer))

    assert str(caught.value) == (
        "parameter `value` of `f`, field `inner`, field `it`: `Opaque` cannot be expressed in JSON; "
        "use a dataclass or plain types"
    )


def test_classes_of_one_name_are_told_apart() -> None:
    first = dataclasses.make_dataclass("Item", [("a", int)])
    second = dataclasses.make_dataclass("Item", [("b", str)])

    def f(one: first, two: second, three: first | None = None) -> Any:  # type: ignore[valid-type]
        return one, two, three

    schema = signature_of(f).schema
    assert [schema["properties"][name] for name in ("one", "two")] == [
        {"$ref": "#/$defs/Item"},
        {"$ref": "#/$defs/Item_"},
    ]
    assert schema["$defs"]["Item_"]["properties"] == {"b": STRING}
    assert called(f, one={"a": 1}, two={"b": "x"}, three={"a": 2}) == (first(1), second("x"), first(2))


def test_a_class_named_in_another_alphabet_can_be_referred_to() -> None:
    cls = dataclasses.make_dataclass("Größe", [("a", int)])

    assert arriving(cls, {"a": "1"}) == cls(1)


def test_a_docstring_that_a_class_is_given_by_dataclasses_is_not_told() -> None:
    assert "description" not in definitions_of(dataclasses.make_dataclass("Item", [("a", int)]))["Item"]


# --- which branch of a union ---


@dataclass
class Narrow:
    x: int


@dataclass
class Wide:
    x: int
    y: int = 0


@dataclass
class Circle:
    kind: Literal["circle"]
    size: float


@dataclass
class Square:
    kind: Literal["square"]
    size: float


@pytest.mark.parametrize(
    ("hint", "data", "expected"),
    [
        (Narrow | Wide, {"x": 1}, Narrow(1)),
        (Narrow | Wide, {"x": 1, "y": 2}, Wide(1, 2)),
        (Narrow | Wide, {"x": 1, "y": 2, "z": 3}, Wide(1, 2)),
        (Wide | Narrow, {"x": 1}, Wide(1)),
        (Narrow | Wide | None, None, None),
        (Narrow | dict[str, Any], {"x": 1, "y": 2}, {"x": 1, "y": 2}),
        (Narrow | dict[str, Any], {"x": 1}, Narrow(1)),
        (Circle | Square, {"kind": "square", "size": 1}, Square("square", 1.0)),
        (
            list[Circle | Square],
            [{"kind": "square", "size": 1}, {"kind": "circle", "size": 2}],
            [Square("square", 1.0), Circle("circle", 2.0)],
        ),
        (list[Narrow] | list[Wide], [{"x": 1}, {"x": 1, "y": 2}], [Wide(1), Wide(1, 2)]),
        (dict[str, Narrow] | dict[str, Wide], {"a": {"x": 1, "y": 2}}, {"a": Wide(1, 2)}),
        (tuple[Narrow, int] | tuple[Wide, int], [{"x": 1, "y": 2}, 3], (Wide(1, 2), 3)),
        (Narrow | int, "5", 5),
        (Narrow | Point, {"x": 1.5}, Point(1.5)),
        (Point | Narrow, {"x": 1}, Narrow(1)),
        (Color | int, "red", Color.RED),
    ],
)
def test_a_union_takes_the_branch_that_loses_least(hint: Any, data: Any, expected: Any) -> None:
    value = arriving(hint, data)

    assert value == expected
    assert type(value) is type(expected)


def test_data_that_only_its_format_rules_out_is_an_error_that_names_the_argument() -> None:
    with pytest.raises(ToolArgumentsError, match="the argument `value` cannot be used: 'soon' is not a date like 2024"):
        arriving(dt.date, "soon")
    with pytest.raises(ToolArgumentsError, match="the argument `value` cannot be used: 'soon' is none of what it may"):
        arriving(dt.date | uuid.UUID, "soon")


def test_data_that_was_not_validated_is_an_error_that_names_the_argument() -> None:
    for hint, data, said in [
        (Color, "green", "'green' is none of 'red', 'blue'"),
        (Color | None, "green", "'green' is none of what it may be"),
        (tuple[int, str], [1], "zip"),
    ]:
        with pytest.raises(ToolArgumentsError, match=f"the argument `value` cannot be used: .*{said}"):
            signature_of(taking(hint)).call({"value": data}, {})


def test_what_a_class_refuses_is_an_error_that_names_the_argument() -> None:
    @dataclass
    class Even:
        x: int

        def __post_init__(self) -> None:
            if self.x % 2:
                raise ValueError("x must be even")

    with pytest.raises(ToolArgumentsError, match="the argument `value` cannot be used: x must be even"):
        arriving(Even, {"x": 1})


# --- types that hold themselves, or very much ---


@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)
    parent: Optional["Node"] = None


@dataclass
class Left:
    next: "Union[Left, Right, None]" = None


@dataclass
class Right:
    next: "Union[Left, Right, None]" = None
    last: bool = False


def test_a_class_may_hold_itself() -> None:
    assert definitions_of(Node)["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    made = arriving(Node, {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}, {"name": "d"}]})
    assert made == Node("a", [Node("b", [Node("c")]), Node("d")])


def test_a_name_for_a_type_may_hold_itself() -> None:
    data = {"a": [1, {"b": None}, "c", True, 0.5]}

    assert arriving(Json, data) == data
    assert list(definitions_of(Json)) == ["Json"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement came with 3.12")
def test_a_type_statement_is_a_name_for_a_type() -> None:
    names: dict[str, Any] = {}
    exec("type Tree = dict[str, Tree] | int\ndef f(value: Tree): return value", names)

    assert called(names["f"], value={"a": {"b": 1}}) == {"a": {"b": 1}}


def test_unions_in_unions_take_no_more_than_a_look_at_each_piece() -> None:
    data: dict[str, Any] = {"last": True}
    for _ in range(60):
        data = {"next": data}
    begun = time.monotonic()
    signature = signature_of(taking(Left | Right | None))
    value = signature.call({"value": data}, {})

    assert time.monotonic() - begun < 1
    for _ in range(60):
        assert type(value) is Left
        value = value.next
    assert value == Right(last=True)


def doubling_class() -> Any:
    cls: Any = int
    for number in range(14):
        cls = dataclasses.make_dataclass(f"Level{number}", [("left", cls), ("right", cls)])
    return cls


ADAPTERS = [openai_completions, openai_responses, anthropic_messages, google_generative_ai]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__.rpartition(".")[2])
@pytest.mark.parametrize(
    "hint", [Node, doubling_class(), Left | Right, Json], ids=["node", "doubling", "unions", "json"]
)
def test_types_that_hold_themselves_or_double_are_converted_and_sent_within_a_second(hint: Any, adapter: Any) -> None:
    begun = time.monotonic()
    made = tool_of(signature_of(taking(hint)))
    model = Model("m", base_url="http://127.0.0.1:1")
    payload = adapter.build_request(model, ModelContext("", [UserMessage("hi")], [made]), StreamOptions())
    sent = json.dumps(payload)

    assert time.monotonic() - begun < 1
    assert len(sent) < 20_000


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__.rpartition(".")[2])
def test_every_adapter_takes_every_schema(adapter: Any) -> None:
    hints = [*(shape[0] for shape in SHAPES), Point, Query, Order, Place, Partial, Loose, Strict, Node, Narrow | Wide]
    tools = [
        AgentTool(f"tool{number}", "", "", signature_of(taking(hint)).schema, lambda *arguments: "")
        for number, hint in enumerate(hints)
    ]
    model = Model("m", base_url="http://127.0.0.1:1")
    sent = json.dumps(adapter.build_request(model, ModelContext("", [UserMessage("hi")], tools), StreamOptions()))

    assert all(f'"tool{number}"' in sent for number in range(len(hints)))


# --- defaults ---


class Unequal:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def to_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("hint", "default", "shown"),
    [
        (int, 5, 5),
        (str, "", ""),
        (bool, False, False),
        (float, 1, 1),
        (list[int], [1], [1]),
        (tuple[int, ...], (1, 2), [1, 2]),
        (dict[str, Any], {"a": 1}, {"a": 1}),
        (set[str], frozenset({"a"}), ["a"]),
        (Color, Color.RED, "red"),
        (pathlib.Path, pathlib.Path("a"), "a"),
        (dt.datetime, MOMENT, "2024-12-31T23:59:00+00:00"),
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_a_default_is_told_as_the_data_that_stands_for_it(hint: Any, default: Any, shown: Any) -> None:
    assert property_of(hint, default)["default"] == shown
    assert "required" not in signature_of(taking(hint, default)).schema
    assert called(taking(hint, default)) is default


@pytest.mark.parametrize(
    ("hint", "default"),
    [
        (int, None),
        (Optional[int], None),
        (str, object()),
        (Any, object()),
        (float, float("nan")),
        (Any, float("inf")),
        (int, "five"),
        (int, True),
        (Any, Unequal()),
        (Any, b"bytes"),
        (Any, {1: 2}),
    ],
)
def test_a_default_that_no_data_stands_for_is_not_told_but_used(hint: Any, default: Any) -> None:
    assert "default" not in property_of(hint, default)
    assert called(taking(hint, default)) is default


def test_a_default_of_none_may_be_asked_for_with_null_even_where_the_type_does_not_say_so() -> None:
    assert property_of(int, None) == INTEGER
    assert called(taking(int, None), value=None) is None
