"""Neither the key nor a password of a URL shows in anything that comes of a request."""

import base64
import json
import logging
import pickle
import traceback
from collections.abc import Callable

import pytest
import requests

from agentcore import StreamOptions
from agentcore.providers._failures import Redactor, error_from_payload
from agentcore.providers._http import HttpRequest
from agentcore.testing.sse_server import Cut, Reply, Request, Reset, SseServer, Stall, json_reply, sse
from tests.providers.http_support import KEY, Outcome, fetch

PASSWORD = "hidden-word"
HEADERS = {"Authorization": f"Bearer {KEY}", "x-api-key": f"{KEY}-2", "x-goog-api-key": f"{KEY}-3"}


def echo(request: Request) -> Reply:
    """Answer with all that the request held, as a badly made server does."""
    text = f"bad request: {dict(request.headers.items())} {request.path}"
    return json_reply({"error": {"message": text, "type": KEY, "code": f"{KEY}-2"}}, 400, {"x-request-id": KEY})


def everything(outcome: Outcome) -> str:
    """Return all that a person, a log or a file may see of it."""
    failure = outcome.failure
    parts = [repr(outcome), repr(outcome.error), json.dumps(outcome.error.to_dict() if outcome.error else None)]
    parts += [repr(event) + str(event.to_dict()) for event in outcome.retries]
    if failure is not None:
        parts += ["".join(traceback.format_exception(failure)), str(failure), repr(failure)]
        parts += [repr(pickle.dumps(outcome.error)), repr(failure.args), repr(failure.__dict__)]
    return "\n".join(parts)


REPLIES: dict[str, Reply | Callable[[Request], Reply]] = {
    "echoed": echo,
    "plain error": json_reply({"error": "no"}, 500, {"retry-after-ms": "1"}),
    "not HTTP": Reply([b"hello\r\n\r\n", Cut()], status=None),
    "reset": Reply([Reset()], status=None),
    "cut": Reply([b"one", Cut()]),
    "silence": Reply([b"one", Stall()]),
    "redirect": Reply(b"", status=302, headers={"Location": f"http://joe:{PASSWORD}@127.0.0.1/?key={KEY}"}),
    "not compressed": Reply([b"plain text"], headers={"Content-Encoding": "gzip"}),
    "fine": Reply(sse({"n": 1})),
}


