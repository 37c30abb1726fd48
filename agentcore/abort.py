"""Asking a run to stop: `AbortController` asks, `AbortSignal` carries the request to whoever looks or listens.

An abort may come from any thread, from a signal handler and from a finaliser, that is, between any two bytecodes of
any other method of this module. So nothing here takes a lock. Three rules replace it:

- State is shared only through single operations of dict and set that the interpreter makes atomic. What must happen
  once is claimed with `dict.setdefault`: the first claimant wins, whoever it interrupted.
- First the record, then the wake-up; and the other side first registers, then looks at the record. One of the two
  therefore always sees the other.
- Every step of an abort can be done again without harm, so that an abort which was itself interrupted (Ctrl-C) is
  finished by doing it again.
"""

from __future__ import annotations

import _thread
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from queue import Empty
from types import TracebackType
from typing import Any, Final, NoReturn, cast

from agentcore._logs import log_failure
from agentcore._mailbox import Mailbox, start_daemon
from agentcore._records import text_of
from agentcore.errors import AbortRequested

__all__ = ["AbortController", "AbortSignal"]

_write: Final = object.__setattr__
_numbers: Final = itertools.count()
_link_number: Final = attrgetter("number")


class AbortSignal:
    """Tells that a run, a request or a tool call has been asked to stop.

    `aborted` and `reason` (`None` before the abort) are plain attributes, cheap enough to look at per streamed delta;
    `aborted` turns true once and stays so. Signals come from `AbortController().signal`, `AbortSignal.timeout` and
    `AbortSignal.any`; they compare by identity and can be neither pickled nor copied.

    Threads: every attribute and method may be used from any thread, from a signal handler and from a finaliser; none
    takes a lock that an interrupted frame could hold. Callbacks run on the thread that aborts (for `timeout`: a thread
    of its own), or on the thread that adds them if the signal is aborted already. Ctrl-C ends `wait`.
    """

    __slots__ = ("__weakref__", "_detach", "_hooks", "aborted", "reason")

    aborted: bool
    reason: object
    _hooks: _Hooks
    # What unregisters this signal from where its abort comes from: parents, timer. Empty when nothing can reach it.
    _detach: dict[Callable[[], object], None]

    def __init__(self) -> None:
        _write(self, "_detach", {})
        _write(self, "_hooks", _Hooks())
        _write(self, "reason", None)
        _write(self, "aborted", False)

    @classmethod
    def timeout(cls, seconds: float) -> AbortSignal:
        """Return a signal that aborts by itself after `seconds`; its reason says that it timed out.

        It keeps waiting as long as somebody holds it or listens to it. Zero or less: aborted already. Raises
        `ValueError` for NaN and `RuntimeError` when no thread can be started.
        """
        if math.isnan(seconds):
            raise ValueError("`seconds` must be a number, got NaN")
        signal = cls()
        reason = f"timed out after {seconds:g} s"
        if seconds <= 0:
            signal._fire(reason)
        elif seconds <= threading.TIMEOUT_MAX:  # beyond, for centuries and for infinity, there is nothing to wait for
            stop = _thread.allocate_lock()
            stop.acquire()
            signal._detach[_nothing] = None  # the timer reaches it
            # The lock's `__exit__` releases it and, unlike `release`, takes arguments.
            link = _Link(signal, cast("Callable[[Any], object]", stop.__exit__))
            start_daemon(partial(_expire, link, stop, seconds, reason), "agentcore-timer")
        return signal

    @classmethod
    def any(cls, *signals: AbortSignal) -> AbortSignal:
        """Return a signal that aborts as soon as one of `signals` does, with its reason; without signals, never.

        It unregisters from them when it aborts, and when nobody holds it or listens to it any more.
        """
        signal = cls()
        signal._follow(signals)
        return signal

    def raise_if_aborted(self) -> None:
        """Raise `AbortRequested` with the reason if the signal is aborted."""
        if self.aborted:
            raise AbortRequested(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the signal is aborted, at most `timeout` seconds; return whether it is.

        Raises `ValueError` for NaN; less than zero is zero.
        """
        if timeout is not None and math.isnan(timeout):
            raise ValueError("`timeout` must be a number, got NaN")
        waiters = self._hooks.waiters
        woken: Mailbox[None] = Mailbox()
        try:
            waiters[woken] = None
            if not self.aborted:
                woken.get(timeout)
        except Empty:
            pass
        finally:
            waiters.pop(woken, None)
        return self.aborted

    def add_callback(self, fn: Callable[[], object]) -> Callable[[], None]:
        """Have `fn()` run once when the signal aborts, at once if it has; return what takes it back.

        An exception that `fn` raises is logged; only `KeyboardInterrupt`, `SystemExit` and their like come out of the
        abort, after all other callbacks have run. The returned `remove()` returns when `fn` is not running and will
        not run any more: it waits for a run on another thread, and returns at once on the thread that runs `fn`.
        Raises `TypeError` if `fn` cannot be called.
        """
        if not callable(fn):
            raise TypeError(f"expected a function, got {type(fn).__name__}")
        hooks = self._hooks
        # A signal that depends on another one must not vanish while somebody listens to it.
        callback = _Callback(fn, hooks, self if self._detach else None)
        hooks.callbacks[callback] = None
        if self.aborted:
            run = _Run()
            try:
                callback.run(run)
            finally:
                callback.run(run)
                hooks.callbacks.pop(callback, None)
            run.raise_failure()
        return callback.remove

    def _fire(self, reason: object) -> None:
        """Abort with `reason`, unless aborted already; in any case finish what an earlier abort has left undone."""
        run = _Run()
        try:
            self._mark(reason)
            self._call_back(run)
        finally:
            # Again, for the case that an interrupt ended the first try anywhere; otherwise this finds nothing to do.
            self._mark(reason)
            self._call_back(run)
        run.raise_failure()

    def _mark(self, reason: object) -> None:
        """Set the flag, here and in all signals that follow this one, and wake who waits, before any callback runs.

        A callback may take its time or wait for another thread; neither may delay an abort's being seen.
        """
        hooks = self._hooks
        _write(self, "reason", hooks.first_reason.setdefault("reason", reason))
        _write(self, "aborted", True)
        for woken in list(hooks.waiters):
            woken.put(None)
        for dependent in hooks.living_dependents():
            dependent._mark(self.reason)

    def _call_back(self, run: _Run) -> None:
        hooks = self._hooks
        while callbacks := list(hooks.callbacks):
            for callback in callbacks:
                callback.run(run)
                hooks.callbacks.pop(callback, None)
        for dependent in hooks.living_dependents():
            dependent._mark(self.reason)  # it may have come after this signal was marked
            dependent._call_back(run)  # this also takes it out of our dependents
        self._unregister()

    def _follow(self, parents: Iterable[AbortSignal]) -> None:
        for parent in parents:
            if not isinstance(parent, AbortSignal):
                raise TypeError(f"expected an AbortSignal, got {type(parent).__name__}")
            link = _Link(self, parent._hooks.dependents.discard)
            # The bound method keeps the parent alive: an unheld timeout must still reach us.
            self._detach[partial(parent._forget, link)] = None
            parent._hooks.dependents.add(link)
            if parent.aborted:
                self._fire(parent.reason)
            if self.aborted:
                self._unregister()  # an earlier parent may have fired before this one was listed
                return

    def _forget(self, link: _Link) -> None:
        self._hooks.dependents.discard(link)

    def _unregister(self) -> None:
        # Only what was called is taken out: another thread may still be adding parents.
        for detach in list(self._detach):
            detach()
            self._detach.pop(detach, None)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"`{name}` of an AbortSignal cannot be set; call `abort()` of its AbortController")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an AbortSignal belongs to its process and cannot be pickled or copied; make a new one there")

    def __repr__(self) -> str:
        return f"<AbortSignal aborted: {text_of(self.reason)}>" if self.aborted else "<AbortSignal>"


class AbortController:
    """Aborts its `signal`, once.

    With `parents` the signal also aborts when one of them does. `close()`, or leaving a `with` block, unregisters
    from the parents without aborting; so does dropping controller and signal.

    Threads: `abort` and `close` may be called from any thread, from a signal handler and from a finaliser; they take
    no lock that an interrupted frame could hold. `abort` runs the callbacks on the calling thread and returns after
    them; if two threads abort at once, the first reason stands and each callback runs on one of the two.
    """

    __slots__ = ("__weakref__", "_signal")

    def __init__(self, *, parents: Iterable[AbortSignal] = ()) -> None:
        self._signal = AbortSignal.any(*parents)

    @property
    def signal(self) -> AbortSignal:
        """The signal to hand out."""
        return self._signal

    def abort(self, reason: object = None) -> None:
        """Abort the signal; `reason` can be anything, by default `"aborted"`. Does nothing if it is aborted."""
        self._signal._fire("aborted" if reason is None else reason)

    def close(self) -> None:
        """Stop following the parents; an abort of a parent that is under way may still arrive."""
        self._signal._unregister()

    def __enter__(self) -> AbortController:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "an AbortController belongs to its process and cannot be pickled or copied; make a new one there"
        )

    def __repr__(self) -> str:
        return f"<AbortController {self._signal!r}>"


class _Hooks:
    """Who is to learn of one signal's abort; apart from the signal, so that it can be held without holding the signal.

    A callback of a signal that depends on others holds that signal. So whoever holds these hooks (a parent, a timer)
    keeps the signal alive exactly as long as somebody listens to it.
    """

    __slots__ = ("callbacks", "dependents", "first_reason", "waiters")

    def __init__(self) -> None:
        # Dicts as ordered sets: insert, `pop` with a default and `list(...)` are atomic, and keys compare by identity.
        self.callbacks: dict[_Callback, None] = {}
        self.dependents: set[_Link] = set()
        self.waiters: dict[Mailbox[None], None] = {}
        self.first_reason: dict[str, object] = {}

    def living_dependents(self) -> list[AbortSignal]:
        """Return the dependent signals that have not been dropped, oldest first."""
        links = sorted(list(self.dependents), key=_link_number)  # noqa: C414 - only `list` copies a set atomically
        return [signal for signal in [link() for link in links] if signal is not None]


class _Link(weakref.ref[AbortSignal]):
    """The way from a parent or a timer to a dependent signal, which does not by itself keep that signal alive.

    When the signal is dropped, `dropped(link)` is called; it has to be a C function. An interrupt would find its way
    into a Python function, such as `__del__`, and be swallowed there with the work half done.
    """

    __slots__ = ("hooks", "number")

    # By identity, unlike other weak references: two links to one signal are two, and a dead one can still be found.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    hooks: _Hooks
    number: int

    def __new__(cls, signal: AbortSignal, dropped: Callable[[Any], object]) -> _Link:
        link = super().__new__(cls, signal, dropped)
        link.hooks = signal._hooks
        link.number = next(_numbers)
        return link


class _Run:
    """One attempt to run callbacks: by whom, and what could not be logged away."""

    __slots__ = ("failure", "thread_id")

    def __init__(self) -> None:
        self.thread_id = threading.get_ident()
        self.failure: BaseException | None = None

    def raise_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback holds this frame


_REMOVED: Final = _Run()


class _Callback:
    """A registered function that runs at most once, or never once it is removed."""

    __slots__ = ("claim", "ended", "fn", "hooks", "keeps", "removers", "started")

    def __init__(self, fn: Callable[[], object], hooks: _Hooks, keeps: AbortSignal | None) -> None:
        self.fn = fn
        self.hooks = hooks
        self.keeps = keeps
        self.claim: dict[str, _Run] = {}
        self.started = False
        self.ended = False
        self.removers: dict[Mailbox[None], None] = {}

    def run(self, run: _Run) -> None:
        """Run the function if `run` is the first to claim it; for the same `run` again, finish what was interrupted."""
        if self.claim.setdefault("run", run) is not run:
            return
        try:
            if not self.started:
                self.started = True
                self.fn()
        except (Exception, AbortRequested) as error:
            _log(self.fn, error)
        except BaseException as error:
            if run.failure is None:
                run.failure = error
        finally:
            self.ended = True
            for woken in list(self.removers):
                woken.put(None)

    def remove(self) -> None:
        """Take the callback back; return when it is not running."""
        self.hooks.callbacks.pop(self, None)
        claimant = self.claim.setdefault("run", _REMOVED)
        if claimant is _REMOVED or self.ended:
            return
        if claimant.thread_id == threading.get_ident():
            # Called by the function itself, or by a handler that interrupted the frame which is about to call it.
            self.started = True
            return
        woken: Mailbox[None] = Mailbox()
        self.removers[woken] = None
        if not self.ended:
            woken.get()


def _expire(link: _Link, stop: _thread.LockType, seconds: float, reason: str) -> None:
    """Abort the linked signal after `seconds`, unless `stop` is released before because it was dropped."""
    if not stop.acquire(timeout=seconds):
        signal = link()
        if signal is not None:
            signal._fire(reason)


def _nothing() -> None:
    pass


def _log(fn: Callable[[], object], error: BaseException) -> None:
    try:
        name = getattr(fn, "__qualname__", type(fn).__name__)
    except Exception:
        name = type(fn).__name__  # somebody's proxy: whatever it does when asked, the abort goes on
    log_failure("abort", error, "the abort callback `%s` failed", name)
