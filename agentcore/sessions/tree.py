"""The entries of a session as a tree: which of them lead to the current leaf, and what conversation they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from agentcore._records import Record
from agentcore.messages import AgentMessage, CompactionSummaryMessage, message_from_dict

__all__ = ["KINDS", "SessionEntry", "SessionProblem", "SessionTree"]

KINDS = ("message", "compaction", "branch", "branch_summary", "model_change", "custom")


@attrs.frozen(repr=False)
class SessionProblem(Record):
    """A line of a session file that could not be used as it was; `line` counts from 1."""

    line: int
    what: str


@attrs.frozen(eq=False, repr=False)
class SessionEntry(Record):
    """One entry of a session.

    `kind` is `message`, `compaction` (a summary that stands for what came before it; `data["kept"]` lists the entries
    that stay), `branch` (the leaf moved to its parent), `branch_summary`, `model_change` or `custom`. `data` are the
    fields of its kind, `timestamp` integer milliseconds. `message` is the message that it brings into the conversation,
    if it brings one.
    """

    id: str
    parent_id: str | None
    timestamp: int
    kind: str
    data: Mapping[str, Any] = attrs.field(repr=False)
    message: AgentMessage | None = attrs.field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as it is written: the common fields first, then those of its kind."""
        common = {"id": self.id, "parent_id": self.parent_id, "timestamp": self.timestamp, "kind": self.kind}
        return {**common, **self.data}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionEntry:
        """Make an entry of what a line holds; raises `ValueError` or `TypeError` for what is none."""
        id, parent_id, kind, timestamp = (data.get(name) for name in ("id", "parent_id", "kind", "timestamp"))
        if not isinstance(id, str) or not id:
            raise ValueError("an entry needs an `id`")
        if parent_id is not None and not isinstance(parent_id, str):
            raise ValueError("`parent_id` is text or null")
        if not isinstance(kind, str):
            raise ValueError("an entry needs a `kind`")
        if not isinstance(timestamp, int):
            raise ValueError("an entry needs a `timestamp`")
        rest = {name: value for name, value in data.items() if name not in ("id", "parent_id", "timestamp", "kind")}
        message = message_from_dict(rest["message"]) if kind in _WITH_MESSAGE else None
        if kind == "compaction" and not isinstance(message, CompactionSummaryMessage):
            raise ValueError("a compaction needs its summary")
        return cls(id, parent_id, timestamp, kind, rest, message)


_WITH_MESSAGE = ("message", "compaction", "branch_summary")


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

    def path(self, leaf_id: str | None = None) -> list[SessionEntry]:
        """Return the entries from the root to a leaf (the current one, when left out)."""
        found: list[SessionEntry] = []
        at = self.leaf_id if leaf_id is None else leaf_id
        while at is not None:
            entry = self.entries[at]
            found.append(entry)
            at = entry.parent_id
        found.reverse()
        return found

    def conversation(self) -> list[SessionEntry]:
        """Return the entries whose messages make the conversation now, the last compaction applied."""
        shown: list[SessionEntry] = []
        for entry in self.path():
            if entry.kind == "compaction":
                kept = set(_ids(entry.data.get("kept")))
                shown = [entry, *(one for one in shown if one.id in kept)]
            elif entry.message is not None:
                shown.append(entry)
        return shown


def _ids(value: Any) -> Iterable[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
