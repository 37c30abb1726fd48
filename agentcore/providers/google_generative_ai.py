"""Google's Gemini API: `streamGenerateContent` with server-sent events.

How a model is told to think follows from its id. Nobody having asked for thinking, a model that would think by itself
is told not to, or to think the least it can, where it has a word for that. `Model.compat` takes `thinking` (`"level"`:
levels are words, `"budget"`: levels are token budgets, `"none"`: never a word about it) and `body`, fields that every
request carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from agentcore.config import ModelContext, StreamOptions
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.events import StreamEvent
from agentcore.messages import AssistantMessage, ToolResultMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.providers._exchange import Adapter, endpoint_url, exchange, with_body
from agentcore.providers._google_reading import read_stream, read_whole
from agentcore.providers._payload import Fragment
from agentcore.providers._replay import IdRule, ReplayMessage, clean_text, replayable, written_once
from agentcore.providers._request import merge_headers
from agentcore.providers._thinking_levels import gemini_levels, gemini_version, nearest
from agentcore.providers._tool_schema import object_schema
from agentcore.tools import AgentTool

__all__ = ["build_request", "read_stream", "stream"]

API = "google-generative-ai"

_HOSTS = {"generativelanguage.googleapis.com": "google"}
_IDS = IdRule()
_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"))
_BEFORE_THE_FIRST = "(The conversation begins here.)"
# What the API's documentation names for calls of transcripts that lost their signatures, or never had any.
_NO_SIGNATURE = "skip_thought_signature_validator"
_IMAGES_IN_RESULTS = ("image/png", "image/jpeg", "image/webp")

_BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 24_576}
_COMPAT = {"thinking", "body"}
_STYLES = ("level", "budget", "none")
_OPEN = ("additionalProperties", "patternProperties", "propertyNames")


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
        payload["tools"] = [{"functionDeclarations": written_once(context.memo, model, context.tools, _tool)}]
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
    payload = with_body(payload, model.compat.get("body", {}))
    if not payload.get("tools"):
        for field in ("tools", "toolConfig"):
            payload.pop(field, None)
    return payload


def _tool(tool: AgentTool) -> Fragment:
    declared: dict[str, Any] = {"name": tool.name, "description": clean_text(tool.description)}
    schema = object_schema(tool.parameters)
    # An object without properties is refused; a tool that declares no parameters just takes none.
    if schema["properties"] or any(schema.get(keyword) for keyword in _OPEN):
        # The field for JSON schema as it is; `parameters` would refuse `$defs`, `const` and much else.
        declared["parametersJsonSchema"] = schema
    return Fragment(declared)


# --- thinking -------------------------------------------------------------------------------------------------------


def _is_new(model: Model) -> bool:
    """Return whether a model has what came with version 3: levels, ids of calls, signatures that are missed."""
    version = gemini_version(model.id)
    return version is not None and version >= (3, 0)


def _is_old(model: Model) -> bool:
    return gemini_version(model.id) is not None and not _is_new(model)


def _thinking_style(model: Model) -> str:
    style = model.compat.get("thinking")
    if style is None:
        if not model.reasoning:
            return "none"
        return "budget" if _is_old(model) else "level"
    if style not in _STYLES:
        raise ValueError(f"`Model.compat['thinking']` is {style!r}; it takes {', '.join(map(repr, _STYLES))}")
    return str(style)


def _thinking(model: Model, options: StreamOptions) -> dict[str, Any]:
    level, style, words = options.reasoning, _thinking_style(model), gemini_levels(model.id)
    if style == "none":
        return {}
    if level is None or level is ThinkingLevel.OFF:
        if style == "budget":
            return {"thinkingBudget": 0} if "flash" in model.id else {}  # only those can be kept from it
        return {"thinkingLevel": "minimal"} if "minimal" in words else {}
    budget = (options.thinking_budgets or {}).get(level.value)
    if style == "budget" or budget is not None:
        return {"includeThoughts": True, "thinkingBudget": _BUDGETS[level.value] if budget is None else budget}
    return {"includeThoughts": True, "thinkingLevel": nearest(level, words)}


# --- contents -------------------------------------------------------------------------------------------------------


def _contents(model: Model, context: ModelContext) -> list[dict[str, Any]]:
    names = [tool.name for tool in context.tools]
    memo = context.memo
    replayed = replayable(
        context.messages, model, api=API, ids=_IDS, tool_names=names, image_types=_IMAGE_TYPES, memo=memo
    )
    contents: list[dict[str, Any]] = []
    # What cannot be inside the results of a turn's calls comes after all of them: none may stand between two results.
    beside: list[Fragment] = []
    for content, more in written_once(memo, model, replayed, lambda message: _written(message, model)):
        if beside and more is None:
            _append(contents, Fragment(role="user", parts=beside))
            beside = []
        _append(contents, content)
        if more:
            beside = beside + more
    _append(contents, Fragment(role="user", parts=beside))
    if contents and contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": _BEFORE_THE_FIRST}]})
    return contents


def _append(contents: list[dict[str, Any]], content: Fragment) -> None:
    """Add a content to the contents, whose roles take turns."""
    if not content["parts"]:
        return
    if not contents or contents[-1]["role"] != content["role"]:
        contents.append(content)
        return
    last = contents[-1]
    if isinstance(last, Fragment):  # it is kept for the next request
        last = contents[-1] = {"role": last["role"], "parts": [*last["parts"]]}
    last["parts"].extend(content["parts"])


def _written(message: ReplayMessage, model: Model) -> tuple[Fragment, list[Fragment] | None]:
    """Return the content that a message is sent as, and for a result the parts that cannot be in it."""
    beside: list[dict[str, Any]] | None = None
    if isinstance(message, AssistantMessage):
        role, parts = "model", [part for block in message.content for part in _model_part(block, model)]
        if _is_new(model):
            parts = _with_first_call_signed(parts)
    elif isinstance(message, ToolResultMessage):
        result, beside = _result(message, model)
        role, parts = "user", [result]
    elif isinstance(message.content, str):
        role, parts = "user", [{"text": message.content}]
    else:
        role, parts = "user", [part for block in message.content for part in _part(block)]
    content = Fragment(role=role, parts=[Fragment(part) for part in parts])
    return content, None if beside is None else [Fragment(part) for part in beside]


def _result(message: ToolResultMessage, model: Model) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the part that a result is sent as, and those of the images that cannot be in it."""
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    images = [block for block in message.content if isinstance(block, ImageContent)]
    inside = [image for image in images if _is_new(model) and image.mime_type in _IMAGES_IN_RESULTS]
    beside = [image for image in images if image not in inside]
    said = text or "(see the attached image)"
    response: dict[str, Any] = {
        "name": message.tool_name,
        "response": {"error": said} if message.is_error else {"output": said},
    }
    if inside:
        response["parts"] = [part for image in inside for part in _part(image)]
    if not _is_old(model):
        response["id"] = message.tool_call_id
    shown = [part for image in beside for part in _part(image)]
    if shown:
        shown.insert(0, {"text": f"What `{message.tool_name}` returned besides:"})
    return {"functionResponse": response}, shown


def _part(block: ContentBlock) -> Iterator[dict[str, Any]]:
    if isinstance(block, TextContent):
        yield {"text": block.text}
    elif isinstance(block, ImageContent):
        yield {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


def _model_part(block: ContentBlock, model: Model) -> Iterator[dict[str, Any]]:
    match block:
        case ToolCall():
            call: dict[str, Any] = {"name": block.name, "args": block.arguments}
            if not _is_old(model):
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


def _with_first_call_signed(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Models that sign refuse a turn whose first call has no signature, such as one that another model made."""
    first = next((place for place, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": _NO_SIGNATURE}, *parts[first + 1 :]]


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


_ADAPTER = Adapter(
    api=API,
    build_request=build_request,
    address=_address,
    hosts=_HOSTS,
    read_stream=read_stream,
    read_whole=read_whole,
)
