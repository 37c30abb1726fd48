"""One response of the model: what is sent, and what becomes of the events that come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from agentcore._foreign import coroutine_closed
from agentcore._logs import log_details, log_failure
from agentcore._records import text_of
from agentcore._run import Response, Run, drop_event
from agentcore.config import ModelContext, StreamOptions
from agentcore.errors import AbortRequested
from agentcore.events import (
    DoneEvent,
    ErrorEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
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
from agentcore.messages import AssistantMessage, ErrorInfo
from agentcore.models import ThinkingLevel
from agentcore.partial import PartialMessage

__all__ = ["respond"]

_UPDATES = frozenset(
    (
        TextStartEvent,
        TextDeltaEvent,
        TextEndEvent,
        ThinkingStartEvent,
        ThinkingDeltaEvent,
        ThinkingEndEvent,
        ToolCallStartEvent,
        ToolCallDeltaEvent,
        ToolCallEndEvent,
    )
)
_OPTIONS = tuple(field.name for field in attrs.fields(StreamOptions))


def respond(run: Run) -> AssistantMessage:
    """Ask the model once; return its message, which is in the transcript by then."""
    run.signal.raise_if_aborted()
    context, options = _request(run)
    run.signal.raise_if_aborted()
    run.response = Response()
    return run.finish_response(_received(run, run.response, context, options))


def _request(run: Run) -> tuple[ModelContext, StreamOptions]:
    config = run.config
    messages: Any = run.messages()
    if config.transform_context is not None:
        messages = _sequence(config.transform_context(messages, run.signal), "transform_context")
        run.signal.raise_if_aborted()
    messages = _sequence(config.convert_to_llm(messages), "convert_to_llm")
    api_key = config.get_api_key(run.model.provider) if config.get_api_key is not None else None
    if coroutine_closed(api_key):
        raise TypeError("`get_api_key` is a coroutine function; hooks here are plain functions")
    values = {name: getattr(config, name) for name in _OPTIONS}
    reasoning = None if run.reasoning is ThinkingLevel.OFF else run.reasoning
    values.update(api_key=api_key or config.api_key, signal=run.signal, reasoning=reasoning)
    return ModelContext(run.system_prompt, messages, tuple(run.tools.values()), memo=run.memo), StreamOptions(**values)


def _sequence(value: Any, hook: str) -> Any:
    if coroutine_closed(value):
        raise TypeError(f"`{hook}` is a coroutine function; hooks here are plain functions")
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"`{hook}` returned {type(value).__name__}, not a list of messages")
    return value


def _received(run: Run, response: Response, context: ModelContext, options: StreamOptions) -> AssistantMessage:
    """Return the final message of a stream function; whatever it does, it is one message."""
    iterator: Iterator[StreamEvent] | None = None
    try:
        try:
            stream = run.stream_fn(run.model, context, options)
            if coroutine_closed(stream):
                raise TypeError("the stream function is a coroutine function; it must return an iterator of events")
            iterator = iter(stream)
        except Exception as error:
            return _failed(run, f"the stream function raised {type(error).__name__}: {text_of(error)}", error)
        return _consumed(run, response, iterator)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            _closed(close)


def _closed(close: Any) -> None:
    try:
        close()
    except Exception as error:
        log_failure("loop", error, "closing a stream function failed")


def _consumed(run: Run, response: Response, iterator: Iterator[StreamEvent]) -> AssistantMessage:
    """Pass the events of a stream on; return the final message."""
    signal, sink = run.signal, run.sink
    started = False
    try:
        while True:
            try:
                event = next(iterator)
            except StopIteration:
                return _failed(run, "the stream function ended without a done or an error event")
            except Exception as error:
                return _failed(run, f"the stream function raised {type(error).__name__}: {text_of(error)}", error)
            kind = type(event)
            if kind in _UPDATES:
                if started:
                    partial = event.partial  # type: ignore[union-attr]
                    if type(partial) is not PartialMessage and not isinstance(partial, AssistantMessage):
                        return _failed(run, _no_message(event))
                    response.partial = partial
                    sink(MessageUpdateEvent(partial, event))
            elif kind is DoneEvent or kind is ErrorEvent:
                # Recorded before the stream function is closed, which may be interrupted, or raise an abort.
                message = _final(run, event)
                response.end = MessageEndEvent(message)
                return message
            elif kind is StartEvent:
                if not started:
                    partial = event.partial  # type: ignore[union-attr]
                    if not isinstance(partial, (PartialMessage, AssistantMessage)):
                        return _failed(run, _no_message(event))
                    response.partial = partial
                    response.start = MessageStartEvent(partial)
                    run.emit(response.start)
                    response.start_is_sent = started = True
            elif kind is RequestRetryEvent:
                # What went out last does not go out again: the same event twice in a row is two events here.
                run.emit(event if event is not run.last else attrs.evolve(event))  # type: ignore[arg-type]
            else:
                return _failed(run, f"the stream function yielded {kind.__name__}, which is no stream event")
            if signal.aborted:
                raise AbortRequested(signal.reason)
    except Exception:
        run.sink = drop_event  # what is left to raise here is `emit`
        raise


def _no_message(event: Any) -> str:
    return f"the `partial` of a {type(event).__name__} is {type(event.partial).__name__}, not a message"


def _final(run: Run, event: Any) -> AssistantMessage:
    message = event.message
    if not isinstance(message, AssistantMessage):
        return _failed(run, f"the final event holds {type(message).__name__}, not an `AssistantMessage`")
    if isinstance(event, DoneEvent) or message.stop_reason == "aborted":
        return message
    if run.signal.aborted:  # which is what made it fail
        return attrs.evolve(message, stop_reason="aborted", error=ErrorInfo("aborted", text_of(run.signal.reason)))
    error = message.error or ErrorInfo("stream_function", "the stream function ended with an error event")
    return attrs.evolve(message, stop_reason="error", error=error)


def _failed(run: Run, text: str, error: Exception | None = None) -> AssistantMessage:
    """Return what has arrived as a message that failed; during an abort the failure is a part of it."""
    if run.signal.aborted:
        raise AbortRequested(run.signal.reason)
    if error is not None:
        log_details("loop", error, "a stream function failed")
    return run.cut_short("error", ErrorInfo("stream_function", text))
