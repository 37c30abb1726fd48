"""The beginning of a JSON object gives what is certain of it, whatever the beginning."""

import json
import math
import re
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentcore.providers._partial_json import parse_partial_object

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0, -0.0, 1e300, 10**40])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)
STYLES = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


def closers(text: str) -> str | None:
    """Return what closes everything that is open at the end of a beginning of JSON; `None` inside an escape."""
    stack, in_string, skip = [], False, 0
    for position, character in enumerate(text):
        if skip:
            skip -= 1
        elif in_string:
            if character == "\\":
                skip = 5 if text[position + 1 : position + 2] == "u" else 1
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]":
            stack.pop()
    return None if skip else ('"' if in_string else "") + "".join(reversed(stack))


def reference(beginning: str) -> dict[str, Any]:
    """Cut characters off the end until what is left, closed, is JSON."""
    text = beginning
    if not (closers(text) or "").startswith('"'):
        # A number at the end may go on.
        text = re.sub(r"[-0-9][-+.eE0-9]*\Z", "", text)
    while text:
        end = closers(text)
        if end is not None:
            try:
                value = json.loads(text + end)
            except ValueError:
                pass
            else:
                if isinstance(value, dict):
                    return without_half_pair(value) if end.startswith('"') else value
        text = text[:-1]
    return {}


def without_half_pair(value: Any) -> Any:
    """Take half a surrogate pair off the end of the last string."""
    if isinstance(value, str):
        return value[:-1] if "\ud800" <= value[-1:] <= "\udbff" else value
    if isinstance(value, dict) and value:
        last = list(value)[-1]
        return {**value, last: without_half_pair(value[last])}
    if isinstance(value, list) and value:
        return [*value[:-1], without_half_pair(value[-1])]
    return value


def is_beginning_of(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        keys = list(part)
        return (
            isinstance(whole, dict)
            and keys == list(whole)[: len(keys)]
            and all(part[key] == whole[key] for key in keys[:-1])
            and all(is_beginning_of(part[key], whole[key]) for key in keys[-1:])
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(part) <= len(whole)
            and part[:-1] == whole[: max(0, len(part) - 1)]
            and all(is_beginning_of(item, whole[len(part) - 1]) for item in part[-1:])
        )
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part)
    return type(part) is type(whole) and part == whole


def size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + len(key) + size(item) for key, item in value.items())
    if isinstance(value, list):
        return 1 + sum(1 + size(item) for item in value)
    return 1 + (len(value) if isinstance(value, str) else 0)


