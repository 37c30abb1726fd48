"""Failed requests are sent again in one place, when that may help, after the wait that was asked for, visibly."""

import contextlib
import email.utils
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import RequestRetryEvent, StreamOptions
from agentcore.providers import _retry
from agentcore.providers._http import RequestFailed
from agentcore.providers._retry import asked_delay, backoff
from agentcore.testing.sse_server import Cut, Gate, Reply, Reset, SseServer, Stall, json_reply, sse
from tests.providers.http_support import fetch, opened

NOW = {"retry-after-ms": "1"}
OK = Reply(sse("[DONE]"))


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "FIRST_DELAY", 0.002)


# --- which failures are tried again ---


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529, 599])
def test_a_status_that_may_pass_is_tried_again(status: int) -> None:
    with SseServer([json_reply({"error": {"message": "busy", "type": "t"}}, status, NOW), OK]) as server:
        outcome = fetch(server.url)

    assert outcome.error is None
    assert outcome.retries == [RequestRetryEvent(1, 0.001, f"HTTP {status} t: busy")]


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 410, 413, 415, 418, 422, 425, 431, 451, 304])
def test_a_status_that_will_not_pass_is_not_tried_again(status: int) -> None:
    with SseServer(json_reply({"error": {"message": "overloaded, rate limit, try again"}}, status, NOW)) as server:
        outcome = fetch(server.url)

        assert outcome.error.status == status
        assert outcome.retries == []
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429),
        ({"error": {"message": "x", "type": "insufficient_quota", "code": None}}, 429),
        ({"error": {"message": "Insufficient credits"}}, 402),
        ({"error": {"code": 429, "message": "Quota exceeded for metric x", "status": "RESOURCE_EXHAUSTED"}}, 429),
    ],
)
def test_an_exhausted_quota_is_not_tried_again(body: object, status: int) -> None:
    with SseServer(json_reply(body, status)) as server:
        outcome = fetch(server.url)

        assert outcome.error.kind == "quota"
        assert len(server.requests) == 1


def test_a_quota_that_says_when_it_is_refilled_is_tried_again() -> None:
    body = {
        "error": {
            "code": 429,
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.001s"}],
        }
    }
    with SseServer([json_reply(body, 429), json_reply([body], 429), OK]) as server:
        outcome = fetch(server.url)

    assert outcome.error is None
    assert [event.delay for event in outcome.retries] == [0.001, 0.001]


@contextmanager
def refusing_port() -> Iterator[str]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_a_refused_connection_is_tried_again_and_then_told() -> None:
    with refusing_port() as url:
        outcome = fetch(url)

    host = url.removeprefix("http://")
    assert [event.attempt for event in outcome.retries] == [1, 2]
    assert {event.reason for event in outcome.retries} == {f"no connection to {host}: Connection refused"}
    assert (outcome.error.kind, outcome.error.message) == ("connection", f"no connection to {host}: Connection refused")


def test_a_server_that_comes_up_meanwhile_is_reached() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

        def start(event: RequestRetryEvent) -> None:
            if event.attempt == 1:
                listener.listen()
                threading.Thread(target=serve, daemon=True).start()

        with opened(f"http://127.0.0.1:{listener.getsockname()[1]}", on_retry=start) as response:
            assert b"".join(response.blocks()) == b"ok"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (Reply([Reset()], status=None), "no answer from {}: Connection reset by peer"),
        (Reply([Cut()], status=None), "no answer from {}: the server closed the connection"),
        (Reply([b"SSH-2.0-no\r\n\r\n", Cut()], status=None), "no answer from {}: what came is not HTTP"),
        (Reply([Cut()]), "the response of {} broke off: the server closed the connection"),
        (
            Reply([Cut()], framing="length", headers={"Content-Length": "9"}),
            "the response of {} broke off: the server closed the connection",
        ),
    ],
    ids=["reset", "closed", "not HTTP", "cut after the headers", "cut before a promised body"],
)
def test_a_connection_that_breaks_before_the_body_is_tried_again(first: Reply, reason: str) -> None:
    with SseServer([first, OK]) as server:
        outcome = fetch(server.url)

    assert outcome.body == sse("[DONE]")
    assert [event.reason for event in outcome.retries] == [reason.format(server.url.removeprefix("http://"))]


