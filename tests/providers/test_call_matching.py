"""Which call a delta of Chat Completions belongs to, for every way imitators number and name them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.providers._call_matching import CallMatcher

Delta = tuple[int | None, str, str, str]
"""Index, id, name, arguments."""

CLOSING = "closing"
"""Marks that the chunk which follows ends the response."""


def calls(*chunks: Delta | list[Delta] | str) -> list[tuple[str, str]]:
    """Return the name and the arguments of each call that the deltas make; a list is a chunk of several."""
    matcher = CallMatcher()
    made: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    closing = False
    for chunk in chunks:
        if chunk == CLOSING:
            closing = True
            continue
        matcher.begin_chunk(closing=closing)
        for index, id, name, arguments in chunk if isinstance(chunk, list) else [chunk]:
            number = matcher.match(index, id, name, arguments)  # type: ignore[arg-type]
            if number is not None:
                made.setdefault(number, []).append(arguments)  # type: ignore[arg-type]
                names.setdefault(number, "")
                names[number] = names[number] or name  # type: ignore[assignment]
    assert sorted(made) == list(range(len(made)))
    return [(names[number], "".join(made[number])) for number in sorted(made)]


A = '{"q":"A"}'
B = '{"q":"B"}'


def test_the_rule_of_the_api_itself() -> None:
    assert calls(
        (0, "c1", "f", ""),
        (0, "", "", '{"q":'),
        (0, "", "", '"A"}'),
        (1, "c2", "g", ""),
        (1, "", "", B),
    ) == [("f", A), ("g", B)]


def test_an_id_that_comes_late_names_its_call_from_then_on() -> None:
    assert calls(
        (0, "", "f", ""),
        (0, "c1", "", '{"q":'),
        (1, "c2", "g", '{"q":'),
        (None, "c1", "", '"A"}'),
        (None, "c2", "", '"B"}'),
    ) == [("f", A), ("g", B)]


def test_calls_that_take_turns_are_told_apart_by_their_index() -> None:
    assert calls(
        (0, "c1", "f", ""),
        (1, "c2", "f", ""),
        (0, "", "", '{"q":'),
        (1, "", "", '{"q":"B"'),
        (0, "", "", '"A"}'),
        (1, "", "", "}"),
    ) == [("f", A), ("f", B)]


ONE_CALL: dict[str, list[Any]] = {
    "the id is repeated": [(0, "c", "f", ""), (0, "c", "", '{"q":'), (0, "c", "", '"A"}')],
    "id and name are repeated": [(0, "c", "f", ""), (0, "c", "f", '{"q":'), (0, "c", "f", '"A"}'), (0, "c", "f", "")],
    "the id changes": [(0, "c1", "f", ""), (0, "c2", "", '{"q":'), (0, "c3", "", '"A"}'), (0, "c4", "", "")],
    "the id changes, the name is repeated": [
        (0, "c1", "f", ""),
        (0, "c2", "f", '{"q":'),
        (0, "c3", "f", '"A"}'),
        (0, "c4", "f", ""),
    ],
    "the index changes": [(0, "c", "f", ""), (1, "", "", '{"q":'), (2, "", "", '"A"}')],
    "the index changes, the id is repeated": [(0, "c", "f", ""), (1, "c", "", '{"q":'), (2, "c", "", '"A"}')],
    "the index changes, the name is repeated": [(0, "", "f", '{"q":'), (1, "", "f", '"A"'), (2, "", "f", "}")],
    "index and id change": [(0, "c1", "f", ""), (1, "c2", "", '{"q":'), (2, "c3", "", '"A"}')],
    "there is no index": [(None, "c", "f", ""), (None, "", "", '{"q":'), (None, "", "", '"A"}')],
    "there is no index, the id is repeated": [(None, "c", "f", '{"q":'), (None, "c", "", '"A"}')],
    "there is neither": [(None, "", "f", '{"q":'), (None, "", "", '"A"}')],
    "there is neither, the name is repeated": [(None, "", "f", '{"q":'), (None, "", "f", '"A"'), (None, "", "f", "}")],
    "the name comes late": [(0, "c", "", ""), (0, "", "f", '{"q":'), (0, "", "", '"A"}')],
    "the id comes late": [(None, "", "f", '{"q":'), (None, "c", "", '"A"'), (None, "c", "", "}")],
    "white space follows": [(0, "c", "f", A), (0, "", "", "\n"), (None, "", "", " ")],
    "empty deltas surround it": [(None, "", "", ""), (0, "c", "f", A), (0, "", "", ""), (None, "", "", "")],
    "it comes whole, then its end is told": [(0, "c", "f", A), CLOSING, (0, "c", "f", "")],
    "a nested object begins a delta": [(0, "c", "f", '{"q":'), (0, "c", "f", '{"r":'), (0, "c", "f", '"}"}}')],
}


@pytest.mark.parametrize("chunks", ONE_CALL.values(), ids=ONE_CALL)
def test_one_call_stays_one_when(chunks: list[Any]) -> None:
    ((name, arguments),) = calls(*chunks)

    assert name == "f"
    assert json.loads(arguments) in (json.loads(A), {"q": {"r": "}"}})


TWO_CALLS: dict[str, list[Any]] = {
    "both have index 0": [(0, "c1", "f", A), (0, "c2", "f", B)],
    "both have index 0, in one chunk": [[(0, "c1", "f", A), (0, "c2", "f", B)]],
    "both have index 0 and come in pieces": [
        (0, "c1", "f", ""),
        (0, "", "", A),
        (0, "c2", "f", ""),
        (0, "", "", '{"q":'),
        (0, "", "", '"B"}'),
    ],
    "both have index 0 and no id": [(0, "", "f", A), (0, "", "f", B)],
    "neither has an index": [[(None, "c1", "f", A), (None, "c2", "f", B)]],
    "neither has anything": [(None, "", "f", A), (None, "", "f", B)],
    "they share an id": [(0, "same", "f", A), (1, "same", "f", B)],
    "they share an id and come in pieces": [
        (0, "same", "f", ""),
        (0, "", "", A),
        (1, "same", "f", ""),
        (1, "", "", B),
    ],
    "they share an id and begin before either has arguments": [
        (0, "same", "f", ""),
        (1, "same", "f", ""),
        (1, "same", "", B),
        (0, "same", "", A),
    ],
    "they share id and index": [(0, "same", "f", A), (0, "same", "f", B)],
    "the name is the id": [(None, "f", "f", A), (None, "f", "f", B)],
    "they come whole in the closing chunk": [CLOSING, [(0, "c1", "f", A), (1, "c2", "f", B)]],
}


@pytest.mark.parametrize("chunks", TWO_CALLS.values(), ids=TWO_CALLS)
def test_two_calls_stay_two_when(chunks: list[Any]) -> None:
    assert calls(*chunks) == [("f", A), ("f", B)]


TWINS: dict[str, list[Any]] = {
    "their ids differ": [(0, "c1", "f", A), (0, "c2", "f", A)],
    "they have no ids": [(None, "", "f", A), (None, "", "f", A)],
    "they come in the closing chunk": [CLOSING, [(None, "", "f", A), (None, "", "f", A)]],
    "their ids differ in the closing chunk": [(0, "c1", "f", A), CLOSING, (0, "c2", "f", A)],
    "their indexes differ": [(0, "", "f", A), (1, "", "f", A)],
    "only their indexes differ, not the ids": [(0, "same", "f", A), (1, "same", "f", A)],
}


@pytest.mark.parametrize("chunks", TWINS.values(), ids=TWINS)
def test_equal_calls_are_two_when(chunks: list[Any]) -> None:
    assert calls(*chunks) == [("f", A), ("f", A)]


@pytest.mark.parametrize(
    ("first", "second"), [((0, "c1", "f", ""), (0, "c2", "f", "")), ((None, "", "f", ""), (None, "", "f", ""))]
)
def test_two_calls_without_arguments_are_two(first: Delta, second: Delta) -> None:
    assert calls(first, second) == [("f", ""), ("f", "")]


def test_another_name_is_another_call_whatever_else_is_the_same() -> None:
    assert calls((0, "c", "f", A), (0, "c", "g", B), (0, "c", "h", "")) == [("f", A), ("g", B), ("h", "")]
    assert calls((0, "", "f", ""), (0, "", "g", "")) == [("f", ""), ("g", "")]


SAID_AGAIN: dict[str, list[Any]] = {
    "as it was, in the closing chunk": [CLOSING, (0, "c", "f", A)],
    "as it was, after the closing chunk": [CLOSING, (0, "", "", ""), (0, "c", "f", A)],
    "with arguments encoded twice": [CLOSING, (0, "c", "f", json.dumps(A))],
    "with other white space": [CLOSING, (0, "c", "f", '{ "q": "A" }')],
    "without its id": [CLOSING, (0, "", "f", A)],
    "without index and id": [CLOSING, (None, "", "f", A)],
    "without its name": [CLOSING, (0, "c", "", A)],
    "without arguments": [CLOSING, (0, "c", "f", "")],
    "under another id after the end": [CLOSING, (0, "", "", ""), (0, "other", "f", A)],
    "twice": [CLOSING, (0, "c", "f", A), (0, "c", "f", A)],
    "before the end": [(0, "c", "f", A)],
}


@pytest.mark.parametrize("again", SAID_AGAIN.values(), ids=SAID_AGAIN)
def test_a_call_that_is_said_again_runs_once(again: list[Any]) -> None:
    assert calls((0, "c", "f", ""), (0, "", "", '{"q":'), (0, "", "", '"A"}'), *again) == [("f", A)]


def test_a_call_without_arguments_that_is_said_again_runs_once() -> None:
    assert calls((0, "c", "f", ""), CLOSING, (0, "c", "f", ""), (0, "c", "f", "")) == [("f", "")]
    assert calls((0, "c", "f", "{}"), CLOSING, (0, "", "f", "")) == [("f", "{}")]


def test_several_calls_that_are_said_again_at_once_run_once_each() -> None:
    summary = [(0, "c1", "f", json.dumps(A)), (1, "c2", "g", json.dumps(B))]

    assert calls((0, "c1", "f", A), (1, "c2", "g", B), CLOSING, (0, "", "", ""), summary) == [("f", A), ("g", B)]


def test_a_call_that_comes_in_the_closing_chunk_is_not_lost() -> None:
    assert calls((0, "c1", "f", A), CLOSING, (1, "c2", "g", A)) == [("f", A), ("g", A)]
    assert calls((0, "c", "f", ""), CLOSING, (0, "c", "f", A)) == [("f", A)]
    assert calls((0, "c", "f", '{"q":'), CLOSING, (0, "c", "", '"A"}')) == [("f", A)]


def test_garbage_after_complete_arguments_is_not_hidden() -> None:
    assert calls((0, "c", "f", A), (0, "", "", "}")) == [("f", A + "}")]
    assert calls((0, "c", "f", A), (0, "", "", B)) == [("f", A + B)]


strings = st.text('{}[]"\\ab ', max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | strings,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(strings, children, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(strings, json_values, min_size=1), st.data())
def test_where_arguments_end_is_seen_wherever_they_are_cut(arguments: dict[str, Any], data: st.DataObject) -> None:
    raw = json.dumps(arguments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    # Each delta repeats the name, without id or index: only the brackets tell where the first call ends.
    deltas = [(0, "", "f", piece) for piece in pieces if piece]
    assert calls(*deltas, (0, "", "f", A)) == [("f", raw), ("f", A)]


def test_asking_at_every_delta_reads_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcore.providers import _call_matching

    read: list[str] = []
    original = _call_matching._Call._read
    monkeypatch.setattr(_call_matching._Call, "_read", lambda call, part: (read.append(part), original(call, part))[1])
    matcher = CallMatcher()
    matcher.begin_chunk(closing=False)
    matcher.match(0, "c", "f", '{"text": "')
    for _ in range(2_000):
        matcher.match(0, "c", "f", "more")

    assert sum(map(len, read)) <= 10 + 4 * 2_000
