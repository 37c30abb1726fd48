"""The entries of a session as a tree: which of them lead to the current leaf, and what conversation they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from agentcore._records import Record
from agentcore.messages import AgentMessage, CompactionSummaryMessage, message_from_dict

__all__ = ["KINDS", "SessionEntry", "SessionProblem", "SessionTree"]

KINDS = ("message", "compaction", "branch", "branch_summary", "model_change", "custom")
_WITH_MESSAGE = ("message", "compaction", "branch_summary")
_COMMON = ("id", "parent_id", "timestamp", "kind")


@attrs.frozen(repr=False)
class SessionProblem(Record):
    """A line of a session file that could not be used as it was; `line` counts from 1."""

    line: int
    what: str


@attrs.frozen(eq=False, repr=False)
class SessionEntry(Record):
    """One entry of a session.

    `kind` is `message`, `compaction` (a summary that stands for what came before it; `data["kept"]` lists the entries
    that stay), `branch` (the leaf moved to its parent), `branch_summary`, `model_change` or `custom`. `timestamp` is
    integer milliseconds. `message` is the message that it brings into the conversation, if it brings one, and `data`
    are the other fields of its kind.
    """

    id: str
    parent_id: str | None
    timestamp: int
    kind: str
    data: Mapping[str, Any] = attrs.field(repr=False)
    message: AgentMessage | None = attrs.field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as it is written: the common fields first, then those of its kind."""
        message = {} if self.message is None else {"message": self.message.to_dict()}
        return {**self.common(), **message, **self.data}

    def common(self) -> dict[str, Any]:
        """Return the fields that entries of every kind have."""
        return {name: getattr(self, name) for name in _COMMON}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionEntry:
        """Make an entry of what a line holds; raises `ValueError` or `TypeError` for what is none."""
        id, parent_id, timestamp, kind = (data.get(name) for name in _COMMON)
        if not isinstance(id, str) or not id:
            raise ValueError("an entry needs an `id`")
        if parent_id is not None and not isinstance(parent_id, str):
            raise ValueError("`parent_id` is text or null")
        if not isinstance(timestamp, int):
            raise ValueError("an entry needs a `timestamp`")
        if not isinstance(kind, str):
            raise ValueError("an entry needs a `kind`")
        rest = {name: value for name, value in data.items() if name not in _COMMON}
        if kind not in _WITH_MESSAGE:
            return cls(id, parent_id, timestamp, kind, rest)
        given = rest.pop("message", None)
        message = message_from_dict({"timestamp": timestamp, **given} if isinstance(given, dict) else given)
        if not isinstance(message.timestamp, int):
            raise ValueError("the `timestamp` of a message is a number")
        if kind == "compaction" and not isinstance(message, CompactionSummaryMessage):
            raise ValueError("a compaction needs its summary")
        return cls(id, parent_id, timestamp, kind, rest, message)


class SessionTree:
    """Entries by id, and the leaf: the entry that the next one follows.

    Threads: not safe by itself; the session that owns it locks.
    """

    def __init__(self) -> None:
        self.entries: dict[str, SessionEntry] = {}
        self.leaf_id: str | None = None

    def add(self, entry: SessionEntry) -> None:
        """Add an entry, which becomes the leaf."""
        self.entries[entry.id] = entry
        self.leaf_id = entry.id

    def path(self) -> list[SessionEntry]:
        """Return the entries from the root to the leaf."""
        found: list[SessionEntry] = []
        at = self.leaf_id
        while at is not None:
            entry = self.entries[at]
            found.append(entry)
            at = entry.parent_id
        found.reverse()
        return found

    def conversation(self) -> list[SessionEntry]:
        """Return the entries whose messages make the conversation now, the last compaction applied."""
        path = self.path()
        last = max((at for at, entry in enumerate(path) if entry.kind == "compaction"), default=None)
        if last is None:
            return [entry for entry in path if entry.message is not None]
        kept = set(_ids(path[last].data.get("kept")))
        stay = [entry for entry in path[:last] if entry.id in kept and entry.message is not None]
        return [path[last], *stay, *(entry for entry in path[last + 1 :] if entry.message is not None)]


def _ids(value: Any) -> Iterable[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
