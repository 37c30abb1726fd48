"""The two unions of events: what a model's stream emits, and what the loop emits.

Stream events (`StreamEvent`) come from a stream function. The first is a `StartEvent`, the last a `DoneEvent` or an
`ErrorEvent`; between them each block of the message has a start, deltas and an end, told apart by `content_index`.
Every one but the retry, done and error events carries `partial`: the message exactly as it stood at that event.

Loop events (`AgentEvent`) nest: an agent run holds turns, a turn holds messages and tool executions.

Events compare by value and must not be changed. `to_dict()` gives data that JSON can hold, tagged by `type`; it leaves
`partial` out, since it would repeat the whole message at each delta.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import attrs

from agentcore._records import Valued, json_safe, shortened
from agentcore.content import ToolCall
from agentcore.messages import AgentMessage, AssistantMessage, CompactionSummaryMessage, ToolResultMessage, Usage
from agentcore.partial import PartialMessage

__all__ = [
    "AgentEndEvent",
    "AgentEvent",
    "AgentStartEvent",
    "CompactionEndEvent",
    "CompactionStartEvent",
    "DoneEvent",
    "ErrorEvent",
    "MessageEndEvent",
    "MessageStartEvent",
    "MessageUpdateEvent",
    "RequestRetryEvent",
    "StartEvent",
    "StreamEvent",
    "TextDeltaEvent",
    "TextEndEvent",
    "TextStartEvent",
    "ThinkingDeltaEvent",
    "ThinkingEndEvent",
    "ThinkingStartEvent",
    "ToolCallDeltaEvent",
    "ToolCallEndEvent",
    "ToolCallStartEvent",
    "ToolExecutionEndEvent",
    "ToolExecutionStartEvent",
    "ToolExecutionUpdateEvent",
    "TurnEndEvent",
    "TurnStartEvent",
]


class _Event(Valued):
    """The base of events: their `repr` and their dict form."""

    __slots__ = ()
    type: ClassVar[str]

    def __repr__(self) -> str:
        fields = attrs.fields(type(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{f.name}={shortened(getattr(self, f.name))}' for f in fields)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the event as data that JSON can hold, without `partial`; never raises."""
        data: dict[str, Any] = {"type": self.type}
        for field in attrs.fields(type(self)):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name != "partial" and not isinstance(value, PartialMessage):
                data[field.name] = json_safe(value)
        return data


# --- what a model's stream emits ------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class StartEvent(_Event):
    """The response has begun."""

    type: ClassVar[str] = "start"
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class TextStartEvent(_Event):
    """A text block begins."""

    type: ClassVar[str] = "text_start"
    content_index: int
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class TextDeltaEvent(_Event):
    """A text block grows by `delta`."""

    type: ClassVar[str] = "text_delta"
    content_index: int
    delta: str
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class TextEndEvent(_Event):
    """A text block is complete; `content` is all of it."""

    type: ClassVar[str] = "text_end"
    content_index: int
    content: str
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class ThinkingStartEvent(_Event):
    """A thinking block begins."""

    type: ClassVar[str] = "thinking_start"
    content_index: int
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class ThinkingDeltaEvent(_Event):
    """A thinking block grows by `delta`."""

    type: ClassVar[str] = "thinking_delta"
    content_index: int
    delta: str
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class ThinkingEndEvent(_Event):
    """A thinking block is complete; `content` is all of it."""

    type: ClassVar[str] = "thinking_end"
    content_index: int
    content: str
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class ToolCallStartEvent(_Event):
    """A tool call begins."""

    type: ClassVar[str] = "toolcall_start"
    content_index: int
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class ToolCallDeltaEvent(_Event):
    """The raw text of a call's arguments grows by `delta`."""

    type: ClassVar[str] = "toolcall_delta"
    content_index: int
    delta: str
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class ToolCallEndEvent(_Event):
    """A tool call is complete."""

    type: ClassVar[str] = "toolcall_end"
    content_index: int
    tool_call: ToolCall
    partial: AssistantMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class DoneEvent(_Event):
    """The response is complete."""

    type: ClassVar[str] = "done"
    message: AssistantMessage


@attrs.define(eq=False, repr=False)
class ErrorEvent(_Event):
    """The response failed or was aborted; `message` holds what had arrived and says why."""

    type: ClassVar[str] = "error"
    message: AssistantMessage


@attrs.define(eq=False, repr=False)
class RequestRetryEvent(_Event):
    """A request failed and will be sent again after `delay` seconds; `attempt` counts from 1. In both unions."""

    type: ClassVar[str] = "request_retry"
    attempt: int
    delay: float
    reason: str


