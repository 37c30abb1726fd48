"""Requests of Chat Completions are written as each server wants them."""

import copy
import json
from typing import Any

import attrs
import pytest

from agentcore import (
    AgentTool,
    AssistantMessage,
    ImageContent,
    Model,
    ModelContext,
    StreamOptions,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.content import ProviderContent
from agentcore.providers.dialects import DIALECTS, GENERIC, Dialect, dialect_of
from agentcore.providers.openai_completions import build_request
from agentcore.testing.sse_server import Reply, sse
from tests.providers.chat_support import DONE, ask, finish, message_of, served, text

LOCAL = "http://127.0.0.1:8000/v1"
TOOL = AgentTool("f", "F", "does f", {"type": "object", "properties": {"x": {"type": "integer"}}}, lambda *args: "ok")
IMAGE = ImageContent("AAAA", "image/png")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def request(
    *messages: Any,
    provider: str = "",
    options: StreamOptions | None = None,
    system: str = "",
    tools: Any = (),
    **fields: Any,
) -> dict[str, Any]:
    """Return the payload of a request to a model with these fields."""
    model = Model(fields.pop("id", "m"), provider=provider, **{"base_url": LOCAL, **fields})
    context = ModelContext(system, messages or [UserMessage("hi")], tools)
    return build_request(model, context, options or StreamOptions())


def said(*content: Any, provider: str = "", **fields: Any) -> AssistantMessage:
    """Return a message of the model that `request` asks."""
    origin = {"api": "openai-completions", "provider": provider, "model": fields.pop("model", "m")}
    return AssistantMessage(content, **origin, **fields)


# --- which dialect ---


@pytest.mark.parametrize(
    ("provider", "base_url", "name"),
    [
        ("openai", "", "openai"),
        ("openai", LOCAL, "openai"),
        ("", "https://api.openai.com/v1", "openai"),
        ("", "https://API.DeepSeek.com/v1", "deepseek"),
        ("openai", "https://openrouter.ai/api/v1", "openrouter"),
        ("mine", "https://mine.openai.azure.com/openai/deployments/d?api-version=1", "azure"),
        ("", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "alibaba"),
        ("", "https://api.openai.com.evil.example/v1", ""),
        ("", "https://evilapi.openai.com.example/v1", ""),
        ("", "https://notopenrouter.ai/v1", ""),
        ("", LOCAL, ""),
        ("nobody", "http://[", ""),
    ],
)
def test_a_server_is_known_by_its_host_or_its_provider(provider: str, base_url: str, name: str) -> None:
    assert dialect_of(Model("m", provider=provider, base_url=base_url)).name == name


def test_names_and_hosts_of_dialects_are_their_own() -> None:
    names = [dialect.name for dialect in DIALECTS]
    hosts = [host for dialect in DIALECTS for host in dialect.hosts]

    assert len(set(names)) == len(names)
    assert len(set(hosts)) == len(hosts)


@pytest.mark.parametrize("dialect", [*DIALECTS, GENERIC], ids=lambda dialect: dialect.name or "generic")
def test_every_dialect_writes_a_request_for_every_level(dialect: Dialect) -> None:
    for level in ("off", "minimal", "low", "medium", "high", "xhigh", "max"):
        options = StreamOptions(reasoning=level, thinking_budgets={level: 2048}, max_tokens=10, session_id="s")  # type: ignore[arg-type]
        payload = request(provider=dialect.name, reasoning=True, options=options, tools=[TOOL])

        json.dumps(payload, allow_nan=False)
        assert {"model", "messages", "stream", "tools"} <= payload.keys()
        assert payload.get("max_tokens", payload.get("max_completion_tokens")) == 10


def test_compat_overrides_single_fields() -> None:
    compat = {
        "max_tokens_field": "max_completion_tokens",
        "include_usage": False,
        "levels": {"high": {"think": "hard"}},
        "tool_ids": {"allowed": "a-z0-9_", "longest": 20},
        "body": {"seed": 7},
    }
    options = StreamOptions(max_tokens=5, reasoning="high")  # type: ignore[arg-type]

    payload = request(said(ToolCall("call-1", "f", {})), compat=compat, options=options, reasoning=True)

    assert payload["max_completion_tokens"] == 5
    assert payload["think"] == "hard"
    assert payload["seed"] == 7
    assert "stream_options" not in payload
    assert payload["messages"][0]["tool_calls"][0]["id"].startswith("call_1_")
    low = request(compat=compat, options=attrs.evolve(options, reasoning="low"), reasoning=True)
    assert low["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    "compat",
    [
        {"max_token_field": "x"},
        {"tool_ids": {"size": 3}},
        {"tool_ids": {"longest": 3}},
        {"tool_ids": {"allowed": "z-a"}},
        {"name": "openai"},
    ],
)
def test_compat_that_nobody_understands_is_a_clear_error(compat: dict[str, Any]) -> None:
    model = Model("m", base_url=LOCAL, compat=compat)

    with pytest.raises(ValueError, match="compat"):
        build_request(model, ModelContext(), StreamOptions())
    message = message_of(ask(model))
    assert message.error is not None
    assert (message.stop_reason, message.error.kind) == ("error", "invalid_request")
    assert "compat" in message.error.message


# --- the fields ---


def test_a_plain_request() -> None:
    payload = request(system="Be brief.", tools=[TOOL], provider="openai", options=StreamOptions(temperature=0.5))

    assert payload == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "does f", "parameters": TOOL.parameters}}
        ],
        "temperature": 0.5,
    }


