"""The value that a notebook shows, as HTML and as Markdown."""

from __future__ import annotations

from agentcore.agent import Agent
from agentcore.display._html import agent_html, message_html, result_html, usage_html
from agentcore.display._markdown import without_html
from agentcore.display._text import error_words, usage_words
from agentcore.messages import AssistantMessage, ToolResultMessage, Usage
from agentcore.tools import AgentToolResult

__all__ = ["html_of", "markdown_of"]


def html_of(value: object) -> str:
    """Return a value as HTML."""
    if isinstance(value, AssistantMessage):
        return message_html(value)
    if isinstance(value, Usage):
        return usage_html(value)
    if isinstance(value, (AgentToolResult, ToolResultMessage)):
        return result_html(value)
    if isinstance(value, Agent):
        return agent_html(value)
    raise TypeError(f"{type(value).__name__} is not shown in a way of its own")


def markdown_of(value: object) -> str | None:
    """Return a value as Markdown; `None` for one that is not made of text."""
    if isinstance(value, Usage):
        return usage_words(value, None if value.cost is None else value.cost.get("total"))
    if not isinstance(value, AssistantMessage):
        return None
    text = without_html(value.text)
    if value.stop_reason not in ("error", "aborted"):
        return text
    return "\n\n".join(filter(None, [text, without_html(error_words(value.error))]))
