"""The four wire APIs side by side: a small response of each, and ways to read one, for tests that hold for all."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from agentcore import (
    AssistantMessage,
    DoneEvent,
    ErrorEvent,
    Model,
    ModelContext,
    StreamOptions,
    UserMessage,
    stream_response,
)
from agentcore.events import StreamEvent
from agentcore.providers import (
    anthropic_messages,
    google_generative_ai,
    openai_completions,
    openai_responses,
)
from agentcore.providers._assembler import Assembler
from agentcore.providers._exchange import Incoming
from agentcore.providers._request import RequestFailed
from agentcore.testing.sse_server import Reply, Request, SseServer, sse

THOUGHT = "Hm, 🤔 héllo."
SAID = "Let me look — 漢字."
ARGUMENTS = {"path": "é.txt", "limit": 3}
RAW = json.dumps(ARGUMENTS, ensure_ascii=False)


@attrs.frozen
class Wire:
    """One API: its adapter, where its servers are, and responses as payloads of server-sent events.

    `turn` thinks, speaks and calls a tool. `call` only calls a tool, whose arguments come in these pieces. The last
    payload of either ends the response.
    """

    api: str
    adapter: Any
    base: str
    turn: tuple[Any, ...]
    call: Callable[[Sequence[str]], list[Any]]
    llmock: str = ""

    def model(self, url: str = "http://127.0.0.1:1", **more: Any) -> Model:
        return Model("m", api=self.api, base_url=url + self.base, **more)

    def events(self, body: bytes | Iterable[bytes], model: Model | None = None) -> list[StreamEvent]:
        """Return the events that the reader makes of a body, given whole or in blocks."""
        assembler = Assembler(model or self.model())
        reading = self.adapter.read_stream(Incoming([body] if isinstance(body, bytes) else body), assembler)
        events: list[StreamEvent] = []
        try:
            while True:
                events.append(next(reading))
        except StopIteration as end:
            events += end.value
        except RequestFailed as failure:
            events += assembler.fail(failure.error)
        return events

    def read(self, *payloads: Any, model: Model | None = None) -> AssistantMessage:
        """Return the message that a streamed body of these payloads makes."""
        return message_of(self.events(sse(*payloads), model))

    def whole(self, document: Any) -> AssistantMessage:
        """Return the message of a response that came as one JSON document."""
        assembler = Assembler(self.model())
        return message_of(list(self.adapter.read_whole(document, Incoming([]), assembler)))

    def build(self, *messages: Any, model: Model | None = None, options: Any = None, **context: Any) -> dict[str, Any]:
        """Return the payload of a request."""
        given = ModelContext(messages=messages or (UserMessage("hi"),), **context)
        return dict(self.adapter.build_request(model or self.model(), given, options or StreamOptions()))


def message_of(events: Sequence[StreamEvent]) -> AssistantMessage:
    *_, last = events
    assert isinstance(last, (DoneEvent, ErrorEvent))
    assert not any(isinstance(event, (DoneEvent, ErrorEvent)) for event in events[:-1])
    return last.message


def ask(model: Model, *messages: Any, options: StreamOptions | None = None, **context: Any) -> list[StreamEvent]:
    """Return the events of one request."""
    request = ModelContext(messages=messages or (UserMessage("hi"),), **context)
    return list(stream_response(model, request, options or StreamOptions()))


@contextmanager
def served(
    wire: Wire,
    replies: Reply | Callable[[Request], Reply] | Sequence[Reply | Callable[[Request], Reply]],
    **model: Any,
) -> Iterator[tuple[SseServer, Model]]:
    """Give a server and a model that is behind it."""
    with SseServer(replies) as server:
        yield server, wire.model(server.url, **model)


def without_times(value: Any) -> Any:
    """Return data without what differs from one run to the next."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key != "timestamp"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


# --- Chat Completions ---


def _chunk(*, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _chat_call(pieces: Sequence[str]) -> list[Any]:
    first = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": ""}}
    rest = [_chunk(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces]
    return [_chunk(tool_calls=[first]), *rest, _chunk(finish="tool_calls"), "[DONE]"]


CHAT = Wire(
    "openai-completions",
    openai_completions,
    "/v1",
    (
        _chunk(role="assistant", reasoning_content=THOUGHT[:4]),
        _chunk(reasoning_content=THOUGHT[4:]),
        _chunk(content=SAID[:5]),
        _chunk(content=SAID[5:]),
        *_chat_call([RAW[:9], RAW[9:]]),
    ),
    _chat_call,
    "/v1",
)

# --- Anthropic ---


def _named(*events: dict[str, Any]) -> list[Any]:
    return [(event["type"], event) for event in events]


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[Any]:
    """Return the events of one content block."""
    return _named(
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    )


def begun(**usage: int) -> tuple[str, dict[str, Any]]:
    message = {"id": "r1", "type": "message", "role": "assistant", "content": [], "usage": usage}
    return ("message_start", {"type": "message_start", "message": message})


def ended(reason: str | None = "end_turn", usage: Any = None, **delta: Any) -> list[Any]:
    change = {
        "type": "message_delta",
        "delta": {"stop_reason": reason, **delta},
        "usage": usage or {"output_tokens": 9},
    }
    return _named(change, {"type": "message_stop"})


def _tool_use(index: int, pieces: Sequence[str]) -> list[Any]:
    start = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)))


