"""The floor: `requests`, one chunk after another, split on newlines, `json.loads`, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import requests

HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-bench", "x-api-key": "sk-bench"}


def post(session: requests.Session, url: str, payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of one streamed response."""
    response = session.post(url, data=json.dumps(payload).encode(), headers=HEADERS, stream=True)
    pending = b""
    for block in response.iter_content(None):
        *lines, pending = (pending + block).split(b"\n")
        for line in lines:
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                yield json.loads(line[6:])


def text_of(api: str, event: dict[str, Any]) -> str:
    """Return the text that an event brings."""
    if api == "anthropic":
        delta = event.get("delta")
        return (delta.get("text") or delta.get("partial_json") or "") if delta else ""
    choices = event["choices"]
    if not choices:
        return ""
    delta = choices[0]["delta"]
    content = delta.get("content")
    if content is None and "tool_calls" in delta:
        content = delta["tool_calls"][0]["function"]["arguments"]
    return content or ""


def path_of(api: str) -> str:
    """Return the path of an API."""
    return "/v1/messages" if api == "anthropic" else "/v1/chat/completions"


def stream(session: requests.Session, base: str, api: str, model: str, on_delta: Callable[[str], object]) -> str:
    """Read one response; return all its text."""
    payload = {"model": model, "stream": True, "max_tokens": 4096, "messages": [{"role": "user", "content": "hi"}]}
    parts = []
    for event in post(session, base + path_of(api), payload):
        delta = text_of(api, event)
        if delta:
            parts.append(delta)
            on_delta(delta)
    return "".join(parts)


_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def _tools(api: str) -> list[dict[str, Any]]:
    if api == "anthropic":
        return [{"name": "note", "description": "Take a note.", "input_schema": _SCHEMA}]
    function = {"name": "note", "description": "Take a note.", "parameters": _SCHEMA}
    return [{"type": "function", "function": function}]


def _call_in(api: str, event: dict[str, Any]) -> tuple[str, str] | None:
    if api == "anthropic":
        block = event.get("content_block")
        return (block["id"], block["name"]) if block and block["type"] == "tool_use" else None
    delta = event["choices"][0]["delta"] if event["choices"] else {}
    call = delta.get("tool_calls", [{}])[0]
    return (call["id"], call["function"]["name"]) if "id" in call else None


def tool_turns(
    session: requests.Session, base: str, api: str, model: str, history: list[dict[str, Any]] | None = None
) -> int:
    """Answer one tool call after another, sending the whole conversation each time; return the turns."""
    messages: list[dict[str, Any]] = [*(history or ()), {"role": "user", "content": "hi"}]
    payload = {"model": model, "stream": True, "max_tokens": 4096, "messages": messages, "tools": _tools(api)}
    turns = 0
    while True:
        turns += 1
        call, parts = None, []
        for event in post(session, base + path_of(api), payload):
            call = call or _call_in(api, event)
            parts.append(text_of(api, event))
        if call is None:
            return turns
        id, name = call
        arguments = json.loads("".join(parts))
        if api == "anthropic":
            messages.append(
                {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": arguments}]}
            )
            result = {"type": "tool_result", "tool_use_id": id, "content": arguments["text"]}
            messages.append({"role": "user", "content": [result]})
        else:
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls = [{"id": id, "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": id, "content": arguments["text"]})
