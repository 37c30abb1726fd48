"""A transcript made with one model goes on with any other: each API's published rules hold for the request."""

import copy
import importlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore import (
    AgentTool,
    AssistantMessage,
    ErrorInfo,
    ImageContent,
    Model,
    StreamOptions,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.content import ProviderContent
from agentcore.providers._request import CheckedRequest, HttpRequest
from tests.providers.wire_support import ANTHROPIC, BY_API, CHAT, GOOGLE, RESPONSES, Wire

IMAGE = ImageContent("iVBORw0KGgo=", "image/png")
LONE = "half \ud83d a pair \udc00"
ODD_IDS = ["call|é/1:" + "x" * 90, "", "read", "call_0"]

MODELS = {
    CHAT.api: Model("gpt-4.1", api=CHAT.api, provider="openai", base_url="https://api.openai.com/v1"),
    ANTHROPIC.api: Model(
        "claude-opus-4-8", api=ANTHROPIC.api, provider="anthropic", base_url="https://api.anthropic.com"
    ),
    GOOGLE.api: Model(
        "gemini-3.1-pro-preview",
        api=GOOGLE.api,
        provider="google",
        base_url="https://generativelanguage.googleapis.com/v1beta",
    ),
    RESPONSES.api: Model("gpt-5.5", api=RESPONSES.api, provider="openai", base_url="https://api.openai.com/v1"),
}
MORE = [
    Model("mistral-large", api=CHAT.api, provider="mistral", base_url="https://api.mistral.ai/v1"),
    Model("deepseek-chat", api=CHAT.api, provider="deepseek", base_url="https://api.deepseek.com"),
    Model("claude-sonnet-4-5", api=ANTHROPIC.api, provider="anthropic", base_url="https://api.anthropic.com"),
    Model("claude-sonnet-5-5", api=ANTHROPIC.api, provider="anthropic", base_url="https://api.anthropic.com"),
    Model("gemini-2.5-flash", api=GOOGLE.api, provider="google", base_url=MODELS[GOOGLE.api].base_url),
]
SIGNATURES = {
    CHAT.api: "c2ln",
    ANTHROPIC.api: "c2ln",
    GOOGLE.api: "c2ln",
    RESPONSES.api: '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2ln"}',
}
OWN: dict[str, list[dict[str, Any]]] = {
    CHAT.api: [{"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2ln"}]}],
    ANTHROPIC.api: [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ],
    GOOGLE.api: [{"executableCode": {"language": "PYTHON", "code": "print(1)"}}],
    RESPONSES.api: [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q", "queries": ["q"]},
        }
    ],
}


def schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"path": {"type": "string"}, "n": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/N"}]}},
        "$defs": {"N": {"const": 1}},
        "required": ["path"],
        "additionalProperties": False,
    }


TOOLS = (
    AgentTool("read", "Read", f"Read a file. {LONE}", schema(), lambda *given: ""),
    AgentTool("now", "Now", "Tell the time.", {"type": "object", "properties": {}}, lambda *given: ""),
)


def transcript(source: Model) -> list[Any]:
    """Return a conversation with all that can be odd in one, whose assistant messages are of this model."""

    def said(*blocks: Any, **more: Any) -> AssistantMessage:
        return AssistantMessage(blocks, api=source.api, provider=source.provider, model=source.id, **more)

    def result(id: str, *blocks: Any, **more: Any) -> ToolResultMessage:
        return ToolResultMessage(id, "read", blocks or [TextContent("fine")], **more)

    signature = SIGNATURES[source.api]
    own = [ProviderContent(source.provider, source.api, data) for data in OWN[source.api]]
    first, empty, named, again = ODD_IDS
    return [
        result("orphan"),
        said(TextContent("Hello, I begin.")),
        UserMessage([TextContent(f"Look: {LONE}"), IMAGE, TextContent("")]),
        said(
            ThinkingContent("Both at once.", signature),
            TextContent(""),
            TextContent("I look."),
            ToolCall(first, "read", {"path": LONE, "n": float("nan")}, thought_signature="c2ln"),
            ToolCall(empty, "read", {"path": "b"}),
        ),
        result(empty, TextContent("no such file"), is_error=True),
        result(first, TextContent(LONE), IMAGE),
        said(TextContent("I was stopp"), ToolCall("c9", "read", {"path": "x"}), stop_reason="aborted"),
        result("c9"),
        UserMessage("go on"),
        said(
            ThinkingContent("", signature if source.api != CHAT.api else None, redacted=source.api == ANTHROPIC.api),
            ToolCall(named, "now", {}),
            ToolCall(again, "made up: é", {"path": "1"}),
            ToolCall(again, "read", {}, '{"path": "cut'),
        ),
        result(again, TextContent("one")),
        result(again, TextContent("two")),
        result("orphan", TextContent("nobody asked")),
        said(*own, TextContent("The network broke"), stop_reason="error", error=ErrorInfo("connection", "reset")),
        said(TextContent(" \n")),
        UserMessage("search"),
        said(*own, TextContent("Found it.")),
        said(ToolCall(again, "read", {"path": "never answered"}), stop_reason="length"),
        UserMessage(""),
        UserMessage([IMAGE]),
        said(ThinkingContent("Unsigned."), TextContent("Done.")),
        UserMessage("thanks"),
    ]


