"""Whatever a hook, a listener, a tool or the model raises, at whatever point: the run is closed, and the caller learns it.

A run that uses everything is taken once to count the points at which it calls its user's code; then one thing after
another is raised at each of these points.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate
from agentcore.errors import AbortRequested
from agentcore.events import AgentEndEvent
from agentcore.loop import agent_loop, drive, new_run
from agentcore.messages import AssistantMessage, ToolResultMessage, UserMessage
from agentcore.testing import call, failure, reply, scripted, scripted_model
from agentcore.tools import AgentTool
from tests.loop.run_log import problems_of

PATIENCE = 20.0

CALL_HOOKS = {"prepare_arguments", "before_tool_call", "after_tool_call"}
RUN_HOOKS = {
    "transform_context",
    "convert_to_llm",
    "get_api_key",
    "get_steering_messages",
    "get_follow_up_messages",
    "prepare_next_turn",
    "should_stop_after_turn",
    "recover_from_error",
}
MAY_FOLLOW = {"emit", "after_tool_call", "tool"}
"""What may still be called once a run is stopping: its listeners, and what finishes the calls that had begun."""


class Traps:
    """Every point at which a run calls its user's code, and what is to be raised at one of them."""

    def __init__(self, at: int = -1, failure: BaseException | None = None) -> None:
        self.at = at
        self.failure = failure
        self.reached: list[str] = []

    def reach(self, what: str) -> None:
        number = len(self.reached)
        self.reached.append(what)
        if number == self.at and self.failure is not None:
            raise self.failure

    def on(self, what: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*args: Any) -> Any:
            self.reach(what)
            return fn(*args)

        return trapped

    @property
    def where(self) -> str:
        return self.reached[self.at]

    @property
    def later(self) -> set[str]:
        return set(self.reached[self.at + 1 :])


def at_the_second_call(text: str) -> Callable[[], list[UserMessage]]:
    calls: list[None] = []

    def hook() -> list[UserMessage]:
        calls.append(None)
        return [UserMessage(text)] if len(calls) == 2 else []

    return hook


def everything(traps: Traps, mode: str) -> tuple[Any, AgentLoopConfig, AgentContext]:
    """Return a stream function, a configuration and a context whose run comes to every kind of point."""

    def tool(tool_call_id: str, params: Any, signal: Any, on_update: Callable[[Any], None], context: Any) -> str:
        on_update("half way")
        traps.reach("tool")
        return "ran"

    model = scripted(
        failure("busy", "So f"), reply("On it.", call("a"), call("b")), reply("Done."), reply("More."), repeat=True
    )

    def stream_fn(*args: Any) -> Iterator[Any]:
        traps.reach("stream")
        for event in model(*args):
            yield event
            traps.reach("stream")

    def named(name: str) -> AgentTool:
        prepare = traps.on("prepare_arguments", lambda arguments: arguments)
        # One at a time, so that the points come in the same order in either mode.
        return AgentTool(name, name, "A tool", {"type": "object"}, tool, prepare, exclusive="one")

    config = AgentLoopConfig(
        model=scripted_model(),
        tool_execution=mode,
        transform_context=traps.on("transform_context", lambda messages, signal: messages),
        convert_to_llm=traps.on("convert_to_llm", lambda messages: messages),
        get_api_key=traps.on("get_api_key", lambda provider: None),
        get_steering_messages=traps.on("get_steering_messages", at_the_second_call("steered")),
        get_follow_up_messages=traps.on("get_follow_up_messages", list),
        prepare_next_turn=traps.on("prepare_next_turn", lambda context, signal: None),
        should_stop_after_turn=traps.on("should_stop_after_turn", lambda context: False),
        recover_from_error=traps.on("recover_from_error", lambda context, signal: AgentLoopTurnUpdate()),
        before_tool_call=traps.on("before_tool_call", lambda context, signal: None),
        after_tool_call=traps.on("after_tool_call", lambda context, signal: None),
    )
    return stream_fn, config, AgentContext(tools=[named("a"), named("b")])


