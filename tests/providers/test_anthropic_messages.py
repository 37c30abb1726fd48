"""Anthropic's Messages API: what is asked, and what comes of the answers."""

import copy
import json
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
    Usage,
    UserMessage,
)
from agentcore.content import ProviderContent
from agentcore.providers.anthropic_messages import _ADAPTER
from agentcore.testing.sse_server import Gate, Reply, Stall, json_reply, sse
from tests.providers.wire_support import (
    ANTHROPIC,
    RAW,
    SAID,
    THOUGHT,
    ask,
    begun,
    block,
    ended,
    message_of,
    served,
)

VENDOR = "https://api.anthropic.com"
build, read = ANTHROPIC.build, ANTHROPIC.read


def claude(id: str = "claude-opus-4-8", *, base_url: str = VENDOR, **more: Any) -> Model:
    return Model(id, api=ANTHROPIC.api, provider="anthropic", base_url=base_url, **{"reasoning": True, **more})


def tool(schema: dict[str, Any] | None = None, name: str = "read") -> AgentTool:
    return AgentTool(name, name, "Reads.", {"type": "object"} if schema is None else schema, lambda *given: "")


def by(model: Model, *blocks: Any, **more: Any) -> AssistantMessage:
    """Return a message of this model."""
    return AssistantMessage(blocks, api=model.api, provider=model.provider, model=model.id, **more)


def headers_of(model: Model, options: StreamOptions, key: str | None = "k") -> dict[str, Any]:
    return dict(_ADAPTER.address(model, options, key)[1])


# --- requests: the frame ---


def test_the_least_request() -> None:
    assert build(options=StreamOptions(cache_retention="none")) == {
        "model": "m",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }


def test_the_answer_is_bounded_by_the_option_else_by_the_model() -> None:
    model = ANTHROPIC.model(max_tokens=64_000)

    assert build(model=model)["max_tokens"] == 64_000
    assert build(model=model, options=StreamOptions(max_tokens=100))["max_tokens"] == 100


def test_the_system_prompt_stands_by_itself_unless_it_is_blank() -> None:
    options = StreamOptions(cache_retention="none")

    assert build(options=options, system_prompt="Be kind.")["system"] == [{"type": "text", "text": "Be kind."}]
    assert "system" not in build(options=options, system_prompt=" \n")


def test_only_a_user_id_of_the_metadata_is_sent() -> None:
    metadata = {"user_id": "u1", "trace": "t"}

    assert build(options=StreamOptions(metadata=metadata))["metadata"] == {"user_id": "u1"}
    assert "metadata" not in build(options=StreamOptions(metadata={"trace": "t"}))


def test_tools_are_sent_with_their_whole_schema() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/B"}]}},
        "$defs": {"B": {"type": "string"}},
        "additionalProperties": False,
    }

    payload = build(tools=[tool(schema), tool({}, "now")], options=StreamOptions(cache_retention="none"))

    assert payload["tools"] == [
        {"name": "read", "description": "Reads.", "input_schema": schema},
        {"name": "now", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}},
    ]


def test_a_request_without_tools_has_no_fields_about_tools() -> None:
    model = ANTHROPIC.model(compat={"body": {"tool_choice": {"type": "auto"}}})

    payload = build(model=model)

    assert "tools" not in payload
    assert "tool_choice" not in payload
    assert "tool_choice" in build(model=model, tools=[tool()])


def test_fields_of_the_model_join_those_of_the_request() -> None:
    body = {"output_config": {"format": {"type": "json_schema"}}, "service_tier": "auto"}
    model = claude(compat={"body": body})

    payload = build(model=model, options=StreamOptions(reasoning="low"))

    assert payload["output_config"] == {"effort": "low", "format": {"type": "json_schema"}}
    assert payload["service_tier"] == "auto"
    assert body == {"output_config": {"format": {"type": "json_schema"}}, "service_tier": "auto"}


@pytest.mark.parametrize(
    ("compat", "named"), [({"thinkin": 1}, "thinkin"), ({"thinking": "sometimes"}, "sometimes")], ids=["key", "value"]
)
def test_a_setting_that_is_not_understood_is_an_error_that_names_it(compat: dict[str, Any], named: str) -> None:
    message = message_of(ask(claude(compat=compat, base_url="http://127.0.0.1:1")))

    assert message.error is not None
    assert message.error.kind == "invalid_request"
    assert named in message.error.message


# --- requests: caching ---


