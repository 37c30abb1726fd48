"""A run as it stands: what was said, which calls are going on, how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any

import attrs

from agentcore.content import ContentBlock, ToolCall
from agentcore.display._plain import Spent
from agentcore.display._text import compaction_words, end_words
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RequestRetryEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from agentcore.messages import AgentMessage, AssistantMessage, ToolResultMessage
from agentcore.partial import PartialMessage

__all__ = ["CallState", "Entry", "Note", "RunProgress", "entries_of"]


@attrs.define
class CallState:
    """A tool call: `state` is `asked`, `waiting`, `running`, `done`, `failed` or `skipped`."""

    name: str
    args: Mapping[str, Any]
    state: str = "waiting"
    began: float | None = None
    took: float | None = None
    content: tuple[ContentBlock, ...] = ()
    details: Any = None


@attrs.define
class Entry:
    """A message, and the states of its calls by their ids; `html` is what it was last shown as, once it is final."""

    message: AgentMessage | PartialMessage
    calls: dict[str, CallState] = attrs.field(factory=dict)
    html: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing about it will change any more."""
        over = all(call.state in ("done", "failed", "skipped") for call in self.calls.values())
        return over and not isinstance(self.message, PartialMessage)


@attrs.define
class Note:
    """Something that happened beside the messages."""

    text: str
    html: str | None = None


class RunProgress:
    """Follows the events of runs.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self.items: list[Entry | Note] = []
        self.activity: str | None = None
        self.spent = Spent()
        self.ended = False

    def take(self, event: AgentEvent) -> None:
        """Bring it up to an event."""
        match event:
            case AgentStartEvent():
                self.spent, self.ended, self.activity = Spent(), False, "waiting for the model"
            case MessageStartEvent(message) if not isinstance(message, ToolResultMessage):
                self.items.append(Entry(message))
                self.activity = None
            case MessageUpdateEvent(message):
                self._set_message(message)
            case MessageEndEvent(message) if not isinstance(message, ToolResultMessage):
                self._end_message(message)
            case ToolExecutionStartEvent(tool_call_id, name, args):
                self._call(tool_call_id, name, args).began = monotonic()
                self._call(tool_call_id, name, args).state = "running"
                self.activity = None
            case ToolExecutionUpdateEvent(tool_call_id, name, args, result):
                self._call(tool_call_id, name, args).content = result.content
            case ToolExecutionEndEvent():
                self._end_call(event)
            case RequestRetryEvent(_, delay, reason):
                self.items.append(Note(f"trying again in {delay:.1f} s: {reason}"))
            case CompactionStartEvent():
                self.activity = "summarising the earlier conversation"
            case CompactionEndEvent():
                self.items.append(Note(compaction_words(event)))
                self.activity = "waiting for the model"
            case AgentEndEvent(_, reason):
                self._end_run(reason)
            case _:
                pass

    def _set_message(self, message: AgentMessage | PartialMessage) -> None:
        entry = self._latest()
        if entry is None:
            self.items.append(Entry(message))
        else:
            entry.message, entry.html = message, None

    def _end_message(self, message: AgentMessage) -> None:
        self._set_message(message)
        self.activity = "waiting for the model"
        if isinstance(message, AssistantMessage):
            self.spent.add_turn(message)
            entry = self._latest()
            if entry is not None:
                entry.calls = _calls_of(message)

    def _latest(self) -> Entry | None:
        return next((item for item in reversed(self.items) if isinstance(item, Entry)), None)

    def _call(self, tool_call_id: str, name: str, args: Mapping[str, Any]) -> CallState:
        for item in reversed(self.items):
            if isinstance(item, Entry) and tool_call_id in item.calls:
                return item.calls[tool_call_id]
        entry = self._latest()
        if entry is None:
            entry = Entry(AssistantMessage((ToolCall(tool_call_id, name, dict(args)),)))
            self.items.append(entry)
        return entry.calls.setdefault(tool_call_id, CallState(name, args))

    def _end_call(self, event: ToolExecutionEndEvent) -> None:
        call = self._call(event.tool_call_id, event.tool_name, {})
        call.state = "failed" if event.is_error else "done"
        call.took = None if call.began is None else monotonic() - call.began
        call.content, call.details = event.result.content, event.result.details
        self.spent.add(event.result.usage)
        self.activity = "waiting for the model"

    def _end_run(self, reason: str) -> None:
        self.activity, self.ended = None, True
        words = end_words(reason)
        self.items.append(Note(" · ".join(filter(None, [words and words.rstrip("."), self.spent.words()]))))


def _calls_of(message: AssistantMessage) -> dict[str, CallState]:
    # The calls of a response that failed are never run.
    state = "skipped" if message.stop_reason in ("error", "aborted") else "waiting"
    return {call.id: CallState(call.name, call.arguments, state) for call in message.tool_calls}


def entries_of(messages: Iterable[AgentMessage]) -> list[Entry]:
    """Return the messages of a conversation, each with its calls and their results."""
    entries: list[Entry] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            call = next(
                (one.calls[message.tool_call_id] for one in reversed(entries) if message.tool_call_id in one.calls),
                None,
            )
            if call is not None:
                call.state = "failed" if message.is_error else "done"
                call.content, call.details = message.content, message.details
        elif isinstance(message, AssistantMessage):
            entries.append(Entry(message, _calls_of(message)))
        else:
            entries.append(Entry(message))
    return entries
