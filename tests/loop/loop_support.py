"""What the tests of the loop share: short runs, and their events as lines to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from agentcore.abort import AbortSignal
from agentcore.config import AgentContext, AgentLoopConfig
from agentcore.content import TextContent, ThinkingContent, ToolCall
from agentcore.events import AgentEndEvent, MessageUpdateEvent, TurnEndEvent
from agentcore.loop import drive, new_run, run_agent_loop
from agentcore.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from agentcore.testing import ScriptedModel, scripted, scripted_model
from agentcore.tools import AgentTool

ANYTHING: dict[str, Any] = {"type": "object"}

Execute = Callable[..., Any]


def tool(name: str, execute: Execute | None = None, schema: dict[str, Any] | None = None, **options: Any) -> AgentTool:
    """Return a tool; without `execute` it answers `ran` and its arguments' values."""
    return AgentTool(name, name.title(), f"The tool {name}.", schema or ANYTHING, execute or _echo, **options)


def _echo(call_id: str, params: dict[str, Any], signal: AbortSignal, on_update: Any, context: Any) -> str:
    return " ".join(["ran", *map(str, params.values())])


def returns(value: Any) -> Execute:
    """Return an `execute` that returns a value, or raises it if it is an exception."""

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return execute


@attrs.define(eq=False)
class Played:
    """A run that has ended: its events, what it returned or raised, and what the model was asked."""

    events: list[Any]
    model: Any
    messages: list[Any] = attrs.field(factory=list)
    failure: BaseException | None = None

    @property
    def lines(self) -> list[str]:
        """The events but for the updates of messages, one line each."""
        return [line(event) for event in self.events if not isinstance(event, MessageUpdateEvent)]

    @property
    def all_lines(self) -> list[str]:
        """All events, one line each."""
        return [line(event) for event in self.events]

    @property
    def reason(self) -> str:
        """Why the run ended."""
        assert isinstance(self.events[-1], AgentEndEvent)
        return self.events[-1].reason

    @property
    def results(self) -> list[ToolResultMessage]:
        """The results of tool calls, in the order of the transcript."""
        return [message for message in self.messages if isinstance(message, ToolResultMessage)]

    @property
    def turn_ends(self) -> list[TurnEndEvent]:
        """The ends of the turns."""
        return [event for event in self.events if isinstance(event, TurnEndEvent)]

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of a class."""
        return [event for event in self.events if type(event) is kind]


def play(
    *replies: Any,
    prompts: Any = "hi",
    tools: Sequence[AgentTool] = (),
    history: Iterable[AgentMessage] = (),
    emit: Callable[[Any], object] | None = None,
    signal: AbortSignal | None = None,
    stream_fn: Any = None,
    model: Any = None,
    **config: Any,
) -> Played:
    """Run the loop over scripted replies; what it raises is kept.

    `emit` sees each event after it was noted.
    """
    script: Any = stream_fn if stream_fn is not None else scripted(*replies)
    played = Played([], script)

    def note(event: Any) -> None:
        played.events.append(event)
        if emit is not None:
            emit(event)

    context = AgentContext("Be brief.", history, tools)
    settings = AgentLoopConfig(model=model if model is not None else scripted_model(), **config)
    added: list[AgentMessage] = []
    run = new_run(context, settings, note, signal, script, added)
    played.messages = added
    try:
        drive(run, [UserMessage(prompts)] if isinstance(prompts, str) else prompts)
    except BaseException as failure:
        played.failure = failure
    return played


def answer(*replies: Any, **options: Any) -> Played:
    """Do the same as `play`, and raise what the run raised."""
    played = play(*replies, **options)
    if played.failure is not None:
        raise played.failure
    assert played.messages == list(played.events[-1].messages)
    return played


def quick_run(*replies: Any, tools: Sequence[AgentTool] = (), **config: Any) -> list[AgentMessage]:
    """Run the loop without looking at its events."""
    settings = AgentLoopConfig(model=scripted_model(), **config)
    return run_agent_loop("hi", AgentContext(tools=tools), settings, _nowhere, stream_fn=ScriptedModel(replies))


def _nowhere(event: Any) -> None:
    """Take no event."""


# --- lines ----------------------------------------------------------------------------------------------------------


def shown(content: Any) -> str:
    """Return content as text: blocks one after the other, a call as `<name:id>`."""
    if isinstance(content, str):
        return content
    return " ".join(_shown_block(block) for block in content)


def _shown_block(block: Any) -> str:
    match block:
        case TextContent():
            return block.text
        case ThinkingContent():
            return f"({block.thinking})"
        case ToolCall():
            return f"<{block.name}:{block.id}>"
    return type(block).__name__


def _message(message: Any) -> str:
    match message:
        case ToolResultMessage():
            return f"result {message.tool_call_id}" + (" error" if message.is_error else f": {shown(message.content)}")
        case AssistantMessage():
            return f"assistant {message.stop_reason}: {shown(message.content)}".rstrip(": ")
    return f"{message.role}: {shown(message.content)}"


def line(event: Any) -> str:
    """Return an event as one line; the text of error results is left to the tests that are about it."""
    match event.type:
        case "message_start" if event.message.role == "assistant":
            return "start assistant"
        case "message_start":
            return f"start {_message(event.message)}"
        case "message_end":
            return f"end {_message(event.message)}"
        case "message_update":
            inner = event.assistant_message_event
            return f"{inner.type} {inner.delta!r}" if hasattr(inner, "delta") else inner.type
        case "tool_execution_start":
            return f"call {event.tool_call_id} {event.tool_name} {event.args}"
        case "tool_execution_update":
            return f"progress {event.tool_call_id}: {shown(event.partial_result.content)}"
        case "tool_execution_end":
            text = "error" if event.is_error else shown(event.result.content)
            return f"done {event.tool_call_id}: {text}"
        case "turn_end":
            return " ".join(["turn_end", *(result.tool_call_id for result in event.tool_results)])
        case "agent_end":
            return f"agent_end {event.reason}"
        case "request_retry":
            return f"retry {event.attempt}"
    return str(event.type)
