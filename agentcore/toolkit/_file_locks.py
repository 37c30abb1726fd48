"""One lock for each real file, shared by all tools of the process."""

from __future__ import annotations

import os
import unicodedata
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Final

from agentcore._workers import Mailbox
from agentcore.abort import AbortSignal
from agentcore.toolkit._results import Refusal, reason_of

__all__ = ["exclusive_use"]

# A wake-up can get lost when Ctrl-C ends a release half-way; then the lock is looked at again after this time.
_LOOK_AGAIN: Final = 0.5

_Key = tuple[int, int, str]


class _FileLock:
    """Who may change a file. Claimed with `dict.setdefault`, which the interpreter makes atomic: the first one wins.

    Not a `threading.Lock`: its wait cannot end on a signal, and Ctrl-C between taking it and entering the `try` that
    gives it back would leave it taken for ever. Here a holder is named by its ticket, so that giving back can be done
    at any time, by whoever holds the ticket, and again.
    """

    __slots__ = ("__weakref__", "holder", "waiters")

    def __init__(self) -> None:
        self.holder: dict[str, object] = {}
        self.waiters: dict[Mailbox[None], None] = {}

    def claim(self, ticket: object) -> bool:
        return self.holder.setdefault("ticket", ticket) is ticket

    def give_back(self, ticket: object) -> None:
        if self.holder.get("ticket") is ticket:
            del self.holder["ticket"]
        for woken in list(self.waiters):
            woken.put(None)


_locks: weakref.WeakValueDictionary[_Key, _FileLock] = weakref.WeakValueDictionary()


def _lock_of(folder: int | None, name: str) -> _FileLock:
    found = os.stat(os.path.dirname(name)) if folder is None else os.fstat(folder)
    # The folder by identity: it can be reached by many paths. The name without case and composition, because the file
    # system may not tell those apart; two files that share a lock only wait for each other.
    key = (found.st_dev, found.st_ino, unicodedata.normalize("NFC", os.path.basename(name)).casefold())
    return _locks.setdefault(key, _FileLock())


@contextmanager
def exclusive_use(folder: int | None, name: str, signal: AbortSignal) -> Iterator[None]:
    """Wait until nobody else changes the file of this name in this folder, and keep it from them meanwhile.

    `name` is a path if `folder` is `None`. The wait ends with a `Refusal` when the signal aborts.
    """
    lock = _lock_of(folder, name)
    ticket = object()
    try:
        if not lock.claim(ticket):
            _wait(lock, ticket, signal)
        yield
    finally:
        try:
            lock.give_back(ticket)
        finally:
            lock.give_back(ticket)  # for an interrupt during the first; otherwise it finds nothing to do


def _wait(lock: _FileLock, ticket: object, signal: AbortSignal) -> None:
    woken: Mailbox[None] = Mailbox()
    stop_listening: Callable[[], None] | None = None
    try:
        lock.waiters[woken] = None
        stop_listening = signal.add_callback(lambda: woken.put(None))
        while True:
            if signal.aborted:
                raise Refusal(
                    f"The call was aborted{reason_of(signal)}, while it waited for another one that changes the same "
                    "file. Nothing was changed."
                )
            if lock.claim(ticket):
                return
            try:
                woken.get(timeout=_LOOK_AGAIN)
            except Empty:
                pass
    finally:
        lock.waiters.pop(woken, None)
        if stop_listening is not None:
            stop_listening()
