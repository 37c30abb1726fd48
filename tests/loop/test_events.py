"""Events compare by value, pickle with what they carry, and have a dict form that JSON can hold."""

import copy
import json
import pickle
from typing import Any, get_args

import attrs
import pytest

from agentcore import events
from agentcore.content import TextContent, ToolCall
from agentcore.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.partial import MessageJournal, PartialMessage
from agentcore.tools import AgentToolResult

MESSAGE = AssistantMessage("done", timestamp=1)
CALL = ToolCall("c", "read", {"path": "a"})
RESULT = ToolResultMessage("c", "read", "ok", timestamp=2)
TOOL_RESULT = AgentToolResult("ok", {"lines": {1}})


def partial() -> PartialMessage:
    journal = MessageJournal(timestamp=1)
    journal.open(0, TextContent(""))
    journal.append(0, "he")
    return journal.partial()


def stream_events(partial: Any) -> list[Any]:
    return [
        events.StartEvent(partial),
        events.TextStartEvent(0, partial),
        events.TextDeltaEvent(0, "he", partial),
        events.TextEndEvent(0, "he", partial),
        events.ThinkingStartEvent(1, partial),
        events.ThinkingDeltaEvent(1, "hm", partial),
        events.ThinkingEndEvent(1, "hm", partial),
        events.ToolCallStartEvent(2, partial),
        events.ToolCallDeltaEvent(2, "{", partial),
        events.ToolCallEndEvent(2, CALL, partial),
        events.DoneEvent(MESSAGE),
        events.ErrorEvent(MESSAGE),
        events.RequestRetryEvent(1, 0.5, "busy"),
    ]


def loop_events(partial: Any) -> list[Any]:
    return [
        events.AgentStartEvent(),
        events.AgentEndEvent([UserMessage("hi", 1), MESSAGE], "aborted"),
        events.TurnStartEvent(),
        events.TurnEndEvent(MESSAGE, [RESULT]),
        events.MessageStartEvent(partial),
        events.MessageUpdateEvent(partial, events.TextDeltaEvent(0, "he", partial)),
        events.MessageEndEvent(MESSAGE),
        events.ToolExecutionStartEvent("c", "read", {"path": "a"}),
        events.ToolExecutionUpdateEvent("c", "read", {"path": "a"}, TOOL_RESULT),
        events.ToolExecutionEndEvent("c", "read", TOOL_RESULT, False),
        events.RequestRetryEvent(1, 0.5, "busy"),
        events.CompactionStartEvent("threshold", 900),
        events.CompactionEndEvent(CompactionSummaryMessage("so far", 900, 1), 100, None, Usage(input=900, output=5)),
    ]


def all_events(partial: Any) -> list[Any]:
    return [*stream_events(partial), *loop_events(partial)]


def ids(event: Any) -> str:
    return type(event).__name__


def test_the_unions_hold_exactly_their_events() -> None:
    assert [type(event) for event in stream_events(partial())] == list(get_args(events.StreamEvent))
    assert [type(event) for event in loop_events(partial())] == list(get_args(events.AgentEvent))
    assert set(get_args(events.StreamEvent)) & set(get_args(events.AgentEvent)) == {events.RequestRetryEvent}


def test_an_event_is_tagged_by_the_snake_case_of_its_name() -> None:
    assert [event.type for event in all_events(partial())] == [
        "start", "text_start", "text_delta", "text_end", "thinking_start", "thinking_delta", "thinking_end",
        "toolcall_start", "toolcall_delta", "toolcall_end", "done", "error", "request_retry",
        "agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update", "message_end",
        "tool_execution_start", "tool_execution_update", "tool_execution_end", "request_retry",
        "compaction_start", "compaction_end",
    ]  # fmt: skip


@pytest.mark.parametrize("make_partial", [partial, lambda: MESSAGE], ids=["arriving", "plain"])
def test_events_compare_by_value_and_are_the_same_after_pickling_and_copying(make_partial: Any) -> None:
    for event, same in zip(all_events(make_partial()), all_events(make_partial()), strict=True):
        assert event == same
        assert pickle.loads(pickle.dumps(event)) == event
        assert copy.deepcopy(event) == event
        assert not hasattr(event, "__dict__")
        with pytest.raises(TypeError):
            hash(event)


