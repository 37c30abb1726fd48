"""An abort ends a request at once, wherever it is, and the server sees the connection close."""

import signal as signals
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from agentcore import AbortController, StreamOptions
from agentcore.providers import _connections
from agentcore.providers._http import RequestFailed
from agentcore.testing.proxy_server import ProxyServer
from agentcore.testing.sse_server import Gate, Reply, SseServer, Stall, json_reply, sse
from tests.providers.http_support import fetch, opened

AT_ONCE = 1.0
"""Seconds; 0.2 is promised, the rest is for a busy machine."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.fixture
def session(authority: trustme.CA, tmp_path: Path) -> Iterator[requests.Session]:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    with requests.Session() as session:
        session.verify = str(file)
        yield session


def aborted_during(act: Callable[[AbortController], object], when: Callable[[], object]) -> tuple[object, float]:
    """Run `act` on a thread, abort when `when` returns; return what came of it and the seconds from abort to end."""
    controller = AbortController()
    results: list[object] = []

    def run() -> None:
        try:
            results.append(act(controller))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    when()
    start = time.monotonic()
    controller.abort("enough")
    thread.join(20)
    assert not thread.is_alive()
    return results[0], time.monotonic() - start


ROUTES = pytest.mark.parametrize("route", ["http", "https", "http by proxy", "https by proxy", "https by TLS proxy"])


@contextmanager
def server_by(
    route: str, reply: Reply, tls: ssl.SSLContext, session: requests.Session
) -> Iterator[tuple[SseServer, requests.Session]]:
    with ExitStack() as stack:
        server = stack.enter_context(SseServer(reply, tls=tls if route.startswith("https") else None))
        if route.endswith("proxy"):
            proxy = stack.enter_context(ProxyServer(tls=tls if route.endswith("TLS proxy") else None))
            session.proxies = {"http": proxy.url, "https": proxy.url}
        yield server, session
        assert not route.endswith("proxy") or len(proxy.requests) == 1


@ROUTES
def test_an_abort_wakes_the_wait_for_headers(route: str, tls: ssl.SSLContext, session: requests.Session) -> None:
    with server_by(route, Reply(hold=Gate()), tls, session) as (server, session):
        outcome, seconds = aborted_during(
            lambda controller: fetch(server.url, StreamOptions(signal=controller.signal, session=session)),
            server.wait_for_request,
        )

        assert (outcome.error.kind, outcome.error.message) == ("aborted", "enough")
        assert outcome.retries == []
        assert seconds < AT_ONCE
        assert server.connections[0].closed.wait(2)
        assert len(server.requests) == 1


@ROUTES
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_an_abort_wakes_a_read_of_the_body(
    route: str, framing: str, tls: ssl.SSLContext, session: requests.Session
) -> None:
    reply = Reply([sse({"n": 1}), Stall(), sse({"n": 2})], framing=framing)
    first = Gate()
    blocks: list[bytes] = []

    with server_by(route, reply, tls, session) as (server, session):

        def act(controller: AbortController) -> None:
            with opened(server.url, StreamOptions(signal=controller.signal, session=session)) as response:
                for block in response.blocks():
                    blocks.append(block)
                    first.open()

        error, seconds = aborted_during(act, first.wait)

        assert isinstance(error, RequestFailed)
        assert (error.error.kind, error.error.message) == ("aborted", "enough")
        assert blocks == [sse({"n": 1})]
        assert seconds < AT_ONCE
        assert server.connections[0].closed.wait(2)
        assert server.connections[0].closed_by == "client"


def test_an_abort_wakes_the_wait_on_a_connection_that_was_kept() -> None:
    with SseServer([Reply(b"ok"), Reply(hold=Gate())]) as server:
        fetch(server.url)
        outcome, seconds = aborted_during(
            lambda controller: fetch(server.url, StreamOptions(signal=controller.signal)),
            lambda: server.wait_for_request(2),
        )

        assert outcome.error.kind == "aborted"
        assert seconds < AT_ONCE
        assert len(server.connections) == 1


def test_an_abort_wakes_the_wait_for_an_error_body() -> None:
    with SseServer(Reply([b'{"error":', Stall()], status=500, framing="length")) as server:
        seen = Gate()
        outcome, seconds = aborted_during(
            lambda controller: fetch(
                server.url, StreamOptions(signal=controller.signal, on_response=lambda *args: seen.open())
            ),
            seen.wait,
        )

        assert outcome.error.kind == "aborted"
        assert seconds < AT_ONCE


def test_an_abort_wakes_an_upload_that_the_server_does_not_take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def accept() -> None:
            accepted.append(listener.accept()[0])
            accepted[0].recv(1)

        outcome, seconds = aborted_during(
            lambda controller: fetch(
                f"http://127.0.0.1:{listener.getsockname()[1]}",
                StreamOptions(signal=controller.signal),
                payload=b" " * 50_000_000,
            ),
            accept,
        )
        accepted[0].close()

    assert outcome.error.kind == "aborted"
    assert seconds < AT_ONCE


def test_an_abort_wakes_a_proxy_that_does_not_connect(tls: ssl.SSLContext, session: requests.Session) -> None:
    with SseServer(Reply(b"x"), tls=tls) as server, ProxyServer(hold=Gate()) as proxy:
        session.proxies = {"https": proxy.url}

        def asked() -> None:
            while not proxy.requests:
                threading.Event().wait(0.01)

        outcome, seconds = aborted_during(
            lambda controller: fetch(server.url, StreamOptions(signal=controller.signal, session=session)), asked
        )

        assert outcome.error.kind == "aborted"
        assert seconds < AT_ONCE


def test_an_abort_wakes_a_tls_handshake_that_is_not_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def accept() -> None:
            accepted.append(listener.accept()[0])
            accepted[0].recv(1)  # the client's first bytes: it waits for ours

        outcome, seconds = aborted_during(
            lambda controller: fetch(
                f"https://127.0.0.1:{listener.getsockname()[1]}", StreamOptions(signal=controller.signal)
            ),
            accept,
        )
        accepted[0].close()

    assert outcome.error.kind == "aborted"
    assert seconds < AT_ONCE


@contextmanager
def full_listener() -> Iterator[str]:
    """A port whose connections are neither taken nor refused."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_an_abort_ends_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = Gate()
    connect = _connections._connect

    def told(*args: Any) -> None:
        connecting.open()
        connect(*args)

    monkeypatch.setattr(_connections, "_connect", told)
    with full_listener() as url:
        outcome, seconds = aborted_during(
            lambda controller: fetch(url, StreamOptions(signal=controller.signal)), connecting.wait
        )

    assert outcome.error.kind == "aborted"
    assert seconds < AT_ONCE


