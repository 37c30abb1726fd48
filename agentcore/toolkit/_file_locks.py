"""One lock for each real file, shared by all tools of the process."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from threading import RLock
from typing import Final

from agentcore._mailbox import Mailbox
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

    __slots__ = ("holder", "users", "waiters")

    def __init__(self) -> None:
        self.holder: dict[str, object] = {}
        self.users: dict[object, None] = {}
        self.waiters: dict[Mailbox[None], None] = {}

    def claim(self, ticket: object) -> bool:
        return self.holder.setdefault("ticket", ticket) is ticket

    def give_back(self, ticket: object) -> None:
        if self.holder.get("ticket") is ticket:
            del self.holder["ticket"]
        for woken in list(self.waiters):
            woken.put(None)


# A lock is here as long as a call holds it or waits for it. No weak references do that: what runs when one dies is a
# place where Ctrl-C would be swallowed. The registry's own lock is re-entrant and used by `with` only: an interrupt
# comes before it is taken or after it is given back.
_locks: dict[_Key, _FileLock] = {}
_registry: Final = RLock()


def _join(key: _Key, ticket: object) -> _FileLock:
    with _registry:
        lock = _locks.setdefault(key, _FileLock())
        lock.users[ticket] = None
        return lock


def _leave(key: _Key, ticket: object) -> None:
    """Give back what the ticket may hold; can be done again, should an interrupt have ended it half-way."""
    with _registry:
        lock = _locks.get(key)
        if lock is not None:
            lock.give_back(ticket)
            lock.users.pop(ticket, None)
            if not lock.users:
                del _locks[key]


def _key_of(folder: int | None, name: str) -> _Key:
    found = os.stat(os.path.dirname(name)) if folder is None else os.fstat(folder)
    # The folder by identity: it can be reached by many paths. The name without case and composition, because the file
    # system may not tell those apart; two files that share a lock only wait for each other.
    return found.st_dev, found.st_ino, unicodedata.normalize("NFC", os.path.basename(name)).casefold()


@contextmanager
def exclusive_use(folder: int | None, name: str, signal: AbortSignal) -> Iterator[None]:
    """Wait until nobody else changes the file of this name in this folder, and keep it from them meanwhile.

    `name` is a path if `folder` is `None`. The wait ends with a `Refusal` when the signal aborts.
    """
    key = _key_of(folder, name)
    ticket = object()
    try:
        lock = _join(key, ticket)
        if not lock.claim(ticket):
            _wait(lock, ticket, signal)
        yield
    finally:
        try:
            _leave(key, ticket)
        finally:
            _leave(key, ticket)  # for an interrupt during the first; otherwise it finds nothing to do


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
