"""The loop: turns of one response and its tool calls, until there is nothing left to do.

The order of one run::

    AgentStart, TurnStart, [MessageStart, MessageEnd] for each prompt
    pending = get_steering_messages()
    repeat
      repeat while the last batch wants a reply, or pending is not empty
        TurnStart (but for the first turn), [MessageStart, MessageEnd] for each pending message
        one response
        error → recover_from_error may go on: TurnEnd, next pass; else TurnEnd, AgentEnd
        tool calls → the batch: ToolExecutionStart … ToolExecutionEnd, [MessageStart, MessageEnd] for each result
        TurnEnd
        a call was paused → AgentEnd
        prepare_next_turn, should_stop_after_turn → AgentEnd, a limit → AgentEnd
        pending = get_steering_messages()
      pending = get_follow_up_messages(); none → leave
    AgentEnd

Every way out goes through `drive`: an abort, Ctrl-C, and what a hook or `emit` raises all close what is open.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, cast

import attrs

from agentcore._foreign import coroutine_closed
from agentcore._response import respond
from agentcore._run import Run, as_messages
from agentcore._scope import current, enter, restore
from agentcore.abort import AbortSignal
from agentcore.config import AgentContext, AgentLoopConfig, PrepareNextTurnContext, RecoverContext, StreamFn
from agentcore.errors import AbortRequested, NothingToContinueError
from agentcore.events import AgentEvent, TurnStartEvent
from agentcore.messages import AgentMessage, AssistantMessage, ToolCall, ToolResultMessage
from agentcore.streams import EventStream

if TYPE_CHECKING:
    from agentcore._tool_batch import ToolBatch
    from agentcore._tool_calls import BeforeHook

__all__ = [
    "ResumedCalls",
    "agent_loop",
    "agent_loop_continue",
    "check_can_continue",
    "drive",
    "new_run",
    "run_agent_loop",
    "run_agent_loop_continue",
]


def run_agent_loop(
    prompts: str | AgentMessage | Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> list[AgentMessage]:
    """Run the loop on the calling thread; return the prompts and all that the run added.

    `emit(event)` gets every event. `stream_fn` asks the model; left out, `agentcore.stream_response` does. Neither the
    context nor the lists it was made of change. Failures of the model, the network and the tools are messages. What a
    hook or `emit` raises ends the run and is raised again, and so is `KeyboardInterrupt`; the events that close the
    run are sent first.

    Raises `TypeError` or `ValueError` before any event for arguments that cannot be right, among them a tool whose
    schema cannot be used.

    Threads: `emit`, the hooks, the stream function and the tools of sequential batches run on the calling thread, one
    at a time; the tools of parallel batches on workers.
    """
    messages = _prompts(prompts)
    return drive(new_run(context, config, emit, signal, stream_fn), messages)


def run_agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> list[AgentMessage]:
    """Run the loop from the context as it is; otherwise as `run_agent_loop`.

    Raises `NothingToContinueError` when the context, not counting assistant messages at its end that failed or were
    aborted, is empty or ends with an assistant message.
    """
    check_can_continue(context)
    return drive(new_run(context, config, emit, signal, stream_fn))


def agent_loop(
    prompts: str | AgentMessage | Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
    *,
    max_queue_size: int | None = None,
) -> EventStream[AgentEvent]:
    """Run the loop on a background thread; return its events as a stream.

    `max_queue_size` makes the run wait when that many events have not been read. Raises what `run_agent_loop` raises
    before any event.

    Threads: `emit`, hooks and sequential tools run on the stream's own thread.
    """
    messages = _prompts(prompts)
    return _streamed(context, config, signal, stream_fn, messages, max_queue_size)


def agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
    *,
    max_queue_size: int | None = None,
) -> EventStream[AgentEvent]:
    """Do the same as `run_agent_loop_continue` on a background thread; return the events as a stream."""
    check_can_continue(context)
    return _streamed(context, config, signal, stream_fn, (), max_queue_size)


# --- before the run -------------------------------------------------------------------------------------------------


def _prompts(prompts: str | AgentMessage | Sequence[AgentMessage]) -> tuple[AgentMessage, ...]:
    messages = as_messages(prompts, "`prompts`")
    if not messages:
        raise ValueError("`prompts` is empty; to answer the context as it is, call the `continue` form")
    return messages


def check_can_continue(context: AgentContext) -> None:
    """Raise `NothingToContinueError` unless a model can answer the context as it is."""
    if not isinstance(context, AgentContext):
        raise TypeError(f"`context` is an `AgentContext`, not {type(context).__name__}")
    for message in reversed(context.messages):
        if not isinstance(message, AssistantMessage):
            return
        if message.stop_reason not in ("error", "aborted"):
            raise NothingToContinueError(
                "cannot continue: the last message is the model's own; add a message to answer"
            )
    raise NothingToContinueError("cannot continue: the context has no message to answer")


def _default_stream_fn() -> StreamFn:
    return cast(StreamFn, importlib.import_module("agentcore.providers").stream_response)


def new_run(
    context: AgentContext,
    config: AgentLoopConfig,
    emit: Callable[[AgentEvent], object],
    signal: AbortSignal | None,
    stream_fn: StreamFn | None,
    new_messages: list[AgentMessage] | None = None,
) -> Run:
    """Check the arguments and make a run of them; what it adds goes into `new_messages`."""
    if not isinstance(context, AgentContext):
        raise TypeError(f"`context` is an `AgentContext`, not {type(context).__name__}")
    if not isinstance(config, AgentLoopConfig):
        raise TypeError(f"`config` is an `AgentLoopConfig`, not {type(config).__name__}")
    if not callable(emit):
        raise TypeError(f"`emit` must be callable, not {type(emit).__name__}")
    if iscoroutinefunction(emit):
        raise TypeError("`emit` is a coroutine function; it must be a plain function, or no event would be seen")
    if signal is not None and not isinstance(signal, AbortSignal):
        raise TypeError(f"`signal` is an `AbortSignal`, not {type(signal).__name__}")
    if stream_fn is not None and not callable(stream_fn):
        raise TypeError(f"`stream_fn` must be callable, not {type(stream_fn).__name__}")
    as_messages(context.messages, "`context.messages`")
    messages = new_messages if new_messages is not None else []
    return Run(context, config, emit, signal, stream_fn or _default_stream_fn(), messages)


def _streamed(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal | None,
    stream_fn: StreamFn | None,
    prompts: Sequence[AgentMessage],
    max_queue_size: int | None,
) -> EventStream[AgentEvent]:
    new_run(context, config, _nowhere, signal, stream_fn).controller.close()  # checks the arguments, here and now

    def run(emit: Callable[[AgentEvent], None], own: AbortSignal, new_messages: list[AgentMessage]) -> None:
        drive(new_run(context, config, emit, own, stream_fn, new_messages), prompts)

    signals = [one for one in (signal, config.signal) if one is not None]
    return EventStream(run, signals=signals, max_queue_size=max_queue_size, abort_grace=config.abort_grace)


def _nowhere(event: AgentEvent) -> None:
    """Take no event."""


# --- the run --------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class ResumedCalls:
    """Calls of the last assistant message that a run answers before it goes on, and the hook that decides on them."""

    message: AssistantMessage
    calls: Sequence[ToolCall]
    decide: BeforeHook


def drive(run: Run, prompts: Iterable[AgentMessage] = (), resumed: ResumedCalls | None = None) -> list[AgentMessage]:
    """Run to the end, whichever it is, and leave nothing open."""
    outside = current()
    run.open(prompts)
    if resumed is not None:
        run.take_on(resumed.message, resumed.calls, len(run.new_messages), resumed.decide)
    try:
        try:
            enter(run)
            _drive(run)
        except Exception:
            raise
        except BaseException as interrupt:
            # Also one that comes while an abort or a failure is being closed; a second one here is raised at once.
            run.end(run.close(interrupt))
            raise
        finally:
            _leave(run, outside)
    finally:
        _leave(run, outside)  # again, if an interrupt has ended the first try
    return run.new_messages


def _leave(run: Run, outside: tuple[object, ...]) -> None:
    restore(outside)
    run.let_go()


def _drive(run: Run) -> None:
    """Run to the end, unless it is an interrupt."""
    try:
        run.end(_turns(run))
    except (Exception, AbortRequested) as failure:
        run.end(run.close(failure))
        if not isinstance(failure, AbortRequested):
            raise
    run.raise_kept()


def _turns(run: Run) -> str:
    """Run turn after turn; return why the run is over."""
    run.emit(*run.opening)
    turn_is_open = True
    if run.batch is not None:  # calls that an earlier run left open
        over = _run_batch(run, run.batch)
        if over is not None:
            return over
        turn_is_open = False
    steering = run.config.get_steering_messages
    pending = _poll(run, steering, "get_steering_messages")
    while True:
        while run.wants_reply or pending:
            if not turn_is_open:
                run.emit(TurnStartEvent())
            run.inject(pending)
            turn_is_open = False
            run.wants_reply = True
            over = _turn(run)
            if over is not None:
                return over
            # What was pending is in the transcript by now; after a failure that is recovered from nobody is asked.
            pending = () if run.failures_in_a_row else _poll(run, steering, "get_steering_messages")
        pending = _poll(run, run.config.get_follow_up_messages, "get_follow_up_messages")
        if not pending:
            return run.natural_end


def _poll(run: Run, hook: Callable[[], Sequence[AgentMessage]] | None, name: str) -> tuple[AgentMessage, ...]:
    """Ask a queue; after an abort nothing is taken out of one any more."""
    return () if hook is None or run.signal.aborted else as_messages(hook(), f"what `{name}` returned")


def _turn(run: Run) -> str | None:
    """Run one turn that is open; return why the run is over, or `None` to go on."""
    message = respond(run)
    run.turns += 1
    run.count(message.usage, of_model=True)
    if message.stop_reason == "error":
        return _recover(run, message)
    if message.stop_reason == "aborted":
        run.end_turn()
        return "aborted"
    run.failures_in_a_row = 0
    if run.batch is not None:
        return _run_batch(run, run.batch)
    run.end_turn()
    return _after_turn(run, message, ())


def _run_batch(run: Run, batch: ToolBatch) -> str | None:
    """Run the tool calls of a turn and end it."""
    executed = run.answer_calls(batch)
    return "paused" if executed.paused else _after_turn(run, batch.message, executed.messages)


def _aborted(run: Run) -> str | None:
    """After an abort: raise it if there is more to do, else return why the run is over; `None` without an abort."""
    if not run.signal.aborted:
        return None
    if run.wants_reply:
        raise AbortRequested(run.signal.reason)
    return run.natural_end


def _after_turn(run: Run, message: AssistantMessage, results: Sequence[ToolResultMessage]) -> str | None:
    """Ask the hooks after a turn, and look at the limits."""
    over = _aborted(run)
    if over is not None:
        return over
    prepare, should_stop = run.config.prepare_next_turn, run.config.should_stop_after_turn
    if prepare is not None:
        context = PrepareNextTurnContext(message, results, run.context(), run.new_messages)
        run.apply(prepare(context, run.signal), "prepare_next_turn")
        over = _aborted(run)
        if over is not None:
            return over
    if should_stop is not None:
        stop = should_stop(PrepareNextTurnContext(message, results, run.context(), run.new_messages))
        if coroutine_closed(stop):
            raise TypeError("`should_stop_after_turn` is a coroutine function; hooks here are plain functions")
        if stop:
            return "stopped"
    limit = run.limit_reached()
    if limit is not None:
        return limit if run.wants_reply else run.natural_end
    return _aborted(run)


def _recover(run: Run, message: AssistantMessage) -> str | None:
    """Ask whether to go on after a response that failed."""
    hook = run.config.recover_from_error
    run.failures_in_a_row += 1
    update = None
    if hook is not None and not run.signal.aborted and run.limit_reached() is None:
        context = RecoverContext(message, run.context(), run.new_messages, run.failures_in_a_row)
        update = hook(context, run.signal)
        run.apply(update, "recover_from_error")
    run.wants_reply = update is not None
    run.end_turn()
    if update is None:
        return "error"
    return _aborted(run) or run.limit_reached()