def marks(value: Any) -> list[Any]:
    """Return every cache mark in a payload, in order."""
    if isinstance(value, dict):
        own = [value["cache_control"]] if "cache_control" in value else []
        return own + [mark for item in value.values() for mark in marks(item)]
    return [mark for item in value for mark in marks(item)] if isinstance(value, list) else []


HISTORY = [
    UserMessage("1"),
    AssistantMessage([TextContent("2")]),
    UserMessage("3"),
    AssistantMessage([TextContent("4")]),
]


def test_the_system_prompt_the_tools_and_the_last_two_messages_are_marked_for_caching() -> None:
    payload = build(*HISTORY, UserMessage("5"), system_prompt="S", tools=[tool(name="a"), tool(name="b")])

    short = {"type": "ephemeral"}
    assert marks(payload) == [short] * 4
    assert payload["system"][-1]["cache_control"] == payload["tools"][1]["cache_control"] == short
    marked = [message["content"][0]["text"] for message in payload["messages"] if marks(message)]
    assert marked == ["3", "5"]


def test_long_retention_asks_for_an_hour_and_none_marks_nothing() -> None:
    long = build(options=StreamOptions(cache_retention="long"), system_prompt="S")
    none = build(options=StreamOptions(cache_retention="none"), system_prompt="S", tools=[tool()])

    assert marks(long) == [{"type": "ephemeral", "ttl": "1h"}] * 2
    assert marks(none) == []


def test_a_longer_conversation_begins_as_the_shorter_one_did_but_for_marks() -> None:
    def bare(payload: dict[str, Any]) -> list[Any]:
        text = json.dumps(payload["messages"]).replace(', "cache_control": {"type": "ephemeral"}', "")
        return list(json.loads(text))

    shorter = bare(build(*HISTORY, UserMessage("5")))

    assert (
        bare(build(*HISTORY, UserMessage("5"), AssistantMessage([TextContent("6")]), UserMessage("7")))[:5] == shorter
    )


# --- requests: thinking ---

BUDGET = [
    "claude-3-7-sonnet-20250219",
    "claude-sonnet-4-20250514",
    "claude-4-opus-20250514",
    "claude-opus-4-1",
    "anthropic.claude-opus-4-1-20250805-v1:0",
    "claude-opus-4-5-20251101",
    "claude-sonnet-4-5",
    "claude-haiku-4-5-20251001",
    "glm-5",
]
ADAPTIVE = ["claude-opus-4-6", "anthropic/claude-4.6-sonnet", "claude-opus-4-7", "claude-sonnet-5", "claude-fable-5-1"]


@pytest.mark.parametrize("id", BUDGET)
def test_older_models_are_given_a_budget_of_tokens(id: str) -> None:
    payload = build(model=claude(id, max_tokens=64_000), options=StreamOptions(reasoning="medium", max_tokens=1000))

    assert payload["thinking"] == {"type": "enabled", "budget_tokens": 10_240}
    assert payload["max_tokens"] == 11_240
    assert "output_config" not in payload


@pytest.mark.parametrize("id", ADAPTIVE)
def test_newer_models_are_given_an_effort(id: str) -> None:
    payload = build(model=claude(id, base_url="https://gateway.example"), options=StreamOptions(reasoning="medium"))

    assert payload["thinking"]["type"] == "adaptive"
    assert payload["output_config"] == {"effort": "medium"}
    assert "budget_tokens" not in payload["thinking"]


@pytest.mark.parametrize(
    ("id", "efforts"),
    [
        ("claude-sonnet-4-6", ["low", "low", "medium", "high", "high", "max"]),
        ("claude-opus-5", ["low", "low", "medium", "high", "xhigh", "max"]),
    ],
)
def test_each_level_is_the_nearest_effort_that_the_model_takes(id: str, efforts: list[str]) -> None:
    levels = ["minimal", "low", "medium", "high", "xhigh", "max"]
    asked = [build(model=claude(id), options=StreamOptions(reasoning=level)) for level in levels]

    assert [payload["output_config"]["effort"] for payload in asked] == efforts


def test_thinking_that_a_model_hides_by_itself_is_asked_for() -> None:
    asked = {
        id: build(model=claude(id), options=StreamOptions(reasoning="low"))["thinking"].get("display")
        for id in ("claude-opus-4-6", "claude-opus-4-7")
    }

    assert asked == {"claude-opus-4-6": None, "claude-opus-4-7": "summarized"}


