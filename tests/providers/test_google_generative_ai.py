"""Google's Gemini API: what is asked, and what comes of the answers."""

import copy
import json
import threading
from typing import Any

import pytest

from agentcore import (
    AbortController,
    AgentTool,
    AssistantMessage,
    ErrorInfo,
    ImageContent,
    Model,
    ModelContext,
    StreamOptions,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    stream_response,
)
from agentcore.content import ProviderContent
from agentcore.events import TextDeltaEvent
from agentcore.providers import _google_reading
from agentcore.providers.google_generative_ai import _ADAPTER
from agentcore.testing.sse_server import Cut, Gate, Reply, Stall, json_reply, sse
from tests.providers.wire_support import (
    ARGUMENTS,
    GOOGLE,
    SAID,
    THOUGHT,
    ask,
    candidate,
    message_of,
    served,
)

VENDOR = "https://generativelanguage.googleapis.com/v1beta"
build, read = GOOGLE.build, GOOGLE.read
END = candidate(finish="STOP")


def gemini(id: str = "gemini-3.1-pro-preview", *, base_url: str = VENDOR, **more: Any) -> Model:
    return Model(id, api=GOOGLE.api, provider="google", base_url=base_url, **{"reasoning": True, **more})


OLD = gemini("gemini-2.5-flash", input=("text", "image"))
NEW = gemini(input=("text", "image"))


def tool(schema: dict[str, Any] | None = None, name: str = "read") -> AgentTool:
    return AgentTool(name, name, "Reads.", {"type": "object"} if schema is None else schema, lambda *given: "")


def by(model: Model, *blocks: Any, **more: Any) -> AssistantMessage:
    """Return a message of this model."""
    return AssistantMessage(blocks, api=model.api, provider=model.provider, model=model.id, **more)


def sent(*messages: Any, model: Model = NEW) -> list[Any]:
    return list(build(*messages, model=model)["contents"])


# --- requests: the frame ---


def test_the_least_request() -> None:
    assert build() == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def test_the_system_prompt_stands_by_itself_unless_it_is_blank() -> None:
    assert build(system_prompt="Be kind.")["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert "systemInstruction" not in build(system_prompt=" \n")


def test_options_of_the_generation() -> None:
    options = StreamOptions(
        max_tokens=100, temperature=0.5, metadata={"a": "b"}, session_id="s", cache_retention="long"
    )

    assert build(options=options)["generationConfig"] == {"maxOutputTokens": 100, "temperature": 0.5}
    assert set(build(options=options)) == {"contents", "generationConfig"}


def test_tools_are_sent_with_their_whole_schema_in_the_field_for_json_schema() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "from somewhere",
        "type": "object",
        "properties": {"a": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/B"}]}},
        "$defs": {"B": {"type": "string"}},
        "additionalProperties": False,
    }

    payload = build(tools=[tool(schema), tool({"additionalProperties": {"type": "string"}}, "any")])

    assert payload["tools"] == [
        {
            "functionDeclarations": [
                {"name": "read", "description": "Reads.", "parametersJsonSchema": schema},
                {
                    "name": "any",
                    "description": "Reads.",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {},
                        "additionalProperties": {"type": "string"},
                    },
                },
            ]
        }
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {}, "required": [], "additionalProperties": False, "title": "Nothing"},
        {"anyOf": [{"type": "object"}]},
    ],
)
def test_a_tool_without_parameters_declares_none(schema: dict[str, Any]) -> None:
    (declared,) = build(tools=[tool(schema)])["tools"][0]["functionDeclarations"]

    assert declared == {"name": "read", "description": "Reads."}


def test_a_request_without_tools_has_no_fields_about_tools() -> None:
    model = GOOGLE.model(compat={"body": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}})

    assert set(build(model=model)) == {"contents"}
    assert "toolConfig" in build(model=model, tools=[tool()])


