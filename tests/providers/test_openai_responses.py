"""OpenAI's Responses API: what is asked, and what comes of the answers."""

import copy
import hashlib
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
from agentcore.providers.openai_responses import _ADAPTER
from agentcore.testing.sse_server import Gate, Reply, Stall, json_reply, sse
from tests.providers.wire_support import (
    ARGUMENTS,
    RAW,
    RESPONSES,
    SAID,
    THOUGHT,
    ask,
    completed,
    item,
    message_of,
    served,
)

VENDOR = "https://api.openai.com/v1"
build, read = RESPONSES.build, RESPONSES.read


def gpt(id: str = "gpt-5.5", *, base_url: str = VENDOR, **more: Any) -> Model:
    return Model(id, api=RESPONSES.api, provider="openai", base_url=base_url, **{"reasoning": True, **more})


def tool(schema: dict[str, Any] | None = None, name: str = "read") -> AgentTool:
    return AgentTool(name, name, "Reads.", {"type": "object"} if schema is None else schema, lambda *given: "")


def by(model: Model, *blocks: Any, **more: Any) -> AssistantMessage:
    """Return a message of this model."""
    return AssistantMessage(blocks, api=model.api, provider=model.provider, model=model.id, **more)


def sent(*messages: Any, model: Model | None = None) -> list[Any]:
    return list(build(*messages, model=model or gpt(input=("text", "image")))["input"])


# --- requests: the frame ---


def test_the_least_request() -> None:
    assert build() == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "stream": True,
        "store": False,
    }


def test_the_system_prompt_stands_by_itself_unless_it_is_blank() -> None:
    assert build(system_prompt="Be kind.")["instructions"] == "Be kind."
    assert "instructions" not in build(system_prompt=" \n")


def test_options_of_the_request() -> None:
    options = StreamOptions(max_tokens=100, temperature=0.5, metadata={"a": "b"})

    payload = build(options=options)

    assert (payload["max_output_tokens"], payload["temperature"], payload["metadata"]) == (100, 0.5, {"a": "b"})


@pytest.mark.parametrize(
    ("session", "retention", "key", "kept"),
    [
        ("s1", None, "s1", None),
        ("s1", "short", "s1", None),
        ("s1", "long", "s1", "24h"),
        (None, "long", None, "24h"),
        ("s1", "none", None, None),
        ("x" * 65, "short", hashlib.sha256(b"x" * 65).hexdigest(), None),
        ("x" * 64, "short", "x" * 64, None),
        ("é", "short", hashlib.sha256("é".encode()).hexdigest(), None),
        ("\ud800", "short", hashlib.sha256(b"\xed\xa0\x80").hexdigest(), None),
    ],
)
def test_the_session_names_the_cache(session: str | None, retention: str | None, key: str | None, kept: Any) -> None:
    payload = build(options=StreamOptions(session_id=session, cache_retention=retention))

    assert payload.get("prompt_cache_key") == key
    assert payload.get("prompt_cache_retention") == kept


def test_tools_are_sent_with_their_whole_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/B"}]}},
        "$defs": {"B": {"type": "string"}},
    }

    payload = build(tools=[tool(schema), tool({}, "now")])

    frame = {"type": "function", "description": "Reads.", "strict": False}
    assert payload["tools"] == [
        {**frame, "name": "read", "parameters": schema},
        {**frame, "name": "now", "parameters": {"type": "object", "properties": {}}},
    ]


def test_a_request_without_tools_has_no_fields_about_tools() -> None:
    model = RESPONSES.model(compat={"body": {"tool_choice": "auto", "parallel_tool_calls": True}})

    payload = build(model=model)

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(payload)
    assert "tool_choice" in build(model=model, tools=[tool()])


def test_fields_of_the_model_join_those_of_the_request() -> None:
    model = gpt(compat={"body": {"reasoning": {"mode": "pro"}, "store": True}})

    payload = build(model=model, options=StreamOptions(reasoning="low"))

    assert payload["reasoning"] == {"effort": "low", "summary": "auto", "mode": "pro"}
    assert payload["store"] is True


def test_a_setting_that_is_not_understood_is_an_error_that_names_it() -> None:
    message = message_of(ask(gpt(compat={"efort": {}}, base_url="http://127.0.0.1:1")))

    assert message.error is not None
    assert (message.error.kind, "efort" in message.error.message) == ("invalid_request", True)


# --- requests: reasoning ---

