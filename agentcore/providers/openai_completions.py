"""OpenAI's Chat Completions, and whatever imitates it.

`build_request` writes the request in the dialect of the model's server. Reading knows no dialects: every form that
has been seen of any server is understood from all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import StreamEvent
from agentcore.messages import AssistantMessage, ToolResultMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.providers._chat_reading import read_stream, read_whole
from agentcore.providers._exchange import Adapter, cache_key, endpoint_url, exchange, with_body
from agentcore.providers._payload import Fragment
from agentcore.providers._replay import ReplayMessage, clean_text, replayable, written_once
from agentcore.providers._request import merge_headers
from agentcore.providers._thinking_levels import nearest, openai_efforts
from agentcore.providers._tool_schema import object_schema
from agentcore.providers.dialects import HOSTS, Dialect, dialect_of
from agentcore.tools import AgentTool

__all__ = ["build_request", "read_stream", "stream"]

API = "openai-completions"

_IMAGES_FOLLOW = "(see the attached image)"
_READ = "I have read the results."


def stream(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
    """Ask the model and yield the events of its answer; see `agentcore.StreamFn`."""
    return exchange(_ADAPTER, model, context, options)


# --- the request ----------------------------------------------------------------------------------------------------


def build_request(model: Model, context: ModelContext, options: StreamOptions) -> dict[str, Any]:
    """Return the payload of a request.

    Raises `ValueError` for a `Model.compat` that no dialect understands.
    """
    dialect = dialect_of(model)
    payload: dict[str, Any] = {
        "model": model.id,
        "messages": _messages(model, context, dialect, options),
        "stream": True,
    }
    if dialect.include_usage:
        payload["stream_options"] = {"include_usage": True}
    if context.tools:
        payload["tools"] = written_once(context.memo, model, context.tools, _tool)
    if options.max_tokens is not None:
        payload[dialect.max_tokens_field] = options.max_tokens
    if options.temperature is not None:
        payload["temperature"] = options.temperature
    if options.metadata is not None and dialect.metadata:
        payload["metadata"] = options.metadata
    payload.update(_reasoning(model, dialect, options))
    payload.update(_caching(dialect, options))
    payload = with_body(payload, dialect.body)
    if not payload.get("tools"):
        for field in ("tools", "tool_choice", "parallel_tool_calls"):
            payload.pop(field, None)
    return payload


def _tool(tool: AgentTool) -> Fragment:
    parameters = object_schema(tool.parameters)
    function = {"name": tool.name, "description": clean_text(tool.description), "parameters": parameters}
    return Fragment(type="function", function=function)


def _reasoning(model: Model, dialect: Dialect, options: StreamOptions) -> dict[str, Any]:
    """Return the fields that ask for the thinking level; no level is `off`."""
    if not model.reasoning:
        return {}
    level = options.reasoning or ThinkingLevel.OFF
    fields = dict(dialect.levels[level.value]) if level.value in dialect.levels else _effort(model, dialect, level)
    if level is ThinkingLevel.OFF:
        return fields
    budget = (options.thinking_budgets or {}).get(level.value)
    if budget is not None and dialect.budget_field:
        first, *rest = dialect.budget_field
        fields[first] = {rest[0]: budget} if rest else budget
    return fields


def _effort(model: Model, dialect: Dialect, level: ThinkingLevel) -> dict[str, Any]:
    words = openai_efforts(model.id) if dialect.openai_efforts else ()
    if level is ThinkingLevel.OFF:
        return {"reasoning_effort": "none"} if "none" in words else {}
    return {"reasoning_effort": nearest(level, words)} if words else {}


def _caching(dialect: Dialect, options: StreamOptions) -> dict[str, Any]:
    if not dialect.prompt_cache or options.cache_retention == "none":
        return {}
    fields: dict[str, Any] = {}
    if options.session_id:
        fields["prompt_cache_key"] = cache_key(options.session_id)
    if options.cache_retention == "long":
        fields["prompt_cache_retention"] = "24h"
    return fields


# --- messages -------------------------------------------------------------------------------------------------------


def _messages(model: Model, context: ModelContext, dialect: Dialect, options: StreamOptions) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    if context.system_prompt.strip():
        written.append({"role": dialect.system_role, "content": clean_text(context.system_prompt)})
    tool_names = [tool.name for tool in context.tools]
    memo = context.memo
    replayed = replayable(
        context.messages,
        model,
        api=API,
        ids=dialect.tool_ids,
        tool_names=tool_names,
        image_types=dialect.image_types,
        memo=memo,
    )
    images: tuple[ImageContent, ...] = ()
    for role, message, attached in written_once(memo, model, replayed, lambda message: _written(message, dialect)):
        if images and role != "tool":
            written.extend(_attached(images, dialect))
            images = ()
        if role == "user" and dialect.assistant_after_tool and written and written[-1]["role"] == "tool":
            written.append({"role": "assistant", "content": _READ})
        if message is not None:
            written.append(message)
        if attached:
            images += attached
    written.extend(_attached(images, dialect))
    if options.cache_retention != "none" and model.id.startswith(dialect.cache_control_for):
        _mark_for_caching(written, options)
    return written


def _written(message: ReplayMessage, dialect: Dialect) -> tuple[str, Fragment | None, tuple[ImageContent, ...]]:
    """Return the role of a message, what it is sent as, if anything, and the images that cannot be in that."""
    if isinstance(message, ToolResultMessage):
        images = tuple(block for block in message.content if isinstance(block, ImageContent))
        return "tool", Fragment(_result(message, dialect)), images
    if isinstance(message, AssistantMessage):
        said = _assistant(message, dialect)
        return "assistant", None if said is None else Fragment(said), ()
    content = message.content if isinstance(message.content, str) else _parts(message.content)
    return "user", Fragment(role="user", content=content), ()


def _parts(content: tuple[ContentBlock, ...]) -> str | list[dict[str, Any]]:
    if all(isinstance(block, TextContent) for block in content) and len(content) == 1:
        return content[0].text  # type: ignore[union-attr]
    return [part for block in content for part in _part(block)]


def _part(block: ContentBlock) -> Iterator[dict[str, Any]]:
    if isinstance(block, TextContent):
        yield {"type": "text", "text": block.text}
    elif isinstance(block, ImageContent):
        yield {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _result(message: ToolResultMessage, dialect: Dialect) -> dict[str, Any]:
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    written = {"role": "tool", "tool_call_id": message.tool_call_id, "content": text or _IMAGES_FOLLOW}
    if dialect.tool_result_name:
        written["name"] = message.tool_name
    return written


def _attached(images: Sequence[ImageContent], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the message that brings the images of tool results: a result itself can only be text."""
    if not images:
        return []
    text = {"type": "text", "text": "The images that the tools returned:"}
    user = {"role": "user", "content": [text, *(part for image in images for part in _part(image))]}
    return [{"role": "assistant", "content": _READ}, user] if dialect.assistant_after_tool else [user]


