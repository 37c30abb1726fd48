"""What holds for an exchange over any of the wire APIs: whose key is used, and what keeps a response alive."""

import json
import socket
import threading
from typing import Any

import pytest

from agentcore import (
    AbortController,
    AssistantMessage,
    ImageContent,
    Model,
    StreamOptions,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.providers._exchange import _key_provider
from agentcore.providers._request import vendor_of
from agentcore.testing.sse_server import Reply, sse
from tests.providers.wire_support import (
    ANTHROPIC,
    BY_API,
    CHAT,
    GOOGLE,
    RESPONSES,
    WIRES,
    Wire,
    ask,
    message_of,
    served,
    without_times,
)

each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)

# --- whose key ---

HOSTS = {"api.vendor.com": "vendor", "vendor.net": "other"}


@pytest.mark.parametrize(
    ("url", "vendor"),
    [
        ("https://api.vendor.com/v1", "vendor"),
        ("https://API.Vendor.com:443", "vendor"),
        (" https://api.vendor.com/v1 ", "vendor"),
        ("https://eu.api.vendor.com/v1", "vendor"),
        ("https://a.b.vendor.net", "other"),
        ("https://vendor.com/v1", ""),
        ("https://evil-api.vendor.com", ""),
        ("https://api.vendor.com.evil.org/v1", ""),
        ("https://evil.org/api.vendor.com", ""),
        ("https://api.vendor.com@evil.org/v1", ""),
        ("http://127.0.0.1:8000/v1", ""),
        ("http://[bad", ""),
        ("", ""),
    ],
)
def test_a_server_is_a_vendors_by_its_host_or_one_that_it_ends_in(url: str, vendor: str) -> None:
    assert vendor_of(url, HOSTS) == vendor


@pytest.mark.parametrize(
    ("api", "base_url", "provider"),
    [
        (CHAT.api, "https://api.openai.com/v1", "openai"),
        (CHAT.api, "https://api.groq.com/openai/v1", "groq"),
        (RESPONSES.api, "https://api.openai.com/v1", "openai"),
        (RESPONSES.api, "https://eu.api.openai.com/v1", "openai"),
        (ANTHROPIC.api, "https://api.anthropic.com", "anthropic"),
        (GOOGLE.api, "https://generativelanguage.googleapis.com/v1beta", "google"),
        *((wire.api, "https://gateway.example/v1", "") for wire in WIRES),
        *((wire.api, "http://[bad", "") for wire in WIRES),
    ],
)
def test_the_vendors_own_host_gets_its_key_without_a_provider_being_named(
    api: str, base_url: str, provider: str
) -> None:
    adapter = BY_API[api].adapter._ADAPTER

    assert _key_provider(adapter, Model("m", api=api, base_url=base_url)) == provider
    assert _key_provider(adapter, Model("m", api=api, base_url=base_url, provider="mine")) == "mine"


@each_wire
@pytest.mark.parametrize("headers", [{"X-N": 5}, {"X-N": b"five"}, {5: "five"}], ids=repr)
def test_a_header_that_is_no_text_is_an_error_that_names_it(wire: Wire, headers: Any) -> None:
    with served(wire, Reply(sse(*wire.turn))) as (server, model):
        message = message_of(ask(model, options=StreamOptions(headers=headers)))

        assert message.error is not None
        assert message.error.kind == "invalid_request"
        assert str(next(iter(headers))) in message.error.message
        assert "five" not in message.error.message
        assert server.requests == ()


# --- what no server would take ---


@pytest.mark.parametrize(
    ("wire", "refused"),
    [
        (ANTHROPIC, {"image/svg+xml", "image/heic"}),
        (RESPONSES, {"image/svg+xml", "image/heic"}),
        (GOOGLE, {"image/svg+xml", "image/gif"}),
    ],
    ids=lambda value: value.api if isinstance(value, Wire) else "",
)
def test_images_of_a_type_that_the_api_refuses_are_not_sent(wire: Wire, refused: set[str]) -> None:
    """One such image in a transcript would make every request after it fail."""
    for kind in ("image/png", "image/jpeg", "image/webp", "image/gif", "image/heic", "image/svg+xml"):
        model = wire.model(input=("text", "image"))
        transcript = [
            UserMessage([ImageContent("AAAA", kind)]),
            AssistantMessage([ToolCall("c1", "read", {})], stop_reason="tool_use"),
            ToolResultMessage("c1", "read", [ImageContent("AAAA", kind)]),
        ]

        text = json.dumps(wire.build(*transcript, model=model))

        assert text.count("AAAA") == (0 if kind in refused else 2)


# --- errors beside the stream ---


