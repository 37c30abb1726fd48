"""Records show themselves in few words, and anything has a form that JSON can hold."""

import collections
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import time
import types
import unittest.mock
import uuid
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore._records import Record, Valued, is_a, json_safe, now_ms, represented, shortened, text_of


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(str, enum.Enum):
    HIGH = "high"


class Count(enum.IntEnum):
    TWO = 2


@dataclasses.dataclass
class Data:
    path: pathlib.Path
    parts: tuple[int, ...] = ()


@attrs.define
class Attrs:
    when: dt.datetime
    inner: Any = None


class WithDict:
    def to_dict(self) -> dict[str, Any]:
        return {"kind": Color.RED, "items": {3}}


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class BadToDict:
    def to_dict(self) -> dict[str, Any]:
        raise RuntimeError("no dict")

    def __repr__(self) -> str:
        return "BadToDict()"


class BadKey:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        raise RuntimeError("no words")

    def __repr__(self) -> str:
        return "BadKey()"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Whole(int):
    pass


class Real(float):
    pass


class FakeArray:
    """Compares like an array: to something without a truth value."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "FakeArray()"


MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        ("text \u2028 \ud800 \x00", "text \u2028 \ud800 \x00"),
        ([1, [2]], [1, [2]]),
        ((1, (2,)), [1, [2]]),
        ({"a": {"b": 1}}, {"a": {"b": 1}}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1: "a", None: "b", (1, 2): "c", Color.RED: "d", Level.HIGH: "e", Text("f"): "g"},
         {"1": "a", "None": "b", "(1, 2)": "c", "red": "d", "high": "e", "f": "g"}),
        ({BadKey(): 1, "a": 2}, {"BadKey()": 1, "a": 2}),
        (Color.RED, "red"),
        (Color.PAIR, [1, 2]),
        (Level.HIGH, "high"),
        (Count.TWO, 2),
        (Text("abc"), "abc"),
        (Whole(7), 7),
        (Real(1.5), 1.5),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.10"), "1.10"),
        (MOMENT, "2024-05-06T07:08:09+00:00"),
        (MOMENT.date(), "2024-05-06"),
        (MOMENT.time(), "07:08:09"),
        (dt.timedelta(seconds=1), "datetime.timedelta(seconds=1)"),
        (b"\xff", "b'\\xff'"),
        (bytearray(b"a"), "bytearray(b'a')"),
        (range(10**12), "range(0, 1000000000000)"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (1 + 2j, "(1+2j)"),
        (int, "<class 'int'>"),
        (WithDict(), {"kind": "red", "items": [3]}),
        (WithDict, f"<class '{WithDict.__module__}.WithDict'>"),
        (Attrs, f"<class '{Attrs.__module__}.Attrs'>"),
        (Data, f"<class '{Data.__module__}.Data'>"),
        (BadToDict(), "BadToDict()"),
        (Unspeakable(), "<Unspeakable>"),
        ({"a": Unspeakable()}, {"a": "<Unspeakable>"}),
        (Data(pathlib.Path("x"), (1,)), {"path": "x", "parts": [1]}),
        (Attrs(MOMENT, {1}), {"when": "2024-05-06T07:08:09+00:00", "inner": [1]}),
        (collections.deque([1, 2]), [1, 2]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (ValueError("boom"), "ValueError('boom')"),
    ],
)  # fmt: skip
def test_anything_has_a_form_that_json_can_hold(value: Any, expected: Any) -> None:
    result = json_safe(value)

    assert result == expected
    assert type(result) is type(expected)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_an_integer_of_more_digits_than_json_converts_is_written_in_hexadecimal() -> None:
    assert json_safe(10**4000) == 10**4000
    assert json_safe({"a": 10**6000, "b": Whole(-(10**6000))}) == {"a": hex(10**6000), "b": hex(-(10**6000))}


def test_values_of_json_are_kept_as_they_are_in_copies() -> None:
    value = {"a": [1, 2.5, "x", None, True, {"b": []}]}
    result = json_safe(value)
    result["a"][5]["b"].append(1)

    assert value == {"a": [1, 2.5, "x", None, True, {"b": []}]}


def test_a_cycle_is_cut_where_it_closes() -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["self"] = [loop]
    record = Attrs(MOMENT)
    record.inner = record

    assert json_safe(loop) == {"a": 1, "self": ["…"]}
    assert json_safe(record) == {"when": "2024-05-06T07:08:09+00:00", "inner": "…"}


def test_a_value_that_appears_twice_without_a_cycle_is_written_twice() -> None:
    shared = {"a": 1}

    assert json_safe([shared, shared]) == [{"a": 1}, {"a": 1}]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_is_kept_to_a_depth_that_json_can_write_and_cut_below() -> None:
    assert json_safe(nested(200)) == nested(200)

    written = json.dumps(json_safe(nested(100_000)))

    assert written == "[" * 200 + json.dumps("…") + "]" * 200


def test_nesting_too_deep_for_the_stack_that_is_left_is_no_error() -> None:
    def at_depth(levels: int) -> Any:
        return json_safe(nested(190)) if levels == 0 else at_depth(levels - 1)

    assert json.dumps(at_depth(700))[:10] == "[" * 10


class Strange:
    """An object whose every question is answered with an error."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(alphabet=st.characters()),
        st.binary(),
        st.dates(),
        st.sampled_from([Unspeakable, BadToDict, WithDict, FakeArray, object]).map(lambda make: make()),
        st.sampled_from([Color.RED, Data, object]),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.none(), st.builds(BadKey)), inner),
        st.builds(Attrs, st.just(MOMENT), inner),
    ),
)