def request(wire: Wire, model: Model, messages: list[Any], **options: Any) -> dict[str, Any]:
    """Return the payload as the server gets it."""
    payload = wire.build(
        *messages, model=model, tools=TOOLS, system_prompt=f"Be kind. {LONE}", options=StreamOptions(**options)
    )
    body = CheckedRequest.of(HttpRequest("http://host/", {}, payload)).body
    got = json.loads(body.decode("utf-8"))
    assert isinstance(got, dict)
    return got


# --- the published rules ---


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_of(item)


def paired(calls: list[str], results: list[str]) -> None:
    """Every call has one result, and none is used twice."""
    assert sorted(calls) == sorted(results)
    assert len(set(calls)) == len(calls)


def chat_rules(payload: dict[str, Any], model: Model) -> None:
    waiting: list[str] = []
    seen: list[str] = []
    for place, message in enumerate(payload["messages"]):
        role, content = message["role"], message.get("content")
        if role == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
            assert isinstance(content, str)
            assert content
            continue
        # Results stand right behind the message that called.
        assert waiting == []
        assert role in ({"system", "developer"} if place == 0 else {"user", "assistant"})
        if role == "assistant":
            calls = message.get("tool_calls", [])
            assert calls or content
            for call in calls:
                assert call["type"] == "function"
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
                assert re.fullmatch("[!-~]{1,40}", call["id"])
                if model.provider == "mistral":
                    assert re.fullmatch("[a-zA-Z0-9]{9}", call["id"])
            waiting = [call["id"] for call in calls]
            seen += waiting
        for part in content if isinstance(content, list) else []:
            assert part["type"] in ("text", "image_url", "thinking")
            assert part.get("text", "x").strip()
    assert waiting == []
    assert len(set(seen)) == len(seen)


def anthropic_rules(payload: dict[str, Any], model: Model) -> None:
    messages = payload["messages"]
    assert messages[0]["role"] == messages[-1]["role"] == "user"
    for one, following in itertools.pairwise(messages):
        # The API joins messages of the same role, which for calls would be between them and their results.
        called = any(block["type"] == "tool_use" for block in one["content"])
        assert one["role"] != following["role"] or (one["role"] == "assistant" and not called)
    seen: list[str] = []
    for place, message in enumerate(messages):
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        for block in message["content"]:
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "thinking" or block["signature"]
        uses = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        seen += uses
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", id) for id in uses)
        if message["role"] == "user":
            before = messages[place - 1]["content"] if place else []
            results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
            paired([block["id"] for block in before if block["type"] == "tool_use"], results)
            assert kinds[: len(results)] == ["tool_result"] * len(results)
    assert len(set(seen)) == len(seen)
    marked = json.dumps(payload).count('"cache_control"')
    assert 0 < marked <= 4
    if payload.get("thinking", {}).get("type") == "enabled":
        assert 1024 <= payload["thinking"]["budget_tokens"] < payload["max_tokens"]
    for tool in payload["tools"]:
        assert tool["input_schema"]["type"] == "object"
        assert not {"anyOf", "oneOf", "allOf"} & set(tool["input_schema"])