def test_events_of_different_classes_are_not_equal() -> None:
    pairs: list[tuple[Any, Any]] = [
        (events.TextDeltaEvent(0, "a", MESSAGE), events.ThinkingDeltaEvent(0, "a", MESSAGE)),
        (events.AgentStartEvent(), events.TurnStartEvent()),
    ]
    assert all(left != right for left, right in pairs)


@pytest.mark.parametrize("event", all_events(partial()), ids=ids)
def test_the_dict_form_is_tagged_and_goes_through_json(event: Any) -> None:
    data = event.to_dict()

    assert next(iter(data)) == "type"
    assert data["type"] == event.type
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_the_dict_form_leaves_out_the_message_that_an_event_repeats() -> None:
    delta = events.TextDeltaEvent(0, "he", partial())

    assert delta.to_dict() == {"type": "text_delta", "content_index": 0, "delta": "he"}
    assert events.TextDeltaEvent(0, "he", MESSAGE).to_dict() == delta.to_dict()
    assert events.MessageStartEvent(partial()).to_dict() == {"type": "message_start"}
    assert events.MessageUpdateEvent(partial(), delta).to_dict() == {
        "type": "message_update",
        "assistant_message_event": delta.to_dict(),
    }


def test_the_dict_form_holds_what_an_event_tells() -> None:
    assert events.MessageStartEvent(UserMessage("hi", 1)).to_dict() == {
        "type": "message_start",
        "message": {"role": "user", "content": "hi", "timestamp": 1},
    }
    assert events.AgentEndEvent([UserMessage("hi", 1)], "limit:turns").to_dict() == {
        "type": "agent_end",
        "messages": [{"role": "user", "content": "hi", "timestamp": 1}],
        "reason": "limit:turns",
    }
    assert events.ToolExecutionEndEvent("c", "read", TOOL_RESULT, True).to_dict() == {
        "type": "tool_execution_end",
        "tool_call_id": "c",
        "tool_name": "read",
        "result": {"content": [{"type": "text", "text": "ok"}], "details": {"lines": [1]}, "is_error": False},
        "is_error": True,
    }
    assert events.ToolCallEndEvent(2, CALL, partial()).to_dict() == {
        "type": "toolcall_end",
        "content_index": 2,
        "tool_call": {"type": "tool", "id": "c", "name": "read", "arguments": {"path": "a"}},
    }


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def to_dict(self) -> dict[str, Any]:
        raise RuntimeError("no dict")


def test_the_dict_form_never_raises() -> None:
    strange: Any = Unspeakable()

    assert events.ToolExecutionUpdateEvent("c", "t", {"x": strange}, strange).to_dict()["args"] == {
        "x": "<Unspeakable>"
    }
    assert events.MessageEndEvent(strange).to_dict() == {"type": "message_end", "message": "<Unspeakable>"}


def test_sequences_become_tuples_of_the_events_own() -> None:
    messages: list[Any] = [UserMessage("hi", 1)]
    results = [RESULT]
    end, turn = events.AgentEndEvent(messages), events.TurnEndEvent(MESSAGE, results)
    messages.clear()
    results.clear()

    assert end.messages == (UserMessage("hi", 1),)
    assert end.reason == "completed"
    assert turn.tool_results == (RESULT,)
    assert events.TurnEndEvent(MESSAGE).tool_results == ()


def test_a_message_of_an_application_travels_in_an_event() -> None:
    note = CustomMessage("note", "text", timestamp=1)

    assert events.MessageEndEvent(note).to_dict()["message"] == note.to_dict()


def test_partial_is_the_last_field_of_every_event_that_has_one() -> None:
    for event in stream_events(MESSAGE)[:10]:
        assert attrs.fields(type(event))[-1].name == "partial"
    for event in stream_events(MESSAGE)[10:]:
        assert "partial" not in attrs.fields_dict(type(event))
