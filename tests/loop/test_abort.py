"""An abort, from wherever it comes: what had begun is closed, what had not begins no more, and the run ends in time."""

import logging
import signal as os_signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.abort import AbortController, AbortSignal
from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate
from agentcore.events import DoneEvent, StartEvent
from agentcore.loop import run_agent_loop
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from agentcore.tools import AgentToolResult
from tests.loop.loop_support import Played, answer, play, tool
from tests.loop.run_log import problems_of

PATIENCE = 20.0

LAST_TURN = ["turn_start", "start assistant", "end assistant aborted", "turn_end", "agent_end aborted"]
"""How a run ends that was aborted when it still wanted a reply."""


def refuse(*args: Any) -> Any:
    raise AssertionError("this is not asked after an abort")


NOT_ASKED: dict[str, Any] = dict.fromkeys(
    (
        "get_follow_up_messages",
        "prepare_next_turn",
        "should_stop_after_turn",
        "recover_from_error",
    ),
    refuse,
)


def checked(played: Played) -> Played:
    """Return a run that ended by itself and left all in order."""
    assert played.failure is None
    assert problems_of(played.events, played.messages) == []
    return played


def in_thread(fn: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=fn, name="test", daemon=True)
    thread.start()
    return thread


def finish(thread: threading.Thread) -> None:
    thread.join(PATIENCE)
    assert not thread.is_alive()


def aborting(controller: AbortController, reason: object = "enough") -> Callable[..., str]:
    def execute(*args: Any) -> str:
        controller.abort(reason)
        return "ran"

    return execute


def waiting_for_the_signal(call_id: str, params: Any, signal: AbortSignal, on_update: Any, context: Any) -> str:
    signal.wait(PATIENCE)
    return f"stopped: {signal.reason}"


@pytest.fixture
def handler() -> Iterator[Callable[[Callable[[], object], float], None]]:
    """Have a function called by a signal handler on the main thread after so many seconds."""
    actions: list[Callable[[], object]] = []

    def handle(number: int, frame: object) -> None:
        actions.pop()()

    def call_after(fn: Callable[[], object], seconds: float) -> None:
        actions.append(fn)
        os_signal.setitimer(os_signal.ITIMER_REAL, seconds)

    before = os_signal.signal(os_signal.SIGALRM, handle)
    try:
        yield call_after
    finally:
        os_signal.setitimer(os_signal.ITIMER_REAL, 0)
        os_signal.signal(os_signal.SIGALRM, before)


# --- before and during a response -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given_as", ["signal", "config"])
def test_before_the_start_nothing_is_asked_and_the_message_is_empty(given_as: str) -> None:
    controller = AbortController()
    controller.abort("changed my mind")
    hooks = {"get_steering_messages": refuse, "transform_context": refuse, "get_api_key": refuse, **NOT_ASKED}
    model = scripted(reply("Hello"))
    played = Played([], model)
    config = AgentLoopConfig(
        model=scripted_model(), signal=controller.signal if given_as == "config" else None, **hooks
    )
    signal = controller.signal if given_as == "signal" else None
    played.messages = run_agent_loop("hi", AgentContext(), config, played.events.append, signal, model)

    checked(played)
    assert played.lines == [
        "agent_start",
        "turn_start",
        "start user: hi",
        "end user: hi",
        "start assistant",
        "end assistant aborted",
        "turn_end",
        "agent_end aborted",
    ]
    assert played.model.requests == []
    message = played.messages[-1]
    assert (message.content, message.error.kind, message.error.message) == ((), "aborted", "changed my mind")
    assert (message.model, message.provider) == ("scripted-1", "scripted")


class Unspeakable:
    """A reason that can be neither shown nor compared."""

    def __str__(self) -> str:
        raise RuntimeError("there are no words")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("there is no comparison")

    __hash__ = object.__hash__


