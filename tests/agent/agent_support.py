"""What the tests of the agent share: short agents, and what must hold of a transcript whatever happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcore import Agent, AgentTool, AssistantMessage, ToolResultMessage, UserMessage
from agentcore.testing import scripted, scripted_model

ANYTHING = {"type": "object"}


def tool(name: str = "echo", execute: Any = lambda *given: f"ran {given[1]}", **fields: Any) -> AgentTool:
    """Return a tool; without `execute` it says its arguments."""
    return AgentTool(name, name, f"Does {name}.", ANYTHING, execute, **fields)


def agent_with(*replies: Any, tools: Any = (), repeat: bool = False, **given: Any) -> Agent:
    """Return an agent whose model plays replies."""
    return Agent(scripted_model(), tools=tools, stream_fn=scripted(*replies, repeat=repeat), **given)


def roles(agent: Agent) -> list[str]:
    """Return the roles of the transcript."""
    return [message.role for message in agent.state.messages]


def said(agent: Agent) -> list[Any]:
    """Return what the user messages of the transcript say."""
    return [message.content for message in agent.messages if isinstance(message, UserMessage)]


def requests(agent: Agent) -> list[Any]:
    """Return what the scripted model of an agent was asked."""
    return agent.stream_fn.requests


def transcript_problems(messages: Sequence[Any]) -> list[str]:
    """Return what is wrong with a transcript: every call of a finished message has one result, next to it, in order."""
    problems = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if isinstance(message, ToolResultMessage):
            problems.append(f"message {at - 1} answers no call")
        if not isinstance(message, AssistantMessage):
            continue
        calls = [call.id for call in message.tool_calls] if message.stop_reason not in ("error", "aborted") else []
        answered = []
        while at < len(messages) and isinstance(messages[at], ToolResultMessage):
            answered.append(messages[at].tool_call_id)
            at += 1
        if answered != calls:
            problems.append(f"the calls {calls} were answered for {answered}")
    return problems
