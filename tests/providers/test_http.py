"""One request, one response: what is sent, how the body arrives, and what becomes of the connection."""

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest
import requests

from agentcore import AbortController, StreamOptions
from agentcore.providers import _http
from agentcore.providers._http import HttpRequest, RequestFailed, merge_headers, open_stream
from agentcore.providers._sse import read_events
from agentcore.testing.sse_server import Cut, Gate, Reply, Request, SseServer, Stall, json_reply, sse
from tests.providers.http_support import KEY, MODEL, fetch, opened

FRAMINGS = pytest.mark.parametrize("framing", ["chunked", "length", "close"])


# --- what is sent ---


def test_the_payload_goes_out_as_json_with_the_headers_that_were_given() -> None:
    with SseServer(Reply(b"ok")) as server:
        headers = {"Authorization": f" Bearer {KEY}\n", "user-agent": "mine", "X-None": None}
        outcome = fetch(f"{server.url}/v1/chat", headers=headers, payload={"text": "✅ \ud83d", "n": [1, None]})

        [request] = server.requests
        assert outcome.body == b"ok"
        assert (request.method, request.path) == ("POST", "/v1/chat")
        assert request.json() == {"text": "✅ ?", "n": [1, None]}
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers["content-type"] == "application/json"
        assert request.headers.get_all("user-agent") == ["mine"]
        assert "x-none" not in request.headers
        assert request.headers["content-length"] == str(len(request.body))


def test_a_payload_of_bytes_goes_out_as_it_is() -> None:
    with SseServer(Reply(b"ok")) as server:
        fetch(server.url, payload=b'{ "a":1 }')

        assert server.requests[0].body == b'{ "a":1 }'


def test_headers_merge_without_regard_to_case_and_none_removes_one() -> None:
    merged = merge_headers({"A": "1", "b": "2"}, None, {"a": "3", "B": None, "c": "4"}, {"C": None})

    assert merged == {"a": "3"}


