"""A queue of messages for a run, from which none is lost when the run ends before it has taken them in.

Guarantees for threads. A message stays in the queue until it is known to be in the transcript: taking it only notes
where in the run's messages it belongs. So there is no moment, and no place for an interrupt, at which it is nowhere,
and one that a run did not get to is still where it was, in front of what came later. Putting and clearing are single
operations of a dict; taking and settling belong to the one run that is going on.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from agentcore.messages import AgentMessage

__all__ = ["MessageQueue", "QUEUE_MODES"]

QUEUE_MODES = ("one-at-a-time", "all")


@attrs.define(eq=False, repr=False)
class _Entry:
    """A message that waits; `position` is where a run that has taken it will put it among its own."""

    message: AgentMessage
    position: int | None = None


class MessageQueue:
    """Messages in the order they came in.

    Threads: `put`, `clear` and `waiting` may be called from any thread and from a signal handler; `take` and `settle`
    by the run that is going on.
    """

    def __init__(self) -> None:
        # A dict as an ordered set: insert, `pop` with a default, `clear` and `list(...)` are atomic.
        self._entries: dict[_Entry, None] = {}

    def put(self, message: AgentMessage) -> None:
        """Add a message at the end."""
        self._entries[_Entry(message)] = None

    def waiting(self) -> tuple[AgentMessage, ...]:
        """Return what no run has taken, in order."""
        return tuple(entry.message for entry in list(self._entries) if entry.position is None)

    def take(self, mode: str, added: Sequence[AgentMessage]) -> tuple[AgentMessage, ...]:
        """Return the first message, or with mode `all` every one, for a run to add to `added` next."""
        self._drop_delivered(added)
        entries = [entry for entry in list(self._entries) if entry.position is None]
        if mode != "all":
            del entries[1:]
        for position, entry in enumerate(entries, len(added)):
            entry.position = position
        return tuple(entry.message for entry in entries)

    def settle(self, added: Sequence[AgentMessage]) -> None:
        """Let go of what has been taken, now that the run is over: what is not in `added` waits again."""
        self._drop_delivered(added)
        for entry in list(self._entries):
            entry.position = None

    def clear(self) -> None:
        """Remove every message; one that a run has taken already is delivered all the same, unless the run ends first."""
        self._entries.clear()

    def _drop_delivered(self, added: Sequence[AgentMessage]) -> None:
        for entry in list(self._entries):
            position = entry.position
            if position is not None and position < len(added) and added[position] is entry.message:
                self._entries.pop(entry, None)