def test_fields_of_the_model_join_those_of_the_request() -> None:
    body = {"generationConfig": {"topK": 3}, "safetySettings": []}
    model = gemini(compat={"body": body})

    payload = build(model=model, options=StreamOptions(max_tokens=9, reasoning="low"))

    assert payload["generationConfig"] == {
        "maxOutputTokens": 9,
        "topK": 3,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
    }
    assert payload["safetySettings"] == []
    assert body == {"generationConfig": {"topK": 3}, "safetySettings": []}


@pytest.mark.parametrize(
    ("compat", "named"), [({"thinkin": 1}, "thinkin"), ({"thinking": "sometimes"}, "sometimes")], ids=["key", "value"]
)
def test_a_setting_that_is_not_understood_is_an_error_that_names_it(compat: dict[str, Any], named: str) -> None:
    message = message_of(ask(gemini(compat=compat, base_url="http://127.0.0.1:1")))

    assert message.error is not None
    assert message.error.kind == "invalid_request"
    assert named in message.error.message


# --- requests: thinking ---

LEVELS = ["minimal", "low", "medium", "high", "xhigh", "max"]


def thinking(model: Model, level: str | None, **more: Any) -> Any:
    payload = build(model=model, options=StreamOptions(reasoning=level, **more))
    return payload.get("generationConfig", {}).get("thinkingConfig")


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("gemini-3-pro-preview", ["low", "low", "low", "high", "high", "high"]),
        ("gemini-3.1-pro-preview", ["low", "low", "medium", "high", "high", "high"]),
        ("gemini-3-flash-preview", ["minimal", "low", "medium", "high", "high", "high"]),
        ("gemini-3.6-flash", ["minimal", "low", "medium", "high", "high", "high"]),
        ("gemini-3.8-flash", ["low", "low", "medium", "high", "high", "high"]),
        ("gemini-4-hydrogen", ["low", "low", "medium", "high", "xhigh", "xhigh"]),
        ("gemini-flash-latest", ["low", "low", "medium", "high", "high", "high"]),
    ],
)
def test_models_from_version_3_on_are_given_the_nearest_level_they_take(id: str, words: list[str]) -> None:
    asked = [thinking(gemini(id), level) for level in LEVELS]

    assert asked == [{"includeThoughts": True, "thinkingLevel": word} for word in words]


def test_models_before_version_3_are_given_a_budget_of_tokens() -> None:
    asked = [thinking(gemini("gemini-2.5-pro"), level) for level in LEVELS]

    assert asked == [
        {"includeThoughts": True, "thinkingBudget": tokens} for tokens in (512, 2048, 8192, 16_384, 24_576, 24_576)
    ]


def test_budgets_can_be_given_for_each_level() -> None:
    budgets = {"low": 700}

    for model in (OLD, NEW):
        assert thinking(model, "low", thinking_budgets=budgets) == {"includeThoughts": True, "thinkingBudget": 700}
    assert thinking(NEW, "high", thinking_budgets=budgets) == {"includeThoughts": True, "thinkingLevel": "high"}


@pytest.mark.parametrize("level", [None, "off"])
@pytest.mark.parametrize(
    ("model", "config"),
    [
        (OLD, {"thinkingBudget": 0}),
        (gemini("gemini-2.5-pro"), None),
        (gemini("gemini-3-flash-preview"), {"thinkingLevel": "minimal"}),
        (NEW, None),
        (gemini("gemini-2.5-flash", reasoning=False), None),
        (gemini("gemini-2.5-flash", compat={"thinking": "none"}), None),
    ],
)
def test_without_a_level_a_model_is_kept_from_thinking_where_it_allows_that(
    level: str | None, model: Model, config: Any
) -> None:
    assert thinking(model, level) == config


def test_a_model_that_does_not_reason_hears_nothing_of_it() -> None:
    assert thinking(gemini(reasoning=False), "high") is None
    assert thinking(gemini("gemma-4", compat={"thinking": "budget"}), "low") == {
        "includeThoughts": True,
        "thinkingBudget": 2048,
    }


# --- requests: headers and address ---


