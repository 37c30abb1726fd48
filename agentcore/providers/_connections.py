"""Connections that an abort can cut at any moment: while they resolve, connect, send, wait for headers, and read.

`Line` is one request's way to the socket that carries it. The connection classes tell the line of their thread which
socket that is at the moment; an abort shuts it down, and whoever is blocked in it wakes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from queue import Empty
from typing import TYPE_CHECKING, Any

from agentcore._mailbox import Mailbox, start_daemon

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection

    _Base = HTTPConnection
else:
    _Base = object

__all__ = ["Line", "abortable_pools"]

_POLL = 0.05
"""Seconds between looks at the abort while there is no socket that it could shut down."""

_SLICE = 1 << 16
"""Bytes of a request that may share one send timeout: a slow upload is no silence."""

_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""A model may think for minutes without a byte; probes keep the path through address translators open meanwhile."""

_active = threading.local()


class Line:
    """One request's way to its socket.

    Threads: `cut` may be called from any thread, from a signal handler and from a finaliser; the rest belongs to the
    thread that sends the request. There is no lock: `watch` writes the socket and then looks at `was_cut`, `cut` does
    it the other way round, so one of the two always sees the other.
    """

    __slots__ = ("idle_timeout", "phase", "socket", "was_cut")

    def __init__(self, idle_timeout: float) -> None:
        self.idle_timeout = idle_timeout
        self.socket: Any = None
        self.was_cut = False
        self.phase = "start"
        """How far the request got: `start`, `connecting`, `sending`."""

    def watch(self, sock: Any) -> None:
        """Have `cut` shut down this socket from now on."""
        self.socket = sock
        if self.was_cut:
            _shut_down(sock)

    def cut(self) -> None:
        """Shut the connection down, now or as soon as there is one."""
        self.was_cut = True
        sock = self.socket
        if sock is not None:
            _shut_down(sock)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Be the line of every connection that this thread uses within the block."""
        before = getattr(_active, "line", None)
        _active.line = self
        try:
            yield
        finally:
            _active.line = before


def _shut_down(sock: Any) -> None:
    while not isinstance(sock, socket.socket) and hasattr(sock, "socket"):
        sock = sock.socket  # TLS within TLS, by way of an HTTPS proxy
    try:
        if isinstance(sock, socket.socket):
            # Not the method of a TLS socket, which would pull the TLS state from under its reader.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        else:
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended by itself


def abortable_pools(pools: Mapping[str, Any]) -> dict[str, Any]:
    """Return pool classes by scheme like these, whose connections tell the line of their thread which socket it is."""
    return {scheme: _abortable_pool(pool) for scheme, pool in pools.items()}


@functools.cache
def _abortable_pool(pool: Any) -> Any:
    from urllib3.connection import HTTPConnection

    base = pool.ConnectionCls
    if issubclass(base, _WatchedConnection):
        return pool
    # A class that connects in a way of its own, as the one for SOCKS proxies does, keeps it.
    mixin = _AbortableConnection if base._new_conn is HTTPConnection._new_conn else _WatchedConnection
    connection = type(f"Abortable{base.__name__}", (mixin, base), {"response_class": _final_response(base)})
    return type(f"Abortable{pool.__name__}", (pool,), {"ConnectionCls": connection})


def _final_response(connection: Any) -> Any:
    """Return the class of a connection's responses, but that it passes over what is only a hint of the answer."""

    class FinalResponse(connection.response_class):  # type: ignore[misc]
        def begin(self) -> None:
            super().begin()
            # The standard library skips 100 only. (101 would be the end of HTTP.)
            while 102 <= self.status < 200:
                self.headers = self.msg = None
                super().begin()

    return FinalResponse


