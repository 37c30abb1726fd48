"""A pool that keeps its idle workers: they are used again, and gone when the pool is."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from typing import Any

import pytest

from agentcore import _workers
from agentcore._workers import DaemonThreadPool

WAIT = 10.0
SET: contextvars.ContextVar[str] = contextvars.ContextVar("SET", default="nothing")


def pool_of(size: int = 2) -> DaemonThreadPool:
    return DaemonThreadPool(size, "agentcore-test", keep_idle=True)


def ident_and_name() -> tuple[int, str]:
    return threading.get_ident(), threading.current_thread().name


def idle_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agentcore-test-idle"]


def wait_for_idle(number: int = 1) -> list[threading.Thread]:
    for _ in range(int(WAIT * 100)):
        if len(idle_threads()) >= number:
            return idle_threads()
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(idle_threads())} idle threads, not {number}")


def ended(thread: threading.Thread) -> bool:
    thread.join(WAIT)
    return not thread.is_alive()


def test_an_idle_worker_runs_the_next_call_under_its_name() -> None:
    pool = pool_of()
    first, first_name = pool.submit_named("agentcore-test-a", ident_and_name).result(WAIT)
    wait_for_idle()
    second, second_name = pool.submit_named("agentcore-test-b", ident_and_name).result(WAIT)
    assert first == second
    assert (first_name, second_name) == ("agentcore-test-a", "agentcore-test-b")
    pool.shutdown()


def test_calls_at_once_get_threads_of_their_own() -> None:
    pool, together = pool_of(), threading.Barrier(2)
    futures = [pool.submit(together.wait, WAIT) for _ in range(2)]
    assert sorted(future.result(WAIT) for future in futures) == [0, 1]
    wait_for_idle(2)
    pool.shutdown()
    assert not idle_threads()


def test_each_call_runs_in_the_context_of_who_submitted_it() -> None:
    pool = pool_of()
    pool.submit(SET.set, "of the first call").result(WAIT)
    wait_for_idle()
    SET.set("of the submitter")
    assert pool.submit(SET.get).result(WAIT) == "of the submitter"
    pool.shutdown()


def test_shutdown_ends_idle_workers_and_waits_for_them() -> None:
    pool = pool_of()
    pool.submit(int).result(WAIT)
    (thread,) = wait_for_idle()
    pool.shutdown(wait=True)
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(int)


def test_dropping_the_pool_ends_idle_workers() -> None:
    pool = pool_of()
    pool.submit(int).result(WAIT)
    (thread,) = wait_for_idle()
    del pool
    gc.collect()
    assert ended(thread)


def test_a_worker_whose_call_was_given_up_ends_when_it_returns() -> None:
    pool, go_on, begun = pool_of(1), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def stuck() -> None:
        threads.append(threading.current_thread())
        begun.set()
        go_on.wait(WAIT)

    future = pool.submit(stuck)
    assert begun.wait(WAIT)
    pool.abandon(future)
    assert pool.submit(str, "next").result(WAIT) == "next"
    go_on.set()
    assert ended(threads[0])
    pool.shutdown()


def test_an_idle_worker_holds_neither_the_function_nor_its_result() -> None:
    class Thing:
        pass

    pool = pool_of()
    future = pool.submit(Thing)
    watched: Any = weakref.ref(future.result(WAIT))
    wait_for_idle()
    del future
    gc.collect()
    assert watched() is None
    pool.shutdown()


def test_an_interrupt_while_a_call_is_handed_over_leaves_no_worker_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, ran = pool_of(), threading.Event()
    pool.submit(int).result(WAIT)
    (thread,) = wait_for_idle()
    put = _workers.Mailbox.put

    def interrupted(mailbox: Any, item: Any) -> None:
        monkeypatch.setattr(_workers.Mailbox, "put", put)
        raise KeyboardInterrupt

    monkeypatch.setattr(_workers.Mailbox, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(ran.set)
    assert ended(thread)
    assert not ran.is_set()
    assert pool.submit(str, "still usable").result(WAIT) == "still usable"
    pool.shutdown()


def test_a_call_that_was_withdrawn_before_its_idle_worker_took_it_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, ran = pool_of(), threading.Event()
    pool.submit(int).result(WAIT)
    (thread,) = wait_for_idle()
    put = _workers.Mailbox.put
    late: list[Any] = []

    def held_back(mailbox: Any, item: Any) -> None:
        monkeypatch.setattr(_workers.Mailbox, "put", put)
        late.append((mailbox, item))
        raise KeyboardInterrupt

    monkeypatch.setattr(_workers.Mailbox, "put", held_back)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(ran.set)
    for mailbox, item in late:
        put(mailbox, item)
    assert ended(thread)
    assert not ran.is_set()
    pool.shutdown()
