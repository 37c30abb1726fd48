"""The scripted model: what it plays, where it can be held, and what it remembers of its requests."""

import json
import threading
from typing import Any

import pytest

import agentcore.testing
from agentcore.abort import AbortController
from agentcore.config import AgentContext, AgentLoopConfig, ModelContext, StreamOptions
from agentcore.content import ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import DoneEvent, ErrorEvent, RequestRetryEvent, StartEvent, TextDeltaEvent
from agentcore.loop import run_agent_loop
from agentcore.messages import AssistantMessage, ErrorInfo, Usage, UserMessage
from agentcore.testing import Gate, ScriptedReply, call, failure, reply, scripted, scripted_model, thinking


def ask(model: Any, **options: Any) -> list[Any]:
    """Return the events of one response."""
    return list(model(scripted_model(), ModelContext(messages=[UserMessage("hi")]), StreamOptions(**options)))


def brief(events: list[Any]) -> list[str]:
    """Return the types of events, with the delta of those that have one."""
    return [f"{event.type} {event.delta!r}" if hasattr(event, "delta") else event.type for event in events]


def test_the_package_exports_what_it_promises_in_order():
    names = agentcore.testing.__all__
    assert names == sorted(names)
    assert all(hasattr(agentcore.testing, name) for name in names)
    assert {"scripted", "reply", "failure", "call", "thinking", "Gate", "SseServer", "ProxyServer"} <= set(names)


# --- what it plays --------------------------------------------------------------------------------------------------


def test_text_comes_in_one_delta_unless_asked_otherwise():
    assert brief(ask(scripted("Hello"))) == ["start", "text_start", "text_delta 'Hello'", "text_end", "done"]


def test_a_chunk_size_cuts_every_block():
    events = ask(scripted(reply(thinking("hmmm"), "Hello", chunk=3)))
    assert brief(events) == [
        "start",
        "thinking_start",
        "thinking_delta 'hmm'",
        "thinking_delta 'm'",
        "thinking_end",
        "text_start",
        "text_delta 'Hel'",
        "text_delta 'lo'",
        "text_end",
        "done",
    ]
    assert events[-1].message.content == (ThinkingContent("hmmm"), TextContent("Hello"))


def test_the_deltas_of_one_block_can_be_given_exactly():
    asked = call("read", path="a.txt")
    events = ask(scripted(reply("Hi", asked, deltas={1: ['{"path"', ': "a.t', 'xt"}']})))
    assert brief(events)[4:] == [
        "toolcall_start",
        "toolcall_delta '{\"path\"'",
        "toolcall_delta ': \"a.t'",
        "toolcall_delta 'xt\"}'",
        "toolcall_end",
        "done",
    ]
    seen = [event.partial.tool_calls[0] for event in events[4:-1]]
    assert [(one.partial_json, one.arguments) for one in seen] == [
        ("", {}),
        ('{"path"', {}),
        ('{"path": "a.t', {"path": "a.t"}),
        ('{"path": "a.txt"}', {"path": "a.txt"}),
        (None, {"path": "a.txt"}),
    ]
    assert events[-1].message.tool_calls == (asked,)


def test_a_call_whose_arguments_are_no_object_sends_its_raw_text():
    broken = ToolCall("c1", "read", {}, partial_json='["a"]')
    events = ask(scripted(reply(broken)))
    assert "toolcall_delta '[\"a\"]'" in brief(events)
    assert events[-1].message.tool_calls == (broken,)


def test_every_partial_shows_the_message_as_it_stood():
    events = ask(scripted(reply("ab", "cd", chunk=1)))
    assert [event.partial.text for event in events[:-1]] == ["", "", "a", "ab", "ab", "ab", "abc", "abcd", "abcd"]


def test_other_blocks_have_no_deltas_of_their_own():
    blocks = (ImageContent("AAAA", "image/png"), ProviderContent("scripted", "scripted", {"x": 1}))
    events = ask(scripted(reply(*blocks, "text")))
    assert brief(events) == ["start", "text_start", "text_delta 'text'", "text_end", "done"]
    assert events[-1].message.content == (*blocks, TextContent("text"))


@pytest.mark.parametrize(
    ("answer", "stop_reason"),
    [
        (reply("a"), "stop"),
        (reply("a", call("f")), "tool_use"),
        (reply("a", call("f"), stop_reason="length"), "length"),
        (reply("a", error=ErrorInfo("overloaded", "busy")), "error"),
        (failure("busy", "a"), "error"),
        (reply("a", stop_reason="aborted", error=ErrorInfo("aborted", "enough")), "aborted"),
    ],
)
def test_the_stop_reason_follows_from_the_reply_unless_it_is_given(answer: ScriptedReply, stop_reason: str):
    last = ask(scripted(answer))[-1]
    assert last.message.stop_reason == stop_reason
    assert type(last) is (ErrorEvent if stop_reason in ("error", "aborted") else DoneEvent)