@pytest.mark.parametrize("where", ["a response", "a tool in sequence", "a tool on a worker", "a stuck tool", "a hook"])
def test_a_reason_that_cannot_be_shown_ends_a_run_as_any_other(where: str) -> None:
    controller = AbortController()

    def abort(*args: Any) -> None:
        controller.abort(Unspeakable())
        controller.signal.raise_if_aborted()

    def stuck(*args: Any) -> None:
        controller.abort(Unspeakable())
        gate.wait()

    gate = Gate()
    in_a_tool = where not in ("a response", "a hook")
    played = play(
        reply("Hello", call("stop", id="a"), call("stop", id="b"), chunk=2),
        tools=[tool("stop", stuck if where == "a stuck tool" else abort)],
        emit=lambda event: abort() if where == "a response" and event.type == "message_update" else None,
        before_tool_call=abort if where == "a hook" else None,
        tool_execution="parallel" if "sequence" not in where else "sequential",
        signal=controller.signal,
        abort_grace=0.01,
    )
    gate.open()

    checked(played)
    assert played.reason == "aborted"
    assert (played.messages[-1].error.kind, played.messages[-1].error.message) == ("aborted", "<Unspeakable>")
    assert [result.is_error for result in played.results] == ([True, True] if where != "a response" else [])
    if in_a_tool:
        assert "<Unspeakable>" in played.results[1].content[0].text


def test_an_abort_between_the_hooks_of_a_request_sends_none() -> None:
    controller = AbortController()

    def transform_context(messages: Any, signal: Any) -> Any:
        controller.abort("enough")
        return messages

    played = checked(
        play(reply("Hello"), signal=controller.signal, transform_context=transform_context, convert_to_llm=refuse)
    )
    assert played.lines[-5:] == ["end user: hi", "start assistant", "end assistant aborted", *LAST_TURN[-2:]]
    assert played.model.requests == []


def test_during_a_response_what_has_arrived_is_kept() -> None:
    controller = AbortController()
    with Gate() as gate:
        thread = in_thread(lambda: (gate.wait_reached(), controller.abort("enough")))
        played = checked(play(reply("Hel", gate, "lo", call("a")), signal=controller.signal, **NOT_ASKED))
        finish(thread)

    assert played.lines[-4:] == ["start assistant", "end assistant aborted: Hel", "turn_end", "agent_end aborted"]
    message = played.messages[-1]
    assert (message.text, message.error.kind, message.error.message) == ("Hel", "aborted", "enough")
    assert played.model.closed == 1


@pytest.mark.parametrize("waits_in", ["the stream function", "its first event"])
def test_before_the_first_event_of_a_response_an_empty_message_is_left(waits_in: str) -> None:
    controller = AbortController()
    begun = Gate()

    def events(signal: AbortSignal) -> Iterator[Any]:
        begun.open()
        signal.wait(PATIENCE)
        yield StartEvent(AssistantMessage("too late"))
        yield DoneEvent(AssistantMessage("too late"))

    def stream_fn(model: Any, context: Any, options: Any) -> Any:
        if waits_in == "the stream function":
            begun.open()
            options.signal.wait(PATIENCE)
            options.signal.raise_if_aborted()
        return events(options.signal)

    thread = in_thread(lambda: (begun.wait(), controller.abort("enough")))
    played = checked(play(stream_fn=stream_fn, signal=controller.signal))
    finish(thread)
    assert played.lines[-4:-2] == [
        "start assistant",
        "end assistant aborted" + ("" if "stream" in waits_in else ": too late"),
    ]


def test_an_abort_after_the_last_event_leaves_the_message_as_it_is() -> None:
    controller = AbortController()

    def stream_fn(*args: Any) -> Iterator[Any]:
        try:
            yield DoneEvent(AssistantMessage("Hello"))
        finally:
            controller.abort("enough")

    played = checked(play(stream_fn=stream_fn, signal=controller.signal))
    assert played.messages[-1] == AssistantMessage("Hello", timestamp=played.messages[-1].timestamp)
    assert played.reason == "completed"


def test_an_abort_request_while_the_stream_function_is_closed_leaves_the_message_as_it_is() -> None:
    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        try:
            yield DoneEvent(AssistantMessage([call("a", id="a")], stop_reason="tool_use"))
        finally:
            controller.abort("enough")
            options.signal.raise_if_aborted()

    controller = AbortController()
    played = checked(play(stream_fn=stream_fn, signal=controller.signal, tools=[tool("a", refuse)]))
    assert played.lines[-11:] == [
        "end assistant tool_use: <a:a>",
        "call a a {}",
        "done a: error",
        "start result a error",
        "end result a error",
        "turn_end a",
        *LAST_TURN,
    ]


