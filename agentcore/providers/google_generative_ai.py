"""Google's Gemini API: `streamGenerateContent` with server-sent events.

`Model.compat` takes `thinking` (`"level"`: levels are words, `"budget"`: levels are token budgets, `"none"`), which is
otherwise told from the model's id, and `body`, fields that every request carries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import StreamEvent
from agentcore.messages import AssistantMessage, ToolResultMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.providers._exchange import Adapter, endpoint_url, exchange
from agentcore.providers._google_reading import read_stream, read_whole
from agentcore.providers._replay import IdRule, ReplayMessage, clean_text, replayable
from agentcore.providers._request import merge_headers

__all__ = ["build_request", "read_stream", "stream"]

API = "google-generative-ai"

_HOST = "generativelanguage.googleapis.com"
_BEFORE_THE_FIRST = "(The conversation begins here.)"
# What the API's documentation names for calls of transcripts that lost their signatures, or never had any.
_NO_SIGNATURE = "skip_thought_signature_validator"

_LEVELS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_LEVELS_OF_PRO = {**_LEVELS, "minimal": "low"}
_BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 24_576}
_BUDGET_MODELS = re.compile(r"gemini-(1|2)\.")
_COMPAT = {"thinking", "body"}
_STYLES = ("level", "budget", "none")


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
    payload: dict[str, Any] = {"contents": _contents(model, context)}
    if context.system_prompt.strip():
        payload["systemInstruction"] = {"parts": [{"text": clean_text(context.system_prompt)}]}
    if context.tools:
        payload["tools"] = [{"functionDeclarations": [_tool(tool) for tool in context.tools]}]
    generation: dict[str, Any] = {}
    if options.max_tokens is not None:
        generation["maxOutputTokens"] = options.max_tokens
    if options.temperature is not None:
        generation["temperature"] = options.temperature
    thinking = _thinking(model, options)
    if thinking:
        generation["thinkingConfig"] = thinking
    if generation:
        payload["generationConfig"] = generation
    payload.update(model.compat.get("body", {}))
    if not context.tools:
        payload.pop("toolConfig", None)
    return payload


def _tool(tool: Any) -> dict[str, Any]:
    declared = {"name": tool.name, "description": clean_text(tool.description)}
    if tool.parameters.get("properties"):
        # The field for JSON schema as it is; `parameters` would refuse `$defs`, `const` and much else.
        declared["parametersJsonSchema"] = {"type": "object", **tool.parameters}
    elif any(
        key not in ("type", "properties", "required", "additionalProperties", "$schema") for key in tool.parameters
    ):
        declared["parametersJsonSchema"] = {**tool.parameters, "type": "object"}
    return declared


def _thinking_style(model: Model) -> str:
    style = model.compat.get("thinking")
    if style is None:
        if not model.reasoning:
            return "none"
        return "budget" if _BUDGET_MODELS.search(model.id) else "level"
    if style not in _STYLES:
        raise ValueError(f"`Model.compat['thinking']` is {style!r}; it takes {', '.join(map(repr, _STYLES))}")
    return str(style)


def _thinking(model: Model, options: StreamOptions) -> dict[str, Any]:
    level, style = options.reasoning, _thinking_style(model)
    if style == "none":
        return {}
    if level is None or level is ThinkingLevel.OFF:
        # Thinking cannot be switched off in every model; where it can, a budget of 0 does it.
        return {"thinkingBudget": 0} if style == "budget" and "flash" in model.id else {}
    budget = (options.thinking_budgets or {}).get(level.value)
    if style == "budget" or budget is not None:
        return {"includeThoughts": True, "thinkingBudget": _BUDGETS[level.value] if budget is None else budget}
    levels = _LEVELS_OF_PRO if "pro" in model.id else _LEVELS
    return {"includeThoughts": True, "thinkingLevel": levels[level.value]}


# --- contents -------------------------------------------------------------------------------------------------------


def _contents(model: Model, context: ModelContext) -> list[dict[str, Any]]:
    names = [tool.name for tool in context.tools]
    replayed = replayable(context.messages, model, api=API, ids=IdRule(), tool_names=names)
    sends_ids = not _BUDGET_MODELS.search(model.id)
    signs = not _BUDGET_MODELS.search(model.id)
    contents: list[dict[str, Any]] = []
    for message in replayed:
        role, parts = _written(message, sends_ids)
        if not parts:
            continue
        if role == "model" and signs:
            _sign_first_call(parts)
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    if contents and contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": _BEFORE_THE_FIRST}]})
    return contents


def _written(message: ReplayMessage, sends_ids: bool) -> tuple[str, list[dict[str, Any]]]:
    """Return the role and the parts that a message is sent as."""
    if isinstance(message, AssistantMessage):
        return "model", [part for block in message.content for part in _model_part(block, sends_ids)]
    if isinstance(message, ToolResultMessage):
        return "user", _result(message, sends_ids)
    if isinstance(message.content, str):
        return "user", [{"text": message.content}]
    return "user", [part for block in message.content for part in _part(block)]


def _result(message: ToolResultMessage, sends_ids: bool) -> list[dict[str, Any]]:
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    images = [part for block in message.content if isinstance(block, ImageContent) for part in _part(block)]
    said = text or "(see the attached image)"
    response: dict[str, Any] = {
        "name": message.tool_name,
        "response": {"error": said} if message.is_error else {"output": said},
    }
    if sends_ids:
        response["id"] = message.tool_call_id
    return [{"functionResponse": response}, *images]


def _part(block: ContentBlock) -> Iterator[dict[str, Any]]:
    if isinstance(block, TextContent):
        yield {"text": block.text}
    elif isinstance(block, ImageContent):
        yield {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _model_part(block: ContentBlock, sends_ids: bool) -> Iterator[dict[str, Any]]:
    match block:
        case ToolCall():
            call: dict[str, Any] = {"name": block.name, "args": block.arguments}
            if sends_ids:
                call["id"] = block.id
            yield _signed({"functionCall": call}, block.thought_signature)
        case ThinkingContent():
            if block.thinking or block.signature:
                yield _signed({"text": block.thinking, "thought": True}, block.signature)
        case TextContent():
            yield _signed({"text": block.text}, block.signature)
        case ProviderContent():
            yield block.data
        case _:
            yield from _part(block)


def _signed(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature} if signature else part


def _sign_first_call(parts: list[dict[str, Any]]) -> None:
    """Models that sign refuse a turn whose first call has no signature, such as one that another model made."""
    for place, part in enumerate(parts):
        if "functionCall" in part:
            if "thoughtSignature" not in part:
                parts[place] = {**part, "thoughtSignature": _NO_SIGNATURE}
            return


# --- the address ----------------------------------------------------------------------------------------------------


def _address(model: Model, options: StreamOptions, key: str | None) -> tuple[str, dict[str, str | None]]:
    headers: dict[str, str | None] = {}
    if key is not None:
        headers["x-goog-api-key"] = key
    name = model.id if "/" in model.id else f"models/{model.id}"
    url = endpoint_url(model.base_url, f"/{quote(name, safe='/')}:streamGenerateContent")
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, "alt=sse")))
    return parts._replace(query=query).geturl(), dict(merge_headers(headers, model.headers, options.headers))


def _key_providers(model: Model) -> tuple[str, ...]:
    """Return whose key may go to the model's server: the named provider's, else Google's on its own host."""
    if model.provider:
        return (model.provider,)
    try:
        return ("google",) if urlsplit(model.base_url).hostname == _HOST else ()
    except ValueError:
        return ()


_ADAPTER = Adapter(
    api=API,
    build_request=build_request,
    address=_address,
    key_providers=_key_providers,
    read_stream=read_stream,
    read_whole=read_whole,
)
