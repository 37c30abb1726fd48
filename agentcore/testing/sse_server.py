"""A loopback HTTP server that sends exact bytes in exact pieces, and fails in the ways that real servers fail.

::

    gate = Gate()
    with SseServer([Reply([sse({"n": 1}), Stall(gate), sse({"n": 2}, "[DONE]")])]) as server:
        ...  # talk to server.url; open the gate when it is time
    assert server.requests[0].json() == {...}

A reply is a status, headers and pieces. A piece of bytes is one write and, in the framing `chunked`, one chunk; other
pieces wait (`Stall`), end the connection in mid-reply (`Cut`) or reset it (`Reset`).
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from agentcore.testing._loopback import ConnectionEnded, LoopbackServer, Wire
from agentcore.testing.gate import Gate

__all__ = ["Connection", "Cut", "Gate", "Reply", "Request", "Reset", "SseServer", "Stall", "json_reply", "sse"]


# --- what a reply is made of ----------------------------------------------------------------------------------------


@attrs.frozen
class Stall:
    """Send nothing more until the gate opens (a gate that nobody opens: until the connection ends)."""

    gate: Gate = attrs.field(factory=Gate)


@attrs.frozen
class Cut:
    """Close the connection here, as a server that dies does: no last chunk, fewer bytes than announced."""


@attrs.frozen
class Reset:
    """Reset the connection here (RST)."""


Piece = bytes | str | Stall | Cut | Reset


def _pieces(value: Piece | Sequence[Piece]) -> tuple[Piece, ...]:
    pieces = (value,) if isinstance(value, (bytes, str, Stall, Cut, Reset)) else tuple(value)
    for piece in pieces:
        if not isinstance(piece, (bytes, str, Stall, Cut, Reset)):
            raise TypeError(f"a piece is bytes, a str, a Stall, a Cut or a Reset, not {type(piece).__name__}")
    return tuple(piece.encode() if isinstance(piece, str) else piece for piece in pieces)


@attrs.frozen
class Reply:
    """What the server answers to one request.

    `framing` says how the client learns where the body ends: `chunked`, `length` (a Content-Length of all pieces of
    bytes), or `close`. Headers given here replace those that the server would send, `Content-Type: text/event-stream`
    among them; `None` leaves one out. `hold` keeps back the whole reply until the gate opens. With `status=None` there
    is no head at all: the pieces are what goes over the wire.
    """

    pieces: tuple[Piece, ...] = attrs.field(default=(), converter=_pieces)
    status: int | None = 200
    headers: Mapping[str, str | None] = attrs.field(factory=dict)
    framing: str = attrs.field(default="chunked", validator=attrs.validators.in_(("chunked", "length", "close")))
    hold: Gate | None = None


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str | None] | None = None) -> Reply:
    """Return a reply whose body is one JSON document."""
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    return Reply(json.dumps(value).encode(), status=status, headers=all_headers, framing="length")


def sse(*payloads: Any) -> bytes:
    """Return the payloads as server-sent events: a str as it is, a pair as name and payload, anything else as JSON."""
    return b"".join(_event(payload) for payload in payloads)


def _event(payload: Any) -> bytes:
    name = None
    if isinstance(payload, tuple):
        name, payload = payload
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    lines = [f"data: {line}" for line in text.split("\n")]
    if name is not None:
        lines.insert(0, f"event: {name}")
    return ("\n".join(lines) + "\n\n").encode()


# --- what the server saw --------------------------------------------------------------------------------------------


class Connection:
    """One connection to the server: `closed` opens when it has ended, and then `closed_by` says who ended it.

    `closed_by` is `"client"` or `"server"`; `closed_at` is on the clock of `time.monotonic`. `number` counts from 1.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = Gate()
        self.closed_by: str | None = None
        self.closed_at: float | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.number} {f'closed by the {self.closed_by}' if self.closed_by else 'open'}>"

    def _end(self, closed_by: str) -> None:
        self.closed_by, self.closed_at = closed_by, time.monotonic()
        self.closed.open()


@attrs.frozen(eq=False)
class Request:
    """One request that the server got; `headers[...]` and `headers.get(...)` ignore case."""

    method: str
    path: str
    headers: http.client.HTTPMessage = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    connection: Connection

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


Handler = Callable[[Request], Reply]


# --- the server -----------------------------------------------------------------------------------------------------


