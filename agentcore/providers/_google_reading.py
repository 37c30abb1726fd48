"""Read the responses of Google's generateContent.

Every chunk is a whole response of its own with parts that continue those before it: text goes on as long as it is of
one kind, calls come whole. A `finishReason` is not the end (with code execution one comes in the middle): the last one
counts, once the body has ended. Since no event says that, some seconds of silence after a `finishReason` end it too: some
servers keep the connection open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agentcore.content import TextContent, ThinkingContent
from agentcore.messages import ErrorInfo
from agentcore.providers._assembler import Assembler, Events
from agentcore.providers._exchange import Incoming, Reading
from agentcore.providers._replay import clean_json
from agentcore.providers._request import RequestFailed
from agentcore.providers._stop_reasons import stop_reason

__all__ = ["read_stream", "read_whole"]

_OWN_PARTS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_PATIENCE_AT_THE_END = 5.0
"""Seconds to wait for more once a reason for the end is known."""

_SAFE = ("", "BLOCK_REASON_UNSPECIFIED")


def read_stream(incoming: Incoming, assembler: Assembler) -> Reading:
    """Yield the events of a streamed response, return the last ones."""
    reader = _Reader(incoming, assembler)
    read, parse = reader.read, incoming.data
    try:
        for _, data in incoming:
            if data == "[DONE]":  # a foreign word that some gateways add
                continue
            yield from read(parse(data))
            if reader.failure is not None:
                break
    except RequestFailed as failure:
        # Only silence: a body that breaks off may have had more to say.
        if not reader.may_end or failure.error.kind != "timeout":
            raise
    return reader.end()


def read_whole(document: Any, incoming: Incoming, assembler: Assembler) -> Events:
    """Return the events of a response that came as one JSON document: one chunk, or a list of them."""
    reader = _Reader(incoming, assembler)
    chunks = document if isinstance(document, list) else [document]
    events = [event for chunk in chunks for event in reader.read(chunk)]
    return (*events, *reader.end())


class _Reader:
    """Feeds the assembler with one response."""

    def __init__(self, incoming: Incoming, assembler: Assembler) -> None:
        self._incoming = incoming
        self._assembler = assembler
        self._number = 0
        self._kind = ""
        self._reason = ""
        self._explanation = ""
        self._blocked = False
        self._counts: dict[str, int] = {}
        self.may_end = False
        self.failure: ErrorInfo | None = None

    def read(self, chunk: Any) -> Events:
        """Return the events that one chunk leads to."""
        if type(chunk) is not dict:
            return ()
        if chunk.get("error"):
            self.failure = self._incoming.error(chunk)
            return ()
        id = chunk.get("responseId")
        if isinstance(id, str):
            self._assembler.response_id(id)
        self._count(chunk.get("usageMetadata"))
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and _string(feedback, "blockReason") not in _SAFE:
            self._blocked = True
            self._explanation = _string(feedback, "blockReasonMessage") or _string(feedback, "blockReason")
        candidates = chunk.get("candidates")
        candidate = candidates[0] if type(candidates) is list and candidates else None
        if type(candidate) is not dict:
            return ()
        events: Events = ()
        content = candidate.get("content")
        parts = content.get("parts") if type(content) is dict else None
        if type(parts) is list:
            for part in parts:
                if type(part) is dict:
                    more = self._part(part)
                    events = (*events, *more) if events else more
        reason = _string(candidate, "finishReason")
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = reason
            self._explanation = _string(candidate, "finishMessage")
            self._expect_end(True)
        elif events and self.may_end:
            self._expect_end(False)
        return events

    def _expect_end(self, soon: bool) -> None:
        self.may_end = soon
        self._incoming.expect_end(_PATIENCE_AT_THE_END if soon else math.inf)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _part(self, part: dict[str, Any]) -> Events:
        signature = part.get("thoughtSignature")
        signature = signature if type(signature) is str and signature else None
        text = part.get("text")
        if type(text) is str:
            return self._text(text, "thinking" if part.get("thought") else "text", signature)
        call = part.get("functionCall")
        if isinstance(call, dict):
            return self._call(call, signature)
        if any(name in part for name in _OWN_PARTS):
            return (*self._leave(), *self._assembler.provider_content(clean_json(part)))
        image = part.get("inlineData")
        if isinstance(image, dict):
            return (*self._leave(), *self._assembler.provider_content(clean_json(part)))
        if signature:  # a signature alone, which has to go back
            return self._text("", "text", signature)
        return ()

    def _text(self, text: str, kind: str, signature: str | None) -> Events:
        """Extend the text that is going on, or begin another one; a signed part ends its block."""
        if not text and signature is None:
            return ()
        events: Events = ()
        if kind != self._kind or (not text and signature is not None):
            # A signature that comes by itself, on an empty part, belongs to a part of its own.
            events = self._leave()
            self._kind = kind
        key = (self._number, kind)
        more = self._assembler.thinking(text, key) if kind == "thinking" else self._assembler.text(text, key)
        events = (*events, *more) if events else more
        if signature is not None:
            block = ThinkingContent if kind == "thinking" else TextContent
            events = (*events, *self._assembler.sign(key, signature, block), *self._leave())
        return events

    def _leave(self) -> Events:
        """End the text that is going on."""
        if not self._kind:
            return ()
        key = (self._number, self._kind)
        self._number += 1
        self._kind = ""
        return self._assembler.end(key)

    def _call(self, call: Mapping[str, Any], signature: str | None) -> Events:
        events = self._leave()
        key = (self._number, "call")
        self._number += 1
        arguments = call.get("args")
        text = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        begun = self._assembler.tool_call(
            key, text, id=_string(call, "id"), name=_string(call, "name"), thought_signature=signature
        )
        return (*events, *begun, *self._assembler.end(key))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _count(self, usage: Any) -> None:
        """Take reported usage: totals so far, of which the last of each wins."""
        if not isinstance(usage, dict):
            return
        self._counts.update({name: value for name, value in usage.items() if type(value) is int and value >= 0})
        counts = self._counts
        prompt, cached = counts.get("promptTokenCount"), counts.get("cachedContentTokenCount")
        thoughts, written = counts.get("thoughtsTokenCount"), counts.get("candidatesTokenCount")
        tools = counts.get("toolUsePromptTokenCount", 0)
        known = written is not None or thoughts is not None
        self._assembler.usage(
            input=None if prompt is None else max(prompt + tools - (cached or 0), 0),
            output=(written or 0) + (thoughts or 0) if known else None,
            cache_read=cached,
            reasoning=thoughts,
        )

    def end(self) -> Events:
        """Return the last events."""
        assembler, reason = self._assembler, self._reason
        if self.failure is not None:
            return assembler.fail(self.failure, reason or None)
        if not reason:
            if self._blocked:
                text = f"the provider's filter refused the prompt: {self._explanation}"
                return assembler.fail(ErrorInfo("content_filter", text), None)
            return assembler.fail(self._incoming.cut_off("a `finishReason`"))
        meaning, error = stop_reason(reason)
        if error is not None:
            if self._explanation:
                error = ErrorInfo(error.kind, f"{error.message}: {self._explanation}")
            return assembler.fail(error, reason)
        if meaning == "stop" and assembler.has_calls:
            meaning = "tool_use"
        return assembler.finish(meaning, reason)


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if type(value) is str else ""
