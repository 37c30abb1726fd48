"""Read the responses of OpenAI's Responses API, and of the servers that offer it.

A response is a list of items. An item is named by its `output_index`, or by its id where a server leaves the index out
(one gives every event a new id, another has no index). What an event is, its `type` in the data says; the event's name
is not looked at. What came in deltas counts; an item as it is in the end gives only what no delta gave. Items that the
API runs itself are kept whole as `ProviderContent`, reasoning items whole in the signature of their thinking, since they
have to go back as they came.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from agentcore.content import TextContent, ThinkingContent
from agentcore.messages import ErrorInfo
from agentcore.providers._assembler import Assembler, Events
from agentcore.providers._exchange import Incoming, Reading
from agentcore.providers._replay import clean_json
from agentcore.providers._stop_reasons import stop_reason

__all__ = ["read_stream", "read_whole"]

_LAST = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_THINKING_DELTAS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXT_DELTAS = ("response.output_text.delta", "response.refusal.delta")


def read_stream(incoming: Incoming, assembler: Assembler) -> Reading:
    """Yield the events of a streamed response, return the last ones."""
    reader = _Reader(incoming, assembler)
    read, parse = reader.read, incoming.data
    for _, data in incoming:
        if data == "[DONE]":  # some send it; the response says itself when it has ended
            continue
        yield from read(parse(data))
        if reader.ended:
            return reader.end()
    reader.failure = incoming.cut_off("its last event")
    return reader.end()


def read_whole(document: Any, incoming: Incoming, assembler: Assembler) -> Events:
    """Return the events of a response that came as one JSON document."""
    reader = _Reader(incoming, assembler)
    if not isinstance(document, dict) or not isinstance(document.get("output"), list):
        reader.failure = incoming.error(document)
        return reader.end()
    events = [*reader.begin(document), *reader.finish(document, str(document.get("status") or "completed"))]
    return (*events, *reader.end())


class _Item:
    """What has come of one item."""

    __slots__ = ("arguments", "begun", "call_id", "ended", "is_call", "part", "parts", "pieces")

    def __init__(self) -> None:
        # The keys of the parts that deltas have begun; a reasoning item is one part, whose key is the item's.
        self.begun: set[Hashable] = set()
        self.is_call = False
        self.call_id = ""
        self.ended = False
        # The arguments of a call: what came in deltas, and what they were last said to be as a whole.
        self.pieces: list[str] = []
        self.arguments = ""
        # The part of a reasoning item that is going on, and how many there were.
        self.part: Any = None
        self.parts = 0


class _Reader:
    """Feeds the assembler with one response."""

    def __init__(self, incoming: Incoming, assembler: Assembler) -> None:
        self._incoming = incoming
        self._assembler = assembler
        self._items: dict[Hashable, _Item] = {}
        self._finished = 0
        self._reason = ""
        self.ended = False
        self.failure: ErrorInfo | None = None

    def read(self, event: Any) -> Events:
        """Return the events that one event of the API leads to."""
        if type(event) is not dict:
            return ()
        kind = event.get("type")
        if type(kind) is not str:
            return self._fail(event) if event.get("error") else ()
        if kind.endswith(".delta"):
            return self._delta(kind, event)
        if kind in _LAST:
            response = event.get("response")
            self.ended = True
            return self.finish(response if isinstance(response, dict) else {}, _LAST[kind])
        match kind:
            case "response.output_item.added":
                return self._added(event)
            case "response.function_call_arguments.done":
                known = self._item(_key(event))
                known.arguments = _arguments(event) or known.arguments
            case "response.output_item.done":
                item = event.get("item")
                return self._done(_key(event), item) if isinstance(item, dict) else ()
            case "response.created" | "response.in_progress" | "response.queued":
                response = event.get("response")
                return self.begin(response) if isinstance(response, dict) else ()
            case "error":
                return self._fail(event)
        return ()

    def _fail(self, event: Mapping[str, Any]) -> Events:
        # Either nested, or the fields of the error beside the type.
        error = event.get("error") or {**event, "type": event.get("code")}
        self.failure = self._incoming.error({"error": error})
        self.ended = True
        return ()

    def begin(self, response: Mapping[str, Any]) -> Events:
        """Take what a response begins with."""
        id = response.get("id")
        if isinstance(id, str):
            self._assembler.response_id(id)
        return self._assembler.start()

    # --- items ------------------------------------------------------------------------------------------------------

    def _item(self, key: Hashable) -> _Item:
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item()
        return item

    def _added(self, event: Mapping[str, Any]) -> Events:
        item = event.get("item")
        if not isinstance(item, dict):
            return ()
        key, id = _key(event), _call_id(item)
        events = self._make_room(key, id)
        if item.get("type") != "function_call":
            return events
        known = self._item(key)
        known.is_call, known.call_id, known.arguments = True, id, _arguments(item)
        return (*events, *self._assembler.tool_call(key, id=id, name=_string(item, "name")))

    def _make_room(self, key: Hashable, call_id: str) -> Events:
        """Forget an item in whose place another one begins: some servers count every item as the same one."""
        known = self._items.get(key)
        if known is None or not (known.ended or (known.is_call and known.call_id != call_id)):
            return ()
        events = self._end_call(key, known) if known.is_call else ()
        del self._items[key]
        return events

    def _delta(self, kind: str, event: Mapping[str, Any]) -> Events:
        delta = event.get("delta")
        if type(delta) is not str or not delta:
            return ()
        if kind in _TEXT_DELTAS:
            key = _key(event)
            number = event.get("content_index")
            place = (key, number if type(number) is int else None)
            self._item(key).begun.add(place)
            return self._assembler.text(delta, place)
        if kind == "response.function_call_arguments.delta":
            key = _key(event)
            self._item(key).pieces.append(delta)
            return self._assembler.tool_call(key, delta)
        if kind in _THINKING_DELTAS:
            key = _key(event)
            part = event.get("summary_index" if "summary" in kind else "content_index")
            self._item(key).begun.add(key)
            return self._thinking(key, (kind, part), delta)
        return ()

    def _thinking(self, key: Hashable, part: Any, delta: str) -> Events:
        """Extend the thinking of a reasoning item; its parts are parted by a blank line."""
        item = self._item(key)
        if item.part != part:
            item.part = part
            item.parts += 1
            if item.parts > 1:
                delta = "\n\n" + delta
        return self._assembler.thinking(delta, key)

    def _done(self, key: Hashable, item: dict[str, Any]) -> Events:
        """Take an item as it is in the end."""
        self._finished += 1
        known = self._item(key)
        known.ended = True
        match item.get("type"):
            case "message":
                return self._message(key, item, known)
            case "reasoning":
                return self._reasoning(key, item, known)
            case "function_call":
                known.is_call, known.arguments = True, _arguments(item) or known.arguments
                begun = self._assembler.tool_call(key, id=_call_id(item), name=_string(item, "name"))
                return (*begun, *self._end_call(key, known))
        return self._assembler.provider_content(clean_json(item))

    def _message(self, key: Hashable, item: dict[str, Any], known: _Item) -> Events:
        events: list[Any] = []
        content = item.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        mark = _message_mark(item)
        for index, part in enumerate(parts):
            place: Hashable = (key, index)
            if place not in known.begun and (key, None) in known.begun:  # a server that does not count parts
                place = (key, None)
            elif place not in known.begun:
                events += self._assembler.text(_string(part, "text") or _string(part, "refusal"), place)
            if self._assembler.is_open(place):
                events += self._assembler.sign(place, mark, TextContent) if mark else ()
                events += self._assembler.end(place)
        return events

    def _reasoning(self, key: Hashable, item: dict[str, Any], known: _Item) -> Events:
        events: list[Any] = []
        if key not in known.begun:
            for number, text in enumerate(_thoughts(item)):
                events += self._thinking(key, number, text)
        kept = clean_json({name: value for name, value in item.items() if value is not None})
        signature = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
        events += self._assembler.sign(key, signature, ThinkingContent)
        return (*events, *self._assembler.end(key))

    def _end_call(self, key: Hashable, known: _Item) -> Events:
        """End a call; of its arguments as a whole counts what no delta brought, where the deltas are their beginning."""
        known.is_call = False
        came = "".join(known.pieces)
        rest = known.arguments[len(came) :] if known.arguments.startswith(came) else ""
        return (*self._assembler.tool_call(key, rest), *self._assembler.end(key))

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self, response: Mapping[str, Any], status: str) -> Events:
        """Take the response as it is in the end; its items count only if none came by itself."""
        self._count(response.get("usage"))
        status = _string(response, "status") or status
        events: list[Any] = []
        output = response.get("output")
        if not self._finished and isinstance(output, list):
            for index, item in enumerate(output):
                if isinstance(item, dict):
                    named = _key({"item": item})
                    events += self._done(named if named in self._items else ("index", index), item)
        for key, item in self._items.items():
            if item.is_call:  # one that did not come to its end by itself
                events += self._end_call(key, item)
        details = response.get("incomplete_details")
        reason = _string(details, "reason") if isinstance(details, dict) else ""
        self._reason = f"{status}:{reason}" if reason and status == "incomplete" else status
        if status == "failed" or (response.get("error") and status != "completed"):
            self.failure = self._incoming.error({"error": response.get("error") or "the response failed"})
        return events

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return

        def number(name: str, inside: str | None = None) -> int | None:
            place = usage.get(inside) if inside else usage
            value = place.get(name) if isinstance(place, dict) else None
            return value if type(value) is int and value >= 0 else None

        read = number("cached_tokens", "input_tokens_details")
        write = number("cache_write_tokens", "input_tokens_details")
        given = number("input_tokens")
        self._assembler.usage(
            input=None if given is None else max(given - (read or 0) - (write or 0), 0),
            output=number("output_tokens"),
            cache_read=read,
            cache_write=write,
            reasoning=number("reasoning_tokens", "output_tokens_details"),
        )

    def end(self) -> Events:
        """Return the last events."""
        assembler, raw = self._assembler, self._reason
        if self.failure is not None:
            return assembler.fail(self.failure, raw or None)
        meaning, error = stop_reason(raw.removeprefix("incomplete:"))
        if error is not None:
            return assembler.fail(error, raw)
        if meaning == "stop" and assembler.has_calls:
            meaning = "tool_use"
        return assembler.finish(meaning, raw)


def _key(event: Mapping[str, Any]) -> Hashable:
    """Return what names the item of an event."""
    index = event.get("output_index")
    if type(index) is int:
        return ("index", index)
    item = event.get("item")
    id = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
    return ("id", id if isinstance(id, str) else "")


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if type(value) is str else ""


def _arguments(fields: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text, though a server may send the object itself."""
    value = fields.get("arguments")
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _thoughts(item: Mapping[str, Any]) -> Iterator[str]:
    for field in ("summary", "content"):
        parts = item.get(field)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and _string(part, "text"):
                yield _string(part, "text")


def _call_id(item: Mapping[str, Any]) -> str:
    return _string(item, "call_id") or _string(item, "id")


def _message_mark(item: Mapping[str, Any]) -> str:
    """Return what has to go back with the text of a message, as a signature."""
    phase = _string(item, "phase")
    return json.dumps({"phase": phase}, separators=(",", ":")) if phase else ""
