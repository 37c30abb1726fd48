"""Where an agent keeps its conversation: what a session has to offer, and the plain file of `Agent.save`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentcore.errors import SessionCorruptError
from agentcore.messages import AgentMessage, CompactionSummaryMessage, message_from_dict

__all__ = ["Conversation", "ConversationRecord", "load_conversation", "save_conversation"]

_TYPE, _VERSION = "agent", 1


class Conversation(Protocol):
    """What an agent needs of a session, such as `agentcore.sessions.Session`."""

    def messages(self) -> list[AgentMessage]:
        """Return the conversation so far."""
        ...

    def append(self, message: AgentMessage) -> object:
        """Add a message for good."""
        ...

    def append_compaction(self, summary: CompactionSummaryMessage, kept: Iterable[AgentMessage]) -> object:
        """Note that a summary stands for all but the kept messages."""
        ...


class ConversationRecord:
    """Writes the messages of an agent to its session, if it has one, each once.

    Threads: belongs to the thread of the run, or to the one that changes an idle agent.
    """

    def __init__(self, session: Conversation | None) -> None:
        self.session = session

    def begin(self, messages: tuple[AgentMessage, ...]) -> tuple[AgentMessage, ...]:
        """Return the messages that an agent begins with."""
        if self.session is None:
            return messages
        if messages:
            raise ValueError("the messages of an agent with a session are those of the session; leave `messages` out")
        return tuple(self.session.messages())

    def save(self, message: AgentMessage, saved: set[int]) -> None:
        """Write a message unless `saved` has its identity."""
        if self.session is not None and id(message) not in saved:
            self.session.append(message)
            saved.add(id(message))

    def save_all(self, messages: Iterable[AgentMessage], saved: set[int]) -> None:
        """Write what an interrupt kept from being written when it came."""
        for message in messages:
            self.save(message, saved)

    def compact(self, summary: CompactionSummaryMessage, kept: Iterable[AgentMessage]) -> None:
        """Note that a summary stands for all but the kept messages."""
        if self.session is not None:
            self.session.append_compaction(summary, kept)


def save_conversation(path: str | Path, messages: Sequence[AgentMessage], system_prompt: str) -> None:
    """Write a conversation to a file as one piece: a crash leaves the old file or the new one."""
    target = Path(os.path.realpath(path))
    data = {
        "type": _TYPE,
        "version": _VERSION,
        "system_prompt": system_prompt,
        "messages": [message.to_dict() for message in messages],
    }
    # `mkstemp` makes a file that only its owner can read.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_conversation(path: str | Path) -> dict[str, Any]:
    """Return what `save_conversation` wrote, as options of an agent; raises `SessionCorruptError` for anything else."""
    text = Path(path).read_text("utf-8", errors="replace")
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("type") != _TYPE:
            raise ValueError("it holds no agent")
        messages = [message_from_dict(message) for message in data["messages"]]
        return {"system_prompt": str(data.get("system_prompt") or ""), "messages": messages}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SessionCorruptError(f"{path} is no file that `Agent.save` wrote: {error}", path=str(path)) from None