LEVELS = ["minimal", "low", "medium", "high", "xhigh", "max"]


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("o3-mini", "low low medium high high high"),
        ("gpt-5", "minimal low medium high high high"),
        ("gpt-5-mini-2025-08-07", "minimal low medium high high high"),
        ("gpt-5-pro", "high high high high high high"),
        ("gpt-5-codex", "low low medium high high high"),
        ("gpt-5.1", "low low medium high high high"),
        ("gpt-5.1-codex-max", "low low medium high xhigh xhigh"),
        ("gpt-5.1-codex", "low low medium high high high"),
        ("gpt-5.2", "low low medium high xhigh xhigh"),
        ("gpt-5.5-pro", "medium medium medium high xhigh xhigh"),
        ("gpt-5.3-codex", "low low medium high xhigh xhigh"),
        ("gpt-5.6-sol", "low low medium high xhigh max"),
        ("gpt-6.1-sol", "low low medium high xhigh max"),
        ("grok-4", "low low medium high high high"),
    ],
)
def test_each_level_is_the_nearest_effort_that_the_model_takes(id: str, words: str) -> None:
    asked = [build(model=gpt(id), options=StreamOptions(reasoning=level))["reasoning"] for level in LEVELS]

    assert [reasoning["effort"] for reasoning in asked] == words.split()
    assert {reasoning["summary"] for reasoning in asked} == {"auto"}


@pytest.mark.parametrize("level", [None, "off"])
@pytest.mark.parametrize(
    ("id", "reasoning"),
    [("gpt-5", None), ("gpt-5.1", {"effort": "none"}), ("gpt-6-luna", {"effort": "none"}), ("gpt-6.1-sol", None)],
)
def test_without_a_level_a_model_is_kept_from_reasoning_where_it_allows_that(
    level: str | None, id: str, reasoning: Any
) -> None:
    payload = build(model=gpt(id), options=StreamOptions(reasoning=level))

    assert payload.get("reasoning") == reasoning
    assert payload["include"] == ["reasoning.encrypted_content"]


def test_a_model_that_does_not_reason_hears_nothing_of_it() -> None:
    payload = build(model=gpt(reasoning=False), options=StreamOptions(reasoning="high"))

    assert "reasoning" not in payload
    assert "include" not in payload


def test_the_words_and_the_encrypted_form_can_be_set_for_a_model() -> None:
    model = gpt(
        "own", compat={"efforts": {"high": "extreme", "off": "never", "low": None}, "encrypted_reasoning": False}
    )

    payloads = [build(model=model, options=StreamOptions(reasoning=level)) for level in ("high", "off", "low")]

    assert [payload.get("reasoning") for payload in payloads] == [
        {"effort": "extreme", "summary": "auto"},
        {"effort": "never"},
        None,
    ]
    assert not any("include" in payload for payload in payloads)


# --- requests: headers and address ---


def test_key_and_headers() -> None:
    options = StreamOptions(api_key="k", headers={"X-A": "b", "User-Agent": None})
    with served(RESPONSES, Reply(sse(*RESPONSES.turn))) as (server, model):
        ask(model, options=options)

        (request,) = server.requests
        assert request.path == "/v1/responses"
        assert request.headers["authorization"] == "Bearer k"
        assert request.headers["x-a"] == "b"


def test_a_header_can_be_removed() -> None:
    _, headers = _ADAPTER.address(gpt(), StreamOptions(headers={"authorization": None, "api-key": "a"}), "k")

    assert headers == {"api-key": "a"}


@pytest.mark.parametrize(("provider", "sends"), [("openai", True), ("", False), ("elsewhere", False)])
def test_the_vendors_key_goes_only_to_whom_it_belongs(
    provider: str, sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    with served(RESPONSES, Reply(sse(*RESPONSES.turn)), provider=provider) as (server, model):
        ask(model)

        assert server.requests[0].headers["authorization"] == ("Bearer from-environment" if sends else None)


def test_hooks_see_the_payload_and_the_response_and_can_replace_the_first() -> None:
    seen: list[Any] = []
    options = StreamOptions(
        on_payload=lambda payload, model: {"mine": payload["store"]},
        on_response=lambda status, headers, model: seen.append((status, headers["x-a"])),
    )
    with served(RESPONSES, Reply(sse(*RESPONSES.turn), headers={"X-A": "b"})) as (server, model):
        ask(model, options=options)

        assert server.requests[0].json() == {"mine": False}
    assert seen == [(200, "b")]


# --- requests: messages ---

IMAGE = ImageContent("aGk=", "image/png")
IMAGE_PART = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}