def test_the_key_goes_into_a_header_and_never_into_the_url() -> None:
    with served(GOOGLE, Reply(sse(*GOOGLE.turn))) as (server, model):
        ask(model, options=StreamOptions(api_key="k-e-y", headers={"X-A": "b"}))

        (request,) = server.requests
        assert request.path == "/v1beta/models/m:streamGenerateContent?alt=sse"
        assert request.headers["x-goog-api-key"] == "k-e-y"
        assert request.headers["x-a"] == "b"


@pytest.mark.parametrize(
    ("id", "base", "path"),
    [
        ("models/a", "/v1beta/", "/v1beta/models/a:streamGenerateContent?alt=sse"),
        ("tunedModels/a b", "/v1beta", "/v1beta/tunedModels/a%20b:streamGenerateContent?alt=sse"),
        ("a", "/v1beta?route=1", "/v1beta/models/a:streamGenerateContent?route=1&alt=sse"),
    ],
)
def test_the_model_is_named_in_the_address(id: str, base: str, path: str) -> None:
    url, _ = _ADAPTER.address(Model(id, api=GOOGLE.api, base_url=f"http://host{base}"), StreamOptions(), None)

    assert url == f"http://host{path}"


def test_a_header_can_be_removed() -> None:
    _, headers = _ADAPTER.address(NEW, StreamOptions(headers={"X-Goog-Api-Key": None}), "k")

    assert headers == {}


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
@pytest.mark.parametrize(("provider", "sends"), [("google", True), ("", False), ("elsewhere", False)])
def test_the_vendors_key_goes_only_to_whom_it_belongs(
    variable: str, provider: str, sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "from-environment")
    with served(GOOGLE, Reply(sse(*GOOGLE.turn)), provider=provider) as (server, model):
        ask(model)

        assert server.requests[0].headers["x-goog-api-key"] == ("from-environment" if sends else None)


def test_hooks_see_the_payload_and_the_response_and_can_replace_the_first() -> None:
    seen: list[Any] = []
    options = StreamOptions(
        on_payload=lambda payload, model: {"mine": payload["contents"][0]["role"]},
        on_response=lambda status, headers, model: seen.append((status, headers["x-a"])),
    )
    with served(GOOGLE, Reply(sse(*GOOGLE.turn), headers={"X-A": "b"})) as (server, model):
        ask(model, options=options)

        assert server.requests[0].json() == {"mine": "user"}
    assert seen == [(200, "b")]


# --- requests: messages ---

IMAGE = ImageContent("aGk=", "image/png")
DRAWING = ImageContent("aGk=", "image/heic")
IMAGE_PART = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
SKIP = "skip_thought_signature_validator"


def answered(*results: ToolResultMessage, then: tuple[Any, ...] = ()) -> list[Any]:
    calls = [ToolCall(result.tool_call_id, result.tool_name, {"a": 1}) for result in results]
    return [UserMessage("go"), AssistantMessage(calls), *results, *then]


def test_results_say_whose_they_are_and_whether_they_are_errors() -> None:
    contents = sent(
        *answered(
            ToolResultMessage("c1", "read", [TextContent("one"), TextContent("more")]),
            ToolResultMessage("c2", "write", [TextContent("no")], is_error=True),
            then=(UserMessage("and?"),),
        )
    )

    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[1]["parts"] == [
        {"functionCall": {"id": "c1", "name": "read", "args": {"a": 1}}, "thoughtSignature": SKIP},
        {"functionCall": {"id": "c2", "name": "write", "args": {"a": 1}}},
    ]
    assert contents[2]["parts"] == [
        {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "one\nmore"}}},
        {"functionResponse": {"id": "c2", "name": "write", "response": {"error": "no"}}},
        {"text": "and?"},
    ]


def test_models_before_version_3_get_neither_ids_nor_made_up_signatures() -> None:
    contents = sent(*answered(ToolResultMessage("c1", "read", [TextContent("one")])), model=OLD)

    assert contents[1]["parts"] == [{"functionCall": {"name": "read", "args": {"a": 1}}}]
    assert contents[2]["parts"] == [{"functionResponse": {"name": "read", "response": {"output": "one"}}}]


