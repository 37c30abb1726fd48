"""What holds for every test: loopback only, no keys from outside, no thread left behind, no test that hangs."""

import faulthandler
import ipaddress
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

SECONDS_PER_TEST = 120
SECONDS_FOR_THREADS_TO_END = 2.0

OUTSIDE_VARIABLES = re.compile(
    r"""(OPENAI|ANTHROPIC|GEMINI|GOOGLE)_.*  # keys and addresses of real providers
    |.*_API_KEY
    |.*_PROXY
    |REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|SSL_CERT_FILE|SSL_CERT_DIR|NETRC""",
    re.IGNORECASE | re.VERBOSE,
)

hypothesis.settings.register_profile("default", deadline=None)
# The same examples on every run: a failure there is a failure of the change, not of the draw.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


class NetworkRefused(BaseException):
    """Raised where a test would leave the loopback interface; not an `OSError`, so that no retry policy swallows it."""


class LoopbackGuard:
    """Replaces the connecting methods of `socket.socket` and remembers what it refused, whoever swallowed the error."""

    METHODS = ("connect", "connect_ex", "sendto")

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._originals: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        for name in self.METHODS:
            self._originals[name] = getattr(socket.socket, name)
            setattr(socket.socket, name, self._guarded(self._originals[name]))

    def remove(self) -> None:
        for name in self._originals:
            # The methods are inherited from the C class: without ours the original shows again.
            delattr(socket.socket, name)
        self._originals.clear()

    def _guarded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(sock: socket.socket, *args: Any) -> Any:
            address = args[-1]
            if not is_local(sock.family, address):
                self.refused.append(f"{address!r}")
                raise NetworkRefused(f"tests stay on the loopback interface; this one tried {address!r}")
            return original(sock, *args)

        return guarded


def is_local(family: int, address: Any) -> bool:
    """Say whether a socket of this family may be connected to this address."""
    if family == socket.AF_UNIX:
        return True
    if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return False
    host = str(address[0])
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def live_threads_of_ours() -> set[threading.Thread]:
    """Return the live threads that the library started: all of them carry its name."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("agentcore-")}


def threads_left_behind(before: set[threading.Thread], seconds: float) -> list[str]:
    """Return the sorted names of threads that are not in `before` and still live after up to `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := live_threads_of_ours() - before) and time.monotonic() < deadline:
        for thread in left:
            try:
                thread.join(max(0.0, deadline - time.monotonic()))
            except RuntimeError:  # another thread is about to start it: it is listed already, but cannot be joined yet
                time.sleep(0.001)
    return sorted(thread.name for thread in live_threads_of_ours() - before)


_guard = LoopbackGuard()
_stderr_fd = -1


def pytest_configure(config: pytest.Config) -> None:
    global _stderr_fd
    # Capturing is suspended here: a copy of the real stderr shows the dump of a test that hangs.
    _stderr_fd = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
    # A shell has what it starts in the background ignore Ctrl-C, which all its children would inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if OUTSIDE_VARIABLES.fullmatch(name)]:
        del os.environ[name]
    # Child processes import the same package as the tests, whatever folder they run in.
    paths = [str(Path(__file__).resolve().parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    _guard.install()


def pytest_unconfigure(config: pytest.Config) -> None:
    _guard.remove()
    faulthandler.cancel_dump_traceback_later()
    os.close(_stderr_fd)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    faulthandler.dump_traceback_later(SECONDS_PER_TEST, exit=True, file=_stderr_fd)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves one of our threads running or tried to reach another machine."""
    before = live_threads_of_ours()
    del _guard.refused[:]
    yield
    left = threads_left_behind(before, SECONDS_FOR_THREADS_TO_END)
    refused = list(_guard.refused)
    if left:
        pytest.fail(f"threads still running after the test: {', '.join(left)}", pytrace=False)
    if refused:
        pytest.fail(f"tests stay on the loopback interface; this one tried {', '.join(refused)}", pytrace=False)
