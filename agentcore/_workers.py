"""A pool of daemon threads whose workers can be given up.

A stock `ThreadPoolExecutor` joins its workers when the interpreter exits, so that one stuck call keeps the process
from ending. Here nothing is joined that nobody waits for. What `_mailbox` says of Ctrl-C holds here too.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from agentcore._mailbox import Mailbox, start_daemon, uninterrupted

__all__ = ["DaemonThreadPool"]

_T = TypeVar("_T")


class DaemonThreadPool(ThreadPoolExecutor):
    """A thread pool whose workers are named daemon threads and can be abandoned.

    A worker exists only while there is something to run: no thread is left once the functions have returned, whether
    or not the pool was shut down or is still held. With `keep_idle` a worker that has nothing to run waits for the next
    call instead, until `shutdown` or until nobody holds the pool: starting a thread costs more than most calls. Each
    call runs in a copy of the submitter's context variables. Whatever a function raises, `KeyboardInterrupt` and
    `SystemExit` included, ends up in its future.

    Threads: all methods may be called from any thread, the pool's own workers included. An interrupt (Ctrl-C) during
    any of them leaves the pool usable.
    """

    def __init__(
        self, max_workers: int, thread_name_prefix: str = "agentcore-worker", *, keep_idle: bool = False
    ) -> None:
        super().__init__(max_workers, thread_name_prefix)
        self.__crew = _Crew(max_workers, f"{thread_name_prefix}-idle" if keep_idle else None)
        self.__finaliser = weakref.finalize(self, self.__crew.release_idle)
        self.__finaliser.atexit = False
        self.__prefix = thread_name_prefix
        self.__numbers = itertools.count(1)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run `fn(*args, **kwargs)` on a worker as soon as fewer than `max_workers` are busy.

        Raises `RuntimeError` after `shutdown` and when no thread can be started; the call does not run then.
        """
        return self.submit_named(f"{self.__prefix}-{next(self.__numbers)}", fn, *args, **kwargs)

    def submit_named(self, name: str, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Do the same as `submit` on a thread that is called `name` for the time of the call."""
        call = _Call(name, partial(fn, *args, **kwargs))
        self.__crew.take_on(call)
        return call.future

    def abandon(self, future: Future[Any]) -> None:
        """Give a call up: its worker counts no more, and what it returns later is dropped.

        The future ends with `CancelledError` at once; a call that has not begun never runs. A call that is done, or
        that belongs to another pool, is left as it is.
        """
        self.__crew.abandon(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; with `wait`, return when all workers but abandoned ones, and the caller, are gone."""
        self.__crew.close(cancel=cancel_futures)
        self.__finaliser.detach()  # it would swallow an interrupt, and has nothing to do any more
        if wait:
            self.__crew.wait()


class _Call:
    """A function to run, in which context, on which thread, and the future that tells of it."""

    __slots__ = ("context", "fn", "future", "name", "thread")

    def __init__(self, name: str, fn: Callable[[], Any]) -> None:
        self.name = name
        self.fn = fn
        self.context = contextvars.copy_context()
        self.future: Future[Any] = Future()
        self.thread: threading.Thread | None = None  # set by the thread itself: the call has begun


class _Crew:
    """What a pool and its threads share; the threads do not hold the pool.

    A call is in `pending`, then in `running`, then in neither. Whoever takes one out of `running` sees to it that a
    pending one takes its place.
    """

    def __init__(self, size: int, idle_name: str | None) -> None:
        self.size = size
        self.idle_name = idle_name  # `None`: a worker with nothing to run ends
        self.idle: list[tuple[Mailbox[_Call | None], threading.Thread]] = []
        # Re-entrant, because a finaliser can run inside; each block is a few operations that call nothing foreign.
        self.lock = threading.RLock()
        self.pending: deque[_Call] = deque()
        self.running: dict[_Call, None] = {}
        self.leaving: list[threading.Thread] = []  # have nothing more to do, but may not have ended yet
        self.closed = False
        self.waiters: dict[Mailbox[None], None] = {}

    def take_on(self, call: _Call) -> None:
        waiting: Mailbox[_Call | None] | None = None
        try:
            with self.lock:
                if self.closed:
                    raise RuntimeError("cannot schedule new futures after shutdown")
                if len(self.running) >= self.size:
                    self.pending.append(call)
                    return
                self.running[call] = None
                if self.idle:
                    waiting = self.idle[-1][0]
                    del self.idle[-1]
            if waiting is not None:
                waiting.put(call)
            else:
                start_daemon(partial(self.work, [call]), call.name)
        except BaseException:
            self.withdraw(call)
            if waiting is not None and all(mailbox is not waiting for mailbox, _ in self.idle):
                waiting.put(None)  # its thread is no longer listed; it would wait for ever
            raise

    def withdraw(self, call: _Call) -> None:
        """Take out a call that has not begun; its thread, should it still come, finds that out and ends."""
        with self.lock:
            if call.thread is None:
                self.running.pop(call, None)
                if call in self.pending:
                    self.pending.remove(call)

    def work(self, handed: list[_Call]) -> None:
        """Run the call, and then what is pending or comes while the thread is idle: the body of a worker thread.

        The call comes in a list, out of which it is taken: a thread holds what it was started with until it ends.
        """
        thread = threading.current_thread()
        following: _Call | None = handed.pop()
        with self.lock:
            # Here, where nobody joins: nobody does before `running` is empty.
            self.leaving = [other for other in self.leaving if other.is_alive()]
        while following is not None and self.begin(following, thread):
            call = following
            thread.name = call.name
            _run(call)
            following = self.follow(call, thread)
            if following is None:
                del call  # or its result would live as long as the thread is idle
                following = self.wait_for_call(thread)
        # An exception's traceback holds its frames and those that called them, the future holds the exception, and the
        # call the future: no cycle through here.
        call = following  # type: ignore[assignment]
        del call

    def begin(self, call: _Call, thread: threading.Thread) -> bool:
        """Note that a thread has a call; return whether the call has not been withdrawn meanwhile."""
        with self.lock:
            if call not in self.running:
                return False
            call.thread = thread
            return True

    def wait_for_call(self, thread: threading.Thread) -> _Call | None:
        """Wait idle for another call; return it, or `None` when the thread is to end."""
        if self.idle_name is None:
            return None
        mailbox: Mailbox[_Call | None] = Mailbox()
        with self.lock:
            if self.closed or thread not in self.leaving:  # or its call was given up, and its place with it
                return None
            self.leaving.remove(thread)
            self.idle.append((mailbox, thread))
        thread.name = self.idle_name
        return mailbox.get()

    def release_idle(self) -> None:
        """Let the idle threads end."""
        while self.idle:
            with self.lock:
                for mailbox, thread in self.idle[-1:]:
                    # First told, then off the list: an interrupt in between has it told again.
                    mailbox.put(None)
                    self.leaving.append(thread)
                    del self.idle[-1]

    def follow(self, call: _Call, thread: threading.Thread) -> _Call | None:
        """Give the place of a call that has returned to the next one; none if there is none, or no place left."""
        following = None
        with self.lock:
            if call in self.running:
                del self.running[call]
                if self.pending:
                    following = self.pending.popleft()
                    following.thread = thread
                    self.running[following] = None
                else:
                    self.leaving.append(thread)
        self.wake_waiters()
        return following

    def abandon(self, future: Future[Any]) -> None:
        with self.lock:
            call = next((call for call in (*self.running, *self.pending) if call.future is future), None)
        if call is None:
            return
        try:
            with self.lock:
                self.running.pop(call, None)
                if call in self.pending:
                    self.pending.remove(call)
            uninterrupted(partial(_give_up, future))
        finally:
            self.wake_waiters()
            while self.start_next():
                pass

    def start_next(self) -> bool:
        """Start a thread for the next pending call, if there are a call and room."""
        call = None
        try:
            with self.lock:
                if self.pending and len(self.running) < self.size:
                    call = self.pending[0]
                    self.running[call] = None
                    self.pending.popleft()
            if call is not None:
                start_daemon(partial(self.work, [call]), call.name)
        except RuntimeError as error:
            assert call is not None  # it comes from `start_daemon`
            self.withdraw(call)
            uninterrupted(partial(_fail, call.future, error.with_traceback(None)))
        except BaseException:
            if call is not None:
                self.withdraw(call)
                uninterrupted(call.future.cancel)
            raise
        return call is not None

    def close(self, *, cancel: bool) -> None:
        with self.lock:
            self.closed = True
            dropped = list(self.pending) if cancel else []
            for call in dropped:
                self.pending.remove(call)
        self.release_idle()
        for call in dropped:
            uninterrupted(call.future.cancel)

    def wait(self) -> None:
        """Wait until no call is running but one that waits here itself, and until the threads have really ended."""
        here = threading.get_ident()
        woken: Mailbox[None] = Mailbox()
        try:
            self.waiters[woken] = None
            while True:
                while self.start_next():  # for what an abandoned call, or an interrupt, has left behind
                    pass
                with self.lock:
                    busy = any(call.thread is None or call.thread.ident != here for call in self.running)
                    leaving = list(self.leaving)
                if not busy:
                    break
                woken.get()
        finally:
            self.waiters.pop(woken, None)
        for thread in leaving:
            if thread.ident != here:
                thread.join()

    def wake_waiters(self) -> None:
        for woken in list(self.waiters):
            woken.put(None)


def _run(call: _Call) -> None:
    future = call.future
    try:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call.context.run(call.fn)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
    except InvalidStateError:
        pass  # abandoned in the meantime
    finally:
        del call, future  # no cycle through here either


def _give_up(future: Future[Any]) -> None:
    if not future.cancel():
        _fail(future, CancelledError("the call was abandoned"))


def _fail(future: Future[Any], error: BaseException) -> None:
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass  # it has ended in the meantime