def test_images_go_with_prompts_and_inside_of_results() -> None:
    contents = sent(
        UserMessage([TextContent("what?"), IMAGE]),
        *answered(ToolResultMessage("c1", "read", [IMAGE]), ToolResultMessage("c2", "read", [DRAWING]))[1:],
    )

    assert contents[0]["parts"] == [{"text": "what?"}, IMAGE_PART]
    one, two, word, beside = contents[2]["parts"]
    assert one["functionResponse"]["parts"] == [IMAGE_PART]
    assert "parts" not in two["functionResponse"]
    assert "read" in word["text"]
    assert beside["inlineData"]["mimeType"] == "image/heic"


@pytest.mark.parametrize("then", [(), (UserMessage("and?"),), (AssistantMessage([TextContent("Well.")]),)])
def test_what_cannot_be_inside_of_results_comes_after_all_of_them(then: tuple[Any, ...]) -> None:
    contents = sent(
        *answered(
            ToolResultMessage("c1", "read", [TextContent("see"), IMAGE]),
            ToolResultMessage("c2", "read", [IMAGE]),
            then=then,
        ),
        model=OLD,
    )

    parts = contents[2]["parts"]
    assert [next(iter(part)) for part in parts[:6]] == [
        "functionResponse",
        "functionResponse",
        "text",
        "inlineData",
        "text",
        "inlineData",
    ]
    assert parts[1]["functionResponse"]["response"] == {"output": "(see the attached image)"}


def test_a_model_without_eyes_gets_a_note_for_each_image() -> None:
    (content,) = sent(UserMessage([IMAGE]), model=gemini())

    assert "image/png" in content["parts"][0]["text"]


def test_roles_take_turns_and_the_user_begins() -> None:
    contents = sent(
        AssistantMessage([TextContent("Hello!")]),
        AssistantMessage([TextContent("Anyone?")]),
        UserMessage("yes"),
        UserMessage("hi"),
    )

    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[1]["parts"] == [{"text": "Hello!"}, {"text": "Anyone?"}]


def test_blank_text_is_left_out_unless_it_carries_a_signature() -> None:
    contents = sent(
        UserMessage("go"),
        by(NEW, TextContent(""), TextContent("", "c2ln"), TextContent("Hi.", "c2ln")),
        UserMessage(""),
        by(NEW, TextContent(" ")),
    )

    assert contents[1]["parts"] == [
        {"text": "", "thoughtSignature": "c2ln"},
        {"text": "Hi.", "thoughtSignature": "c2ln"},
    ]
    assert len(contents) == 2


def test_signatures_go_back_to_the_same_model_where_they_came_from() -> None:
    own = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "x"}
    contents = sent(
        UserMessage("go"),
        by(
            NEW,
            ThinkingContent("Hm.", "t"),
            ThinkingContent("aloud"),
            ProviderContent("google", GOOGLE.api, own),
            ToolCall("c1", "read", {}, thought_signature="c"),
            ToolCall("c2", "read", {}),
        ),
        ToolResultMessage("c1", "read", [TextContent("1")]),
        ToolResultMessage("c2", "read", [TextContent("2")]),
    )

    assert contents[1]["parts"] == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "t"},
        {"text": "aloud", "thought": True},
        own,
        {"functionCall": {"id": "c1", "name": "read", "args": {}}, "thoughtSignature": "c"},
        {"functionCall": {"id": "c2", "name": "read", "args": {}}},
    ]