def test_calls_and_results_are_items_of_their_own() -> None:
    items = sent(
        UserMessage("go"),
        AssistantMessage([TextContent("ok"), ToolCall("c1", "read", {"a": "é"}), ToolCall("c2", "now", {})]),
        ToolResultMessage("c2", "now", [TextContent("two"), TextContent("more")]),
        UserMessage("and?"),
    )

    assert items[1:] == [
        {"type": "message", "role": "assistant", "content": "ok"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"a":"é"}'},
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "no result was recorded"},
        {"type": "function_call_output", "call_id": "c2", "output": "two\nmore"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ]


def test_images_go_with_prompts_and_with_results() -> None:
    items = sent(
        UserMessage([TextContent("what?"), IMAGE]),
        AssistantMessage([ToolCall("c1", "read", {})]),
        ToolResultMessage("c1", "read", [TextContent("here"), IMAGE]),
    )

    assert items[0]["content"] == [{"type": "input_text", "text": "what?"}, IMAGE_PART]
    assert items[2]["output"] == [{"type": "input_text", "text": "here"}, IMAGE_PART]


def test_a_model_without_eyes_gets_a_note_for_each_image() -> None:
    (said,) = sent(UserMessage([IMAGE]), model=gpt())

    assert "image/png" in said["content"][0]["text"]


def test_an_image_of_the_models_own_is_only_mentioned() -> None:
    model = gpt(input=("text", "image"))

    assert "image/png" in sent(UserMessage("draw"), by(model, IMAGE), model=model)[1]["content"]


def test_blank_text_is_left_out_and_so_is_a_message_of_nothing_else() -> None:
    model = gpt()
    items = sent(
        UserMessage("go"),
        by(model, TextContent(""), TextContent(" ", '{"phase":"commentary"}'), ToolCall("c1", "read", {})),
        ToolResultMessage("c1", "read", [TextContent("")]),
        by(model, TextContent(" ")),
        model=model,
    )

    assert [one["type"] for one in items] == ["message", "function_call", "function_call_output"]
    assert items[2]["output"] == "(no output)"


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}


def thought(**fields: Any) -> ThinkingContent:
    return ThinkingContent("Hm.", json.dumps({**REASONING, **fields}))


def test_reasoning_and_the_providers_own_items_go_back_to_the_same_model_as_they_came() -> None:
    model = gpt()
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    items = sent(
        UserMessage("go"),
        by(
            model,
            thought(),
            ProviderContent("openai", RESPONSES.api, search),
            TextContent("Looking.", '{"phase":"commentary"}'),
            ToolCall("c1", "read", {}),
        ),
        ToolResultMessage("c1", "read", [TextContent("1")]),
        model=model,
    )

    assert items[1:3] == [REASONING, search]
    assert items[3] == {"type": "message", "role": "assistant", "content": "Looking.", "phase": "commentary"}


@pytest.mark.parametrize(
    ("block", "goes"),
    [
        (thought(), True),
        (thought(encrypted_content=None, content=[{"type": "reasoning_text", "text": "Hm."}]), True),
        (thought(encrypted_content=None), False),  # a mere reference to what nobody has stored
        (ThinkingContent("Hm.", "bare"), False),
        (ThinkingContent("Hm.", "[1]"), False),
        (ThinkingContent("Hm.", '{"encrypted_content":"c"}'), False),
        (ThinkingContent("Hm.", '{"type":"message","content":"c"}'), False),
        (ThinkingContent("Hm.", "[" * 100_000), False),
        (ThinkingContent("Hm."), False),
    ],
    ids=[
        "encrypted",
        "readable",
        "reference",
        "no JSON",
        "no object",
        "no type",
        "another type",
        "too deep",
        "unsigned",
    ],
)
def test_reasoning_that_nobody_could_read_stays_behind(block: ThinkingContent, goes: bool) -> None:
    items = sent(UserMessage("go"), by(gpt(), block, TextContent("Done.")), model=gpt())

    assert [one["type"] for one in items] == ["message", *(["reasoning"] if goes else []), "message"]


def test_reasoning_that_nothing_follows_stays_behind() -> None:
    items = sent(UserMessage("go"), by(gpt(), thought(), stop_reason="length"), UserMessage("on"), model=gpt())

    assert [one["type"] for one in items] == ["message", "message"]