def test_nothing_about_tools_is_sent_without_tools() -> None:
    body = {"tool_choice": "auto", "parallel_tool_calls": False, "tools": []}

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & request(compat={"body": body}).keys()
    assert request(compat={"body": {"tool_choice": "auto"}}, tools=[TOOL])["tool_choice"] == "auto"


@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_a_tool_without_parameters_has_an_empty_object(parameters: dict[str, Any]) -> None:
    tool = AgentTool("f", "F", "d", parameters, lambda *args: "ok")

    (sent,) = request(tools=[tool])["tools"]

    assert sent["function"]["parameters"] == {"type": "object", "properties": {}}
    assert tool.parameters == parameters


@pytest.mark.parametrize(
    ("provider", "field"), [("openai", "max_completion_tokens"), ("deepseek", "max_tokens"), ("", "max_tokens")]
)
def test_the_limit_of_the_answer_has_the_name_the_server_knows(provider: str, field: str) -> None:
    payload = request(provider=provider, options=StreamOptions(max_tokens=99))

    assert payload[field] == 99
    assert len({"max_tokens", "max_completion_tokens"} & payload.keys()) == 1


@pytest.mark.parametrize(
    ("provider", "level", "fields"),
    [
        ("openai", "minimal", {"reasoning_effort": "low"}),
        ("openai", "max", {"reasoning_effort": "high"}),
        ("openai", "off", {}),
        ("", "minimal", {"reasoning_effort": "low"}),
        ("", "off", {}),
        ("groq", "xhigh", {"reasoning_effort": "high"}),
        ("deepseek", "low", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        ("deepseek", "medium", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("deepseek", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        ("deepseek", "off", {"thinking": {"type": "disabled"}}),
        ("zai", "high", {"thinking": {"type": "enabled"}}),
        ("alibaba", "off", {"enable_thinking": False}),
        ("openrouter", "medium", {"reasoning": {"effort": "medium"}}),
        ("openrouter", "off", {}),
        ("xai", "high", {}),
    ],
)
def test_the_thinking_level_is_asked_for_in_the_servers_words(
    provider: str, level: Any, fields: dict[str, Any]
) -> None:
    names = {"reasoning_effort", "thinking", "enable_thinking", "reasoning"}
    options = StreamOptions(reasoning=level)

    asked = request(provider=provider, reasoning=True, options=options)
    not_able = request(provider=provider, reasoning=False, options=options)

    assert {name: asked[name] for name in names & asked.keys()} == fields
    assert not names & not_able.keys()


@pytest.mark.parametrize("dialect", [*DIALECTS, GENERIC], ids=lambda dialect: dialect.name or "generic")
def test_a_model_that_was_asked_for_no_thinking_is_kept_from_it_where_there_is_a_word_for_that(
    dialect: Dialect,
) -> None:
    """An agent whose level is `off` sends requests without a level."""
    unasked = request(provider=dialect.name, reasoning=True)

    assert unasked == request(provider=dialect.name, reasoning=True, options=StreamOptions(reasoning="off"))  # type: ignore[arg-type]
    assert ("disabled" in json.dumps(unasked)) is (dialect.name in ("deepseek", "zai", "moonshot"))
    left = request(provider=dialect.name, reasoning=True, compat={"levels": {"off": {}}})
    assert left == request(provider=dialect.name, reasoning=False)


@pytest.mark.parametrize("provider", ["openai", "azure", "copilot"])
@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("gpt-5-mini", [None, None, "minimal", "low", "medium", "high", "high", "high"]),
        ("gpt-5.1", ["none", "none", "low", "low", "medium", "high", "high", "high"]),
        ("gpt-5.2", ["none", "none", "low", "low", "medium", "high", "xhigh", "xhigh"]),
        ("gpt-5-pro", [None, None, *["high"] * 6]),
        ("o3", [None, None, "low", "low", "medium", "high", "high", "high"]),
        ("my-deployment", [None, None, "low", "low", "medium", "high", "high", "high"]),
    ],
)
def test_openais_models_hear_only_the_words_of_effort_that_they_take(provider: str, id: str, words: list[Any]) -> None:
    levels: list[Any] = [None, "off", "minimal", "low", "medium", "high", "xhigh", "max"]

    sent = [request(provider=provider, id=id, reasoning=True, options=StreamOptions(reasoning=at)) for at in levels]

    assert [payload.get("reasoning_effort") for payload in sent] == words
    assert not any(
        "reasoning_effort" in request(provider=provider, id=id, options=StreamOptions(reasoning=at)) for at in levels
    )  # type: ignore[arg-type]


def test_words_of_effort_can_be_set_for_a_model() -> None:
    def efforts(*levels: Any, **fields: Any) -> list[Any]:
        asked = [request(reasoning=True, options=StreamOptions(reasoning=level), **fields) for level in levels]
        return [payload.get("reasoning_effort") for payload in asked]

    own = {"levels": {"max": {"reasoning_effort": "ultra"}, "off": {"reasoning_effort": "never"}}}

    assert efforts("high", "max", "off", None, provider="openai", compat=own) == ["high", "ultra", "never", "never"]
    assert efforts("high", "max", "off", None, compat=own) == ["high", "ultra", "never", "never"]
    # A gateway in front of OpenAI's models.
    assert efforts("max", None, id="gpt-5.6-sol", compat={"openai_efforts": True}) == ["max", "none"]
    assert efforts("max", None, id="gpt-5.6-sol", compat={**own, "openai_efforts": True}) == ["ultra", "never"]
    assert efforts("high", None, provider="openai", compat={"openai_efforts": False}) == [None, None]


def test_fields_of_the_model_join_those_of_the_request() -> None:
    body = {"stream_options": {"include_obfuscation": False}, "seed": 7, "tools": [{"type": "web_search"}]}

    payload = request(compat={"body": body})

    assert payload["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert (payload["seed"], payload["tools"]) == (7, [{"type": "web_search"}])
    assert body["stream_options"] == {"include_obfuscation": False}


def test_a_choice_at_the_top_of_a_tools_schema_becomes_one_object() -> None:
    schema = {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}]}
    tool = AgentTool("f", "F", "d", schema, lambda *given: "ok")

    (sent,) = request(tools=[tool])["tools"]

    properties = {"a": {"type": "string"}, "b": {"type": "integer"}}
    assert sent["function"]["parameters"] == {"type": "object", "properties": properties}


