"""The assembler turns deltas into events and one message, whatever order and however many they come in."""

import json
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.content import ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from agentcore.messages import AssistantMessage, ErrorInfo, Usage
from agentcore.models import Model
from agentcore.partial import PartialMessage
from agentcore.providers._assembler import Assembler, read_arguments

MODEL = Model("m", provider="p", cost={"input": 1.0, "output": 2.0})


def an_assembler(model: Model = MODEL) -> Assembler:
    return Assembler(model, timestamp=1)


def message_of(events: Any) -> AssistantMessage:
    last = events[-1]
    assert isinstance(last, (DoneEvent, ErrorEvent))
    return last.message


def shapes(events: Any) -> list[tuple[Any, ...]]:
    """Return events as tuples of their type and fields, without partials."""
    fields = [[field.name for field in attrs.fields(type(event)) if field.name != "partial"] for event in events]
    return [
        (event.type, *[getattr(event, name) for name in names]) for event, names in zip(events, fields, strict=True)
    ]


def test_one_text_gives_a_start_deltas_an_end_and_the_message() -> None:
    assembler = an_assembler()

    events = [*assembler.text("Hel"), *assembler.text("lo"), *assembler.finish("stop", "end")]

    message = AssistantMessage(
        [TextContent("Hello")],
        api="openai-completions",
        provider="p",
        model="m",
        stop_reason="stop",
        raw_stop_reason="end",
        timestamp=1,
    )
    assert [type(event) for event in events] == [
        StartEvent,
        TextStartEvent,
        TextDeltaEvent,
        TextDeltaEvent,
        TextEndEvent,
        DoneEvent,
    ]
    assert shapes(events)[1:] == [
        ("text_start", 0),
        ("text_delta", 0, "Hel"),
        ("text_delta", 0, "lo"),
        ("text_end", 0, "Hello"),
        ("done", message),
    ]


def test_every_partial_shows_the_message_as_it_stood_at_its_event() -> None:
    assembler = an_assembler()

    events: list[Any] = [
        *assembler.thinking("Hm"),
        *assembler.text("A"),
        *assembler.thinking("m."),
        *assembler.text("B"),
        *assembler.tool_call(0, '{"q": "x', id="c", name="f"),
        *assembler.text("C"),
    ]

    seen = [(event.type, event.partial.thinking, event.partial.text, len(event.partial.tool_calls)) for event in events]
    assert seen == [
        ("start", "", "", 0),
        ("thinking_start", "", "", 0),
        ("thinking_delta", "Hm", "", 0),
        ("text_start", "Hm", "", 0),
        ("text_delta", "Hm", "A", 0),
        ("thinking_delta", "Hmm.", "A", 0),
        ("text_delta", "Hmm.", "AB", 0),
        ("toolcall_start", "Hmm.", "AB", 1),
        ("toolcall_delta", "Hmm.", "AB", 1),
        ("text_delta", "Hmm.", "ABC", 1),
    ]
    arriving = events[-1].partial.tool_calls[0]
    assert (arriving.partial_json, arriving.arguments) == ('{"q": "x', {"q": "x"})


def test_text_thinking_and_calls_that_take_turns_stay_one_block_each() -> None:
    assembler = an_assembler()
    steps = [
        assembler.text("one "),
        assembler.tool_call("a", '{"n"', id="c1", name="f"),
        assembler.tool_call("b", "", id="c2", name="g"),
        assembler.thinking("why"),
        assembler.tool_call("a", ": 1"),
        assembler.text("two"),
        assembler.tool_call("b", '{"m": 2}'),
        assembler.thinking(" not"),
        assembler.tool_call("a", "}"),
        assembler.finish("tool_use"),
    ]

    events = [event for step in steps for event in step]

    assert message_of(events).content == (
        TextContent("one two"),
        ToolCall("c1", "f", {"n": 1}),
        ToolCall("c2", "g", {"m": 2}),
        ThinkingContent("why not"),
    )
    ends = [event for event in events if isinstance(event, (TextEndEvent, ThinkingEndEvent, ToolCallEndEvent))]
    assert [event.content_index for event in ends] == [0, 1, 2, 3]
    assert ends[1].partial.tool_calls[0].partial_json is None  # type: ignore[union-attr]


