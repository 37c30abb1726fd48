"""A response that is cut anywhere is never taken for a whole one, and never loses what had arrived."""

import json
from collections.abc import Iterator

import pytest

from agentcore import AssistantMessage
from agentcore.events import StreamEvent
from agentcore.testing.sse_server import Cut, Reply, Reset, sse
from tests.providers.wire_support import (
    ANTHROPIC,
    CHAT,
    GOOGLE,
    RAW,
    RESPONSES,
    SAID,
    THOUGHT,
    WIRES,
    Wire,
    ask,
    message_of,
    served,
    without_times,
)

LAST = {CHAT.api: 2, ANTHROPIC.api: 1, GOOGLE.api: 1, RESPONSES.api: 1}
"""The place, from the end, of the payload that ends a response of each API."""


def body_and_end(wire: Wire) -> tuple[bytes, int]:
    """Return the body of a turn, and how much of it tells that the response is whole."""
    body = sse(*wire.turn)
    ending = wire.turn[-LAST[wire.api]]
    event = ending[1] if isinstance(ending, tuple) else ending
    text = json.dumps(event, ensure_ascii=False).encode()
    return body, body.rindex(text) + len(text)


def without_ids(events: list[StreamEvent]) -> object:
    return without_times([event.to_dict() for event in events])


def check_cut(message: AssistantMessage, wire: Wire, at: int, end: int) -> None:
    if at >= end and (wire is not CHAT or message.stop_reason != "error"):
        # Half a "[DONE]" after the reason to finish is malformed data, and as such an error of Chat Completions.
        assert message.stop_reason == "tool_use", at
        return
    assert message.stop_reason == "error", at
    assert message.error is not None
    assert message.error.kind in ("protocol", "connection"), at
    assert SAID.startswith(message.text), at
    assert THOUGHT.startswith(message.thinking), at


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_body_that_ends_early_at_any_byte_is_an_error_that_keeps_what_came(wire: Wire, ending: bytes) -> None:
    body, end = body_and_end(wire)
    if ending != b"\n":
        end += body[:end].count(b"\n")
        body = body.replace(b"\n", ending)
    longest = ""
    for at in range(len(body) + 1):
        message = message_of(wire.events(body[:at]))
        check_cut(message, wire, at, end)
        # What had come whole by then is there.
        assert len(message.text + message.thinking) >= len(longest)
        longest = message.text + message.thinking
    assert longest == SAID + THOUGHT


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_a_call_that_was_cut_off_keeps_its_raw_text_and_no_arguments_are_made_of_it(wire: Wire) -> None:
    body, end = body_and_end(wire)
    seen = set()
    for at in range(0, end, 3):
        for call in message_of(wire.events(body[:at])).tool_calls:
            if call.partial_json is not None:
                assert RAW.startswith(call.partial_json) or wire is GOOGLE
                seen.add(call.partial_json)
    assert seen or wire is GOOGLE  # whose calls come whole


def cuts(body: bytes, end: int) -> Iterator[int]:
    yield from range(1, end, max(1, end // 12))
    yield end - 1


@pytest.mark.parametrize("way", ["closed", "cut", "reset"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_a_connection_that_breaks_in_mid_response_is_an_error_that_is_not_tried_again(wire: Wire, way: str) -> None:
    body, end = body_and_end(wire)
    # A body without a length just ends when its connection does: nothing but its content tells that it is not whole.
    framing = "close" if way == "closed" else "chunked"
    last = [] if way == "closed" else [Cut()] if way == "cut" else [Reset()]
    places = list(cuts(body, end))
    replies = [Reply([body[:at], *last], framing=framing) for at in places]
    with served(wire, replies) as (server, model):
        for at in places:
            check_cut(message_of(ask(model)), wire, at, end)

        assert len(server.requests) == len(places)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_cut_of_the_bytes_gives_the_same_events(wire: Wire, size: int) -> None:
    body = sse(*wire.turn)

    pieces = wire.events([body[at : at + size] for at in range(0, len(body), size)])

    assert without_ids(pieces) == without_ids(wire.events(body))
