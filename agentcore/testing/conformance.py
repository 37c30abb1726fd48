"""What every stream function must keep to, as checks that raise `AssertionError`; and what a valid transcript is.

::

    check_stream_function(my_stream_fn, model, context)      # asks it several times, aborted and closed early too
    events = check_events(my_stream_fn(model, context, options))     # asks once, and looks at each event
    assert_valid_transcript(agent.messages)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from agentcore.abort import AbortController
from agentcore.config import ModelContext, StreamFn, StreamOptions
from agentcore.content import TextContent, ThinkingContent, ToolCall
from agentcore.events import (
    DoneEvent,
    ErrorEvent,
    RequestRetryEvent,
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
from agentcore.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from agentcore.models import Model

__all__ = ["assert_valid_transcript", "check_events", "check_stream_function"]

_STARTS = (TextStartEvent, ThinkingStartEvent, ToolCallStartEvent)
_DELTAS = (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)
_ENDS = (TextEndEvent, ThinkingEndEvent, ToolCallEndEvent)
_KINDS = {
    **dict.fromkeys((TextStartEvent, TextDeltaEvent, TextEndEvent), TextContent),
    **dict.fromkeys((ThinkingStartEvent, ThinkingDeltaEvent, ThinkingEndEvent), ThinkingContent),
    **dict.fromkeys((ToolCallStartEvent, ToolCallDeltaEvent, ToolCallEndEvent), ToolCall),
}


def _check(condition: Any, what: str) -> None:
    if not condition:
        raise AssertionError(what)


@attrs.define
class _Block:
    kind: type[Any]
    text: str = ""
    ended: bool = False


def check_events(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    """Go through the events of one response and return them; raises `AssertionError` for what breaks the rules.

    The rules: `RequestRetryEvent`s may come first, then a `StartEvent`; blocks begin in order, their deltas come between
    their start and their end and make up what the end says; the last event, and only the last, is a `DoneEvent` or an
    `ErrorEvent`; its message agrees with its kind and holds the blocks that were told of. Every `partial` shows the
    message as it stood at its event, also when it is read after the end.
    """
    seen: list[StreamEvent] = []
    blocks: list[_Block] = []
    expected: list[list[str]] = []
    started = False
    for event in events:
        _check(
            not seen or not isinstance(seen[-1], (DoneEvent, ErrorEvent)), f"`{event.type}` came after the last event"
        )
        seen.append(event)
        if isinstance(event, StartEvent):
            _check(not started, "a second `start`")
            started = True
        elif isinstance(event, RequestRetryEvent):
            _check(not started, "a retry after the response had begun")
            _check(event.attempt >= 1 and event.delay >= 0, "a retry with a nonsensical attempt or delay")
        elif isinstance(event, (*_STARTS, *_DELTAS, *_ENDS)):
            _check(started, f"`{event.type}` came before `start`")
            _take(event, blocks)
        expected.append([block.text for block in blocks])
    _check(
        seen and isinstance(seen[-1], (DoneEvent, ErrorEvent)), "the response ended without a done or an error event"
    )
    for event, texts in zip(seen, expected, strict=True):
        if not isinstance(event, (DoneEvent, ErrorEvent, RequestRetryEvent)):
            _check_partial(event, texts)
    _check_last(seen[-1], blocks)
    return seen


def _take(event: Any, blocks: list[_Block]) -> None:
    index, kind = event.content_index, _KINDS[type(event)]
    if isinstance(event, _STARTS):
        # Whole blocks, which only their own API understands, have no events: they may be passed over.
        _check(index >= len(blocks), f"block {index} begins a second time")
        blocks.extend(_Block(object, ended=True) for _ in range(index - len(blocks)))
        blocks.append(_Block(kind))
        return
    _check(index < len(blocks), f"`{event.type}` of block {index}, which has not begun")
    block = blocks[index]
    _check(block.kind is kind, f"`{event.type}` of block {index}, which is of another kind")
    _check(not block.ended, f"`{event.type}` of block {index}, which has ended")
    if isinstance(event, _DELTAS):
        block.text += event.delta
        return
    block.ended = True
    if not isinstance(event, ToolCallEndEvent):
        _check(event.content == block.text, f"the end of block {index} says something else than its deltas")


def _check_partial(event: Any, texts: Sequence[str]) -> None:
    shown: list[str | None] = []
    for block in event.partial.content:
        match block:
            case TextContent():
                shown.append(block.text)
            case ThinkingContent():
                shown.append(block.thinking)
            case ToolCall():
                shown.append(block.partial_json)
            case _:
                shown.append("")
    _check(len(shown) >= len(texts), f"the partial at `{event.type}` lacks a block")
    for index, (text, part) in enumerate(zip(texts, shown, strict=False)):
        # A call that is complete shows its arguments and no raw text.
        _check(
            part is None or part == text, f"the partial at `{event.type}` shows {part!r} in block {index}, not {text!r}"
        )


def _check_last(event: StreamEvent, blocks: Sequence[_Block]) -> None:
    assert isinstance(event, (DoneEvent, ErrorEvent))
    message = event.message
    failed = message.stop_reason in ("error", "aborted")
    _check(failed == isinstance(event, ErrorEvent), f"`{event.type}` with the stop reason {message.stop_reason!r}")
    _check(not failed or message.error is not None, "a message that failed says no error")
    _check(failed or all(block.ended for block in blocks), "the response is done, but a block has not ended")
    told = [block.text for block in blocks if block.kind is TextContent]
    held = [block.text for block in message.content if isinstance(block, TextContent)]
    _check(told == [text for text in held if text] or told == held, "the message holds other text than was told of")
    ids = [call.id for call in message.tool_calls]
    _check(all(ids) and len(ids) == len(set(ids)), "the ids of the calls are not unique")
    if not failed:
        _check(
            len(ids) == sum(block.kind is ToolCall for block in blocks),
            "the message holds other calls than were told of",
        )


def check_stream_function(
    stream_fn: StreamFn,
    model: Model,
    context: ModelContext | None = None,
    options: StreamOptions | None = None,
    *,
    heeds_signal: bool = True,
    prepare: Callable[[], object] | None = None,
) -> None:
    """Ask a stream function several times, and check that it keeps to the rules.

    It is asked to its end; aborted beforehand, which must give an `aborted` error and no exception; aborted after its
    first event; and closed after its first event. One that leaves aborts to the loop, as a generator that never waits
    may, is checked with `heeds_signal=False`. `prepare()` is called before each time. What it answers does not matter.
    Raises `AssertionError`.
    """
    asked = context if context is not None else ModelContext("", (UserMessage("Hello"),), ())
    given = options if options is not None else StreamOptions()
    ready = prepare if prepare is not None else (lambda: None)

    ready()
    check_events(stream_fn(model, asked, given))

    controller = AbortController()
    controller.abort("stopped before it began")
    ready()
    last = check_events(stream_fn(model, asked, attrs.evolve(given, signal=controller.signal)))[-1]
    if heeds_signal:
        obeyed = isinstance(last, ErrorEvent) and last.message.stop_reason == "aborted"
        _check(obeyed, "an abort beforehand was not obeyed")

    controller = AbortController()
    ready()
    seen: list[StreamEvent] = []
    for event in stream_fn(model, asked, attrs.evolve(given, signal=controller.signal)):
        seen.append(event)
        controller.abort("stopped in the middle")
    check_events(seen)

    ready()
    iterator = iter(stream_fn(model, asked, given))
    next(iterator)
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


def assert_valid_transcript(messages: Sequence[AgentMessage]) -> None:
    """Check that every call of a finished response has exactly one result, in order, right after it, and no other result.

    Calls at the very end may be without results if a run has paused there. Raises `AssertionError` saying what is wrong.
    """
    waiting: list[ToolCall] = []
    for number, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            _check(waiting, f"message {number} is a result of {message.tool_call_id!r}, which no call waits for")
            ids = [call.id for call in waiting]
            _check(
                message.tool_call_id in ids, f"message {number} is a result of {message.tool_call_id!r}, not of {ids}"
            )
            skipped = ids.index(message.tool_call_id)
            _check(not skipped, f"message {number} is a result of {message.tool_call_id!r}, but {ids[0]!r} comes first")
            waiting.pop(0)
            continue
        _check(not waiting, f"message {number} comes while calls wait: {[call.id for call in waiting]}")
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            waiting = list(message.tool_calls)