def test_a_call_tells_its_start_its_raw_text_and_its_end() -> None:
    assembler = an_assembler()

    events = [
        *assembler.tool_call(0, id="c", name="f"),
        *assembler.tool_call(0, '{"a":'),
        *assembler.tool_call(0, ""),
        *assembler.tool_call(0, " 1}"),
        *assembler.end(0),
    ]

    assert [type(event) for event in events] == [
        StartEvent,
        ToolCallStartEvent,
        ToolCallDeltaEvent,
        ToolCallDeltaEvent,
        ToolCallEndEvent,
    ]
    assert events[1].partial.content == (ToolCall("c", "f", {}, ""),)  # type: ignore[union-attr]
    assert events[-1].tool_call == ToolCall("c", "f", {"a": 1})  # type: ignore[union-attr]


def test_an_id_and_a_name_that_come_late_are_taken_and_later_ones_are_not() -> None:
    assembler = an_assembler()

    first = assembler.tool_call(0, '{"a"')[1].partial.tool_calls[0]  # type: ignore[union-attr]
    late = assembler.tool_call(0, ": ", id="c", name="f")
    again = assembler.tool_call(0, "1}", id="other", name="other")
    message = message_of(assembler.finish("tool_use"))

    assert first.id.startswith("call_")
    assert late[-1].partial.tool_calls[0].partial_json == '{"a": '  # type: ignore[union-attr]
    assert len(again) == 1
    assert message.content == (ToolCall("c", "f", {"a": 1}),)


def test_ids_that_are_missing_or_shared_are_made_unique() -> None:
    assembler = an_assembler()
    ids = ["same", "", "same", "same_2", "", "same"]
    for key, id in enumerate(ids):
        assembler.tool_call(key, "{}", id=id, name="f")

    calls = message_of(assembler.finish("tool_use")).tool_calls

    assert len({call.id for call in calls}) == len(ids)
    assert calls[0].id == "same"
    assert all(call.id for call in calls)


def test_a_block_that_was_closed_stays_closed_and_its_key_begins_another() -> None:
    assembler = an_assembler()

    assembler.text("a", 0)
    closed = assembler.end(0)
    assembler.text("b", 0)
    assembler.end("never opened")

    assert shapes(closed) == [("text_end", 0, "a")]
    assert message_of(assembler.finish("stop")).content == (TextContent("a"), TextContent("b"))


def test_a_key_that_changes_its_kind_ends_one_block_and_begins_another() -> None:
    assembler = an_assembler()

    assembler.text("a", 0)
    events = assembler.thinking("b", 0)

    assert [event.type for event in events] == ["text_end", "thinking_start", "thinking_delta"]
    assert message_of(assembler.finish("stop")).content == (TextContent("a"), ThinkingContent("b"))


def test_an_empty_delta_begins_nothing() -> None:
    assembler = an_assembler()

    assert assembler.text("") == ()
    assert assembler.thinking("") == ()
    assert message_of(assembler.finish("stop")).content == ()


def test_signatures_are_kept_with_their_blocks_and_a_signed_block_may_be_empty() -> None:
    assembler = an_assembler()

    assembler.thinking("t", 0)
    assembler.sign(0, "sig-", ThinkingContent)
    assembler.sign(0, "1", ThinkingContent)
    assembler.end(0)
    assembler.sign(1, "s2", TextContent)
    assembler.tool_call(2, "{}", id="c", name="f", thought_signature="s3")
    redacted = assembler.redacted_thinking("secret")
    message = message_of(assembler.finish("stop"))

    assert message.content == (
        ThinkingContent("t", "sig-1"),
        TextContent("", "s2"),
        ToolCall("c", "f", {}, None, "s3"),
        ThinkingContent("", "secret", redacted=True),
    )
    assert [event.type for event in redacted] == ["thinking_start", "thinking_end"]


def test_a_block_of_the_provider_is_kept_in_its_place() -> None:
    assembler = an_assembler()

    assembler.text("a", 0)
    assembler.provider_content({"type": "web_search", "query": "q"})
    events = assembler.text("b", 0)

    assert len(events) == 1
    assert events[0].partial.content[1] == ProviderContent(  # type: ignore[union-attr]
        "p", "openai-completions", {"type": "web_search", "query": "q"}
    )
    content = message_of(assembler.finish("stop")).content
    assert [type(block) for block in content] == [TextContent, ProviderContent]
    assert content[0] == TextContent("ab")


