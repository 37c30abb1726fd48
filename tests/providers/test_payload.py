"""The JSON of payloads: byte for byte what `json.dumps` gives, made once, and copies that may be changed."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.providers import _payload
from agentcore.providers._payload import Fragment, encoded

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NAMES = st.text(max_size=4)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(NAMES, inner, max_size=4)
        | st.dictionaries(NAMES, inner, max_size=4).map(Fragment)
        | st.dictionaries(st.integers() | st.booleans() | NAMES, inner, max_size=3)
    )


PAYLOADS = st.recursive(SCALARS, containers, max_leaves=30)


def plainly(payload: Any) -> bytes:
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


@given(PAYLOADS)
def test_a_payload_with_fragments_is_what_json_would_be_without_them(payload: Any) -> None:
    expected = plainly(payload)
    assert encoded(payload) == expected
    assert encoded(payload) == expected  # now from what was kept


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert encoded({"a": Fragment(text="x\ud83d"), "\ud83d": "\ude00"}) == b'{"a":{"text":"x?"},"?":"?"}'


def test_the_json_of_a_fragment_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fragment = Fragment(role="user", content=[{"text": "hello"}])
    first = encoded({"messages": [fragment]})
    monkeypatch.setattr(_payload, "_write", lambda value: pytest.fail(f"{value!r} is written again"))
    assert fragment.json() in first
    assert encoded([fragment, fragment]) == b"[%b,%b]" % (fragment.json(), fragment.json())


def test_the_json_of_what_is_long_is_not_kept() -> None:
    fragment = Fragment(data="x" * (1 << 20))
    first = encoded([fragment])
    fragment["data"] = "y"  # what nobody does; here it shows that the text is made anew
    assert encoded([fragment]) != first


@pytest.mark.parametrize(
    "made",
    [copy.copy, copy.deepcopy, Fragment.copy, lambda fragment: pickle.loads(pickle.dumps(fragment)), dict],
    ids=["copy", "deepcopy", "dict.copy", "pickle", "dict"],
)
def test_a_copy_of_a_fragment_is_a_dict_that_can_be_changed_and_sent(made: Any) -> None:
    fragment = Fragment(role="user", content=[Fragment(type="text", text="before")])
    encoded(fragment)
    changed = made(fragment)
    changed["role"] = "system"
    assert type(changed) is dict
    assert encoded([changed, fragment]) == (
        b'[{"role":"system","content":[{"type":"text","text":"before"}]},'
        b'{"role":"user","content":[{"type":"text","text":"before"}]}]'
    )


def test_a_deep_copy_can_be_changed_all_the_way_down() -> None:
    fragment = Fragment(content=[Fragment(text="before")])
    encoded(fragment)
    changed = copy.deepcopy({"messages": [fragment]})
    changed["messages"][0]["content"][0]["text"] = "after"
    assert encoded(changed) == b'{"messages":[{"content":[{"text":"after"}]}]}'
    assert encoded(fragment) == b'{"content":[{"text":"before"}]}'


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), object(), {1, 2}, b"x", {("a",): 1}])
@pytest.mark.parametrize("around", [lambda value: value, lambda value: {"a": [value]}, lambda value: Fragment(a=value)])
def test_what_is_no_json_is_refused_as_ever(wrong: Any, around: Any) -> None:
    payload = around(wrong)
    if payload is wrong and isinstance(wrong, bytes):
        assert encoded(wrong) == wrong
        return
    with pytest.raises((TypeError, ValueError)):
        encoded(payload)


def test_what_holds_itself_and_what_is_nested_too_deep_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    for payload in (circle, {"messages": circle}, deep, Fragment(a=circle)):
        with pytest.raises((ValueError, RecursionError)):
            encoded(payload)