# --- between and after turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["message_end", "turn_end"])
def test_a_run_with_nothing_left_to_do_is_completed(event: str) -> None:
    controller = AbortController()

    def emit(one: Any) -> None:
        if one.type == event and getattr(one.message, "role", "") == "assistant":
            controller.abort("enough")

    played = checked(play(reply("Hello"), emit=emit, signal=controller.signal, **NOT_ASKED))
    assert played.reason == "completed"
    assert played.messages[-1].text == "Hello"


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_an_abort_at_any_event_leaves_all_in_order_and_asks_nobody_any_more(mode: str) -> None:
    def run(at: int) -> tuple[Played, list[str]]:
        controller = AbortController()
        count = 0
        asked: list[str] = []

        def emit(event: Any) -> None:
            nonlocal count
            if count == at:
                controller.abort("enough")
                asked.clear()
            count += 1

        def hook(name: str, result: Any) -> Callable[..., Any]:
            return lambda *args: (asked.append(name), result)[1]

        played = play(
            reply("On it.", call("quick"), call("quick")),
            reply("Done."),
            tools=[tool("quick")],
            tool_execution=mode,
            emit=emit,
            signal=controller.signal,
            before_tool_call=hook("before_tool_call", None),
            prepare_next_turn=hook("prepare_next_turn", None),
            should_stop_after_turn=hook("should_stop_after_turn", False),
            get_steering_messages=hook("get_steering_messages", []),
            get_follow_up_messages=hook("get_follow_up_messages", []),
            transform_context=lambda messages, signal: (asked.append("transform_context"), messages)[1],
        )
        return played, asked

    number = len(run(-1)[0].events)
    assert number > 20
    for at in range(number):
        played, asked = run(at)
        checked(played)
        assert asked == []
        assert (played.reason == "completed") == (played.messages[-1].stop_reason == "stop")
        assert played.messages[-1].stop_reason in ("stop", "aborted")
        assert len(played.model.requests) <= 2


def test_an_abort_while_a_queue_is_asked_takes_what_it_gave_and_ends() -> None:
    controller = AbortController()

    def get_steering_messages() -> list[UserMessage]:
        controller.abort("enough")
        return [UserMessage("steered")]

    played = checked(play(reply("Hello"), signal=controller.signal, get_steering_messages=get_steering_messages))
    assert [message.role for message in played.messages] == ["user", "user", "assistant"]
    assert played.reason == "aborted"
    assert played.model.requests == []