# --- facts about the message ---


def test_the_last_count_of_each_kind_wins_and_none_overwrites_nothing() -> None:
    assembler = an_assembler()

    assembler.usage(input=25, cache_read=10, output=1)
    assembler.usage(input=None, output=15, reasoning=4)
    message = message_of(assembler.finish("stop"))

    assert message.usage == Usage(
        input=25,
        output=15,
        cache_read=10,
        reasoning=4,
        cost=None,
    )
    assert message.usage is not None
    assert message.usage.total_tokens == 50


def test_cost_comes_from_the_prices_of_the_model() -> None:
    assembler = an_assembler()

    assembler.usage(input=1_000_000, output=500_000)

    usage = message_of(assembler.finish("stop")).usage
    assert usage is not None
    assert usage.cost == {"input": 1.0, "output": 1.0, "cache_read": 0.0, "cache_write": 0.0, "total": 2.0}


def test_a_model_without_prices_has_usage_without_cost() -> None:
    assembler = an_assembler(Model("local/foo"))

    assembler.usage(input=1, output=2)

    assert message_of(assembler.finish("stop")).usage == Usage(1, 2)


def test_a_response_without_usage_says_so() -> None:
    assert message_of(an_assembler().finish("stop")).usage is None


def test_usage_and_id_show_in_the_partials_from_when_they_came() -> None:
    assembler = an_assembler()

    before = assembler.text("a")[-1].partial  # type: ignore[union-attr]
    assembler.usage(input=3)
    assembler.response_id("r1")
    assembler.response_id("r2")
    after = assembler.text("b")

    assert (before.usage, before.response_id, before.text) == (None, None, "a")
    assert len(after) == 1
    partial = after[0].partial  # type: ignore[union-attr]
    assert (partial.usage.input, partial.response_id, partial.text) == (3, "r1", "ab")


# --- ends ---


def test_a_failure_keeps_what_had_arrived_and_says_why() -> None:
    assembler = an_assembler()
    assembler.thinking("t")
    assembler.text("half an ans")
    assembler.tool_call(0, '{"path": "a.txt", "content": "hel', id="c", name="write")
    assembler.usage(output=7)

    events = assembler.fail(ErrorInfo("connection", "the connection broke"), "odd")

    message = message_of(events)
    assert (message.stop_reason, message.raw_stop_reason, message.error_message) == (
        "error",
        "odd",
        "the connection broke",
    )
    assert message.text == "half an ans"
    assert message.usage is not None
    assert message.usage.output == 7
    (call,) = message.tool_calls
    assert type(call) is ToolCall
    assert call.partial_json == '{"path": "a.txt", "content": "hel'
    assert call.arguments == {"path": "a.txt", "content": "hel"}
    assert json.loads(json.dumps(message.to_dict())) == message.to_dict()


def test_a_failure_before_anything_came_is_one_event() -> None:
    (event,) = an_assembler().fail(ErrorInfo("authentication", "no"))

    assert message_of([event]).content == ()


def test_an_abort_is_told_by_its_kind() -> None:
    assembler = an_assembler()
    assembler.text("so far")

    message = message_of(assembler.fail(ErrorInfo("aborted", "stopped")))

    assert (message.stop_reason, message.text) == ("aborted", "so far")


# --- arguments ---


@pytest.mark.parametrize("raw", ["", " ", "\n\t ", "null", " null ", "{}", " { } "])
def test_no_arguments_are_an_empty_object(raw: str) -> None:
    assert read_arguments(raw) == ({}, None)


