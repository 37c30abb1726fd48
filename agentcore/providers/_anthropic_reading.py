"""Read the responses of Anthropic's Messages API.

Each content block has its place, its start, deltas and stop; blocks that the API runs itself (server tools and their
results) are kept whole as `ProviderContent`, those that are cut off are left out. Only `message_stop` ends a response.
What an event is, its `type` in the data says; the event's name is not looked at. Where a server leaves the index out, a
start begins the next block and everything else is about the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentcore.content import ThinkingContent
from agentcore.messages import ErrorInfo
from agentcore.providers._assembler import Assembler, Events
from agentcore.providers._exchange import Incoming, Reading
from agentcore.providers._replay import clean_json
from agentcore.providers._stop_reasons import stop_reason

__all__ = ["read_stream", "read_whole"]

_COUNTS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}


def read_stream(incoming: Incoming, assembler: Assembler) -> Reading:
    """Yield the events of a streamed response, return the last ones."""
    reader = _Reader(incoming, assembler)
    read, parse = reader.read, incoming.data
    for _, data in incoming:
        if data == "[DONE]":  # a foreign word that some gateways add
            continue
        yield from read(parse(data))
        if reader.ended:
            return reader.end()
    reader.failure = incoming.cut_off("`message_stop`")
    return reader.end()


def read_whole(document: Any, incoming: Incoming, assembler: Assembler) -> Events:
    """Return the events of a response that came as one JSON document."""
    reader = _Reader(incoming, assembler)
    content = document.get("content") if isinstance(document, dict) else None
    if not isinstance(content, list) or document.get("type") == "error":
        reader.failure = incoming.error(document)
        return reader.end()
    events: list[Any] = [*reader.begin(document)]
    for index, block in enumerate(content):
        events += reader.read({"type": "content_block_start", "index": index, "content_block": block})
        events += reader.read({"type": "content_block_stop", "index": index})
    events += reader.read({"type": "message_delta", "delta": document})
    return (*events, *reader.end())


class _Reader:
    """Feeds the assembler with one response."""

    def __init__(self, incoming: Incoming, assembler: Assembler) -> None:
        self._incoming = incoming
        self._assembler = assembler
        self._text = assembler.text
        # The blocks of the provider, by index, with the raw text of the input that streams in.
        self._foreign: dict[int, tuple[dict[str, Any], list[str]]] = {}
        self._inputs: dict[int, Any] = {}
        self._last = -1
        self._reason = ""
        self._explanation = ""
        self.ended = False
        self.failure: ErrorInfo | None = None

    def read(self, event: Any) -> Events:
        """Return the events that one event of the API leads to."""
        if type(event) is not dict:
            return ()
        kind = event.get("type")
        if kind == "content_block_delta":
            delta = event.get("delta")
            return self._delta(self._index(event), delta) if type(delta) is dict else ()
        match kind:
            case "content_block_start":
                block = event.get("content_block")
                return self._start(self._index(event, begins=True), block) if isinstance(block, dict) else ()
            case "content_block_stop":
                return self._stop(self._index(event))
            case "message_start":
                message = event.get("message")
                return self.begin(message) if isinstance(message, dict) else ()
            case "message_delta":
                self._change(event)
            case "message_stop":
                self.ended = True
            case "error":
                self.failure = self._incoming.error(event)
                self.ended = True
            case None if event.get("error"):
                self.failure = self._incoming.error(event)
                self.ended = True
        return ()

    def begin(self, message: Mapping[str, Any]) -> Events:
        """Take what a response begins with."""
        id = message.get("id")
        if isinstance(id, str):
            self._assembler.response_id(id)
        self._count(message.get("usage"))
        return self._assembler.start()

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _index(self, event: Mapping[str, Any], *, begins: bool = False) -> int:
        index = event.get("index")
        if type(index) is not int:
            index = self._last + 1 if begins else max(self._last, 0)
        self._last = index
        return index

    def _start(self, index: int, block: dict[str, Any]) -> Events:
        assembler = self._assembler
        ended = self._stop(index)  # what a server that counts every block as the same one has not stopped
        match block.get("type"):
            case "text":
                return (*ended, *assembler.text(_string(block, "text"), index))
            case "thinking":
                events = assembler.thinking(_string(block, "thinking"), index)
                return (*ended, *events, *self._sign(index, _string(block, "signature")))
            case "redacted_thinking":
                return (*ended, *assembler.redacted_thinking(_string(block, "data")))
            case "tool_use":
                given = block.get("input")
                if given:
                    self._inputs[index] = given
                begun = assembler.tool_call(index, id=_string(block, "id"), name=_string(block, "name"))
                return (*ended, *begun)
        self._foreign[index] = (dict(block), [])
        return ended

    def _delta(self, index: int, delta: dict[str, Any]) -> Events:
        kind = delta.get("type")
        if kind == "text_delta":
            text = delta.get("text")
            return self._text(text, index) if type(text) is str else ()
        if kind == "input_json_delta":
            part = _string(delta, "partial_json")
            if index in self._foreign:
                self._foreign[index][1].append(part)
                return ()
            if part:
                self._inputs.pop(index, None)
            return self._assembler.tool_call(index, part)
        if kind == "thinking_delta":
            return self._assembler.thinking(_string(delta, "thinking"), index)
        if kind == "signature_delta":
            return self._sign(index, _string(delta, "signature"))
        if kind == "compaction_delta" and index in self._foreign:
            block = self._foreign[index][0]
            block["content"] = (block.get("content") or "") + _string(delta, "content")
        return ()

    def _sign(self, index: int, signature: str) -> Events:
        return self._assembler.sign(index, signature, ThinkingContent) if signature else ()

    def _stop(self, index: int) -> Events:
        if index in self._foreign:
            block, parts = self._foreign.pop(index)
            if parts:
                block["input"] = _object("".join(parts), block.get("input"))
            return self._assembler.provider_content(clean_json(block))
        given = self._inputs.pop(index, None)
        events: Events = ()
        if given is not None:  # a server that sends the whole input at the start
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            events = self._assembler.tool_call(index, text)
        return (*events, *self._assembler.end(index))

    def _stop_calls(self) -> Events:
        """End the calls whose whole input came with their start, and that were not stopped."""
        return tuple(event for index in sorted(self._inputs) for event in self._stop(index))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _change(self, event: Mapping[str, Any]) -> None:
        delta = event.get("delta")
        if isinstance(delta, dict):
            self._count(delta.get("usage"))
            reason = delta.get("stop_reason")
            if reason and isinstance(reason, str):
                self._reason = reason
            details = delta.get("stop_details")
            if isinstance(details, dict):
                self._explanation = _string(details, "explanation")
        self._count(event.get("usage"))

    def _count(self, usage: Any) -> None:
        """Take reported usage; the counts are totals, so the last of each wins."""
        if not isinstance(usage, dict):
            return
        counts = {ours: _number(usage, theirs) for theirs, ours in _COUNTS.items()}
        details = usage.get("output_tokens_details")
        if isinstance(details, dict):
            counts["reasoning"] = _number(details, "thinking_tokens")
        self._assembler.usage(**counts)

    def end(self) -> Events:
        """Return the last events."""
        assembler, reason = self._assembler, self._reason
        if self.failure is not None:
            return assembler.fail(self.failure, reason or None)
        if not reason:
            return (*self._stop_calls(), *assembler.finish("tool_use" if assembler.has_calls else "stop"))
        meaning, error = stop_reason(reason)
        if error is None:
            return (*self._stop_calls(), *assembler.finish(meaning, reason))
        if self._explanation:
            error = ErrorInfo(error.kind, f"{error.message}: {self._explanation}")
        return assembler.fail(error, reason)


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if type(value) is str else ""


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if type(value) is int and value >= 0 else None


def _object(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
