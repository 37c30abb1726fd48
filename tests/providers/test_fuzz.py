"""Whatever a server sends, reading it ends in one message: an error at worst, never an exception."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore import AssistantMessage, DoneEvent, TextContent, ThinkingContent, UserMessage
from agentcore.content import ProviderContent
from agentcore.providers._request import CheckedRequest, HttpRequest
from agentcore.testing.sse_server import Reply, sse
from tests.providers.wire_support import BY_API, CHAT, RESPONSES, WIRES, Wire, ask, message_of, served

each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
some = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)


def words_of(value: Any, words: set[str]) -> set[str]:
    """Collect the keys and the short texts of example payloads: what a reader looks for."""
    if isinstance(value, dict):
        for key, item in value.items():
            words.add(key)
            words_of(item, words)
    elif isinstance(value, (list, tuple)):
        for item in value:
            words_of(item, words)
    elif isinstance(value, str) and len(value) < 60:
        words.add(value)
    return words


MORE_WORDS = {
    "openai-completions": "message reasoning function_call usage error prompt_tokens reasoning_details stop length",
    "anthropic-messages": "redacted_thinking server_tool_use compaction compaction_delta error cache_read_input_tokens",
    "google-generative-ai": "promptFeedback blockReason error executableCode thoughtsTokenCount MAX_TOKENS inlineData",
    "openai-responses": "response.failed response.incomplete refusal content error incomplete_details reason",
}


def documents(wire: Wire) -> st.SearchStrategy[Any]:
    """Return JSON values made of the words of an API, in any arrangement."""
    words = st.sampled_from(sorted(words_of(wire.turn, set()) | set(MORE_WORDS[wire.api].split())))
    leaves = scalars | words | st.integers(0, 3)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5), max_leaves=12
    )


@st.composite
def damaged(draw: st.DrawFn, wire: Wire) -> list[Any]:
    """Return the payloads of a turn with some left out, repeated, moved, or with one value in them replaced."""
    payloads = [payload[1] if isinstance(payload, tuple) else payload for payload in wire.turn]
    payloads = json.loads(json.dumps(payloads))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payloads) - 1))
        match draw(st.sampled_from(["drop", "repeat", "move", "change"])):
            case "drop" if len(payloads) > 1:
                del payloads[at]
            case "repeat":
                payloads.insert(at, json.loads(json.dumps(payloads[at])))
            case "move":
                payloads.insert(draw(st.integers(0, len(payloads) - 1)), payloads.pop(at))
            case _:
                change(draw, payloads, at, documents(wire))
    return payloads


def change(draw: st.DrawFn, container: Any, place: Any, values: st.SearchStrategy[Any]) -> None:
    inner = container[place]
    if isinstance(inner, (dict, list)) and inner and draw(st.booleans()):
        places = sorted(inner) if isinstance(inner, dict) else list(range(len(inner)))
        change(draw, inner, draw(st.sampled_from(places)), values)
    else:
        container[place] = draw(values)


def check(message: AssistantMessage) -> None:
    """Make sure that a message is one that can be stored and sent on, whatever it was made of."""
    assert message.stop_reason in ("stop", "length", "tool_use", "error")
    assert (message.error is None) == (message.stop_reason != "error")
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == len(ids)
    assert all(ids) or message.stop_reason == "error"
    assert all(isinstance(call.arguments, dict) for call in message.tool_calls)
    assert AssistantMessage.from_dict(json.loads(json.dumps(message.to_dict()))) == message


@each_wire
@given(data=st.data())
@some
def test_random_bytes(wire: Wire, data: st.DataObject) -> None:
    blocks = data.draw(st.lists(st.binary(max_size=40), max_size=6))

    assert message_of(wire.events(blocks)).stop_reason == "error"


@each_wire
@given(data=st.data())
@some
def test_random_lines_of_an_event_stream(wire: Wire, data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(LINES) | st.text(max_size=12), max_size=12))
    body = "".join(lines).encode("utf-8", "surrogatepass")

    check(message_of(wire.events(body)))


LINES = [
    "data: ",
    "data:",
    "data: {}\n\n",
    "data: [DONE]\n\n",
    "event: x\n",
    ": c\n",
    "\n",
    "\r",
    "\r\n",
    "{",
    "}",
    '"',
]


@each_wire
@given(data=st.data())
@some
def test_random_events_made_of_the_words_of_the_api(wire: Wire, data: st.DataObject) -> None:
    payloads = data.draw(st.lists(documents(wire), max_size=6))

    check(message_of(wire.events(sse(*(json.dumps(payload) for payload in payloads)))))


@each_wire
@given(data=st.data())
@some
def test_a_turn_with_parts_left_out_repeated_moved_or_replaced(wire: Wire, data: st.DataObject) -> None:
    payloads = data.draw(damaged(wire))

    events = wire.events(sse(*(json.dumps(payload) for payload in payloads)))

    check(message_of(events))
    for event in events:
        event.to_dict()


@each_wire
@given(data=st.data())
@some
def test_random_documents_in_place_of_a_stream(wire: Wire, data: st.DataObject) -> None:
    check(wire.whole(data.draw(documents(wire))))


@each_wire
def test_data_that_is_nested_too_deep_is_an_error(wire: Wire) -> None:
    deep = "[" * 200_000 + "]" * 200_000

    assert message_of(wire.events(sse(deep, *wire.turn))).stop_reason == "error"


def test_data_that_is_nested_nearly_too_deep_is_an_error_at_worst() -> None:
    """What can just be parsed may be too deep for what is done with it."""

    def replies() -> Iterator[Reply]:
        for depth in depths:
            usage = '{"a":' * depth + "0" + "}" * depth
            yield Reply(sse('{"usage":?,"choices":[{"delta":{},"finish_reason":"stop"}]}'.replace("?", usage)))

    depths = [500, 900, 5_000]  # how deep a parser goes differs with the version of Python
    with served(CHAT, list(replies())) as (_, model):
        messages = [message_of(ask(model)) for _ in depths]

    assert {message.stop_reason for message in messages} <= {"stop", "error"}
    assert messages[0].stop_reason == "stop"
    assert {message.error.kind for message in messages if message.error} <= {"protocol"}


OWN = {
    "openai-completions": lambda data: [
        {"choices": [{"delta": {"reasoning_details": [{"type": "x", "signature": "s", "index": data, "data": data}]}}]},
        {"choices": [{"delta": {"content": "hi", "extra": data}, "finish_reason": "stop"}]},
    ],
    "anthropic-messages": lambda data: [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "x", "data": data}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    ],
    "google-generative-ai": lambda data: [
        {"candidates": [{"content": {"parts": [{"toolResponse": data}]}, "finishReason": "STOP"}]}
    ],
    "openai-responses": lambda data: [
        {"type": "response.output_item.done", "item": {"type": "x", "data": data}},
        {"type": "response.output_item.done", "item": {"type": "reasoning", "encrypted_content": "c", "data": data}},
        {"type": "response.output_item.done", "item": {"type": "x"}},
        {"type": "response.completed"},
    ],
}


@pytest.mark.parametrize("data", ["NaN", "[-Infinity]", '"\\ud800"', "[" * 900 + "]" * 900], ids=lambda data: data[:9])
@pytest.mark.parametrize("api", OWN)
def test_what_json_cannot_hold_in_a_block_of_the_provider_stops_no_later_request(api: str, data: str) -> None:
    wire = BY_API[api]
    payloads = [json.dumps(payload).replace('"?"', data) for payload in OWN[api]("?")]

    message = wire.read(*payloads)

    assert message.stop_reason == "stop"
    assert any(isinstance(block, ProviderContent) for block in message.content)
    payload = wire.build(UserMessage("hi"), message, UserMessage("on"))
    CheckedRequest.of(HttpRequest("http://host/", {}, copy.deepcopy(payload)))


def nested(depth: int) -> Any:
    data: Any = "x"
    for _ in range(depth):
        data = [data]
    return data


UNSENDABLE = {
    "not a number": math.nan,
    "infinity": -math.inf,
    "half a character": {"\udfff": "\ud800"},
    "deep": nested(5_000),
    "key and set": {1: {2}},
    "digits": 10**5_000,
    "bytes": b"\0",
}


@pytest.mark.parametrize("name", UNSENDABLE)
@each_wire
def test_what_json_cannot_hold_in_a_transcript_stops_no_request(wire: Wire, name: str) -> None:
    data = UNSENDABLE[name]
    model = wire.model()
    origin = {"api": model.api, "provider": model.provider, "model": model.id}
    own = ProviderContent(model.provider, model.api, {"type": "x", "data": data})
    message = AssistantMessage([own, TextContent("hi")], **origin)

    payload = wire.build(UserMessage("hi"), message, UserMessage("on"))

    # It is still there, and can be copied for a hook and sent.
    assert '"type":"x"' in CheckedRequest.of(HttpRequest("http://host/", {}, copy.deepcopy(payload))).body.decode()
    assert message.content[0] == own


@pytest.mark.parametrize("data", ["NaN", '"\\ud800"', "[" * 900 + "]" * 900], ids=lambda data: data[:9])
def test_what_json_cannot_hold_in_encrypted_reasoning_stops_no_request(data: str) -> None:
    model = RESPONSES.model()
    signature = f'{{"type":"reasoning","encrypted_content":"c","data":{data}}}'
    origin = {"api": model.api, "provider": model.provider, "model": model.id}
    message = AssistantMessage([ThinkingContent("hm", signature), TextContent("hi")], **origin)

    payload = RESPONSES.build(UserMessage("hi"), message, UserMessage("on"))

    assert payload["input"][1]["type"] == "reasoning"
    CheckedRequest.of(HttpRequest("http://host/", {}, copy.deepcopy(payload)))


def test_every_api_is_here() -> None:
    from agentcore.providers import _MODULES

    assert set(BY_API) == set(_MODULES)
    assert all(isinstance(wire.events(sse(*wire.turn))[-1], DoneEvent) for wire in WIRES)