def test_another_models_thinking_is_text_and_its_calls_are_marked_as_unsigned() -> None:
    contents = sent(
        UserMessage("go"),
        by(
            OLD,
            ThinkingContent("Hm.", "t"),
            ThinkingContent("", "x", redacted=True),
            TextContent("", "s"),
            ProviderContent("google", GOOGLE.api, {"executableCode": {}}),
            ToolCall("c1", "read", {}, thought_signature="c"),
        ),
        ToolResultMessage("c1", "read", [TextContent("1")]),
    )

    assert contents[1]["parts"] == [
        {"text": "Hm."},
        {"functionCall": {"id": "c1", "name": "read", "args": {}}, "thoughtSignature": SKIP},
    ]


def test_building_a_request_changes_nothing_that_was_given() -> None:
    own = {"functionCall": {"name": "x"}}
    messages = [UserMessage("go"), by(NEW, ProviderContent("google", GOOGLE.api, own), TextContent("t"))]
    before = copy.deepcopy([message.to_dict() for message in messages])
    schema = {"properties": {"a": {}}}

    build(*messages, UserMessage("on"), model=NEW, tools=[tool(schema)])

    assert [message.to_dict() for message in messages] == before
    assert schema == {"properties": {"a": {}}}


def test_an_image_of_the_models_own_goes_back_to_it() -> None:
    assert sent(UserMessage("draw"), by(NEW, IMAGE))[1]["parts"] == [IMAGE_PART]


# --- responses ---


def test_a_turn_that_thinks_speaks_and_calls() -> None:
    message = read(*GOOGLE.turn)

    assert message.content == (
        ThinkingContent(THOUGHT),
        TextContent(SAID),
        ToolCall("c1", "read", ARGUMENTS, thought_signature="c2ln"),
    )
    assert (message.stop_reason, message.raw_stop_reason, message.response_id) == ("tool_use", "STOP", "r1")
    assert message.usage == Usage(5, 9)


def test_lines_may_end_as_google_ends_them() -> None:
    body = sse(*GOOGLE.turn).replace(b"\n", b"\r\n")

    assert (
        message_of(GOOGLE.events([body[at : at + 1] for at in range(len(body))])).content == read(*GOOGLE.turn).content
    )


def test_text_and_thinking_take_turns() -> None:
    message = read(
        candidate({"text": "a", "thought": True}, {"text": "b"}),
        candidate({"text": "c"}, {"text": "d", "thought": True}),
        candidate({"text": ""}, {"text": "e", "thought": True}, {"text": "f"}),
        END,
    )

    assert message.content == (
        ThinkingContent("a"),
        TextContent("bc"),
        ThinkingContent("de"),
        TextContent("f"),
    )


def test_a_signature_belongs_to_the_part_that_it_comes_with() -> None:
    message = read(
        candidate({"text": "a"}),
        candidate({"text": "b", "thoughtSignature": "1"}),
        candidate({"text": "c"}),
        candidate({"text": "", "thoughtSignature": "2"}),
        candidate({"thoughtSignature": "3"}, {"text": "t", "thought": True, "thoughtSignature": "4"}),
        candidate({"text": "u", "thought": True}),
        END,
    )

    assert message.content == (
        TextContent("ab", "1"),
        TextContent("c"),
        TextContent("", "2"),
        TextContent("", "3"),
        ThinkingContent("t", "4"),
        ThinkingContent("u"),
    )


