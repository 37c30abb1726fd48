"""Random batches: whatever calls, hooks and aborts do, every call is answered once, in order, and the run ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import event as note
from hypothesis import strategies as st

from agentcore.abort import AbortController
from agentcore.config import AfterToolCallResult, AgentContext, AgentLoopConfig, BeforeToolCallResult
from agentcore.content import ToolCall
from agentcore.errors import AbortRequested
from agentcore.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from agentcore.loop import drive, new_run
from agentcore.messages import AssistantMessage, ToolResultMessage, UserMessage
from agentcore.testing import Gate, reply, scripted, scripted_model
from agentcore.tools import AgentTool, AgentToolResult

STRICT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PATIENCE = 20.0

# --- what may happen ------------------------------------------------------------------------------------------------

TOOLS = (
    "ok",  # returns
    "unknown",  # is not there
    "invalid",  # gets arguments that do not fit
    "broken",  # gets arguments that are no object
    "mends badly",  # its `prepare_arguments` raises
    "raises",
    "exits",  # raises `SystemExit`
    "asks for the abort",  # raises `AbortRequested`
    "returns junk",
    "fails politely",  # returns an error result
    "terminates",
    "reports",  # reports progress, from a thread of its own too
    "hangs",  # until its signal is aborted: by its timeout, or by a run that it has aborted itself
    "sticks",  # until the test is over, and is given up
)
BEFORE = ("none", "allow", "block", "block and terminate", "replace", "replace badly", "pause", "raise", "junk",
          "coroutine", "abort", "ask for the abort")  # fmt: skip
AFTER = ("none", "keep", "patch", "terminate", "raise", "junk", "coroutine", "abort", "ask for the abort")


@attrs.frozen
class Call:
    """One call of the batch, and what happens to it."""

    id: str
    does: str
    before: str
    after: str
    exclusive: bool
    timeout: bool
    sequential: bool


@attrs.frozen
class Batch:
    """One batch, and what happens around it."""

    calls: list[Call]
    mode: str
    most: int
    cut_off: bool
    aborting_event: int | None
    failing_event: int | None


CALLS = st.builds(
    Call,
    id=st.sampled_from("abc"),
    does=st.sampled_from(TOOLS),
    before=st.one_of(st.just("none"), st.sampled_from(BEFORE)),
    after=st.one_of(st.just("none"), st.sampled_from(AFTER)),
    exclusive=st.booleans(),
    timeout=st.booleans(),
    sequential=st.sampled_from([False, False, False, False, True]),
)
BATCHES = st.builds(
    Batch,
    calls=st.lists(CALLS, min_size=1, max_size=6),
    mode=st.sampled_from(["parallel", "sequential"]),
    most=st.integers(1, 4),
    cut_off=st.sampled_from([False] * 9 + [True]),
    aborting_event=st.one_of(st.none(), st.none(), st.integers(0, 45)),
    failing_event=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 45)),
)


class Broken(Exception):
    """What the listener of these tests raises."""


async def _later() -> None:
    """Stand for a hook that somebody wrote with `async def` by mistake."""


class Trial:
    """Runs one batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.controller = AbortController()
        self.over = Gate()
        self.events: list[Any] = []
        self.messages: list[Any] = []
        self.failure: BaseException | None = None
        self.executed: list[str] = []
        self.holding: list[str] = []
        self.overlaps: list[str] = []

    def run(self) -> None:
        batch = self.batch
        calls = [self.tool_call(number, one) for number, one in enumerate(batch.calls)]
        tools = [self.tool(number, one) for number, one in enumerate(batch.calls) if one.does != "unknown"]
        stop_reason = "length" if batch.cut_off else "tool_use"
        config = AgentLoopConfig(
            model=scripted_model(),
            tool_execution=batch.mode,
            max_parallel_tools=batch.most,
            abort_grace=0.01,
            before_tool_call=self.before if any(one.before != "none" for one in batch.calls) else None,
            after_tool_call=self.after if any(one.after != "none" for one in batch.calls) else None,
        )
        model = scripted(reply(*calls, stop_reason=stop_reason), "Done.")
        run = new_run(AgentContext(tools=tools), config, self.emit, self.controller.signal, model, self.messages)
        try:
            drive(run, [UserMessage("hi")])
        except Broken as failure:
            self.failure = failure
        finally:
            self.over.open()

    def tool_call(self, number: int, one: Call) -> ToolCall:
        if one.does == "broken":
            return ToolCall(one.id, f"t{number}", {}, partial_json="[1]")
        return ToolCall(one.id, f"t{number}", {"n": "x" if one.does == "invalid" else number})

    def tool(self, number: int, one: Call) -> AgentTool:
        # Stuck calls can only be given up on a worker, so they have a timeout where they could be on the loop's thread.
        on_the_loop = self.batch.mode == "sequential" or any(other.sequential for other in self.batch.calls)
        timed = one.timeout or (one.does == "sticks" and on_the_loop)
        ends_by_itself = one.does not in ("hangs", "sticks")
        return AgentTool(
            f"t{number}",
            "T",
            "A tool.",
            STRICT,
            self.executing(one, timed),
            self.mends_badly if one.does == "mends badly" else None,
            "sequential" if one.sequential else None,
            exclusive="name" if one.exclusive else None,
            timeout=(PATIENCE if ends_by_itself else 0.005) if timed else None,
        )

    def mends_badly(self, arguments: Any) -> Any:
        raise ValueError("not mended")

    def executing(self, one: Call, timed: bool) -> Any:
        def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> Any:
            name = f"t{params['n']}" if params["n"] < 100 else f"t{params['n'] - 100}"
            self.executed.append(name)
            if one.exclusive:
                self.overlaps += self.holding
                self.holding.append(name)
            try:
                return self.do(one, timed, params, signal, on_update)
            finally:
                if one.exclusive:
                    self.holding.remove(name)

        return execute

    def do(self, one: Call, timed: bool, params: Any, signal: Any, on_update: Any) -> Any:
        match one.does:
            case "raises":
                raise ValueError("boom")
            case "exits":
                raise SystemExit(3)
            case "asks for the abort":
                raise AbortRequested("not now")
            case "returns junk":
                return 7
            case "fails politely":
                return AgentToolResult("no", is_error=True)
            case "terminates":
                return AgentToolResult("over", terminate=True)
            case "reports":
                thread = threading.Thread(target=on_update, args=("from elsewhere",))
                thread.start()
                on_update("from here")
                thread.join()
            case "hangs" | "sticks":
                if not timed:
                    threading.Thread(target=self.controller.abort).start()
                (signal.wait if one.does == "hangs" else self.over.wait)(PATIENCE)
        return f"ran {params['n']}"

    def call_of(self, context: Any) -> Call:
        return self.batch.calls[int(context.tool_call.name[1:])]

    def before(self, context: Any, signal: Any) -> Any:
        match self.call_of(context).before:
            case "allow":
                return BeforeToolCallResult()
            case "block":
                return BeforeToolCallResult(block=True)
            case "block and terminate":
                return BeforeToolCallResult(block=True, terminate=True)
            case "replace":
                return BeforeToolCallResult(args={"n": context.args["n"] + 100})
            case "replace badly":
                return BeforeToolCallResult(args={"n": "x"})
            case "pause":
                return BeforeToolCallResult(pause=True)
            case other:
                return self.misbehave(other)

    def after(self, context: Any, signal: Any) -> Any:
        match self.call_of(context).after:
            case "patch":
                return AfterToolCallResult(content="patched", is_error=False)
            case "terminate":
                return AfterToolCallResult(terminate=True)
            case other:
                return self.misbehave(other)

    def misbehave(self, how: str) -> Any:
        match how:
            case "raise":
                raise ValueError("the hook broke")
            case "junk":
                return True
            case "coroutine":
                return _later()
            case "abort":
                self.controller.abort("by a hook")
            case "ask for the abort":
                raise AbortRequested("by a hook")
        return None

    def emit(self, event: Any) -> None:
        self.events.append(event)
        at = len(self.events) - 1
        if at == self.batch.aborting_event:
            self.controller.abort("by a listener")
        if at == self.batch.failing_event:
            raise Broken


