"""A message that is still arriving: an append-only journal, and positions in it.

A message that streams in is written down once, as the list of what came: a str is a delta of the current block, a
tuple changes which block is current or what it is. `PartialMessage` is a position in that list, so making one for
each delta costs the same however long the message is or how many blocks are open. Reading joins what lies before the
position.

Guarantees for threads. One thread writes; any thread reads, at any time. The entries before a position never change,
and `list.append` is atomic, so a reader needs no lock. What has been joined is kept in cursors that a reader takes out
of a list and puts back when it is done (`pop` and `append` are atomic too): two readers at once never share one, and
one that is interrupted in the middle only loses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from agentcore._records import now_ms, shortened
from agentcore.content import ContentBlock, TextContent, ThinkingContent, ToolCall
from agentcore.messages import AssistantMessage, ErrorInfo, Usage, calls_of, joined_text, joined_thinking

__all__ = ["MessageJournal", "PartialMessage"]

_HEADER = -1
_KEPT_CURSORS = 2


class MessageJournal:
    """What has arrived of one message, in order.

    `parse_arguments` reads the raw text of unfinished tool-call arguments as far as it can be read; it must not raise.

    Threads: `open`, `append`, `close`, `update` and `partial` belong to the thread that writes.
    """

    __slots__ = ("_cursors", "api", "current", "entries", "model", "parse_arguments", "provider", "timestamp")

    def __init__(
        self,
        *,
        api: str = "",
        provider: str = "",
        model: str = "",
        timestamp: int | None = None,
        parse_arguments: Callable[[str], dict[str, Any]] | None = None,
    ) -> None:
        self.api = api
        self.provider = provider
        self.model = model
        self.timestamp = now_ms() if timestamp is None else timestamp
        self.parse_arguments = parse_arguments
        self.entries: list[str | tuple[int, Any]] = []
        self.current = _HEADER
        self._cursors: list[_Cursor] = []

    def open(self, index: int, block: ContentBlock) -> None:
        """Begin block `index` (the next free one) as `block`, which deltas then extend."""
        self.entries.append((index, block))
        self.current = index

    def append(self, index: int, delta: str) -> None:
        """Extend block `index`: its text, its thinking, or the raw text of its arguments."""
        if index != self.current:
            self.entries.append((index, None))
            self.current = index
        self.entries.append(delta)

    def close(self, index: int, block: ContentBlock) -> None:
        """Put the finished block in place of what was joined."""
        self.open(index, block)

    def update(self, **header: Any) -> None:
        """Set `usage`, `response_id`, `model` or another header field from here on."""
        self.entries.append((_HEADER, header))
        self.current = _HEADER

    def partial(self) -> PartialMessage:
        """Return the message as it stands now."""
        return PartialMessage(self, len(self.entries))

    def read(self, position: int) -> tuple[tuple[ContentBlock, ...], dict[str, Any]]:
        """Return the content and the header fields at a position."""
        cursor = self._take_cursor(position)
        cursor.advance(self.entries, position)
        content, header = cursor.content(self.parse_arguments), dict(cursor.header)
        self._cursors.append(cursor)
        del self._cursors[:-_KEPT_CURSORS]
        return content, header

    def _take_cursor(self, position: int) -> _Cursor:
        """Take the kept cursor that is nearest before a position, or a new one.

        Two are kept, so that one reader can follow the stream while another goes through older events.
        """
        taken: list[_Cursor] = []
        try:
            while True:
                taken.append(self._cursors.pop())
        except IndexError:
            pass
        usable = [cursor for cursor in taken if cursor.position <= position]
        best = max(usable, key=lambda cursor: cursor.position, default=None)
        self._cursors.extend(cursor for cursor in reversed(taken) if cursor is not best)
        return best if best is not None else _Cursor()

    def __reduce__(self) -> Any:
        raise TypeError("a message journal belongs to its stream; pickle the message, or a partial's `snapshot()`")


class _GrowingBlock:
    """A block and what has been appended to it."""

    __slots__ = ("block", "built", "parts", "text")

    def __init__(self, block: ContentBlock) -> None:
        self.block = block
        self.text = ""
        self.parts: list[str] = []
        self.built: ContentBlock | None = block

    def build(self, parse_arguments: Callable[[str], dict[str, Any]] | None) -> ContentBlock:
        if self.parts:
            self.built = None
            # The only reference to the text moves into a local name, so that the interpreter can extend it in place:
            # a reader that looks at each delta then does not copy the whole text each time.
            text, self.text = self.text, ""
            text += "".join(self.parts)
            self.text = text
            self.parts = []
        if self.built is None:
            self.built = _extended(self.block, self.text, parse_arguments)
        return self.built


def _extended(block: ContentBlock, text: str, parse_arguments: Callable[[str], dict[str, Any]] | None) -> ContentBlock:
    match block:
        case TextContent():
            return TextContent(block.text + text if block.text else text, block.signature)
        case ThinkingContent():
            joined = block.thinking + text if block.thinking else text
            return ThinkingContent(joined, block.signature, block.redacted)
        case ToolCall():
            raw = (block.partial_json or "") + text
            return _ArrivingToolCall(block.id, block.name, None, raw, block.thought_signature, parse_arguments)
        case _:
            return block


class _Cursor:
    """The blocks of a journal up to a position."""

    __slots__ = ("blocks", "current", "header", "position")

    def __init__(self) -> None:
        self.position = 0
        self.current = _HEADER
        self.blocks: list[_GrowingBlock] = []
        self.header: dict[str, Any] = {}

    def advance(self, entries: list[str | tuple[int, Any]], position: int) -> None:
        for at in range(self.position, position):
            entry = entries[at]
            if isinstance(entry, str):
                self.blocks[self.current].parts.append(entry)
                continue
            index, value = entry
            self.current = index
            if index == _HEADER:
                self.header.update(value)
            elif value is not None:
                block = _GrowingBlock(value)
                if index < len(self.blocks):
                    self.blocks[index] = block
                else:
                    self.blocks.append(block)
        self.position = position

    def content(self, parse_arguments: Callable[[str], dict[str, Any]] | None) -> tuple[ContentBlock, ...]:
        return tuple([block.build(parse_arguments) for block in self.blocks])


class _ArrivingToolCall(ToolCall):
    """A tool call whose arguments are still arriving; they are read when somebody asks for them.

    Equal to a plain `ToolCall` of the same fields, and pickled as one.
    """

    __slots__ = ("_arguments", "_parse")
    _arguments: dict[str, Any] | None
    _parse: Callable[[str], dict[str, Any]] | None

    def __init__(
        self,
        id: str,
        name: str,
        arguments: dict[str, Any] | None,
        partial_json: str | None,
        thought_signature: str | None,
        parse: Callable[[str], dict[str, Any]] | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "id", id)
        set_field(self, "name", name)
        set_field(self, "partial_json", partial_json)
        set_field(self, "thought_signature", thought_signature)
        set_field(self, "_parse", parse)
        set_field(self, "_arguments", arguments)

    @property
    def arguments(self) -> dict[str, Any]:
        """What can be read of the arguments so far."""
        parsed = self._arguments
        if parsed is None:
            parsed = self._parse(self.partial_json or "") if self._parse is not None else {}
            object.__setattr__(self, "_arguments", parsed)
        return parsed

    def plain(self) -> ToolCall:
        """Return the call as a plain `ToolCall`."""
        return ToolCall(self.id, self.name, self.arguments, self.partial_json, self.thought_signature)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _ArrivingToolCall):
            other = other.plain()
        return self.plain() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.plain())

    def __reduce__(self) -> Any:
        call = self.plain()
        return (ToolCall, (call.id, call.name, call.arguments, call.partial_json, call.thought_signature))


class PartialMessage:
    """An assistant message exactly as it stood at one event of its stream.

    It has the attributes of `AssistantMessage`, with `stop_reason=None`, and is no `AssistantMessage`: it cannot end
    up in a transcript by mistake. A tool call that is still arriving shows its raw text in `partial_json` and what can
    be read of it in `arguments`.

    Threads: may be read at any later time, from any thread.
    """

    __slots__ = ("_journal", "_position")
    role: ClassVar[str] = "assistant"
    stop_reason: ClassVar[None] = None
    raw_stop_reason: ClassVar[None] = None
    error: ClassVar[None] = None
    error_message: ClassVar[None] = None

    def __init__(self, journal: MessageJournal, position: int) -> None:
        self._journal = journal
        self._position = position

    def _header(self, name: str) -> Any:
        header = self._journal.read(self._position)[1]
        return header[name] if name in header else getattr(self._journal, name, None)

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        """The blocks as far as they had arrived."""
        return self._journal.read(self._position)[0]

    @property
    def api(self) -> str:
        """The wire API."""
        return self._journal.api

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._journal.provider

    @property
    def model(self) -> str:
        """The model's id."""
        model: str = self._header("model")
        return model

    @property
    def timestamp(self) -> int:
        """When the message began: integer milliseconds since the epoch."""
        return self._journal.timestamp

    @property
    def usage(self) -> Usage | None:
        """The usage as far as it had been reported."""
        usage: Usage | None = self._header("usage")
        return usage

    @property
    def response_id(self) -> str | None:
        """The provider's id of the response."""
        response_id: str | None = self._header("response_id")
        return response_id

    @property
    def text(self) -> str:
        """The text so far."""
        return joined_text(self.content)

    @property
    def thinking(self) -> str:
        """What the model has thought so far, a blank line between blocks."""
        return joined_thinking(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far, in order."""
        return calls_of(self.content)

    def snapshot(self) -> AssistantMessage:
        """Return what had arrived as a message of its own.

        It did not finish, so its `stop_reason` is `aborted`; `attrs.evolve` makes of it what is needed.
        """
        return AssistantMessage(
            tuple(block.plain() if isinstance(block, _ArrivingToolCall) else block for block in self.content),
            api=self.api,
            provider=self.provider,
            model=self.model,
            usage=self.usage,
            stop_reason="aborted",
            error=ErrorInfo(kind="aborted", message="the message had not finished"),
            response_id=self.response_id,
            timestamp=self.timestamp,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what had arrived as data, with a `stop_reason` of `None`."""
        data = attrs.evolve(self.snapshot(), error=None).to_dict()
        return {**data, "stop_reason": None}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialMessage):
            return NotImplemented
        if self._journal is other._journal and self._position == other._position:
            return True
        return self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PartialMessage(content={shortened(self.content)})"

    def __reduce__(self) -> Any:
        return (_partial_of, (self.snapshot(),))

    def __copy__(self) -> PartialMessage:
        return self

    def __deepcopy__(self, memo: Any) -> PartialMessage:
        return self


def _partial_of(message: AssistantMessage) -> PartialMessage:
    """Make a partial message that stands where a message says."""
    journal = MessageJournal(
        api=message.api, provider=message.provider, model=message.model, timestamp=message.timestamp
    )
    for index, block in enumerate(message.content):
        journal.open(index, block)
    journal.update(usage=message.usage, response_id=message.response_id)
    return journal.partial()