def test_a_failure_keeps_what_came_before_it_and_says_why():
    last = ask(scripted(failure("busy", "So far", kind="rate_limit", usage=Usage(3, 1))))[-1]
    assert last.message.text == "So far"
    assert last.message.error == ErrorInfo("rate_limit", "busy")
    assert last.message.usage == Usage(3, 1)


def test_without_a_start_only_the_final_event_comes():
    retry = RequestRetryEvent(1, 0.5, "503")
    assert ask(scripted(failure("no such host", retry, start=False)))[0] == retry
    assert brief(ask(scripted(failure("no such host", start=False)))) == ["error"]
    assert brief(ask(scripted(reply("all at once", start=False)))) == ["done"]


def test_retries_are_reported_before_the_reply_begins():
    retry = RequestRetryEvent(1, 0.5, "503")
    assert brief(ask(scripted(reply("Hello", retry)))) == [
        "request_retry",
        "start",
        "text_start",
        "text_delta 'Hello'",
        "text_end",
        "done",
    ]


def test_the_message_names_the_model_that_was_asked_and_carries_the_usage():
    message = ask(scripted(reply("Hello", usage=Usage(5, 2))))[-1].message
    assert (message.api, message.provider, message.model) == ("scripted", "scripted", "scripted-1")
    assert message.usage == Usage(5, 2)


def test_calls_get_ids_of_their_own_unless_one_is_given():
    one, other, named = call("f"), call("f"), call("f", id="mine", x=1)
    assert one.id != other.id
    assert named == ToolCall("mine", "f", {"x": 1})


def test_fields_of_the_model_can_be_set():
    assert scripted_model(id="big", cost={"input": 1.0}).cost == {"input": 1.0}
    assert scripted_model(id="big").provider == "scripted"


# --- scripts --------------------------------------------------------------------------------------------------------


def test_a_reply_can_be_a_function_of_the_request():
    model = scripted(lambda request: f"You said {request.messages[-1].content}.")
    assert ask(model)[-1].message.text == "You said hi."


def test_a_reply_can_be_an_exception_or_made_into_one():
    with pytest.raises(OSError, match="unplugged"):
        ask(scripted(OSError("unplugged")))
    with pytest.raises(OSError, match="unplugged"):
        ask(scripted(lambda request: OSError("unplugged")))


def test_a_reply_can_be_events_that_are_sent_as_they_are():
    message = AssistantMessage("x")
    events = [StartEvent(message), TextDeltaEvent(0, "x", message), DoneEvent(message)]
    assert ask(scripted(events)) == events
    assert ask(scripted(lambda request: iter(events))) == events


def test_asked_once_too_often_it_says_how_many_replies_it_had():
    model = scripted("one", "two")
    ask(model)
    ask(model)
    with pytest.raises(AssertionError, match="the script has 2 replies, and one more was asked for"):
        ask(model)


def test_a_repeated_script_begins_again():
    model = scripted("one", "two", repeat=True)
    assert [ask(model)[-1].message.text for _ in range(5)] == ["one", "two", "one", "two", "one"]


def test_a_repeated_script_without_replies_fails_as_any_other():
    with pytest.raises(AssertionError, match="has 0 replies"):
        ask(scripted(repeat=True))


@pytest.mark.parametrize("part", [7, None, ["a"], UserMessage("a")])
def test_a_part_that_is_none_is_refused_where_the_reply_is_made(part: Any):
    with pytest.raises(TypeError, match="a reply is made of text, blocks, gates and retries"):
        reply("a", part)


def test_a_chunk_of_nothing_is_refused():
    with pytest.raises(ValueError, match="`chunk` is 0"):
        reply("a", chunk=0)


# --- gates ----------------------------------------------------------------------------------------------------------


def events_until_held(model: Any, gate: Gate, **options: Any) -> tuple[list[Any], threading.Thread]:
    """Play a response on another thread; return the events that came before the gate, in a list that grows."""
    events: list[Any] = []

    def play() -> None:
        for event in model(scripted_model(), ModelContext(), StreamOptions(**options)):
            events.append(event)  # noqa: PERF402 - the list is looked at while it grows

    thread = threading.Thread(target=play)
    thread.start()
    gate.wait_reached()
    return events, thread


