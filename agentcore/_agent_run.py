"""What an agent knows of its run, and the records it tells of it: its state, and what it is doing.

Guarantees for threads. An `AgentRun` is written by the thread of its run alone and read by any. It holds the
transcript up to the run and the list that the run adds to, so that both change together when the agent turns to its
next run, and an interrupt between any two bytecodes loses no message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from agentcore._foreign import error_text
from agentcore._interrupts import Interrupts
from agentcore._records import Record
from agentcore._run import Run
from agentcore.abort import AbortController
from agentcore.errors import AgentBusyError
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RequestRetryEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from agentcore.messages import AgentMessage, AssistantMessage, Usage
from agentcore.models import Model, ThinkingLevel
from agentcore.partial import PartialMessage
from agentcore.tokens import estimate_tokens
from agentcore.tools import AgentTool

__all__ = ["AgentRun", "AgentState", "AgentStatus", "RunningCall", "busy_error"]

_IDLE = "idle"
_WAITING_FOR_MODEL = "waiting for model"
_STREAMING = "streaming"
_RUNNING_TOOLS = "running tools"
_WAITING_TO_RETRY = "waiting to retry"
_COMPACTING = "compacting"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentState(Record):
    """An agent as it was at one moment.

    `messages` is the transcript, as a list of the reader's own. `streaming_message` is what has arrived of the response
    that is being streamed, `pending_tool_calls` the ids of the calls that have started and not ended. `error_message`
    says what went wrong in the latest run, if it ended in an error, was aborted or was interrupted.
    """

    system_prompt: str
    model: Model
    thinking_level: ThinkingLevel
    tools: tuple[AgentTool, ...]
    messages: list[AgentMessage]
    is_streaming: bool
    streaming_message: AssistantMessage | PartialMessage | None
    pending_tool_calls: frozenset[str]
    error_message: str | None


@attrs.frozen(eq=False, repr=False)
class RunningCall(Record):
    """A tool call that is being executed: for how many seconds, and on the thread of which name."""

    tool_call_id: str
    tool_name: str
    seconds: float
    thread_name: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentStatus(Record):
    """What an agent is doing.

    `phase` is `idle`, `waiting for model`, `streaming`, `running tools`, `waiting to retry` or `compacting`. `turn`
    counts from 1; with `usage` and `cost` (USD; `None` when a price is unknown) it is about the run that is going on,
    or about the latest one of an idle agent. The queues hold what no run has taken yet.
    """

    phase: str
    turn: int
    running_calls: tuple[RunningCall, ...]
    steering_queue: tuple[AgentMessage, ...]
    follow_up_queue: tuple[AgentMessage, ...]
    usage: Usage
    cost: float | None
    _messages: Sequence[AgentMessage] = attrs.field(repr=False, eq=False)

    @property
    def tokens(self) -> int:
        """What the conversation takes, by an estimate that is made when it is asked for."""
        return estimate_tokens(self._messages)


@attrs.define(eq=False, repr=False)
class AgentRun:
    """One run of an agent, from before it begins until the next one takes its place."""

    base: Sequence[AgentMessage] = ()
    # Set by a compaction: what stands in place of everything up to there, and how many of `added` that is.
    compacted: tuple[Sequence[AgentMessage], int] | None = None
    added: list[AgentMessage] = attrs.field(factory=list)
    controller: AbortController = attrs.field(factory=AbortController)
    ended: AbortController = attrs.field(factory=AbortController)
    interrupts: Interrupts = attrs.field(factory=Interrupts)
    run: Run | None = None
    owner: dict[str, str] = attrs.field(factory=dict)
    forward: Callable[[AgentEvent], object] | None = None
    held: AgentEvent | None = None
    skips_steering: bool = False
    logged: set[tuple[object, str]] = attrs.field(factory=set)
    # Of the thread that the run is on, whose hooks may change what nobody else may during it.
    thread_id: int | None = None

    turn: int = 0
    phase: str = _WAITING_FOR_MODEL
    retry_at: float = 0.0
    streaming_message: AssistantMessage | PartialMessage | None = None
    started_calls: list[str] = attrs.field(factory=list)
    error_message: str | None = None
    usage: Usage = attrs.field(factory=lambda: Usage(cost={}))
    cost: float | None = 0.0

    @property
    def messages(self) -> list[AgentMessage]:
        """The transcript, with what the run has added so far."""
        base, skipped = self.compacted or (self.base, 0)
        return [*base, *self.added[skipped:]]

    @property
    def is_here(self) -> bool:
        """Whether the current thread is the one that the run is on, which its workers are not."""
        return self.run is not None and self.thread_id == threading.get_ident()

    def take(self, event: AgentEvent) -> None:
        """Bring the state up to an event, before anybody else sees it."""
        kind = type(event)
        if kind is MessageUpdateEvent:
            self.streaming_message = event.message  # type: ignore[union-attr,assignment]
            return
        match event:
            case MessageStartEvent(message) if isinstance(message, (AssistantMessage, PartialMessage)):
                self.streaming_message, self.phase = message, _STREAMING
            case MessageEndEvent(message) if isinstance(message, AssistantMessage):
                self.streaming_message, self.error_message = None, message.error_message
            case ToolExecutionStartEvent(tool_call_id):
                self.started_calls.append(tool_call_id)
                self.phase = _RUNNING_TOOLS
            case ToolExecutionEndEvent(tool_call_id):
                if tool_call_id in self.started_calls:  # not if an interrupt came before its start was taken in
                    self.started_calls.remove(tool_call_id)
            case RequestRetryEvent(_, delay):
                self.retry_at = time.monotonic() + delay
                self.phase = _WAITING_TO_RETRY
            case TurnStartEvent():
                self.turn += 1
            case CompactionStartEvent():
                self.phase = _COMPACTING
            case CompactionEndEvent():
                self.phase = _WAITING_FOR_MODEL
                if self.run is not None and event.usage is not None:
                    self.run.count(event.usage)
            case TurnEndEvent():
                self.phase = _WAITING_FOR_MODEL
            case AgentEndEvent():
                self.started_calls.clear()  # those of paused calls are left
                if self.run is not None and self.run.failure is not None:
                    self.error_message = self.run.failure
            case _:
                pass

    def pass_on(self, event: AgentEvent, forward: Callable[[AgentEvent], object]) -> None:
        """Give an event to a stream; the last one is held until the agent is idle."""
        if type(event) is AgentEndEvent:
            self.held = event
        else:
            forward(event)

    def fail(self, failure: BaseException) -> None:
        """Note what came out of the run, whose last events may not have been sent."""
        if isinstance(failure, Exception):
            self.error_message = error_text(failure)
        elif self.error_message is None:
            self.error_message = "interrupted"

    def wait(self, timeout: float | None) -> bool:
        """Wait until the run has ended; return whether it has."""
        interrupts = Interrupts()
        try:
            return interrupts.reaching(lambda: self.ended.signal.wait(timeout))
        finally:
            interrupts.give_back()

    def leave(self) -> None:
        """Keep the figures of a run that is over, and nothing else of it; once more does no harm."""
        run = self.run
        self.streaming_message = self.forward = self.held = None
        self.started_calls.clear()
        self.logged.clear()
        if run is not None:
            self.usage, self.cost = run.usage, _cost(run)
            self.run = None

    def state(self, settings: Mapping[str, Any], *, busy: bool) -> AgentState:
        """Return the agent as it is, by its settings."""
        return AgentState(
            system_prompt=settings["system_prompt"],
            model=settings["model"],
            thinking_level=settings["reasoning"],
            tools=settings["tools"],
            messages=self.messages,
            is_streaming=busy,
            streaming_message=self.streaming_message,
            pending_tool_calls=frozenset(self.started_calls),
            error_message=self.error_message,
        )

    def status(
        self, steering: tuple[AgentMessage, ...], follow_ups: tuple[AgentMessage, ...], *, busy: bool
    ) -> AgentStatus:
        """Return what the run is doing."""
        run, phase = self.run, self.phase
        if not busy:
            phase = _IDLE
        elif phase == _WAITING_TO_RETRY and time.monotonic() >= self.retry_at:
            phase = _WAITING_FOR_MODEL
        return AgentStatus(
            phase=phase,
            turn=self.turn,
            running_calls=_running_calls(run) if run is not None else (),
            steering_queue=steering,
            follow_up_queue=follow_ups,
            usage=run.usage if run is not None else self.usage,
            cost=_cost(run) if run is not None else self.cost,
            messages=self.messages,
        )


def _cost(run: Run) -> float | None:
    return run.cost if run.cost_is_known else None


def _running_calls(run: Run) -> tuple[RunningCall, ...]:
    batch = run.batch
    records = batch.records if batch is not None else ()
    running = []
    for record in records:
        # Read once each, and the clock after that: the thread of the run may go on meanwhile.
        started, thread_name = record.started_at, record.thread_name
        if record.state == "running" and started is not None and thread_name is not None:
            running.append(RunningCall(record.call.id, record.call.name, time.monotonic() - started, thread_name))
    return tuple(running)


def busy_error(what: str) -> AgentBusyError:
    """Return the error for what cannot be done during a run."""
    return AgentBusyError(
        f"cannot {what} during a run: `steer` and `follow_up` add messages to it, `abort` ends it, and `wait_for_idle` "
        "waits for its end"
    )
