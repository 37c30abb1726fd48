"""A model that follows a script: a stream function that plays given replies, in any pieces, with gates that hold it.

::

    model = scripted(reply("I look.", call("read", path="a.txt")), reply("Done."))
    run_agent_loop("hi", AgentContext(), AgentLoopConfig(model=scripted_model()), events.append, stream_fn=model)
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "toolResult"]

A test stops a reply wherever it wants, and lets it go on, without sleeping::

    gate = Gate()
    model = scripted(reply("a long answer", chunk=3, gates={2: gate}))  # stop after the second delta
    stream = agent_loop("hi", AgentContext(), AgentLoopConfig(model=scripted_model()), stream_fn=model)
    gate.wait_reached()
    stream.abort()
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from agentcore.abort import AbortSignal
from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, TextContent, ThinkingContent, ToolCall, is_block
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
from agentcore.messages import AgentMessage, AssistantMessage, ErrorInfo, Usage
from agentcore.models import Model
from agentcore.partial import MessageJournal
from agentcore.providers._partial_json import parse_partial_object
from agentcore.testing.gate import Gate

__all__ = [
    "Gate",
    "ModelRequest",
    "ScriptedModel",
    "ScriptedReply",
    "call",
    "failure",
    "reply",
    "scripted",
    "scripted_model",
    "thinking",
]

# --- what a script is made of ---------------------------------------------------------------------------------------

Part = str | ContentBlock | Gate | RequestRetryEvent
"""What a reply is made of: text, a block, a gate to stop at, or a retry to report before the reply begins."""


def _parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    checked = tuple(TextContent(part) if isinstance(part, str) else part for part in parts)
    for part in checked:
        if not isinstance(part, (Gate, RequestRetryEvent)) and not is_block(part):
            raise TypeError(f"a reply is made of text, blocks, gates and retries, not {type(part).__name__}")
    return checked


def _check_chunk(answer: ScriptedReply, field: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"`chunk` is {value!r}; a delta has at least 1 character (None sends each block in one)")


@attrs.frozen(eq=False)
class ScriptedReply:
    """One response of a scripted model.

    `parts` are the blocks in order, with gates between them and retries to report first. `chunk` is the most
    characters that a delta has (`None`: each block in one delta); `deltas` gives those of the block of that index
    exactly. `gates` maps a number of deltas to the gate that holds the response when so many have been sent, and
    `hold` is one that holds it before anything is. `stop_reason` is `tool_use` if there is a tool call, else `stop`,
    when it is left out; with `error` it is `error`. `start=False` sends the final event only.
    """

    parts: tuple[Part, ...] = attrs.field(default=(), converter=_parts)
    stop_reason: str | None = attrs.field(default=None, kw_only=True)
    error: ErrorInfo | None = attrs.field(default=None, kw_only=True)
    usage: Usage | None = attrs.field(default=None, kw_only=True)
    chunk: int | None = attrs.field(default=None, kw_only=True, validator=_check_chunk)
    deltas: Mapping[int, Sequence[str]] = attrs.field(factory=dict, kw_only=True)
    gates: Mapping[int, Gate] = attrs.field(factory=dict, kw_only=True)
    hold: Gate | None = attrs.field(default=None, kw_only=True)
    start: bool = attrs.field(default=True, kw_only=True)


def reply(
    *parts: Part,
    stop_reason: str | None = None,
    error: ErrorInfo | None = None,
    usage: Usage | None = None,
    chunk: int | None = None,
    deltas: Mapping[int, Sequence[str]] | None = None,
    gates: Mapping[int, Gate] | None = None,
    hold: Gate | None = None,
    start: bool = True,
) -> ScriptedReply:
    """Return a reply of text, blocks and gates; the options are those of `ScriptedReply`."""
    return ScriptedReply(
        parts,
        stop_reason=stop_reason,
        error=error,
        usage=usage,
        chunk=chunk,
        deltas=deltas or {},
        gates=gates or {},
        hold=hold,
        start=start,
    )


def failure(
    message: str, *parts: Part, kind: str = "overloaded", usage: Usage | None = None, start: bool = True
) -> ScriptedReply:
    """Return a reply that ends in an error after `parts`."""
    return reply(*parts, error=ErrorInfo(kind, message), usage=usage, start=start)


_call_numbers = itertools.count(1)


def call(name: str, /, *, id: str | None = None, **arguments: Any) -> ToolCall:
    """Return a tool call with an id of its own, unless one is given."""
    return ToolCall(id or f"call_{next(_call_numbers)}", name, arguments)


def thinking(text: str) -> ThinkingContent:
    """Return a thinking block."""
    return ThinkingContent(text)


def scripted_model(**fields: Any) -> Model:
    """Return a model to go with a script; `fields` are those of `Model`."""
    return Model(**{"id": "scripted-1", "api": "scripted", "provider": "scripted", **fields})


# --- the stream function --------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class ModelRequest:
    """What a stream function was asked."""

    model: Model
    context: ModelContext
    options: StreamOptions

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """The messages that would have been sent."""
        return self.context.messages


Script = ScriptedReply | str | BaseException | Iterable[StreamEvent]
"""What a model does when it is asked once: a reply, text, an exception to raise, or events as they are."""

ScriptedAnswer = Script | Callable[[ModelRequest], Script]
"""A script, or a function that makes one of the request."""


class ScriptedModel:
    """A stream function that plays a script, and keeps what it was asked.

    `requests` holds the requests so far, in order; `closed` counts the responses that have ended or were closed.
    Asked once more than it has replies, it raises `AssertionError`, which a loop reports as a failed response; with
    `repeat` it begins again instead.

    Threads: may be asked by several runs at once; the replies then go out in the order in which they ask.
    """

    def __init__(self, replies: Iterable[ScriptedAnswer], *, repeat: bool = False) -> None:
        self.replies = tuple(replies)
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self._repeat = repeat
        self._numbers = itertools.count()

    def __call__(self, model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
        request = ModelRequest(model, context, options)
        number = next(self._numbers)
        self.requests.append(request)
        return self._play(number, request)

    def _play(self, number: int, request: ModelRequest) -> Iterator[StreamEvent]:
        try:
            yield from _events(self._script(number, request), request)
        finally:
            self.closed += 1

    def _script(self, number: int, request: ModelRequest) -> Script:
        if self._repeat and self.replies:
            number %= len(self.replies)
        if number >= len(self.replies):
            raise AssertionError(f"the script has {len(self.replies)} replies, and one more was asked for")
        answer = self.replies[number]
        return answer(request) if callable(answer) else answer


def scripted(*replies: ScriptedAnswer, repeat: bool = False) -> ScriptedModel:
    """Return a stream function that plays replies in turn.

    A reply is a `ScriptedReply` (made by `reply` or `failure`), text, an exception to raise, stream events to send as
    they are, or a function of the `ModelRequest` that returns one of these.
    """
    return ScriptedModel(replies, repeat=repeat)


def _events(script: Script, request: ModelRequest) -> Iterator[StreamEvent]:
    if isinstance(script, BaseException):
        raise script
    if isinstance(script, str):
        script = reply(script)
    return _played(script, request) if isinstance(script, ScriptedReply) else iter(script)


def _played(answer: ScriptedReply, request: ModelRequest) -> Iterator[StreamEvent]:
    model, signal = request.model, request.options.signal
    if answer.hold is not None:
        answer.hold.hold(signal)
    for part in answer.parts:
        if isinstance(part, RequestRetryEvent):
            yield part
    journal = MessageJournal(
        api=model.api, provider=model.provider, model=model.id, parse_arguments=parse_partial_object
    )
    if answer.start:
        yield StartEvent(journal.partial())
    done: list[ContentBlock] = []
    sent = itertools.count(1)
    for part in answer.parts:
        if isinstance(part, Gate):
            part.hold(signal)
        elif not isinstance(part, RequestRetryEvent):
            assert not isinstance(part, str)
            if answer.start:
                yield from _held(_block_events(journal, len(done), part, answer), sent, answer.gates, signal)
            done.append(part)
    message = AssistantMessage(
        done,
        api=model.api,
        provider=model.provider,
        model=model.id,
        usage=answer.usage,
        stop_reason=_stop_reason(answer, done),
        error=answer.error,
        timestamp=journal.timestamp,
    )
    yield ErrorEvent(message) if message.stop_reason in ("error", "aborted") else DoneEvent(message)


def _stop_reason(answer: ScriptedReply, blocks: Iterable[ContentBlock]) -> str:
    if answer.stop_reason is not None:
        return answer.stop_reason
    if answer.error is not None:
        return "error"
    return "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"


def _held(
    events: Iterator[StreamEvent], sent: Iterator[int], gates: Mapping[int, Gate], signal: AbortSignal | None
) -> Iterator[StreamEvent]:
    """Pass events on, and stop after the deltas that have a gate."""
    for event in events:
        yield event
        if isinstance(event, (TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent)):
            gate = gates.get(next(sent))
            if gate is not None:
                gate.hold(signal)


def _block_events(
    journal: MessageJournal, index: int, block: ContentBlock, answer: ScriptedReply
) -> Iterator[StreamEvent]:
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
            for delta in _deltas(_raw_arguments(block, answer.deltas.get(index)), index, answer):
                journal.append(index, delta)
                yield ToolCallDeltaEvent(index, delta, journal.partial())
            journal.close(index, block)
            yield ToolCallEndEvent(index, block, journal.partial())
        case _:
            journal.open(index, block)


def _raw_arguments(block: ToolCall, given: Sequence[str] | None) -> str:
    if given is not None:
        return ""  # the deltas say it, also for arguments that JSON cannot hold
    return block.partial_json if block.partial_json is not None else json.dumps(block.arguments)


def _deltas(text: str, index: int, answer: ScriptedReply) -> Sequence[str]:
    if index in answer.deltas:
        return answer.deltas[index]
    size = answer.chunk or len(text)
    return [text[at : at + size] for at in range(0, len(text), size)] if text else []