def test_an_abort_in_the_hook_before_the_next_turn_asks_no_other() -> None:
    controller = AbortController()

    def prepare_next_turn(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        controller.abort("enough")
        return AgentLoopTurnUpdate()

    for first, end in (([call("a")], "aborted"), (["Hello"], "completed")):
        controller = AbortController()
        played = checked(
            play(
                reply(*first),
                tools=[tool("a")],
                signal=controller.signal,
                prepare_next_turn=prepare_next_turn,
                should_stop_after_turn=refuse,
            )
        )
        assert played.reason == end


# --- during a batch -------------------------------------------------------------------------------------------------


def test_calls_that_had_not_begun_are_answered_and_not_asked_about() -> None:
    controller = AbortController()
    asked: list[str] = []
    played = checked(
        play(
            reply(call("stop", id="a"), call("stop", id="b"), call("stop", id="c")),
            tools=[tool("stop", aborting(controller))],
            tool_execution="sequential",
            signal=controller.signal,
            before_tool_call=lambda context, signal: asked.append(context.tool_call.id),
            **NOT_ASKED,
        )
    )
    assert asked == ["a"]
    aborted = ["call {} stop {{}}", "done {}: error", "start result {} error", "end result {} error"]
    assert played.lines[-18:] == [
        "call a stop {}",
        "done a: ran",
        "start result a: ran",
        "end result a: ran",
        *[line.format(number) for number in "bc" for line in aborted],
        "turn_end a b c",
        *LAST_TURN,
    ]
    assert [result.content[0].text for result in played.results[1:]] == ["The call of `stop` was aborted: enough."] * 2
    assert len(played.model.requests) == 1


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_running_tools_see_their_signal_and_are_finished_as_usual(mode: str) -> None:
    controller = AbortController()
    begun = Gate()

    def execute(call_id: str, params: Any, signal: AbortSignal, on_update: Any, context: Any) -> str:
        begun.open()
        return waiting_for_the_signal(call_id, params, signal, on_update, context)

    thread = in_thread(lambda: (begun.wait(), controller.abort("enough")))
    seen: list[str] = []
    played = checked(
        play(
            reply(call("wait", id="a")),
            tools=[tool("wait", execute)],
            tool_execution=mode,
            signal=controller.signal,
            after_tool_call=lambda context, signal: seen.append(context.result.content[0].text),
            **NOT_ASKED,
        )
    )
    finish(thread)
    assert seen == ["stopped: enough"]
    assert played.lines[-9:-5] == [
        "done a: stopped: enough",
        "start result a: stopped: enough",
        "end result a: stopped: enough",
        "turn_end a",
    ]
    assert played.lines[-5:] == LAST_TURN


def test_a_tool_that_does_not_stop_is_given_up_and_what_it_says_later_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = AbortController()
    update: list[Callable[[str], None]] = []
    with Gate() as gate, Gate() as left:

        def stuck(call_id: str, params: Any, signal: Any, on_update: Callable[[str], None], context: Any) -> str:
            update.append(on_update)
            gate.hold()
            on_update("late news")
            left.open()
            return "too late"

        def quick(*args: Any) -> str:
            gate.wait_reached()
            return "ran"

        def emit(event: Any) -> None:
            if event.type == "tool_execution_end" and event.tool_call_id == "b":
                controller.abort("enough")

        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "agentcore"):
            played = checked(
                play(
                    reply(call("stuck", id="a"), call("quick", id="b")),
                    tools=[tool("stuck", stuck), tool("quick", quick)],
                    emit=emit,
                    signal=controller.signal,
                    abort_grace=0.2,
                    after_tool_call=lambda context, signal: refuse() if context.tool_call.id == "a" else None,
                )
            )
        assert 0.2 <= time.monotonic() - began < 0.2 + 0.5 + 1.0
        events = len(played.events)
        gate.open()
        assert left.wait(PATIENCE)
    assert len(played.events) == events
    update[0]("later still")

    assert played.lines[-10:] == [
        "start result a error",
        "end result a error",
        "start result b: ran",
        "end result b: ran",
        "turn_end a b",
        *LAST_TURN,
    ]
    assert "was aborted (enough); it did not stop when asked to and was given up" in played.results[0].content[0].text
    assert [record.name for record in caplog.records] == ["agentcore.tools"]
    assert "call a (`stuck`) did not stop when asked to and was given up" in caplog.text


def test_without_any_grace_a_running_tool_is_given_up_at_once() -> None:
    controller = AbortController()
    with Gate() as gate:
        thread = in_thread(lambda: (gate.wait_reached(), controller.abort()))
        played = checked(
            play(
                reply(call("stuck", id="a")),
                tools=[tool("stuck", lambda *args: str(gate.hold()))],
                signal=controller.signal,
                abort_grace=0,
            )
        )
        finish(thread)
    assert "was given up" in played.results[0].content[0].text


def test_many_stuck_tools_share_one_grace() -> None:
    controller = AbortController()
    begun = threading.Barrier(4, controller.abort)
    with Gate() as gate:
        began = time.monotonic()
        played = checked(
            play(
                reply(*[call("stuck") for _ in range(12)]),
                tools=[tool("stuck", lambda *args: f"{begun.wait(PATIENCE)} {gate.hold()}")],
                signal=controller.signal,
                abort_grace=0.2,
                max_parallel_tools=4,
            )
        )
    assert time.monotonic() - began < 0.2 + 0.5 + 1.0
    texts = [result.content[0].text for result in played.results]
    assert [("given up" in text) for text in texts] == [True] * 4 + [False] * 8


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("reason", [None, "enough", TimeoutError("late")])
def test_a_tool_can_abort_its_own_run(mode: str, reason: object) -> None:
    controller = AbortController()
    played = checked(
        play(
            reply(call("stop", id="a")),
            tools=[tool("stop", aborting(controller, reason))],
            tool_execution=mode,
            signal=controller.signal,
        )
    )
    assert played.results[0].content[0].text == "ran"
    assert played.lines[-5:] == LAST_TURN
    assert played.messages[-1].error.message == str("aborted" if reason is None else reason)


