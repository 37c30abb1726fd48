"""What the tests of sessions share: a message of every class, and texts that are hard to store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentcore import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ErrorInfo,
    ImageContent,
    ProviderContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.sessions import Session

HARD_TEXTS = {
    "separators": "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven",
    "line ends": "a\r\nb\rc\nd\n",
    "lone surrogates": "\ud800 and \udfff, \udc80\ud83d",
    "NUL": "before\x00after",
    "quotes": '\\ " / \\n \\u0000 {"type":"session"}\n{"id":"x"}',
    "all of Unicode": "é 你好 🎙️ \ufeff \uffff \U0010ffff",
    "nothing": "",
    "ten megabytes": "0123456789abcde\n" * 655_360,
}


def every_message(text: str = "some text") -> list[Any]:
    """Return messages of every class, with every field set in one of them."""
    usage = Usage(10, 20, 30, 40, 5, 100, {"input": 0.1, "total": 0.3})
    return [
        UserMessage(text, timestamp=1),
        UserMessage([TextContent(text, signature="s"), ImageContent("aGk=", "image/png")], timestamp=2),
        AssistantMessage(
            [
                ThinkingContent(text, signature="proof", redacted=True),
                TextContent(text),
                ToolCall("c1", "read", {"path": text, "deep": [{"n": 1.5, "b": True, "z": None}]}),
                ToolCall("c2", "read", {}, partial_json=text, thought_signature="t"),
                ProviderContent("p", "a", {"type": "server_tool", "text": text}),
            ],
            api="a",
            provider="p",
            model="m",
            usage=usage,
            stop_reason="tool_use",
            response_id="r",
            raw_stop_reason="tool_calls",
            timestamp=3,
        ),
        AssistantMessage(
            (), stop_reason="error", error=ErrorInfo("rate_limit", text, 429, "c", "t", "q", 1.5), timestamp=4
        ),
        ToolResultMessage(
            "c1", "read", [TextContent(text)], {"size": 3, "text": text}, usage, ("more",), True, timestamp=5
        ),
        BashExecutionMessage(text, text, 1, True, True, "/tmp/x", True, timestamp=6),
        CompactionSummaryMessage(text, 900, timestamp=7),
        BranchSummaryMessage(text, "abc", timestamp=8),
        CustomMessage("note", text, False, {"who": text}, timestamp=9),
        CustomMessage("note", [TextContent(text)], timestamp=10),
    ]


def session_of(path: Path, *texts: str) -> Path:
    """Make a session file of user messages and close it; return its path."""
    with Session.create(path) as session:
        for text in texts:
            session.append(UserMessage(text, timestamp=1))
    return path


def texts_of(session: Session) -> list[Any]:
    """Return what the messages of a session's conversation say."""
    return [getattr(message, "content", getattr(message, "summary", None)) for message in session.messages()]


def problems_of(session: Session) -> list[tuple[int, str]]:
    """Return the problems of a session as pairs."""
    return [(problem.line, problem.what) for problem in session.problems]
