"""The state of one run: what it was given, what it has added, what it still has to say, and how it is closed.

Guarantees. An exception, Ctrl-C above all, may arrive between any two bytecodes of the loop's thread. The run must
then still be closable: every event that was decided goes out exactly once, and every message is in `new_messages`
exactly once. So events are first put into `outbox`, those that belong together at once; `last` is set immediately
before an event is handed to `emit`, with no point between at which an interrupt can be raised; and it leaves the outbox
afterwards. Whatever was interrupted, `flush()` goes on from there: an event whose delivery had begun is not delivered
again, one that was only decided is. Who decides on an event keeps it, and notes that it was sent when `emit` has
returned; to send it again in between does nothing. A message enters `new_messages` just before its `MessageEndEvent`
goes out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from agentcore._foreign import abort_reason, coroutine_closed, error_text
from agentcore._logs import log_failure, log_warning
from agentcore._records import text_of
from agentcore.abort import AbortController, AbortSignal
from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate, StreamFn
from agentcore.errors import AbortRequested
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from agentcore.messages import (
    MESSAGE_CLASSES,
    AgentMessage,
    AssistantMessage,
    ErrorInfo,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.models import has_prices, usage_cost
from agentcore.partial import PartialMessage
from agentcore.tools import AgentTool

if TYPE_CHECKING:
    from agentcore._tool_batch import ToolBatch
    from agentcore._tool_calls import BeforeHook, ExecutedToolCallBatch
    from agentcore._workers import DaemonThreadPool

__all__ = ["Response", "Run", "as_messages", "drop_event"]

# Who presses Ctrl-C does not wait longer, however much time tools have to return after an abort.
_LONGEST_GRACE_AFTER_INTERRUPT = 1.0


def as_messages(value: Any, what: str) -> tuple[AgentMessage, ...]:
    """Return text, a message or messages as a tuple of messages; raises `TypeError` for anything else."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (UserMessage(value),)
    if _is_message(value):
        return (value,)
    if coroutine_closed(value):
        raise TypeError(f"{what} is a coroutine; hooks here are plain functions")
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        raise TypeError(f"{what} must be text, a message or messages, not {type(value).__name__}")
    messages = tuple(value)
    for message in messages:
        if not _is_message(message):
            raise TypeError(f"{what} holds messages such as `UserMessage(…)`, not {type(message).__name__}")
    return messages


def _is_message(value: Any) -> bool:
    # A class has the attributes of its instances, and a message that has not finished those of one that has.
    if type(value) in MESSAGE_CLASSES:  # checking against a protocol takes a hundred times as long
        return True
    return isinstance(value, AgentMessage) and not isinstance(value, (type, PartialMessage))


def drop_event(event: AgentEvent) -> None:
    """Take the place of an `emit` that has failed."""


@attrs.define(eq=False, repr=False)
class Response:
    """The response that is being streamed: what has arrived of it, and the end of its message once that is final."""

    partial: AssistantMessage | PartialMessage | None = None
    start: MessageStartEvent | None = None
    start_is_sent: bool = False
    end: MessageEndEvent | None = None