@pytest.mark.parametrize(
    ("url", "headers", "payload", "expected"),
    [
        ("", {}, {}, "`base_url` has to begin with http:// or https://"),
        ("example.org/v1", {}, {}, "`base_url` has to begin with http:// or https://"),
        ("ftp://example.org", {}, {}, "it gives 'ftp://example.org'"),
        ("http://", {}, {}, "`base_url` has to begin with"),
        ("http://user:hidden-password@host:port/", {}, {}, "it gives 'a malformed URL'"),
        ("http://[::1", {}, {}, "it gives 'a malformed URL'"),
        ("http://127.0.0.1", {"Authorization": f"Bearer {KEY}\nX: y"}, {}, "the header 'Authorization' has characters"),
        ("http://127.0.0.1", {"Authorization": f"Bearer {KEY}…"}, {}, "the header 'Authorization' has characters"),
        ("http://127.0.0.1", {"Bad Name": "x"}, {}, "the header 'Bad Name' has characters"),
        ("http://127.0.0.1", {}, {"a": float("nan")}, "the request cannot be written as JSON"),
        ("http://127.0.0.1", {}, {"a": object()}, "the request cannot be written as JSON"),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_before_anything_is(url, headers, payload, expected) -> None:
    stream = open_stream(HttpRequest(url, headers, payload), StreamOptions(), MODEL)

    with pytest.raises(RequestFailed) as caught:
        next(stream)

    assert caught.value.error.kind == "invalid_request"
    assert expected in caught.value.error.message
    assert KEY not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_password_for_the_host_does_not_replace_our_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with SseServer(Reply(b"ok")) as server:
        assert requests.post(server.url, headers={"Authorization": "Bearer x"}, timeout=10).ok
        fetch(server.url)
        fetch(server.url, StreamOptions(session=requests.Session()))

        seen = [request.headers["Authorization"] for request in server.requests]
        assert seen[0].startswith("Basic ")
        assert seen[1:] == [f"Bearer {KEY}"] * 2


def test_a_user_in_the_url_becomes_a_header_unless_there_is_a_key() -> None:
    with SseServer(Reply(b"ok")) as server:
        url = server.url.replace("//", "//user:p%40ss@")
        fetch(url, headers={"X": "y"})
        fetch(url)

        assert server.requests[0].headers["Authorization"] == "Basic dXNlcjpwQHNz"
        assert server.requests[1].headers["Authorization"] == f"Bearer {KEY}"
        assert [request.path for request in server.requests] == ["/", "/"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_is_not_followed(status: int) -> None:
    with SseServer(Reply(b"elsewhere")) as other:
        location = f"{other.url.replace('//', '//user:word@')}/v2?token=t"
        with SseServer(Reply(b"", status=status, headers={"Location": location})) as server:
            outcome = fetch(f"{server.url}/v1")

        assert other.requests == ()
        assert len(server.requests) == 1
        assert outcome.error.kind == "invalid_request"
        assert outcome.error.status == status
        assert f"HTTP {status}: the server redirects to {other.url}/v2; that is not followed" in outcome.error.message
        assert "`base_url`" in outcome.error.message


# --- how the body arrives ---


@FRAMINGS
def test_the_first_event_comes_at_once_in_every_framing(framing: str) -> None:
    gate = Gate()
    reply = Reply([sse({"n": 1}), Stall(gate), sse({"n": 2})], framing=framing)
    with SseServer(reply) as server, opened(server.url) as response:
        events = read_events(response.blocks())
        assert next(events) == ("message", '{"n": 1}')
        gate.open()
        assert list(events) == [("message", '{"n": 2}')]


@FRAMINGS
def test_the_events_are_the_same_in_every_framing_and_cut(framing: str) -> None:
    body = "".join(f'data: {{"text": "✅ 你好 {n}"}}\r\n\r\n' for n in range(50)).encode()
    for size in (1, 7, 100_000):
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        with SseServer(Reply(pieces, framing=framing)) as server:
            outcome = fetch(server.url)
        texts = [json.loads(data)["text"] for _, data in read_events(outcome.blocks)]
        assert texts == [f"✅ 你好 {n}" for n in range(50)]


def gzipped(*parts: bytes) -> list[bytes]:
    """Compress parts so that each can be read when it has come."""
    compressor = zlib.compressobj(wbits=31)
    pieces = [compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*pieces, compressor.flush()]


@FRAMINGS
@pytest.mark.parametrize("hints", [(100,), (102,), (103, 103), (100, 103, 102)], ids=str)
def test_hints_before_the_answer_are_passed_over(hints: tuple[int, ...], framing: str) -> None:
    body = sse({"n": 1}, "[DONE]")
    head, tail = {
        "chunked": (b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)),
        "length": (b"Content-Length: %d" % len(body), body),
        "close": (b"Connection: close", body),
    }[framing]
    before = b"".join(b"HTTP/1.1 %d Soon\r\nLink: </a>\r\nX-Hint: 1\r\n\r\n" % status for status in hints)
    answer = b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (head, tail)
    with SseServer(Reply([before, answer, Cut()], status=None)) as server:
        outcome = fetch(server.url)

    assert outcome.error is None
    assert outcome.response is not None
    assert outcome.response.status == 200
    assert "x-hint" not in outcome.response.headers
    assert b"".join(outcome.blocks) == body


def test_hints_without_an_answer_are_no_answer() -> None:
    with SseServer(Reply([b"HTTP/1.1 103 Early Hints\r\n\r\n", Cut()], status=None)) as server:
        outcome = fetch(server.url, StreamOptions(max_retries=0))

    assert outcome.error is not None
    assert outcome.error.kind == "connection"


@FRAMINGS
def test_a_compressed_body_is_read_as_it_arrives(framing: str) -> None:
    gate = Gate()
    first, second, end = gzipped(sse({"n": 1}), sse({"n": 2}) * 100)
    reply = Reply([first, Stall(gate), second, end], headers={"Content-Encoding": "gzip"}, framing=framing)
    with SseServer(reply) as server, opened(server.url) as response:
        blocks = response.blocks()
        assert next(blocks) == sse({"n": 1})
        gate.open()
        assert b"".join(blocks) == sse({"n": 2}) * 100


def test_a_body_that_is_not_compressed_as_it_says_is_an_error() -> None:
    with SseServer(Reply([b"data: plain\n\n"], headers={"Content-Encoding": "gzip"})) as server:
        outcome = fetch(server.url)

    assert outcome.error.kind == "protocol"
    assert "not compressed in the way its headers say" in outcome.error.message
    assert outcome.retries == []


@FRAMINGS
def test_a_body_without_a_byte_is_a_response(framing: str) -> None:
    with SseServer(Reply([], framing=framing)) as server:
        outcome = fetch(server.url)

    assert (outcome.error, outcome.blocks, outcome.response.status) == (None, [], 200)


def test_status_and_headers_are_there_when_the_response_is() -> None:
    reply = Reply(b"x", status=201, headers={"X-Request-ID": "r", "Content-Type": "Text/Event-Stream; charset=x"})
    with SseServer(reply) as server, opened(server.url) as response:
        assert response.status == 201
        assert response.headers["x-request-id"] == "r"
        assert response.content_type == "text/event-stream"


def test_the_hook_sees_every_response_on_the_calling_thread() -> None:
    seen = []

    def on_response(status, headers, model) -> None:
        seen.append((status, headers.get("x-n"), model, threading.current_thread()))

    replies = [json_reply({}, 503, {"X-N": "1", "retry-after-ms": "1"}), Reply(b"ok", headers={"x-n": "2"})]
    with SseServer(replies) as server:
        assert fetch(server.url, StreamOptions(on_response=on_response)).body == b"ok"

    here = threading.current_thread()
    assert seen == [(503, "1", MODEL, here), (200, "2", MODEL, here)]


def test_a_hook_that_raises_ends_the_request_with_its_exception() -> None:
    def on_response(status, headers, model) -> None:
        raise LookupError("mine")

    with SseServer(Reply([b"x", Stall()])) as server:
        with pytest.raises(LookupError, match="mine"):
            fetch(server.url, StreamOptions(on_response=on_response))

        assert server.connections[0].closed.wait()
        assert server.connections[0].closed_by == "client"


# --- what becomes of the connection ---


@pytest.mark.parametrize("session", [None, "given"])
def test_one_connection_serves_turn_after_turn(session) -> None:
    options = StreamOptions(session=session and requests.Session())
    with SseServer(Reply([sse({"n": 1}), sse("[DONE]")])) as server:
        for _ in range(5):
            fetch(server.url, options)

        assert len(server.requests) == 5
        assert len(server.connections) == 1


def test_one_connection_serves_threads_that_come_and_go() -> None:
    with SseServer(Reply(b"ok")) as server:
        for _ in range(5):
            thread = threading.Thread(target=fetch, args=(server.url,))
            thread.start()
            thread.join(10)

        assert len(server.requests) == 5
        assert len(server.connections) == 1


def test_threads_at_work_at_once_do_not_share_a_connection() -> None:
    gate = Gate()
    outcomes = []

    def reply(request: Request) -> Reply:
        return Reply([request.body, Stall(gate), request.body])

    with SseServer(reply) as server:
        threads = [
            threading.Thread(target=lambda n=n: outcomes.append((n, fetch(server.url, payload=b"%d" % n).body)))
            for n in range(10, 18)
        ]
        for thread in threads:
            thread.start()
        server.wait_for_request(8)
        gate.open()
        for thread in threads:
            thread.join(10)

        assert sorted(outcomes) == [(n, b"%d%d" % (n, n)) for n in range(10, 18)]
        assert len(server.connections) == 8


def test_the_connection_is_kept_though_the_adapter_stops_at_the_terminal_event() -> None:
    with SseServer(Reply([sse({"n": 1}), sse("[DONE]")])) as server:
        for _ in range(3):
            with opened(server.url) as response:
                for _, data in read_events(response.blocks()):
                    if data == "[DONE]":
                        break

        assert len(server.connections) == 1


def test_the_connection_is_kept_after_an_error_response() -> None:
    with SseServer(json_reply({"error": "no"}, 400)) as server:
        for _ in range(3):
            assert fetch(server.url).error.kind == "invalid_request"

        assert len(server.connections) == 1


def test_a_server_that_stays_silent_after_its_terminal_event_loses_the_connection() -> None:
    with SseServer(Reply([sse("[DONE]"), Stall()])) as server:
        with opened(server.url) as response:
            next(read_events(response.blocks()))

        [connection] = server.connections
        assert connection.closed.wait(2)
        assert connection.closed_by == "client"


@pytest.mark.parametrize("way", ["raise", "close", "drop", "drop the generator"])
@FRAMINGS
def test_a_response_that_is_not_read_to_its_end_is_closed(way: str, framing: str) -> None:
    with SseServer(Reply([sse({"n": 1}), Stall(), sse({"n": 2})], framing=framing)) as server:

        def adapter():
            stream = open_stream(HttpRequest(server.url, {}, {}), StreamOptions(), MODEL)
            response = yield from stream
            with response:
                for _, data in read_events(response.blocks()):
                    yield data

        if way == "raise":
            with pytest.raises(ZeroDivisionError), opened(server.url) as response:
                next(response.blocks())
                raise ZeroDivisionError
        elif way == "close":
            events = adapter()
            next(events)
            events.close()
        elif way == "drop":
            response = opened(server.url)
            next(response.blocks())
            del response
            gc.collect()
        else:
            events = adapter()
            next(events)
            del events
            gc.collect()

        [connection] = server.connections
        assert connection.closed.wait(2)
        assert connection.closed_by == "client"


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    # The body is complete; the server closes after it without having said so, as real ones do after some seconds.
    with SseServer(Reply([b"ok", Cut()], framing="length")) as server:
        fetch(server.url)
        assert server.connections[0].closed.wait()

        outcome = fetch(server.url)

        assert (outcome.body, outcome.retries) == (b"ok", [])
        assert len(server.connections) == 2


def test_a_connection_that_was_unused_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(Reply(b"ok")) as server:
        fetch(server.url)
        monkeypatch.setattr(_http, "_SECONDS_KEPT", 0.0)
        fetch(server.url)

        assert len(server.connections) == 2
        assert server.connections[0].closed.wait()


def test_no_more_than_a_few_unused_connections_are_kept() -> None:
    count = 2 * _http._TRANSPORTS_KEPT
    gate = Gate()
    with SseServer(Reply([b"x", Stall(gate)])) as server:
        responses = [opened(server.url) for _ in range(count)]
        gate.open()
        for response in responses:
            assert list(response.blocks()) == [b"x"]
            response.close()

        for connection in server.connections[: count - _http._TRANSPORTS_KEPT]:
            assert connection.closed.wait()
        assert len(_http._kept) == _http._TRANSPORTS_KEPT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_its_own_connection() -> None:
    with SseServer(Reply(b"ok")) as server:
        fetch(server.url)
        child = os.fork()
        if child == 0:
            os._exit(0 if fetch(server.url).body == b"ok" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert fetch(server.url).body == b"ok"

        assert [request.connection.number for request in server.requests] == [1, 2, 1]


def test_a_callback_of_an_ended_request_is_not_left_on_the_signal() -> None:
    controller = AbortController()
    signal = controller.signal
    replies = [Reply(b"ok"), json_reply({}, 400), Reply([b"a", Stall()])]
    with SseServer(replies) as server:
        fetch(server.url, StreamOptions(signal=signal))
        fetch(server.url, StreamOptions(signal=signal))
        opened(server.url, StreamOptions(signal=signal)).close()

    assert not signal._hooks.callbacks


def test_an_abort_after_the_end_does_not_reach_the_next_request_on_the_connection() -> None:
    gate = Gate()
    replies = [Reply([sse("[DONE]")]), Reply([b"one", Stall(gate), b"two"])]
    with SseServer(replies) as server:
        first = AbortController()
        fetch(server.url, StreamOptions(signal=first.signal))
        with opened(server.url) as response:
            blocks = response.blocks()
            assert next(blocks) == b"one"
            first.abort()
            gate.open()
            assert list(blocks) == [b"two"]

        assert len(server.connections) == 1


# --- a session of the user's ---


class CountingAdapter(requests.adapters.HTTPAdapter):
    """An adapter of the user's own class."""

    sent = 0

    def send(self, *args, **kwargs):
        self.sent += 1
        return super().send(*args, **kwargs)


@FRAMINGS
def test_an_adapter_of_the_users_own_class_is_used(framing: str) -> None:
    session = requests.Session()
    adapter = CountingAdapter()
    session.mount("http://", adapter)
    with SseServer(Reply([b"one", b"two"], framing=framing)) as server:
        for _ in range(2):
            assert fetch(server.url, StreamOptions(session=session)).body == b"onetwo"
        session.close()

    assert adapter.sent == 2


def test_an_error_through_an_adapter_of_the_users_own_class_keeps_its_explanation() -> None:
    session = requests.Session()
    session.mount("http://", CountingAdapter())
    with SseServer(json_reply({"error": {"message": "why"}}, 400)) as server:
        assert fetch(server.url, StreamOptions(session=session)).error.message == "HTTP 400: why"
        session.close()


def test_headers_and_auth_of_a_session_are_used() -> None:
    session = requests.Session()
    session.headers["X-Team"] = "seven"
    session.auth = ("user", "pass")
    with SseServer(Reply(b"ok")) as server:
        fetch(server.url, StreamOptions(session=session), headers={"X-Mine": "1"})

        headers = server.requests[0].headers
        assert (headers["x-team"], headers["x-mine"]) == ("seven", "1")
        assert headers["authorization"] == "Basic dXNlcjpwYXNz"


def test_an_own_adapter_that_retries_is_not_stacked_on_ours() -> None:
    session = requests.Session()
    session.mount(
        "http://", requests.adapters.HTTPAdapter(max_retries=requests.adapters.Retry(5, status_forcelist=[503]))
    )
    with SseServer(json_reply({}, 503, {"retry-after-ms": "1"})) as server:
        fetch(server.url, StreamOptions(session=session))

        assert len(server.requests) == 3


# --- how a connection is made ---


def test_a_slow_upload_is_not_taken_for_a_slow_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as sock:
                threading.Event().wait(0.4)  # longer than the connect timeout
                body = b""
                while b" " * 1000 + b"end" not in body[-2000:]:
                    body += sock.recv(1 << 20)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

        thread = threading.Thread(target=serve)
        thread.start()
        options = StreamOptions(connect_timeout=0.1, max_retries=0)
        outcome = fetch(f"http://127.0.0.1:{listener.getsockname()[1]}", options, payload=b" " * 20_000_000 + b"end")
        thread.join(10)

    assert (outcome.error, outcome.body) == (None, b"ok")


def addresses(*ports: int) -> list[tuple[object, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack, SseServer(Reply(b"ok")) as server:
        silent = stack.enter_context(socket.socket())
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        found = addresses(silent.getsockname()[1], server.port)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        outcome = fetch("http://models.example/", StreamOptions(connect_timeout=0.6, max_retries=0))

    assert (outcome.error, outcome.body) == (None, b"ok")


def test_an_address_that_refuses_leaves_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(Reply(b"ok")) as server:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses(1, server.port))
        outcome = fetch("http://models.example/")

    assert (outcome.body, outcome.retries) == (b"ok", [])


@pytest.mark.parametrize(
    "found", [socket.gaierror(socket.EAI_NONAME, "Name or service not known"), UnicodeError("label too long"), []]
)
def test_a_host_without_an_address_is_told(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*args: object, **kwargs: object) -> object:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    outcome = fetch("http://models.example/", StreamOptions(max_retries=0))

    assert outcome.error.kind == "connection"
    assert outcome.error.message.startswith("no connection to models.example: ")
    assert outcome.error.message.endswith(("Name or service not known", "not a host name", "the name has no address"))


def test_a_host_is_found_by_its_name() -> None:
    with SseServer(Reply(b"ok")) as server:
        assert fetch(server.url.replace("127.0.0.1", "localhost")).body == b"ok"


def test_a_host_can_be_an_address_of_version_6() -> None:
    try:
        server = SseServer(Reply(b"ok"), host="::1")
        server.start()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with contextlib.closing(server):
        assert fetch(server.url).body == b"ok"


def test_nothing_is_left_to_warn_about_when_the_interpreter_ends() -> None:
    code = (
        "from agentcore.testing.sse_server import *; from tests.providers.http_support import fetch\n"
        "with SseServer(Reply(b'ok')) as server: print(fetch(server.url).body)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code], cwd=root, capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr) == ("b'ok'\n", "")
