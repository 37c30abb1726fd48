"""A point at which something waits until a test lets it go on."""

from __future__ import annotations

from collections.abc import Callable

from agentcore.abort import AbortController, AbortSignal

__all__ = ["Gate"]


class Gate:
    """Holds a script, a server, a tool or a hook until it is opened, once and for all.

    What is to wait calls `hold()`; the test calls `wait_reached()` and `open()`. Leaving a `with` block opens the gate,
    so that a test that fails leaves nothing stuck.

    Threads: any. `open` may also be called from a signal handler, and Ctrl-C ends every wait: no lock is taken that an
    interrupted frame could hold.
    """

    def __init__(self) -> None:
        # A controller is a flag that anybody may raise and wait for.
        self._reached = AbortController()
        self._opened = AbortController()

    @property
    def is_open(self) -> bool:
        """Whether the gate has been opened."""
        return self._opened.signal.aborted

    @property
    def is_reached(self) -> bool:
        """Whether something has come to the gate, open or not."""
        return self._reached.signal.aborted

    def open(self) -> None:
        """Let everything go on that is held here, now or later."""
        self._opened.abort("opened")

    def hold(self, signal: AbortSignal | None = None) -> bool:
        """Wait at the gate until it is opened or the signal is aborted; return whether it is open."""
        self._reached.abort("reached")
        opened = self._opened.signal
        (opened if signal is None else AbortSignal.any(opened, signal)).wait()
        return self.is_open

    def wait(self, timeout: float = 10.0) -> bool:
        """Wait for the gate to open, at most `timeout` seconds; return whether it has."""
        return self._opened.signal.wait(timeout)

    def wait_reached(self, timeout: float = 10.0) -> None:
        """Wait until something has come to the gate; raises `TimeoutError` if nothing does."""
        if not self._reached.signal.wait(timeout):
            raise TimeoutError(f"nothing came to the gate within {timeout:g} s")

    def on_open(self, fn: Callable[[], object]) -> Callable[[], None]:
        """Have `fn()` called when the gate opens, at once if it is open already; return what takes that back."""
        return self._opened.signal.add_callback(fn)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        self.open()

    def __repr__(self) -> str:
        return f"<Gate {'open' if self.is_open else 'shut'}{', reached' if self.is_reached else ''}>"
