"""The test server sends what it is told, piece by piece, fails as it is told, and notices what clients do."""

import http.client
import json
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from agentcore.testing.proxy_server import ProxyServer
from agentcore.testing.sse_server import Cut, Gate, Reply, Request, Reset, SseServer, Stall, json_reply, sse


@contextmanager
def client_of(server: SseServer) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection(server.host, server.port, timeout=10)
    try:
        yield client
    finally:
        client.close()


def raw_answer(server: SseServer, size: int | None = None) -> bytes:
    """Send a request by hand, return what comes back until the server closes, or that many bytes."""
    with socket.create_connection((server.host, server.port), timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while size is None or len(received) < size:
            data = sock.recv(65536)
            if not data:
                break
            received += data
        return received


def test_pieces_become_chunks_of_exactly_their_bytes() -> None:
    with SseServer(Reply([b"data: 1\n", b"\n", "é"], headers={"X-Extra": "1"})) as server:
        expected = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nX-Extra: 1\r\n\r\n"
            b"8\r\ndata: 1\n\r\n1\r\n\n\r\n2\r\n\xc3\xa9\r\n0\r\n\r\n"
        )

        assert raw_answer(server, len(expected)) == expected


def test_a_reply_with_a_length_or_an_end_is_framed_that_way() -> None:
    replies = [
        Reply([b"ab", b"c"], framing="length"),
        Reply([b"ab", b"c"], framing="close", headers={"content-type": None}),
    ]
    with SseServer(replies) as server:
        length = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 3\r\n\r\nabc"
        assert raw_answer(server, len(length)) == length
        assert raw_answer(server) == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"


def test_a_reply_without_a_status_is_sent_as_it_is() -> None:
    with SseServer(Reply(b"SSH-2.0-no\r\n", status=None)) as server:
        assert raw_answer(server) == b"SSH-2.0-no\r\n"


def test_the_status_and_headers_of_a_reply_are_sent() -> None:
    with SseServer(json_reply({"a": "ü"}, 429, {"Retry-After": "7"})) as server, client_of(server) as client:
        client.request("GET", "/")
        response = client.getresponse()

        assert (response.status, response.reason) == (429, "Too Many Requests")
        assert response.headers["Retry-After"] == "7"
        assert response.headers.get_all("Content-Type") == ["application/json"]
        assert json.loads(response.read()) == {"a": "ü"}


def test_a_stalled_reply_goes_on_when_its_gate_opens() -> None:
    gate = Gate()
    with SseServer(Reply([b"one", Stall(gate), b"two"])) as server, client_of(server) as client:
        client.request("GET", "/")
        response = client.getresponse()

        assert response.read1() == b"one"
        gate.open()
        assert response.read() == b"two"


def test_a_reply_is_held_back_headers_and_all_until_its_gate_opens() -> None:
    gate = Gate()
    with SseServer(Reply(b"x", hold=gate)) as server, client_of(server) as client:
        client.request("GET", "/")
        server.wait_for_request()
        client.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.sock.recv(1, socket.MSG_PEEK)
        client.sock.settimeout(10)
        gate.open()

        assert client.getresponse().read() == b"x"


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_cut_reply_ends_before_its_framing_does(framing: str) -> None:
    reply = Reply([b"one", Cut(), b"two"], framing=framing)
    with SseServer(reply) as server, client_of(server) as client:
        client.request("GET", "/")
        with pytest.raises(http.client.IncompleteRead) as caught:
            client.getresponse().read()

        assert caught.value.partial == b"one"
        assert server.connections[0].closed.wait()
        assert server.connections[0].closed_by == "server"


def test_a_reset_reply_is_a_reset_for_the_client() -> None:
    gate = Gate()
    with SseServer(Reply([b"one", Stall(gate), Reset()])) as server, client_of(server) as client:
        client.request("GET", "/")
        response = client.getresponse()
        assert response.read1() == b"one"
        gate.open()

        with pytest.raises(ConnectionResetError):
            response.read()