class _WatchedConnection(_Base):
    """A connection that tells the line of its thread which socket it uses; mixed into urllib3's classes."""

    def connect(self) -> None:
        line: Line | None = getattr(_active, "line", None)
        if line is None:
            super().connect()
            return
        line.phase, line.socket = "connecting", None
        try:
            super().connect()
        finally:
            handle, line.socket = line.socket, None
            if handle is not None:
                handle.close()
        line.watch(self.sock)

    def request(self, *args: Any, **kwargs: Any) -> None:
        line: Line | None = getattr(_active, "line", None)
        if line is not None and self.sock is not None:
            line.watch(self.sock)  # a connection that was kept alive
        super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        line: Line | None = getattr(_active, "line", None)
        if line is None or not isinstance(data, (bytes, bytearray, memoryview)):
            super().send(data)
            return
        if self.sock is None and self.auto_open:
            self.connect()
        if self.sock is not None and self.sock is line.socket:
            # Connected. (Before that it is a request to the proxy, which is part of connecting.)
            line.phase = "sending"
            self.sock.settimeout(line.idle_timeout)
        view = memoryview(data)
        for start in range(0, len(view), _SLICE):
            super().send(view[start : start + _SLICE])


class _AbortableConnection(_WatchedConnection):
    """A connection that is made within its timeout, or until an abort, whatever blocks."""

    def _new_conn(self) -> socket.socket:
        """Connect within `self.timeout` seconds, the search for the address included."""
        from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

        line: Line | None = getattr(_active, "line", None)
        if line is None:
            return super()._new_conn()
        seconds = self.timeout if isinstance(self.timeout, (int, float)) else 60.0
        deadline = time.monotonic() + seconds
        try:
            addresses = _resolve(self.host.strip("[]"), self.port, deadline, line)
            sock = self._connected(addresses, deadline, line)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection within {seconds:g} s") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection: {error}") from error
        sys.audit("http.client.connect", self, self.host, self.port)
        # What is left of the time bounds the proxy's answer and each step of the TLS handshake. The handshake takes
        # the descriptor away from this object, so the line gets a handle of its own until it is over.
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        line.watch(sock.dup())
        return sock

    def _connected(self, addresses: list[Any], deadline: float, line: Line) -> socket.socket:
        failure: OSError = OSError(errno.EADDRNOTAVAIL, "the name has no address")
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            # An address that swallows packets must leave time for the ones after it.
            share = (deadline - time.monotonic()) / (len(addresses) - number)
            sock = socket.socket(family, kind, protocol)
            try:
                for option in (*(self.socket_options or ()), *_socket_options()):
                    sock.setsockopt(*option)
                if self.source_address:
                    sock.bind(self.source_address)
                _connect(sock, address, time.monotonic() + share, line)
            except OSError as error:
                sock.close()
                failure = error
                if line.was_cut:
                    break
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failure


@functools.cache
def _socket_options() -> tuple[tuple[int, int, int], ...]:
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEP_ALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            options.append((socket.IPPROTO_TCP, option, value))
    return tuple(options)


def _resolve(host: str, port: int, deadline: float, line: Line) -> list[Any]:
    """Return the addresses of a host, or raise at the deadline or the abort.

    The system's resolver cannot be interrupted, so it runs on a thread, which is left behind if it takes too long.
    """
    from urllib3.util.connection import allowed_gai_family

    lookup = functools.partial(socket.getaddrinfo, host, port, allowed_gai_family(), socket.SOCK_STREAM)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return lookup()
    outcome: Mailbox[list[Any] | Exception] = Mailbox()

    def look_up() -> None:
        try:
            outcome.put(lookup())
        except Exception as error:
            outcome.put(error)

    start_daemon(look_up, "agentcore-resolver")
    while True:
        try:
            found = outcome.get(timeout=max(0.0, min(_POLL, deadline - time.monotonic())))
        except Empty:
            _check(deadline, line)
            continue
        if isinstance(found, UnicodeError):
            raise socket.gaierror(socket.EAI_NONAME, "not a host name")
        if isinstance(found, Exception):
            raise found
        return found


def _connect(sock: socket.socket, address: Any, deadline: float, line: Line) -> None:
    from urllib3.util import wait_for_write

    sock.setblocking(False)
    state = sock.connect_ex(address)
    while state in (errno.EINPROGRESS, errno.EINTR):
        if wait_for_write(sock, timeout=max(0.0, min(_POLL, deadline - time.monotonic()))):
            state = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            break
        _check(deadline, line)
    if state:
        raise OSError(state, os.strerror(state))


def _check(deadline: float, line: Line) -> None:
    if line.was_cut:
        raise OSError(errno.ECANCELED, "aborted")
    if time.monotonic() >= deadline:
        raise TimeoutError
