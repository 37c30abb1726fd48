"""Daemon threads and their pool: named, abandonable, gone when done, and whole after any interrupt."""

import _thread
import contextvars
import gc
import math
import os
import random
import re
import shutil
import signal as os_signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from agentcore import _workers
from agentcore._mailbox import Mailbox, _report, start_daemon
from agentcore._workers import DaemonThreadPool

PATIENCE = 20.0
"""Seconds after which a wait that should have ended is a failure."""

PREFIX = "agentcore-test"

interrupted_anywhere = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The standard library keeps its threads in a weak set, whose Python code swallows an interrupt when one is freed."""


@pytest.fixture(autouse=True)
def _no_thread_is_still_about_to_start() -> Iterator[None]:
    """Wait also for threads without a name: an interrupted start goes on in the background."""
    before = _thread._count()
    yield
    deadline = time.monotonic() + PATIENCE
    while _thread._count() > before and time.monotonic() < deadline:
        signal_free_pause(0.001)


Interrupts = Callable[[Callable[[], None], float], None]


@pytest.fixture
def interrupt_after() -> Iterator[Interrupts]:
    """Have a function called by a signal handler on the main thread, once, after so many seconds; 0 calls it off."""
    action: list[Callable[[], None]] = []

    def handler(number: int, frame: object) -> None:
        if action:
            action.pop()()

    def interrupt_after(fn: Callable[[], None], seconds: float) -> None:
        action[:] = [fn] if seconds else []
        os_signal.setitimer(os_signal.ITIMER_REAL, seconds)

    before = os_signal.signal(os_signal.SIGALRM, handler)
    try:
        yield interrupt_after
    finally:
        os_signal.setitimer(os_signal.ITIMER_REAL, 0)
        os_signal.signal(os_signal.SIGALRM, before)


@pytest.fixture
def no_more_threads() -> Iterator[Callable[[], None]]:
    """Return what makes it impossible to start a thread, for real: its stack would not fit into memory."""
    try:
        yield lambda: (threading.stack_size(1 << 46), None)[1]
    finally:
        threading.stack_size(0)


@pytest.fixture
def pool() -> Iterator[DaemonThreadPool]:
    with DaemonThreadPool(2, PREFIX) as pool:
        yield pool


class Gate:
    """A function that says when it has begun, and returns when it is let go."""

    def __init__(self, result: object = None) -> None:
        self.result = result
        self.begun: SimpleQueue[None] = SimpleQueue()
        self.opened: SimpleQueue[None] = SimpleQueue()
        self.thread: threading.Thread | None = None

    def __call__(self) -> object:
        self.thread = threading.current_thread()
        self.begun.put(None)
        self.opened.get(timeout=PATIENCE)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def wait_until_begun(self) -> None:
        self.begun.get(timeout=PATIENCE)

    def has_begun(self) -> bool:
        return self.thread is not None

    def open(self) -> None:
        self.opened.put(None)


def in_thread(fn: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=fn, name="test", daemon=True)
    thread.start()
    return thread


def finish(*threads: threading.Thread | None) -> None:
    for thread in threads:
        assert thread is not None
        thread.join(PATIENCE)
        assert not thread.is_alive()


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(PREFIX)]


def wait_for_our_threads_to_end() -> None:
    """Also those that are only about to start: an interrupted start goes on in the background."""
    deadline = time.monotonic() + PATIENCE
    while our_threads():
        assert time.monotonic() < deadline, our_threads()
        signal_free_pause(0.001)


def interrupt() -> None:
    raise KeyboardInterrupt


def fail(error: BaseException) -> None:
    raise error


class TestStartDaemon:
    @pytest.mark.parametrize("start_it", [lambda fn: fn(), lambda fn: finish(in_thread(fn))], ids=["main", "other"])
    def test_it_runs_the_target_on_a_daemon_thread_of_that_name(self, start_it: Callable[[Any], None]) -> None:
        seen: SimpleQueue[threading.Thread] = SimpleQueue()
        started: list[threading.Thread] = []
        target = lambda: seen.put(threading.current_thread())  # noqa: E731
        start_it(lambda: started.append(start_daemon(target, f"{PREFIX}-one")))
        thread = seen.get(timeout=PATIENCE)
        assert started == [thread]
        assert (thread.name, thread.daemon) == (f"{PREFIX}-one", True)
        finish(thread)

    def test_the_target_runs_in_a_copy_of_the_callers_context(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("caller")
        seen: SimpleQueue[str] = SimpleQueue()
        thread = start_daemon(lambda: (seen.put(variable.get()), variable.set("thread")), PREFIX)
        finish(thread)
        assert (seen.get(timeout=0), variable.get()) == ("caller", "caller")

    def test_it_raises_when_no_thread_can_be_started(self, no_more_threads: Callable[[], None]) -> None:
        no_more_threads()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            start_daemon(lambda: None, PREFIX)
        assert our_threads() == []

    def test_it_raises_what_only_the_second_thread_ran_into(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threading.Thread, "start", lambda self: fail(RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            start_daemon(lambda: None, PREFIX)

    def test_the_second_thread_reports_how_it_went(self) -> None:
        outcome: Mailbox[BaseException | None] = Mailbox()
        error = SystemExit()
        _report(lambda: None, outcome)
        _report(lambda: fail(error), outcome)
        assert (outcome.get(0), outcome.get(0)) == (None, error)

    def test_it_raises_rather_than_hangs_while_the_interpreter_shuts_down(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "is_finalizing", lambda: True)
        with pytest.raises(RuntimeError, match="interpreter shutdown"):
            start_daemon(lambda: None, PREFIX)

    @interrupted_anywhere
    def test_an_interrupt_while_a_thread_starts_never_leaves_it_stuck(self, interrupt_after: Interrupts) -> None:
        for _ in range(1000):
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 2e-4))
                start_daemon(lambda: None, PREFIX)
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
        wait_for_our_threads_to_end()


class TestMailbox:
    def test_it_returns_the_items_in_order(self) -> None:
        mailbox: Mailbox[str] = Mailbox()
        assert mailbox.empty()
        for item in "abc":
            mailbox.put(item)
        assert not mailbox.empty()
        assert [mailbox.get(), mailbox.get(0), mailbox.get(-1)] == ["a", "b", "c"]

    def test_who_waits_is_woken_by_the_next_item(self) -> None:
        mailbox: Mailbox[str] = Mailbox()
        mailbox.put("now")
        assert mailbox.get() == "now"
        thread = in_thread(lambda: (signal_free_pause(0.15), mailbox.put("later")))
        assert mailbox.get() == "later"
        finish(thread)

    @pytest.mark.parametrize("timeout", [math.inf, 1e300, threading.TIMEOUT_MAX])
    def test_no_timeout_is_too_long_on_any_thread(self, timeout: float) -> None:
        mailbox: Mailbox[str] = Mailbox()
        results: list[str] = []
        thread = in_thread(lambda: results.append(mailbox.get(timeout)))
        mailbox.put("item")
        finish(thread)
        thread = in_thread(lambda: (signal_free_pause(0.01), mailbox.put("item")))
        assert [mailbox.get(timeout), *results] == ["item", "item"]
        finish(thread)

    @pytest.mark.parametrize("timeout", [0.0, -1.0, -math.inf, 0.01, 0.15])
    def test_it_raises_empty_when_the_time_is_over(self, timeout: float) -> None:
        errors: list[str] = []

        def expect_empty() -> None:
            with pytest.raises(Empty):
                Mailbox[None]().get(timeout)
            errors.append("Empty")

        expect_empty()
        finish(in_thread(expect_empty))
        assert errors == ["Empty", "Empty"]

    def test_every_item_is_given_to_one_of_several_that_wait(self) -> None:
        mailbox: Mailbox[int] = Mailbox()
        results: SimpleQueue[int] = SimpleQueue()
        waiting = [in_thread(lambda: [results.put(mailbox.get(PATIENCE)) for _ in range(100)]) for _ in range(4)]
        adding = [in_thread(lambda n=n: [mailbox.put(200 * n + i) for i in range(200)]) for n in range(2)]
        finish(*waiting, *adding)
        assert sorted(results.get(timeout=0) for _ in range(400)) == list(range(400))

    def test_ctrl_c_ends_a_wait_on_the_main_thread(self, interrupt_after: Interrupts) -> None:
        interrupt_after(interrupt, 0.02)
        with pytest.raises(KeyboardInterrupt) as caught:
            Mailbox[None]().get(PATIENCE)
        assert caught.value.__context__ is None

    def test_it_never_sleeps_through_the_handler_that_would_wake_it(self, interrupt_after: Interrupts) -> None:
        mailbox: Mailbox[int] = Mailbox()
        for number in range(300):
            interrupt_after(partial(mailbox.put, number), random.uniform(2e-6, 4e-5))
            assert mailbox.get(PATIENCE) == number

    @pytest.mark.parametrize("timeout", [0.0, 0.0002])
    def test_a_signal_that_is_handled_as_the_time_ends_does_not_make_it_sleep_for_ever(
        self, timeout: float, interrupt_after: Interrupts
    ) -> None:
        for _ in range(1000):
            interrupt_after(int, random.uniform(2e-6, 2e-5 + 1.2 * timeout))
            with pytest.raises(Empty):
                Mailbox[None]().get(timeout)

    def test_an_interrupt_anywhere_in_put_loses_no_wake_up(self, interrupt_after: Interrupts) -> None:
        for number in range(1000):
            mailbox: Mailbox[int] = Mailbox()
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 1e-5))
                mailbox.put(number)
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
            # There is an item if and only if who waits is woken.
            assert mailbox._more.acquire(blocking=False) is not mailbox.empty()


def signal_free_pause(seconds: float) -> None:
    lock = threading.Lock()
    lock.acquire()
    assert not lock.acquire(timeout=seconds)


class TestSubmitting:
    def test_it_is_a_thread_pool_executor_like_any_other(self, pool: DaemonThreadPool) -> None:
        assert isinstance(pool, ThreadPoolExecutor)
        assert pool.submit(divmod, 7, 2).result(PATIENCE) == (3, 1)
        assert pool.submit(sorted, [1, 3, 2], reverse=True).result(PATIENCE) == [3, 2, 1]
        assert list(pool.map(str.upper, "abcdef")) == list("ABCDEF")

    def test_max_workers_has_to_be_positive(self) -> None:
        with pytest.raises(ValueError, match="max_workers"):
            DaemonThreadPool(0)

    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, InvalidStateError])
    def test_whatever_a_function_raises_is_in_its_future_and_nowhere_else(
        self, kind: type[BaseException], pool: DaemonThreadPool, capfd: pytest.CaptureFixture[str]
    ) -> None:
        error = kind("why")
        assert pool.submit(fail, error).exception(PATIENCE) is error
        pool.shutdown()
        assert capfd.readouterr() == ("", "")

    def test_workers_are_named_daemon_threads(self, pool: DaemonThreadPool) -> None:
        first, second = Gate(), Gate()
        pool.submit(first)
        pool.submit_named(f"{PREFIX}-bash-1", second)
        for gate in (first, second):
            gate.wait_until_begun()
        assert sorted((thread.name, thread.daemon) for thread in our_threads()) == [
            (f"{PREFIX}-1", True),
            (f"{PREFIX}-bash-1", True),
        ]
        first.open()
        second.open()

    def test_a_worker_that_takes_the_next_call_takes_its_name(self) -> None:
        with DaemonThreadPool(1, PREFIX) as pool:
            gate = Gate()
            pool.submit(gate)
            name = pool.submit_named(f"{PREFIX}-second", lambda: threading.current_thread().name)
            gate.open()
            assert name.result(PATIENCE) == f"{PREFIX}-second"

    def test_no_more_than_max_workers_are_busy_and_the_rest_run_in_order(self) -> None:
        order: list[int] = []
        with DaemonThreadPool(2, PREFIX) as pool:
            gates = [Gate(), Gate()]
            for gate in gates:
                pool.submit(gate)
            futures = [pool.submit(order.append, number) for number in range(5)]
            for gate in gates:
                gate.wait_until_begun()
            assert (order, len(our_threads())) == ([], 2)
            gates[0].open()
            for future in futures:
                future.result(PATIENCE)
            gates[1].open()
        assert order == [0, 1, 2, 3, 4]

    def test_each_call_runs_in_a_copy_of_its_submitters_context(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")

        def swap() -> str:
            before = variable.get()
            variable.set("worker")
            return before

        with DaemonThreadPool(1, PREFIX) as pool:
            gate = Gate()
            pool.submit(gate)
            futures = []
            for value in ("one", "two"):
                variable.set(value)
                futures.append(pool.submit(swap))
            gate.open()
            assert [future.result(PATIENCE) for future in futures] == ["one", "two"]
        assert variable.get() == "two"

    def test_a_pending_call_can_be_cancelled_by_its_future(self) -> None:
        with DaemonThreadPool(1, PREFIX) as pool:
            gate, calls = Gate(), []
            pool.submit(gate)
            cancelled = pool.submit(calls.append, "cancelled")
            kept = pool.submit(calls.append, "kept")
            assert cancelled.cancel()
            gate.open()
            kept.result(PATIENCE)
        assert calls == ["kept"]

    def test_a_call_for_which_no_thread_can_be_started_raises_at_submit_and_takes_no_place(
        self, no_more_threads: Callable[[], None]
    ) -> None:
        calls: list[str] = []
        with DaemonThreadPool(1, PREFIX) as pool:
            no_more_threads()
            for _ in range(3):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    pool.submit(calls.append, "never")
            threading.stack_size(0)
            pool.submit(calls.append, "now").result(PATIENCE)
        assert calls == ["now"]

    def test_many_threads_may_submit_at_once(self) -> None:
        results: SimpleQueue[int] = SimpleQueue()
        busy: list[int] = []
        too_many: list[int] = []

        def work(number: int) -> None:
            busy.append(number)
            if len(busy) > 3:
                too_many.append(number)
            busy.remove(number)
            results.put(number)

        with DaemonThreadPool(3, PREFIX) as pool:
            finish(*[in_thread(lambda n=n: [pool.submit(work, 100 * n + i) for i in range(50)]) for n in range(4)])
        assert too_many == []
        assert sorted(results.get(timeout=0) for _ in range(200)) == sorted(
            100 * n + i for n in range(4) for i in range(50)
        )

    def test_a_call_may_submit_another_one(self, pool: DaemonThreadPool) -> None:
        assert pool.submit(lambda: pool.submit(lambda: "inner")).result(PATIENCE).result(PATIENCE) == "inner"


class TestShutdown:
    def test_no_call_is_accepted_any_more(self, pool: DaemonThreadPool) -> None:
        pool.shutdown()
        pool.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(print)

    def test_it_waits_for_running_and_pending_calls_and_their_threads(self) -> None:
        pool, done = DaemonThreadPool(1, PREFIX), []
        gate = Gate()
        pool.submit(gate)
        pool.submit(done.append, "pending")
        gate.wait_until_begun()
        thread = in_thread(lambda: (signal_free_pause(0.02), gate.open()))
        pool.shutdown()
        assert (done, our_threads()) == (["pending"], [])
        finish(thread)

    def test_no_thread_is_left_even_if_the_last_call_has_just_returned(self) -> None:
        for _ in range(200):
            pool = DaemonThreadPool(4, PREFIX)
            results: SimpleQueue[int] = SimpleQueue()
            for number in range(4):
                pool.submit(results.put, number)
            for _ in range(4):
                results.get(timeout=PATIENCE)
            pool.shutdown()
            assert our_threads() == []

    def test_without_wait_it_returns_at_once_and_the_threads_end_with_their_calls(self) -> None:
        pool, gate, done = DaemonThreadPool(1, PREFIX), Gate(), []
        pool.submit(gate)
        pending = pool.submit(done.append, "pending")
        gate.wait_until_begun()
        pool.shutdown(wait=False)
        gate.open()
        pending.result(PATIENCE)
        finish(gate.thread)
        assert done == ["pending"]

    def test_it_cancels_what_has_not_begun_if_asked(self) -> None:
        pool, gate = DaemonThreadPool(1, PREFIX), Gate("finished")
        running, pending = pool.submit(gate), [pool.submit(print) for _ in range(2)]
        gate.wait_until_begun()
        pool.shutdown(wait=False, cancel_futures=True)
        assert all(future.cancelled() for future in pending)
        gate.open()
        assert running.result(PATIENCE) == "finished"
        pool.shutdown()

    def test_it_does_not_wait_for_abandoned_workers(self) -> None:
        pool, gate = DaemonThreadPool(1, PREFIX), Gate()
        future = pool.submit(gate)
        gate.wait_until_begun()
        pool.abandon(future)
        pool.shutdown()
        assert our_threads() == [gate.thread]
        gate.open()
        finish(gate.thread)

    def test_it_goes_on_when_the_worker_it_waits_for_is_abandoned(self) -> None:
        pool, gate = DaemonThreadPool(1, PREFIX), Gate()
        future = pool.submit(gate)
        gate.wait_until_begun()
        thread = in_thread(lambda: (signal_free_pause(0.02), pool.abandon(future)))
        pool.shutdown()
        finish(thread)
        gate.open()
        finish(gate.thread)

    def test_it_waits_for_the_call_that_takes_the_place_of_an_abandoned_one(self) -> None:
        for _ in range(100):
            pool, gate, done = DaemonThreadPool(1, PREFIX), Gate(), []
            future = pool.submit(gate)
            pool.submit(done.append, "pending")
            gate.wait_until_begun()
            thread = in_thread(lambda: pool.abandon(future))  # noqa: B023
            pool.shutdown()
            assert done == ["pending"]
            gate.open()
            finish(thread, gate.thread)

    def test_a_call_may_shut_down_a_pool_in_which_it_has_the_only_place(self) -> None:
        pool, done = DaemonThreadPool(1, PREFIX), []
        gate = Gate()
        future = pool.submit(lambda: (gate(), pool.shutdown()))
        pending = pool.submit(done.append, "pending")
        gate.open()
        future.result(PATIENCE)
        pending.result(PATIENCE)
        pool.shutdown()
        assert done == ["pending"]

    def test_a_call_may_shut_its_own_pool_down(self) -> None:
        pool = DaemonThreadPool(2, PREFIX)
        other = Gate()
        pool.submit(other)
        other.wait_until_begun()
        future = pool.submit(pool.shutdown)
        other.open()
        assert future.result(PATIENCE) is None
        pool.shutdown()
        assert our_threads() == []

    def test_a_thread_that_has_nothing_more_to_do_may_shut_its_pool_down(self) -> None:
        class Last:
            def __del__(self) -> None:
                pool.shutdown()
                done.put(threading.get_ident())

        pool, kept, done = DaemonThreadPool(1, PREFIX), threading.local(), SimpleQueue[int]()
        gate = Gate()
        pool.submit(lambda: (setattr(kept, "last", Last()), gate(), None)[-1])
        gate.wait_until_begun()
        gate.open()
        ident = done.get(timeout=PATIENCE)
        assert gate.thread is not None
        assert ident == gate.thread.ident
        finish(gate.thread)

    def test_ctrl_c_ends_the_wait(self, interrupt_after: Interrupts) -> None:
        pool, gate = DaemonThreadPool(1, PREFIX), Gate()
        pool.submit(gate)
        interrupt_after(interrupt, 0.02)
        with pytest.raises(KeyboardInterrupt):
            pool.shutdown()
        gate.open()
        pool.shutdown()
        assert our_threads() == []


class TestAbandoning:
    def test_an_abandoned_call_ends_as_cancelled_at_once(self, pool: DaemonThreadPool) -> None:
        gate = Gate("late")
        future = pool.submit(gate)
        gate.wait_until_begun()
        pool.abandon(future)
        with pytest.raises(CancelledError, match="abandoned"):
            future.result(0)
        gate.open()
        finish(gate.thread)

    @pytest.mark.parametrize("result", ["late", ValueError("late"), SystemExit("late")], ids=repr)
    def test_what_an_abandoned_call_returns_or_raises_late_is_dropped(
        self, result: object, pool: DaemonThreadPool, capfd: pytest.CaptureFixture[str]
    ) -> None:
        gate = Gate(result)
        future = pool.submit(gate)
        gate.wait_until_begun()
        pool.abandon(future)
        pool.abandon(future)
        gate.open()
        finish(gate.thread)
        assert isinstance(future.exception(0), CancelledError)
        assert capfd.readouterr() == ("", "")

    def test_an_abandoned_worker_does_not_count_and_takes_no_further_calls(self) -> None:
        with DaemonThreadPool(1, PREFIX) as pool:
            stuck, pending = Gate(), Gate("pending")
            future, following = pool.submit(stuck), pool.submit(pending)
            stuck.wait_until_begun()
            last = pool.submit(threading.current_thread)
            pool.abandon(future)
            pending.wait_until_begun()
            stuck.open()
            finish(stuck.thread)
            assert pending.thread is not stuck.thread
            pending.open()
            assert following.result(PATIENCE) == "pending"
            assert last.result(PATIENCE) is pending.thread

    def test_all_workers_can_be_abandoned_again_and_again(self) -> None:
        gates = [Gate() for _ in range(6)]
        with DaemonThreadPool(2, PREFIX) as pool:
            for gate in gates:
                future = pool.submit(gate)
                gate.wait_until_begun()
                pool.abandon(future)
            assert pool.submit(lambda: "free").result(PATIENCE) == "free"
        for gate in gates:
            gate.open()
            finish(gate.thread)

    @pytest.mark.parametrize("call_it", [lambda fn: fn(), lambda fn: finish(in_thread(fn))], ids=["main", "other"])
    def test_an_abandoned_call_that_has_not_begun_never_runs(self, call_it: Callable[[Any], None]) -> None:
        with DaemonThreadPool(1, PREFIX) as pool:
            running, never = Gate(), Gate()
            pool.submit(running)
            pending = pool.submit(never)
            call_it(lambda: pool.abandon(pending))
            assert pending.cancelled()
            running.open()
        assert not never.has_begun()

    def test_a_finished_or_foreign_future_is_left_as_it_is(self, pool: DaemonThreadPool) -> None:
        finished = pool.submit(lambda: "result")
        assert finished.result(PATIENCE) == "result"
        foreign: Future[None] = Future()
        pool.abandon(finished)
        pool.abandon(foreign)
        assert (finished.result(0), foreign.done()) == ("result", False)

    def test_it_may_be_called_on_any_thread(self, pool: DaemonThreadPool) -> None:
        gate = Gate()
        future = pool.submit(gate)
        gate.wait_until_begun()
        finish(in_thread(lambda: pool.abandon(future)))
        assert isinstance(future.exception(0), CancelledError)
        gate.open()
        finish(gate.thread)

    def test_a_pending_call_for_which_no_thread_can_be_started_fails(self, no_more_threads: Callable[[], None]) -> None:
        with DaemonThreadPool(1, PREFIX) as pool:
            gate = Gate()
            stuck, pending = pool.submit(gate), pool.submit(print)
            cancelled = pool.submit(print)
            cancelled.cancel()
            gate.wait_until_begun()
            no_more_threads()
            pool.abandon(stuck)
            threading.stack_size(0)
            assert isinstance(stuck.exception(0), CancelledError)
            assert isinstance(pending.exception(0), RuntimeError)
            assert cancelled.cancelled()
            assert pool.submit(lambda: "free").result(PATIENCE) == "free"
        gate.open()
        finish(gate.thread)


class TestNothingIsLeft:
    def test_the_threads_end_with_their_calls_though_the_pool_is_held(self) -> None:
        pool, gate = DaemonThreadPool(2, PREFIX), Gate()
        pool.submit(gate)
        gate.open()
        gate.wait_until_begun()
        finish(gate.thread)
        assert pool.submit(lambda: "again").result(PATIENCE) == "again"
        pool.shutdown()

    def test_a_running_call_does_not_hold_the_pool_and_is_not_lost_with_it(self) -> None:
        pool, gate, done = DaemonThreadPool(1, PREFIX), Gate(), SimpleQueue[str]()
        pool.submit(gate)
        pool.submit(done.put, "pending")
        gate.wait_until_begun()
        reference = weakref.ref(pool)
        del pool
        gc.collect()
        assert reference() is None
        gate.open()
        assert done.get(timeout=PATIENCE) == "pending"
        finish(gate.thread)

    def test_arguments_and_exceptions_are_freed_without_the_collector(self, pool: DaemonThreadPool) -> None:
        class Held:
            pass

        def failing(argument: Held) -> None:
            local = Held()
            references.append(weakref.ref(local))
            raise ValueError(argument)

        argument = Held()
        references: list[weakref.ref[Held]] = [weakref.ref(argument)]
        gc.disable()
        try:
            future = pool.submit(failing, argument)
            pool.shutdown()
            failed = future.exception(0) is not None  # not in an assert, which would hold the exception
            del argument, future
            assert failed
            assert [reference() for reference in references] == [None, None]
        finally:
            gc.enable()


@interrupted_anywhere
class TestInterruptsAnywhere:
    def test_the_pool_is_whole_after_an_interrupt_between_any_two_bytecodes(self, interrupt_after: Interrupts) -> None:
        for _ in range(400):
            pool = DaemonThreadPool(2, PREFIX)
            gates = [Gate() for _ in range(3)]
            futures: list[Future[object]] = []
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 6e-4))
                futures.extend(pool.submit(gate) for gate in gates)
                pool.abandon(futures[0])
                pool.shutdown(wait=False)
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
            for gate in gates:
                gate.open()
            pool.shutdown()
            wait_for_our_threads_to_end()
            with pytest.raises(RuntimeError, match="after shutdown"):
                pool.submit(print)

    def test_a_pool_that_was_interrupted_has_all_its_places(self, interrupt_after: Interrupts) -> None:
        pool = DaemonThreadPool(2, PREFIX)
        for _ in range(500):
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 3e-4))
                pool.submit(int)
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
        gates = Gate(), Gate()
        for gate in gates:
            pool.submit(gate)
        for gate in gates:
            gate.wait_until_begun()
            gate.open()
        pool.shutdown()

    def test_a_call_whose_submit_was_interrupted_does_not_run_when_its_thread_comes_late(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        late: list[Callable[[], object]] = []
        calls: list[str] = []

        def interrupted(target: Callable[[], object], name: str) -> None:
            late.append(target)
            raise KeyboardInterrupt

        pool = DaemonThreadPool(1, PREFIX)
        with monkeypatch.context() as patch:
            patch.setattr(_workers, "start_daemon", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.submit(calls.append, "never")
        finish(in_thread(late[0]))
        pool.submit(calls.append, "next").result(PATIENCE)
        pool.shutdown()
        assert calls == ["next"]

    def test_a_call_whose_submit_was_interrupted_is_not_left_pending(self) -> None:
        class Interrupted(deque[Any]):
            def append(self, call: Any) -> None:
                super().append(call)
                raise KeyboardInterrupt

        pool, gate, calls = DaemonThreadPool(1, PREFIX), Gate(), []
        pool.submit(gate)
        crew = pool._DaemonThreadPool__crew  # type: ignore[attr-defined]
        crew.pending = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            pool.submit(calls.append, "never")
        gate.open()
        pool.shutdown()
        assert calls == []

    @pytest.mark.parametrize("then", ["submit", "shutdown"])
    def test_an_interrupt_before_the_next_call_is_started_leaves_it_pending(self, then: str) -> None:
        class Interrupted(deque[Any]):
            def __bool__(self) -> bool:
                crew.pending = deque(self)
                raise KeyboardInterrupt

        pool, gate, calls = DaemonThreadPool(1, PREFIX), Gate(), []
        stuck, pending = pool.submit(gate), pool.submit(calls.append, "pending")
        crew = pool._DaemonThreadPool__crew  # type: ignore[attr-defined]
        crew.pending = Interrupted(crew.pending)
        gate.wait_until_begun()
        with pytest.raises(KeyboardInterrupt):
            pool.abandon(stuck)
        assert stuck.done()
        if then == "submit":
            pool.submit(calls.append, "next").result(PATIENCE)
            pending.result(PATIENCE)
            assert calls == ["next", "pending"]
        pool.shutdown()
        assert calls[-1:] == ["pending"]
        gate.open()
        finish(gate.thread)

    def test_a_call_that_had_begun_when_its_submit_was_interrupted_keeps_its_place(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate, real = Gate(), start_daemon

        def interrupted(target: Callable[[], object], name: str) -> None:
            real(target, name)
            gate.wait_until_begun()
            raise KeyboardInterrupt

        pool = DaemonThreadPool(1, PREFIX)
        with monkeypatch.context() as patch:
            patch.setattr(_workers, "start_daemon", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.submit(gate)
        following = pool.submit(lambda: "following")
        assert not following.running()
        gate.open()
        assert following.result(PATIENCE) == "following"
        pool.shutdown()

    def test_an_interrupt_while_the_next_call_is_started_cancels_that_call(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, gate = DaemonThreadPool(1, PREFIX), Gate()
        stuck, pending = pool.submit(gate), pool.submit(print)
        gate.wait_until_begun()
        with monkeypatch.context() as patch:
            patch.setattr(_workers, "start_daemon", lambda target, name: interrupt())
            with pytest.raises(KeyboardInterrupt):
                pool.abandon(stuck)
        assert pending.cancelled()
        assert pool.submit(lambda: "free").result(PATIENCE) == "free"
        gate.open()
        pool.shutdown()
        finish(gate.thread)


def interpreters() -> dict[str, str]:
    """Return every Python from 3.10 on that works on this machine, this one first, one a version, with its path."""
    names = [f"python3.{minor}" for minor in range(10, 20)]
    found = [shutil.which(name) for name in names]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += [str(path) for path in sorted(root.glob("versions/*/bin/python3"))]
    versions = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for path in found:
        if path is None:
            continue
        asked = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=PATIENCE)
        version = re.match(r"Python (3\.\d\d)\b", asked.stdout)
        if asked.returncode == 0 and version:
            versions.setdefault(version[1], path)
    return versions


ALONE = f"""
import sys, threading, time, atexit, types
package = types.ModuleType("agentcore")
package.__path__ = [{str(Path(_workers.__file__).parent)!r}]
sys.modules["agentcore"] = package
from agentcore import _mailbox, _workers
begun = threading.Event()
def stuck():
    begun.set()
    time.sleep(600)