# --- what must hold -------------------------------------------------------------------------------------------------


def faults_of(trial: Trial) -> Iterator[str]:
    yield from _transcript_faults(trial)
    if trial.failure is None:
        yield from _call_faults(trial)
        yield from _nesting_faults(trial.events)
        yield from _reason_faults(trial)
    elif len(trial.events) - 1 != trial.batch.failing_event:
        yield "the listener was told something after it had failed"
    if trial.overlaps:
        yield f"two calls held one name at once: {trial.overlaps}"
    if len(trial.executed) != len(set(trial.executed)):
        yield f"a call was executed twice: {trial.executed}"


def _transcript_faults(trial: Trial) -> Iterator[str]:
    """The messages are a prompt, the calls, a result for each but the paused ones, in order, and a last word."""
    messages = trial.messages
    asked = next(
        (message for message in messages if isinstance(message, AssistantMessage) and message.tool_calls), None
    )
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    if asked is None or asked.stop_reason in ("error", "aborted"):
        if results:
            yield "results without calls"
        return
    position = messages.index(asked)
    if messages[position + 1 : position + 1 + len(results)] != results:
        yield "the results do not follow their calls"
    names = [result.tool_name for result in results]
    expected = [call.name for call in asked.tool_calls]
    if names != [name for name in expected if name in names]:
        yield f"results out of order, or twice: {names}"
    for result in results:
        call = next(call for call in asked.tool_calls if call.name == result.tool_name)
        if result.tool_call_id != call.id:
            yield "a result has the id of another call"
    missing = [name for name in expected if name not in names]
    paused = [f"t{number}" for number, one in enumerate(trial.batch.calls) if one.before == "pause"]
    last = trial.events[-1]
    # A listener may fail when the turn has ended, and with it the batch: what was paused then stays paused.
    may_pause = isinstance(last, TurnEndEvent) or (isinstance(last, AgentEndEvent) and last.reason == "paused")
    if missing and not (may_pause and set(missing) <= set(paused)):
        yield f"calls without a result: {missing}"


