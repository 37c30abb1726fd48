"""One batch of tool calls: prepare, execute, finalise, answer, with one code path for both modes.

Everything that happens to a call is written down in its `CallRecord` before anything follows from it. `advance()`
works from the records alone, so it can be called again after an interrupt anywhere, under a signal that is aborted by
then, and gives every call that has none its one result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from agentcore._foreign import coroutine_closed, error_text
from agentcore._tool_calls import (
    BeforeHook,
    CallRecord,
    ExecutedToolCallBatch,
    FinalizedToolCallOutcome,
    ImmediateToolCallOutcome,
    PreparedToolCall,
    aborted_result,
    copied,
    error_result,
    log_failed_call,
    own_call,
    prepare_call,
    shown_message,
)
from agentcore._tool_workers import CallRunner
from agentcore.abort import AbortController
from agentcore.config import AfterToolCallContext, AfterToolCallResult
from agentcore.errors import AbortRequested
from agentcore.events import (
    AgentEvent,
    MessageEndEvent,
    MessageStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
)
from agentcore.messages import AgentMessage, AssistantMessage, ToolCall, ToolResultMessage
from agentcore.tools import AgentToolResult, ToolExecutionMode

if TYPE_CHECKING:
    from agentcore._run import Run

__all__ = ["ToolBatch"]

_START, _END, _MESSAGE_START, _MESSAGE_END = range(1, 5)


class ToolBatch:
    """The tool calls of one assistant message.

    `base` is where in the run's messages the first result belongs. `before` takes the place of the configured
    `before_tool_call`.

    Threads: belongs to the loop's thread, but `abort_call` and reading `records` are safe from any.
    """

    def __init__(
        self,
        run: Run,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        base: int,
        before: BeforeHook | None = None,
    ) -> None:
        self.run = run
        self.message = message
        # Copied before anybody else sees the message: what a listener does to it changes nothing here.
        self.records = [CallRecord(own_call(call), AbortController(parents=[run.signal])) for call in calls]
        self._base = base
        self._before = before if before is not None else run.config.before_tool_call
        self._truncated = message.stop_reason == "length"
        self._runner = CallRunner(run, self._finish)

    def advance(self) -> ExecutedToolCallBatch:
        """Answer every call; called again after an interrupt, go on from the records."""
        sequential = self._truncated or self._any_sequential()
        for group in [[record] for record in self.records] if sequential else [self.records]:
            for record in group:
                self._prepare(record)
            self._runner.execute(group, here=sequential)
            for record in group:
                if not self._is_paused(record):
                    self._deliver(record)
                elif self.run.signal.aborted and not self._has_begun_to_deliver():
                    self._answer_paused(record)
        for record in self.records:
            if self._is_paused(record) and self.run.signal.aborted:
                self._answer_paused(record)  # late, since other results are out: it was aborted meanwhile
            record.controller.close()
        return ExecutedToolCallBatch(self.results(), self.terminate, self.paused)

    def _any_sequential(self) -> bool:
        if self.run.config.tool_execution is ToolExecutionMode.SEQUENTIAL:
            return True
        tools = [self.run.tools.get(record.call.name) for record in self.records]
        return any(tool is not None and tool.execution_mode is ToolExecutionMode.SEQUENTIAL for tool in tools)

    def results(self) -> tuple[ToolResultMessage, ...]:
        """Return the results there are, in the order of the calls."""
        return tuple(record.message for record in self.records if record.message is not None)

    @property
    def terminate(self) -> bool:
        """Whether every call has a result that asks the run to end."""
        return all(
            record.finalized is not None and record.finalized.result.terminate is True for record in self.records
        )

    @property
    def paused(self) -> bool:
        """Whether a call is left without a result."""
        return any(self._is_paused(record) for record in self.records)

    def _is_paused(self, record: CallRecord) -> bool:
        return record.paused and record.finalized is None

    def _has_begun_to_deliver(self) -> bool:
        return any(_MESSAGE_START in record.events for record in self.records)

    def position_of(self, message: AgentMessage) -> int | None:
        """Return where in the run's messages a result belongs: after those of the calls before it."""
        position = self._base
        for record in self.records:
            if record.message is message:
                return position
            position += record.sent >= _MESSAGE_END
        return None

    def abort_call(self, tool_call_id: str) -> bool:
        """Ask the calls with an id to stop; return whether one was still unanswered. From any thread."""
        found = False
        for record in self.records:
            if record.call.id == tool_call_id and record.executed is None and record.finalized is None:
                found = True
                record.stop_reason = "aborted"
                record.controller.abort("aborted")
        self._runner.wake()
        return found

    # --- the steps of one call --------------------------------------------------------------------------------------

    def _send(self, record: CallRecord, step: int, make: Callable[[], AgentEvent]) -> None:
        """Emit one of a call's events, once."""
        if record.sent < step:
            if step not in record.events:
                record.events[step] = make()
            self.run.emit(record.events[step])
            record.sent = step

    def _prepare(self, record: CallRecord) -> None:
        if record.prepared is not None or record.finalized is not None or record.paused:
            return
        call = record.call
        self._send(record, _START, lambda: ToolExecutionStartEvent(call.id, call.name, copied(call.arguments)))
        if self._truncated:
            self._answer(
                record,
                error_result(
                    f"`{call.name}` was not run: the reply hit the output limit, so the arguments of this call may be "
                    "incomplete. Send the call again, complete; if it is long, send less at a time."
                ),
            )
            return
        outcome = prepare_call(self.run, record, self.message, self._before)
        if outcome is None:
            record.paused = True
        elif isinstance(outcome, ImmediateToolCallOutcome):
            self._answer(record, outcome.result)
        else:
            record.prepared = outcome

    def _answer(self, record: CallRecord, result: AgentToolResult) -> None:
        """Answer a call without executing it."""
        record.finalized = FinalizedToolCallOutcome(record.call, result)
        self._finish(record)

    def _answer_paused(self, record: CallRecord) -> None:
        self._answer(record, aborted_result(record.call, self.run.signal.reason))
        self._deliver(record)

    def _finish(self, record: CallRecord) -> None:
        """Say the last word on a call that has ended, and send its end."""
        if _END not in record.events:  # an update that comes later is dropped
            self._runner.send_updates(record)
        if record.finalized is None:
            record.finalized = self._finalized(record)
        final = record.finalized
        call = record.call
        self._send(record, _END, lambda: ToolExecutionEndEvent(call.id, call.name, final.result, final.result.is_error))

    def _finalized(self, record: CallRecord) -> FinalizedToolCallOutcome:
        """Ask the hook about an executed call; a hook that fails makes it an error result."""
        call, executed, prepared = record.call, record.executed, record.prepared
        assert executed is not None
        assert prepared is not None
        result = attrs.evolve(executed.result, is_error=executed.result.is_error or record.stop_reason is not None)
        hook = self.run.config.after_tool_call
        if hook is None:
            return FinalizedToolCallOutcome(call, result)
        if record.finalizing:  # and interrupted
            return FinalizedToolCallOutcome(call, aborted_result(call, self.run.signal.reason))
        record.finalizing = True
        return self._patched(record, prepared, result)

    def _patched(
        self, record: CallRecord, prepared: PreparedToolCall, result: AgentToolResult
    ) -> FinalizedToolCallOutcome:
        call, hook = record.call, self.run.config.after_tool_call
        assert hook is not None
        shown = shown_message(self.message), own_call(call), copied(prepared.args)
        context = AfterToolCallContext(*shown, result, result.is_error, self.run.context())
        try:
            patch = hook(context, record.controller.signal)
            if patch is not None and not isinstance(patch, AfterToolCallResult):
                hint = "; it must be a plain function" if coroutine_closed(patch) else ""
                raise TypeError(f"`after_tool_call` returned {type(patch).__name__}{hint}")
        except AbortRequested as request:
            self.run.controller.abort(request.reason)
            return FinalizedToolCallOutcome(call, aborted_result(call, request.reason))
        except Exception as error:
            log_failed_call("`after_tool_call`", call, error)
            text = f"`{call.name}` has run, but the check after it failed: {error_text(error)}"
            return FinalizedToolCallOutcome(call, error_result(text))
        if patch is None:
            return FinalizedToolCallOutcome(call, result)
        changes = {
            name: value
            for name in ("content", "details", "is_error", "usage", "terminate")
            if (value := getattr(patch, name)) is not None
        }
        return FinalizedToolCallOutcome(call, attrs.evolve(result, **changes))

    def _deliver(self, record: CallRecord) -> None:
        """Put the result of a call into the transcript."""
        final = record.finalized
        assert final is not None
        self._finish(record)
        message = record.message
        if message is None:
            message = record.message = _result_message(final)
            self.run.count(message.usage)
        self._send(record, _MESSAGE_START, lambda: MessageStartEvent(message))
        self._send(record, _MESSAGE_END, lambda: MessageEndEvent(message))


def _result_message(final: FinalizedToolCallOutcome) -> ToolResultMessage:
    result = final.result
    return ToolResultMessage(
        final.tool_call.id,
        final.tool_call.name,
        result.content,
        details=result.details,
        usage=result.usage,
        added_tool_names=result.added_tool_names,
        is_error=result.is_error,
    )
