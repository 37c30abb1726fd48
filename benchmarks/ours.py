"""agentcore at three levels: `stream_response`, `run_agent_loop` with an empty `emit`, `Agent` with a listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AgentTool,
    AssistantMessage,
    MessageUpdateEvent,
    Model,
    ModelContext,
    StreamOptions,
    TextDeltaEvent,
    UserMessage,
    run_agent_loop,
    stream_response,
)

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def model_for(base: str, api: str, name: str) -> Model:
    """Return the model of a scenario."""
    if api == "anthropic":
        return Model(name, api="anthropic-messages", provider="anthropic", base_url=base, max_tokens=4096)
    return Model(name, provider="openai", base_url=f"{base}/v1")


def note_tool() -> AgentTool:
    """Return a tool that gives its argument back."""
    return AgentTool("note", "Note", "Take a note.", SCHEMA, lambda id, params, *rest: params["text"] or "-")


def nothing(event: object) -> None:
    """Take an event."""


def respond(model: Model) -> AssistantMessage:
    """Read one response through `stream_response`."""
    context = ModelContext("", [UserMessage("hi")], ())
    message = None
    for event in stream_response(model, context, StreamOptions(api_key="sk-bench")):
        message = getattr(event, "message", message)
    assert isinstance(message, AssistantMessage)
    return message.raise_for_error()


def loop(model: Model, tools: tuple[AgentTool, ...] = (), messages: tuple[Any, ...] = ()) -> list[Any]:
    """Run the loop with an empty `emit`."""
    config = AgentLoopConfig(model=model, api_key="sk-bench")
    new = run_agent_loop("hi", AgentContext("", messages, tools), config, nothing)
    new[-1].raise_for_error()
    return new


def agent(model: Model, on_delta: Callable[[str], object]) -> AssistantMessage:
    """Prompt an agent with one listener that reads each delta."""
    from agentcore import Agent

    def listen(event: object, signal: object) -> None:
        if type(event) is MessageUpdateEvent:
            inner = event.assistant_message_event
            if type(inner) is TextDeltaEvent:
                on_delta(inner.delta)

    holder = Agent(model, config=AgentLoopConfig(model=model, api_key="sk-bench"))
    holder.subscribe(listen)
    return holder.prompt("hi").raise_for_error()