def test_a_batch_that_ends_the_run_is_not_followed_by_a_last_turn() -> None:
    controller = AbortController()

    def execute(*args: Any) -> AgentToolResult:
        controller.abort("enough")
        return AgentToolResult("that was all", terminate=True)

    played = checked(play(reply(call("last")), tools=[tool("last", execute)], signal=controller.signal))
    assert played.reason == "terminated"
    assert played.messages[-1].role == "toolResult"


# --- where an abort may come from -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_from_a_signal_handler_during_a_tool(handler: Any, mode: str) -> None:
    controller = AbortController()
    handler(lambda: controller.abort("signal"), 0.05)
    played = checked(
        play(
            reply(call("wait", id="a")),
            tools=[tool("wait", waiting_for_the_signal)],
            tool_execution=mode,
            signal=controller.signal,
        )
    )
    assert played.results[0].content[0].text == "stopped: signal"
    assert played.lines[-5:] == LAST_TURN


def test_from_a_signal_handler_during_a_stalled_stream(handler: Any) -> None:
    controller = AbortController()
    handler(lambda: controller.abort("signal"), 0.05)
    with Gate() as gate:
        played = checked(play(reply("Hel", gate, "lo"), signal=controller.signal))
    assert played.lines[-3] == "end assistant aborted: Hel"


def test_from_signal_handlers_at_many_moments(handler: Any) -> None:
    for number in range(60):
        controller = AbortController()
        handler(controller.abort, 1e-5 + number * 1e-4)
        played = checked(
            play(
                reply("On it.", call("quick"), call("quick"), chunk=1),
                reply("Done.", chunk=1),
                tools=[tool("quick")],
                tool_execution=("parallel", "sequential")[number % 2],
                signal=controller.signal,
            )
        )
        assert played.reason in ("completed", "aborted")
        if played.reason == "completed":
            os_signal.setitimer(os_signal.ITIMER_REAL, 0)


def test_the_first_of_two_signals_counts() -> None:
    first, second = AbortController(), AbortController()
    second.abort("second")
    first.abort("first")
    assert answer(reply("Hello"), signal=first.signal).messages[-1].error.message == "first"


def test_an_aborted_run_does_not_abort_the_signal_it_was_given() -> None:
    controller = AbortController()

    def prepare_next_turn(context: Any, signal: AbortSignal) -> None:
        raise LookupError("no such thing")

    played = play(reply("Hello"), signal=controller.signal, prepare_next_turn=prepare_next_turn)
    assert isinstance(played.failure, LookupError)
    assert not controller.signal.aborted


def test_a_run_can_begin_after_one_that_was_aborted() -> None:
    controller = AbortController()
    controller.abort()
    aborted = answer(reply("Hello"), signal=controller.signal)
    again = answer(reply("Hello"), history=aborted.messages, prompts="again")
    assert again.reason == "completed"
    assert [message.role for message in again.model.requests[0].messages] == ["user", "assistant", "user"]


# --- the end of the process -----------------------------------------------------------------------------------------

SCRIPT = """
import sys, threading
from agentcore import AbortController, AgentContext, AgentLoopConfig, AgentTool, run_agent_loop
from agentcore.testing import call, reply, scripted, scripted_model

controller = AbortController()

def stuck(*args):
    if sys.argv[1] == "abort":
        controller.abort()
    threading.Event().wait()

timeout = 0.1 if sys.argv[1] == "timeout" else None
tool = AgentTool("stuck", "Stuck", "Never returns", {"type": "object"}, stuck, timeout=timeout)
config = AgentLoopConfig(model=scripted_model(), abort_grace=0.1)
model = scripted(reply(call("stuck"), call("stuck")), reply("Done."))
messages = run_agent_loop("hi", AgentContext(tools=[tool]), config, lambda event: None, controller.signal, model)
print(messages[-1].stop_reason, flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize(("why", "end"), [("abort", "aborted"), ("timeout", "stop")])
def test_a_worker_that_was_given_up_does_not_keep_the_interpreter_from_exiting(why: str, end: str) -> None:
    command = [sys.executable, "-c", SCRIPT, why]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{end}\n"
        began = time.monotonic()
        _, errors = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 2
    assert process.returncode == 7
    assert all("did not stop when asked to and was given up" in line for line in errors.splitlines())
