"""Record a real run once, at the stream function, and replay it for ever.

::

    with Recorder("run.jsonl", stream_response) as recorder:        # asks the real model
        run_agent_loop("hi", context, config, emit, stream_fn=recorder)
    run_agent_loop("hi", context, config, emit, stream_fn=replay("run.jsonl"))      # asks nobody

A recording holds one JSON line a response: what was asked (the model's id, the system prompt, the messages, the names of
the tools) and the events that came. Keys, headers and other options are never stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from agentcore._records import json_safe
from agentcore.config import ModelContext, StreamFn, StreamOptions
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
from agentcore.messages import AssistantMessage
from agentcore.models import Model
from agentcore.partial import MessageJournal
from agentcore.providers._partial_json import parse_partial_object

__all__ = ["Recorder", "replay"]


def _request(model: Model, context: ModelContext) -> dict[str, Any]:
    """Return what is compared when a recording is replayed: nothing that changes from run to run, and no secret."""
    messages = [json_safe(message) for message in context.messages]
    return {
        "model": model.id,
        "system_prompt": context.system_prompt,
        "messages": [_timeless(message) for message in messages],
        "tools": [tool.name for tool in context.tools],
    }


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key != "timestamp"}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


class Recorder:
    """A stream function that asks another one and writes down what it answers.

    A response that is not read to its end is not recorded. Raises `FileExistsError` rather than adding to a recording.

    Threads: one response at a time.
    """

    def __init__(self, path: str | Path, stream_fn: StreamFn) -> None:
        self._file = Path(path).open("x", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        self._stream_fn = stream_fn

    def __call__(self, model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
        events: list[dict[str, Any]] = []
        request = _request(model, context)
        for event in self._stream_fn(model, context, options):
            events.append(event.to_dict())
            if isinstance(event, (DoneEvent, ErrorEvent)):
                self._file.write(json.dumps({"request": request, "events": events}) + "\n")
                self._file.flush()
            yield event

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def replay(path: str | Path, *, strict: bool = True) -> StreamFn:
    """Return a stream function that gives the responses of a recording, in order.

    With `strict` each request must be the recorded one, but for times; otherwise, and when the recording is used up, it
    raises `AssertionError`, which a run reports as a failed response.
    """
    lines = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
    remaining = iter(lines)

    def stream_fn(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
        recorded = next(remaining, None)
        if recorded is None:
            raise AssertionError(f"the recording has {len(lines)} responses, and one more was asked for")
        if strict:
            asked = json.loads(json.dumps(_request(model, context)))
            for name, value in recorded["request"].items():
                if asked[name] != value:
                    raise AssertionError(f"the request differs from the recorded one in `{name}`")
        return _played(model, recorded["events"])

    return stream_fn


def _played(model: Model, events: list[dict[str, Any]]) -> Iterator[StreamEvent]:
    message = AssistantMessage.from_dict(events[-1]["message"])
    journal = MessageJournal(
        api=message.api,
        provider=message.provider,
        model=message.model,
        timestamp=message.timestamp,
        parse_arguments=parse_partial_object,
    )
    opened = 0
    for data in events:
        kind, index, delta = data["type"], data.get("content_index", 0), data.get("delta", "")
        for place in range(opened, index):  # blocks that came whole have no events
            journal.open(place, message.content[place])
        opened = max(opened, index)
        if kind.endswith("_start"):
            journal.open(index, _empty(kind, message.content[index] if index < len(message.content) else None))
            opened = index + 1
        elif kind.endswith("_delta"):
            journal.append(index, delta)
        elif kind.endswith("_end"):
            journal.close(index, message.content[index])
        yield _event(data, kind, journal, message)


def _empty(kind: str, block: ContentBlock | None) -> ContentBlock:
    if kind == "text_start":
        return TextContent("")
    if kind == "thinking_start":
        return ThinkingContent("")
    call = block if isinstance(block, ToolCall) else ToolCall("", "", {})
    return ToolCall(call.id, call.name, {}, partial_json="")


def _event(data: dict[str, Any], kind: str, journal: MessageJournal, message: AssistantMessage) -> StreamEvent:
    partial, index, delta = journal.partial(), data.get("content_index", 0), data.get("delta", "")
    match kind:
        case "request_retry":
            return RequestRetryEvent(data["attempt"], data["delay"], data["reason"])
        case "start":
            return StartEvent(partial)
        case "text_start":
            return TextStartEvent(index, partial)
        case "text_delta":
            return TextDeltaEvent(index, delta, partial)
        case "text_end":
            return TextEndEvent(index, data["content"], partial)
        case "thinking_start":
            return ThinkingStartEvent(index, partial)
        case "thinking_delta":
            return ThinkingDeltaEvent(index, delta, partial)
        case "thinking_end":
            return ThinkingEndEvent(index, data["content"], partial)
        case "toolcall_start":
            return ToolCallStartEvent(index, partial)
        case "toolcall_delta":
            return ToolCallDeltaEvent(index, delta, partial)
        case "toolcall_end":
            call = message.content[index]
            assert isinstance(call, ToolCall)
            return ToolCallEndEvent(index, call, partial)
        case "done":
            return DoneEvent(message)
    return ErrorEvent(message)