StreamEvent = (
    StartEvent
    | TextStartEvent
    | TextDeltaEvent
    | TextEndEvent
    | ThinkingStartEvent
    | ThinkingDeltaEvent
    | ThinkingEndEvent
    | ToolCallStartEvent
    | ToolCallDeltaEvent
    | ToolCallEndEvent
    | DoneEvent
    | ErrorEvent
    | RequestRetryEvent
)


# --- what the loop emits --------------------------------------------------------------------------------------------


def _messages(messages: Iterable[AgentMessage]) -> tuple[AgentMessage, ...]:
    return tuple(messages)


def _results(results: Iterable[ToolResultMessage]) -> tuple[ToolResultMessage, ...]:
    return tuple(results)


@attrs.define(eq=False, repr=False)
class AgentStartEvent(_Event):
    """A run begins."""

    type: ClassVar[str] = "agent_start"


@attrs.define(eq=False, repr=False)
class AgentEndEvent(_Event):
    """A run is over.

    `messages` are the prompts and all that the run added. `reason` is `completed`, `terminated` (by the tools),
    `stopped` (by `should_stop_after_turn`), `paused`, `error`, `aborted`, `limit:turns`, `limit:tokens`, `limit:cost`
    or `limit:seconds`.
    """

    type: ClassVar[str] = "agent_end"
    messages: tuple[AgentMessage, ...] = attrs.field(converter=_messages)
    reason: str = "completed"


@attrs.define(eq=False, repr=False)
class TurnStartEvent(_Event):
    """A turn begins: one response of the model and the tool calls it asks for."""

    type: ClassVar[str] = "turn_start"


@attrs.define(eq=False, repr=False)
class TurnEndEvent(_Event):
    """A turn is over; `tool_results` are in the order of the calls."""

    type: ClassVar[str] = "turn_end"
    message: AssistantMessage
    tool_results: tuple[ToolResultMessage, ...] = attrs.field(default=(), converter=_results)


@attrs.define(eq=False, repr=False)
class MessageStartEvent(_Event):
    """A message begins; one of the model is partial at this point."""

    type: ClassVar[str] = "message_start"
    message: AgentMessage | PartialMessage


@attrs.define(eq=False, repr=False)
class MessageUpdateEvent(_Event):
    """The model's message has grown; `message` is how it stands, `assistant_message_event` what came."""

    type: ClassVar[str] = "message_update"
    message: AssistantMessage | PartialMessage
    assistant_message_event: StreamEvent

    def to_dict(self) -> dict[str, Any]:
        """Return the event as data, without the message that it repeats."""
        return {"type": self.type, "assistant_message_event": self.assistant_message_event.to_dict()}


@attrs.define(eq=False, repr=False)
class MessageEndEvent(_Event):
    """A message is complete and in the transcript."""

    type: ClassVar[str] = "message_end"
    message: AgentMessage


@attrs.define(eq=False, repr=False)
class ToolExecutionStartEvent(_Event):
    """A tool call is taken up, with the arguments the model gave."""

    type: ClassVar[str] = "tool_execution_start"
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]


@attrs.define(eq=False, repr=False)
class ToolExecutionUpdateEvent(_Event):
    """A running tool reports progress; `partial_result` is an `AgentToolResult`."""

    type: ClassVar[str] = "tool_execution_update"
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    partial_result: Any


@attrs.define(eq=False, repr=False)
class ToolExecutionEndEvent(_Event):
    """A tool call is answered; `result` is an `AgentToolResult`."""

    type: ClassVar[str] = "tool_execution_end"
    tool_call_id: str
    tool_name: str
    result: Any
    is_error: bool


@attrs.define(eq=False, repr=False)
class CompactionStartEvent(_Event):
    """The past of an agent's conversation is about to be summarised.

    `reason` is `threshold` or `overflow`; `tokens` is what the conversation takes, by estimate.
    """

    type: ClassVar[str] = "compaction_start"
    reason: str
    tokens: int


@attrs.define(eq=False, repr=False)
class CompactionEndEvent(_Event):
    """A compaction is over: `summary` stands for the past from here on, or `error` says why nothing has changed.

    `tokens` is what the conversation takes now, by estimate, and `usage` what making the summary took, if that is known.
    """

    type: ClassVar[str] = "compaction_end"
    summary: CompactionSummaryMessage | None
    tokens: int
    error: str | None = None
    usage: Usage | None = None


AgentEvent = (
    AgentStartEvent
    | AgentEndEvent
    | TurnStartEvent
    | TurnEndEvent
    | MessageStartEvent
    | MessageUpdateEvent
    | MessageEndEvent
    | ToolExecutionStartEvent
    | ToolExecutionUpdateEvent
    | ToolExecutionEndEvent
    | RequestRetryEvent
    | CompactionStartEvent
    | CompactionEndEvent
)