def test_another_models_thinking_goes_as_text_and_nothing_of_it_is_signed() -> None:
    other = by(gpt("gpt-4"), thought(), TextContent("Looking.", '{"phase":"commentary"}'))

    assert sent(UserMessage("go"), other)[1:] == [
        {"type": "message", "role": "assistant", "content": "Hm."},
        {"type": "message", "role": "assistant", "content": "Looking."},
    ]


def test_ids_of_calls_that_are_too_long_are_rewritten_in_call_and_result_alike() -> None:
    id = "call_" + "x" * 80
    items = sent(
        UserMessage("go"),
        AssistantMessage([ToolCall(id, "read", {})]),
        ToolResultMessage(id, "read", [TextContent("1")]),
    )

    assert items[1]["call_id"] == items[2]["call_id"]
    assert len(items[1]["call_id"]) <= 64


def test_building_a_request_changes_nothing_that_was_given() -> None:
    messages = [UserMessage("go"), by(gpt(), thought(), TextContent("t"), ToolCall("c|1", "read", {"a": ["x"]}))]
    before = copy.deepcopy([message.to_dict() for message in messages])
    schema: dict[str, Any] = {"properties": {}}

    build(*messages, model=gpt(), tools=[tool(schema)])

    assert [message.to_dict() for message in messages] == before
    assert schema == {"properties": {}}


# --- responses ---


def test_a_turn_that_thinks_speaks_and_calls() -> None:
    message = read(*RESPONSES.turn)

    thinking, text, call = message.content
    assert isinstance(thinking, ThinkingContent)
    assert thinking.thinking == THOUGHT
    assert json.loads(str(thinking.signature)) == REASONING
    assert (text, call) == (TextContent(SAID), ToolCall("c1", "read", json.loads(RAW)))
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("tool_use", "completed", "r1")
    assert message.usage == Usage(5, 9)


def test_events_come_as_the_items_do() -> None:
    assert [event.type for event in RESPONSES.events(sse(*RESPONSES.turn))] == [
        "start",
        *("thinking_start", "thinking_delta", "thinking_delta", "thinking_end"),
        *("text_start", "text_delta", "text_delta", "text_end"),
        *("toolcall_start", "toolcall_delta", "toolcall_delta", "toolcall_end"),
        "done",
    ]


def text(said: str, index: int | None = 0, part: int | None = 0, **more: Any) -> Any:
    return item("output_text.delta", index, content_index=part, delta=said, **more)


def message_item(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": said} for said in texts]
    return {"type": "message", "role": "assistant", "content": content, **more}


@pytest.mark.parametrize(
    ("end", "stop_reason", "raw", "kind"),
    [
        (completed(), "stop", "completed", None),
        (completed("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length", None, None),
        (completed("incomplete", incomplete_details={"reason": "content_filter"}), "error", None, "content_filter"),
        (completed("incomplete"), "error", "incomplete", "protocol"),
        (completed("failed", error={"code": "server_error", "message": "broke"}), "error", "failed", "overloaded"),
        (completed("failed", error={"code": "rate_limit_exceeded", "message": "m"}), "error", "failed", "rate_limit"),
        (completed("failed", error=None), "error", "failed", "protocol"),
        (completed("incomplete", error={"code": "server_error", "message": "m"}), "error", "incomplete", "overloaded"),
        (completed("completed", error={"code": "server_error", "message": "m"}), "stop", "completed", None),
        (("x", {"type": "response.completed"}), "stop", "completed", None),
        (
            ("x", {"type": "response.completed", "response": {"status": "cancelled"}}),
            "error",
            "cancelled",
            "protocol",
        ),
    ],
)
def test_how_a_response_ends(end: Any, stop_reason: str, raw: str | None, kind: str | None) -> None:
    message = read(text("so far"), end)

    details = end[1].get("response", {}).get("incomplete_details")
    assert message.stop_reason == stop_reason
    assert message.raw_stop_reason == (raw or f"incomplete:{details['reason']}")
    assert message.text == "so far"
    assert (message.error.kind if message.error else None) == kind


def test_a_failure_without_an_error_is_told_as_one() -> None:
    message = read(completed("failed", error=None))

    assert message.error is not None
    assert "the response failed" in message.error.message


def test_the_error_of_a_failed_response_is_told() -> None:
    message = read(completed("failed", error={"code": "server_error", "message": "it broke"}))

    assert message.error is not None
    assert ("it broke" in message.error.message, message.error.code) == (True, "server_error")


def test_a_stream_without_its_last_event_was_cut_off() -> None:
    message = read(*RESPONSES.turn[:-1])

    assert message.error is not None
    assert (message.error.kind, message.text) == ("protocol", SAID)


def test_the_end_is_not_waited_for_once_it_was_announced() -> None:
    gate = Gate()
    with served(RESPONSES, Reply([sse(*RESPONSES.turn), Stall(gate)])) as (server, model):
        assert message_of(ask(model)).stop_reason == "tool_use"
        assert server.connections[0].closed.wait(2)


# --- usage ---


def test_caches_and_reasoning_are_counted_apart() -> None:
    model = RESPONSES.model(cost={"input": 1, "output": 10, "cache_read": 0.1, "cache_write": 2})
    usage = {
        "input_tokens": 1_000_000,
        "input_tokens_details": {"cached_tokens": 800_000, "cache_write_tokens": 100_000},
        "output_tokens": 500_000,
        "output_tokens_details": {"reasoning_tokens": 400_000},
        "total_tokens": 1_500_000,
    }

    message = read(completed(usage=usage), model=model)

    cost = {"input": 0.1, "output": 5.0, "cache_read": 0.08, "cache_write": 0.2, "total": 5.38}
    assert message.usage == Usage(100_000, 500_000, 800_000, 100_000, 400_000, cost=cost)
    assert message.usage.total_tokens == 1_500_000


def test_more_from_the_cache_than_was_sent_leaves_nothing_and_not_less() -> None:
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 12}, "output_tokens": 1}

    counted = read(completed(usage=usage)).usage

    assert counted is not None
    assert (counted.input, counted.cache_read) == (0, 12)


