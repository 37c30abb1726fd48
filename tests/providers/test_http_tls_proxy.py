"""Certificates and proxies: from the environment as requests has them, from a session, and what fails about them."""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import trustme

from agentcore import AbortController, StreamOptions
from agentcore.testing import proxy_server
from agentcore.testing._loopback import ConnectionEnded, LoopbackServer
from agentcore.testing.proxy_server import ProxyServer
from agentcore.testing.sse_server import Cut, Gate, Reply, SseServer, json_reply, sse
from tests.providers.http_support import KEY, fetch

NO_RETRY = {"max_retries": 0}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> str:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return str(file)


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def https(tls: ssl.SSLContext) -> Iterator[SseServer]:
    with SseServer(Reply([sse({"n": 1}), sse("[DONE]")]), tls=tls) as server:
        yield server


# --- certificates ---


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_private_authority_of_the_environment_is_trusted(
    variable: str, https: SseServer, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, bundle)
    for _ in range(3):
        assert fetch(https.url).body == sse({"n": 1}, "[DONE]")

    assert len(https.connections) == 1


def test_an_unknown_authority_is_told_and_not_tried_again(https: SseServer) -> None:
    outcome = fetch(https.url)

    assert outcome.error.kind == "connection"
    assert f"the certificate of {https.url.removeprefix('https://')} is not trusted: " in outcome.error.message
    assert outcome.retries == []
    assert https.requests == ()