@pytest.mark.parametrize(
    ("make", "before"),
    [
        pytest.param(lambda gate: reply("ab", chunk=1, hold=gate), [], id="before anything"),
        pytest.param(lambda gate: reply(gate, "ab", chunk=1), ["start"], id="before the first block"),
        pytest.param(
            lambda gate: reply("ab", chunk=1, gates={1: gate}),
            ["start", "text_start", "text_delta 'a'"],
            id="after a delta",
        ),
        pytest.param(
            lambda gate: reply("a", gate, "b"),
            ["start", "text_start", "text_delta 'a'", "text_end"],
            id="between blocks",
        ),
        pytest.param(
            lambda gate: reply("a", call("f"), gates={2: gate}),
            ["start", "text_start", "text_delta 'a'", "text_end", "toolcall_start", "toolcall_delta '{}'"],
            id="after a delta of the second block",
        ),
    ],
)
def test_a_gate_holds_the_reply_until_it_is_opened(make: Any, before: list[str]):
    with Gate() as gate:
        model = scripted(make(gate))
        events, thread = events_until_held(model, gate)
        assert brief(events) == before
        assert thread.is_alive()
        gate.open()
        thread.join(10)
        assert brief(events)[-1] == "done"


def test_an_abort_ends_the_wait_at_a_gate():
    controller = AbortController()
    with Gate() as gate:
        events, thread = events_until_held(
            scripted(reply("ab", chunk=1, gates={1: gate})), gate, signal=controller.signal
        )
        controller.abort()
        thread.join(10)
        assert not thread.is_alive()
        assert not gate.is_open
        assert brief(events)[-1] == "done"


def test_a_gate_that_is_open_already_holds_nothing():
    gate = Gate()
    gate.open()
    assert brief(ask(scripted(reply("a", gate, gates={1: gate}, hold=gate))))[-1] == "done"
    assert gate.is_reached


def test_waiting_for_a_gate_that_nothing_comes_to_times_out():
    with pytest.raises(TimeoutError, match=r"nothing came to the gate within 0\.01 s"):
        Gate().wait_reached(0.01)


def test_waiting_for_a_gate_to_open_says_whether_it_did():
    gate = Gate()
    assert gate.wait(0.01) is False
    gate.open()
    assert gate.wait(0.01) is True
    assert gate.hold() is True


def test_holding_says_whether_the_gate_was_opened_or_the_signal_aborted():
    controller = AbortController()
    controller.abort()
    assert Gate().hold(controller.signal) is False


def test_who_asks_is_told_when_the_gate_opens_unless_he_took_it_back():
    gate, told = Gate(), []
    gate.on_open(lambda: told.append("stays"))
    gate.on_open(lambda: told.append("leaves"))()
    gate.open()
    gate.on_open(lambda: told.append("late"))
    gate.open()
    assert told == ["stays", "late"]


def test_leaving_the_block_opens_the_gate():
    with Gate() as gate:
        assert not gate.is_open
    assert gate.is_open


def test_a_gate_shows_its_state():
    gate = Gate()
    assert repr(gate) == "<Gate shut>"
    gate.open()
    gate.hold()
    assert repr(gate) == "<Gate open, reached>"


# --- what it remembers ----------------------------------------------------------------------------------------------


def test_it_keeps_what_it_was_asked_each_time():
    model = scripted(reply(call("nothing", id="c1")), "Done.")
    config = AgentLoopConfig(model=scripted_model(), temperature=0.5)
    run_agent_loop("hi", AgentContext("Be brief."), config, lambda event: None, stream_fn=model)
    first, second = model.requests
    assert [message.role for message in first.messages] == ["user"]
    assert [message.role for message in second.messages] == ["user", "assistant", "toolResult"]
    assert first.model == scripted_model()
    assert first.context.system_prompt == "Be brief."
    assert first.options.temperature == 0.5
    assert model.closed == 2


def test_a_response_that_is_left_in_the_middle_counts_as_closed():
    model = scripted("Hello")
    events = model(scripted_model(), ModelContext(), StreamOptions())
    next(events)
    assert model.closed == 0
    events.close()
    assert model.closed == 1


def test_runs_that_ask_at_once_each_get_a_reply_of_their_own():
    model = scripted(*[str(number) for number in range(200)])
    texts: list[str] = []

    def ask_often() -> None:
        texts.extend(ask(model)[-1].message.text for _ in range(50))

    threads = [threading.Thread(target=ask_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts, key=int) == [str(number) for number in range(200)]
    assert len(model.requests) == 200


def test_the_final_arguments_are_what_the_deltas_spell():
    asked = call("f", text="naïve ✅", nested={"a": [1, 2.5, None, True]})
    events = ask(scripted(reply(asked, chunk=1)))
    raw = "".join(event.delta for event in events if event.type == "toolcall_delta")
    assert json.loads(raw) == events[-1].message.tool_calls[0].arguments == asked.arguments
