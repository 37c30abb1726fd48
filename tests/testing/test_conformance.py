"""The checks that every stream function must pass: all of ours do, and broken ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from agentcore import (
    AssistantMessage,
    DoneEvent,
    ErrorEvent,
    Model,
    ModelContext,
    RequestRetryEvent,
    StartEvent,
    StreamOptions,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    stream_response,
)
from agentcore.testing import SseServer, call, reply, scripted, scripted_model, thinking
from agentcore.testing.conformance import assert_valid_transcript, check_events, check_stream_function
from agentcore.testing.sse_server import Reply, sse

CHAT = sse(
    {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo", "reasoning_content": "hm"}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":1}'}}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    "[DONE]",
)
ANTHROPIC = sse(
    {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "server_tool_use", "id": "s", "input": {}}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "c", "name": "f"}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": '{"x":1}'}},
    {"type": "content_block_stop", "index": 3},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
)
GOOGLE = sse(
    {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]},
    {"candidates": [{"content": {"parts": [{"text": "Hello"}, {"functionCall": {"name": "f", "args": {"x": 1}}}]}}]},
    {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3}},
)
RESPONSES = sse(
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "lo"},
    {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello"}]},
    },
    {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
    },
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"x":1}'},
    {
        "type": "response.output_item.done",
        "output_index": 1,
        "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x":1}'},
    },
    {"type": "response.completed", "response": {"status": "completed", "output": []}},
)
APIS = {
    "openai-completions": CHAT,
    "anthropic-messages": ANTHROPIC,
    "google-generative-ai": GOOGLE,
    "openai-responses": RESPONSES,
}


@pytest.mark.parametrize("api", APIS)
def test_every_adapter_keeps_to_the_rules(api: str) -> None:
    with SseServer(Reply(APIS[api])) as server:
        check_stream_function(stream_response, Model("m", api=api, base_url=server.url))


@pytest.mark.parametrize("api", APIS)
def test_every_adapter_keeps_to_the_rules_when_it_is_refused(api: str) -> None:
    with SseServer(Reply(b'{"error": {"message": "no"}}', status=400)) as server:
        check_stream_function(stream_response, Model("m", api=api, base_url=server.url))


def test_the_scripted_model_keeps_to_the_rules() -> None:
    answers = reply(thinking("hm"), "Hello", call("f", x=1), "Bye", chunk=2)
    check_stream_function(scripted(answers, repeat=True), scripted_model(), heeds_signal=False)


def test_what_was_checked_is_returned() -> None:
    events = check_events(scripted("Hi")(scripted_model(), ModelContext(), StreamOptions()))
    assert [event.type for event in events] == ["start", "text_start", "text_delta", "text_end", "done"]


HI = AssistantMessage("Hi")
NOTHING = AssistantMessage(())


def text_events(*deltas: str, end: str | None = None) -> Iterator[Any]:
    yield StartEvent(NOTHING)
    yield TextStartEvent(0, AssistantMessage(""))
    so_far = ""
    for delta in deltas:
        so_far += delta
        yield TextDeltaEvent(0, delta, AssistantMessage(so_far))
    yield TextEndEvent(0, so_far if end is None else end, AssistantMessage(so_far))


FAILED = AssistantMessage((), stop_reason="error")
BROKEN = {
    "no last event": [StartEvent(NOTHING)],
    "nothing at all": [],
    "an event after the last": [StartEvent(NOTHING), DoneEvent(NOTHING), DoneEvent(NOTHING)],
    "a second start": [StartEvent(NOTHING), StartEvent(NOTHING), DoneEvent(NOTHING)],
    "a delta before the start": [TextDeltaEvent(0, "Hi", HI), DoneEvent(HI)],
    "a delta of a block that has not begun": [StartEvent(NOTHING), TextDeltaEvent(0, "Hi", HI), DoneEvent(HI)],
    "a block that begins twice": [*text_events("Hi"), TextStartEvent(0, HI), DoneEvent(HI)],
    "a delta after the end": [*text_events("Hi"), TextDeltaEvent(0, "Hi", HI), DoneEvent(HI)],
    "a delta of another kind": [*[*text_events("Hi")][:2], ThinkingDeltaEvent(0, "Hi", HI), DoneEvent(HI)],
    "an end that says something else": [*text_events("H", "i", end="Ho"), DoneEvent(HI)],
    "a partial that is ahead": [StartEvent(NOTHING), TextStartEvent(0, HI), DoneEvent(AssistantMessage(""))],
    "a partial that lacks a block": [StartEvent(NOTHING), TextStartEvent(0, NOTHING), DoneEvent(NOTHING)],
    "other text in the message": [*text_events("Hi"), DoneEvent(AssistantMessage("Ho"))],
    "a block that does not end": [*[*text_events("Hi")][:-1], DoneEvent(HI)],
    "calls that nobody told of": [StartEvent(NOTHING), DoneEvent(AssistantMessage([ToolCall("a", "f", {})]))],
    "calls that share an id": [
        StartEvent(NOTHING),
        ErrorEvent(AssistantMessage([ToolCall("a", "f", {})] * 2, stop_reason="aborted")),
    ],
    "a failure that says no error": [StartEvent(NOTHING), ErrorEvent(FAILED)],
    "a failure that is done": [StartEvent(NOTHING), DoneEvent(FAILED)],
    "a success that is an error": [StartEvent(NOTHING), ErrorEvent(HI)],
    "a late retry": [StartEvent(NOTHING), RequestRetryEvent(1, 0.0, "again"), DoneEvent(NOTHING)],
    "a retry that counts from nothing": [RequestRetryEvent(0, 0.0, "again"), StartEvent(NOTHING), DoneEvent(NOTHING)],
}


@pytest.mark.parametrize("events", BROKEN.values(), ids=BROKEN)
def test_what_breaks_the_rules_is_found(events: list[Any]) -> None:
    with pytest.raises(AssertionError):
        check_events(events)


def test_a_stream_function_that_does_not_look_at_its_signal_is_found() -> None:
    def deaf(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[Any]:
        yield from text_events("Hi")
        yield DoneEvent(HI)

    with pytest.raises(AssertionError, match="abort"):
        check_stream_function(deaf, scripted_model())


# --- transcripts ----------------------------------------------------------------------------------------------------

CALLS = AssistantMessage([ToolCall("a", "f", {}), ToolCall("b", "f", {})], stop_reason="tool_use")


def result(id: str) -> ToolResultMessage:
    return ToolResultMessage(id, "f", "ok")


def test_a_transcript_with_one_result_for_every_call_in_order_is_valid() -> None:
    assert_valid_transcript([UserMessage("hi"), CALLS, result("a"), result("b"), HI, UserMessage("more")])


def test_calls_of_a_message_that_failed_want_no_results() -> None:
    assert_valid_transcript([UserMessage("hi"), attrs.evolve(CALLS, stop_reason="aborted"), UserMessage("more")])


def test_calls_that_share_an_id_are_answered_one_by_one() -> None:
    twins = AssistantMessage([ToolCall("a", "f", {}), ToolCall("a", "f", {})], stop_reason="tool_use")
    assert_valid_transcript([twins, result("a"), result("a")])


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([CALLS, result("b"), result("a")], "'a' comes first"),
        ([CALLS, result("a"), UserMessage("more")], "comes while calls wait"),
        ([CALLS, result("a"), result("b"), result("b")], "which no call waits for"),
        ([CALLS, result("c")], r"not of \['a', 'b'\]"),
        ([result("a")], "which no call waits for"),
    ],
)
def test_an_invalid_transcript_is_found(messages: list[Any], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        assert_valid_transcript(messages)
