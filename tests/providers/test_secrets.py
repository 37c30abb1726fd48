"""Neither the key nor a password in `base_url` shows in anything that comes of a request, whichever API it goes by."""

import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    Model,
    StreamOptions,
    TextDeltaEvent,
    UserMessage,
    run_agent_loop,
)
from agentcore.errors import AgentCoreError
from agentcore.events import StreamEvent
from agentcore.providers._exchange import Incoming
from agentcore.providers._request import RequestFailed
from agentcore.testing.sse_server import Cut, Reply, Request, Reset, Stall, json_reply, sse
from tests.providers.wire_support import WIRES, Wire, ask, message_of, served

KEY = "sk-test-SECRET-0123456789"
PASSWORD = "pw-SECRET-0123456789"
HIDDEN = (KEY, PASSWORD)

each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)


def echoed(request: Request) -> str:
    """Return all that a badly made server could say of a request."""
    return f"bad request: {dict(request.headers.items())} {request.path} {KEY} {PASSWORD}"


def refusing(status: int) -> Callable[[Request], Reply]:
    def refuse(request: Request) -> Reply:
        error = {"message": echoed(request), "type": KEY, "code": KEY}
        return json_reply({"error": error}, status, {"x-request-id": KEY, "retry-after-ms": "1"})

    return refuse


def malformed(request: Request) -> Reply:
    return Reply(b"data: {" + echoed(request).encode() + b"\n\n")


def malformed_document(request: Request) -> Reply:
    return Reply(b"{" + echoed(request).encode(), headers={"Content-Type": f"application/json {KEY}"})


def in_band(request: Request) -> Reply:
    return Reply(sse({"type": "error", "error": {"message": echoed(request), "type": KEY, "code": KEY}}))


def nothing_of_an_event_stream(request: Request) -> Reply:
    return Reply(b"", headers={"Content-Type": KEY})


REPLIES: dict[str, Reply | Callable[[Request], Reply]] = {
    "400": refusing(400),
    "401": refusing(401),
    "403": refusing(403),
    "429 and again": refusing(429),
    "500 and again": refusing(500),
    "a plain text": lambda request: Reply(echoed(request), status=500),
    "a web page": lambda request: Reply(f"<html><body>{echoed(request)}</body></html>", status=502),
    "a redirect": lambda request: Reply(b"", status=307, headers={"Location": f"http://{KEY}:{PASSWORD}@x/?key={KEY}"}),
    "malformed data": malformed,
    "a malformed document": malformed_document,
    "an error in the stream": in_band,
    "no stream": nothing_of_an_event_stream,
    "cut": Reply([b"data: {}\n\n", Cut()]),
    "reset": Reply([Reset()], status=None),
    "not HTTP": lambda request: Reply([echoed(request).encode(), Cut()], status=None),
    "silence": Reply([b": hi\n\n", Stall()]),
}


def with_password(url: str) -> str:
    return url.replace("//", f"//user:{PASSWORD}@")


def options(**more: Any) -> StreamOptions:
    return StreamOptions(api_key=KEY, idle_timeout=0.3, headers={"X-Api-Token": KEY}, **more)


def everything(events: list[StreamEvent], message: AssistantMessage, model: Model) -> str:
    """Return all that a person, a log or a file may see."""
    seen = [repr(model), str(model), repr(options()), str(options())]
    for event in events:
        seen += [repr(event), str(event), json.dumps(event.to_dict()), repr(pickle.dumps(event.to_dict()))]
    seen += [repr(message), str(message), json.dumps(message.to_dict()), repr(pickle.dumps(message))]
    try:
        message.raise_for_error()
    except AgentCoreError as error:
        seen += [str(error), repr(error), repr(vars(error)), repr(error.args)]
        seen += ["".join(traceback.format_exception(error)), repr(pickle.dumps(error))]
    return "\n".join(seen)


def assert_hidden(text: str) -> None:
    for secret in HIDDEN:
        at = text.find(secret)
        assert at < 0, text[max(0, at - 200) : at + 50]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore.providers._retry.FIRST_DELAY", 0.001)


@each_wire
@pytest.mark.parametrize("case", REPLIES)
def test_no_secret_shows_whatever_the_server_answers(wire: Wire, case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(wire, REPLIES[case]) as (server, there):
        model = wire.model(with_password(server.url))
        events = ask(model, options=options())

        sent = server.requests[0]
        assert KEY in str(sent.headers)
        assert KEY not in sent.path
        assert PASSWORD not in sent.path
        assert there.base_url in model.base_url.replace(f"user:{PASSWORD}@", "")
    message = message_of(events)
    assert message.stop_reason == "error"
    assert_hidden(everything(events, message, model) + caplog.text)


@each_wire
@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{PASSWORD}@127.0.0.1:1",
        f"http://user:{PASSWORD}@127.0.0.1:99999",
        f"htp://user:{PASSWORD}@host",
        f"http://user:{PASSWORD}@[bad",
        f"http://user:{PASSWORD}@ho\u2100st",
        f"http://user:{PASSWORD}@",
    ],
    ids=["refused", "no port", "no scheme", "no address", "no name", "no host"],
)
def test_no_secret_shows_when_nothing_could_be_sent(wire: Wire, url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    model = wire.model(url)

    events = ask(model, options=options(max_retries=0))

    message = message_of(events)
    assert message.stop_reason == "error"
    assert_hidden(everything(events, message, model) + caplog.text)


@each_wire
def test_no_secret_shows_of_what_went_well(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(wire, Reply(sse(*wire.turn))) as (server, _):
        model = wire.model(with_password(server.url))
        events = ask(model, options=options())

    message = message_of(events)
    assert message.error is None
    assert_hidden(everything(events, message, model) + caplog.text)
    assert any(isinstance(event, TextDeltaEvent) for event in events)


@each_wire
@pytest.mark.parametrize("case", ["401", "malformed data", "an error in the stream", "reset"])
def test_no_secret_shows_in_a_run(wire: Wire, case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[Any] = []
    with served(wire, REPLIES[case]) as (server, _):
        config = AgentLoopConfig(
            model=wire.model(with_password(server.url)), api_key=KEY, max_retries=1, headers={"X-Api-Token": KEY}
        )
        messages = run_agent_loop([UserMessage("hi")], AgentContext(), config, events.append)

    seen = [repr(config), *map(repr, messages), *(json.dumps(message.to_dict()) for message in messages)]
    seen += [repr(event) + json.dumps(event.to_dict()) for event in events]
    assert messages[-1].stop_reason == "error"  # type: ignore[union-attr]
    assert_hidden("\n".join(seen) + caplog.text)


@each_wire
def test_a_key_that_an_excerpt_cuts_in_half_does_not_show_by_half(wire: Wire) -> None:
    """What is quoted of a long text is cut to a length; the key is struck out before that."""
    for length in range(150, 210, 3):
        reply = Reply(b"data: " + b"x" * length + KEY.encode() + b"\n\n")
        with served(wire, reply) as (_, model):
            message = message_of(ask(model, options=options()))

        assert "SECRET" not in str(message.error_message), length


@pytest.mark.parametrize("text", [f"{{{KEY}", f"[{KEY}"])
def test_a_failure_to_read_json_holds_no_exception_that_holds_the_text(text: str) -> None:
    for read in (lambda: Incoming([text.encode()]).json(), lambda: Incoming([]).data(text)):
        with pytest.raises(RequestFailed) as failed:
            read()

        assert failed.value.__context__ is None
        assert failed.value.__cause__ is None