@pytest.mark.parametrize("usage", [None, [], {}, {"output_tokens": -1}, {"input_tokens_details": 5}])
def test_no_usable_usage_is_none_and_not_zero(usage: Any) -> None:
    assert read(completed(usage=usage)).usage is None


# --- noise ---


def test_comments_foreign_words_and_unknown_events_change_nothing() -> None:
    noise = (
        b": OPENROUTER PROCESSING\n\nid: 1\nretry: 5\n\nevent: done\ndata: [DONE]\n\ndata: null\n\n"
        + sse({"type": "keepalive"}, [1], 7, {}, {"type": 5}, {"type": "response.queued"})
        + sse(item("output_item.added", 9), item("output_item.done", 9), item("content_part.added", 0))
        + sse(item("output_text.delta", 0, delta=None), item("output_text.delta", 0, delta=""))
        + sse(item("output_text.annotation.added", 0), item("audio.delta", 0, delta="AAAA"))
    )
    pieces = [sse(payload) for payload in RESPONSES.turn]
    noisy = b"\xef\xbb\xbf" + noise.join([b"", *pieces])

    assert message_of(RESPONSES.events(noisy)).content == read(*RESPONSES.turn).content


def test_the_name_of_an_event_does_not_matter() -> None:
    nameless = [payload[1] for payload in RESPONSES.turn]

    assert read(*nameless).content == read(*RESPONSES.turn).content


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            {"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "broke"}},
            "overloaded",
            "broke",
        ),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None}, "rate_limit", "slow"),
        ({"type": "error", "error": "only text"}, "protocol", "only text"),
        ({"error": {"message": "a gateway says no"}}, "protocol", "a gateway says no"),
        ({"type": "error"}, "protocol", ""),
    ],
)
def test_an_error_inside_the_stream_ends_it(error: dict[str, Any], kind: str, said: str) -> None:
    message = read(*RESPONSES.turn[:5], ("error", error), completed("failed"), *RESPONSES.turn[5:])

    assert message.stop_reason == "error"
    assert message.error is not None
    assert message.error.kind == kind
    assert said in message.error.message
    assert message.thinking == THOUGHT


def test_data_that_is_no_json_ends_the_stream_with_an_error() -> None:
    message = read(*RESPONSES.turn[:5], "{not json", *RESPONSES.turn[5:])

    assert message.error is not None
    assert message.error.kind == "protocol"
    assert message.thinking == THOUGHT


# --- which item an event is about ---


def renamed(payloads: tuple[Any, ...], change: Any) -> list[Any]:
    changed = []
    for number, (name, event) in enumerate(copy.deepcopy(payloads)):
        change(number, event)
        changed.append((name, event))
    return changed


