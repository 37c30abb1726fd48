"""What each wire API refuses in a conversation, as far as calls, results, roles and empty text go; by simple checks."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from agentcore import AgentTool, Model, ModelContext, StreamOptions
from agentcore.convert import convert_to_llm

APIS = {
    "openai-completions": "openai_completions",
    "openai-responses": "openai_responses",
    "anthropic-messages": "anthropic_messages",
    "google-generative-ai": "google_generative_ai",
}
TOOLS = tuple(
    AgentTool(name, name, "d", {"type": "object", "properties": {"n": {"type": "integer"}}}, lambda *given: "ran")
    for name in ("look", "edit")
)


def refusals(messages: Sequence[Any], api: str) -> list[str]:
    """Return why an API would refuse the request for these messages; an empty list if it would not."""
    return problems_of_request(request_of(messages, api), api)


def request_of(messages: Sequence[Any], api: str) -> dict[str, Any]:
    """Return what an adapter would send for these messages."""
    model = Model("m", api=api, provider="p", base_url="http://127.0.0.1:1")
    context = ModelContext("Be brief.", convert_to_llm(messages), TOOLS)
    payload: dict[str, Any] = importlib.import_module(f"agentcore.providers.{APIS[api]}").build_request(
        model, context, StreamOptions()
    )
    return payload


def problems_of_request(payload: dict[str, Any], api: str) -> list[str]:
    """Return why an API would refuse a request."""
    return list(_CHECKS[api](payload))


def _chat(payload: dict[str, Any]) -> Any:
    waiting: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(payload["messages"]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"message {number} answers no call before it"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"the calls {waiting} are not answered before message {number}"
            waiting = []
        if message["role"] != "assistant" and not message.get("content"):
            yield f"message {number} is empty"
        if message["role"] == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            if not waiting and not message.get("content"):
                yield f"message {number} is empty"
            if seen & set(waiting) or len(set(waiting)) < len(waiting):
                yield f"an id of {waiting} is used twice"
            seen.update(waiting)
    if waiting:
        yield f"the calls {waiting} are not answered at the end"


def _responses(payload: dict[str, Any]) -> Any:
    called: list[str] = []
    answered: list[str] = []
    for number, item in enumerate(payload["input"]):
        kind = item.get("type", "message")
        if kind == "function_call":
            called.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in called:
                yield f"item {number} answers no call before it"
            answered.append(item["call_id"])
        elif kind == "message":
            if set(called) != set(answered):
                yield f"calls are open before item {number}"
            if not item["content"]:
                yield f"item {number} is empty"
    if sorted(called) != sorted(answered) or len(set(called)) < len(called):
        yield f"the calls {called} were answered by {answered}"


def _anthropic(payload: dict[str, Any]) -> Any:
    messages = payload["messages"]
    if messages[0]["role"] != "user":
        yield "the first message is not the user's"
    waiting: list[str] = []
    for number, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield f"message {number} has empty text"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            yield f"message {number} answers {results}, and the calls before it are {waiting}"
        if [block["type"] for block in blocks[: len(results)]] != ["tool_result"] * len(results):
            yield f"the results of message {number} do not come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if waiting and message["role"] != "assistant":
            yield f"message {number} calls as a user"
    if waiting:
        yield f"the calls {waiting} are not answered at the end"


def _google(payload: dict[str, Any]) -> Any:
    contents = payload["contents"]
    roles = [content["role"] for content in contents]
    if roles != (["user", "model"] * len(roles))[: len(roles)]:
        yield f"the roles do not take turns: {roles}"
    waiting: list[str] = []
    for number, content in enumerate(contents):
        parts = content["parts"]
        if not parts or any("text" in part and not part["text"] for part in parts):
            yield f"content {number} is empty"
        answers = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if answers != waiting:
            yield f"content {number} answers {answers}, and the calls before it are {waiting}"
        waiting = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    if waiting:
        yield f"the calls {waiting} are not answered at the end"


_CHECKS = {
    "openai-completions": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
    "google-generative-ai": _google,
}
