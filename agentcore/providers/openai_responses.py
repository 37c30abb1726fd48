"""OpenAI's Responses API, and the servers that offer it.

Nothing is stored at the provider (`store` is false), so nothing that goes back refers to anything there: messages and
calls have no ids of items, reasoning goes back in its encrypted form. Nobody having asked for reasoning, a model that can
do without is told to. `Model.compat` takes `efforts` (thinking level → the word that is sent, `None` for none),
`encrypted_reasoning` (false: do not ask for it) and `body`, fields that every request carries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import StreamEvent
from agentcore.messages import AssistantMessage, ToolResultMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.providers._exchange import Adapter, cache_key, endpoint_url, exchange, with_body
from agentcore.providers._payload import Fragment
from agentcore.providers._replay import IdRule, ReplayMessage, clean_json, clean_text, replayable, written_once
from agentcore.providers._request import merge_headers
from agentcore.providers._responses_reading import read_stream, read_whole
from agentcore.providers._thinking_levels import nearest, openai_efforts
from agentcore.providers._tool_schema import object_schema
from agentcore.tools import AgentTool

__all__ = ["build_request", "read_stream", "stream"]

API = "openai-responses"

_HOSTS = {"api.openai.com": "openai"}
_IDS = IdRule()
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_COMPAT = {"body", "efforts", "encrypted_reasoning"}


def stream(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
    """Ask the model and yield the events of its answer; see `agentcore.StreamFn`."""
    return exchange(_ADAPTER, model, context, options)


# --- the request ----------------------------------------------------------------------------------------------------


def build_request(model: Model, context: ModelContext, options: StreamOptions) -> dict[str, Any]:
    """Return the payload of a request.

    Raises `ValueError` for a `Model.compat` that is not understood.
    """
    unknown = sorted(set(model.compat) - _COMPAT)
    if unknown:
        raise ValueError(f"`Model.compat` has unknown keys {unknown}; for {API} it takes {', '.join(sorted(_COMPAT))}")
    payload: dict[str, Any] = {"model": model.id, "input": _input(model, context), "stream": True, "store": False}
    if context.system_prompt.strip():
        payload["instructions"] = clean_text(context.system_prompt)
    if context.tools:
        payload["tools"] = written_once(context.memo, model, context.tools, _tool)
    if options.max_tokens is not None:
        payload["max_output_tokens"] = options.max_tokens
    if options.temperature is not None:
        payload["temperature"] = options.temperature
    if options.metadata is not None:
        payload["metadata"] = options.metadata
    payload.update(_reasoning(model, options))
    if options.cache_retention != "none":
        if options.session_id:
            payload["prompt_cache_key"] = cache_key(options.session_id)
        if options.cache_retention == "long":
            payload["prompt_cache_retention"] = "24h"
    payload = with_body(payload, model.compat.get("body", {}))
    if not payload.get("tools"):
        for field in ("tools", "tool_choice", "parallel_tool_calls"):
            payload.pop(field, None)
    return payload


def _tool(tool: AgentTool) -> Fragment:
    return Fragment(
        type="function",
        name=tool.name,
        description=clean_text(tool.description),
        parameters=object_schema(tool.parameters),
        strict=False,
    )


def _reasoning(model: Model, options: StreamOptions) -> dict[str, Any]:
    if not model.reasoning:
        return {}
    fields: dict[str, Any] = {}
    if model.compat.get("encrypted_reasoning", True):
        fields["include"] = ["reasoning.encrypted_content"]
    level = options.reasoning or ThinkingLevel.OFF
    words = openai_efforts(model.id)
    if level is ThinkingLevel.OFF:
        usual: str | None = "none" if "none" in words else None
    else:
        usual = nearest(level, words)
    effort = model.compat.get("efforts", {}).get(level.value, usual)
    if effort is not None:
        summary = {} if level is ThinkingLevel.OFF else {"summary": "auto"}
        fields["reasoning"] = {"effort": effort, **summary}
    return fields


# --- input ----------------------------------------------------------------------------------------------------------


def _input(model: Model, context: ModelContext) -> list[dict[str, Any]]:
    names = [tool.name for tool in context.tools]
    memo = context.memo
    replayed = replayable(
        context.messages, model, api=API, ids=_IDS, tool_names=names, image_types=_IMAGE_TYPES, memo=memo
    )
    return list(chain.from_iterable(written_once(memo, model, replayed, _written)))


def _written(message: ReplayMessage) -> list[Fragment]:
    """Return the items that a message is sent as."""
    return [Fragment(item) for item in _items(message)]


def _items(message: ReplayMessage) -> list[dict[str, Any]]:
    if isinstance(message, AssistantMessage):
        items = [item for block in message.content for item in _assistant_item(block)]
        while items and items[-1].get("type") == "reasoning":  # the API refuses one that nothing follows
            items.pop()
        return items
    if isinstance(message, ToolResultMessage):
        output = {"type": "function_call_output", "call_id": message.tool_call_id, "output": _output(message)}
        return [output]
    blocks = (TextContent(message.content),) if isinstance(message.content, str) else message.content
    return [{"type": "message", "role": "user", "content": [part for block in blocks for part in _part(block)]}]


def _output(message: ToolResultMessage) -> str | list[dict[str, Any]]:
    if all(isinstance(block, TextContent) for block in message.content):
        return "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    return [part for block in message.content for part in _part(block)]


def _part(block: ContentBlock) -> Iterator[dict[str, Any]]:
    if isinstance(block, TextContent):
        yield {"type": "input_text", "text": block.text}
    elif isinstance(block, ImageContent):
        url = f"data:{block.mime_type};base64,{block.data}"
        yield {"type": "input_image", "detail": "auto", "image_url": url}


def _assistant_item(block: ContentBlock) -> Iterator[dict[str, Any]]:
    match block:
        case TextContent():
            if block.text.strip():
                yield _message(block)
        case ToolCall():
            arguments = json.dumps(block.arguments, ensure_ascii=False, separators=(",", ":"))
            yield {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
        case ThinkingContent():
            item = _object(block.signature)
            # One without its content is a mere reference to what the provider would have had to store.
            if item.get("type") == "reasoning" and (item.get("encrypted_content") or item.get("content")):
                yield item
        case ProviderContent():
            yield block.data
        case ImageContent():
            yield {"type": "message", "role": "assistant", "content": f"[an image ({block.mime_type})]"}


def _message(block: TextContent) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": block.text}
    phase = _object(block.signature).get("phase")
    return {**message, "phase": phase} if isinstance(phase, str) else message


def _object(text: str | None) -> dict[str, Any]:
    """Return the object that a signature holds; anything else is none of ours."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return clean_json(value) if isinstance(value, dict) else {}


# --- the address ----------------------------------------------------------------------------------------------------


def _address(model: Model, options: StreamOptions, key: str | None) -> tuple[str, dict[str, str | None]]:
    headers: dict[str, str | None] = {"Authorization": f"Bearer {key}"} if key is not None else {}
    return endpoint_url(model.base_url, "/responses"), dict(merge_headers(headers, model.headers, options.headers))


_ADAPTER = Adapter(
    api=API,
    build_request=build_request,
    address=_address,
    hosts=_HOSTS,
    read_stream=read_stream,
    read_whole=read_whole,
)