@pytest.mark.parametrize(
    ("reason", "stop_reason", "kind"),
    [
        ("STOP", "stop", None),
        ("MAX_TOKENS", "length", None),
        ("SAFETY", "error", "content_filter"),
        ("RECITATION", "error", "content_filter"),
        ("PROHIBITED_CONTENT", "error", "content_filter"),
        ("IMAGE_SAFETY", "error", "content_filter"),
        ("MODEL_ARMOR", "error", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error", "protocol"),
        ("UNEXPECTED_TOOL_CALL", "error", "protocol"),
        ("OTHER", "error", "protocol"),
        ("ZZZ", "error", "protocol"),
    ],
)
def test_stop_reasons(reason: str, stop_reason: str, kind: str | None) -> None:
    message = read(candidate({"text": "so far"}), candidate(finish=reason, finishMessage="because"))

    assert (message.stop_reason, message.raw_stop_reason, message.text) == (stop_reason, reason, "so far")
    assert (message.error.kind if message.error else None) == kind
    if kind is not None:
        assert reason in str(message.error_message)
        assert "because" in str(message.error_message)


def test_a_reason_needs_no_explanation() -> None:
    assert read(candidate(finish="SAFETY")).error == ErrorInfo(
        "content_filter", "the provider's filter or the model itself ended the response: SAFETY"
    )


def test_a_reason_to_finish_is_not_the_end_and_the_last_one_counts() -> None:
    message = read(
        candidate({"text": "a"}, finish="STOP"),
        candidate({"codeExecutionResult": {"output": "1"}}),
        candidate({"text": "b"}, finish="MAX_TOKENS"),
    )

    assert (message.text, message.raw_stop_reason) == ("ab", "MAX_TOKENS")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_google_reading, "_PATIENCE_AT_THE_END", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "after",
    [
        (),
        ({"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}},),
        ({**candidate(), "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}},),
    ],
    ids=["nothing", "usage", "usage beside an empty candidate"],
)
def test_silence_after_a_reason_to_finish_ends_the_answer_of_a_server_that_keeps_the_connection_open(
    after: tuple[Any, ...],
) -> None:
    with served(GOOGLE, Reply([sse(candidate({"text": "hi"}, finish="STOP"), *after), Stall()])) as (server, model):
        message = message_of(ask(model))

        assert (message.text, message.stop_reason, message.raw_stop_reason) == ("hi", "stop", "STOP")
        assert (message.usage is not None) is bool(after)
        assert server.connections[0].closed.wait(2)
        assert server.connections[0].closed_by == "client"


@pytest.mark.usefixtures("impatient")
def test_what_still_comes_after_a_reason_to_finish_is_taken_and_waited_for() -> None:
    gate = Gate()
    first = sse(candidate({"text": "a"}, finish="STOP"), candidate({"codeExecutionResult": {"output": "1"}}))
    last = sse(candidate({"text": "b"}, finish="MAX_TOKENS"))
    waited: list[bool] = []

    def open_late(event: Any) -> None:
        # The answer went on, so that there is again as much time as ever: more than the silence that ends it.
        if isinstance(event, TextDeltaEvent) and event.delta == "a":
            timer = threading.Timer(0.6, lambda: (waited.append(True), gate.open()))
            timer.start()

    with served(GOOGLE, Reply([first, Stall(gate), last, Stall()])) as (_, model):
        events = []
        for event in stream_response(model, ModelContext(messages=[UserMessage("hi")]), StreamOptions()):
            open_late(event)
            events.append(event)

    message = message_of(events)
    assert waited
    assert (message.text, message.raw_stop_reason) == ("ab", "MAX_TOKENS")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("body", "end", "kind"),
    [
        ([candidate({"text": "hi"})], Stall(), "timeout"),
        ([candidate({"text": "h"}, finish="STOP"), candidate({"text": "i"})], Stall(), "timeout"),
        ([candidate({"text": "hi"}, finish="STOP")], Cut(), "connection"),
    ],
    ids=["no reason", "text after the reason", "broken off"],
)
def test_only_silence_right_after_a_reason_to_finish_is_an_end(body: list[Any], end: Any, kind: str) -> None:
    with served(GOOGLE, Reply([sse(*body), end])) as (_, model):
        message = message_of(ask(model, options=StreamOptions(idle_timeout=0.5)))

    assert message.error is not None
    assert (message.text, message.error.kind) == ("hi", kind)


def test_an_abort_in_the_silence_after_a_reason_to_finish_is_an_abort() -> None:
    controller = AbortController()
    with served(GOOGLE, Reply([sse(candidate({"text": "hi"}, finish="STOP")), Stall()])) as (_, model):
        options = StreamOptions(signal=controller.signal)
        events = []
        for event in stream_response(model, ModelContext(messages=[UserMessage("hi")]), options):
            events.append(event)
            if isinstance(event, TextDeltaEvent):
                threading.Timer(0.1, controller.abort).start()

    assert message_of(events).stop_reason == "aborted"


@pytest.mark.parametrize("last", [{}, {"candidates": [{}]}, {"candidates": [{"content": {}, "finishReason": ""}]}])
def test_a_stream_without_a_reason_to_finish_was_cut_off(last: dict[str, Any]) -> None:
    message = read(candidate({"text": "so far"}), candidate(finish="FINISH_REASON_UNSPECIFIED"), last)

    assert message.error is not None
    assert (message.error.kind, message.text) == ("protocol", "so far")
    assert "finishReason" in message.error.message


@pytest.mark.parametrize(
    "feedback",
    [{"blockReason": "SAFETY"}, {"blockReason": "OTHER", "blockReasonMessage": "The prompt says SAFETY first."}],
)
def test_a_blocked_prompt_is_a_filtered_answer(feedback: dict[str, Any]) -> None:
    message = read({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 7}})

    assert message.error is not None
    assert (message.error.kind, message.raw_stop_reason) == ("content_filter", None)
    assert "SAFETY" in message.error.message
    assert message.usage == Usage(7, 0)


def test_feedback_that_blocks_nothing_is_none() -> None:
    feedback = {"promptFeedback": {"blockReason": "BLOCK_REASON_UNSPECIFIED"}}

    assert read(feedback, candidate({"text": "hi"}, finish="STOP")).stop_reason == "stop"
    assert "finishReason" in str(read(feedback).error_message)


# --- usage ---


def test_usage_is_a_running_total_with_thinking_and_tools_in_their_places() -> None:
    message = read(
        {"usageMetadata": {"promptTokenCount": 100, "totalTokenCount": 100}},
        {**candidate({"text": "a"}), "usageMetadata": {"promptTokenCount": 100, "thoughtsTokenCount": 5}},
        {
            **END,
            "usageMetadata": {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 80,
                "toolUsePromptTokenCount": 7,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 6,
            },
        },
        {"usageMetadata": {"promptTokenCount": None, "candidatesTokenCount": None}},
    )

    assert message.usage == Usage(27, 16, 80, 0, 6)


@pytest.mark.parametrize("usage", [None, [], {}, {"promptTokenCount": -1}, {"candidatesTokenCount": "9"}])
def test_no_usable_usage_is_none_and_not_zero(usage: Any) -> None:
    assert read({**END, "usageMetadata": usage}).usage is None


# --- noise ---


def test_comments_foreign_words_and_chunks_without_content_change_nothing() -> None:
    noise = (
        b": keep-alive\n\nid: 1\nretry: 5\n\nevent: done\ndata: [DONE]\n\ndata: null\n\n"
        + sse([1], 7, {}, {"candidates": []}, {"candidates": None}, {"candidates": [None]}, {"responseId": 5})
        + sse({"candidates": [{"content": None}]}, {"candidates": [{"content": {"parts": None}}]})
        + sse(candidate({}), candidate({"text": None}), candidate({"unknown": 1}), candidate({"functionCall": "x"}))
        + sse({"candidates": [{"content": {"parts": ["text"]}}]}, {"modelVersion": "m", "unknown": {}})
    )
    pieces = [sse(payload) for payload in GOOGLE.turn]
    noisy = b"\xef\xbb\xbf" + noise.join([*pieces, b""])

    message = message_of(GOOGLE.events(noisy))

    assert (message.content, message.stop_reason) == (read(*GOOGLE.turn).content, "tool_use")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}, "overloaded", "overloaded"),
        ({"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}, "rate_limit", "slow"),
        ({"error": "a gateway says no"}, "protocol", "a gateway says no"),
    ],
)
def test_an_error_inside_the_stream_ends_it(error: dict[str, Any], kind: str, said: str) -> None:
    message = read(*GOOGLE.turn[:3], error, *GOOGLE.turn[3:])

    assert message.error is not None
    assert message.error.kind == kind
    assert said in message.error.message
    assert message.thinking == THOUGHT


