"""How many tokens a conversation takes: what the provider last reported, plus a guess for what came after it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentcore._records import json_safe
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent
from agentcore.convert import convert_to_llm
from agentcore.messages import AgentMessage, AssistantMessage, CompactionSummaryMessage

__all__ = ["estimate_message_tokens", "estimate_tokens", "has_failed"]

# Of UTF-8: English has about four characters to a token, Chinese about one, of three bytes.
_BYTES_A_TOKEN = 4
_IMAGE_TOKENS = 1200
_MESSAGE_TOKENS = 4


def estimate_message_tokens(message: AgentMessage) -> int:
    """Return a guess for one message: four bytes of text a token, 1,200 tokens an image; 0 for what no model sees."""
    if has_failed(message):
        return 0
    total = 0
    for shown in convert_to_llm([message]):
        content = shown.content
        blocks = (TextContent(content),) if isinstance(content, str) else content
        total += _MESSAGE_TOKENS + sum(_block_tokens(block) for block in blocks)
    return total


def has_failed(message: AgentMessage) -> bool:
    """Return whether a message is a response that failed or was aborted, which no model gets to see again."""
    return isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted")


def _block_tokens(block: ContentBlock) -> int:
    match block:
        case ImageContent():
            return _IMAGE_TOKENS
        case TextContent():
            text = block.text
        case ThinkingContent():
            text = block.thinking or block.signature or ""
        case ProviderContent():
            text = json.dumps(json_safe(block.data))
        case _:
            text = block.name + json.dumps(json_safe(block.arguments))
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // _BYTES_A_TOKEN)


def estimate_tokens(messages: Sequence[AgentMessage]) -> int:
    """Return a guess of the tokens that a conversation takes.

    The usage that the last complete answer reported counts for everything up to it; what comes after is guessed, and
    everything is if no usage can be used. Usage from before the last compaction tells nothing about what is left.
    """
    compacted = max((m.timestamp for m in messages if isinstance(m, CompactionSummaryMessage)), default=None)
    tail = 0
    for message in reversed(messages):
        if (
            isinstance(message, AssistantMessage)
            and message.usage is not None
            and message.usage.total_tokens > 0
            and not has_failed(message)
            and (compacted is None or message.timestamp > compacted)
        ):
            return message.usage.total_tokens + tail
        tail += estimate_message_tokens(message)
    return tail