def test_ids_that_change_with_every_event_are_not_looked_at() -> None:
    def change(number: int, event: dict[str, Any]) -> None:
        if "item_id" in event:
            event["item_id"] = f"random_{number}"
        if "item" in event:
            event["item"]["id"] = f"random_{number}"
        if "response" in event:
            event["response"]["id"] = f"random_{number}"

    message = read(*renamed(RESPONSES.turn, change))

    assert (message.text, message.thinking, message.response_id) == (SAID, THOUGHT, "random_0")
    assert message.tool_calls == (ToolCall("c1", "read", json.loads(RAW)),)


def test_where_indexes_are_left_out_the_ids_tell_items_apart() -> None:
    message = read(*renamed(RESPONSES.turn, lambda number, event: event.pop("output_index", None)))

    assert message.content == read(*RESPONSES.turn).content


@pytest.mark.parametrize("indexes", [True, False])
def test_items_may_come_to_their_end_only_with_the_response(indexes: bool) -> None:
    output = [event["item"] for name, event in RESPONSES.turn if name == "response.output_item.done"]
    given = [payload for payload in RESPONSES.turn[:-1] if payload[0] != "response.output_item.done"]
    if not indexes:
        given = renamed(tuple(given), lambda number, event: event.pop("output_index", None))

    message = read(*given, completed(output=output))

    assert message.content == read(*RESPONSES.turn).content


def test_a_response_may_bring_all_of_its_output_at_its_end() -> None:
    output = [event["item"] for name, event in RESPONSES.turn if name == "response.output_item.done"]

    message = read(RESPONSES.turn[0], completed(output=[None, *output]))

    assert (message.text, message.tool_calls) == (SAID, (ToolCall("c1", "read", json.loads(RAW)),))


def test_a_response_that_says_again_what_came_adds_nothing() -> None:
    output = [event["item"] for name, event in RESPONSES.turn if name == "response.output_item.done"]

    assert read(*RESPONSES.turn[:-1], completed(output=output)).content == read(*RESPONSES.turn).content


# --- messages ---


def test_the_parts_of_a_message_are_blocks_that_keep_what_has_to_go_back_with_them() -> None:
    message = read(
        text("one", 0, 0),
        text("two", 0, 1),
        item("output_item.done", 0, item=message_item("one", "two", phase="commentary")),
        item("output_item.done", 1, item=message_item("three", "", phase=None)),
        completed(),
    )

    mark = '{"phase":"commentary"}'
    assert message.content == (TextContent("one", mark), TextContent("two", mark), TextContent("three"))


def test_a_part_of_which_no_delta_came_is_taken_from_the_item() -> None:
    refused = {"type": "refusal", "refusal": "I won't."}
    done = {**message_item("one"), "content": [{"type": "output_text", "text": "one"}, None, refused]}

    message = read(text("one"), item("output_item.done", 0, item=done), completed())

    assert message.content == (TextContent("one"), TextContent("I won't."))


def test_parts_that_are_not_counted_are_one() -> None:
    message = read(
        text("o", 0, None), text("ne", 0, None), item("output_item.done", 0, item=message_item("one")), completed()
    )

    assert message.content == (TextContent("one"),)


@pytest.mark.parametrize("content", [None, "text", 5, {}, [None, "text", 5]])
def test_a_message_whose_content_is_odd_at_its_end_keeps_what_came(content: Any) -> None:
    done = {"type": "message", "role": "assistant", "content": content}

    message = read(text("so far"), item("output_item.done", 0, item=done), completed())

    assert (message.text, message.error) == ("so far", None)


def test_a_refusal_is_text() -> None:
    message = read(item("refusal.delta", 0, content_index=0, delta="No"), completed())

    assert (message.text, message.stop_reason) == ("No", "stop")


@pytest.mark.parametrize("number", [None, [], {}, "0"])
def test_a_strange_number_of_a_part_does_no_harm(number: Any) -> None:
    assert read(item("output_text.delta", 0, content_index=number, delta="a"), completed()).text == "a"


# --- reasoning ---


def test_the_parts_of_reasoning_are_parted_by_a_blank_line() -> None:
    message = read(
        item("reasoning_summary_text.delta", 0, summary_index=0, delta="a"),
        item("reasoning_summary_text.delta", 0, summary_index=1, delta="b"),
        item("reasoning_text.delta", 0, content_index=0, delta="c"),
        item("output_item.done", 0, item=REASONING),
        completed(),
    )

    assert message.thinking == "a\n\nb\n\nc"