def test_a_thinking_budget_goes_where_the_server_takes_one() -> None:
    options = StreamOptions(reasoning="high", thinking_budgets={"high": 4096})  # type: ignore[arg-type]

    assert request(provider="openrouter", reasoning=True, options=options)["reasoning"] == {"max_tokens": 4096}
    alibaba = request(provider="alibaba", reasoning=True, options=options)
    assert (alibaba["enable_thinking"], alibaba["thinking_budget"]) == (True, 4096)
    assert request(provider="openai", reasoning=True, options=options)["reasoning_effort"] == "high"


def test_the_session_names_the_cache_where_the_server_has_one() -> None:
    options = StreamOptions(session_id="s-1")

    assert request(provider="openai", options=options)["prompt_cache_key"] == "s-1"
    assert "prompt_cache_key" not in request(provider="", options=options)
    assert "prompt_cache_key" not in request(
        provider="openai", options=StreamOptions(session_id="s-1", cache_retention="none")
    )
    long = request(provider="openai", options=StreamOptions(session_id="x" * 100, cache_retention="long"))
    assert len(long["prompt_cache_key"]) == 64
    assert long["prompt_cache_retention"] == "24h"


def test_prompts_of_models_that_cache_by_marks_are_marked() -> None:
    messages = [UserMessage("one"), said(TextContent("two"), provider="openrouter"), UserMessage("three")]
    options = StreamOptions(cache_retention="long")

    def marks(**fields: Any) -> list[Any]:
        payload = request(*messages, system="S", provider="openrouter", **fields)
        return [message["content"] for message in payload["messages"]]

    mark = {"type": "ephemeral", "ttl": "1h"}
    assert marks(id="anthropic/claude", options=options) == [
        [{"type": "text", "text": "S", "cache_control": mark}],
        "one",
        "two",
        [{"type": "text", "text": "three", "cache_control": mark}],
    ]
    assert marks(id="anthropic/claude")[0][0]["cache_control"] == {"type": "ephemeral"}
    assert marks(id="openai/gpt", options=options) == ["S", "one", "two", "three"]
    assert marks(id="anthropic/claude", options=StreamOptions(cache_retention="none")) == ["S", "one", "two", "three"]


