"""The estimate of a conversation's size: reported where it was reported, and a fair guess for the rest."""

from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    ProviderContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.tokens import estimate_message_tokens, estimate_tokens
from tests.sessions.session_support import every_message


def answer(tokens: int, timestamp: int = 1, **fields: Any) -> AssistantMessage:
    return AssistantMessage("ok", usage=Usage(input=tokens - 5, output=5), timestamp=timestamp, **fields)


@pytest.mark.parametrize(
    ("message", "least", "most"),
    [
        (UserMessage("x" * 4000), 1000, 1010),
        (UserMessage("你好世界" * 100), 300, 450),  # about one token a character
        (UserMessage("\ud800" * 400), 300, 310),
        (UserMessage([TextContent("x" * 400), ImageContent("aGk=" * 1_000_000, "image/png")]), 1300, 1310),
        (ToolResultMessage("c", "t", "x" * 4000, details={"not": "sent" * 10_000}), 1000, 1010),
        (AssistantMessage([ThinkingContent("x" * 4000, signature="y" * 9000)]), 1000, 1010),
        (AssistantMessage([ThinkingContent("", signature="y" * 4000, redacted=True)]), 1000, 1010),
        (AssistantMessage([ThinkingContent("")]), 1, 5),
        (AssistantMessage([ToolCall("c", "write", {"content": "x" * 4000})]), 1000, 1015),
        (AssistantMessage([ToolCall("c", "write", {"odd": {object(), float("nan")}})]), 10, 40),
        (AssistantMessage([ProviderContent("p", "a", {"data": "x" * 4000})]), 1000, 1015),
        (BashExecutionMessage("ls", "x" * 4000), 1000, 1030),
        (BashExecutionMessage("ls", "x" * 4000, exclude_from_context=True), 0, 0),
        (CompactionSummaryMessage("x" * 4000, 5), 1000, 1040),
        (CustomMessage("note", ""), 0, 0),
        (AssistantMessage("x" * 4000, stop_reason="error"), 0, 0),
        (AssistantMessage("x" * 4000, stop_reason="aborted"), 0, 0),
        (AssistantMessage("x" * 4000, stop_reason="length"), 1000, 1010),
    ],
)
def test_a_message_is_guessed_by_its_text_and_its_images(message: Any, least: int, most: int) -> None:
    assert least <= estimate_message_tokens(message) <= most


def test_a_message_of_an_application_that_no_model_sees_takes_nothing() -> None:
    class Note:
        role = "note"
        timestamp = 1

        def to_dict(self) -> dict[str, Any]:
            return {}

    assert estimate_message_tokens(Note()) == 0
    assert estimate_tokens([Note(), UserMessage("x")]) == estimate_message_tokens(UserMessage("x"))


def test_a_conversation_is_what_was_reported_last_and_a_guess_for_what_came_after() -> None:
    tail = [UserMessage("x" * 400), AssistantMessage("y" * 400)]
    messages = [UserMessage("x" * 40_000), answer(100), UserMessage("x" * 40_000), answer(9000), *tail]

    assert estimate_tokens(messages) == 9000 + sum(map(estimate_message_tokens, tail))
    assert estimate_tokens([]) == 0
    assert estimate_tokens(tail) == sum(map(estimate_message_tokens, tail))
    assert estimate_tokens(every_message()) > 0


@pytest.mark.parametrize(
    "last",
    [
        AssistantMessage("no usage"),
        AssistantMessage("all zero", usage=Usage()),
        AssistantMessage("", usage=Usage(input=70_000), stop_reason="error"),
        AssistantMessage("", usage=Usage(input=70_000), stop_reason="aborted"),
    ],
)
def test_a_report_that_tells_nothing_is_passed_over(last: AssistantMessage) -> None:
    assert estimate_tokens([answer(500), last]) == 500 + estimate_message_tokens(last)


def test_what_was_reported_before_a_compaction_no_longer_counts() -> None:
    summary = CompactionSummaryMessage("so far", 190_000, timestamp=10)
    kept = [answer(190_000, timestamp=9), answer(190_000, timestamp=10), UserMessage("x" * 400)]
    guess = sum(map(estimate_message_tokens, [summary, *kept]))

    assert estimate_tokens([summary, *kept]) == guess < 300
    assert estimate_tokens([summary, *kept, answer(4000, timestamp=11)]) == 4000
    assert estimate_tokens([summary, *kept, answer(4000, timestamp=11), answer(9, 10)]) == 4005