class Run:
    """One run of the loop, on one thread."""

    def __init__(
        self,
        context: AgentContext,
        config: AgentLoopConfig,
        emit: Callable[[AgentEvent], object],
        signal: AbortSignal | None,
        stream_fn: StreamFn,
        new_messages: list[AgentMessage],
    ) -> None:
        self.config = config
        self.sink = emit
        self.stream_fn = stream_fn
        self.controller = AbortController(parents=[one for one in (signal, config.signal) if one is not None])
        self.signal = self.controller.signal
        self.abort_grace = config.abort_grace
        self.model = config.model
        self.reasoning = config.reasoning
        self.new_messages = new_messages
        self.memo: dict[str, Any] = {}
        self._workers: DaemonThreadPool | None = None
        self.system_prompt = ""
        self.tools: dict[str, AgentTool] = {}
        self._base: tuple[AgentMessage, ...] = ()
        self._base_end = 0
        self._context: AgentContext | None = None
        self.use_context(context)

        self.opening: tuple[AgentEvent, ...] = ()
        self.outbox: deque[AgentEvent] = deque()
        self.last: AgentEvent | None = None
        self._taken_over: list[AgentEvent] = []
        self._delivering = False
        self._closing = False
        self._commitment: tuple[AgentEvent | None, int] = (None, 0)

        self.response: Response | None = None
        self.batch: ToolBatch | None = None
        self.turn: tuple[AssistantMessage, tuple[ToolResultMessage, ...]] | None = None
        self.wants_reply = True
        self.natural_end = "completed"

        self.turns = 0
        self.usage = Usage(cost={})
        self.cost = 0.0
        self.cost_is_known = True
        self.failure: str | None = None
        self.failure_kind: str | None = None
        self.kept: Exception | None = None
        self.failures_in_a_row = 0
        self.started = time.monotonic()

    def workers(self) -> DaemonThreadPool:
        """Return the threads for tool calls: those of this run alone, so that a run inside a tool cannot wait for one."""
        if self._workers is None:
            from agentcore._workers import DaemonThreadPool

            self._workers = DaemonThreadPool(self.config.max_parallel_tools, "agentcore-tool", keep_idle=True)
        return self._workers

    def let_go(self) -> None:
        """Stop following the signals the run was given, and let its threads end."""
        self.controller.close()
        if self._workers is not None:
            self._workers.shutdown(wait=False)

    # --- the conversation -------------------------------------------------------------------------------------------

    def use_context(self, context: AgentContext) -> None:
        """Go on from a context; raises `ValueError` for a tool whose schema cannot be used."""
        if context.tools:
            # What only tools need comes now, while there is nothing that an interrupt could leave open.
            from agentcore import _tool_batch  # noqa: F401
            from agentcore._arguments import compile_schema

            for tool in context.tools:
                compile_schema(tool)
        self.system_prompt = context.system_prompt
        self.tools = {tool.name: tool for tool in context.tools}
        self._base = context.messages
        self._base_end = len(self.new_messages)
        self._context = None

    def messages(self) -> list[AgentMessage]:
        """Return the conversation as it stands, as a new list."""
        return [*self._base, *self.new_messages[self._base_end :]]

    def context(self) -> AgentContext:
        """Return the conversation as it stands, as a hook sees it."""
        known = self._context
        length = len(self._base) + len(self.new_messages) - self._base_end
        if known is None or len(known.messages) != length:
            known = AgentContext(self.system_prompt, self.messages(), tuple(self.tools.values()))
            self._context = known
        return known

    def apply(self, update: AgentLoopTurnUpdate | None, hook: str) -> None:
        """Use what a hook asks for in the following requests."""
        if update is None:
            return
        if not isinstance(update, AgentLoopTurnUpdate):
            hint = "; hooks here are plain functions" if coroutine_closed(update) else ""
            raise TypeError(f"`{hook}` returned {type(update).__name__}, not `AgentLoopTurnUpdate` or None{hint}")
        if update.context is not None:
            self.use_context(update.context)
        if update.model is not None:
            self.model = update.model
        if update.thinking_level is not None:
            self.reasoning = update.thinking_level

    # --- events -----------------------------------------------------------------------------------------------------

    def emit(self, *events: AgentEvent) -> None:
        """Send events, in order, after those decided before; one that has gone out last is not sent again."""
        known = [id(event) for event in (self.last, *self._taken_over, *self.outbox)]
        # All or none: an interrupt must not come between the start of a message and its end.
        self.outbox.extend([event for event in events if id(event) not in known])
        self.flush()

    def flush(self) -> None:
        """Deliver what is in the outbox."""
        if self._delivering:
            return  # a listener has caused another event; it follows when the one being delivered is done
        outbox = self.outbox
        try:
            self._delivering = True
            while outbox:
                event = outbox[0]
                if event is not self.last:
                    if type(event) is MessageEndEvent:
                        self._commit(event)
                    sink = self.sink
                    self.last = event
                    sink(event)
                outbox.popleft()
        except Exception as error:
            self.sink = drop_event
            if not self._closing:
                raise
            self._keep(error)
        except AbortRequested:
            if not self._closing:
                raise
        finally:
            self._delivering = False
        if outbox:
            self.flush()

    def _keep(self, error: Exception) -> None:
        """Keep what `emit` raised while the run was being closed: the closing goes on, without listeners."""
        log_failure("loop", error, "`emit` failed while a run was being closed")
        self.kept = error
        if self.failure_kind is None:
            self.failure, self.failure_kind = error_text(error), type(error).__name__

    def raise_kept(self) -> None:
        """Raise what was kept, if anything was."""
        kept, self.kept = self.kept, None
        if kept is not None:
            raise kept

    def _commit(self, event: MessageEndEvent) -> None:
        if self._commitment[0] is not event:
            self._commitment = (event, len(self.new_messages) + 1)
        if len(self.new_messages) < self._commitment[1]:
            position = self.batch.position_of(event.message) if self.batch is not None else None
            self.new_messages.insert(len(self.new_messages) if position is None else position, event.message)

    def open(self, prompts: Iterable[AgentMessage]) -> None:
        """Decide on the events that a run begins with; whatever stops it, the prompts are in the transcript."""
        events = [event for message in prompts for event in (MessageStartEvent(message), MessageEndEvent(message))]
        self.opening = (AgentStartEvent(), TurnStartEvent(), *events)

    def inject(self, pending: Iterable[AgentMessage]) -> None:
        """Add messages from a queue, one by one: those that a run does not get to can go back to it."""
        for message in pending:
            self.emit(MessageStartEvent(message), MessageEndEvent(message))

    # --- responses and turns ----------------------------------------------------------------------------------------

    def finish_response(self, message: AssistantMessage) -> AssistantMessage:
        """Put the final message of a response into the transcript."""
        response = self.response
        assert response is not None
        if response.end is None:
            response.end = MessageEndEvent(message)
        failed = message.stop_reason in ("error", "aborted")
        if not failed and message.tool_calls and self.batch is None:
            # Made before anybody sees the message, so that the arguments are copied before a listener can touch them,
            # and recorded before its end is sent, so that the calls are answered whatever comes in between.
            self.take_on(message, message.tool_calls, len(self.new_messages) + 1)
        self.wants_reply = self.batch is not None
        self.natural_end = message.stop_reason if failed else "completed"
        if not response.start_is_sent:
            if response.start is None:
                response.start = MessageStartEvent(message)
            self.emit(response.start)
            response.start_is_sent = True
        self.emit(response.end)
        self.turn = (message, ())
        self.response = None
        return message

    def cut_short(self, stop_reason: str, error: ErrorInfo) -> AssistantMessage:
        """Return what has arrived of the response as a message that ends here."""
        partial = self.response.partial if self.response is not None else None
        if isinstance(partial, PartialMessage):
            message = partial.snapshot()
        elif partial is not None:
            message = partial
        else:
            message = AssistantMessage(
                (), api=self.model.api, provider=self.model.provider, model=self.model.id, stop_reason="aborted"
            )
        return attrs.evolve(message, stop_reason=stop_reason, error=error)

    def take_on(
        self, message: AssistantMessage, calls: Sequence[ToolCall], position: int, decide: BeforeHook | None = None
    ) -> None:
        """Record calls of a message as the batch to answer next; results go into the transcript from `position` on."""
        from agentcore._tool_batch import ToolBatch  # most of what a run needs only for tools

        self.batch = ToolBatch(self, message, calls, position, decide)

    def answer_calls(self, batch: ToolBatch) -> ExecutedToolCallBatch:
        """Run the tool calls of the turn, or what an interrupt has left of them, and close the turn."""
        executed = batch.advance()
        self.turn = (batch.message, executed.messages)
        self.wants_reply = not (executed.terminate or executed.paused)
        self.natural_end = "paused" if executed.paused else "terminated" if executed.terminate else "completed"
        self.end_turn(executed.messages)
        return executed

    def end_turn(self, results: tuple[ToolResultMessage, ...] = ()) -> None:
        """Close the turn that is open."""
        assert self.turn is not None
        message = self.turn[0]
        self.turn = (message, results)
        self.batch = None
        self.emit(TurnEndEvent(message, results))
        self.turn = None

    # --- limits -----------------------------------------------------------------------------------------------------

    def count(self, usage: Usage | None, *, of_model: bool = False) -> None:
        """Add a usage to what the run has spent; one of the run's model has its prices."""
        if usage is None:
            self.cost_is_known = self.cost_is_known and not of_model
            return
        self.usage = self.usage + usage
        cost = usage_cost(self.model, usage) if usage.cost is None and of_model else usage.cost
        if cost is None:
            self.cost_is_known = False
        else:
            self.cost += cost.get("total", sum(cost.values()))

    def limit_reached(self) -> str | None:
        """Return the limit that has been reached, as an end reason."""
        limits = self.config.limits
        if limits is None:
            return None
        if limits.turns is not None and self.turns >= limits.turns:
            return "limit:turns"
        if limits.tokens is not None and self.usage.total_tokens >= limits.tokens:
            return "limit:tokens"
        if limits.cost is not None and (self.cost >= limits.cost or not has_prices(self.model)):
            return "limit:cost"
        if limits.seconds is not None and time.monotonic() - self.started >= limits.seconds:
            return "limit:seconds"
        return None

    # --- the ways out -----------------------------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Say that the run is over."""
        if type(self.last) is AgentEndEvent:
            return
        if reason == "error":
            self._log_error()
        self.emit(AgentEndEvent(self.new_messages, reason))

    def _log_error(self) -> None:
        what = "a run of %s/%s ended in an error: %s"
        if self.failure_kind is not None:
            # What a hook raised is raised again to the caller; what it says may not be for a log.
            log_warning("loop", what, self.model.provider, self.model.id, self.failure_kind)
            return
        last = next(one for one in reversed(self.new_messages) if isinstance(one, AssistantMessage))
        error = last.error or ErrorInfo("unknown", "no reason was given")
        log_warning("loop", what, last.provider, last.model, f"{error.kind}: {error.message}")

    def close(self, failure: BaseException) -> str:
        """Stop everything and close what is open; return the reason the run ends with.

        An abort or an interrupt leaves an `aborted` message as the last word, if a reply was wanted; a failure of a
        hook or of `emit` adds none if no response was open. Once more, after an interrupt, it goes on from there.
        """
        failed = isinstance(failure, Exception)
        self._delivering = False
        self._closing = True
        # Whoever decided on these may not have noted yet that they were sent, and will want to send them again.
        self._taken_over.extend([event for event in (self.last, *self.outbox) if event is not None])
        reason = abort_reason(failure)
        self.failure = error_text(failure) if failed else text_of(reason)
        self.failure_kind = type(failure).__name__ if failed else None
        if not isinstance(failure, (Exception, AbortRequested)):
            self.abort_grace = min(self.abort_grace, _LONGEST_GRACE_AFTER_INTERRUPT)
        self.controller.abort(reason)
        self.flush()
        if self.last is None:
            self.emit(*self.opening)
        response = self.response
        if response is not None and (response.start is not None or response.end is not None or not failed):
            self._cut_response()
        self.response = None
        if self.batch is not None:
            self.answer_calls(self.batch)
        elif self.turn is not None and type(self.last) is not TurnEndEvent:
            self.end_turn(self.turn[1])
        if failed:
            return "error"
        self._say_aborted()
        if self.kept is not None:
            return "error"
        return self.natural_end if isinstance(failure, AbortRequested) else "aborted"

    def _cut_response(self) -> None:
        response = self.response
        assert response is not None
        if response.end is not None and isinstance(response.end.message, AssistantMessage):
            self.finish_response(response.end.message)
        else:
            error = ErrorInfo("aborted", text_of(self.signal.reason))
            self.finish_response(self.cut_short("aborted", error))

    def _say_aborted(self) -> None:
        """Close an open turn, or add a last one, with an empty aborted message, if a reply was wanted."""
        open_turn = type(self.last) not in (TurnEndEvent, AgentEndEvent)
        if type(self.last) is AgentEndEvent or not (open_turn or self.wants_reply):
            return
        if not open_turn:
            self.emit(TurnStartEvent())
        self.response = Response()
        self._cut_response()
        self.end_turn()
