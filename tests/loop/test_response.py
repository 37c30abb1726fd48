"""One response: what is sent, and what becomes of whatever a stream function does."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate, ModelContext
from agentcore.content import TextContent, ToolCall
from agentcore.errors import AbortRequested
from agentcore.events import (
    DoneEvent,
    ErrorEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RequestRetryEvent,
    StartEvent,
    TextDeltaEvent,
    TextStartEvent,
    ToolCallDeltaEvent,
)
from agentcore.loop import run_agent_loop
from agentcore.messages import AssistantMessage, ErrorInfo, Usage, UserMessage
from agentcore.models import Model
from agentcore.partial import MessageJournal, PartialMessage
from agentcore.testing import call, failure, reply, scripted, scripted_model
from tests.loop.loop_support import Played, answer, play, tool

HELLO = AssistantMessage("Hello", provider="p", model="m")


def journal_of(*deltas: str) -> MessageJournal:
    journal = MessageJournal(provider="p", model="m")
    journal.open(0, TextContent(""))
    for delta in deltas:
        journal.append(0, delta)
    return journal


def half_a_message() -> Iterator[Any]:
    """Send the beginning of a message whose text is `So far`."""
    journal = MessageJournal(provider="p", model="m")
    yield StartEvent(journal.partial())
    journal.open(0, TextContent(""))
    yield TextStartEvent(0, journal.partial())
    for delta in ("So ", "far"):
        journal.append(0, delta)
        yield TextDeltaEvent(0, delta, journal.partial())


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_the_steps_to_a_request_come_in_order_and_each_gets_what_the_one_before_gave():
    steps: list[Any] = []

    def transform(messages: Any, signal: Any) -> Any:
        steps.append(("transform", [message.content for message in messages]))
        return [*messages, UserMessage("transformed")]

    def convert(messages: Any) -> Any:
        steps.append(("convert", [message.content for message in messages]))
        return [*messages, UserMessage("converted")]

    def get_api_key(provider: str) -> str:
        steps.append(("key", provider))
        return "fresh"

    def stream_fn(model: Any, context: ModelContext, options: Any) -> Iterator[Any]:
        steps.append(("stream", [message.content for message in context.messages], options.api_key))
        yield DoneEvent(HELLO)

    answer(
        stream_fn=stream_fn,
        transform_context=transform,
        convert_to_llm=convert,
        get_api_key=get_api_key,
        api_key="stale",
    )
    assert steps == [
        ("transform", ["hi"]),
        ("convert", ["hi", "transformed"]),
        ("key", "scripted"),
        ("stream", ["hi", "transformed", "converted"], "fresh"),
    ]


@pytest.mark.parametrize("given", [None, ""])
def test_without_a_key_from_the_hook_the_one_of_the_config_is_used(given: str | None):
    played = answer("Hello", get_api_key=lambda provider: given, api_key="configured")
    assert played.model.requests[0].options.api_key == "configured"


def test_the_key_is_asked_for_the_provider_of_the_model_that_is_asked():
    asked: list[str] = []
    other = AgentLoopTurnUpdate(model=scripted_model(provider="elsewhere"))
    answer(
        reply(call("f")),
        "Done.",
        tools=[tool("f")],
        get_api_key=asked.append,
        prepare_next_turn=lambda context, signal: other,
    )
    assert asked == ["scripted", "elsewhere"]


def test_the_transformed_messages_are_those_of_one_request_only():
    def last_only(messages: list[Any], signal: Any) -> list[Any]:
        del messages[:-1]
        return messages

    played = answer(reply(call("f", id="c1")), "Done.", tools=[tool("f")], transform_context=last_only)
    assert [[message.role for message in request.messages] for request in played.model.requests] == [
        ["user"],
        ["toolResult"],
    ]
    assert [message.role for message in played.messages] == ["user", "assistant", "toolResult", "assistant"]


def test_the_hooks_of_a_request_get_the_signal_of_the_run():
    controller = AbortController()
    signals: list[Any] = []

    def transform(messages: Any, signal: Any) -> Any:
        signals.append(signal)
        return messages

    played = answer("Hello", transform_context=transform, signal=controller.signal)
    options_signal = played.model.requests[0].options.signal
    assert signals == [options_signal]
    assert not options_signal.aborted


@pytest.mark.parametrize("hook", ["get_steering_messages", "transform_context", "convert_to_llm", "get_api_key"])
def test_an_abort_on_the_way_to_a_request_keeps_it_from_being_sent(hook: str):
    controller = AbortController()
    asked: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def asks(*args: Any) -> Any:
            asked.append(name)
            if name == hook:
                controller.abort("enough")
            return args[0] if name in ("transform_context", "convert_to_llm") else None

        return asks

    names = ["get_steering_messages", "transform_context", "convert_to_llm", "get_api_key"]
    played = answer("never", signal=controller.signal, **{name: noting(name) for name in names})
    assert played.model.requests == []
    assert asked[: names.index(hook) + 1] == names[: names.index(hook) + 1]
    assert played.lines[-4:] == ["start assistant", "end assistant aborted", "turn_end", "agent_end aborted"]


def test_an_iterator_of_messages_will_do_from_a_converter():
    played = answer(
        "Hello",
        transform_context=lambda messages, signal: iter(messages),
        convert_to_llm=lambda messages: (message for message in messages),
    )
    assert [message.role for message in played.model.requests[0].messages] == ["user"]


def test_messages_that_no_model_understands_are_left_out_by_default():
    class Note:
        role = "note"
        timestamp = 0

        def to_dict(self) -> dict[str, Any]:
            return {"role": "note"}

    played = answer("Hello", prompts=[Note(), UserMessage("hi")])
    assert [message.role for message in played.model.requests[0].messages] == ["user"]
    assert [message.role for message in played.messages] == ["note", "user", "assistant"]


@pytest.mark.parametrize("wrong", [None, 7, "text", b"bytes"])
@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm"])
def test_a_hook_that_gives_no_messages_fails_the_run_by_name(hook: str, wrong: Any):
    played = play("never", **{hook: lambda *args: wrong})
    assert isinstance(played.failure, TypeError)
    assert hook in str(played.failure)
    assert played.lines == ["agent_start", "turn_start", "start user: hi", "end user: hi", "agent_end error"]
    assert played.model.requests == []


async def coroutine_hook(*args: Any) -> Any:
    """Stand for a hook that somebody wrote with `async def` by mistake."""


@pytest.mark.parametrize(
    "hook",
    [
        "transform_context",
        "convert_to_llm",
        "get_api_key",
        "get_steering_messages",
        "get_follow_up_messages",
        "prepare_next_turn",
        "should_stop_after_turn",
    ],
)
def test_a_coroutine_function_as_a_hook_fails_the_run_by_name_and_is_closed(hook: str):
    # The coroutine would warn that it was never awaited, and warnings are errors here.
    played = play("Hello", **{hook: coroutine_hook})
    assert isinstance(played.failure, TypeError)
    assert hook in str(played.failure)
    assert "coroutine" in str(played.failure) or "plain function" in str(played.failure)
    assert played.reason == "error"


def test_a_coroutine_function_as_the_recovery_fails_the_run_by_name():
    played = play(failure("busy"), recover_from_error=coroutine_hook)
    assert isinstance(played.failure, TypeError)
    assert "recover_from_error" in str(played.failure)
    assert played.lines[-2:] == ["turn_end", "agent_end error"]


def test_without_a_stream_function_the_adapter_of_the_models_api_is_asked():
    events: list[Any] = []
    config = AgentLoopConfig(model=Model("m", provider="nowhere"))
    messages = run_agent_loop("hi", AgentContext(), config, events.append)
    assert messages[-1].stop_reason == "error"
    assert "base_url" in messages[-1].error_message
    assert events[-1].reason == "error"


# --- what comes back ------------------------------------------------------------------------------------------------


def test_a_list_of_events_is_as_good_as_a_generator():
    played = answer(stream_fn=lambda model, context, options: [StartEvent(HELLO), DoneEvent(HELLO)])
    assert played.all_lines[4:6] == ["start assistant", "end assistant stop: Hello"]


def test_events_carry_the_message_as_it_stood():
    played = answer(reply("abc", chunk=1))
    updates = [event for event in played.events if isinstance(event, MessageUpdateEvent)]
    assert [event.message.text for event in updates] == ["", "a", "ab", "abc", "abc"]
    assert all(event.message is event.assistant_message_event.partial for event in updates)
    (start,) = [event for event in played.of(MessageStartEvent) if event.message.role == "assistant"]
    assert isinstance(start.message, PartialMessage)
    assert start.message.text == ""
    assert start.message.stop_reason is None


def test_a_plain_message_will_do_as_partial():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield StartEvent(AssistantMessage(""))
        yield TextDeltaEvent(0, "Hel", AssistantMessage("Hel"))
        yield DoneEvent(HELLO)

    played = answer(stream_fn=stream_fn)
    assert [event.message.text for event in played.of(MessageUpdateEvent)] == ["Hel"]


@pytest.mark.parametrize("last", [DoneEvent(HELLO), ErrorEvent(AssistantMessage("x", stop_reason="error"))])
def test_a_final_event_without_a_start_still_gives_a_start(last: Any):
    played = answer(stream_fn=lambda *args: [last])
    assert played.all_lines[4].startswith("start assistant")
    assert played.all_lines[5].startswith("end assistant")
    assert played.of(MessageStartEvent)[-1].message is played.messages[-1]


def test_deltas_before_the_start_are_ignored():
    partial = journal_of("early").partial()

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield TextDeltaEvent(0, "early", partial)
        yield ToolCallDeltaEvent(1, "{", partial)
        yield StartEvent(partial)
        yield TextDeltaEvent(0, "x", partial)
        yield DoneEvent(HELLO)

    played = answer(stream_fn=stream_fn)
    assert played.all_lines[4:7] == ["start assistant", "text_delta 'x'", "end assistant stop: Hello"]


def test_a_second_start_is_ignored():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield StartEvent(HELLO)
        yield StartEvent(HELLO)
        yield DoneEvent(HELLO)

    played = answer(stream_fn=stream_fn)
    assert played.all_lines.count("start assistant") == 1


def test_a_retry_is_passed_on_unchanged_before_the_start_and_after_it():
    before, after = RequestRetryEvent(1, 0.5, "503"), RequestRetryEvent(2, 1.0, "reset")

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield before
        yield StartEvent(HELLO)
        yield after
        yield DoneEvent(HELLO)

    played = answer(stream_fn=stream_fn)
    assert played.all_lines[4:8] == ["retry 1", "start assistant", "retry 2", "end assistant stop: Hello"]
    assert [event for event in played.events if isinstance(event, RequestRetryEvent)] == [before, after]


def test_a_retry_that_is_yielded_again_and_again_is_passed_on_each_time():
    again = RequestRetryEvent(1, 0.5, "busy")

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield from [again] * 3
        yield DoneEvent(HELLO)

    played = answer(stream_fn=stream_fn)
    assert played.of(RequestRetryEvent) == [again] * 3


def test_nothing_is_read_after_the_final_event_and_the_iterator_is_closed():
    read: list[str] = []

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        try:
            yield StartEvent(HELLO)
            yield DoneEvent(HELLO)
            read.append("after the end")
        finally:
            read.append("closed")

    answer(stream_fn=stream_fn)
    assert read == ["closed"]


def test_the_iterator_is_closed_before_the_end_of_the_message_is_told():
    seen: list[bool] = []
    model = scripted("Hello")

    def emit(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            seen.append(model.closed == 1)

    answer(stream_fn=model, emit=emit)
    assert seen == [True]


def test_an_iterator_whose_closing_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture):
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        try:
            yield DoneEvent(HELLO)
        finally:
            raise OSError("secret socket")

    with caplog.at_level(logging.INFO):
        played = answer(stream_fn=stream_fn)
    assert played.reason == "completed"
    assert [record.getMessage() for record in caplog.records] == ["closing a stream function failed: OSError"]


# --- stream functions that misbehave --------------------------------------------------------------------------------


def raises_at_once(model: Any, context: Any, options: Any) -> Iterator[Any]:
    raise OSError("no route to host")


def raises_in_the_middle(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield from half_a_message()
    raise OSError("reset by peer")


def ends_early(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield from half_a_message()


def yields_junk(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield from half_a_message()
    yield {"type": "text_delta", "delta": "x"}


def yields_nothing(model: Any, context: Any, options: Any) -> Iterator[Any]:
    return iter(())


def returns_none(model: Any, context: Any, options: Any) -> Any:
    return None


async def is_a_coroutine(model: Any, context: Any, options: Any) -> Any:
    return None


def finishes_with_junk(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield from half_a_message()
    yield DoneEvent({"role": "assistant"})  # type: ignore[arg-type]


def carries_no_partial(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield StartEvent(None)  # type: ignore[arg-type]


def carries_a_dict_as_partial(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield from half_a_message()
    yield TextDeltaEvent(0, "x", {"content": ["x"]})  # type: ignore[arg-type]


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there are no words")

    __repr__ = __str__


def raises_what_cannot_be_shown(model: Any, context: Any, options: Any) -> Iterator[Any]:
    raise WordlessError


def raises_in_the_middle_what_cannot_be_shown(model: Any, context: Any, options: Any) -> Iterator[Any]:
    yield from half_a_message()
    raise WordlessError


def takes_other_arguments() -> Iterator[Any]:
    yield DoneEvent(HELLO)


MISBEHAVIOUR: dict[Callable[..., Any], tuple[str, str]] = {
    raises_at_once: ("", "the stream function raised OSError: no route to host"),
    raises_in_the_middle: ("So far", "the stream function raised OSError: reset by peer"),
    ends_early: ("So far", "the stream function ended without a done or an error event"),
    yields_junk: ("So far", "the stream function yielded dict, which is no stream event"),
    yields_nothing: ("", "the stream function ended without a done or an error event"),
    returns_none: ("", "the stream function raised TypeError: 'NoneType' object is not iterable"),
    is_a_coroutine: ("", "the stream function is a coroutine function; it must return an iterator of events"),
    finishes_with_junk: ("So far", "the final event holds dict, not an `AssistantMessage`"),
    carries_no_partial: ("", "the `partial` of a StartEvent is NoneType, not a message"),
    carries_a_dict_as_partial: ("So far", "the `partial` of a TextDeltaEvent is dict, not a message"),
    raises_what_cannot_be_shown: ("", "the stream function raised WordlessError: <WordlessError>"),
    raises_in_the_middle_what_cannot_be_shown: ("So far", "the stream function raised WordlessError: <WordlessError>"),
    takes_other_arguments: ("", "the stream function raised TypeError"),
}


@pytest.mark.parametrize("stream_fn", MISBEHAVIOUR, ids=lambda stream_fn: stream_fn.__name__)
def test_a_stream_function_that_misbehaves_becomes_one_failed_message(stream_fn: Any):
    text, reason = MISBEHAVIOUR[stream_fn]
    played = answer(stream_fn=stream_fn)
    message = played.messages[-1]
    assert (message.stop_reason, message.text) == ("error", text)
    assert message.error.kind == "stream_function"
    assert reason in message.error.message
    assert played.lines[-4:] == [
        "start assistant",
        f"end assistant error: {text}".rstrip(": "),
        "turn_end",
        "agent_end error",
    ]
    assert [type(message) for message in played.messages] == [UserMessage, AssistantMessage]


def test_a_failed_message_without_a_beginning_names_the_model_that_was_asked():
    message = answer(stream_fn=raises_at_once).messages[-1]
    assert (message.api, message.provider, message.model) == ("scripted", "scripted", "scripted-1")


def test_a_failed_message_keeps_the_usage_that_had_arrived():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        journal = MessageJournal()
        journal.update(usage=Usage(10, 2), response_id="r1")
        yield StartEvent(journal.partial())
        raise OSError("reset")

    message = answer(stream_fn=stream_fn).messages[-1]
    assert (message.usage, message.response_id) == (Usage(10, 2), "r1")


def test_a_call_that_was_still_arriving_is_kept_as_it_was_and_not_answered():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        journal = MessageJournal(parse_arguments=lambda raw: {"path": "a"})
        yield StartEvent(journal.partial())
        journal.open(0, ToolCall("c1", "read", {}, partial_json=""))
        journal.append(0, '{"path": "a')
        yield ToolCallDeltaEvent(0, '{"path": "a', journal.partial())

    played = answer(stream_fn=stream_fn, tools=[tool("read")])
    assert played.messages[-1].tool_calls == (ToolCall("c1", "read", {"path": "a"}, partial_json='{"path": "a'),)
    assert played.results == []


def test_a_text_that_looks_like_success_never_counts_as_one():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield StartEvent(HELLO)
        yield TextDeltaEvent(0, "Hello", HELLO)

    message = answer(stream_fn=stream_fn).messages[-1]
    assert (message.stop_reason, message.text, message.error.kind) == ("error", "Hello", "stream_function")


def test_a_failure_can_be_recovered_from():
    played = answer(OSError("reset"), "Done.", recover_from_error=lambda context, signal: AgentLoopTurnUpdate())
    assert played.reason == "completed"


def test_an_error_event_whose_message_says_nothing_of_it_is_a_failure_all_the_same():
    message = answer(stream_fn=lambda *args: [ErrorEvent(HELLO)]).messages[-1]
    assert (message.stop_reason, message.text) == ("error", "Hello")
    assert message.error == ErrorInfo("stream_function", "the stream function ended with an error event")


def test_an_error_event_keeps_the_reason_that_its_message_gives():
    info = ErrorInfo("overloaded", "busy", status=529)
    cut = AssistantMessage("x", error=info)
    assert answer(stream_fn=lambda *args: [ErrorEvent(cut)]).messages[-1].error == info


def test_a_done_event_with_a_failed_message_is_a_failure():
    cut = AssistantMessage("x", stop_reason="error", error=ErrorInfo("protocol", "cut off"))
    played = answer(stream_fn=lambda *args: [DoneEvent(cut)])
    assert played.messages[-1] is cut
    assert played.reason == "error"


def test_system_exit_in_a_stream_function_stops_the_run_and_is_raised_again():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield from half_a_message()
        raise SystemExit(3)

    played = play(stream_fn=stream_fn)
    assert isinstance(played.failure, SystemExit)
    assert played.lines[-3:] == ["end assistant aborted: So far", "turn_end", "agent_end aborted"]


def test_an_abort_request_out_of_a_stream_function_is_the_abort():
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield from half_a_message()
        raise AbortRequested("that is enough")

    played = answer(stream_fn=stream_fn)
    assert played.lines[-3:] == ["end assistant aborted: So far", "turn_end", "agent_end aborted"]
    assert played.messages[-1].error == ErrorInfo("aborted", "that is enough")


def test_a_failure_during_an_abort_is_a_part_of_the_abort():
    controller = AbortController()

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield from half_a_message()
        controller.abort("enough")
        raise OSError("the connection was shut down")

    played = answer(stream_fn=stream_fn, signal=controller.signal)
    assert played.lines[-3:] == ["end assistant aborted: So far", "turn_end", "agent_end aborted"]
    assert played.messages[-1].error == ErrorInfo("aborted", "enough")


def test_an_error_event_during_an_abort_is_a_part_of_the_abort():
    controller = AbortController()

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield from half_a_message()
        controller.abort("enough")
        yield ErrorEvent(AssistantMessage("So far", stop_reason="error", error=ErrorInfo("connection", "shut down")))

    played = answer(stream_fn=stream_fn, signal=controller.signal)
    assert played.lines[-3:] == ["end assistant aborted: So far", "turn_end", "agent_end aborted"]
    assert played.messages[-1].error == ErrorInfo("aborted", "enough")


def test_a_message_that_is_done_stays_as_it_is_though_an_abort_came_meanwhile():
    controller = AbortController()

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield StartEvent(HELLO)
        controller.abort()
        yield DoneEvent(HELLO)

    def last_moment(model: Any, context: Any, options: Any) -> Iterator[Any]:
        controller.abort()
        yield DoneEvent(HELLO)

    played = answer(stream_fn=last_moment, signal=controller.signal)
    assert played.messages[-1] is HELLO
    assert played.reason == "completed"


# --- what is logged -------------------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_run_that_ends_in_an_error_logs_one_warning_that_says_what(caplog: pytest.LogCaptureFixture):
    answer(failure("busy", kind="overloaded"))
    assert warnings_of(caplog) == ["a run of scripted/scripted-1 ended in an error: overloaded: busy"]


def test_an_error_that_was_recovered_from_logs_no_warning(caplog: pytest.LogCaptureFixture):
    answer(failure("busy"), "Done.", recover_from_error=lambda context, signal: AgentLoopTurnUpdate())
    assert warnings_of(caplog) == []


def test_a_failed_message_that_does_not_say_why_is_logged_too(caplog: pytest.LogCaptureFixture):
    answer(stream_fn=lambda *args: [DoneEvent(AssistantMessage("x", stop_reason="error", provider="p", model="m"))])
    assert warnings_of(caplog) == ["a run of p/m ended in an error: unknown: no reason was given"]


def test_a_run_that_a_hook_ends_logs_one_warning_without_what_the_hook_said(caplog: pytest.LogCaptureFixture):
    def fails(context: Any, signal: Any) -> Any:
        raise LookupError("secret")

    played = play("Hello", prepare_next_turn=fails)
    assert isinstance(played.failure, LookupError)
    assert warnings_of(caplog) == ["a run of scripted/scripted-1 ended in an error: LookupError"]
    assert "secret" not in caplog.text


def test_what_a_stream_function_raised_is_shown_with_its_traceback_at_debug_only(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        answer(stream_fn=raises_at_once)
    assert "Traceback" not in caplog.text
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        answer(stream_fn=raises_at_once)
    assert "Traceback" in caplog.text


def test_aborts_and_ends_as_planned_log_nothing(caplog: pytest.LogCaptureFixture):
    controller = AbortController()
    controller.abort()
    answer("Hello")
    answer("never", signal=controller.signal)
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


def test_the_responses_of_a_played_run_are_asked_for_once_each():
    played: Played = answer(reply(call("f")), "Done.", tools=[tool("f")])
    assert len(played.model.requests) == played.model.closed == 2


@pytest.mark.parametrize("wrong", [{"usage": {"input": 1}}, {"error": "boom"}])
def test_a_message_made_with_junk_fails_where_it_is_made(wrong: dict[str, Any]):
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        yield from half_a_message()
        yield DoneEvent(AssistantMessage("x", **wrong))

    message = answer(stream_fn=stream_fn).messages[-1]
    assert (message.stop_reason, message.text) == ("error", "So far")
    assert "TypeError" in message.error.message