@pytest.mark.parametrize("level", [None, "off"])
@pytest.mark.parametrize(
    ("id", "thinking"),
    [
        ("claude-sonnet-4-5", None),
        ("claude-opus-4-8", None),
        ("claude-opus-5", {"type": "disabled"}),
        ("claude-sonnet-5", {"type": "disabled"}),
        ("claude-sonnet-5-5", {"type": "between_tools"}),
        ("claude-haiku-5-5", {"type": "disabled"}),
        ("claude-fable-5", None),
        ("claude-opus-9", {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
    ],
)
def test_without_a_level_a_model_is_kept_from_thinking_where_it_allows_that(
    level: str | None, id: str, thinking: dict[str, Any] | None
) -> None:
    payload = build(model=claude(id), options=StreamOptions(reasoning=level))

    assert payload.get("thinking") == thinking
    assert "output_config" not in payload


@pytest.mark.parametrize(("reasoning", "compat"), [(False, {}), (True, {"thinking": "none"})])
def test_a_model_that_does_not_reason_hears_nothing_of_it(reasoning: bool, compat: dict[str, Any]) -> None:
    payload = build(
        model=claude("claude-sonnet-5", reasoning=reasoning, compat=compat), options=StreamOptions(reasoning="high")
    )

    assert "thinking" not in payload
    assert "output_config" not in payload


def test_the_style_can_be_set_for_a_model_that_nobody_knows() -> None:
    model = claude("claude-like", compat={"thinking": "adaptive"}, base_url="https://gateway.example")

    assert build(model=model, options=StreamOptions(reasoning="max"))["output_config"] == {"effort": "max"}


@pytest.mark.parametrize(
    ("asked", "limit", "budget", "total"),
    [
        (1000, None, 4096, 5096),  # on top of the answer
        (1000, 4000, 3000, 4000),  # as far as the model has room
        (3900, 4000, 2976, 4000),  # the answer then gets less
        (1500, 2000, None, 1500),  # too little room for any
        (10, None, 4096, 4106),  # however short the answer is to be
    ],
)
def test_a_budget_comes_on_top_of_the_answer_as_far_as_there_is_room(
    asked: int, limit: int | None, budget: int | None, total: int
) -> None:
    model = claude("claude-sonnet-4-5", max_tokens=limit)

    payload = build(model=model, options=StreamOptions(reasoning="low", max_tokens=asked))

    assert payload["max_tokens"] == total
    assert payload.get("thinking", {}).get("budget_tokens") == budget


def test_budgets_can_be_given_for_each_level() -> None:
    sent = [
        build(
            model=claude("claude-haiku-4-5"), options=StreamOptions(reasoning="low", thinking_budgets={"low": budget})
        )
        for budget in (2000, 10)
    ]

    # The API takes no budget below 1024.
    assert [payload["thinking"]["budget_tokens"] for payload in sent] == [2000, 1024]


@pytest.mark.parametrize(
    ("id", "level", "sent"),
    [
        ("claude-sonnet-4-5", None, 0.5),
        ("claude-sonnet-4-5", "low", None),  # thinking takes only the default
        ("claude-opus-4-6", None, 0.5),
        ("claude-opus-4-7", None, None),  # takes none
        ("glm-5", None, 0.5),
    ],
)
def test_a_temperature_is_sent_where_it_is_taken(id: str, level: str | None, sent: float | None) -> None:
    payload = build(model=claude(id), options=StreamOptions(temperature=0.5, reasoning=level))

    assert payload.get("temperature") == sent


# --- requests: headers and address ---


def test_the_key_goes_into_its_own_header() -> None:
    headers = headers_of(claude(), StreamOptions())

    assert headers == {"anthropic-version": "2023-06-01", "x-api-key": "k"}


def test_headers_can_be_added_replaced_and_removed() -> None:
    model = claude(headers={"X-Team": "a"})
    options = StreamOptions(headers={"x-api-key": None, "Authorization": "Bearer t", "Anthropic-Version": "2026-10-21"})

    assert headers_of(model, options) == {
        "X-Team": "a",
        "Authorization": "Bearer t",
        "Anthropic-Version": "2026-10-21",
    }


@pytest.mark.parametrize(
    ("model", "level", "beta"),
    [
        (claude("claude-sonnet-4-5"), "low", "interleaved-thinking-2025-05-14"),
        (claude("claude-sonnet-4-5"), None, None),
        (claude("claude-opus-4-8"), "low", None),
        (claude("claude-opus-5-5"), None, "thinking-binding-controls-2026-08-01"),
        (claude("claude-haiku-5-5"), "low", "thinking-binding-controls-2026-08-01"),
        (claude("claude-haiku-5-5"), None, None),
        (claude("claude-opus-5-5", base_url="https://gateway.example"), "low", None),
        (claude("claude-sonnet-4-5", base_url="http://[bad"), "low", None),
    ],
)
def test_beta_features_are_named_where_they_are_used_and_only_to_the_vendor(
    model: Model, level: str | None, beta: str | None
) -> None:
    options = StreamOptions(reasoning=level)
    if model.base_url != "http://[bad":
        assert headers_of(model, options).get("anthropic-beta") == beta
    binding = build(model=model, options=options).get("thinking", {}).get("block_binding")
    assert (binding is not None) == (beta == "thinking-binding-controls-2026-08-01")


def test_beta_features_of_the_caller_are_named_beside_ours() -> None:
    options = StreamOptions(reasoning="low", headers={"Anthropic-Beta": "a-1, interleaved-thinking-2025-05-14"})

    headers = headers_of(claude("claude-sonnet-4-5"), options)

    assert headers["Anthropic-Beta"] == "a-1,interleaved-thinking-2025-05-14"
    assert "anthropic-beta" not in headers


def test_who_removes_the_beta_header_gets_no_beta_feature() -> None:
    options = StreamOptions(reasoning="low", headers={"anthropic-beta": None})
    model = claude("claude-opus-5-5")

    assert "anthropic-beta" not in headers_of(model, options)
    assert "block_binding" not in build(model=model, options=options)["thinking"]


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/v1/messages"])
def test_the_base_may_be_the_bare_host_or_end_in_the_version(base: str) -> None:
    with served(ANTHROPIC, Reply(sse(*ANTHROPIC.turn))) as (server, _):
        message = message_of(ask(ANTHROPIC.model(server.url + base)))

        assert message.error is None
        assert server.requests[0].path == "/v1/messages"


@pytest.mark.parametrize(
    ("provider", "key"), [("anthropic", "from-environment"), ("", None), ("elsewhere", None)], ids=str
)
def test_the_vendors_key_goes_only_to_whom_it_belongs(
    provider: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-environment")
    with served(ANTHROPIC, Reply(sse(*ANTHROPIC.turn)), provider=provider) as (server, model):
        ask(model)

        assert server.requests[0].headers["x-api-key"] == key


def test_hooks_see_the_payload_and_the_response_and_can_replace_the_first() -> None:
    seen: list[Any] = []

    def on_payload(payload: dict[str, Any], model: Model) -> dict[str, Any]:
        payload["messages"].append("changed in place")
        return {"mine": True}

    options = StreamOptions(
        on_payload=on_payload, on_response=lambda status, headers, model: seen.append((status, headers["x-a"]))
    )
    given = UserMessage("hi")
    with served(ANTHROPIC, Reply(sse(*ANTHROPIC.turn), headers={"X-A": "b"})) as (server, model):
        ask(model, given, options=options)

        assert server.requests[0].json() == {"mine": True}
    assert seen == [(200, "b")]
    assert given.content == "hi"


# --- requests: messages ---

IMAGE = ImageContent("aGk=", "image/png")
IMAGE_PART = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PLAIN = StreamOptions(cache_retention="none")


def sent(*messages: Any, model: Model | None = None) -> list[Any]:
    payload = build(*messages, model=model or claude(input=("text", "image")), options=PLAIN)
    return list(payload["messages"])


def test_images_go_with_prompts_and_with_results() -> None:
    messages = sent(
        UserMessage([TextContent("what?"), IMAGE]),
        AssistantMessage([ToolCall("c1", "read", {})]),
        ToolResultMessage("c1", "read", [TextContent("here"), IMAGE]),
    )

    assert messages[0]["content"][1] == IMAGE_PART
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "here"}, IMAGE_PART]}
    ]