def busy():
    begun.set()
    while True:
        pass
"""
"""Loads the modules without the package around them: they need nothing but the standard library."""

EXITS = {
    "a stuck worker": "pool = _workers.DaemonThreadPool(2); pool.submit(stuck); begun.wait()",
    "a busy worker": "pool = _workers.DaemonThreadPool(2); pool.submit(busy); begun.wait()",
    "pending calls": "pool = _workers.DaemonThreadPool(1); pool.submit(stuck); pool.submit(stuck); begun.wait()",
    "shutdown without wait": (
        "pool = _workers.DaemonThreadPool(1); pool.submit(stuck); begun.wait(); pool.shutdown(wait=False)"
    ),
    "an abandoned worker": (
        "pool = _workers.DaemonThreadPool(1); future = pool.submit(stuck); begun.wait()\n"
        "pool.abandon(future); pool.shutdown()"
    ),
    "a daemon thread": "_mailbox.start_daemon(stuck, 'agentcore-stuck'); begun.wait()",
}


def run_alone(python: str, code: str) -> subprocess.CompletedProcess[str]:
    # A process that is held by its worker would run into the timeout.
    return subprocess.run([python, "-c", ALONE + code], capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("python", [pytest.param(path, id=version) for version, path in interpreters().items()])
class TestInterpreterExit:
    @pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
    def test_no_worker_keeps_the_interpreter_from_exiting(self, python: str, code: str) -> None:
        finished = run_alone(python, f"{code}\nsys.exit(3)")
        assert (finished.returncode, finished.stdout, finished.stderr) == (3, "", "")

    def test_a_thread_that_is_wanted_while_the_interpreter_shuts_down_is_refused_or_run_but_nothing_hangs(
        self, python: str
    ) -> None:
        code = """
pool = _workers.DaemonThreadPool(1)
def at_exit():
    try:
        assert pool.submit(lambda: "ran").result(10) == "ran"
    except RuntimeError as error:
        assert "shutdown" in str(error)
    print("at exit")
atexit.register(at_exit)
class Last:
    def __init__(self):
        self.start, self.print = _workers.start_daemon, print
    def __del__(self):
        try:
            self.start(int, "agentcore-late")
        except RuntimeError:
            self.print("refused", flush=True)
last = Last()
"""
        finished = run_alone(python, code)
        assert (finished.returncode, finished.stdout, finished.stderr) == (0, "at exit\nrefused\n", "")