def test_reasoning_without_deltas_is_taken_from_its_item() -> None:
    done = {
        **REASONING,
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text"}, None],
        "content": [{"type": "reasoning_text", "text": "b"}],
        "status": None,
    }

    message = read(item("output_item.done", 0, item=done), completed())

    (block,) = message.content
    assert isinstance(block, ThinkingContent)
    assert block.thinking == "a\n\nb"
    assert json.loads(str(block.signature)) == {name: value for name, value in done.items() if name != "status"}


def test_reasoning_that_only_is_encrypted_is_kept() -> None:
    message = read(item("output_item.done", 0, item=REASONING), completed())

    assert message.content == (ThinkingContent("", json.dumps(REASONING, separators=(",", ":"))),)


# --- calls ---

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read"}


@pytest.mark.parametrize("arguments", [None, "", "{}", "null", "  "])
def test_a_call_without_arguments_has_none(arguments: str | None) -> None:
    message = read(item("output_item.done", 0, item={**CALL, "arguments": arguments}), completed())

    assert message.tool_calls == (ToolCall("c1", "read", {}),)


@pytest.mark.parametrize("deltas", [["{}"], ['{"a": 1}'], []])
@pytest.mark.parametrize("done", [True, False])
def test_arguments_that_are_told_more_than_once_count_once(deltas: list[str], done: bool) -> None:
    told = "".join(deltas) or '{"a": 1}'
    events = [
        item("output_item.added", 0, item={**CALL, "arguments": told}),
        *(item("function_call_arguments.delta", 0, delta=delta) for delta in deltas),
        item("function_call_arguments.done", 0, arguments=told),
    ]
    if done:
        events.append(item("output_item.done", 0, item={**CALL, "arguments": told}))

    message = read(*events, completed())

    assert message.tool_calls == (ToolCall("c1", "read", json.loads(told)),)


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read"}


@pytest.mark.parametrize("end", ["with an end of its own", "without one"])
@pytest.mark.parametrize(
    ("deltas", "whole", "arguments", "raw"),
    [
        ([], RAW, ARGUMENTS, None),
        ([], ARGUMENTS, ARGUMENTS, None),
        ([], [1], {}, "[1]"),
        ([], None, {}, None),
        ([RAW[:9]], RAW, ARGUMENTS, None),  # a server that does not send the last ones
        ([RAW[:9], RAW[9:]], RAW, ARGUMENTS, None),
        ([RAW], "", ARGUMENTS, None),
        ([RAW], '{"another": "spelling"}', ARGUMENTS, None),
        ([RAW[:9]], '{"another": 1}', {}, RAW[:9]),
    ],
)
def test_the_arguments_as_a_whole_give_what_no_delta_gave(
    deltas: list[str], whole: Any, arguments: Any, raw: str | None, end: str
) -> None:
    events = [item("output_item.added", 0, item={**CALL, "arguments": ""})]
    events += [item("function_call_arguments.delta", 0, item_id="fc_1", delta=delta) for delta in deltas]
    if end == "without one":
        events.append(item("function_call_arguments.done", 0, item_id="fc_1", arguments=whole))
    else:
        events.append(item("output_item.done", 0, item={**CALL, "arguments": whole}))

    (call,) = RESPONSES.read(*events, completed()).tool_calls

    assert (call.id, call.name, call.arguments, call.partial_json) == ("c1", "read", arguments, raw)


@pytest.mark.parametrize("deltas", [True, False])
@pytest.mark.parametrize("ends", [True, False])
def test_items_that_are_all_counted_as_the_same_one_are_told_apart(deltas: bool, ends: bool) -> None:
    def spoken(text: str) -> list[Any]:
        message = {"type": "message", "role": "assistant"}
        delta = item("output_text.delta", 0, content_index=0, delta=text)
        done = item("output_item.done", 0, item={**message, "content": [{"type": "output_text", "text": text}]})
        return [item("output_item.added", 0, item={**message, "content": []}), *([delta] if deltas else []), done]

    def called(id: str, arguments: str) -> list[Any]:
        call = {"type": "function_call", "call_id": id, "name": "read"}
        delta = item("function_call_arguments.delta", 0, delta=arguments)
        whole = item("function_call_arguments.done", 0, arguments=arguments)
        done = item("output_item.done", 0, item={**call, "arguments": arguments})
        begun = item("output_item.added", 0, item={**call, "arguments": ""})
        return [begun, begun, *([delta] if deltas else []), whole, *([done] if ends else [])]

    message = RESPONSES.read(
        *spoken("one"), *called("c1", '{"n":1}'), *called("c2", '{"n":2}'), *spoken("two"), completed()
    )

    assert [block.text for block in message.content if isinstance(block, TextContent)] == ["one", "two"]
    assert [(call.id, call.arguments) for call in message.tool_calls] == [("c1", {"n": 1}), ("c2", {"n": 2})]