def test_a_model_without_eyes_gets_a_note_for_each_image() -> None:
    (message,) = sent(UserMessage([IMAGE]), model=claude())

    assert message["content"][0]["type"] == "text"
    assert "image/png" in message["content"][0]["text"]


def test_the_results_of_all_calls_come_in_one_message_with_what_the_user_said_after_them() -> None:
    messages = sent(
        UserMessage("go"),
        AssistantMessage([TextContent("ok"), ToolCall("c1", "read", {"a": 1}), ToolCall("c2", "read", {})]),
        ToolResultMessage("c2", "read", [TextContent("two")], is_error=True),
        ToolResultMessage("c1", "read", [TextContent("one")]),
        UserMessage("and?"),
    )

    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == [
        {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "read", "input": {}},
    ]
    one, two, said = messages[2]["content"]
    assert one == {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]}
    assert (two["tool_use_id"], two["is_error"]) == ("c2", True)
    assert said == {"type": "text", "text": "and?"}


def test_a_call_that_was_never_answered_is_answered_as_an_error() -> None:
    messages = sent(UserMessage("go"), AssistantMessage([ToolCall("c1", "read", {})]), UserMessage("and?"))

    assert messages[2]["content"][0]["is_error"] is True
    assert "no result" in messages[2]["content"][0]["content"][0]["text"]