@pytest.mark.parametrize(
    ("end", "reason"),
    [(Reset(), "Connection reset by peer"), (Cut(), "the server closed the connection")],
    ids=["reset", "cut"],
)
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_nothing_is_tried_again_once_a_byte_of_the_body_was_given(end: Reset | Cut, reason: str, framing: str) -> None:
    gate = Gate()
    headers = {"Content-Length": "99"} if framing == "length" else {}
    with SseServer([Reply([b"one", Stall(gate), end], framing=framing, headers=headers), OK]) as server:
        blocks = []
        with pytest.raises(RequestFailed) as caught, opened(server.url, on_retry=blocks.append) as response:
            for block in response.blocks():
                blocks.append(block)
                gate.open()

        assert blocks == [b"one"]
        assert caught.value.error.kind == "connection"
        assert str(caught.value) == f"the response of {server.url.removeprefix('http://')} broke off: {reason}"
        assert len(server.requests) == 1


def test_a_reset_of_a_body_without_a_length_is_no_end() -> None:
    gate = Gate()
    with (
        SseServer([Reply([b"one", Stall(gate), Reset()], framing="close")]) as server,
        opened(server.url) as response,
        pytest.raises(RequestFailed, match="broke off: Connection reset by peer"),
    ):
        for _ in response.blocks():
            gate.open()


def test_a_silent_stream_ends_with_the_idle_timeout_and_is_not_tried_again() -> None:
    with SseServer(Reply([sse({"n": 1}), Stall()])) as server:
        outcome = fetch(server.url, StreamOptions(idle_timeout=0.1))

        assert outcome.body == sse({"n": 1})
        assert outcome.error.kind == "timeout"
        assert outcome.error.message == f"nothing came from {server.url.removeprefix('http://')} for 0.1 s"
        assert server.connections[0].closed.wait(2)
        assert len(server.requests) == 1


def test_a_reader_can_shorten_its_patience() -> None:
    with SseServer(Reply([b"one", Stall()])) as server, opened(server.url) as response:
        blocks = response.blocks()
        assert next(blocks) == b"one"
        response.limit_silence(0.1)
        with pytest.raises(RequestFailed) as caught:
            next(blocks)

    assert caught.value.error.kind == "timeout"
    assert caught.value.error.message.endswith(" for 0.1 s")


@pytest.mark.parametrize("reply", [Reply([Stall()], status=None), Reply([Stall()])], ids=["headers", "first byte"])
def test_silence_before_the_body_ends_with_the_idle_timeout_and_is_not_tried_again(reply: Reply) -> None:
    with SseServer(reply) as server:
        outcome = fetch(server.url, StreamOptions(idle_timeout=0.1))

        assert outcome.error.kind == "timeout"
        assert (outcome.retries, len(server.requests)) == ([], 1)


def test_comments_count_as_activity() -> None:
    # Each gate opens by itself after most of the idle timeout; all of them together take several times as long.
    with SseServer(lambda request: Reply([b": ping\n\n", *slow_pings(), sse("[DONE]")])) as server:
        outcome = fetch(server.url, StreamOptions(idle_timeout=0.5))

    assert outcome.error is None
    assert outcome.body.endswith(sse("[DONE]"))


def slow_pings() -> Iterator[object]:
    for number in range(1, 8):
        gate = Gate()
        timer = threading.Timer(0.15 * number, gate.open)
        timer.daemon = True
        timer.start()
        yield Stall(gate)
        yield b": ping\n\n"


# --- how often, and who else ---


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_a_server_that_is_always_overloaded_is_asked_once_more_than_there_are_retries(retries: int) -> None:
    with SseServer(json_reply({"error": {"message": "busy"}}, 503, NOW)) as server:
        outcome = fetch(server.url, StreamOptions(max_retries=retries))

        assert len(server.requests) == retries + 1
        assert [event.attempt for event in outcome.retries] == list(range(1, retries + 1))
        assert outcome.error.kind == "overloaded"


def test_every_request_has_its_own_count() -> None:
    replies = [json_reply({}, 503, NOW), json_reply({}, 503, NOW), OK] * 4
    with SseServer(replies) as server:
        outcomes = [fetch(server.url) for _ in range(4)]

    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert [len(outcome.retries) for outcome in outcomes] == [2] * 4


def test_the_event_comes_before_the_wait() -> None:
    seen = []
    with SseServer([json_reply({}, 503, {"retry-after-ms": "200"}), OK]) as server:
        opened(server.url, on_retry=lambda event: seen.append((len(server.requests), event.delay))).close()

        assert seen == [(1, 0.2)]
        assert len(server.requests) == 2