@given(ODD)
def test_the_form_that_json_can_hold_survives_json_and_is_its_own_form(value: Any) -> None:
    result = json_safe(value)

    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert json_safe(result) == result


# --- short reprs ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("abc", "'abc'"),
        ("x" * 60, repr("x" * 60)),
        ("x" * 61, f"{'x' * 60!r}… (61 characters)"),
        ([1, 2], "[1, 2]"),
        ((1, 2), "(1, 2)"),
        ((), "()"),
        ([], "[]"),
        ({}, "{}"),
        ({"a": 1, 2: "b"}, "{'a': 1, 2: 'b'}"),
        (list(range(8)), "[0, 1, 2, 3, 4, 5, … 2 more]"),
        (dict.fromkeys(range(8)), "{0: None, 1: None, 2: None, 3: None, 4: None, 5: None, … 2 more}"),
        ([[[["deep"]]], [[[]]], [[{}]]], "[[[[…]]], [[[]]], [[{}]]]"),
        (Unspeakable(), "<Unspeakable>"),
        ({BadKey(): Unspeakable()}, "{BadKey(): <Unspeakable>}"),
        (b"x" * 1000, f"{repr(b'x' * 1000)[:120]}…"),
    ],
)
def test_a_repr_is_shortened(value: Any, expected: str) -> None:
    assert shortened(value) == expected


def test_the_repr_of_a_cycle_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)

    assert shortened(loop) == "[[[[…]]]]"


@attrs.frozen(repr=False)
class Point(Record):
    x: int
    label: str = "none"
    tags: tuple[str, ...] = ()
    details: Any = None
    secret: str = attrs.field(default="", repr=False)
    items: list[int] = attrs.field(factory=list)
    timestamp: int = 0


@attrs.frozen(repr=False)
class _Private(Record):
    value: Any = True


def test_a_records_repr_leaves_out_what_is_unset_secret_or_a_timestamp() -> None:
    assert repr(Point(1)) == "Point(x=1, items=[])"
    assert repr(Point(0, "none", (), None, "key", [1], 5)) == "Point(x=0, items=[1])"
    assert repr(Point(1, "a", ("b",), {"c": 1})) == "Point(x=1, label='a', tags=('b',), details={'c': 1}, items=[])"
    assert repr(_Private()) == "Private()"
    assert repr(_Private(1)) == "Private(value=1)"


def test_a_records_repr_copes_with_values_that_do_not_compare() -> None:
    assert repr(_Private(FakeArray())) == "Private(value=FakeArray())"
    assert repr(_Private(Unspeakable())) == "Private(value=<Unspeakable>)"


def test_an_object_that_answers_no_question_is_named() -> None:
    assert shortened(Strange()) == "<Strange>"
    assert json_safe([Strange()])[0].startswith("<")


def test_a_records_repr_is_short_however_much_it_holds() -> None:
    point = Point(1, "x" * 10_000, ("y" * 1000,) * 1000, {str(key): {"k": ["v" * 500] * 50} for key in range(500)})
    many = Point(1, details=[[[point] * 10] * 10] * 10)

    assert len(repr(point)) < 600
    assert len(repr(many)) < 600


