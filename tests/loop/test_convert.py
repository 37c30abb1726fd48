"""The default conversion: what a model gets to see of each message."""

from typing import Any, ClassVar

import pytest

from agentcore.content import ImageContent, TextContent, ToolCall
from agentcore.convert import convert_to_llm
from agentcore.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    UserMessage,
    message_from_dict,
)


def converted(message: Any) -> Any:
    [result] = convert_to_llm([message])
    return result


def ran(command: str = "ls", output: str = "", **fields: Any) -> str:
    message = converted(BashExecutionMessage(command, output, timestamp=5, **fields))
    assert isinstance(message, UserMessage)
    assert message.timestamp == 5
    assert isinstance(message.content, str)
    return message.content


@pytest.mark.parametrize(
    "message",
    [
        UserMessage("hi"),
        UserMessage(""),
        UserMessage([ImageContent("aGk=", "image/png")]),
        AssistantMessage([ToolCall("c", "t", {})]),
        AssistantMessage((), stop_reason="error"),
        ToolResultMessage("c", "t", "ok", {"a": 1}, is_error=True),
    ],
)
def test_what_a_model_understands_passes_through_untouched(message: Any) -> None:
    assert converted(message) is message


def test_a_command_becomes_a_user_message_with_its_output_in_a_fence() -> None:
    assert ran("ls -a", "a\nb\n") == "The user ran `ls -a`.\n\n```\na\nb\n```"
    assert ran("true") == "The user ran `true`.\n\n(no output)"


def test_a_fence_is_longer_than_any_run_of_backticks_in_the_output() -> None:
    output = "``` x `````\n```"

    assert ran("cat", output) == f"The user ran `cat`.\n\n``````\n{output}\n``````"
    assert ran("cat", "a ` b") == "The user ran `cat`.\n\n```\na ` b\n```"


def test_a_command_with_backticks_keeps_its_ends() -> None:
    assert ran("echo `date`").startswith("The user ran `` echo `date` ``.\n")
    assert ran("a ``` b").startswith("The user ran ```` a ``` b ````.\n")


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"exit_code": 0}, ""),
        ({"exit_code": None}, ""),
        ({"exit_code": 2}, "\n\nThe command exited with code 2."),
        ({"exit_code": -9}, "\n\nThe command exited with code -9."),
        ({"cancelled": True}, "\n\nThe command was cancelled."),
        ({"cancelled": True, "exit_code": 130}, "\n\nThe command was cancelled."),
        ({"truncated": True}, "\n\nThe output was truncated."),
        (
            {"truncated": True, "full_output_path": "/tmp/out"},
            "\n\nThe output was truncated. The whole output is in /tmp/out.",
        ),
        ({"full_output_path": "/tmp/out"}, ""),
        ({"exit_code": 1, "truncated": True}, "\n\nThe command exited with code 1.\n\nThe output was truncated."),
    ],
)
def test_a_command_says_how_it_ended(fields: dict[str, Any], note: str) -> None:
    assert ran("ls", "out", **fields) == f"The user ran `ls`.\n\n```\nout\n```{note}"


def test_a_command_that_is_excluded_is_left_out() -> None:
    assert convert_to_llm([BashExecutionMessage("ls", "secret", exclude_from_context=True)]) == []


def test_a_compaction_summary_becomes_a_user_message_in_summary_tags() -> None:
    assert converted(CompactionSummaryMessage("did this", 5000, 7)) == UserMessage(
        "The conversation before this point was replaced by this summary:\n\n<summary>\ndid this\n</summary>", 7
    )


def test_a_branch_summary_becomes_a_user_message_in_summary_tags() -> None:
    assert converted(BranchSummaryMessage("tried that", "e1", 7)) == UserMessage(
        "This summarises a branch of the conversation that was left:\n\n<summary>\ntried that\n</summary>", 7
    )


def test_a_custom_message_becomes_a_user_message_with_its_content() -> None:
    blocks = (TextContent("a"), ImageContent("aGk=", "image/png"))

    assert converted(CustomMessage("note", "text", False, {"hidden": 1}, 7)) == UserMessage("text", 7)
    assert converted(CustomMessage("note", blocks, timestamp=7)) == UserMessage(blocks, 7)


def test_a_custom_message_without_content_is_left_out() -> None:
    assert convert_to_llm([CustomMessage("note", ""), CustomMessage("note", ())]) == []


def test_a_message_of_an_unknown_class_or_role_is_left_out() -> None:
    class Reminder:
        role: ClassVar[str] = "reminder"
        timestamp = 5

        def to_dict(self) -> dict[str, Any]:
            return {"role": self.role}

    strangers: list[Any] = [Reminder(), message_from_dict({"role": "reminder", "content": "hi"}), "text", None]

    assert convert_to_llm(strangers) == []


def test_the_order_is_kept_and_the_given_list_is_not_changed() -> None:
    messages: list[Any] = [UserMessage("a"), BashExecutionMessage("ls", ""), AssistantMessage("b"), UserMessage("c")]
    before = list(messages)
    result = convert_to_llm(messages)

    assert [message.role for message in result] == ["user", "user", "assistant", "user"]
    assert result is not messages
    assert messages == before
    assert convert_to_llm(iter(messages)) == result