def test_connecting_ends_with_the_connect_timeout() -> None:
    with full_listener() as url:
        outcome = fetch(url, StreamOptions(connect_timeout=0.2, max_retries=0))

    assert outcome.error.kind == "timeout"
    assert outcome.error.message == f"no connection to {url.removeprefix('http://')} within 0.2 s"


@pytest.fixture
def stuck_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Name look-ups that begin and do not end; the gate opens when one has begun."""
    begun, end = Gate(), Gate()

    def getaddrinfo(*args: object, **kwargs: object) -> list[object]:
        begun.open()
        end.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield begun
    end.open()


def test_an_abort_ends_the_search_for_an_address(stuck_resolver: Gate) -> None:
    outcome, seconds = aborted_during(
        lambda controller: fetch("http://models.example/v1", StreamOptions(signal=controller.signal)),
        stuck_resolver.wait,
    )

    assert outcome.error.kind == "aborted"
    assert seconds < AT_ONCE


def test_the_search_for_an_address_ends_with_the_connect_timeout(stuck_resolver: Gate) -> None:
    outcome = fetch("http://models.example/v1", StreamOptions(connect_timeout=0.1, max_retries=0))

    assert outcome.error.kind == "timeout"
    assert outcome.error.message == "no connection to models.example within 0.1 s"


def test_an_abort_ends_the_wait_before_a_retry() -> None:
    with SseServer(json_reply({}, 429, {"Retry-After": "50"})) as server:
        waiting = Gate()
        outcome, seconds = aborted_during(
            lambda controller: fetch_telling(server.url, controller, waiting), waiting.wait
        )

        assert (outcome.error.kind, outcome.error.message) == ("aborted", "enough")
        assert seconds < AT_ONCE
        assert len(server.requests) == 1


def fetch_telling(url: str, controller: AbortController, waiting: Gate) -> object:
    return fetch_with(url, StreamOptions(signal=controller.signal), lambda event: waiting.open())


def fetch_with(url: str, options: StreamOptions, on_retry: Callable[[object], object]) -> object:
    try:
        opened(url, options, on_retry=on_retry).close()
    except RequestFailed as failure:
        return failure
    return None


@contextmanager
def signalled(handler: Callable[..., object], when: Callable[[], object]) -> Iterator[None]:
    """Send this process a signal, for the main thread to handle, when `when` returns."""
    main = threading.get_ident()

    def send() -> None:
        when()
        signals.pthread_kill(main, signals.SIGUSR1)

    before = signals.signal(signals.SIGUSR1, handler)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)
        signals.signal(signals.SIGUSR1, before)


STALLS = pytest.mark.parametrize("reply", [Reply(hold=Gate()), Reply([b"x", Stall()])], ids=["headers", "body"])


def test_ctrl_c_ends_the_wait_before_a_retry() -> None:
    waiting = Gate()
    with SseServer(json_reply({}, 429, {"Retry-After": "50"})) as server:
        with signalled(signals.default_int_handler, waiting.wait), pytest.raises(KeyboardInterrupt):
            fetch_with(server.url, StreamOptions(), lambda event: waiting.open())

        assert len(server.requests) == 1


@STALLS
def test_ctrl_c_ends_a_read_and_closes_the_connection(reply: Reply) -> None:
    with SseServer(reply) as server:
        with signalled(signals.default_int_handler, server.wait_for_request), pytest.raises(KeyboardInterrupt):
            fetch(server.url)

        assert server.connections[0].closed.wait(2)
        assert server.connections[0].closed_by == "client"


@STALLS
def test_an_abort_from_a_signal_handler_ends_the_request(reply: Reply) -> None:
    controller = AbortController()
    with SseServer(reply) as server, signalled(lambda *args: controller.abort("signal"), server.wait_for_request):
        outcome = fetch(server.url, StreamOptions(signal=controller.signal))

    assert (outcome.error.kind, outcome.error.message) == ("aborted", "signal")


def test_a_signal_that_is_aborted_already_sends_nothing() -> None:
    controller = AbortController()
    controller.abort("before")
    with SseServer(Reply(b"ok")) as server:
        outcome = fetch(server.url, StreamOptions(signal=controller.signal))

        assert (outcome.error.kind, outcome.error.message) == ("aborted", "before")
        assert server.connections == ()


def test_an_abort_between_two_blocks_ends_the_body() -> None:
    controller = AbortController()
    gate = Gate()
    with (
        SseServer(Reply([b"one", Stall(gate), b"two"])) as server,
        opened(server.url, StreamOptions(signal=controller.signal)) as response,
    ):
        blocks = response.blocks()
        assert next(blocks) == b"one"
        controller.abort()
        with pytest.raises(RequestFailed) as caught:
            next(blocks)

        assert caught.value.error.kind == "aborted"


def test_an_abort_after_the_last_byte_changes_nothing() -> None:
    controller = AbortController()
    with SseServer(Reply([sse("[DONE]")])) as server:
        with opened(server.url, StreamOptions(signal=controller.signal)) as response:
            assert list(response.blocks()) == [sse("[DONE]")]
            controller.abort()

        assert fetch(server.url).body == sse("[DONE]")


def test_aborts_at_any_moment_leave_the_kept_connections_good() -> None:
    with SseServer(Reply([sse({"n": n}) for n in range(20)])) as server:
        whole = b"".join(sse({"n": n}) for n in range(20))
        for round_number in range(60):
            controller = AbortController()
            timer = threading.Timer(0.0001 * round_number, controller.abort)
            timer.start()
            outcome = fetch(server.url, StreamOptions(signal=controller.signal))
            timer.join()
            assert outcome.error is None or outcome.error.kind == "aborted"
            assert outcome.error is not None or outcome.body == whole
            assert fetch(server.url).body == whole


class OwnAdapter(requests.adapters.HTTPAdapter):
    """An adapter of the user's own class."""


def test_an_abort_wakes_a_read_through_an_adapter_of_the_users_own_class() -> None:
    first = Gate()
    session = requests.Session()
    session.mount("http://", OwnAdapter())
    with SseServer(Reply([b"one", Stall()])) as server:

        def act(controller: AbortController) -> None:
            with opened(server.url, StreamOptions(signal=controller.signal, session=session)) as response:
                for _ in response.blocks():
                    first.open()

        error, seconds = aborted_during(act, first.wait)
        session.close()

        assert isinstance(error, RequestFailed)
        assert error.error.kind == "aborted"
        assert seconds < AT_ONCE
