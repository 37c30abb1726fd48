"""Deltas in, the events of an assistant message and the finished message out.

An adapter makes one `Assembler` for a response and tells it what arrives. Each method returns the stream events of
that step, in order, which the adapter yields. The first of them brings the `StartEvent`, so nothing need be sent by
hand; `finish` or `fail` gives the last event.

Blocks are told apart by a `key` that the adapter chooses: the index of an item, an id, or a fixed word for an API that
has one text per message. A key names one block from its first delta to its `end`; blocks may grow in turns, and stay
open until `end` or `finish` closes them. They keep the order in which they began. An empty delta begins nothing.

Everything goes into one append-only journal a message, so each delta costs the same however long the message is. For a
delta of the block that grew last that is one entry, one `PartialMessage` and one event.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NoReturn

import attrs

from agentcore.content import ContentBlock, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import (
    DoneEvent,
    ErrorEvent,
    StartEvent,
    StreamEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from agentcore.messages import AssistantMessage, ErrorInfo, Usage
from agentcore.models import Model, usage_cost
from agentcore.partial import MessageJournal, PartialMessage
from agentcore.providers._partial_json import parse_partial_object

__all__ = ["Assembler", "Events", "read_arguments"]

Events = Sequence[StreamEvent]
"""The stream events of one step, in order."""

_NO_KEY = object()
"""The key of no block."""

_COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning", "total_tokens")


class Assembler:
    """Builds one assistant message from what arrives, and the events that tell of it.

    `api` is the wire API that is spoken (the model's, when left out).

    Threads: one thread at a time; the `partial` of its events may be read from any.
    """

    __slots__ = (
        "_blocks",
        "_call_ids",
        "_counts",
        "_current",
        "_entries",
        "_header",
        "_journal",
        "_model",
        "_open",
        "_started",
        "_text_key",
        "_thinking_key",
    )

    def __init__(self, model: Model, *, api: str | None = None, timestamp: int | None = None) -> None:
        self._model = model
        self._journal = MessageJournal(
            api=model.api if api is None else api,
            provider=model.provider,
            model=model.id,
            timestamp=timestamp,
            parse_arguments=parse_partial_object,
        )
        self._entries = self._journal.entries
        self._blocks: list[_Block] = []
        self._open: dict[Hashable, _Block] = {}
        # The block that grows: while it is set, the journal takes bare deltas as its. Its key is kept apart by kind, so
        # that one comparison tells whether a delta is of this block.
        self._current: _Block | None = None
        self._text_key: Hashable = _NO_KEY
        self._thinking_key: Hashable = _NO_KEY
        self._call_ids: set[str] = set()
        self._counts: dict[str, Any] = {}
        self._header: dict[str, Any] = {}
        self._started = False

    # --- what arrives -----------------------------------------------------------------------------------------------

    def start(self) -> Events:
        """Begin the message, if it has not begun."""
        if self._started:
            return ()
        self._started = True
        return (StartEvent(self._journal.partial()),)

    def text(self, delta: str, key: Hashable = "text") -> Events:
        """Extend the text block `key`, beginning it with its first text."""
        if not delta:
            return ()
        if key == self._text_key:
            entries = self._entries
            entries.append(delta)
            return (TextDeltaEvent(self._current.index, delta, PartialMessage(self._journal, len(entries))),)  # type: ignore[union-attr]
        block, events = self._enter(key, TextContent)
        self._entries.append(delta)
        return (*events, TextDeltaEvent(block.index, delta, self._journal.partial()))

    def thinking(self, delta: str, key: Hashable = "thinking") -> Events:
        """Extend the thinking block `key`, beginning it with its first text."""
        if not delta:
            return ()
        if key == self._thinking_key:
            entries = self._entries
            entries.append(delta)
            return (ThinkingDeltaEvent(self._current.index, delta, PartialMessage(self._journal, len(entries))),)  # type: ignore[union-attr]
        block, events = self._enter(key, ThinkingContent)
        self._entries.append(delta)
        return (*events, ThinkingDeltaEvent(block.index, delta, self._journal.partial()))

    def tool_call(
        self,
        key: Hashable,
        arguments: str = "",
        *,
        id: str = "",
        name: str = "",
        thought_signature: str | None = None,
    ) -> Events:
        """Extend the tool call `key` by raw text of its arguments, beginning it at the first mention.

        The first `id` and the first `name` that are not empty are the call's. An id that another call of the message
        has gets a number added; a call without one gets an id that is made up.
        """
        block = self._open.get(key)
        if block is not None and block is self._current and not (id or name or thought_signature):
            events: Events = ()
        else:
            block, events = self._enter(key, ToolCall)
            events = (*events, *self._describe(block, id, name, thought_signature))
        if not arguments:
            return events
        entries = self._entries
        entries.append(arguments)
        event = ToolCallDeltaEvent(block.index, arguments, PartialMessage(self._journal, len(entries)))
        return (*events, event) if events else (event,)

    def sign(self, key: Hashable, signature: str, kind: type[TextContent] | type[ThinkingContent]) -> Events:
        """Extend the signature of the text or thinking block `key`, beginning it if it has not begun.

        A block that is signed is kept even if it never gets any text.
        """
        block, events = self._enter(key, kind)
        block.signature = (block.signature or "") + signature
        return events

    def redacted_thinking(self, signature: str) -> Events:
        """Add a thinking block whose text is withheld, whole."""
        content = ThinkingContent("", signature, redacted=True)
        index, events = self._add(content)
        start = ThinkingStartEvent(index, self._journal.partial())
        return (*events, start, ThinkingEndEvent(index, "", self._journal.partial()))

    def provider_content(self, data: dict[str, Any]) -> Events:
        """Add a block that only the API itself understands, whole; `data` is kept as it is."""
        return self._add(ProviderContent(self._model.provider, self._journal.api, data))[1]

    def end(self, key: Hashable) -> Events:
        """Close the block `key`; a key that is not open is passed over."""
        block = self._open.pop(key, None)
        if block is None:
            return ()
        self._leave()
        content = block.content = block.finished(self._joined(block))
        self._journal.close(block.index, content)
        partial = self._journal.partial()
        match content:
            case TextContent():
                return (TextEndEvent(block.index, content.text, partial),)
            case ThinkingContent():
                return (ThinkingEndEvent(block.index, content.thinking, partial),)
            case _:
                return (ToolCallEndEvent(block.index, content, partial),)

    # --- facts about the message ------------------------------------------------------------------------------------

    def usage(self, **counts: int | None) -> None:
        """Take reported counts, named and meant as in `Usage`: the last of each wins, `None` overwrites nothing."""
        known = {name: count for name in _COUNTS if (count := counts.get(name)) is not None}
        if any(self._counts.get(name) != count for name, count in known.items()):
            self._counts.update(known)
            usage = Usage(**self._counts)
            cost = usage_cost(self._model, usage)
            self._set(usage=usage if cost is None else attrs.evolve(usage, cost=cost))

    def response_id(self, response_id: str) -> None:
        """Take the provider's id of the response; the first one that is not empty wins."""
        if response_id and "response_id" not in self._header:
            self._set(response_id=response_id)

    @property
    def is_empty(self) -> bool:
        """Whether no block has begun."""
        return not self._blocks

    def is_open(self, key: Hashable) -> bool:
        """Return whether the block `key` has begun and not ended."""
        return key in self._open

    @property
    def has_calls(self) -> bool:
        """Whether the message has tool calls."""
        return any(block.kind is ToolCall for block in self._blocks)

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self, stop_reason: str, raw_stop_reason: str | None = None) -> Events:
        """Close what is open, in order, and end the message with a `DoneEvent`."""
        events = [*self.start()]
        for key in sorted(self._open, key=lambda key: self._open[key].index):
            events += self.end(key)
        content = [block.content for block in self._blocks if block.content is not None]
        return (*events, DoneEvent(self._message(content, stop_reason, raw_stop_reason)))

    def fail(self, error: ErrorInfo, raw_stop_reason: str | None = None) -> Events:
        """End the message with an `ErrorEvent`, keeping what had arrived; the kind `aborted` makes it an abort.

        Calls that had not been closed keep the raw text of their arguments in `partial_json`.
        """
        content = self._journal.partial().snapshot().content
        stop_reason = "aborted" if error.kind == "aborted" else "error"
        return (ErrorEvent(self._message(content, stop_reason, raw_stop_reason, error)),)

    def _message(
        self,
        content: Iterable[ContentBlock],
        stop_reason: str,
        raw_stop_reason: str | None,
        error: ErrorInfo | None = None,
    ) -> AssistantMessage:
        journal = self._journal
        return AssistantMessage(
            tuple(content),
            api=journal.api,
            provider=journal.provider,
            model=journal.model,
            usage=self._header.get("usage"),
            stop_reason=stop_reason,
            error=error,
            response_id=self._header.get("response_id"),
            raw_stop_reason=raw_stop_reason,
            timestamp=journal.timestamp,
        )

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _enter(self, key: Hashable, kind: type[ContentBlock]) -> tuple[_Block, Events]:
        """Make the block `key` the one that grows; return it, and the events of what that ends and begins."""
        events = self.start()
        block = self._open.get(key)
        if block is not None and block.kind is not kind:
            events = (*events, *self.end(key))
            block = None
        if block is None:
            self._leave()
            block = self._open[key] = _Block(kind, len(self._blocks))
            self._blocks.append(block)
            if kind is not ToolCall:  # a call begins once its id and name are known
                is_text = kind is TextContent
                self._journal.open(block.index, TextContent("") if is_text else ThinkingContent(""))
                begin = TextStartEvent if is_text else ThinkingStartEvent
                events = (*events, begin(block.index, self._journal.partial()))
        elif block is not self._current:
            self._leave()
            self._journal.append(block.index, "")  # no delta of its own: it only says which block the next ones are of
        else:
            return block, events
        self._grow(block)
        self._text_key = key if kind is TextContent else _NO_KEY
        self._thinking_key = key if kind is ThinkingContent else _NO_KEY
        return block, events

    def _grow(self, block: _Block) -> None:
        self._current = block
        block.since = len(self._entries)

    def _leave(self) -> None:
        """Let no block be the one that grows: something else than its deltas comes into the journal."""
        block = self._current
        if block is not None:
            block.runs.append((block.since, len(self._entries)))
            self._current = None
            self._text_key = self._thinking_key = _NO_KEY

    def _joined(self, block: _Block) -> str:
        """Return the text of a block that is not the one that grows."""
        entries: list[Any] = self._entries
        return "".join([entry for begin, end in block.runs for entry in entries[begin:end]])

    def _describe(self, call: _Block, id: str, name: str, thought_signature: str | None) -> Events:
        """Take what is new about a call, which is the one that grows; return its start event if it begins with this."""
        begins = not call.id
        if begins or (id and call.id_is_made_up):
            self._call_ids.discard(call.id)
            call.id, call.id_is_made_up = self._free_id(id), not id
        elif (call.name or not name) and not thought_signature:
            return ()
        call.name = call.name or name
        call.signature = thought_signature or call.signature
        self._leave()
        self._journal.open(call.index, ToolCall(call.id, call.name, {}, self._joined(call), call.signature))
        self._grow(call)
        return (ToolCallStartEvent(call.index, self._journal.partial()),) if begins else ()

    def _free_id(self, wanted: str) -> str:
        """Return an id for a call that no other call of the message has."""
        id = wanted or f"call_{uuid.uuid4().hex[:24]}"
        number = 2
        while id in self._call_ids:
            id = f"{wanted}_{number}"
            number += 1
        self._call_ids.add(id)
        return id

    def _add(self, content: ContentBlock) -> tuple[int, Events]:
        """Put a whole block into the message; return its index, and the start event if the message begins with it."""
        events = self.start()
        self._leave()
        block = _Block(type(content), len(self._blocks))
        block.content = content
        self._blocks.append(block)
        self._journal.open(block.index, content)
        return block.index, events

    def _set(self, **header: Any) -> None:
        self._leave()
        self._header.update(header)
        self._journal.update(**header)


