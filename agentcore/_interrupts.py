"""Ctrl-C for what blocks a running event loop, whose own handler would let it wait until that is over.

An event loop answers Ctrl-C by cancelling a task at its next turn, and a notebook does the same for a cell with a
top-level `await`. A run, or a wait for one, holds up the loop, so that turn would come only after it. Meanwhile Ctrl-C
therefore does what it does everywhere else: it raises `KeyboardInterrupt`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

__all__ = ["Interrupts"]

_T = TypeVar("_T")
_Handler = Callable[[int, FrameType | None], Any]


class Interrupts:
    """Has Ctrl-C raise `KeyboardInterrupt` on the main thread, where the handler of an event loop keeps it from that.

    Threads: belongs to one thread. An interrupt may come between any two steps of both methods; `give_back` does no
    harm when there is nothing to give back.
    """

    __slots__ = ("_taken_from",)

    def __init__(self) -> None:
        self._taken_from: _Handler | None = None

    def take_over(self) -> None:
        """Replace the handler of an event loop that runs on this thread; anywhere else, and any other, leave it."""
        if threading.current_thread() is not threading.main_thread() or not _in_event_loop():
            return
        import signal

        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and handler is not signal.default_int_handler:
            self._taken_from = handler
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def reaching(self, wait: Callable[[], _T]) -> _T:
        """Return what `wait()` returns; who calls this gives back once more, in case an interrupt ends it anywhere."""
        try:
            self.take_over()
            return wait()
        finally:
            self.give_back()

    def give_back(self) -> None:
        """Put the handler back, unless somebody else has set one since."""
        handler = self._taken_from
        if handler is not None:
            import signal

            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, handler)
            self._taken_from = None


def _in_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")  # only looked at: who has an event loop has imported it
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