def test_a_certificate_for_another_host_is_told(
    authority: trustme.CA, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("models.example").configure_cert(context)
    with SseServer(Reply(b"x"), tls=context) as server:
        outcome = fetch(server.url)

    assert "is not trusted: IP address mismatch" in outcome.error.message


def test_trust_is_not_carried_over_from_one_request_to_the_next(https: SseServer, bundle: str) -> None:
    with requests.Session() as trusting:
        trusting.verify = bundle
        assert fetch(https.url, StreamOptions(session=trusting)).error is None
        assert fetch(https.url).error.kind == "connection"
        assert fetch(https.url, StreamOptions(session=trusting)).error is None

    assert len(https.requests) == 2


def test_the_verify_of_a_session_counts_before_the_environment(
    https: SseServer, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = trustme.CA()
    other_bundle = Path(bundle).with_name("other.pem")
    other.cert_pem.write_to_path(str(other_bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other_bundle))
    with requests.Session() as session:
        session.verify = bundle
        assert fetch(https.url, StreamOptions(session=session)).error is None


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_session_can_turn_verification_off(https: SseServer) -> None:
    with requests.Session() as session:
        session.verify = False
        assert fetch(https.url, StreamOptions(session=session)).error is None


def test_a_client_certificate_of_a_session_is_shown(
    authority: trustme.CA, bundle: str, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    # In TLS 1.3 the server's refusal comes only after the client's handshake; 1.2 tells it within.
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    file = tmp_path / "client.pem"
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(str(file))
    with SseServer(Reply(b"ok"), tls=tls) as server, requests.Session() as session:
        session.verify = bundle
        refused = fetch(server.url, StreamOptions(session=session, **NO_RETRY))
        session.cert = str(file)
        assert fetch(server.url, StreamOptions(session=session)).body == b"ok"

    assert refused.error.kind == "connection"
    assert "TLS: " in refused.error.message


def test_a_bundle_that_is_not_there_is_told_and_not_tried_again(
    https: SseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    outcome = fetch(https.url)

    assert outcome.error.kind == "connection"
    assert "could not be sent: " in outcome.error.message
    assert "/nowhere/ca.pem" in outcome.error.message
    assert outcome.retries == []


def test_a_server_that_speaks_no_tls_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        outcome = fetch(f"https://{host}", StreamOptions(**NO_RETRY))
        thread.join(10)

    assert outcome.error.kind == "connection"
    assert outcome.error.message.startswith(f"no connection to {host}: TLS: ")


# --- proxies ---


def test_http_goes_by_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(Reply(b"ok")) as server, ProxyServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("//", "//joe:hidden-word@"))
        for _ in range(3):
            assert fetch(f"{server.url}/v1").body == b"ok"

        assert [(request.method, request.target) for request in proxy.requests] == [("POST", f"{server.url}/v1")]
        assert proxy.requests[0].headers["Proxy-Authorization"].startswith("Basic ")
        assert [request.path for request in server.requests] == ["/v1"] * 3


def test_https_goes_through_a_tunnel_that_does_not_see_the_key(
    https: SseServer, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
    with ProxyServer() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        for _ in range(3):
            assert fetch(https.url).error is None

        [asked] = proxy.requests
        assert (asked.method, asked.target) == ("CONNECT", https.url.removeprefix("https://"))
        assert "authorization" not in asked.headers
        assert https.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("exception", ["127.0.0.1", "127.0.0.0/8", "*", "other.example,127.0.0.1"])
def test_a_host_that_is_excepted_is_reached_directly(exception: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", exception)
    with SseServer(Reply(b"ok")) as server, ProxyServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert fetch(server.url).body == b"ok"

        assert proxy.requests == ()


def test_the_proxies_of_a_session_count_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        SseServer(Reply(b"ok")) as server,
        ProxyServer() as proxy,
        ProxyServer() as other,
        requests.Session() as session,
    ):
        monkeypatch.setenv("HTTP_PROXY", other.url)
        session.proxies = {"http": proxy.url}
        assert fetch(server.url, StreamOptions(session=session)).body == b"ok"

        assert (len(proxy.requests), len(other.requests)) == (1, 0)


def test_a_session_that_does_not_trust_the_environment_goes_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(Reply(b"ok")) as server, ProxyServer() as proxy, requests.Session() as session:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        session.trust_env = False
        assert fetch(server.url, StreamOptions(session=session)).body == b"ok"

        assert proxy.requests == ()


def test_a_proxy_that_refuses_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(Reply([b"HTTP/1.1 407 Who are you\r\n\r\n", Cut()], status=None)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//joe:hidden-word@"))
        outcome = fetch("https://models.example/v1", StreamOptions(**NO_RETRY))

    assert outcome.error.kind == "connection"
    assert outcome.error.message == "no connection to models.example: Tunnel connection failed: 407 Who are you"


def test_a_proxy_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://joe:hidden-word@127.0.0.1:1")
    outcome = fetch("http://models.example/v1", StreamOptions(**NO_RETRY))

    assert outcome.error.message == "no connection to models.example: Connection refused"


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("http://", "the proxy's URL is malformed"),
        ("ftp://joe:hidden-word@127.0.0.1:1", "the proxy's URL is malformed"),
    ],
)
def test_a_proxy_setting_that_cannot_be_used_is_told_and_not_tried_again(
    proxy: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with SseServer(Reply(b"ok")) as server:
        outcome = fetch(server.url)

        assert server.connections == ()
    assert outcome.retries == []
    assert outcome.error.kind == "connection"
    assert outcome.error.message.endswith(f"could not be sent: {reason}")


def test_a_socks_proxy_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks5h://127.0.0.1:1")
    # What requests puts there when PySocks is not installed.
    monkeypatch.setattr(requests.adapters, "SOCKSProxyManager", without_pysocks)
    outcome = fetch("http://models.example/")

    assert outcome.retries == []
    assert outcome.error.message == (
        "the request to models.example could not be sent: this kind of proxy needs the package PySocks, or is not known"
    )


def without_pysocks(*args: object, **kwargs: object) -> object:
    raise requests.exceptions.InvalidSchema("Missing dependencies for SOCKS support.")


def test_an_odd_proxy_setting_does_not_keep_the_package_from_being_imported() -> None:
    code = "import agentcore, agentcore.providers._http"
    environment = {"HTTP_PROXY": "socks5h://x", "HTTPS_PROXY": "nonsense", "NO_PROXY": "10.0.0.0/8"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_through_a_proxy_is_the_servers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(json_reply({"error": {"message": "no"}}, 400)) as server, ProxyServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)

        assert fetch(server.url).error.message == "HTTP 400: no"


# --- settings that change between requests ---


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_that_is_set_changed_or_removed_counts_from_the_next_request_on(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each answers with its name, the proxies in place of the server.
    with SseServer(Reply(b"direct")) as server, SseServer(Reply(b"one")) as one, SseServer(Reply(b"other")) as other:

        def answered(**variables: str | None) -> bytes:
            for name, value in variables.items():
                if value is None:
                    monkeypatch.delenv(name)
                else:
                    monkeypatch.setenv(name, value)
            return fetch(f"{server.url}/v1").body

        assert answered() == b"direct"
        assert answered(**{variable: one.url}) == b"one"
        assert answered(**{variable: other.url}) == b"other"
        assert answered(NO_PROXY="127.0.0.1") == b"direct"
        assert answered(NO_PROXY="models.example") == b"other"
        assert answered(no_proxy="127.0.0.0/8") == b"direct"
        assert answered(no_proxy=None) == b"other"
        assert answered(**{variable: one.url.replace("//", "//joe:word@")}) == b"one"
        assert answered(**{variable: None}) == b"direct"

    assert ["Proxy-Authorization" in request.headers for request in one.requests] == [False, True]


def test_what_goes_by_a_proxy_is_told_apart_by_server_and_not_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    with SseServer(Reply(b"direct")) as server, SseServer(Reply(b"proxy")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "localhost")
        for _ in range(2):
            assert fetch(f"{server.url}/v1").body == b"proxy"
            assert fetch(f"{server.url}/v2").body == b"proxy"
            assert fetch(f"http://localhost:{server.port}/v1").body == b"direct"


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_trust_that_is_given_or_taken_away_counts_from_the_next_request_on(
    variable: str, https: SseServer, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(bundle).with_name("other.pem")
    trustme.CA().cert_pem.write_to_path(str(other))

    def trusted() -> bool:
        error = fetch(https.url).error
        assert error is None or "is not trusted" in error.message
        return error is None

    assert not trusted()
    monkeypatch.setenv(variable, bundle)
    assert trusted()
    monkeypatch.setenv(variable, str(other))
    assert not trusted()
    monkeypatch.setenv(variable, bundle)
    assert trusted()
    monkeypatch.delenv(variable)
    assert not trusted()


def test_a_session_counts_before_the_environment_whatever_that_was_and_becomes(
    https: SseServer, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(bundle).with_name("other.pem")
    trustme.CA().cert_pem.write_to_path(str(other))
    with (
        SseServer(Reply(b"direct")) as server,
        SseServer(Reply(b"own")) as proxy,
        SseServer(Reply(b"environment")) as wrong,
        requests.Session() as own,
    ):
        options = StreamOptions(session=own)
        own.verify, own.proxies = bundle, {"http": proxy.url}
        for name, value, without in (
            ("NO_PROXY", "models.example", b"direct"),
            ("HTTP_PROXY", wrong.url, b"environment"),
            ("REQUESTS_CA_BUNDLE", str(other), b"environment"),
        ):
            monkeypatch.setenv(name, value)
            # Around them requests that have no session, so that each looks up its own settings.
            assert fetch(server.url).body == without
            assert fetch(server.url, options).body == b"own"
            assert fetch(https.url).error.kind == "connection"
            assert fetch(https.url, options).error is None

        own.trust_env = False
        assert fetch(server.url, options).body == b"own"
        own.proxies = {}
        assert fetch(server.url, options).body == b"direct"
        assert fetch(server.url).body == b"environment"
    assert own.proxies == {}


# --- SOCKS ---


class SocksServer(LoopbackServer):
    """A SOCKS 5 proxy without passwords, for addresses of version 4 and names."""

    def __init__(self) -> None:
        super().__init__("socks", "127.0.0.1")
        self.targets: list[tuple[str, int]] = []

    def serve(self, sock: socket.socket, number: int) -> None:
        with sock, contextlib.suppress(ConnectionEnded, OSError), self.wire(sock) as wire:
            wire.read_exactly(wire.read_exactly(2)[1])
            wire.send(b"\x05\x00")
            kind = wire.read_exactly(4)[3]
            host = (
                socket.inet_ntoa(wire.read_exactly(4))
                if kind == 1
                else wire.read_exactly(wire.read_exactly(1)[0]).decode()
            )
            port = int.from_bytes(wire.read_exactly(2), "big")
            self.targets.append((host, port))
            with socket.create_connection((host, port)) as origin:
                wire.send(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
                proxy_server._relay(sock, origin)


def test_a_socks_proxy_is_used_and_its_connection_kept(https: SseServer, bundle: str) -> None:
    pytest.importorskip("socks")
    with SocksServer() as proxy, SseServer(Reply(b"ok")) as plain, requests.Session() as session:
        address = f"{proxy.host}:{proxy.port}"
        session.proxies = {"http": f"socks5://{address}", "https": f"socks5h://{address}"}
        session.verify = bundle
        for _ in range(2):
            assert fetch(plain.url, StreamOptions(session=session)).body == b"ok"
            assert fetch(https.url, StreamOptions(session=session)).error is None

        assert proxy.targets == [("127.0.0.1", plain.port), ("127.0.0.1", https.port)]


@pytest.mark.parametrize("kept", [False, True], ids=["new connection", "kept connection"])
def test_an_abort_wakes_the_wait_for_headers_through_a_socks_proxy(kept: bool) -> None:
    pytest.importorskip("socks")
    controller = AbortController()
    replies = [Reply(b"ok")] * kept + [Reply(hold=Gate())]
    with SocksServer() as proxy, SseServer(replies) as server, requests.Session() as session:
        session.proxies = {"http": f"socks5://{proxy.host}:{proxy.port}"}
        options = StreamOptions(signal=controller.signal, session=session)
        if kept:
            fetch(server.url, options)
        thread = threading.Thread(target=lambda: (server.wait_for_request(len(replies)), controller.abort()))
        thread.start()
        outcome = fetch(server.url, options)
        thread.join(10)

        assert outcome.error.kind == "aborted"
        assert server.connections[0].closed.wait(2)
        assert len(server.connections) == 1