# --- how long ---


def test_the_wait_that_was_asked_for_is_kept() -> None:
    with SseServer([json_reply({}, 429, {"Retry-After": "1"}), OK]) as server:
        start = time.monotonic()
        outcome = fetch(server.url)

    assert outcome.error is None
    assert [event.delay for event in outcome.retries] == [1.0]
    assert time.monotonic() - start >= 1.0


@pytest.mark.parametrize("headers", [{"Retry-After": "61"}, {"retry-after-ms": "60001"}])
def test_a_wait_that_is_too_long_fails_at_once_and_is_told(headers: dict[str, str]) -> None:
    with SseServer(json_reply({"error": {"message": "slow down"}}, 429, headers)) as server:
        outcome = fetch(server.url)

        assert len(server.requests) == 1
    asked = outcome.error.retry_after
    assert outcome.retries == []
    assert (
        f"it asks to wait {asked:g} s, longer than the 60 s that `max_retry_delay_ms` allows" in outcome.error.message
    )


def test_the_longest_wait_can_be_set() -> None:
    with SseServer(
        [json_reply({}, 503, {"retry-after-ms": "30"}), json_reply({}, 503, {"retry-after-ms": "30"}), OK]
    ) as server:
        assert fetch(server.url, StreamOptions(max_retry_delay_ms=29)).error.retry_after == 0.03
        assert fetch(server.url, StreamOptions(max_retry_delay_ms=None)).error is None


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, None, 7.0),
        ({"retry-after": " 1.5 "}, None, 1.5),
        ({"retry-after": "0"}, None, 0.0),
        ({"retry-after": "3", "retry-after-ms": "250"}, None, 0.25),
        ({"retry-after": "3", "retry-after-ms": "soon"}, None, 3.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, None, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, None, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None, 0.0),
        ({}, {"error": {"details": [{"a": 1}, {"retryDelay": "48s"}]}}, 48.0),
        ({}, [{"error": {"details": [{"retryDelay": "1.25s"}]}}], 1.25),
        ({"retry-after": "2"}, {"error": {"details": [{"retryDelay": "48s"}]}}, 2.0),
        ({"retry-after": "later"}, {"error": {"details": [{"retryDelay": "48s"}]}}, 48.0),
        ({}, None, None),
    ],
)
def test_every_way_to_ask_for_a_wait_is_read(headers: dict[str, str], body: object, expected: float | None) -> None:
    assert asked_delay(headers, body) == expected


def test_a_date_without_a_clock_of_the_server_is_read_by_ours() -> None:
    date = email.utils.formatdate(time.time() + 100, usegmt=True)

    assert 90 < asked_delay({"retry-after": date}) <= 100


@pytest.mark.parametrize(
    "text",
    ["", "-1", "-0.5", "nan", "inf", "-inf", "1e9", "soon", "1,5", "٣", "99999999999999999999 years", "Wed, 99 Foo"],
)
def test_what_is_no_wait_is_left_to_the_backoff(text: str) -> None:
    assert asked_delay({"retry-after": text, "retry-after-ms": text}) is None
    assert asked_delay({}, {"error": {"details": [{"retryDelay": text}]}}) is None


@given(
    st.text(),
    st.text(),
    st.text(),
    st.recursive(
        st.text() | st.none(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["error", "details", "retryDelay"]), x),
    ),
)
def test_no_answer_asks_for_less_than_nothing(seconds: str, milliseconds: str, date: str, body: object) -> None:
    delay = asked_delay({"retry-after": seconds, "retry-after-ms": milliseconds, "date": date}, body)

    assert delay is None or 0 <= delay < float("inf")


def test_the_backoff_doubles_up_to_a_bound_and_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "FIRST_DELAY", 0.5)
    for attempt, longest in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0), (10**9, 8.0)]:
        delays = [backoff(attempt) for _ in range(200)]
        assert all(longest / 2 <= delay <= longest for delay in delays)
        assert len(set(delays)) > 100


def test_garbage_for_a_wait_backs_off() -> None:
    with SseServer([json_reply({}, 503, {"Retry-After": "-5"}), OK]) as server:
        outcome = fetch(server.url)

    assert outcome.error is None
    assert 0.001 <= outcome.retries[0].delay <= 0.002