def _call_faults(trial: Trial) -> Iterator[str]:
    """One start and one end for each call, in order, the message after them; a start only for a paused one."""
    messages = {message.tool_name: message for message in trial.messages if isinstance(message, ToolResultMessage)}
    started: list[str] = []
    for number, one in enumerate(trial.batch.calls):
        name = f"t{number}"
        own = [event for event in trial.events if getattr(event, "tool_name", None) == name]
        kinds = [type(event) for event in own]
        message = messages.get(name)
        if not kinds:
            if message is not None:
                yield f"{name} was answered and never started"
            continue
        started.append(name)
        if kinds.count(ToolExecutionStartEvent) != 1 or kinds[0] is not ToolExecutionStartEvent:
            yield f"{name}: {kinds}"
        if message is None:
            if kinds != [ToolExecutionStartEvent] or one.before != "pause":
                yield f"{name} has no result: {kinds}"
            continue
        if kinds.count(ToolExecutionEndEvent) != 1 or kinds[-1] is not ToolExecutionEndEvent:
            yield f"{name}: {kinds}"
            continue
        end = own[-1]
        if (end.result.content, end.is_error) != (message.content, message.is_error):
            yield f"{name} ended as something else than what was stored"
        where = [at for at, event in enumerate(trial.events) if getattr(event, "message", None) is message]
        kinds_there = [type(trial.events[at]) for at in where]
        if kinds_there != [MessageStartEvent, MessageEndEvent] or where[1] != where[0] + 1:
            yield f"{name}: its message came as {kinds_there} at {where}"
        elif trial.events.index(end) > where[0]:
            yield f"{name}: its message came before its end"
    order = [event.tool_name for event in trial.events if isinstance(event, ToolExecutionStartEvent)]
    if order != started or (messages and started != [f"t{number}" for number in range(len(trial.batch.calls))]):
        yield f"calls started in the order {order}"


def _nesting_faults(events: list[Any]) -> Iterator[str]:
    open_turn, open_message = False, False
    for event in events:
        match event:
            case AgentStartEvent() | AgentEndEvent():
                good = not open_turn
            case TurnStartEvent():
                good, open_turn = not open_turn, True
            case TurnEndEvent():
                good, open_turn = open_turn and not open_message, False
            case MessageStartEvent():
                good, open_message = open_turn and not open_message, True
            case MessageEndEvent():
                good, open_message = open_message, False
            case ToolExecutionStartEvent() | ToolExecutionUpdateEvent() | ToolExecutionEndEvent():
                good = open_turn and not open_message
            case _:
                good = open_message
        if not good:
            yield f"{type(event).__name__} is out of place"


def _reason_faults(trial: Trial) -> Iterator[str]:
    """The end tells all messages, and its reason follows from the last of them."""
    end = trial.events[-1]
    if not isinstance(end, AgentEndEvent):
        yield "the run did not say that it had ended"
        return
    if list(end.messages) != trial.messages:
        yield "the end does not tell all messages"
    turn_ends = [event for event in trial.events if isinstance(event, TurnEndEvent)]
    results = [message for message in trial.messages if isinstance(message, ToolResultMessage)]
    if [id(result) for turn in turn_ends for result in turn.tool_results] != [id(result) for result in results]:
        yield "the ends of the turns tell other results"
    last = trial.messages[-1]
    if isinstance(last, AssistantMessage) and not last.tool_calls:
        expected = {"stop": "completed", "aborted": "aborted"}[last.stop_reason]
    elif isinstance(last, AssistantMessage):
        expected = "aborted" if last.stop_reason == "aborted" else "paused"
    else:
        ends = [event for event in trial.events if isinstance(event, ToolExecutionEndEvent)]
        expected = "paused" if len(ends) < len(trial.batch.calls) else "terminated"
        if expected == "terminated" and not all(event.result.terminate for event in ends):
            yield "a batch terminated though not every result asked for it"
    if end.reason != expected:
        yield f"the run ended as {end.reason}, not {expected}"


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """What the calls do wrong on purpose is not worth a log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(BATCHES)
def test_every_call_of_any_batch_is_answered_once_and_in_order(batch: Batch) -> None:
    trial = Trial(batch)
    trial.run()
    note(f"ended as {trial.events[-1].reason}" if trial.failure is None else "a listener failed")
    assert list(faults_of(trial)) == []
