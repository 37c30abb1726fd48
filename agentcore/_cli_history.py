"""What the user has asked so far, in this conversation and in the branches that were left."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from agentcore.display._text import content_text
from agentcore.messages import AgentMessage, UserMessage
from agentcore.sessions import Session, SessionEntry

__all__ = ["Exchange", "exchanges_of"]


@attrs.frozen(kw_only=True)
class Exchange:
    """Something that the user asked, and where the answer to it ends.

    `end` counts messages of a conversation without a session; `entry_id` is the entry in one with a session. `current`
    says whether it is part of the conversation as it is now.
    """

    text: str
    end: int = 0
    entry_id: str | None = None
    current: bool = True


def exchanges_of(messages: Sequence[AgentMessage], session: Session | None) -> list[Exchange]:
    """Return what the user has asked, the oldest first."""
    return _in_memory(messages) if session is None else _in_session(session)


def _text(message: UserMessage) -> str:
    return message.content if isinstance(message.content, str) else content_text(message.content)


def _in_memory(messages: Sequence[AgentMessage]) -> list[Exchange]:
    begins = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    found = []
    for begin, end in zip(begins, [*begins, len(messages)][1:], strict=True):
        message = messages[begin]
        assert isinstance(message, UserMessage)
        found.append(Exchange(text=_text(message), end=end))
    return found


def _in_session(session: Session) -> list[Exchange]:
    entries = session.entries()
    children: dict[str | None, list[SessionEntry]] = {}
    by_id = {entry.id: entry for entry in entries}
    for entry in entries:
        children.setdefault(entry.parent_id, []).append(entry)
    path: set[str] = set()
    at = session.leaf_id
    while at is not None:
        path.add(at)
        at = by_id[at].parent_id
    return [
        Exchange(text=_text(entry.message), entry_id=_end(entry, children).id, current=entry.id in path)
        for entry in entries
        if isinstance(entry.message, UserMessage)
    ]


def _end(entry: SessionEntry, children: dict[str | None, list[SessionEntry]]) -> SessionEntry:
    """Return the last entry of the answer to a question: what follows it up to the next question or branch."""
    while True:
        answers = [
            child
            for child in children.get(entry.id, ())
            if child.kind == "message" and not isinstance(child.message, UserMessage)
        ]
        if not answers:
            return entry
        entry = answers[0]
