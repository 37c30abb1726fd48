"""Anthropic's Messages API, and the servers that offer it.

How a model is told to think follows from its id. Nobody having asked for thinking, a model that would think by itself
is told not to, if it can be. `Model.compat` takes `thinking` (`"adaptive"`: levels are efforts, `"budget"`: levels are
token budgets, `"none"`: never a word about it) and `body`, fields that every request carries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import StreamEvent
from agentcore.messages import AssistantMessage, ToolResultMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.providers._anthropic_reading import read_stream, read_whole
from agentcore.providers._exchange import Adapter, endpoint_url, exchange, with_body
from agentcore.providers._payload import Fragment
from agentcore.providers._replay import IdRule, ReplayMessage, clean_text, replayable, written_once
from agentcore.providers._request import merge_headers, vendor_of
from agentcore.providers._thinking_levels import claude_thinking, nearest
from agentcore.providers._tool_schema import object_schema
from agentcore.tools import AgentTool

__all__ = ["build_request", "read_stream", "stream"]

API = "anthropic-messages"

_HOSTS = {"api.anthropic.com": "anthropic"}
# The version that every server of this API knows; a later one only takes parameters away.
_VERSION = "2023-06-01"
_BETA_HEADER = "anthropic-beta"
_THINKING_BETWEEN_CALLS = "interleaved-thinking-2025-05-14"
_BINDING = "thinking-binding-controls-2026-08-01"
_DEFAULT_MAX_TOKENS = 8192
_LEAST_BUDGET = 1024
_IDS = IdRule()
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_MARKED_MESSAGES = 2  # the API takes four marks in all: tools, system and these
_BEFORE_THE_FIRST = "(The conversation begins here.)"

_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_240, "high": 20_480, "xhigh": 32_768, "max": 65_536}
_COMPAT = {"thinking", "body"}
_STYLES = ("adaptive", "budget", "none")


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
    mark = _cache_mark(options)
    payload: dict[str, Any] = {
        "model": model.id,
        "max_tokens": options.max_tokens or model.max_tokens or _DEFAULT_MAX_TOKENS,
        "messages": _messages(model, context, mark),
        "stream": True,
    }
    if context.system_prompt.strip():
        payload["system"] = [_marked({"type": "text", "text": clean_text(context.system_prompt)}, mark)]
    if context.tools:
        tools: list[dict[str, Any]] = [*written_once(context.memo, model, context.tools, _tool)]
        payload["tools"] = [*tools[:-1], _marked(tools[-1], mark)]
    payload.update(_thinking(model, options, payload["max_tokens"]))
    # While it thinks the API takes only its default, and newer models take none at all.
    if options.temperature is not None and "thinking" not in payload and claude_thinking(model.id).samples:
        payload["temperature"] = options.temperature
    user_id = (options.metadata or {}).get("user_id")
    if isinstance(user_id, str):
        payload["metadata"] = {"user_id": user_id}
    payload = with_body(payload, model.compat.get("body", {}))
    if not payload.get("tools"):
        for field in ("tools", "tool_choice"):
            payload.pop(field, None)
    return payload


def _tool(tool: AgentTool) -> Fragment:
    schema = object_schema(tool.parameters)
    return Fragment(name=tool.name, description=clean_text(tool.description), input_schema=schema)


# --- thinking -------------------------------------------------------------------------------------------------------


def _thinking_style(model: Model) -> str:
    style = model.compat.get("thinking")
    if style is None:
        return claude_thinking(model.id).style if model.reasoning else "none"
    if style not in _STYLES:
        raise ValueError(f"`Model.compat['thinking']` is {style!r}; it takes {', '.join(map(repr, _STYLES))}")
    return str(style)


def _thinks(options: StreamOptions) -> bool:
    return options.reasoning not in (None, ThinkingLevel.OFF)


def _thinking(model: Model, options: StreamOptions, max_tokens: int) -> dict[str, Any]:
    """Return the fields that ask for the thinking level; a budget comes on top of `max_tokens`, if the model has room."""
    level, style, known = options.reasoning, _thinking_style(model), claude_thinking(model.id)
    if style == "none":
        return {}
    if level is None or level is ThinkingLevel.OFF:
        thinking = dict(known.off)
    elif style == "adaptive":
        thinking = {"type": "adaptive", "display": "summarized"} if known.shows else {"type": "adaptive"}
    else:
        return _budget(model, options, level, max_tokens)
    if _BINDING in _betas(model, options):
        # Thinking before which something has changed, as compaction does, is left out instead of refused.
        thinking = {"type": "adaptive", **thinking, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    fields: dict[str, Any] = {"thinking": thinking} if thinking else {}
    if level is not None and level is not ThinkingLevel.OFF:
        fields["output_config"] = {"effort": nearest(level, known.efforts)}
    return fields


def _budget(model: Model, options: StreamOptions, level: ThinkingLevel, max_tokens: int) -> dict[str, Any]:
    budget = max((options.thinking_budgets or {}).get(level.value, _BUDGETS[level.value]), _LEAST_BUDGET)
    total = max_tokens + budget
    if model.max_tokens is not None:
        total = max(min(total, model.max_tokens), max_tokens)
    budget = min(budget, total - min(max_tokens, _LEAST_BUDGET))  # the rest is the answer's
    if budget < _LEAST_BUDGET:
        return {}
    return {"max_tokens": total, "thinking": {"type": "enabled", "budget_tokens": budget}}


def _betas(model: Model, options: StreamOptions) -> list[str]:
    """Return the beta features that a request uses: only of the vendor itself, and only if they may be named."""
    if not vendor_of(model.base_url, _HOSTS) or any(
        name.lower() == _BETA_HEADER and value is None for name, value in (options.headers or {}).items()
    ):
        return []
    style, known = _thinking_style(model), claude_thinking(model.id)
    if style == "budget" and _thinks(options):
        return [_THINKING_BETWEEN_CALLS]
    if style == "adaptive" and known.binds and (_thinks(options) or not known.off):
        return [_BINDING]
    return []


# --- messages -------------------------------------------------------------------------------------------------------


def _cache_mark(options: StreamOptions) -> dict[str, Any] | None:
    if options.cache_retention == "none":
        return None
    return {"type": "ephemeral", "ttl": "1h"} if options.cache_retention == "long" else {"type": "ephemeral"}


def _marked(block: dict[str, Any], mark: dict[str, Any] | None) -> dict[str, Any]:
    return block if mark is None else {**block, "cache_control": mark}


def _messages(model: Model, context: ModelContext, mark: dict[str, Any] | None) -> list[dict[str, Any]]:
    names = [tool.name for tool in context.tools]
    memo = context.memo
    replayed = replayable(
        context.messages, model, api=API, ids=_IDS, tool_names=names, image_types=_IMAGE_TYPES, memo=memo
    )
    written: list[dict[str, Any]] = []
    open_user: list[Fragment] | None = None  # the content of the last message, if more may be added to it
    for message in written_once(memo, model, replayed, _written):
        blocks = message["content"]
        if not blocks:
            continue
        if message["role"] != "user":
            written.append(message)
            open_user = None
        elif not written or written[-1]["role"] != "user":
            written.append(message)
        else:
            # The results of all calls of a message belong into one; so does what the user says after them.
            if open_user is None:
                open_user = [*written[-1]["content"]]
                written[-1] = {"role": "user", "content": open_user}
            open_user.extend(blocks)
    if written and written[0]["role"] != "user":
        written.insert(0, {"role": "user", "content": [{"type": "text", "text": _BEFORE_THE_FIRST}]})
    if mark is not None:
        _mark_last_users(written, mark)
    return written


def _mark_last_users(written: list[dict[str, Any]], mark: dict[str, Any]) -> None:
    users = (place for place in reversed(range(len(written))) if written[place]["role"] == "user")
    for place in itertools.islice(users, _MARKED_MESSAGES):
        *blocks, last = written[place]["content"]
        written[place] = {"role": "user", "content": [*blocks, _marked(last, mark)]}


def _written(message: ReplayMessage) -> Fragment:
    """Return what a message is sent as; its content may be empty."""
    role = "assistant" if isinstance(message, AssistantMessage) else "user"
    return Fragment(role=role, content=[Fragment(block) for block in _blocks(message)])


def _blocks(message: ReplayMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message, AssistantMessage):
        for block in message.content:
            yield from _assistant_block(block)
    elif isinstance(message, ToolResultMessage):
        content = [part for block in message.content for part in _part(block)]
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        yield {**result, "is_error": True} if message.is_error else result
    elif isinstance(message.content, str):
        yield {"type": "text", "text": message.content}
    else:
        for block in message.content:
            yield from _part(block)


def _part(block: ContentBlock) -> Iterator[dict[str, Any]]:
    if isinstance(block, TextContent):
        yield {"type": "text", "text": block.text}
    elif isinstance(block, ImageContent):
        yield {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _assistant_block(block: ContentBlock) -> Iterator[dict[str, Any]]:
    match block:
        case ToolCall():
            yield {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case ThinkingContent(redacted=True):
            if block.signature:
                yield {"type": "redacted_thinking", "data": block.signature}
        case ThinkingContent(signature=None | ""):
            yield {"type": "text", "text": block.thinking}  # without its proof it is not taken as thinking
        case ThinkingContent():
            yield {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
        case ProviderContent():
            yield block.data
        case TextContent() if not block.text.strip():
            pass  # signed, but the API takes no blank text
        case _:
            yield from _part(block)


# --- the address ----------------------------------------------------------------------------------------------------


def _address(model: Model, options: StreamOptions, key: str | None) -> tuple[str, dict[str, str | None]]:
    headers: dict[str, str | None] = {"anthropic-version": _VERSION}
    if key is not None:
        headers["x-api-key"] = key
    merged: dict[str, str | None] = dict(merge_headers(headers, model.headers, options.headers))
    betas = _betas(model, options)
    if betas:
        named = next((name for name in merged if name.lower() == _BETA_HEADER), _BETA_HEADER)
        given = [word.strip() for word in (merged.get(named) or "").split(",") if word.strip()]
        merged[named] = ",".join([*given, *(beta for beta in betas if beta not in given)])
    ends_in_version = model.base_url.partition("?")[0].strip().rstrip("/").endswith("/v1")
    return endpoint_url(model.base_url, "/messages" if ends_in_version else "/v1/messages"), merged


_ADAPTER = Adapter(
    api=API,
    build_request=build_request,
    address=_address,
    hosts=_HOSTS,
    read_stream=read_stream,
    read_whole=read_whole,
)