def test_an_error_after_the_reason_to_finish_is_still_an_error() -> None:
    message = read(candidate({"text": "a"}, finish="STOP"), {"error": {"code": 500, "message": "broke"}})

    assert (message.stop_reason, message.raw_stop_reason, message.text) == ("error", "STOP", "a")


def test_data_that_is_no_json_ends_the_stream_with_an_error() -> None:
    message = read(*GOOGLE.turn[:3], "{not json", *GOOGLE.turn[3:])

    assert message.error is not None
    assert message.error.kind == "protocol"
    assert message.thinking == THOUGHT


# --- calls ---


@pytest.mark.parametrize("call", [{}, {"args": None}, {"args": {}}])
def test_a_call_without_arguments_has_none(call: dict[str, Any]) -> None:
    message = read(candidate({"functionCall": {"name": "now", "id": "c", **call}}, finish="STOP"))

    assert message.tool_calls == (ToolCall("c", "now", {}),)


def test_arguments_that_are_no_object_are_kept_as_text() -> None:
    message = read(candidate({"functionCall": {"name": "now", "id": "c", "args": ["ls"]}}, finish="STOP"))

    assert message.tool_calls == (ToolCall("c", "now", {}, '["ls"]'),)


def test_parallel_calls_come_together_or_one_by_one_with_ids_or_without() -> None:
    first = {"functionCall": {"name": "a", "args": {"n": 1}}, "thoughtSignature": "s"}
    second = {"functionCall": {"name": "a", "args": {"n": 2}}}
    third = {"functionCall": {"name": "b", "id": "c", "args": {}}}
    fourth = {"functionCall": {"name": "b", "id": "c", "args": {}}}

    calls = read(candidate(first, second), candidate(third), candidate(fourth), END).tool_calls

    assert [(call.name, call.arguments, call.thought_signature) for call in calls] == [
        ("a", {"n": 1}, "s"),
        ("a", {"n": 2}, None),
        ("b", {}, None),
        ("b", {}, None),
    ]
    assert len({call.id for call in calls}) == 4
    assert calls[2].id == "c"