class SseServer(LoopbackServer):
    """A server on a loopback port for as long as the `with` block lasts.

    `replies` is a list that is used up in order (each item a `Reply` or a function of the request), one `Reply` for
    all requests, or a function of the request. A request for which the list has nothing left gets status 410. With
    `tls`, an `ssl.SSLContext` with a certificate, it speaks HTTPS. What a function raised is in `errors`.

    Threads: each connection has a thread of its own, on which the functions are called; all of them, and all
    connections, have ended when the block is left. Every attribute may be read from any thread.
    """

    def __init__(
        self,
        replies: Reply | Handler | Sequence[Reply | Handler],
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__("sse", host)
        self._replies = replies
        self._tls = tls
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._connections: list[Connection] = []
        self._arrivals: dict[int, Gate] = {}
        self.errors: list[Exception] = []

    @property
    def url(self) -> str:
        """The base of the server's URLs, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests so far, in order."""
        with self._lock:
            return tuple(self._requests)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections so far, in order."""
        with self._lock:
            return tuple(self._connections)

    def wait_for_request(self, number: int = 1, timeout: float = 10.0) -> Request:
        """Return the request of that number, counted from 1, waiting for it; raises `TimeoutError`."""
        with self._lock:
            gate = self._arrivals.setdefault(number, Gate())
            if len(self._requests) >= number:
                return self._requests[number - 1]
        if not gate.wait(timeout):
            raise TimeoutError(f"{len(self.requests)} requests after {timeout:g} s, not {number}")
        return self.requests[number - 1]

    def serve(self, sock: socket.socket, number: int) -> None:
        """Answer the requests of one connection until it ends."""
        connection = Connection(number)
        with self._lock:
            self._connections.append(connection)
        closed_by = "client"
        try:
            if self._tls is not None:
                # Here and not in the thread that accepts: a client may take its time over the handshake.
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            with self.wire(sock) as wire:
                if isinstance(sock, ssl.SSLSocket):
                    sock.do_handshake()
                while request := _read_request(wire, connection):
                    if not _send_reply(wire, self._reply_to(request)):
                        closed_by = "server"
                        break
        except (ConnectionEnded, OSError):
            pass  # the client went away
        except ValueError as error:
            self.errors.append(error)  # what the client sent is no HTTP
            closed_by = "server"
        finally:
            sock.close()
            connection._end("server" if self.closing else closed_by)

    def _reply_to(self, request: Request) -> Reply:
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
            arrival = self._arrivals.setdefault(number, Gate())
        arrival.open()
        replies = self._replies
        chosen: Reply | Handler
        if isinstance(replies, Sequence):
            if number > len(replies):
                text = f"{len(replies)} replies were given, and this is request {number}"
                return json_reply({"error": {"message": text, "type": "no_reply_left"}}, 410)
            chosen = replies[number - 1]
        else:
            chosen = replies
        if isinstance(chosen, Reply):
            return chosen
        try:
            return chosen(request)
        except Exception as error:
            self.errors.append(error)
            return json_reply({"error": {"message": repr(error), "type": "handler_failed"}}, 500)


def _read_request(wire: Wire, connection: Connection) -> Request | None:
    """Return the next request, or `None` when the client has closed the connection."""
    head = wire.read_until(b"\r\n\r\n")
    if head is None:
        return None
    first, _, rest = head.partition(b"\r\n")
    method, path, _ = first.decode("latin-1").split(" ", 2)
    if path.startswith("http://"):
        path = "/" + path.split("/", 3)[3]  # by way of a proxy
    headers = http.client.parse_headers(io.BytesIO(rest + b"\r\n\r\n"))
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        body = _read_chunks(wire)
    else:
        body = wire.read_exactly(int(headers.get("Content-Length", "0")))
    return Request(method, path, headers, body, connection)


def _read_chunks(wire: Wire) -> bytes:
    body = []
    while size := int(wire.read_line().split(b";")[0], 16):
        body.append(wire.read_exactly(size))
        wire.read_exactly(2)
    while wire.read_line().strip():
        pass  # trailers
    return b"".join(body)


def _send_reply(wire: Wire, reply: Reply) -> bool:
    """Send a reply; return whether the connection goes on after it."""
    if reply.hold is not None:
        wire.wait_for(reply.hold)
    chunked = reply.framing == "chunked" and reply.status is not None
    if reply.status is not None:
        wire.send(_head(reply))
    for piece in reply.pieces:
        if isinstance(piece, bytes):
            if chunked and piece:
                wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            else:
                wire.send(piece)
        elif isinstance(piece, Stall):
            wire.wait_for(piece.gate)
        else:
            if isinstance(piece, Reset):
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
    if chunked:
        wire.send(b"0\r\n\r\n")
    return reply.status is not None and reply.framing != "close"


def _head(reply: Reply) -> bytes:
    headers: dict[str, str | None] = {"Content-Type": "text/event-stream"}
    if reply.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif reply.framing == "length":
        headers["Content-Length"] = str(sum(len(piece) for piece in reply.pieces if isinstance(piece, bytes)))
    else:
        headers["Connection"] = "close"
    for name, value in reply.headers.items():
        for given in [given for given in headers if given.lower() == name.lower()]:
            del headers[given]
        headers[name] = value
    status = reply.status or 0
    lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