def _assistant(message: AssistantMessage, dialect: Dialect) -> dict[str, Any] | None:
    text = "".join(_spoken(block) for block in message.content)
    calls = [_call(block) for block in message.content if isinstance(block, ToolCall)]
    written: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    said = bool(text or calls)
    if calls:
        written["tool_calls"] = calls
    proofs = [block.data for block in message.content if isinstance(block, ProviderContent)]
    thinking = "\n\n".join(block.thinking for block in message.content if isinstance(block, ThinkingContent))
    field = dialect.reasoning_field
    if proofs:
        for data in proofs:
            written.update(data)
    elif field == "content":
        if thinking:
            parts = [{"type": "thinking", "thinking": [{"type": "text", "text": thinking}]}]
            written["content"] = parts + ([{"type": "text", "text": text}] if text else [])
    elif field and (thinking or dialect.reasoning_filler is not None):
        written[field] = thinking or dialect.reasoning_filler
    return written if said or proofs or (field and thinking) else None


def _spoken(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    return f"[an image ({block.mime_type})]" if isinstance(block, ImageContent) else ""


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    written: dict[str, Any] = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
    if call.thought_signature:
        written["extra_content"] = {"google": {"thought_signature": call.thought_signature}}
    return written


def _mark_for_caching(messages: list[dict[str, Any]], options: StreamOptions) -> None:
    """Mark the end of the system prompt and the last message that can be marked, as Anthropic's models want it."""
    mark: dict[str, Any] = {"type": "ephemeral"}
    if options.cache_retention == "long":
        mark["ttl"] = "1h"
    system = [at for at, message in enumerate(messages[:1]) if message["role"] != "user"]
    last = max((at for at, message in enumerate(messages) if message["role"] in ("user", "tool")), default=None)
    for at in (*system, *([last] if last is not None else [])):
        content = messages[at]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        place = max((number for number, part in enumerate(parts) if part["type"] == "text"), default=None)
        if place is not None:
            parts[place] = {**parts[place], "cache_control": mark}
            messages[at] = {**messages[at], "content": parts}  # the message itself is kept for the next request


# --- the address ----------------------------------------------------------------------------------------------------


def _address(model: Model, options: StreamOptions, key: str | None) -> tuple[str, dict[str, str | None]]:
    dialect = dialect_of(model)
    headers: dict[str, str | None] = {}
    if key is not None:
        headers[dialect.key_header] = f"Bearer {key}" if dialect.key_header == "Authorization" else key
    if dialect.session_header and options.session_id and options.cache_retention != "none":
        headers[dialect.session_header] = cache_key(options.session_id)
    merged: Mapping[str, str | None] = merge_headers(headers, model.headers, options.headers)
    return endpoint_url(model.base_url, "/chat/completions"), dict(merged)


_ADAPTER = Adapter(
    api=API,
    build_request=build_request,
    address=_address,
    hosts=HOSTS,
    read_stream=read_stream,
    read_whole=read_whole,
)