class _Block:
    """A block of the message: where its deltas are in the journal, and what is known of it besides."""

    __slots__ = ("content", "id", "id_is_made_up", "index", "kind", "name", "runs", "signature", "since")

    def __init__(self, kind: type[ContentBlock], index: int) -> None:
        self.kind = kind
        self.index = index
        self.id = ""
        self.id_is_made_up = False
        self.name = ""
        self.signature: str | None = None
        # Its deltas are the entries of these ranges, and those from `since` on while it is the block that grows.
        self.runs: list[tuple[int, int]] = []
        self.since = 0
        self.content: ContentBlock | None = None

    def finished(self, text: str) -> TextContent | ThinkingContent | ToolCall:
        if self.kind is TextContent:
            return TextContent(text, self.signature)
        if self.kind is ThinkingContent:
            return ThinkingContent(text, self.signature)
        arguments, invalid = read_arguments(text)
        return ToolCall(self.id, self.name, arguments, invalid, self.signature)


# --- the arguments of a finished call -------------------------------------------------------------------------------


def read_arguments(raw: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments that a call's complete raw text holds, and the raw text if it is no JSON object.

    Nothing, white space and `null` are no arguments: `{}`. Text that a strict reader of JSON would refuse is no
    object, nor is a string that holds one; nor is an object that names a key twice, since two readers of it can
    disagree about what was asked for.
    """
    text = raw.strip()
    if text in ("", "null"):
        return {}, None
    try:
        value = _strict_decoder.decode(text)
    except (ValueError, RecursionError):
        return {}, raw
    return (value, None) if isinstance(value, dict) else ({}, raw)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is named twice")
    return members


_strict_decoder = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