@each_wire
@pytest.mark.parametrize("after", [b"", b"\ndata: [DONE]\n\n"], ids=["the end", "the mark of the end"])
def test_the_bare_json_of_an_error_in_a_stream_is_told(wire: Wire, after: bytes) -> None:
    said = b'{"error":{"message":"the model runner has stopped","type":"api_error"}}\n'

    message = message_of(wire.events(sse(*wire.turn[:4]) + said + after))

    assert message.stop_reason == "error"
    assert message.error is not None
    assert "the model runner has stopped" in message.error.message


@each_wire
@pytest.mark.parametrize("kind", [{"type": "error"}, {}], ids=["named", "bare"])
def test_nothing_after_an_error_counts(wire: Wire, kind: dict[str, Any]) -> None:
    error = {**kind, "error": {"type": "overloaded_error", "message": "busy"}}

    message = wire.read(error, *wire.turn)

    assert message.error is not None
    assert (message.error.kind, message.content) == ("overloaded", ())
    assert "busy" in message.error.message


# --- signs of life ---


@each_wire
@pytest.mark.parametrize(
    "frame",
    [b"data:\n\n", b"data: \n\n", b"data:  \t\n\n", b"event: ping\ndata:\n\n", b"data:\ndata:\n\n", b"event: ping\n\n"],
    ids=repr,
)
def test_a_frame_without_content_is_a_sign_of_life_and_nothing_else(wire: Wire, frame: bytes) -> None:
    parts = [sse(payload) for payload in wire.turn]
    quiet, noisy = wire.events(b"".join(parts)), wire.events(frame + frame.join(parts) + frame)

    assert without_times([event.to_dict() for event in noisy]) == without_times([event.to_dict() for event in quiet])


@each_wire
@pytest.mark.parametrize("end", [b"data: [DONE] \n\n", b"data:  [DONE]\n\n", b"data: [DONE]\n\n" * 3], ids=repr)
def test_the_mark_of_the_end_may_have_blanks_around_it_and_come_again(wire: Wire, end: bytes) -> None:
    payloads = [payload for payload in wire.turn if payload != "[DONE]"]

    message = message_of(wire.events(sse(*payloads) + end))

    assert message.error is None
    assert [call.name for call in message.tool_calls] == ["read"]


@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC, RESPONSES], ids=lambda wire: wire.api)  # Google's end with the body
def test_what_follows_the_end_is_not_looked_at(wire: Wire) -> None:
    message = message_of(wire.events([sse(*wire.turn), b"<html>garbage", b"data: {\n\n"]))

    assert message.error is None


class Heart:
    """A server that announces the end of its answer and then, for ever, only shows that it is alive."""

    def __init__(self, body: bytes, beats: int = 1000) -> None:
        self.was_left = False
        self._body, self._beats = body, beats
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Heart":
        self._thread.start()
        return self

    def __exit__(self, *given: Any) -> None:
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            request = b""
            while not request.endswith(b"}"):  # with anything unread, closing would be a reset
                request += connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + self._body)
            beats = threading.Event()
            try:
                for _ in range(self._beats):
                    beats.wait(0.01)
                    connection.sendall(b": alive\n\n")
            except OSError:
                self.was_left = True


@pytest.mark.parametrize("wire", [CHAT, GOOGLE], ids=lambda wire: wire.api)
def test_a_server_that_only_lives_on_after_the_end_is_left(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore.providers._http._LONGEST_END", 0.1)
    body = sse(*(payload for payload in wire.turn if payload != "[DONE]"))
    with Heart(body) as server:
        message = message_of(ask(wire.model(server.url)))

    assert message.error is None
    assert [call.name for call in message.tool_calls] == ["read"]
    assert server.was_left


def test_signs_of_life_before_the_end_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore.providers._http._LONGEST_END", 0.0)
    with Heart(sse(*CHAT.turn[:2]), beats=50) as server:
        message = message_of(ask(CHAT.model(server.url)))

    assert message.error is not None
    assert message.error.kind == "protocol"
    assert not server.was_left


def test_a_blank_frame_is_not_taken_for_the_end() -> None:
    start = [payload for payload in CHAT.turn if payload != "[DONE]"][:3]

    message = message_of(CHAT.events(sse(*start) + b"data: \n\n"))

    assert message.error is not None
    assert message.error.kind == "protocol"
    assert json.dumps(message.to_dict())


class Unsayable:
    """A reason of an abort that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@each_wire
@pytest.mark.parametrize("when", ["before the request", "while it is answered"])
def test_an_abort_whose_reason_cannot_be_shown_ends_the_response_like_any_other(wire: Wire, when: str) -> None:
    controller = AbortController()

    def reply(request: Any) -> Reply:
        controller.abort(Unsayable())
        return Reply(())

    if when == "before the request":
        controller.abort(Unsayable())
    with served(wire, reply) as (server, model):
        message = message_of(ask(model, options=StreamOptions(api_key="k" * 20, signal=controller.signal)))
        assert len(server.requests) == (0 if when == "before the request" else 1)
    assert message.stop_reason == "aborted"
    assert message.error is not None
    assert message.error.kind == "aborted"