@pytest.mark.parametrize(
    "raw",
    [
        '"ls"',
        '["ls"]',
        "7",
        "true",
        "ls",
        '"{\\"a\\": 1}"',
        '{"a": 1',
        '{"a": 1}}',
        '{"q":"A"}{"q":"B"}',
        '{"a": NaN}',
        '{"a": [-Infinity]}',
        '{"a": 1, "a": 2}',
        "{'a': 1}",
        '{"a": "line\nbreak"}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_any_other_text_that_is_no_json_object_is_kept_raw(raw: str) -> None:
    assert read_arguments(raw) == ({}, raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values), st.data())
def test_arguments_in_any_pieces_come_out_whole(arguments: dict[str, Any], data: st.DataObject) -> None:
    raw = json.dumps(arguments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    assembler = an_assembler()
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        assembler.tool_call(0, raw[start:end], id="c", name="f")

    (call,) = message_of(assembler.finish("tool_use")).tool_calls

    assert call == ToolCall("c", "f", arguments)


steps = st.one_of(
    st.tuples(st.sampled_from(["text", "thinking", "tool_call"]), st.sampled_from([0, 1, 2]), st.text(max_size=3)),
    st.tuples(st.just("end"), st.sampled_from([0, 1, 2]), st.just("")),
    st.tuples(st.sampled_from(["usage", "response_id", "provider", "sign"]), st.just(0), st.just("x")),
)


@given(st.lists(steps, max_size=30), st.booleans())
def test_any_steps_give_events_that_tell_the_whole_message(plan: list[tuple[str, int, str]], well: bool) -> None:
    assembler = an_assembler()
    events: list[StreamEvent] = []
    for number, (step, key, text) in enumerate(plan):
        match step:
            case "text":
                events += assembler.text(text, key)
            case "thinking":
                events += assembler.thinking(text, key)
            case "tool_call":
                events += assembler.tool_call(key, text, name="f")
            case "end":
                events += assembler.end(key)
            case "usage":
                assembler.usage(output=number)
            case "response_id":
                assembler.response_id(text)
            case "sign":
                events += assembler.sign(key, text, TextContent)
            case _:
                events += assembler.provider_content({"type": "x"})
    events += assembler.finish("stop") if well else assembler.fail(ErrorInfo("connection", "broke"))

    message = message_of(events)
    assert isinstance(events[0], StartEvent) or len(events) == 1
    grown: dict[int, str] = {}
    open_blocks: set[int] = set()
    for event in events[:-1]:
        match event:
            case TextStartEvent() | ThinkingStartEvent() | ToolCallStartEvent():
                assert event.content_index not in grown
                grown[event.content_index] = ""
                open_blocks.add(event.content_index)
            case TextDeltaEvent() | ThinkingDeltaEvent() | ToolCallDeltaEvent():
                assert event.content_index in open_blocks
                grown[event.content_index] += event.delta
                assert shown(event.partial, event.content_index) == grown[event.content_index]
            case TextEndEvent() | ThinkingEndEvent():
                open_blocks.remove(event.content_index)
                assert event.content == grown[event.content_index]
            case ToolCallEndEvent():
                open_blocks.remove(event.content_index)
    assert not (well and open_blocks)
    for index, text in grown.items():
        block = message.content[index]
        if isinstance(block, TextContent):
            assert block.text == text
        elif isinstance(block, ThinkingContent):
            assert block.thinking == text


def shown(partial: AssistantMessage | PartialMessage, index: int) -> str | None:
    block = partial.content[index]
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ThinkingContent):
        return block.thinking
    assert isinstance(block, ToolCall)
    return block.partial_json


# --- cost ---


def entries_after(assembler: Assembler) -> int:
    partial = assembler.start() or assembler.text("x")
    return partial[-1].partial._position  # type: ignore[union-attr]


@pytest.mark.parametrize("deltas", [2_000, 20_000])
def test_a_delta_costs_one_entry_and_one_event_however_long_the_message_is(deltas: int) -> None:
    assembler = an_assembler()
    assembler.tool_call(0, '{"text": "', id="c", name="f")
    before = entries_after(assembler)
    assembler.tool_call(0, "more")

    events = [assembler.tool_call(0, "more") for _ in range(deltas)]
    assert all(len(step) == 1 for step in events)
    assert events[-1][0].partial._position - events[0][0].partial._position == deltas - 1  # type: ignore[union-attr]

    texts = [assembler.text("more") for _ in range(deltas)]
    assert all(len(step) == 1 for step in texts[1:])
    assert texts[-1][0].partial._position - texts[0][-1].partial._position == deltas - 1  # type: ignore[union-attr]
    assert texts[-1][0].partial._position - before < 2 * deltas + 10  # type: ignore[union-attr]


def test_blocks_that_take_turns_cost_the_same_at_the_end_as_at_the_start() -> None:
    assembler = an_assembler()
    positions = []
    for _ in range(1_000):
        assembler.text("a")
        positions.append(assembler.thinking("b")[-1].partial._position)  # type: ignore[union-attr]

    steps = {after - before for before, after in pairwise(positions[1:])}

    assert len(steps) == 1