def test_blank_text_is_left_out_and_so_is_a_message_of_nothing_else() -> None:
    model = claude()
    messages = sent(
        UserMessage("go"),
        by(model, TextContent(""), TextContent(" ", "signed"), ToolCall("c1", "read", {})),
        ToolResultMessage("c1", "read", [TextContent("")]),
        by(model, TextContent(" \n")),
        by(model, TextContent("", "signed")),
        UserMessage("on"),
    )

    assert [part["type"] for part in messages[1]["content"]] == ["tool_use"]
    assert messages[2]["content"][0]["content"] == [{"type": "text", "text": "(no output)"}]
    assert len(messages) == 3


def test_a_conversation_that_begins_with_the_model_gets_a_user_before_it() -> None:
    messages = sent(AssistantMessage([TextContent("Hello!")]), UserMessage("hi"))

    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"][0]["text"].strip()


def test_ids_that_the_api_refuses_are_rewritten_in_call_and_result_alike() -> None:
    messages = sent(
        UserMessage("go"),
        AssistantMessage([ToolCall("call|1:é", "read", {}), ToolCall("ok", "read", {})]),
        ToolResultMessage("call|1:é", "read", [TextContent("one")]),
        ToolResultMessage("ok", "read", [TextContent("two")]),
    )

    calls, results = messages[1]["content"], messages[2]["content"]
    assert [call["id"] for call in calls] == [result["tool_use_id"] for result in results]
    assert calls[0]["id"].isascii()
    assert calls[1]["id"] == "ok"


THINKING = (
    ThinkingContent("Hm.", "c2ln"),
    ThinkingContent("", "c2ln"),
    ThinkingContent("", "hidden", redacted=True),
    ThinkingContent("aloud"),
    ThinkingContent("", None, redacted=True),
    ThinkingContent("proof lost", None, redacted=True),
)
SERVER = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}


def test_thinking_and_the_providers_own_blocks_go_back_to_the_same_model_as_they_came() -> None:
    model = claude()
    own = ProviderContent("anthropic", ANTHROPIC.api, SERVER)

    messages = sent(UserMessage("go"), by(model, *THINKING, own, TextContent("Done.")), UserMessage("on"))

    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "hidden"},
        {"type": "text", "text": "aloud"},
        SERVER,
        {"type": "text", "text": "Done."},
    ]


def test_thinking_goes_to_another_model_as_text_and_what_is_hidden_does_not() -> None:
    model = claude("claude-opus-5")
    own = ProviderContent("anthropic", ANTHROPIC.api, SERVER)

    messages = sent(UserMessage("go"), by(model, *THINKING, own, TextContent("Done.")), UserMessage("on"))

    assert [part["text"] for part in messages[1]["content"]] == ["Hm.", "aloud", "Done."]


def test_building_a_request_changes_nothing_that_was_given() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    messages = [UserMessage("go"), by(claude(), *THINKING, ToolCall("c|1", "read", {"a": ["x"]}), TextContent("t"))]
    before = copy.deepcopy([message.to_dict() for message in messages])

    build(*messages, tools=[tool(schema)], model=claude(), system_prompt="S")

    assert [message.to_dict() for message in messages] == before
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}


# --- responses ---


def test_a_turn_that_thinks_speaks_and_calls() -> None:
    message = read(*ANTHROPIC.turn)

    assert message.content == (
        ThinkingContent(THOUGHT, "c2ln"),
        TextContent(SAID),
        ToolCall("c1", "read", json.loads(RAW)),
    )
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("tool_use", "tool_use", "r1")
    assert message.usage == Usage(5, 9)


def test_events_come_as_the_blocks_do() -> None:
    assert [event.type for event in ANTHROPIC.events(sse(*ANTHROPIC.turn))] == [
        "start",
        *("thinking_start", "thinking_delta", "thinking_delta", "thinking_end"),
        *("text_start", "text_delta", "text_delta", "text_end"),
        *("toolcall_start", "toolcall_delta", "toolcall_delta", "toolcall_end"),
        "done",
    ]


