"""Read the responses of Chat Completions, in every form that OpenAI and its imitators send them.

Text, refusals, thinking and each call are one block each: the API has no order among them, and imitators mix them within
one delta. A non-empty `finish_reason` or `[DONE]` ends a response; usage may follow the first, so the reader goes on to
the end of the body, but no longer waits for it with patience.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentcore.content import ThinkingContent
from agentcore.messages import ErrorInfo
from agentcore.providers._assembler import Assembler, Events
from agentcore.providers._call_matching import CallMatcher
from agentcore.providers._exchange import Incoming, Reading
from agentcore.providers._replay import clean_json
from agentcore.providers._request import RequestFailed
from agentcore.providers._stop_reasons import stop_reason

__all__ = ["read_stream", "read_whole"]

_DONE = "[DONE]"

_PATIENCE_AT_THE_END = 1.5
"""Seconds to wait for usage once the reason for the end is known: some servers then keep the connection open."""

_REASONING = ("reasoning_content", "reasoning", "reasoning_text")
"""The fields that bring thinking; where two bring it, it is the same."""

_DETAIL_TEXTS = ("text", "summary")
_DETAIL_PROOFS = ("signature", "data")
_DETAIL_WORDS = (*_DETAIL_TEXTS, *_DETAIL_PROOFS)


def read_stream(incoming: Incoming, assembler: Assembler) -> Reading:
    """Yield the events of a streamed response, return the last ones."""
    reader = _Reader(incoming, assembler)
    read, parse = reader.read, incoming.data
    try:
        for name, data in incoming:
            if data == _DONE:
                return reader.end()
            yield from read(parse(data), name)
            if reader.failure is not None:
                return reader.end()
    except RequestFailed as failure:
        # A body that breaks off, or a server that keeps it open, after the end was announced takes nothing away.
        if not reader.finish_reason or failure.error.kind not in ("connection", "timeout"):
            raise
    if not reader.finish_reason:
        reader.failure = incoming.cut_off("a finish reason")
    return reader.end()


def read_whole(document: Any, incoming: Incoming, assembler: Assembler) -> Events:
    """Return the events of a response that came as one JSON document."""
    reader = _Reader(incoming, assembler, is_whole=True)
    events = reader.read(document) if isinstance(document, dict) else ()
    choices = document.get("choices") if isinstance(document, dict) else None
    if reader.failure is None and _first_choice(choices) is None:
        no_answer = ErrorInfo("protocol", "the response holds no answer")
        reader.failure = incoming.error(document) if choices is None else no_answer
    return (*events, *reader.end())


class _Pieces(list[str]):
    """A text as it comes."""


class _Reader:
    """Feeds the assembler with one response."""

    def __init__(self, incoming: Incoming, assembler: Assembler, *, is_whole: bool = False) -> None:
        self._is_whole = is_whole
        self._incoming = incoming
        self._assembler = assembler
        self._text = assembler.text
        self._thinking = assembler.thinking
        self._calls = CallMatcher()
        self._details: list[dict[str, Any]] = []
        self._last_details: dict[Any, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._signed = False
        self._has_id = False
        self.finish_reason = ""
        self.failure: ErrorInfo | None = None

    def read(self, chunk: Any, name: str = "") -> Events:
        """Return the events of one chunk, or of a whole response."""
        if type(chunk) is not dict:
            return ()
        usage = chunk.get("usage")
        if usage:
            self._count(usage)
        if "x_groq" in chunk and isinstance(groq := chunk["x_groq"], dict):
            self._count(groq.get("usage"))
        if not self._has_id:
            self._take_id(chunk)
        if chunk.get("error"):
            self.failure = self._incoming.error(chunk)
            return ()
        choice = _first_choice(chunk.get("choices"))
        if choice is None:
            if "choices" not in chunk and (name == "error" or chunk.get("object") == "error"):
                self.failure = self._incoming.error(chunk)
            return ()
        delta = choice.get("delta")
        if self._is_whole or not delta or type(delta) is not dict:
            delta = self._message(choice)
        reason = choice.get("finish_reason")
        events: Events = ()
        for field, value in delta.items():
            if not value or field == "role":
                continue
            if field == "content" and type(value) is str:
                more = self._text(value)
            elif field == "tool_calls":
                more = self._tool_calls(value, reason)
            else:
                more = self._field(field, value, delta)
            events = (*events, *more) if events else more
        if reason or "usage" in choice or "error" in choice:
            self._last_words(choice, reason)
        return events

    def _take_id(self, chunk: Mapping[str, Any]) -> None:
        id = chunk.get("id")
        if id and isinstance(id, str):
            self._has_id = True
            self._assembler.response_id(id)

    def _message(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message of a choice, if it does not only say again what has come."""
        message = choice.get("message")
        return message if isinstance(message, dict) and self._assembler.is_empty else {}

    def _last_words(self, choice: Mapping[str, Any], reason: Any) -> None:
        """Take what stands beside a delta."""
        self._count(choice.get("usage"))
        if reason and not self.finish_reason:
            self.finish_reason = reason if isinstance(reason, str) else json.dumps(reason)
            self._incoming.expect_end(_PATIENCE_AT_THE_END)
        if choice.get("error"):
            self.failure = self._incoming.error(choice)

    # --- what a delta may hold --------------------------------------------------------------------------------------

    def _field(self, field: str, value: Any, delta: Mapping[str, Any]) -> Events:
        """Return the events of a field that is none of the two commonest."""
        if field in _REASONING:
            # Where two fields bring thinking, the first one that has any is taken.
            return self._thinking(value) if value is _first_text(delta, _REASONING) else ()
        match field:
            case "content":
                return self._content(value)
            case "function_call":
                return () if delta.get("tool_calls") else self._tool_calls({"function": value}, None)
            case "reasoning_details" if isinstance(value, list):
                return self._proofs(value, speaks=not _first_text(delta, _REASONING))
            case "refusal" if isinstance(value, str):
                return self._text(value, "refusal")
        return ()

    def _content(self, content: Any) -> Events:
        if isinstance(content, list):
            return [event for part in content for event in self._part(part)]
        if isinstance(content, dict):  # one vendor gives the object that was asked for, not its text
            return self._text(json.dumps(content, ensure_ascii=False))
        return ()

    def _part(self, part: Any) -> Events:
        if isinstance(part, str):
            return self._text(part)
        if not isinstance(part, dict):
            return ()
        match part.get("type"):
            case "text" | "output_text":
                return self._text(_text_of(part.get("text")))
            case "thinking":
                return self._thinking(_text_of(part.get("thinking")))
            case "refusal":
                return self._text(_text_of(part.get("refusal")), "refusal")
        return ()

    def _proofs(self, details: list[Any], *, speaks: bool) -> Events:
        """Take the pieces of OpenRouter's account of thinking; `speaks` says that its texts stand nowhere else."""
        return [event for item in details if isinstance(item, dict) for event in self._detail(item, speaks)]

    def _detail(self, detail: dict[str, Any], speaks: bool) -> Events:
        key = tuple(
            name if isinstance(name, (int, str)) else None for name in (detail.get("index"), detail.get("type"))
        )
        kept = self._last_details.get(key)
        # Where a server does not count them, what comes after a proof is another piece of thinking.
        if kept is None or (
            key[0] is None and _first_text(kept, _DETAIL_PROOFS) and _first_text(detail, _DETAIL_WORDS)
        ):
            kept = self._last_details[key] = {}
            self._details.append(kept)
        said = ""
        for name, value in detail.items():
            if name in _DETAIL_TEXTS and isinstance(value, str):
                pieces = kept.get(name)
                if not isinstance(pieces, _Pieces):
                    pieces = kept[name] = _Pieces()
                pieces.append(value)
                said += value
            elif value is not None:
                kept[name] = value
        events: Events = self._thinking(said) if speaks else ()
        proof = _first_text(detail, _DETAIL_PROOFS)
        if proof and not self._signed:
            self._signed = True
            events = (*events, *self._assembler.sign("thinking", proof, ThinkingContent))
        return events

    def _tool_calls(self, items: Any, reason: Any) -> Events:
        self._calls.begin_chunk(closing=bool(reason or self.finish_reason))
        events: Events = ()
        for item in items if type(items) is list else [items]:
            if item and type(item) is dict:
                more = self._tool_call(item)
                events = (*events, *more) if events else more
        return events

    def _tool_call(self, item: Mapping[str, Any]) -> Events:
        function = item.get("function")
        if type(function) is not dict:
            function = item
        index, id, name, arguments = item.get("index"), item.get("id"), function.get("name"), function.get("arguments")
        index = index if type(index) is int else None
        id = id if type(id) is str else ""
        name = name if type(name) is str else ""
        if type(arguments) is not str:
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        number = self._calls.match(index, id, name, arguments)
        if number is None:
            return ()
        signature = _signature(item) if "extra_content" in item else None
        return self._assembler.tool_call(number, arguments, id=id, name=name, thought_signature=signature)

    # --- usage ------------------------------------------------------------------------------------------------------

    def _count(self, usage: Any) -> None:
        """Take reported usage: the last of each number wins, and null is no number."""
        if not isinstance(usage, dict):
            return
        _merge(self._usage, usage)
        self._assembler.usage(**_counts(self._usage))

    # --- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> Events:
        """Return the last events."""
        reason = self.finish_reason
        if self.failure is not None:
            return self._assembler.fail(self.failure, reason or None)
        if not reason:
            kept = self._keep_details()
            return (*kept, *self._assembler.finish("tool_use" if self._assembler.has_calls else "stop"))
        meaning, error = stop_reason(reason)
        if error is not None:
            return self._assembler.fail(error, reason)
        return (*self._keep_details(), *self._assembler.finish(meaning, reason))

    def _keep_details(self) -> Events:
        """Put the proofs of thinking into the message, to be sent back as they came."""
        if not self._signed:
            return ()
        details = [
            {name: "".join(value) if isinstance(value, _Pieces) else value for name, value in detail.items()}
            for detail in self._details
        ]
        return self._assembler.provider_content(clean_json({"reasoning_details": details}))


