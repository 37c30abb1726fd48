"""One tool call: what is known of it, and how it is checked before it may run."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from agentcore._arguments import check_arguments, validate_arguments
from agentcore._foreign import coroutine_closed, error_text
from agentcore._logs import log_failure
from agentcore._records import shortened, text_of
from agentcore.abort import AbortController, AbortSignal
from agentcore.config import BeforeToolCallContext, BeforeToolCallResult
from agentcore.content import ContentBlock, ProviderContent
from agentcore.errors import AbortRequested, ToolArgumentsError, ToolNotFoundError
from agentcore.events import AgentEvent
from agentcore.messages import AssistantMessage, ToolCall, ToolResultMessage
from agentcore.tools import AgentTool, AgentToolResult

if TYPE_CHECKING:
    from agentcore._run import Run

__all__ = [
    "BeforeHook",
    "CallRecord",
    "ExecutedToolCallBatch",
    "ExecutedToolCallOutcome",
    "FinalizedToolCallOutcome",
    "ImmediateToolCallOutcome",
    "PreparedToolCall",
    "aborted_result",
    "copied",
    "error_result",
    "log_failed_call",
    "own_call",
    "prepare_call",
    "shown_message",
]

BeforeHook = Callable[[BeforeToolCallContext, AbortSignal], "BeforeToolCallResult | None"]


@attrs.frozen(eq=False, repr=False)
class PreparedToolCall:
    """A call that may run, and the arguments it runs with."""

    tool_call: ToolCall
    tool: AgentTool
    args: dict[str, Any]


@attrs.frozen(eq=False, repr=False)
class ImmediateToolCallOutcome:
    """A call that is answered without being executed."""

    result: AgentToolResult


@attrs.frozen(eq=False, repr=False)
class ExecutedToolCallOutcome:
    """What an executed call gave."""

    result: AgentToolResult


@attrs.frozen(eq=False, repr=False)
class FinalizedToolCallOutcome:
    """The last word on a call."""

    tool_call: ToolCall
    result: AgentToolResult


@attrs.frozen(eq=False, repr=False)
class ExecutedToolCallBatch:
    """What a batch came to: the results in the order of the calls."""

    messages: tuple[ToolResultMessage, ...]
    terminate: bool
    paused: bool


@attrs.define(eq=False, repr=False)
class CallRecord:
    """All that is known of one call of a batch.

    Threads: `executed` and what belongs to it are written by the thread that runs the tool, everything else by the
    loop's thread; any thread may read. `runner` is claimed with `setdefault`, by the worker before it runs the tool or
    by the loop's thread when the call is not to run any more.
    """

    call: ToolCall
    controller: AbortController
    prepared: PreparedToolCall | None = None
    paused: bool = False
    begun: bool = False
    runner: dict[str, str] = attrs.field(factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    thread_name: str | None = None
    stop_reason: str | None = None
    stopping: bool = False
    deadline: float | None = None
    executed: ExecutedToolCallOutcome | None = None
    finalizing: bool = False
    finalized: FinalizedToolCallOutcome | None = None
    message: ToolResultMessage | None = None
    updates: deque[AgentToolResult] = attrs.field(factory=deque)
    future: Any = None
    sent: int = 0
    events: dict[int, AgentEvent] = attrs.field(factory=dict)

    @property
    def state(self) -> str:
        """`waiting`, `running`, `paused` or `done`."""
        if self.finalized is not None:
            return "done"
        if self.paused:
            return "paused"
        return "running" if self.begun else "waiting"


_PLAIN = (str, int, float, bool, type(None))


def copied(value: Any) -> Any:
    """Return a copy of data, all the way down; never raises.

    Unlike `copy.deepcopy` it does not fail on what is nested deeply. An object that cannot be copied is shared.
    """
    holder = [value]
    pending: list[tuple[Any, Any]] = [(holder, holder)]
    copies: dict[int, Any] = {}
    while pending:
        source, target = pending.pop()
        for key, item in list(source.items() if isinstance(source, dict) else enumerate(source)):
            if type(item) in _PLAIN:
                target[key] = item
            elif id(item) in copies:
                target[key] = copies[id(item)]
            elif type(item) is dict or type(item) is list:
                copies[id(item)] = target[key] = {} if type(item) is dict else [None] * len(item)
                pending.append((item, target[key]))
            else:
                copies[id(item)] = target[key] = _own(item)
    return holder[0]


def _own(item: Any) -> Any:
    try:
        return copy.deepcopy(item)
    except Exception:
        return item


def shown_message(message: AssistantMessage) -> AssistantMessage:
    """Return a message whose data a hook may change without harm."""
    return attrs.evolve(message, content=tuple(_shown_block(block) for block in message.content))


def _shown_block(block: ContentBlock) -> ContentBlock:
    if isinstance(block, ToolCall):
        return own_call(block)
    return attrs.evolve(block, data=copied(block.data)) if isinstance(block, ProviderContent) else block


def own_call(call: ToolCall) -> ToolCall:
    """Return a call with arguments of its own."""
    return ToolCall(call.id, call.name, copied(call.arguments), call.partial_json, call.thought_signature)


def error_result(text: str, terminate: bool | None = None) -> AgentToolResult:
    """Return a result that says what went wrong."""
    return AgentToolResult(text, terminate=terminate, is_error=True)


def log_failed_call(what: str, call: ToolCall, error: BaseException) -> None:
    """Log that something failed for a call, without what it said unless at DEBUG."""
    log_failure("tools", error, "%s failed for tool call %s", what, call.id)


def aborted_result(call: ToolCall, reason: object) -> AgentToolResult:
    """Return the answer to a call that an abort kept from running, or from finishing."""
    said = "aborted" if reason is None else text_of(reason)
    why = "" if said == "aborted" else f": {said}"
    return error_result(f"The call of `{call.name}` was aborted{why}.")


def prepare_call(
    run: Run, record: CallRecord, message: AssistantMessage, before: BeforeHook | None
) -> PreparedToolCall | ImmediateToolCallOutcome | None:
    """Return a call ready to run, or its answer, or `None` when it is paused.

    Nothing but `KeyboardInterrupt`, `SystemExit` and their like comes out of it: whatever else goes wrong keeps the
    call from running and becomes its answer.
    """
    call = record.call
    if run.signal.aborted or record.controller.signal.aborted:
        return ImmediateToolCallOutcome(aborted_result(call, record.controller.signal.reason))
    try:
        return _checked(run, record, message, before)
    except AbortRequested as request:
        run.controller.abort(request.reason)
        return ImmediateToolCallOutcome(aborted_result(call, request.reason))
    except (ToolNotFoundError, ToolArgumentsError) as error:
        return ImmediateToolCallOutcome(error_result(error_text(error)))
    except Exception as error:
        log_failed_call("preparing", call, error)
        return ImmediateToolCallOutcome(
            error_result(f"`{call.name}` was not run: preparing the call failed: {error_text(error)}")
        )


def _checked(
    run: Run, record: CallRecord, message: AssistantMessage, before: BeforeHook | None
) -> PreparedToolCall | ImmediateToolCallOutcome | None:
    call = record.call
    tool = run.tools.get(call.name)
    if tool is None:
        names = ", ".join(f"`{name}`" for name in run.tools) or "none"
        raise ToolNotFoundError(f"There is no tool `{call.name}`. The tools are: {names}.")
    if call.partial_json is not None:
        raise ToolArgumentsError(
            f"The arguments of `{call.name}` must be a JSON object, but were: {shortened(call.partial_json)}"
        )
    arguments: Any = copied(call.arguments)
    if tool.prepare_arguments is not None:
        arguments = tool.prepare_arguments(arguments)
        if coroutine_closed(arguments):
            raise TypeError("`prepare_arguments` is a coroutine function; tools here are plain functions")
    prepared = PreparedToolCall(call, tool, validate_arguments(tool, arguments))
    return prepared if before is None else _asked(run, record, message, before, prepared)


def _asked(
    run: Run, record: CallRecord, message: AssistantMessage, before: BeforeHook, prepared: PreparedToolCall
) -> PreparedToolCall | ImmediateToolCallOutcome | None:
    """Ask the hook; only `None`, or a result that does not block, lets the call run."""
    call = record.call
    context = BeforeToolCallContext(shown_message(message), own_call(call), copied(prepared.args), run.context())
    try:
        verdict = before(context, record.controller.signal)
    except Exception as error:
        log_failed_call("`before_tool_call`", call, error)
        text = f"`{call.name}` was not run: the check before it failed: {error_text(error)}"
        return ImmediateToolCallOutcome(error_result(text))
    if verdict is None:
        return prepared
    if not isinstance(verdict, BeforeToolCallResult):
        asked = (
            "it must be a plain function" if coroutine_closed(verdict) else "it returns `BeforeToolCallResult` or None"
        )
        wrong = TypeError(f"`before_tool_call` returned {type(verdict).__name__} ({asked})")
        log_failed_call("`before_tool_call`", call, wrong)
        return ImmediateToolCallOutcome(error_result(f"`{call.name}` was not run: {wrong}, so the call is blocked."))
    if verdict.block:
        reason = verdict.reason or f"The call of `{call.name}` was blocked."
        return ImmediateToolCallOutcome(error_result(reason, verdict.terminate))
    if verdict.pause:
        return None
    if verdict.args is None:
        return prepared
    return attrs.evolve(prepared, args=check_arguments(prepared.tool, copied(verdict.args)))