@pytest.mark.parametrize(
    ("reason", "stop_reason", "kind"),
    [
        ("end_turn", "stop", None),
        ("stop_sequence", "stop", None),
        ("pause_turn", "stop", None),
        ("tool_use", "tool_use", None),
        ("max_tokens", "length", None),
        ("refusal", "error", "content_filter"),
        ("model_context_window_exceeded", "error", "context_overflow"),
        ("zzz", "error", "protocol"),
        (None, "stop", None),
        ("", "stop", None),
    ],
)
def test_stop_reasons(reason: str | None, stop_reason: str, kind: str | None) -> None:
    said = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "so far"})

    message = read(begun(), *said, *ended(reason))

    assert (message.stop_reason, message.raw_stop_reason) == (stop_reason, reason or None)
    assert message.text == "so far"
    assert (message.error.kind if message.error else None) == kind
    if reason == "zzz":
        assert "zzz" in str(message.error_message)


@pytest.mark.parametrize("odd", ["", None, 5, ["end_turn"], {"reason": "end_turn"}])
def test_a_reason_that_is_none_takes_nothing_from_the_one_before(odd: Any) -> None:
    (change, _), (*_, last) = ended("max_tokens"), ended()
    again = ("message_delta", {"type": "message_delta", "delta": {"stop_reason": odd}})

    message = read(begun(), *block(0, {"type": "text", "text": "so far"}), change, again, last)

    assert (message.stop_reason, message.raw_stop_reason) == ("length", "max_tokens")


def test_a_refusal_keeps_its_explanation() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}

    message = read(begun(), *ended("refusal", stop_details=details))

    assert "It could do harm." in str(message.error_message)


def test_thinking_without_text_or_proof_is_no_block() -> None:
    empty = {"type": "thinking", "thinking": "", "signature": ""}
    unsaid = ({"type": "thinking_delta", "thinking": ""}, {"type": "signature_delta", "signature": ""})

    message = read(begun(), *block(0, empty), *block(1, empty, *unsaid), *ended())

    assert (message.content, message.stop_reason) == ((), "stop")


def test_a_response_may_have_no_block_at_all() -> None:
    message = read(begun(), *ended("stop_sequence", stop_sequence="END"))

    assert (message.content, message.stop_reason) == ((), "stop")


# --- usage ---


@pytest.mark.parametrize(
    "last",
    [
        {"output_tokens": 15},
        {"input_tokens": 25, "cache_read_input_tokens": 10, "output_tokens": 15},
        {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 15},
    ],
)
def test_usage_is_a_running_total_and_not_added_up(last: dict[str, Any]) -> None:
    start = begun(input_tokens=25, cache_read_input_tokens=10, output_tokens=1)

    assert read(start, *ended(usage=last)).usage == Usage(25, 15, 10)


def test_caches_thinking_and_what_they_cost_are_counted_apart() -> None:
    model = ANTHROPIC.model(cost={"input": 1, "output": 10, "cache_read": 0.1, "cache_write": 2})
    usage = {
        "input_tokens": 1_000_000,
        "cache_read_input_tokens": 2_000_000,
        "cache_creation_input_tokens": 3_000_000,
        "output_tokens": 500_000,
        "output_tokens_details": {"thinking_tokens": 400_000},
    }

    message = read(begun(), *ended(usage=usage), model=model)

    assert message.usage == Usage(
        1_000_000,
        500_000,
        2_000_000,
        3_000_000,
        400_000,
        cost={"input": 1.0, "output": 5.0, "cache_read": 0.2, "cache_write": 6.0, "total": 12.2},
    )


@pytest.mark.parametrize("usage", [None, [], {"output_tokens": -1}, {"output_tokens": True}, {"output_tokens": "9"}])
def test_no_usable_usage_is_none_and_not_zero(usage: Any) -> None:
    start = ("message_start", {"type": "message_start", "message": {"id": "r", "usage": None}})
    change = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}

    assert read(start, change, {"type": "message_stop"}).usage is None


# --- noise ---


def test_pings_comments_unknown_events_and_foreign_words_change_nothing() -> None:
    noise = (
        b": keep-alive\n\nid: 1\nretry: 5\nevent: ping\ndata: {}\n\nevent: done\ndata: [DONE]\n\ndata: null\n\n"
        + sse({"type": "ping"}, {"type": "unknown_event", "index": 0}, [1], 7, {"type": 5}, {})
        + sse({"type": "content_block_delta", "index": 0}, {"type": "content_block_start", "index": 9})
        + sse({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}})
        + sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}})
        + sse({"type": "content_block_stop", "index": 77}, {"type": "message_start"}, {"type": "message_delta"})
    )
    pieces = [sse(payload) for payload in ANTHROPIC.turn]
    noisy = b"\xef\xbb\xbf" + noise.join([b"", *pieces])

    assert message_of(ANTHROPIC.events(noisy)).content == read(*ANTHROPIC.turn).content