class Outcome:
    """A run with a trap, over."""

    def __init__(self, mode: str, at: int = -1, failure: BaseException | None = None) -> None:
        self.traps = Traps(at, failure)
        self.log: list[Any] = []
        self.added: list[Any] = []
        self.raised: BaseException | None = None
        stream_fn, config, context = everything(self.traps, mode)
        self.parent = AbortController()

        def emit(event: Any) -> None:
            self.log.append(event)
            self.traps.reach("emit")

        run = new_run(context, config, emit, self.parent.signal, stream_fn, self.added)
        try:
            drive(run, [UserMessage("hi")])
        except BaseException as error:
            self.raised = error

    @property
    def where(self) -> str:
        return self.traps.where

    @property
    def reason(self) -> str | None:
        return self.log[-1].reason if isinstance(self.log[-1], AgentEndEvent) else None

    @property
    def stopped(self) -> bool:
        """Whether the run was cut off before it would have been over."""
        return self.reason != "completed"


MODES = ["parallel", "sequential"]
POINTS = {mode: len(Outcome(mode).traps.reached) for mode in MODES}


def outcomes(mode: str, make: Callable[[], BaseException]) -> Iterator[Outcome]:
    """Raise something at one point after another."""
    logging.disable(logging.CRITICAL)
    try:
        for at in range(POINTS[mode]):
            outcome = Outcome(mode, at, make())
            # However it ended: nothing is registered with the caller's signal any more.
            assert not outcome.parent.signal._hooks.dependents
            assert not outcome.parent.signal._hooks.callbacks
            yield outcome
    finally:
        logging.disable(logging.NOTSET)


def follows_only_what_may(outcome: Outcome) -> bool:
    return outcome.traps.later <= MAY_FOLLOW


@pytest.mark.parametrize("mode", MODES)
def test_the_run_that_is_taken_apart_comes_to_every_kind_of_point(mode: str) -> None:
    outcome = Outcome(mode)
    assert set(outcome.traps.reached) == RUN_HOOKS | CALL_HOOKS | {"emit", "stream", "tool"}
    assert problems_of(outcome.log, outcome.added) == []
    assert outcome.reason == "completed"
    assert [message.role for message in outcome.added].count("toolResult") == 2