def test_requests_are_recorded_with_all_that_was_sent() -> None:
    with SseServer(Reply(b"ok")) as server, client_of(server) as client:
        client.request("POST", "/v1/x?y=1", json.dumps({"a": [1]}), {"Authorization": "Bearer k", "X-Two": "b"})
        client.getresponse().read()
        client.request("PUT", "/chunks", iter([b"ab", b"c"]), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
        client.getresponse().read()

        first, second = server.requests
        assert (first.method, first.path, first.json()) == ("POST", "/v1/x?y=1", {"a": [1]})
        assert (first.headers["authorization"], first.headers.get("x-two")) == ("Bearer k", "b")
        assert "k" not in repr(first).replace("closed", "")
        assert (second.method, second.body) == ("PUT", b"abc")


def test_connections_are_counted_apart_from_requests() -> None:
    with SseServer(Reply(b"ok")) as server:
        for _ in range(2):
            with client_of(server) as client:
                for _ in range(3):
                    client.request("GET", "/")
                    client.getresponse().read()

        assert len(server.requests) == 6
        assert len(server.connections) == 2
        assert [request.connection.number for request in server.requests] == [1, 1, 1, 2, 2, 2]


def test_a_client_that_closes_while_the_server_stalls_is_noticed() -> None:
    with SseServer(Reply([b"one", Stall()])) as server:
        with client_of(server) as client:
            client.request("GET", "/")
            assert client.getresponse().read1() == b"one"
            [connection] = server.connections
            assert not connection.closed.is_open

        assert connection.closed.wait()
        assert connection.closed_by == "client"
        assert connection.closed_at is not None


def test_a_client_that_closes_between_requests_is_noticed() -> None:
    with SseServer(Reply(b"ok")) as server:
        with client_of(server) as client:
            client.request("GET", "/")
            client.getresponse().read()

        assert server.connections[0].closed.wait()
        assert server.connections[0].closed_by == "client"


def test_a_client_that_sends_more_during_a_stall_is_still_there() -> None:
    gate = Gate()
    with (
        SseServer([Reply([Stall(gate), b"1"], framing="length"), Reply(b"2", framing="close")]) as server,
        socket.create_connection((server.host, server.port), timeout=10) as sock,
    ):
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        server.wait_for_request()
        sock.sendall(b"GET /2 HTTP/1.1\r\n\r\n")
        gate.open()
        server.wait_for_request(2)

        assert server.requests[1].path == "/2"


def test_replies_are_used_in_order_and_one_too_many_is_told() -> None:
    def second(request: Request) -> Reply:
        return json_reply({"path": request.path})

    with SseServer([Reply(b"first"), second]) as server, client_of(server) as client:
        answers = []
        for path in ("/1", "/2", "/3"):
            client.request("GET", path)
            response = client.getresponse()
            answers.append((response.status, response.read().decode()))

    assert answers[:2] == [(200, "first"), (200, '{"path": "/2"}')]
    assert answers[2][0] == 410
    assert "2 replies were given, and this is request 3" in answers[2][1]


def test_a_function_that_raises_is_an_error_reply_and_kept() -> None:
    def broken(request: Request) -> Reply:
        raise LookupError("no idea")

    with SseServer(broken) as server, client_of(server) as client:
        client.request("GET", "/")
        assert client.getresponse().status == 500

    assert [repr(error) for error in server.errors] == ["LookupError('no idea')"]


def test_waiting_for_a_request_that_does_not_come_times_out() -> None:
    with SseServer(Reply(b"ok")) as server, pytest.raises(TimeoutError, match=r"0 requests after 0\.05 s, not 1"):
        server.wait_for_request(timeout=0.05)


def test_https_is_spoken_with_a_context_of_the_test(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    with SseServer(Reply([b"one", Stall()]), tls=context) as server:
        assert server.url.startswith("https://127.0.0.1:")
        response = urllib.request.urlopen(server.url, context=trusting, timeout=10)
        assert response.read1() == b"one"
        response.close()

        assert server.connections[0].closed.wait()
        assert server.connections[0].closed_by == "client"


def test_leaving_the_block_ends_every_connection_and_thread(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    socks = []
    with SseServer(Reply([b"x", Stall()])) as server, SseServer(Reply(b"x"), tls=context) as tls_server:
        for target, first in [
            (server, b""),
            (server, b"GET /half"),
            (server, b"GET / HTTP/1.1\r\n\r\n"),
            (tls_server, b""),
        ]:
            sock = socket.create_connection((target.host, target.port), timeout=10)
            sock.sendall(first)
            socks.append(sock)
        server.wait_for_request()
        while len(server.connections) + len(tls_server.connections) < 4:
            threading.Event().wait(0.01)

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("agentcore-testing-")]
    for sock in socks:
        with sock:
            while sock.recv(65536):
                pass
    assert [connection.closed_by for connection in server.connections] == ["server"] * 3


def test_payloads_are_rendered_as_events() -> None:
    assert sse({"a": "é"}, "[DONE]", ("ping", {}), "two\nlines") == (
        'data: {"a": "é"}\n\ndata: [DONE]\n\nevent: ping\ndata: {}\n\ndata: two\ndata: lines\n\n'.encode()
    )


def test_only_pieces_are_taken() -> None:
    with pytest.raises(TypeError, match="a piece is bytes, a str, a Stall, a Cut or a Reset, not int"):
        Reply([b"x", 7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="framing"):
        Reply(framing="magic")


def test_a_gate_wakes_all_who_wait_and_stays_open() -> None:
    gate = Gate()
    results = []
    threads = [threading.Thread(target=lambda: results.append(gate.wait(10))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert not gate.wait(0.01)
    gate.open()
    for thread in threads:
        thread.join(10)

    assert results == [True] * 5
    assert gate.wait(0)
    assert gate.is_open


def test_a_proxy_tunnels_and_forwards_and_remembers_both(tmp_path: Path) -> None:
    with SseServer(Reply(b"ok")) as server, ProxyServer() as proxy:
        forwarded = http.client.HTTPConnection(proxy.host, proxy.port, timeout=10)
        forwarded.request("GET", f"{server.url}/a/b?c", headers={"Proxy-Authorization": "x"})
        assert forwarded.getresponse().read() == b"ok"
        forwarded.close()
        tunnelled = http.client.HTTPConnection(proxy.host, proxy.port, timeout=10)
        tunnelled.set_tunnel(server.host, server.port)
        tunnelled.request("POST", "/d", b"body")
        assert tunnelled.getresponse().read() == b"ok"
        tunnelled.close()

        assert [request.path for request in server.requests] == ["/a/b?c", "/d"]
        assert server.requests[1].body == b"body"
        assert [(request.method, request.target) for request in proxy.requests] == [
            ("GET", f"{server.url}/a/b?c"),
            ("CONNECT", f"127.0.0.1:{server.port}"),
        ]
        assert proxy.requests[0].headers["proxy-authorization"] == "x"


def test_a_client_that_leaves_its_proxy_leaves_the_server() -> None:
    with SseServer(Reply([b"one", Stall()])) as server, ProxyServer() as proxy:
        client = http.client.HTTPConnection(proxy.host, proxy.port, timeout=10)
        client.request("GET", f"{server.url}/")
        response = client.getresponse()
        assert response.read1() == b"one"
        client.close()
        response.close()

        assert server.connections[0].closed.wait()
        assert server.connections[0].closed_by == "client"


def test_a_proxy_can_hold_a_connection_back() -> None:
    gate = Gate()
    with SseServer(Reply(b"ok")) as server, ProxyServer(hold=gate) as proxy:
        client = http.client.HTTPConnection(proxy.host, proxy.port, timeout=10)
        client.request("GET", f"{server.url}/")
        assert not gate.wait(0.02)
        assert server.connections == ()
        gate.open()

        assert client.getresponse().read() == b"ok"
        client.close()