def test_the_name_of_an_event_does_not_matter() -> None:
    nameless = [payload[1] for payload in ANTHROPIC.turn]

    assert read(*nameless).content == read(*ANTHROPIC.turn).content


# --- the end ---


def test_the_end_is_not_waited_for_once_it_was_announced() -> None:
    gate = Gate()
    with served(ANTHROPIC, Reply([sse(*ANTHROPIC.turn), Stall(gate)])) as (server, model):
        message = message_of(ask(model))

        assert message.stop_reason == "tool_use"
        assert server.connections[0].closed.wait(2)


def test_a_stream_without_its_last_event_was_cut_off() -> None:
    message = read(*ANTHROPIC.turn[:-1])

    assert message.stop_reason == "error"
    assert message.error is not None
    assert (message.error.kind, message.text) == ("protocol", SAID)
    assert "message_stop" in message.error.message


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", "Overloaded"),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, "rate_limit", "slow"),
        ({"error": {"message": "a gateway says no"}}, "protocol", "a gateway says no"),
        ({"type": "error", "error": "text"}, "protocol", "text"),
        ({"type": "error"}, "protocol", "error"),
    ],
)
def test_an_error_inside_the_stream_ends_it(error: dict[str, Any], kind: str, said: str) -> None:
    message = read(*ANTHROPIC.turn[:10], ("error", error), *ANTHROPIC.turn[10:])

    assert message.stop_reason == "error"
    assert message.error is not None
    assert message.error.kind == kind
    assert said in message.error.message
    assert message.thinking == THOUGHT


def test_data_that_is_no_json_ends_the_stream_with_an_error() -> None:
    message = read(*ANTHROPIC.turn[:10], "{not json", *ANTHROPIC.turn[10:])

    assert message.error is not None
    assert message.error.kind == "protocol"
    assert "{not json" in message.error.message
    assert message.thinking == THOUGHT


# --- calls ---


def tool_use(*deltas: str, index: int = 0, id: str = "c1", stop: bool = True, **start: Any) -> list[Any]:
    begin = {"type": "tool_use", "id": id, "name": "read", **start}
    events = block(index, begin, *({"type": "input_json_delta", "partial_json": text} for text in deltas))
    return events if stop else events[:-1]


@pytest.mark.parametrize(
    "call",
    [tool_use("", input={}), tool_use(), tool_use("  ", input={}), tool_use("null"), tool_use("{}", input={})],
    ids=["empty", "none", "blank", "null", "object"],
)
def test_a_call_without_arguments_has_none(call: list[Any]) -> None:
    assert read(begun(), *call, *ended("tool_use")).tool_calls == (ToolCall("c1", "read", {}),)


@pytest.mark.parametrize("stop", [True, False])
def test_a_call_may_bring_its_whole_input_at_its_start(stop: bool) -> None:
    call = tool_use(input={"a": 1}, stop=stop)

    assert read(begun(), *call, *ended("tool_use")).tool_calls == (ToolCall("c1", "read", {"a": 1}),)
    assert read(begun(), *call, *ended(None)).tool_calls == (ToolCall("c1", "read", {"a": 1}),)


@pytest.mark.parametrize(
    ("given", "arguments", "raw"),
    [
        ('{"path": "a"}', {"path": "a"}, None),
        ('{"path": ', {}, '{"path": '),
        (["a"], {}, '["a"]'),
        (7, {}, "7"),
        ("", {}, None),
        (None, {}, None),
        ([], {}, None),
    ],
)
def test_an_input_that_is_no_object_is_not_lost(given: Any, arguments: Any, raw: str | None) -> None:
    start = {"type": "tool_use", "id": "c1", "name": "read", "input": given}

    (call,) = ANTHROPIC.read(begun(), *block(0, start), *ended("tool_use")).tool_calls

    assert (call.arguments, call.partial_json) == (arguments, raw)


def test_an_input_that_streams_counts_and_not_the_one_at_the_start() -> None:
    call = tool_use("", '{"a"', ": 2}", input={"a": 1})

    assert read(begun(), *call, *ended("tool_use")).tool_calls == (ToolCall("c1", "read", {"a": 2}),)


def test_a_call_that_the_limit_cut_off_keeps_its_raw_text() -> None:
    call = tool_use('{"path": "a\n', "b", stop=False)

    message = read(begun(), *call, *ended("max_tokens"))

    assert message.stop_reason == "length"
    assert message.tool_calls == (ToolCall("c1", "read", {}, '{"path": "a\nb'),)


