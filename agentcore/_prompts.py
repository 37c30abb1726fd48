"""What a person may say to an agent, as messages: text with images, one message, or several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentcore._run import as_messages
from agentcore.content import ImageContent, TextContent
from agentcore.messages import AgentMessage, UserMessage

__all__ = ["as_one_message", "as_prompts"]


def as_prompts(prompt: Any, images: Iterable[ImageContent] = ()) -> tuple[AgentMessage, ...]:
    """Return a prompt as messages; raises `TypeError` or `ValueError` for what is none."""
    images = tuple(images)
    for image in images:
        if not isinstance(image, ImageContent):
            raise TypeError(f"`images` holds `ImageContent`, not {type(image).__name__}")
    if images:
        if not isinstance(prompt, str):
            raise TypeError("`images` go with a prompt that is text; put them into the content of a message instead")
        return (UserMessage((TextContent(prompt), *images) if prompt else images),)
    messages = as_messages(prompt, "a prompt")
    if not messages:
        raise ValueError("there is no prompt; `continue_` goes on from the transcript as it is")
    return messages


def as_one_message(message: Any) -> AgentMessage:
    """Return text or a message as a message; raises `TypeError` for anything else."""
    if isinstance(message, str):
        return UserMessage(message)
    if not isinstance(message, AgentMessage):
        raise TypeError(f"a queued message is text or one message, not {type(message).__name__}")
    return message