ANTHROPIC = Wire(
    "anthropic-messages",
    anthropic_messages,
    "",
    (
        begun(input_tokens=5, output_tokens=1),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": THOUGHT[:4]},
            {"type": "thinking_delta", "thinking": THOUGHT[4:]},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        ("ping", {"type": "ping"}),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": SAID[:5]},
            {"type": "text_delta", "text": SAID[5:]},
        ),
        *_tool_use(2, [RAW[:9], RAW[9:]]),
        *ended("tool_use"),
    ),
    lambda pieces: [begun(input_tokens=5), *_tool_use(0, pieces), *ended("tool_use")],
    "/anthropic",
)

# --- Google ---


def candidate(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk with these parts."""
    one = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
    if finish is not None:
        one["finishReason"] = finish
    return {"candidates": [one], "responseId": "r1"}


def _google_call(pieces: Sequence[str]) -> list[Any]:
    # Calls come whole: what can come in many pieces is text.
    texts = [candidate({"text": piece}) for piece in pieces]
    return [*texts, candidate({"functionCall": {"name": "read", "args": ARGUMENTS}}, finish="STOP")]


GOOGLE = Wire(
    "google-generative-ai",
    google_generative_ai,
    "/v1beta",
    (
        candidate({"text": THOUGHT[:4], "thought": True}),
        candidate({"text": THOUGHT[4:], "thought": True}),
        candidate({"text": SAID[:5]}),
        candidate({"text": SAID[5:]}),
        {
            **candidate(
                {"functionCall": {"id": "c1", "name": "read", "args": ARGUMENTS}, "thoughtSignature": "c2ln"},
                finish="STOP",
            ),
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 9, "totalTokenCount": 14},
        },
    ),
    _google_call,
    "/gemini/v1beta",
)

# --- Responses ---


def item(kind: str, index: int | None, /, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Return an event about an item."""
    event = {"type": f"response.{kind}", **({} if index is None else {"output_index": index}), **fields}
    return (event["type"], event)


def completed(status: str = "completed", **response: Any) -> tuple[str, dict[str, Any]]:
    event = {"type": f"response.{status}", "response": {"id": "r1", "status": status, **response}}
    return (event["type"], event)


def _function_call(index: int, pieces: Sequence[str]) -> list[Any]:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read"}
    return [
        item("output_item.added", index, item={**call, "arguments": ""}),
        *(item("function_call_arguments.delta", index, item_id="fc_1", delta=piece) for piece in pieces),
        item("function_call_arguments.done", index, item_id="fc_1", arguments="".join(pieces)),
        item("output_item.done", index, item={**call, "arguments": "".join(pieces), "status": "completed"}),
    ]


_CREATED = ("response.created", {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}})
_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}
_MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant"}

RESPONSES = Wire(
    "openai-responses",
    openai_responses,
    "/v1",
    (
        _CREATED,
        item("output_item.added", 0, item={"type": "reasoning", "id": "rs_1", "summary": []}),
        item("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta=THOUGHT[:4]),
        item("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta=THOUGHT[4:]),
        item("output_item.done", 0, item=_REASONING),
        item("output_item.added", 1, item={**_MESSAGE, "content": []}),
        item("output_text.delta", 1, item_id="msg_1", content_index=0, delta=SAID[:5]),
        item("output_text.delta", 1, item_id="msg_1", content_index=0, delta=SAID[5:]),
        item("output_item.done", 1, item={**_MESSAGE, "content": [{"type": "output_text", "text": SAID}]}),
        *_function_call(2, [RAW[:9], RAW[9:]]),
        completed(usage={"input_tokens": 5, "output_tokens": 9, "total_tokens": 14}),
    ),
    lambda pieces: [_CREATED, *_function_call(0, pieces), completed()],
    "/v1",
)

WIRES = (CHAT, ANTHROPIC, GOOGLE, RESPONSES)
BY_API = {wire.api: wire for wire in WIRES}
