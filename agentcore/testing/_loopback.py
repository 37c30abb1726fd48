"""What the loopback servers of this package share: threads that end, and sockets that notice a closed peer."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from agentcore.testing.gate import Gate

__all__ = ["ConnectionEnded", "LoopbackServer", "Wire", "shut_down"]

_SECONDS_TO_END = 5.0

_Server = TypeVar("_Server", bound="LoopbackServer")


class ConnectionEnded(Exception):
    """The peer closed the connection, or the server was closed."""


class Wire:
    """One accepted connection, read through a buffer of our own so that a wait can watch for the peer's closing."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._woken.close()
        self._waker.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read_until(self, end: bytes) -> bytes | None:
        """Return the bytes before `end`, or `None` if the peer closes the connection instead of beginning."""
        while end not in self._buffer:
            if not self._receive():
                if self._buffer:
                    raise ConnectionEnded
                return None
        found, _, self._buffer = self._buffer.partition(end)
        return found

    def read_line(self) -> bytes:
        line = self.read_until(b"\r\n")
        if line is None:
            raise ConnectionEnded
        return line

    def read_exactly(self, size: int) -> bytes:
        parts = [self._buffer]
        missing = size - len(self._buffer)
        while missing > 0:
            part = self.sock.recv(65536)
            if not part:
                raise ConnectionEnded
            parts.append(part)
            missing -= len(part)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def take_buffer(self) -> bytes:
        """Return what was received beyond what was read."""
        taken, self._buffer = self._buffer, b""
        return taken

    def wait_for(self, gate: Gate) -> None:
        """Return when the gate opens; raise `ConnectionEnded` as soon as the peer closes the connection before."""
        remove = gate.on_open(self._wake)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.sock, selectors.EVENT_READ)
                selector.register(self._woken, selectors.EVENT_READ)
                while not gate.is_open:
                    if any(key.fileobj is self.sock for key, _ in selector.select()) and not self._receive(wait=False):
                        raise ConnectionEnded
        finally:
            remove()

    def _wake(self) -> None:
        try:
            self._waker.send(b"x")
        except OSError:
            pass  # full, so it wakes anyway; or closed, so nobody waits

    def _receive(self, *, wait: bool = True) -> bool:
        """Add what has arrived to the buffer; return whether the connection still stands."""
        self.sock.settimeout(None if wait else 0.0)
        try:
            data = self.sock.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True  # a TLS record that holds no data
        finally:
            self.sock.settimeout(None)
        self._buffer += data
        return bool(data)


class LoopbackServer:
    """Accepts connections on a loopback port and serves each on a thread of its own.

    The threads are named `agentcore-testing-<kind>-...`; `close()` ends all connections and returns when the threads
    have ended. Subclasses write `serve`.
    """

    def __init__(self, kind: str, host: str) -> None:
        self.host = host
        self.port = 0
        self.closing = False
        self._kind = kind
        self._waker: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._sockets: dict[threading.Thread, socket.socket] = {}

    def serve(self, sock: socket.socket, number: int) -> None:
        """Serve one connection, counted from 1, and close it."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to accept connections; entering the `with` block does it too."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server((self.host, 0), family=family, backlog=128)
        self.port = listener.getsockname()[1]
        woken, self._waker = socket.socketpair()
        self._acceptor = self._thread("accept", self._accept, listener, woken)
        self._acceptor.start()

    def close(self) -> None:
        """End all connections; return when all threads have ended."""
        self.closing = True
        if self._waker is not None:
            self._waker.close()
        if self._acceptor is not None:
            self._acceptor.join(_SECONDS_TO_END)
        # The acceptor has ended: no connection is added any more, but a thread may be about to put a socket that it
        # has wrapped into the place of the bare one. `wire` looks at `closing` after that.
        for sock in list(self._sockets.values()):
            shut_down(sock)
        threads = list(self._sockets)
        for thread in threads:
            thread.join(_SECONDS_TO_END)
        left = [thread.name for thread in threads if thread.is_alive()]
        if left:
            raise RuntimeError(f"connections that do not end: {', '.join(left)}")

    def __enter__(self: _Server) -> _Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def wire(self, sock: socket.socket) -> Wire:
        """Return the wire of a socket, which `close()` will shut down in place of the one that was accepted."""
        self._sockets[threading.current_thread()] = sock
        if self.closing:
            shut_down(sock)
        return Wire(sock)

    def _accept(self, listener: socket.socket, woken: socket.socket) -> None:
        with listener, woken, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            number = 0
            while not self.closing:
                selector.select()
                if self.closing:
                    return
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                number += 1
                thread = self._thread(str(number), self.serve, sock, number)
                self._sockets[thread] = sock
                thread.start()

    def _thread(self, name: str, target: Callable[..., None], *args: object) -> threading.Thread:
        full_name = f"agentcore-testing-{self._kind}-{self.port}-{name}"
        return threading.Thread(target=target, args=args, name=full_name, daemon=True)


def shut_down(sock: socket.socket) -> None:
    """Wake whoever reads or writes this socket; a socket that has ended already is fine."""
    try:
        # The plain method: the one of a TLS socket would pull the TLS state from under its reader.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass
