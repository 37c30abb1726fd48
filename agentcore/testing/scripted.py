"""A model that follows a script: a stream function that plays given replies, and gates that hold it.

::

    model = scripted(reply("Hello"), reply(call("read", path="a.txt")), reply("Done."))
    run_agent_loop("hi", AgentContext(), AgentLoopConfig(model=scripted_model()), events.append, stream_fn=model)
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "toolResult"]
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from agentcore.abort import AbortSignal
from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, TextContent, ThinkingContent, ToolCall
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
from agentcore.messages import AssistantMessage, ErrorInfo, Usage
from agentcore.models import Model
from agentcore.partial import MessageJournal
from agentcore.providers._partial_json import parse_partial_object

__all__ = [
    "Gate",
    "ModelRequest",
    "Reply",
    "ScriptedModel",
    "call",
    "failure",
    "reply",
    "scripted",
    "scripted_model",
    "thinking",
]


class Gate:
    """A point at which a script waits until a test lets it go on.

    Threads: every method may be used from any thread.
    """

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait_reached(self, timeout: float = 10.0) -> None:
        """Wait until the script has come to the gate; raises `TimeoutError` if it does not."""
        if not self._reached.wait(timeout):
            raise TimeoutError(f"the gate was not reached within {timeout:g} s")

    def release(self) -> None:
        """Let the script go on, now or when it comes."""
        self._released.set()

    def hold(self, signal: AbortSignal | None = None) -> None:
        """Stand at the gate until it is released or the signal is aborted."""
        self._reached.set()
        if signal is None:
            self._released.wait()
            return
        remove = signal.add_callback(self._released.set)
        try:
            self._released.wait()
        finally:
            remove()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@attrs.frozen(eq=False)
class ModelRequest:
    """What a stream function was asked."""

    model: Model
    context: ModelContext
    options: StreamOptions

    @property
    def messages(self) -> tuple[Any, ...]:
        """The messages that would have been sent."""
        return self.context.messages


_Part = ContentBlock | Gate | RequestRetryEvent


@attrs.frozen(eq=False)
class Reply:
    """One response: blocks, gates between or inside them, and how it ends.

    `chunk` is how many characters a delta has at the most; `None` sends each block in one. `chunks` of a block's index
    gives its deltas exactly. `gates` maps the number of deltas sent so far to a gate that holds the response there.
    """

    parts: tuple[_Part, ...]
    stop_reason: str | None = None
    error: ErrorInfo | None = None
    usage: Usage | None = None
    chunk: int | None = None
    deltas: dict[int, list[str]] = attrs.field(factory=dict)
    gates: dict[int, Gate] = attrs.field(factory=dict)
    start: bool = True


_call_numbers = itertools.count(1)


def call(name: str, /, *, id: str | None = None, **arguments: Any) -> ToolCall:
    """Return a tool call with an id of its own, unless one is given."""
    return ToolCall(id or f"call_{next(_call_numbers)}", name, arguments)


def thinking(text: str) -> ThinkingContent:
    """Return a thinking block."""
    return ThinkingContent(text)


def reply(*parts: str | _Part, **options: Any) -> Reply:
    """Return a reply of text, blocks and gates; options are those of `Reply`.

    Its stop reason is `tool_use` if there is a tool call, else `stop`, unless one is given.
    """
    return Reply(tuple(TextContent(part) if isinstance(part, str) else part for part in parts), **options)


def failure(message: str, *parts: str | _Part, kind: str = "overloaded", **options: Any) -> Reply:
    """Return a reply that ends in an error after `parts`."""
    return reply(*parts, stop_reason="error", error=ErrorInfo(kind, message), **options)


def scripted_model(**fields: Any) -> Model:
    """Return a model to go with a script."""
    return Model(**{"id": "scripted-1", "api": "scripted", "provider": "scripted", **fields})


class ScriptedModel:
    """A stream function that gives replies in turn, and keeps what it was asked.

    After the last reply it raises `AssertionError`, which the loop reports as a failed response.

    Threads: one run at a time plays it; `requests` may be read from any thread.
    """

    def __init__(self, replies: Iterable[Any], *, repeat: bool = False) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self._repeat = repeat

    def __call__(self, model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
        request = ModelRequest(model, context, options)
        self.requests.append(request)
        number = len(self.requests) - 1
        if self._repeat:
            number %= len(self.replies)
        return self._play(number, request)

    def _play(self, number: int, request: ModelRequest) -> Iterator[StreamEvent]:
        try:
            if number >= len(self.replies):
                raise AssertionError(f"the script has {len(self.replies)} replies, and one more was asked for")
            answer = self.replies[number]
            if callable(answer) and not isinstance(answer, (Reply, type)):
                answer = answer(request)
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, str):
                answer = reply(answer)
            yield from _played(answer, request)
        finally:
            self.closed += 1


def scripted(*replies: Any, repeat: bool = False) -> ScriptedModel:
    """Return a stream function that plays replies in turn.

    A reply is a `Reply`, text, an exception to raise, or a function of the `ModelRequest` that returns one of them.
    """
    return ScriptedModel(replies, repeat=repeat)


def _played(answer: Reply, request: ModelRequest) -> Iterator[StreamEvent]:
    model, signal = request.model, request.options.signal
    journal = MessageJournal(
        api=model.api, provider=model.provider, model=model.id, parse_arguments=parse_partial_object
    )
    for retry in [part for part in answer.parts if isinstance(part, RequestRetryEvent)]:
        yield retry
    if answer.start:
        yield StartEvent(journal.partial())
    done: list[ContentBlock] = []
    sent = 0
    for part in answer.parts:
        if isinstance(part, RequestRetryEvent):
            continue
        if isinstance(part, Gate):
            part.hold(signal)
            continue
        if answer.start:
            for event in _block_events(journal, len(done), part, answer):
                yield event
                if isinstance(event, (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)):
                    sent += 1
                    if sent in answer.gates:
                        answer.gates[sent].hold(signal)
        done.append(part)
    message = AssistantMessage(
        done,
        api=model.api,
        provider=model.provider,
        model=model.id,
        usage=answer.usage,
        stop_reason=answer.stop_reason or _stop_reason(done),
        error=answer.error,
        timestamp=journal.timestamp,
    )
    yield ErrorEvent(message) if message.stop_reason in ("error", "aborted") else DoneEvent(message)


def _stop_reason(blocks: list[ContentBlock]) -> str:
    return "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"


def _deltas(text: str, index: int, answer: Reply) -> list[str]:
    if index in answer.deltas:
        return answer.deltas[index]
    if answer.chunk is None:
        return [text] if text else []
    return [text[at : at + answer.chunk] for at in range(0, len(text), answer.chunk)]


def _block_events(journal: MessageJournal, index: int, block: ContentBlock, answer: Reply) -> Iterator[StreamEvent]:
    match block:
        case TextContent():
            journal.open(index, TextContent(""))
            yield TextStartEvent(index, journal.partial())
            for delta in _deltas(block.text, index, answer):
                journal.append(index, delta)
                yield TextDeltaEvent(index, delta, journal.partial())
            journal.close(index, block)
            yield TextEndEvent(index, block.text, journal.partial())
        case ThinkingContent():
            journal.open(index, ThinkingContent(""))
            yield ThinkingStartEvent(index, journal.partial())
            for delta in _deltas(block.thinking, index, answer):
                journal.append(index, delta)
                yield ThinkingDeltaEvent(index, delta, journal.partial())
            journal.close(index, block)
            yield ThinkingEndEvent(index, block.thinking, journal.partial())
        case ToolCall():
            journal.open(index, ToolCall(block.id, block.name, {}, partial_json=""))
            yield ToolCallStartEvent(index, journal.partial())
            for delta in _deltas(block.partial_json or json.dumps(block.arguments), index, answer):
                journal.append(index, delta)
                yield ToolCallDeltaEvent(index, delta, journal.partial())
            journal.close(index, block)
            yield ToolCallEndEvent(index, block, journal.partial())
        case _:
            journal.open(index, block)