def google_rules(payload: dict[str, Any], model: Model) -> None:
    contents = payload["contents"]
    roles = [content["role"] for content in contents]
    assert roles[0] == roles[-1] == "user"
    assert all(one != next_one for one, next_one in itertools.pairwise(roles))
    for place, content in enumerate(contents):
        assert content["parts"]
        for part in content["parts"]:
            data = set(part) - {"thought", "thoughtSignature"}
            assert len(data) == 1, part
            assert part.get("text", "x").strip() or "thoughtSignature" in part
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        before = contents[place - 1]["parts"] if place else []
        calls = [part["functionCall"] for part in before if "functionCall" in part]
        assert [call["name"] for call in calls] == [response["name"] for response in responses]
        assert [call.get("id") for call in calls] == [response.get("id") for response in responses]
        assert all("functionResponse" in part for part in content["parts"][: len(responses)])
        assert all(set(response["response"]) <= {"output", "error"} for response in responses)
        if model.id.startswith("gemini-3"):
            first = next((part for part in content["parts"] if "functionCall" in part), {"thoughtSignature": "none"})
            assert first.get("thoughtSignature")
    read, now = payload["tools"][0]["functionDeclarations"]
    assert read["parametersJsonSchema"] == schema()
    assert not {"parameters", "parametersJsonSchema"} & set(now)


def responses_rules(payload: dict[str, Any], model: Model) -> None:
    calls: list[str] = []
    outputs: list[str] = []
    for place, item in enumerate(payload["input"]):
        following = payload["input"][place + 1]["type"] if place + 1 < len(payload["input"]) else None
        match item["type"]:
            case "function_call":
                assert isinstance(json.loads(item["arguments"]), dict)
                assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", item["call_id"])
                assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", item["name"])
                calls.append(item["call_id"])
            case "function_call_output":
                assert item["call_id"] in calls
                outputs.append(item["call_id"])
            case "reasoning":
                assert item["encrypted_content"]
                assert following not in (None, "reasoning", "function_call_output")
            case "message":
                assert item["role"] in ("user", "assistant")
                assert "id" not in item
                assert item["content"]
            case kind:
                assert kind == "web_search_call"
    paired(calls, outputs)
    assert payload["store"] is False
    assert "reasoning.encrypted_content" in payload.get("include", []) or not model.reasoning


RULES: dict[str, Callable[[dict[str, Any], Model], None]] = {
    CHAT.api: chat_rules,
    ANTHROPIC.api: anthropic_rules,
    GOOGLE.api: google_rules,
    RESPONSES.api: responses_rules,
}

targets = [*MODELS.values(), *MORE]
both = pytest.mark.parametrize(
    ("source", "target"),
    [(source, target) for source in MODELS.values() for target in targets],
    ids=lambda model: model.id,
)


def seeing(model: Model, **more: Any) -> Model:
    return Model(
        model.id, api=model.api, provider=model.provider, base_url=model.base_url, input=("text", "image"), **more
    )


@both
@pytest.mark.parametrize("level", [None, "high"])
def test_a_transcript_of_any_model_is_acceptable_to_any_other(source: Model, target: Model, level: str | None) -> None:
    wire = BY_API[target.api]
    messages = transcript(source)
    before = copy.deepcopy([message.to_dict() for message in messages])
    model = seeing(target, reasoning=True)

    payload = request(wire, model, messages, reasoning=level)

    RULES[target.api](payload, model)
    for text in texts_of(payload):
        assert not any("\ud800" <= character <= "\udfff" for character in text)
        assert text not in ("nobody asked", "The network broke", "I was stopp")
    assert [message.to_dict() for message in messages] == before


@both
def test_a_model_without_eyes_is_sent_no_image(source: Model, target: Model) -> None:
    payload = request(BY_API[target.api], target, transcript(source))

    RULES[target.api](payload, target)
    assert IMAGE.data not in json.dumps(payload)
    assert json.dumps(payload).count("image/png") >= 3


@both
def test_signatures_and_blocks_of_the_provider_only_go_to_the_model_that_made_them(
    source: Model, target: Model
) -> None:
    body = json.dumps(request(BY_API[target.api], target, transcript(source)))

    same = (source.api, source.provider, source.id) == (target.api, target.provider, target.id)
    if source.api != CHAT.api:  # OpenAI's Chat Completions take no thinking back
        assert ("c2ln" in body) == same
    for sign in ("web_search_call", "executableCode", "reasoning_details"):
        if sign in body:
            assert same