@given(ODD)
def test_a_repr_never_raises_and_never_grows_long(value: Any) -> None:
    assert len(repr(_Private(value))) < 600


def test_representing_never_raises() -> None:
    assert represented(5) == "5"
    assert represented(Unspeakable()) == "<Unspeakable>"
    assert text_of("said") == "said"
    assert text_of(Unspeakable()) == "<Unspeakable>"


def test_the_time_is_whole_milliseconds_since_the_epoch() -> None:
    before = time.time()
    now = now_ms()
    after = time.time()

    assert isinstance(now, int)
    assert int(before * 1000) - 1 <= now <= int(after * 1000) + 1


def test_records_are_frozen_slotted_and_copied_by_value() -> None:
    point = Point(1, items=[1])
    other = copy.deepcopy(point)

    assert other == point
    assert other.items is not point.items
    assert not hasattr(point, "__dict__")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]


# --- equality -------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Shared(Record):
    x: Any
    y: Any = None
    note: Any = attrs.field(default=None, eq=False)


@attrs.frozen
class Generated:
    """The same fields, with the methods that attrs makes."""

    x: Any
    y: Any = None
    note: Any = attrs.field(default=None, eq=False)


@attrs.frozen(eq=False, repr=False)
class SharedMore(Shared):
    z: int = 0


@attrs.frozen
class GeneratedMore(Generated):
    z: int = 0


@attrs.frozen
class GeneratedOfShared(Shared):
    z: int = 0


class SharedPlain(Shared):
    pass


class GeneratedPlain(Generated):
    pass


TWINS: list[tuple[Any, Any]] = [
    (Shared, Generated),
    (SharedMore, GeneratedMore),
    (GeneratedOfShared, GeneratedMore),
    (SharedPlain, GeneratedPlain),
]
VALUES = st.sampled_from([None, 0, 1, 1.0, True, "a", (), (1,), [1], {"a": 1}, float("inf")])
FIELDS = st.fixed_dictionaries({"x": VALUES}, optional={"y": VALUES, "note": VALUES})


def hashed(value: Any) -> Any:
    try:
        return hash(value)
    except TypeError:
        return None


@pytest.mark.parametrize(("shared", "generated"), TWINS)
@given(one=FIELDS, other=FIELDS)
def test_records_are_equal_and_hashable_exactly_when_attrs_would_make_them_so(
    shared: Any, generated: Any, one: dict[str, Any], other: dict[str, Any]
) -> None:
    ours, theirs = (shared(**one), shared(**other)), (generated(**one), generated(**other))
    assert (ours[0] == ours[1]) is (theirs[0] == theirs[1]) is not (ours[0] != ours[1])
    assert (hashed(ours[0]) is None) is (hashed(theirs[0]) is None)
    if ours[0] == ours[1]:
        assert hashed(ours[0]) == hashed(ours[1])


def test_records_of_other_classes_are_not_equal_whatever_they_hold() -> None:
    records = [Shared(1), SharedMore(1), SharedPlain(1), GeneratedOfShared(1), Generated(1)]
    assert [[one == other for other in records] for one in records] == [
        [one is other for other in records] for one in records
    ]
    assert Shared(1).__eq__(1) is NotImplemented
    assert Shared(1) == unittest.mock.ANY
    assert len({hash(record) for record in records[:3]}) == 3


def test_what_compares_by_value_only_is_not_hashable() -> None:
    @attrs.define(eq=False)
    class Loose(Valued):
        x: int

    assert Loose(1) == Loose(1) != Loose(2)
    assert hashed(Loose(1)) is None


def test_a_copy_of_a_record_that_holds_no_number_is_equal() -> None:
    record = Shared(float("nan"), [float("inf")])
    assert copy.copy(record) == copy.deepcopy(record) == record


# --- fields of one class --------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Named(Record):
    name: str = attrs.field(validator=is_a(str))
    level: Level | None = attrs.field(default=None, validator=is_a(Level, optional=True))


def test_a_field_of_another_class_is_refused_in_one_sentence() -> None:
    assert Named("a").level is None
    assert Named("a", Level.HIGH).name == "a"
    for fields, said in [((5,), "`name` is a `str`, not int"), (("a", 5), "`level` is a `Level`, not int")]:
        with pytest.raises(TypeError) as caught:
            Named(*fields)
        assert str(caught.value) == said
    with pytest.raises(TypeError, match="`name` is a `str`, not NoneType"):
        Named(None)  # type: ignore[arg-type]