def test_metadata_goes_to_servers_that_know_it() -> None:
    options = StreamOptions(metadata={"user": "u"})

    assert request(provider="openai", options=options)["metadata"] == {"user": "u"}
    assert "metadata" not in request(provider="groq", options=options)


# --- messages ---


def test_calls_and_results_are_written_in_the_apis_form() -> None:
    messages = [
        UserMessage("hi"),
        said(TextContent("Let me "), TextContent("look."), ToolCall("c1", "f", {"x": "é"})),
        ToolResultMessage("c1", "f", [TextContent("one"), TextContent("two")]),
        said(ToolCall("c2", "f", {})),
        ToolResultMessage("c2", "f", "bad", is_error=True),
    ]

    assert request(*messages)["messages"] == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":"é"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "bad"},
    ]


@pytest.mark.parametrize("arguments", [{}, {"x": 1}])
def test_a_call_whose_arguments_could_not_be_read_goes_back_with_none(arguments: dict[str, Any]) -> None:
    broken = ToolCall("c", "f", arguments, '{"x": 1')

    (sent, _) = request(said(broken), ToolResultMessage("c", "f", "no JSON"))["messages"]

    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


def test_blank_text_of_a_turn_with_calls_is_left_out() -> None:
    messages = [
        said(TextContent(""), ToolCall("c", "f", {})),
        ToolResultMessage("c", "f", "ok"),
        said(TextContent(" ")),
    ]

    sent = request(*messages)["messages"]

    assert [message["role"] for message in sent] == ["assistant", "tool"]
    assert sent[0]["content"] is None


def test_unanswered_calls_get_a_result_and_the_transcript_stays() -> None:
    messages = [
        said(ToolCall("c1", "f", {}), ToolCall("c2", "f", {})),
        ToolResultMessage("c1", "f", "one"),
        UserMessage("next"),
    ]
    before = copy.deepcopy(messages)

    sent = request(*messages)["messages"]

    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user"]
    assert sent[2] == {"role": "tool", "tool_call_id": "c2", "content": "no result was recorded"}
    assert messages == before


def test_images_go_in_prompts_and_after_the_results_of_tools() -> None:
    messages = [
        UserMessage([TextContent("what?"), IMAGE]),
        said(ToolCall("c1", "f", {}), ToolCall("c2", "f", {})),
        ToolResultMessage("c1", "f", [TextContent("here"), IMAGE]),
        ToolResultMessage("c2", "f", [IMAGE]),
        UserMessage("and?"),
    ]

    sent = request(*messages, input=["text", "image"])["messages"]

    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert sent[0]["content"] == [{"type": "text", "text": "what?"}, IMAGE_PART]
    assert sent[2]["content"] == "here"
    assert "image" in sent[3]["content"]
    assert sent[4]["content"][1:] == [IMAGE_PART, IMAGE_PART]


@pytest.mark.parametrize(
    ("provider", "refused"),
    [
        ("openai", {"image/svg+xml", "image/heic"}),
        ("openrouter", {"image/svg+xml", "image/heic"}),
        ("google", {"image/svg+xml", "image/gif"}),
        ("xai", {"image/svg+xml", "image/heic", "image/gif", "image/webp"}),
        ("", set()),
    ],
)
def test_images_of_a_type_that_the_server_refuses_are_not_sent(provider: str, refused: set[str]) -> None:
    types = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/heic", "image/svg+xml")
    message = UserMessage([ImageContent("AAAA", kind) for kind in types])

    (sent,) = request(message, provider=provider, input=("text", "image"))["messages"]

    assert {kind for kind, part in zip(types, sent["content"], strict=True) if part["type"] == "text"} == refused
    compat = {"image_types": ["image/bmp"]}
    (other,) = request(message, provider=provider, input=("text", "image"), compat=compat)["messages"]
    assert {part["type"] for part in other["content"]} == {"text"}