# --- what only the provider understands ---


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}, "thoughtSignature": "s"},
        {"toolCall": {"toolType": "GOOGLE_SEARCH"}},
        {"toolResponse": {}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_the_servers_own_parts_are_kept_whole_and_in_order(part: dict[str, Any]) -> None:
    message = read(candidate({"text": "a"}, part, {"text": "b"}), END)

    assert message.content == (TextContent("a"), ProviderContent("", GOOGLE.api, part), TextContent("b"))


# --- JSON documents ---


@pytest.mark.parametrize("as_list", [True, False], ids=["a list of chunks", "one chunk"])
def test_a_server_that_does_not_stream_is_understood(as_list: bool) -> None:
    chunks = list(GOOGLE.turn)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    one = {**chunks[-1], **candidate(*parts, finish="STOP")}
    with served(GOOGLE, json_reply(chunks if as_list else one)) as (_, model):
        message = message_of(ask(model))

    assert message.content == read(*GOOGLE.turn).content
    assert (message.stop_reason, message.usage) == ("tool_use", Usage(5, 9))


def test_a_pretty_printed_error_under_the_type_of_a_stream_is_read() -> None:
    document = [{"error": {"code": 404, "message": "no such model", "status": "NOT_FOUND"}}]
    body = json.dumps(document, indent=2).encode()
    for status in (404, 200):
        with served(GOOGLE, Reply(body, status=status, framing="length")) as (_, model):
            message = message_of(ask(model))

        assert message.error is not None
        assert "no such model" in message.error.message
        assert message.error.status == (404 if status == 404 else None)


@pytest.mark.parametrize("document", [{}, [], "text", None, [None, 5]])
def test_a_document_that_is_no_answer_is_an_error(document: Any) -> None:
    assert isinstance(GOOGLE.whole(document).error, ErrorInfo)
