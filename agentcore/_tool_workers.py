"""Running the prepared calls of a batch: here, on the loop's thread, or on workers.

Guarantees for threads. Only `tool.execute` runs on a worker. A worker writes its outcome into the record and then
wakes the loop's thread through `inbox`, so an item of the queue that an interrupt swallows is never missed: the
records tell. The loop's thread alone starts calls, so no worker waits for a slot or for an `exclusive` name.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty
from threading import current_thread, get_ident
from typing import TYPE_CHECKING, Any

from agentcore._foreign import abort_reason, coroutine_closed, error_text
from agentcore._logs import log_warning
from agentcore._mailbox import Mailbox
from agentcore._records import text_of
from agentcore._tool_calls import (
    CallRecord,
    ExecutedToolCallOutcome,
    FinalizedToolCallOutcome,
    aborted_result,
    copied,
    error_result,
    log_failed_call,
)
from agentcore.errors import AbortRequested
from agentcore.events import ToolExecutionUpdateEvent
from agentcore.tools import AgentToolResult, as_tool_result

if TYPE_CHECKING:
    from agentcore._run import Run

__all__ = ["CallRunner"]


# A tool may report faster than its reports can be emitted; between so many the loop looks at its other calls, at
# deadlines and at the abort.
_UPDATES_AT_ONCE = 100


class CallRunner:
    """Executes the calls of one batch; `finish(record)` is called on the loop's thread for each that has ended."""

    def __init__(self, run: Run, finish: Callable[[CallRecord], None]) -> None:
        self._run = run
        self._finish = finish
        # A record: something has come of this call. `None`: any of them may have been aborted.
        self._inbox: Mailbox[CallRecord | None] = Mailbox()
        self._thread_id = get_ident()
        self._running: dict[CallRecord, None] = {}
        self._names_in_use: dict[str, CallRecord] = {}
        self._names_lost: set[str] = set()
        self._kept: BaseException | None = None
        self._started = 0

    def execute(self, records: Sequence[CallRecord], *, here: bool) -> None:
        """Run the prepared calls among `records` and finish each; return when all have ended.

        With `here` they run on the calling thread, but for those with a `timeout`.
        """
        waiting: deque[CallRecord] = deque()
        for record in records:
            if record.prepared is None:
                continue
            if record.executed is not None or record.finalized is not None:
                self._leave(record)
                self._finish(record)
            elif here and record.prepared.tool.timeout is None:
                self._run_here(record)
            elif record.begun and record.future is None and record.runner.setdefault("by", "nobody") == "nobody":
                # Interrupted on its way to a worker, which it did not reach and will not.
                self._leave(record)
                record.finalized = self._refused(record, aborted_result(record.call, self._run.signal.reason))
                self._finish(record)
            elif record.begun:
                if record.stopping and record.deadline is not None:
                    # It has what an abort gives it to return; an interrupt that follows may give it less.
                    record.deadline = min(record.deadline, time.monotonic() + self._run.abort_grace)
                self._running[record] = None
            else:
                waiting.append(record)
        if waiting or self._running:
            remove = self._run.signal.add_callback(self.wake)
            try:
                self._run_on_workers(waiting)
            finally:
                remove()
        self._raise_kept()

    def wake(self) -> None:
        """Have the loop's thread look at all calls, those that wait too; from any thread."""
        self._inbox.put(None)

    # --- beginning and ending ---------------------------------------------------------------------------------------

    def _run_here(self, record: CallRecord) -> None:
        """Execute a call on the loop's thread."""
        if record.begun:  # and interrupted
            record.finalized = self._refused(record, aborted_result(record.call, self._run.signal.reason))
        elif self._may_begin(record):
            self._begin(record, current_thread().name)
            try:
                record.executed = self._called(record)
            finally:
                self._leave(record)
            self._raise_kept()
        self._finish(record)

    def _may_begin(self, record: CallRecord) -> bool:
        """Return whether a call that has not begun may; if not, give it its answer."""
        assert record.prepared is not None
        name = record.prepared.tool.exclusive
        if record.controller.signal.aborted:
            result = aborted_result(record.call, record.controller.signal.reason)
        elif name is not None and name in self._names_lost:
            result = error_result(
                f"`{record.call.name}` was not run: an earlier call that holds `{name}` did not stop when it was asked to."
            )
        else:
            return True
        record.finalized = self._refused(record, result)
        return False

    def _refused(self, record: CallRecord, result: AgentToolResult) -> FinalizedToolCallOutcome:
        return FinalizedToolCallOutcome(record.call, result)

    def _begin(self, record: CallRecord, thread_name: str) -> None:
        assert record.prepared is not None
        tool = record.prepared.tool
        if tool.exclusive is not None:
            self._names_in_use[tool.exclusive] = record
        now = time.monotonic()
        record.thread_name = thread_name
        record.started_at = now
        record.deadline = None if tool.timeout is None else now + tool.timeout
        record.begun = True

    def _leave(self, record: CallRecord) -> None:
        """Free the slot and the name of a call."""
        assert record.prepared is not None
        self._running.pop(record, None)
        name = record.prepared.tool.exclusive
        if name is not None and self._names_in_use.get(name) is record:
            del self._names_in_use[name]

    def _called(self, record: CallRecord) -> ExecutedToolCallOutcome:
        """Call the tool, on any thread."""
        prepared, call = record.prepared, record.call
        assert prepared is not None
        try:
            value = prepared.tool.execute(
                call.id,
                copied(prepared.args),
                record.controller.signal,
                lambda update: self._on_update(record, update),
                prepared.tool.context,
            )
            if coroutine_closed(value):
                raise TypeError(f"`{call.name}` is a coroutine function; tools here are plain functions")
            return ExecutedToolCallOutcome(as_tool_result(value))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and get_ident() == self._thread_id:
                self._kept = None
                raise
            if not isinstance(error, AbortRequested):
                log_failed_call(f"tool `{call.name}`", call, error)
            return ExecutedToolCallOutcome(error_result(error_text(error)))

    # --- progress ---------------------------------------------------------------------------------------------------

    def _on_update(self, record: CallRecord, update: Any) -> None:
        """Take progress from a tool, on any thread; never raises into the tool, but for an interrupt."""
        if record.executed is not None or record.finalized is not None:
            return
        try:
            record.updates.append(as_tool_result(update))
        except Exception as error:
            log_failed_call(f"an update of tool `{record.call.name}`", record.call, error)
            return
        if get_ident() != self._thread_id:
            self._inbox.put(record)
            return
        try:
            self.send_updates(record)
        except BaseException as error:
            self._kept = error
            self._run.controller.abort(abort_reason(error))
            if isinstance(error, KeyboardInterrupt):
                raise

    def send_updates(self, record: CallRecord, most: int | None = None) -> None:
        """Emit what a call has reported, all of it or the first so many; on the loop's thread."""
        call = record.call
        sent = 0
        while record.updates and sent != most:
            update = record.updates.popleft()
            sent += 1
            self._run.emit(ToolExecutionUpdateEvent(call.id, call.name, copied(call.arguments), update))

    def _raise_kept(self) -> None:
        """Raise what `emit` raised while a tool reported progress."""
        kept, self._kept = self._kept, None
        if kept is not None:
            raise kept

    # --- workers ----------------------------------------------------------------------------------------------------

    def _run_on_workers(self, waiting: deque[CallRecord]) -> None:
        look_at_all = True
        while True:
            self._start_waiting(waiting, look_at_all)
            look_at_all = False
            if self._look_at_running():
                continue  # a slot or a name may have become free
            if not waiting and not self._running:
                return
            try:
                look_at_all = self._inbox.get(self._seconds_to_wait()) is None
            except Empty:
                pass

    def _start_waiting(self, waiting: deque[CallRecord], look_at_all: bool) -> None:
        """Start the calls for which there is a slot and whose name is free, in the order of the calls.

        There can be many: those for which no slot is left are only looked at when one of them may have been aborted.
        """
        most = self._run.config.max_parallel_tools
        kept: list[CallRecord] = []
        while waiting and (look_at_all or len(self._running) < most):
            record = waiting.popleft()
            assert record.prepared is not None
            if not self._may_begin(record):
                self._finish(record)
            elif len(self._running) >= most or record.prepared.tool.exclusive in self._names_in_use:
                kept.append(record)
            else:
                self._start(record)
        waiting.extendleft(reversed(kept))

    def _start(self, record: CallRecord) -> None:
        self._started += 1
        name = f"agentcore-tool-{record.call.name}-{self._started}"
        self._begin(record, name)
        self._running[record] = None
        try:
            record.future = self._run.workers().submit_named(name, self._work, record)
        except RuntimeError as error:
            log_failed_call("starting a thread", record.call, error)
            text = f"`{record.call.name}` was not run: no thread could be started: {error}"
            record.finalized = self._refused(record, error_result(text))
            self._leave(record)
            self._finish(record)

    def _work(self, record: CallRecord) -> None:
        if record.runner.setdefault("by", "worker") != "worker":
            return
        outcome = ExecutedToolCallOutcome(error_result(f"The call of `{record.call.name}` failed."))
        try:
            outcome = self._called(record)
        finally:
            # First the record, then the wake-up; both whatever came, or the loop would wait for ever.
            record.ended_at = time.monotonic()
            record.executed = outcome
            self._inbox.put(record)

    def _seconds_to_wait(self) -> float | None:
        deadlines = [record.deadline for record in self._running if record.deadline is not None]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

    def _look_at_running(self) -> bool:
        """Finish what has ended, send updates, ask to stop what is out of time, give up what did not.

        Return whether a call has ended.
        """
        before = len(self._running)
        for record in sorted((one for one in self._running if one.executed is not None), key=_end_of):
            self._leave(record)
            self._finish(record)
        for record in list(self._running):
            self.send_updates(record, _UPDATES_AT_ONCE)
            if record.executed is None:  # else it has ended just now, and has sent its wake-up
                self._look_at_clock(record, time.monotonic())
        return len(self._running) < before

    def _look_at_clock(self, record: CallRecord, now: float) -> None:
        if record.controller.signal.aborted and not record.stopping:
            self._ask_to_stop(record, now)
        elif record.deadline is not None and now >= record.deadline:
            if record.stopping:
                self._abandon(record)
            else:
                assert record.prepared is not None
                record.stop_reason = f"timed out after {record.prepared.tool.timeout:g} s"
                self._ask_to_stop(record, now)
                record.controller.abort(record.stop_reason)

    def _ask_to_stop(self, record: CallRecord, now: float) -> None:
        """Give a call its grace to return."""
        record.deadline = now + self._run.abort_grace
        record.stopping = True

    def _abandon(self, record: CallRecord) -> None:
        """Answer a call that did not return in its grace; its thread is no longer waited for."""
        assert record.prepared is not None
        call, name = record.call, record.prepared.tool.exclusive
        reason = record.stop_reason or text_of(record.controller.signal.reason)
        if name is not None:
            self._names_lost.add(name)
        record.finalized = self._refused(
            record,
            error_result(f"The call of `{call.name}` {_was(reason)}; it did not stop when asked to and was given up."),
        )
        record.updates.clear()
        log_warning("tools", "tool call %s (`%s`) did not stop when asked to and was given up", call.id, call.name)
        if record.future is not None:
            self._run.workers().abandon(record.future)
        self._leave(record)
        self._finish(record)


def _end_of(record: CallRecord) -> float:
    return record.ended_at or 0.0


def _was(reason: str) -> str:
    if reason.startswith("timed out"):
        return reason
    return "was aborted" if reason == "aborted" else f"was aborted ({reason})"