def _first_choice(choices: Any) -> dict[str, Any] | None:
    """Return the choice that is read: that of index 0, or the first that has none."""
    if type(choices) is list:
        for choice in choices:
            if type(choice) is dict and not choice.get("index"):
                return choice
    return None


def _first_text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = fields.get(name)
        if value and isinstance(value, str):
            return value
    return ""


def _text_of(value: Any) -> str:
    """Return the text of a field that is a string, or a list of parts with texts."""
    if isinstance(value, str):
        return value
    return "".join(_texts(value)) if isinstance(value, list) else ""


def _texts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def _signature(item: Mapping[str, Any]) -> str | None:
    """Return the proof that Gemini gives with a call."""
    value: Any = item
    for name in ("extra_content", "google", "thought_signature"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def _merge(known: dict[str, Any], news: Mapping[str, Any]) -> None:
    for name, value in news.items():
        if isinstance(value, dict):
            inner = known.setdefault(name, {})
            if isinstance(inner, dict):
                _merge(inner, value)
        elif type(value) is int and value >= 0:
            known[name] = value


def _counts(usage: Mapping[str, Any]) -> dict[str, int | None]:
    """Return disjoint counts: what was read from a cache or written to one is not in `input`, thinking is in `output`."""

    def number(name: str, inside: str | None = None) -> int | None:
        place = usage.get(inside, {}) if inside else usage
        value = place.get(name) if isinstance(place, dict) else None
        return value if type(value) is int else None

    prompt, output, total = number("prompt_tokens"), number("completion_tokens"), number("total_tokens")
    read = _first(
        number("cached_tokens", "prompt_tokens_details"),
        number("prompt_cache_hit_tokens"),
        number("cache_read_input_tokens"),
        number("cached_tokens"),
    )
    write = _first(number("cache_write_tokens", "prompt_tokens_details"), number("cache_creation_input_tokens"))
    reasoning = _first(number("reasoning_tokens", "completion_tokens_details"), number("reasoning_tokens"))
    if reasoning and output is not None and total == (prompt or 0) + output + reasoning:
        output += reasoning  # one vendor counts it beside; its total tells
    return {
        "input": None if prompt is None else max(0, prompt - (read or 0) - (write or 0)),
        "output": output,
        "cache_read": read,
        "cache_write": write,
        "reasoning": reasoning,
        "total_tokens": total,
    }


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