def test_arguments_told_before_the_end_of_their_item_count_where_that_has_none() -> None:
    message = RESPONSES.read(
        item("output_item.added", 0, item={**CALL, "arguments": ""}),
        item("function_call_arguments.done", 0, item_id="fc_1", arguments=RAW),
        item("output_item.done", 0, item=CALL),
        completed(),
    )

    assert [call.arguments for call in message.tool_calls] == [ARGUMENTS]


def test_parallel_calls_may_grow_in_turns_and_share_an_id() -> None:
    message = read(
        item("output_item.added", 0, item=CALL),
        item("output_item.added", 1, item=CALL),
        item("function_call_arguments.delta", 0, delta='{"a"'),
        item("function_call_arguments.delta", 1, delta='{"b"'),
        item("function_call_arguments.delta", 0, delta=": 1}"),
        item("function_call_arguments.delta", 1, delta=": 2}"),
        item("output_item.done", 1, item={**CALL, "arguments": '{"b": 2}'}),
        item("output_item.done", 0, item={**CALL, "arguments": '{"a": 1}'}),
        completed(),
    )

    assert [call.arguments for call in message.tool_calls] == [{"a": 1}, {"b": 2}]
    assert [call.id for call in message.tool_calls] == ["c1", "c1_2"]


def test_a_call_without_a_call_id_is_known_by_its_items_id_or_by_one_that_is_made_up() -> None:
    message = read(
        item("output_item.done", 0, item={**CALL, "call_id": None}),
        item("output_item.done", 1, item={**CALL, "call_id": "", "id": None}),
        completed(),
    )

    first, second = message.tool_calls
    assert first.id == "fc_1"
    assert second.id not in ("", "fc_1")


def test_a_call_that_the_limit_cut_off_keeps_its_raw_text() -> None:
    message = read(
        item("output_item.added", 0, item=CALL),
        item("function_call_arguments.delta", 0, delta='{"a": "x'),
        completed("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    assert message.stop_reason == "length"
    assert message.tool_calls == (ToolCall("c1", "read", {}, '{"a": "x'),)


# --- what only the provider understands ---


@pytest.mark.parametrize("kind", ["web_search_call", "mcp_call", "compaction", "custom_tool_call", "zzz"])
def test_items_of_other_kinds_are_kept_whole_and_in_order(kind: str) -> None:
    own = {"type": kind, "id": "x_1", "action": {"query": "q"}}

    message = read(
        item("output_item.added", 0, item={"type": kind}),
        item("output_item.done", 0, item=own),
        item("output_item.done", 1, item=message_item("Found.")),
        completed(),
    )

    assert message.content == (ProviderContent("", RESPONSES.api, own), TextContent("Found."))
    assert message.stop_reason == "stop"


# --- one JSON document ---


def test_a_server_that_does_not_stream_is_understood() -> None:
    output = [event["item"] for name, event in RESPONSES.turn if name == "response.output_item.done"]
    document = {"id": "r1", "status": "completed", "output": output, "usage": {"input_tokens": 5, "output_tokens": 9}}
    with served(RESPONSES, json_reply(document)) as (_, model):
        message = message_of(ask(model))

    assert (message.text, message.tool_calls) == (SAID, (ToolCall("c1", "read", json.loads(RAW)),))
    assert (message.stop_reason, message.usage, message.response_id) == ("tool_use", Usage(5, 9), "r1")


@pytest.mark.parametrize("status", ["", None])
def test_a_document_without_a_status_is_whole(status: Any) -> None:
    assert RESPONSES.whole({"status": status, "output": [message_item("hi")]}).stop_reason == "stop"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"error": {"message": "broken"}}, "broken"),
        ({"status": "queued", "output": []}, "queued"),
        ({"status": "failed", "output": [], "error": {"message": "failed"}}, "failed"),
        ([], ""),
        ("text", "text"),
    ],
)
def test_a_document_that_is_no_answer_is_an_error(document: Any, said: str) -> None:
    message = RESPONSES.whole(document)

    assert isinstance(message.error, ErrorInfo)
    assert said in message.error.message
