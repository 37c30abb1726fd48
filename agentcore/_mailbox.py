"""Daemon threads, and the mailbox in which one waits for what they send.

Ctrl-C may arrive between any two bytecodes of what the main thread does. So nothing here enters an `Event` or a
`Condition` on the main thread, where an interrupt can leave their lock taken for ever. Only the interpreter's own
locks are used, and only by `with`, where an interrupt comes before one is taken or after it is given back, or as
something to sleep on, which nobody owns.
"""

from __future__ import annotations

import _thread
import contextvars
import math
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty
from time import monotonic
from typing import Final, Generic, TypeVar

__all__ = ["Mailbox", "start_daemon", "uninterrupted"]

_T = TypeVar("_T")

_SECONDS_BETWEEN_LOOKS: Final = 0.1


class Mailbox(Generic[_T]):
    """A first-in, first-out queue whose `get` can be waited on where signals arrive: on the main thread.

    In place of `queue.SimpleQueue`, whose `get(timeout=...)` has a defect up to CPython 3.12: if a signal is handled as
    the time ends, it sleeps for ever (3.10: even with a timeout of zero).

    Threads: all methods may be called from any thread; `put` never blocks, and may be called in a signal handler or a
    finaliser, even one that interrupts `put` or `get` itself. An interrupt (Ctrl-C) ends `get` within 0.1 s; one that
    comes just as `get` returns can lose the item, so what must not be lost is to be written down before the `put`.
    """

    __slots__ = ("_items", "_more")

    def __init__(self) -> None:
        self._items: deque[_T] = deque()
        # Released by whoever adds an item: then the next `acquire` returns at once, and one that waits is woken.
        self._more = _thread.allocate_lock()
        self._more.acquire()

    def put(self, item: _T) -> None:
        """Add an item and wake one that waits."""
        try:
            self._items.append(item)
        finally:  # in one go, without a call into Python code: an interrupt must not come between
            try:
                self._more.release()
            except RuntimeError:
                pass  # released already

    def get(self, timeout: float | None = None) -> _T:
        """Return the oldest item, waiting for one if there is none; raise `queue.Empty` after `timeout` seconds."""
        deadline = math.inf if timeout is None else monotonic() + timeout
        # A signal that arrives between the interpreter's last look for signals and the system call that sleeps is not
        # noticed until the sleep ends: one in thirty of those that come as a wait begins. Hence the short sleeps.
        longest = _SECONDS_BETWEEN_LOOKS if _on_main_thread() else threading.TIMEOUT_MAX
        while True:
            try:
                item = self._items.popleft()
            except IndexError:
                pass  # and not waited for here: an interrupt of the wait would be shown as one that came of this error
            else:
                if self._items:
                    self._wake_another()
                return item
            left = deadline - monotonic()
            if left <= 0:
                raise Empty
            self._more.acquire(timeout=min(left, longest))

    def empty(self) -> bool:
        """Return whether there was no item just now."""
        return not self._items

    def _wake_another(self) -> None:
        # Two items that came in a row have released the lock once and woken one of two that wait.
        try:
            self._more.release()
        except RuntimeError:
            pass


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def start_daemon(target: Callable[[], object], name: str) -> threading.Thread:
    """Run `target()` on a new daemon thread called `name`, in a copy of the caller's context variables.

    Raises `RuntimeError` when no thread can be started, in particular at interpreter shutdown.
    """
    if sys.is_finalizing():
        raise RuntimeError("can't start new thread at interpreter shutdown")
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(target,), name=name, daemon=True)
    uninterrupted(partial(_start, thread))
    return thread


# The standard library keeps its threads in a weak set, and freeing one runs Python code that swallows an interrupt. So
# the last reference to a thread is given up here, by whoever starts a later one, and never by the main thread.
_started: deque[threading.Thread] = deque(maxlen=64)


def _start(thread: threading.Thread) -> None:
    thread.start()
    _started.append(thread)


def uninterrupted(fn: Callable[[], object]) -> None:
    """Call `fn()` where no signal handler can run: here, or on a passing thread if this is the main one.

    For what enters an Event or a Condition. On the main thread four in a hundred interrupts of a `Thread.start` leave
    the lock of its event taken, and the new thread then hangs for ever before it has begun; futures likewise.
    """
    if not _on_main_thread():
        fn()
        return
    outcome: Mailbox[BaseException | None] = Mailbox()
    try:
        _thread.start_new_thread(_report, (fn, outcome))
    except RuntimeError:  # no thread can be started: rather here than not at all
        fn()
        return
    failure = outcome.get()
    if failure is not None:
        raise failure


def _report(fn: Callable[[], object], outcome: Mailbox[BaseException | None]) -> None:
    try:
        fn()
    except BaseException as error:
        outcome.put(error)
    else:
        outcome.put(None)