@pytest.mark.parametrize("target", targets, ids=lambda model: model.id)
def test_a_longer_transcript_begins_with_the_same_request(target: Model) -> None:
    """So that caches of prompts stay good, and ids the same."""
    wire, messages = BY_API[target.api], transcript(MODELS[GOOGLE.api])
    field = {CHAT.api: "messages", ANTHROPIC.api: "messages", GOOGLE.api: "contents", RESPONSES.api: "input"}[
        target.api
    ]

    shorter = request(wire, target, messages, cache_retention="none")[field]
    answer = AssistantMessage([TextContent("You are welcome."), ToolCall("call_0", "now", {})])
    longer = request(
        wire,
        target,
        [*messages, answer, ToolResultMessage("call_0", "now", [TextContent("12:00")]), UserMessage("bye")],
        cache_retention="none",
    )[field]

    assert longer[: len(shorter)] == shorter


@pytest.mark.parametrize("target", targets, ids=lambda model: model.id)
def test_nothing_is_sent_of_tools_where_there_are_none(target: Model) -> None:
    body = dict.fromkeys(("tool_choice", "parallel_tool_calls", "toolConfig"), "auto")
    compat = {"body": body}
    model = seeing(target, compat=compat)

    payload = BY_API[target.api].build(UserMessage("hi"), model=model)

    own = "toolConfig" if target.api == GOOGLE.api else "tool_choice"
    assert own not in payload
    assert "tools" not in payload


# --- the vendors' own types (for development: their packages are not among the test dependencies) ---


def consumed(value: Any) -> Any:
    """Read lazy iterators to their end, which is when pydantic looks at what is in them."""
    if isinstance(value, dict):
        return {key: consumed(item) for key, item in value.items()}
    if isinstance(value, (str, bytes, int, float, bool)) or value is None:
        return value
    return [consumed(item) for item in value]


def typed_dict(module: str, name: str) -> Callable[[dict[str, Any]], None]:
    """Return a check against a `TypedDict` of a vendor's package: it must take all, and know every key."""
    pydantic = pytest.importorskip("pydantic")
    pytest.importorskip(module.partition(".")[0])
    adapter = pydantic.TypeAdapter(getattr(importlib.import_module(module), name))

    def check(payload: dict[str, Any]) -> None:
        known = without(without(payload, "reasoning_details"), "extra_content")  # fields of imitators
        taken = consumed(adapter.validate_python(known))
        # A schema is any object, of which the types name only some keys.
        assert without(taken, "input_schema") == without(known, "input_schema")

    return check


def without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: without(item, key) for name, item in value.items() if name != key}
    return [without(item, key) for item in value] if isinstance(value, list) else value


def google_types() -> Callable[[dict[str, Any]], None]:
    types = pytest.importorskip("google.genai.types")

    def check(payload: dict[str, Any]) -> None:
        # Its models forbid what they do not know, and read JSON as it goes over the wire.
        for content in (*payload["contents"], payload["systemInstruction"]):
            types.Content.model_validate_json(json.dumps(content))
        for tool in payload["tools"]:
            types.Tool.model_validate_json(json.dumps(tool))
        types.GenerationConfig.model_validate_json(json.dumps(payload.get("generationConfig", {})))
        known = {"contents", "systemInstruction", "tools", "generationConfig"}
        assert set(payload) <= known

    return check


VENDORS: dict[str, Callable[[], Callable[[dict[str, Any]], None]]] = {
    CHAT.api: lambda: typed_dict("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
    ANTHROPIC.api: lambda: typed_dict("anthropic.types.beta.message_create_params", "MessageCreateParamsStreaming"),
    GOOGLE.api: google_types,
    RESPONSES.api: lambda: typed_dict("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
}


@pytest.mark.parametrize("level", [None, "low", "max"])
@pytest.mark.parametrize("source", MODELS.values(), ids=lambda model: model.id)
@pytest.mark.parametrize("target", MODELS.values(), ids=lambda model: model.id)
def test_the_vendors_own_types_take_the_request(source: Model, target: Model, level: str | None) -> None:
    check = VENDORS[target.api]()
    options = {"max_tokens": 900, "cache_retention": "long", "session_id": "s", "metadata": {"user_id": "u"}}
    model = seeing(target, reasoning=True, max_tokens=64_000)

    check(request(BY_API[target.api], model, transcript(source), reasoning=level, **options))
