"""The default conversion of a conversation into what a model understands: user, assistant and tool-result messages."""

from __future__ import annotations

from collections.abc import Iterable

from agentcore.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    UserMessage,
)

__all__ = ["LlmMessage", "convert_to_llm"]

LlmMessage = UserMessage | AssistantMessage | ToolResultMessage

_PASS = (UserMessage, AssistantMessage, ToolResultMessage)


def convert_to_llm(messages: Iterable[AgentMessage]) -> list[LlmMessage]:
    """Return the messages a model gets to see.

    User, assistant and tool-result messages pass through untouched. A command the user ran becomes a user message
    (unless it is excluded), so do summaries, in `<summary>` tags, and custom messages that have content. A message of
    an unknown class is left out.
    """
    converted: list[LlmMessage] = []
    for message in messages:
        if isinstance(message, _PASS):  # all of most conversations, and quicker than a `case`
            converted.append(message)
            continue
        match message:
            case BashExecutionMessage():
                if not message.exclude_from_context:
                    converted.append(UserMessage(_execution_text(message), message.timestamp))
            case CompactionSummaryMessage():
                intro = "The conversation before this point was replaced by this summary:"
                converted.append(UserMessage(_summary_text(intro, message.summary), message.timestamp))
            case BranchSummaryMessage():
                intro = "This summarises a branch of the conversation that was left:"
                converted.append(UserMessage(_summary_text(intro, message.summary), message.timestamp))
            case CustomMessage() if message.content:
                converted.append(UserMessage(message.content, message.timestamp))
            case _:
                pass
    return converted


def _summary_text(intro: str, summary: str) -> str:
    return f"{intro}\n\n<summary>\n{summary}\n</summary>"


def _execution_text(message: BashExecutionMessage) -> str:
    # A fence longer than any run of backticks in the output, so that the output cannot close it.
    fence = "`" * max(3, _longest_run(message.output) + 1)
    lines = [f"The user ran {_as_code(message.command)}."]
    if message.output:
        lines += ["", fence, message.output.rstrip("\n"), fence]
    else:
        lines += ["", "(no output)"]
    if message.cancelled:
        lines += ["", "The command was cancelled."]
    elif message.exit_code:
        lines += ["", f"The command exited with code {message.exit_code}."]
    if message.truncated:
        where = f" The whole output is in {message.full_output_path}." if message.full_output_path else ""
        lines += ["", f"The output was truncated.{where}"]
    return "\n".join(lines)


def _as_code(command: str) -> str:
    if "`" not in command:
        return f"`{command}`"
    marks = "`" * (_longest_run(command) + 1)
    return f"{marks} {command} {marks}"


def _longest_run(text: str) -> int:
    longest = current = 0
    for character in text:
        current = current + 1 if character == "`" else 0
        longest = max(longest, current)
    return longest