@given(OBJECTS, STYLES)
@example({"a": "\U0001f399x", "b": ['"\\', {"c": [1, -2.5e-7, True, None]}], "d": "\u2028"}, {})
def test_every_beginning_of_an_object_gives_a_beginning_of_its_value(
    value: dict[str, Any], style: dict[str, Any]
) -> None:
    text = json.dumps(value, **style)
    seen = 0
    for length in range(0, len(text) + 1, 1 + len(text) // 100):
        part = parse_partial_object(text[:length])
        assert is_beginning_of(part, value), text[:length]
        assert size(part) >= seen, text[:length]
        seen = size(part)
    assert parse_partial_object(text) == json.loads(text)


@given(OBJECTS, STYLES, st.data())
def test_every_beginning_gives_all_that_is_certain(
    value: dict[str, Any], style: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value, **style)
    beginning = text[: data.draw(st.integers(0, len(text)))]

    assert parse_partial_object(beginning) == reference(beginning)


@given(
    st.one_of(
        st.text(),
        st.text('{}[]",:\\u0123456789aeE+-.tfn \n\ud83d\ude00'),
        st.binary().map(lambda b: b.decode("latin-1")),
    )
)
def test_no_text_raises(text: str) -> None:
    assert isinstance(parse_partial_object(text), dict)
    assert isinstance(parse_partial_object("{" + text), dict)
    assert isinstance(parse_partial_object('{"a":' + text), dict)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  ", {}),
        ("{", {}),
        (' \n{ "a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": "', {"a": ""}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\n', {"a": "x\n"}),
        ('{"a": "x\\u00e', {"a": "x"}),
        ('{"a": "x\\u00e9', {"a": "xé"}),
        ('{"a": "x\\ud83d', {"a": "x"}),
        ('{"a": "x\\ud83d\\', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude0', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude00', {"a": "x😀"}),
        ('{"a": "x\\\\', {"a": "x\\"}),
        ('{"a": "x\\\\u12', {"a": "x\\u12"}),
        ('{"a": 1', {}),
        ('{"a": 1,', {"a": 1}),
        ('{"a": 1 ', {"a": 1}),
        ('{"a": [1\n', {"a": [1]}),
        ('{"a": 1.5e', {}),
        ('{"a": 1.5e3}', {"a": 1500.0}),
        ('{"a": -', {}),
        ('{"a": tru', {}),
        ('{"a": true', {"a": True}),
        ('{"a": null', {"a": None}),
        ('{"a": [', {"a": []}),
        ('{"a": [1, 2', {"a": [1]}),
        ('{"a": [1, "b', {"a": [1, "b"]}),
        ('{"a": [[], {"b": {"c": "d', {"a": [[], {"b": {"c": "d"}}]}),
        ('{"a": {"b": 1}, "c', {"a": {"b": 1}}),
        ('{"path": "a.txt", "content": "hel', {"path": "a.txt", "content": "hel"}),
        ('{"a": 1, "a": "x', {"a": "x"}),
    ],
)
def test_what_is_certain_is_read(text: str, expected: dict[str, Any]) -> None:
    assert parse_partial_object(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "line\nline', {"a": "line\nline"}),
        ('{"a": "line\nline"}', {"a": "line\nline"}),
        ('{"a": "x\\q"}', {"a": "x"}),
        ('{"a": 1} and more', {"a": 1}),
        ('{"a": 1}{"b": 2}', {"a": 1}),
        ('{"a": 1, b', {"a": 1}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1,]}', {"a": [1]}),
        ('{"a": 01}', {}),
        ('{"a": 1 "b": 2}', {"a": 1}),
        ('{"a": "x" "b": 2}', {"a": "x"}),
        ("{'a': 1}", {}),
        ("[1]", {}),
        ('"text"', {}),
        ("7", {}),
        ("null", {}),
        ('\ufeff{"a": 1}', {}),
        ('{"a": ' + "1" * 5000 + "}", {}),
    ],
)
def test_text_that_is_no_object_is_read_as_far_as_it_is_one(text: str, expected: dict[str, Any]) -> None:
    assert parse_partial_object(text) == expected


def test_a_complete_object_is_what_the_standard_library_reads() -> None:
    value = parse_partial_object('{"a": NaN, "b": -Infinity, "a": [1E400, 12345678901234567890, -0]}')

    assert value == {"a": [math.inf, 12345678901234567890, 0], "b": -math.inf}


@pytest.mark.parametrize("opening", ['{"a":', '{"a":[', '{"a": {"b": ['])
def test_nesting_of_any_depth_is_read_without_recursion(opening: str) -> None:
    value: Any = parse_partial_object(opening * 100_000)

    depth = 0
    while value:
        value = value["a" if "a" in value else "b"] if isinstance(value, dict) else value[0]
        depth += 1
    assert 100 < depth < 400


def test_a_long_text_costs_no_square() -> None:
    half = '{"files": [' + '{"path": "a\\n", "size": [1, 2.5, true]}, ' * 20_000 + '{"path": "' + "text\\n" * 20_000
    start = time.process_time()

    value = parse_partial_object(half)

    assert len(value["files"]) == 20_001
    assert value["files"][-1] == {"path": "text\n" * 20_000}
    # About 0.2 s; copying the rest of the text at each value would move 50 GB.
    assert time.process_time() - start < 5
