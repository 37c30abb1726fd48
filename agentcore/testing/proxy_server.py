"""A loopback HTTP proxy that forwards bytes and remembers what it was asked for."""

from __future__ import annotations

import http.client
import io
import selectors
import socket
import ssl
import threading
from urllib.parse import urlsplit

import attrs

from agentcore.testing._loopback import ConnectionEnded, LoopbackServer, Wire
from agentcore.testing.gate import Gate

__all__ = ["ProxyRequest", "ProxyServer"]


@attrs.frozen(eq=False)
class ProxyRequest:
    """What a client asked the proxy for: a tunnel (`CONNECT host:port`) or a URL."""

    method: str
    target: str
    headers: http.client.HTTPMessage = attrs.field(repr=False)


class ProxyServer(LoopbackServer):
    """A proxy on a loopback port for as long as the `with` block lasts: tunnels by CONNECT, and plain HTTP.

    `hold` keeps it from connecting until the gate opens. With `tls`, an `ssl.SSLContext` with a certificate, clients
    speak to it in TLS. Only the first request of a connection is looked at; what
    follows is passed on as it is, so the origin sees whole URLs in plain HTTP.

    Threads: as `SseServer`.
    """

    def __init__(self, *, hold: Gate | None = None, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        super().__init__("proxy", host)
        self._hold = hold
        self._tls = tls
        self._lock = threading.Lock()
        self._requests: list[ProxyRequest] = []

    @property
    def url(self) -> str:
        """What to put into `HTTP_PROXY` or `proxies`."""
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    @property
    def requests(self) -> tuple[ProxyRequest, ...]:
        """What was asked for so far, one item a connection, in order."""
        with self._lock:
            return tuple(self._requests)

    def serve(self, sock: socket.socket, number: int) -> None:
        """Connect one client to where it wants to go, until either side ends."""
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            with self.wire(sock) as wire:
                if isinstance(sock, ssl.SSLSocket):
                    sock.do_handshake()
                self._forward(wire)
        except (ConnectionEnded, OSError, ValueError):
            pass  # one of the three went away, or did not speak HTTP
        finally:
            sock.close()

    def _forward(self, wire: Wire) -> None:
        head = wire.read_until(b"\r\n\r\n")
        if head is None:
            return
        first, _, rest = head.partition(b"\r\n")
        method, target, _ = first.decode("latin-1").split(" ", 2)
        headers = http.client.parse_headers(io.BytesIO(rest + b"\r\n\r\n"))
        with self._lock:
            self._requests.append(ProxyRequest(method, target, headers))
        if self._hold is not None:
            wire.wait_for(self._hold)
        address = urlsplit(f"//{target}" if method == "CONNECT" else target)
        with socket.create_connection((address.hostname or "", address.port or 80), timeout=5.0) as origin:
            origin.settimeout(None)
            origin.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if method == "CONNECT":
                wire.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                origin.sendall(head + b"\r\n\r\n")
            origin.sendall(wire.take_buffer())
            _relay(wire.sock, origin)


def _relay(client: socket.socket, origin: socket.socket) -> None:
    """Pass bytes on in both directions until one side closes."""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ, origin)
        selector.register(origin, selectors.EVENT_READ, client)
        while True:
            for key, _ in selector.select():
                source: socket.socket = key.fileobj  # type: ignore[assignment]
                data = source.recv(65536)
                while isinstance(source, ssl.SSLSocket) and source.pending():
                    data += source.recv(65536)  # already taken from the descriptor that is selected on
                if not data:
                    return
                key.data.sendall(data)