@pytest.mark.parametrize("index", [0, None], ids=["all zero", "none"])
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "not stopped"])
def test_blocks_that_are_not_counted_are_still_told_apart(index: int | None, stop: bool) -> None:
    events = [
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "one"}),
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "two"}),
        *tool_use('{"a": 1}', id="c1"),
        *tool_use('{"a": 2}', id="c2"),
    ]
    given = [payload for name, payload in events if stop or name != "content_block_stop"]
    if index is None:
        given = [{name: value for name, value in payload.items() if name != "index"} for payload in given]

    message = read(begun(), *given, *ended("tool_use"))

    assert message.content == (
        TextContent("one"),
        TextContent("two"),
        ToolCall("c1", "read", {"a": 1}),
        ToolCall("c2", "read", {"a": 2}),
    )


def test_calls_that_share_an_id_or_have_none_get_one_each() -> None:
    message = read(
        begun(), *tool_use("{}"), *tool_use("{}", index=1), *tool_use("{}", index=2, id=""), *ended("end_turn")
    )

    ids = [call.id for call in message.tool_calls]
    assert ids[0] == "c1"
    assert len(set(ids)) == 3
    assert all(ids)


def test_deltas_of_blocks_that_nobody_announced_are_taken() -> None:
    message = read(
        begun(),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "signature_delta", "signature": "s"}},
        *ended(),
    )

    assert message.content == (TextContent("hi"), ThinkingContent("hm", "s"))


# --- what only the provider understands ---


def test_server_tools_and_their_results_are_kept_whole_and_in_order() -> None:
    use = {**SERVER, "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]}
    message = read(
        begun(),
        *block(
            0,
            use,
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {
                "type": "input_json_delta",
                "partial_json": ' "q"}',
            },
        ),
        *block(1, result),
        *block(2, {"type": "text", "text": "", "citations": []}, {"type": "text_delta", "text": "Found."}),
        *ended(),
    )

    assert [part.data for part in message.content if isinstance(part, ProviderContent)] == [SERVER, result]
    assert message.text == "Found."
    assert message.tool_calls == ()


def test_a_server_tool_keeps_the_input_that_came_with_its_start() -> None:
    for text in ("", "{broken"):
        message = read(begun(), *block(0, SERVER, {"type": "input_json_delta", "partial_json": text}), *ended())

        assert message.content[0].data == SERVER  # type: ignore[union-attr]


def test_a_block_of_the_provider_that_is_cut_off_is_left_out() -> None:
    message = read(begun(), *block(0, SERVER)[:-1], *ended("max_tokens"))

    assert (message.content, message.stop_reason) == ((), "length")


def test_hidden_thinking_and_summaries_of_the_past_are_kept() -> None:
    message = read(
        begun(),
        *block(0, {"type": "redacted_thinking", "data": "hidden"}),
        *block(1, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "what was"}),
        *block(2, {"type": "thinking", "thinking": "Hm.", "signature": "s"}),
        *ended(),
    )

    assert message.content == (
        ThinkingContent("", "hidden", redacted=True),
        ProviderContent("", ANTHROPIC.api, {"type": "compaction", "content": "what was"}),
        ThinkingContent("Hm.", "s"),
    )


# --- one JSON document ---


def test_a_server_that_does_not_stream_is_understood() -> None:
    document = {
        "id": "r1",
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Hi."},
            SERVER,
            {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1}},
            {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
            None,
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    with served(ANTHROPIC, json_reply(document)) as (_, model):
        message = message_of(ask(model))

    assert message.content == (
        ThinkingContent("Hm.", "s"),
        TextContent("Hi."),
        ProviderContent("", ANTHROPIC.api, SERVER),
        ToolCall("c1", "read", {"a": 1}),
        ToolCall("c2", "now", {}),
    )
    assert (message.stop_reason, message.usage, message.response_id) == ("tool_use", Usage(3, 4), "r1")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"type": "error", "error": {"type": "api_error", "message": "broken"}}, "broken"),
        ({"error": "no such model"}, "no such model"),
        ([], ""),
        ("text", "text"),
    ],
)
def test_a_document_that_is_no_message_is_an_error(document: Any, said: str) -> None:
    message = ANTHROPIC.whole(document)

    assert isinstance(message.error, ErrorInfo)
    assert said in message.error.message


def test_a_document_without_a_reason_to_stop_is_whole() -> None:
    message = ANTHROPIC.whole({"content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]})

    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", None)