def test_images_at_the_very_end_are_sent_too() -> None:
    messages = [said(ToolCall("c", "f", {})), ToolResultMessage("c", "f", [IMAGE])]

    assert request(*messages, input=["text", "image"])["messages"][-1]["content"][1] == IMAGE_PART
    blind = request(*messages)["messages"]
    assert blind[-1]["role"] == "tool"
    assert "left out" in blind[-1]["content"]


@pytest.mark.parametrize(
    ("provider", "sent"),
    [
        ("deepseek", {"content": "Yes", "reasoning_content": "Hm"}),
        ("", {"content": "Yes", "reasoning_content": "Hm"}),
        ("openrouter", {"content": "Yes", "reasoning": "Hm"}),
        ("openai", {"content": "Yes"}),
        (
            "mistral",
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                    {"type": "text", "text": "Yes"},
                ]
            },
        ),
    ],
)
def test_thinking_goes_back_to_its_model_in_the_field_the_server_knows(provider: str, sent: dict[str, Any]) -> None:
    message = said(ThinkingContent("Hm"), TextContent("Yes"), provider=provider)

    assert request(message, provider=provider)["messages"] == [{"role": "assistant", **sent}]


def test_thinking_of_another_model_goes_as_text() -> None:
    message = said(ThinkingContent("Hm."), TextContent("Yes"), model="other", provider="deepseek")

    assert request(message, provider="deepseek")["messages"][0]["content"] == "Hm.Yes"


def test_a_server_that_insists_on_the_thinking_field_always_gets_it() -> None:
    messages = [said(ToolCall("c", "f", {}), provider="deepseek"), ToolResultMessage("c", "f", "ok")]

    assert request(*messages, provider="deepseek")["messages"][0]["reasoning_content"] == ""
    # This one takes an empty text for a missing one.
    assert request(*messages, provider="moonshot")["messages"][0]["reasoning_content"] == " "
    thought = [said(ThinkingContent("Hm"), ToolCall("c", "f", {}), provider="moonshot"), messages[1]]
    assert request(*thought, provider="moonshot")["messages"][0]["reasoning_content"] == "Hm"
    compat = {"reasoning_filler": "."}
    assert request(*messages, compat=compat)["messages"][0]["reasoning_content"] == "."
    assert "reasoning_content" not in request(*messages)["messages"][0]


def test_a_turn_of_nothing_but_thinking_is_left_out_where_it_cannot_be_sent() -> None:
    message = said(ThinkingContent("Hm"), provider="openai")

    assert request(message, UserMessage("go"), provider="openai")["messages"] == [{"role": "user", "content": "go"}]