@pytest.mark.parametrize("mode", MODES)
def test_an_exception(mode: str) -> None:
    for outcome in outcomes(mode, lambda: ValueError("no such thing")):
        where, failure = outcome.where, outcome.traps.failure
        if where == "emit":
            assert outcome.raised is failure
            assert problems_of(outcome.log, outcome.added, emit_failed=True) == []
            assert outcome.traps.later <= MAY_FOLLOW - {"emit"}
            continue
        assert problems_of(outcome.log, outcome.added) == [], where
        if where in RUN_HOOKS:
            assert outcome.raised is failure, where
            assert outcome.reason == "error"
            assert follows_only_what_may(outcome)
            # Nothing was open, so no message is added.
            assert "aborted" not in [getattr(message, "stop_reason", "") for message in outcome.added]
        else:
            assert outcome.raised is None, where
            # Of a tool and the hooks of its call it is the answer to the call, of the model a failed response.
            results = [message for message in outcome.added if isinstance(message, ToolResultMessage)]
            assert [result.is_error for result in results].count(True) == (0 if where == "stream" else 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exception_that_is_no_error(mode: str, kind: type[BaseException]) -> None:
    for outcome in outcomes(mode, kind):
        where = outcome.where
        assert problems_of(outcome.log, outcome.added) == [], where
        if where == "tool" and (kind is SystemExit or mode == "parallel"):
            # On a worker an interrupt is nothing but an exception of the tool.
            assert outcome.raised is None
            assert outcome.reason == "completed"
            continue
        assert outcome.raised is outcome.traps.failure, where
        assert outcome.reason in ("aborted", "completed")
        assert follows_only_what_may(outcome)
        assert len(outcome.log) == len({id(event) for event in outcome.log})


@pytest.mark.parametrize("mode", MODES)
def test_a_request_to_abort(mode: str) -> None:
    for outcome in outcomes(mode, lambda: AbortRequested("enough")):
        where = outcome.where
        assert problems_of(outcome.log, outcome.added) == [], where
        assert outcome.raised is None
        assert AbortRequested not in [type(message) for message in outcome.added]
        if where == "tool":  # which may raise it for the abort of its own call
            assert outcome.reason == "completed"
        elif outcome.stopped:
            assert follows_only_what_may(outcome), where
            last = outcome.added[-1]
            # The response failed of itself, and nobody could ask for another.
            failed = outcome.reason == "error" and last.stop_reason == "error"
            assert failed or (last.stop_reason == "aborted" and last.error.message == "enough"), where
        else:
            # It came when there was nothing left to do, or when all was done.
            assert outcome.added[-1].stop_reason == "stop"
            assert follows_only_what_may(outcome)


@pytest.mark.parametrize("make", [lambda: ValueError("no such thing"), lambda: SystemExit(3), KeyboardInterrupt])
@pytest.mark.parametrize("mode", MODES)
def test_the_reader_of_a_stream_gets_what_a_hook_raised(mode: str, make: Callable[[], BaseException]) -> None:
    names = Outcome(mode).traps.reached
    for name in sorted(RUN_HOOKS):
        traps = Traps(names.index(name) - names[: names.index(name)].count("emit"), make())
        stream_fn, config, context = everything(traps, mode)
        stream = agent_loop("hi", context, config, stream_fn=stream_fn)
        events: list[Any] = []
        with pytest.raises(type(traps.failure)) as caught:  # type: ignore[arg-type]
            for event in stream:
                events.append(event)  # noqa: PERF402 - those before the failure are wanted
        assert caught.value is traps.failure
        assert traps.where == name
        assert problems_of(events, stream.messages) == []
        with pytest.raises(type(traps.failure)) as caught:  # type: ignore[arg-type]
            stream.result(PATIENCE)
        assert caught.value is traps.failure


def test_a_hundred_runs_leave_nothing_with_a_signal_that_outlives_them() -> None:
    parent, of_config = AbortController(), AbortController()
    tool = AgentTool("a", "A", "A tool", {"type": "object"}, lambda *args: "ran")
    kept = []
    for number in range(100):
        config = AgentLoopConfig(
            model=scripted_model(), signal=of_config.signal, tool_execution=MODES[number % 2], api_key="k"
        )
        model = scripted(reply(call("a"), call("a")), reply("Done."))
        run = new_run(AgentContext(tools=[tool]), config, kept.append, parent.signal, model)
        kept.append(run)
        drive(run, [UserMessage("hi")])
    for signal in (parent.signal, of_config.signal):
        assert (len(signal._hooks.dependents), len(signal._hooks.callbacks)) == (0, 0)


def test_an_interrupt_during_the_clean_up_of_a_failure_is_raised_after_the_clean_up() -> None:
    log: list[Any] = []
    added: list[Any] = []

    def emit(event: Any) -> None:
        log.append(event)
        if [one.type for one in log].count("turn_end") == 1 and event.type == "turn_end":
            raise KeyboardInterrupt

    def should_stop_after_turn(context: Any) -> bool:
        raise AssertionError("it is not asked")

    def before_tool_call(context: Any, signal: Any) -> None:
        raise AbortRequested("enough")

    tool = AgentTool("a", "A", "A tool", {"type": "object"}, lambda *args: "ran")
    config = AgentLoopConfig(
        model=scripted_model(), before_tool_call=before_tool_call, should_stop_after_turn=should_stop_after_turn
    )
    run = new_run(AgentContext(tools=[tool]), config, emit, None, scripted(reply(call("a"))), added)
    with pytest.raises(KeyboardInterrupt):
        drive(run, [UserMessage("hi")])

    assert problems_of(log, added) == []
    assert [type(message) for message in added[-2:]] == [ToolResultMessage, AssistantMessage]
    assert added[-1].stop_reason == "aborted"