@pytest.mark.parametrize("session", [False, True], ids=["ours", "a session's"])
@pytest.mark.parametrize("case", REPLIES)
def test_no_secret_shows_whatever_happens(
    case: str, session: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("agentcore.providers._retry.FIRST_DELAY", 0.001)
    with SseServer(REPLIES[case]) as server:
        url = server.url.replace("//", f"//joe:{PASSWORD}@") + "/v1"
        options = StreamOptions(idle_timeout=0.2, api_key=KEY, session=requests.Session() if session else None)
        outcome = fetch(url, options, headers=HEADERS)

        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert (outcome.error is None) == (case == "fine")
    seen = everything(outcome) + caplog.text
    assert KEY not in seen
    assert PASSWORD not in seen


@pytest.mark.parametrize(
    "url",
    [f"http://joe:{PASSWORD}@127.0.0.1:1/v1", f"http://joe:{PASSWORD}@127.0.0.1:99999/", f"htp://joe:{PASSWORD}@x/"],
)
def test_no_secret_shows_when_nothing_could_be_sent(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    outcome = fetch(url, StreamOptions(max_retries=0), headers=HEADERS)

    assert outcome.error is not None
    seen = everything(outcome) + caplog.text
    assert KEY not in seen
    assert PASSWORD not in seen


def test_a_failure_holds_no_other_exception_and_so_no_request() -> None:
    """An exception of requests holds the request, and that the headers; a crash reporter would write them down."""
    for reply in (REPLIES["cut"], REPLIES["reset"], REPLIES["silence"], REPLIES["plain error"]):
        with SseServer(reply) as server:
            failure = fetch(server.url, StreamOptions(idle_timeout=0.2, max_retries=0)).failure

        assert failure is not None
        assert failure.__context__ is None
        assert failure.__cause__ is None


def test_what_the_caller_was_handling_does_not_pass_for_the_cause() -> None:
    with SseServer(Reply([Cut()], status=None)) as server:
        try:
            raise TimeoutError("something else altogether")
        except TimeoutError:
            error = fetch(server.url, StreamOptions(max_retries=0)).error

    assert error.kind == "connection"


def test_a_request_shows_where_it_goes_and_no_secret() -> None:
    request = HttpRequest(f"https://joe:{PASSWORD}@models.example:8443/v1/x?key={KEY}", HEADERS, {"prompt": "private"})

    assert repr(request) == (
        "HttpRequest(url=https://models.example:8443/v1/x, headers=<Authorization, x-api-key, x-goog-api-key>)"
    )


def test_no_connection_is_made_but_to_the_server_that_was_named() -> None:
    with SseServer(Reply(sse("[DONE]"))) as server, SseServer(Reply(b"x")) as bystander:
        fetch(server.url)

        assert len(server.connections) == 1
        assert bystander.connections == ()


def test_only_what_is_long_enough_to_be_a_secret_is_struck_out() -> None:
    redact = Redactor(
        "http://ollama@host", {"Authorization": "Bearer ollama", "x-api-key": "abcdefgh", "Accept": "text/plain"}
    )

    assert redact("ollama says text/plain, abcdefgh and abcdefg") == "ollama says text/plain, *** and abcdefg"
    assert "abcdefgh" not in repr(redact)


def test_a_password_is_struck_out_however_it_is_written() -> None:
    redact = Redactor("http://joe:p%40ssword1@host/")

    assert redact("p%40ssword1 p@ssword1 am9lOnBAc3N3b3JkMQ==") == "*** *** ***"


@pytest.mark.parametrize("blank", ["\n", "\r\n", " ", "\t"], ids=repr)
@pytest.mark.parametrize("name", ["Authorization", "x-api-key"])
def test_a_key_with_white_space_around_it_is_struck_out_without_that(name: str, blank: str) -> None:
    scheme = "Bearer " if name == "Authorization" else ""
    with SseServer(echo) as server:
        outcome = fetch(server.url, headers={name: f"{scheme}{KEY}{blank}"})

        assert server.requests[0].headers[name] == scheme + KEY
    assert KEY not in everything(outcome)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda session: session.headers.update({"X-Api-Key": f"{KEY}-own"}),
        lambda session: session.headers.update({b"X-Api-Key": f"{KEY}-own".encode()}),
        lambda session: setattr(session, "auth", ("joe", f"{KEY}-own")),
        lambda session: setattr(session, "params", {"api_key": f"{KEY}-own"}),
    ],
    ids=["header", "header of bytes", "auth", "parameter"],
)
def test_what_a_session_of_the_users_adds_is_struck_out_too(prepare: Callable[[requests.Session], None]) -> None:
    def echo_decoded(request: Request) -> Reply:
        basic = request.headers.get("authorization", "").partition("Basic ")[2]
        text = f"{dict(request.headers.items())} {request.path} {base64.b64decode(basic)!r}"
        return json_reply({"error": text}, 401)

    with requests.Session() as session, SseServer(echo_decoded) as server:
        prepare(session)
        outcome = fetch(server.url, StreamOptions(session=session), headers={"x-goog-api-key": f"{KEY}-ours"})

        sent = f"{server.requests[0].headers.items()} {server.requests[0].path}"
    assert "-own" in sent or "Basic " in sent
    assert outcome.error is not None
    assert outcome.error.status == 401
    assert KEY not in everything(outcome)


def test_a_key_in_the_query_of_a_url_is_struck_out_and_a_version_is_not() -> None:
    redact = Redactor("http://host/v1?api-version=2026-01-01&subscription-key=a%2Bbcdefgh+i&code")

    assert redact("2026-01-01 a%2Bbcdefgh+i a+bcdefgh i") == "2026-01-01 *** ***"


@pytest.mark.parametrize("value", ["Basic !", "Basic", "Basic 4pyF/w=="])
def test_a_header_that_is_only_called_basic_is_struck_out_as_it_is(value: str) -> None:
    assert Redactor("", {"Authorization": f"{value} {KEY}"})(f"{value} {KEY}") == "***"


def test_an_error_inside_a_response_passes_through_the_redactor() -> None:
    info = error_from_payload({"error": {"message": f"your key {KEY}", "code": KEY}}, Redactor("", HEADERS))

    assert info.message == "***: your key ***"
    assert info.code == "***"


def test_the_reason_of_a_retry_passes_through_the_redactor() -> None:
    def busy(request: Request) -> Reply:
        return json_reply(
            {"error": {"message": f"busy, {request.headers['authorization']}"}}, 503, {"retry-after-ms": "1"}
        )

    with SseServer(busy) as server:
        outcome = fetch(server.url, headers=HEADERS)

    assert {event.reason for event in outcome.retries} == {"HTTP 503: busy, ***"}