def test_the_proof_of_thinking_goes_back_as_it_came() -> None:
    details = [{"type": "reasoning.text", "text": "Hm", "signature": "c2ln", "format": "f", "index": 0}]
    message = said(
        ThinkingContent("Hm", "c2ln"),
        ToolCall("c", "f", {}, None, "proof"),
        ProviderContent("openrouter", "openai-completions", {"reasoning_details": details}),
        provider="openrouter",
    )
    result = ToolResultMessage("c", "f", "ok")

    same = request(message, result, provider="openrouter")["messages"][0]
    other = request(message, result, provider="openrouter", id="other")["messages"][0]

    assert same["reasoning_details"] == details
    assert "reasoning" not in same
    assert same["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "proof"}}
    assert other == {
        "role": "assistant",
        "content": "Hm",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }


def test_mistral_gets_ids_names_and_turns_as_it_insists() -> None:
    messages = [said(ToolCall("call_123", "f", {})), ToolResultMessage("call_123", "f", "ok"), UserMessage("next")]

    sent = request(*messages, provider="mistral")["messages"]

    id = sent[0]["tool_calls"][0]["id"]
    assert len(id) == 9
    assert id.isalnum()
    assert sent[1] == {"role": "tool", "tool_call_id": id, "content": "ok", "name": "f"}
    assert [message["role"] for message in sent] == ["assistant", "tool", "assistant", "user"]


def test_mistral_gets_no_turns_that_it_does_not_insist_on() -> None:
    messages = [UserMessage("one"), UserMessage("two"), said(TextContent("three")), UserMessage("four")]

    sent = request(*messages, provider="mistral", system="S")["messages"]

    assert [message["role"] for message in sent] == ["system", "user", "user", "assistant", "user"]


def test_an_image_of_the_models_own_is_only_mentioned() -> None:
    message = said(TextContent("Here: "), ImageContent("AAAA", "image/png"))

    sent = request(message, input=("text", "image"))["messages"]

    assert sent == [{"role": "assistant", "content": "Here: [an image (image/png)]"}]


def test_halves_of_characters_do_not_stop_a_request() -> None:
    half = "\ud83d"
    tool = AgentTool("f", "F", f"d{half}", {"type": "object", "properties": {}}, lambda *args: "ok")
    with served(Reply([sse(text("a"), finish(), DONE)])) as (server, model):
        message = message_of(
            ask(
                model,
                UserMessage(f"a{half}"),
                system_prompt=f"s{half}",
                tools=[tool],
                options=StreamOptions(session_id=half),
            )
        )

    assert message.stop_reason == "stop"
    assert server.requests[0].json()["messages"] == [
        {"role": "system", "content": "s\ufffd"},
        {"role": "user", "content": "a\ufffd"},
    ]


# --- the address and the headers ---


@pytest.mark.parametrize(
    ("ending", "path"),
    [
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("", "/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/d?api-version=1", "/d/chat/completions?api-version=1"),
    ],
)
def test_the_path_is_put_after_the_base(ending: str, path: str) -> None:
    with served(Reply([sse(text("a"), finish(), DONE)])) as (server, _):
        ask(Model("m", base_url=server.url + ending))

    assert server.requests[0].path == path


def headers_sent(*, options: StreamOptions | None = None, **fields: Any) -> Any:
    with served(Reply([sse(text("a"), finish(), DONE)]), **fields) as (server, model):
        assert message_of(ask(model, options=options)).stop_reason == "stop"
    return server.requests[0].headers


def test_the_key_is_the_one_given_or_that_of_the_providers_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-openai\n")
    monkeypatch.setenv("GROQ_API_KEY", "gsk-groq")

    assert headers_sent(provider="openai")["Authorization"] == "Bearer sk-openai"
    assert headers_sent(provider="groq")["Authorization"] == "Bearer gsk-groq"
    assert (
        headers_sent(provider="openai", options=StreamOptions(api_key="sk-given"))["Authorization"] == "Bearer sk-given"
    )
    blank = StreamOptions(api_key=" \n")
    assert headers_sent(provider="openai", options=blank)["Authorization"] == "Bearer sk-openai"
    spaced = StreamOptions(api_key="\tsk-given\r\n")
    assert headers_sent(provider="openai", options=spaced)["Authorization"] == "Bearer sk-given"
    assert headers_sent(provider="")["Authorization"] is None
    assert headers_sent(provider="mine")["Authorization"] is None


def test_headers_of_the_model_and_the_request_are_added_and_none_removes_one() -> None:
    options = StreamOptions(api_key="sk-given", headers={"X-B": "request", "authorization": None, "User-Agent": None})

    headers = headers_sent(headers={"X-A": "model", "x-b": "model"}, options=options)

    assert (headers["X-A"], headers["X-B"], headers["Authorization"]) == ("model", "request", None)


def test_a_server_that_takes_the_bare_key_gets_it_in_its_own_header() -> None:
    headers = headers_sent(provider="azure", options=StreamOptions(api_key="sk-given"))

    assert (headers["api-key"], headers["Authorization"]) == ("sk-given", None)


def test_the_session_goes_into_the_header_that_finds_its_server() -> None:
    assert headers_sent(provider="xai", options=StreamOptions(session_id="s-1"))["x-grok-conv-id"] == "s-1"
    odd = headers_sent(provider="xai", options=StreamOptions(session_id="séance 日本\n"))["x-grok-conv-id"]
    assert len(odd) == 64
    quiet = StreamOptions(session_id="s-1", cache_retention="none")
    assert headers_sent(provider="xai", options=quiet)["x-grok-conv-id"] is None


@pytest.mark.parametrize("base_url", ["localhost:8000/v1", "http://[", "ftp://x/v1", "http://user:pa#ss@[/v1"])
def test_an_address_that_is_none_is_a_clear_error(base_url: str) -> None:
    message = message_of(ask(Model("m", base_url=base_url)))

    assert message.error is not None
    assert message.error.kind == "invalid_request"
    assert "base_url" in message.error.message
    assert "pa#ss" not in message.error.message
