"""`AbortController` and `AbortSignal`: once, from anywhere, and nothing lost whatever is interrupted."""

import _thread
import copy
import gc
import logging
import math
import pickle
import random
import signal as os_signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from agentcore.abort import AbortController, AbortSignal, _Callback, _expire, _Link, _Run
from agentcore.errors import AbortRequested

PATIENCE = 20.0
"""Seconds after which a wait that should have ended is a failure."""

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
def hasty_threads() -> Iterator[None]:
    """Switch between threads as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_thread(fn: Callable[[], object], name: str = "test") -> threading.Thread:
    thread = threading.Thread(target=fn, name=name, daemon=True)
    thread.start()
    return thread


def finish(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def interrupt() -> None:
    raise KeyboardInterrupt


def listeners(signal: AbortSignal) -> int:
    """Return how many callbacks, dependents and waiters are registered with a signal."""
    hooks = signal._hooks
    return len(hooks.callbacks) + len(hooks.dependents) + len(hooks.waiters)


def timer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agentcore-timer"]


class TestAborting:
    def test_a_new_signal_is_not_aborted_and_has_no_reason(self) -> None:
        signal = AbortController().signal
        assert (signal.aborted, signal.reason, signal.wait(0)) == (False, None, False)
        signal.raise_if_aborted()

    def test_abort_sets_flag_and_reason(self) -> None:
        controller = AbortController()
        controller.abort("user pressed stop")
        assert (controller.signal.aborted, controller.signal.reason) == (True, "user pressed stop")

    def test_the_reason_is_aborted_if_none_is_given(self) -> None:
        controller = AbortController()
        controller.abort()
        assert controller.signal.reason == "aborted"

    @pytest.mark.parametrize("reason", ["", 0, ["any", "object"], TimeoutError("late")], ids=repr)
    def test_the_reason_is_the_object_that_was_given(self, reason: object) -> None:
        controller = AbortController()
        controller.abort(reason)
        assert controller.signal.reason is reason

    def test_only_the_first_abort_counts(self) -> None:
        controller, calls = AbortController(), []
        controller.signal.add_callback(lambda: calls.append(controller.signal.reason))
        controller.abort("first")
        controller.abort("second")
        assert (controller.signal.reason, calls) == ("first", ["first"])

    def test_a_controller_has_one_signal(self) -> None:
        controller = AbortController()
        assert controller.signal is controller.signal

    def test_raise_if_aborted_raises_a_request_that_except_exception_does_not_swallow(self) -> None:
        controller = AbortController()
        controller.abort("enough")
        with pytest.raises(AbortRequested, match="enough") as caught:
            controller.signal.raise_if_aborted()
        assert caught.value.reason == "enough"
        assert not isinstance(caught.value, Exception)

    def test_the_flag_cannot_be_set_by_who_only_has_the_signal(self) -> None:
        signal = AbortController().signal
        with pytest.raises(AttributeError, match=r"`aborted` .* `abort\(\)`"):
            signal.aborted = True
        assert not signal.aborted

    def test_repr_is_short_and_says_what_happened(self) -> None:
        controller = AbortController()
        assert repr(controller) == "<AbortController <AbortSignal>>"
        controller.abort("why")
        assert repr(controller.signal) == "<AbortSignal aborted: why>"

    def test_repr_never_raises(self) -> None:
        class Wordless:
            def __repr__(self) -> str:
                raise RuntimeError("there are no words")

        controller = AbortController()
        controller.abort(Wordless())
        assert repr(controller) == "<AbortController <AbortSignal aborted: <Wordless>>>"

    @pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
    @pytest.mark.parametrize("make", [AbortController, lambda: AbortController().signal], ids=["controller", "signal"])
    def test_a_controller_and_its_signal_refuse_to_be_pickled_or_copied(self, make: Any, copier: Any) -> None:
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copier(make())

    def test_an_abort_may_come_from_a_finaliser(self) -> None:
        controller = AbortController()

        class Dropped:
            def __del__(self) -> None:
                controller.abort("dropped")

        Dropped()
        gc.collect()
        assert controller.signal.reason == "dropped"


class TestCallbacks:
    def test_callbacks_run_once_in_order_on_the_thread_that_aborts(self) -> None:
        controller, calls = AbortController(), []
        for number in range(3):
            controller.signal.add_callback(lambda number=number: calls.append((number, threading.get_ident())))
        thread = in_thread(controller.abort)
        finish(thread)
        controller.abort()
        assert calls == [(0, thread.ident), (1, thread.ident), (2, thread.ident)]

    def test_abort_returns_after_the_callbacks(self) -> None:
        controller, calls = AbortController(), []
        controller.signal.add_callback(lambda: calls.append(1))
        controller.abort()
        assert calls == [1]
        assert listeners(controller.signal) == 0

    def test_a_callback_added_after_the_abort_runs_at_once_on_the_adding_thread(self) -> None:
        controller, calls = AbortController(), []
        finish(in_thread(controller.abort))
        remove = controller.signal.add_callback(lambda: calls.append(threading.current_thread()))
        assert calls == [threading.current_thread()]
        remove()
        assert listeners(controller.signal) == 0

    def test_a_callback_sees_the_signal_aborted_with_its_reason(self) -> None:
        controller, seen = AbortController(), []
        controller.signal.add_callback(lambda: seen.append((controller.signal.aborted, controller.signal.reason)))
        controller.abort("now")
        assert seen == [(True, "now")]

    def test_a_removed_callback_does_not_run(self) -> None:
        controller, calls = AbortController(), []
        remove = controller.signal.add_callback(lambda: calls.append("removed"))
        controller.signal.add_callback(lambda: calls.append("kept"))
        remove()
        remove()
        assert listeners(controller.signal) == 1
        controller.abort()
        remove()
        assert calls == ["kept"]

    def test_what_cannot_be_called_is_refused_at_once(self) -> None:
        controller = AbortController()
        with pytest.raises(TypeError, match="expected a function, got str"):
            controller.signal.add_callback("stop")  # type: ignore[arg-type]
        assert listeners(controller.signal) == 0

    def test_the_same_function_added_twice_runs_twice_and_is_removed_one_by_one(self) -> None:
        controller, calls = AbortController(), []
        fn = lambda: calls.append(1)  # noqa: E731
        removes = [controller.signal.add_callback(fn) for _ in range(3)]
        removes[1]()
        controller.abort()
        assert calls == [1, 1]

    def test_a_callback_may_add_and_remove_callbacks(self) -> None:
        controller, calls = AbortController(), []

        def first() -> None:
            remove_later()
            controller.signal.add_callback(lambda: calls.append("added"))
            calls.append("first")

        controller.signal.add_callback(first)
        remove_later = controller.signal.add_callback(lambda: calls.append("later"))
        controller.abort()
        assert calls == ["added", "first"]

    def test_a_callback_may_abort_again(self) -> None:
        controller, calls = AbortController(), []
        controller.signal.add_callback(lambda: (calls.append("outer"), controller.abort("again")))
        controller.signal.add_callback(lambda: calls.append("inner"))
        controller.abort("first")
        assert (calls, controller.signal.reason) == (["outer", "inner"], "first")

    def test_what_a_callback_raises_is_logged_and_the_others_run(self, caplog: pytest.LogCaptureFixture) -> None:
        controller, calls = AbortController(), []

        def failing() -> None:
            raise ValueError("sk-secret")

        controller.signal.add_callback(failing)
        controller.signal.add_callback(lambda: calls.append(1))
        with caplog.at_level(logging.INFO, "agentcore"):
            controller.abort()
        assert calls == [1]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "failing` failed: ValueError" in caplog.text
        assert "sk-secret" not in caplog.text

    def test_the_traceback_of_a_callback_is_logged_for_debugging_only(self, caplog: pytest.LogCaptureFixture) -> None:
        controller = AbortController()
        controller.abort()

        class Failing:
            def __call__(self) -> None:
                raise ValueError("the details")

        with caplog.at_level(logging.DEBUG, "agentcore"):
            controller.signal.add_callback(Failing())
        assert [record.levelname for record in caplog.records] == ["ERROR", "DEBUG"]
        assert "`Failing` failed: ValueError" in caplog.text
        assert "the details" in caplog.text

    def test_a_callback_that_asks_the_signal_itself_is_logged_like_any_other_that_raises(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        controller, calls = AbortController(), []
        controller.signal.add_callback(controller.signal.raise_if_aborted)
        controller.signal.add_callback(lambda: calls.append(1))
        controller.abort()
        assert calls == [1]
        assert "failed: AbortRequested" in caplog.text

    def test_a_callback_that_cannot_even_be_named_does_not_stop_the_abort(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Proxy:
            def __getattr__(self, name: str) -> object:
                raise RuntimeError("the other side is gone")

            def __call__(self) -> None:
                raise ValueError

        controller, calls = AbortController(), []
        controller.signal.add_callback(Proxy())
        controller.signal.add_callback(lambda: calls.append(1))
        controller.abort()
        assert calls == [1]
        assert "`Proxy` failed: ValueError" in caplog.text

    def test_a_log_handler_that_fails_does_not_stop_the_abort(self) -> None:
        class Broken(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                raise RuntimeError("reentrant call")

        controller, calls = AbortController(), []
        controller.signal.add_callback(lambda: 1 / 0)
        controller.signal.add_callback(lambda: calls.append(1))
        handler = Broken()
        logging.getLogger("agentcore").addHandler(handler)
        try:
            controller.abort()
        finally:
            logging.getLogger("agentcore").removeHandler(handler)
        assert calls == [1]

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
    def test_an_interrupt_inside_a_callback_comes_out_after_the_other_callbacks(
        self, kind: type[BaseException]
    ) -> None:
        controller, child_calls, calls = AbortController(), [], []
        child = AbortSignal.any(controller.signal)
        child.add_callback(lambda: child_calls.append(1))

        def interrupted(error: BaseException) -> None:
            raise error

        controller.signal.add_callback(lambda: interrupted(kind("first")))
        controller.signal.add_callback(lambda: calls.append(1))
        controller.signal.add_callback(lambda: interrupted(SystemExit("second")))
        controller.signal.add_callback(lambda: calls.append(2))
        with pytest.raises(kind, match="first"):
            controller.abort()
        assert (calls, child_calls) == ([1, 2], [1])
        controller.abort()
        assert calls == [1, 2]

    def test_an_interrupt_inside_a_callback_comes_out_of_add_callback_if_that_runs_it(self) -> None:
        controller = AbortController()
        controller.abort()
        with pytest.raises(KeyboardInterrupt):
            controller.signal.add_callback(interrupt)
        assert listeners(controller.signal) == 0

    def test_what_comes_out_of_an_abort_is_not_held_by_a_cycle(self) -> None:
        controller = AbortController()

        class Held:
            pass

        def failing() -> None:
            held = Held()
            references.append(weakref.ref(held))
            raise SystemExit

        references: list[weakref.ref[Held]] = []
        controller.signal.add_callback(failing)
        gc.disable()
        try:
            with pytest.raises(SystemExit) as caught:
                controller.abort()
            del caught
            assert references[0]() is None
        finally:
            gc.enable()


class TestRemoving:
    def test_remove_waits_for_a_callback_that_runs_on_another_thread(self) -> None:
        controller, order = AbortController(), []
        begun, gate, removed = (SimpleQueue[None]() for _ in range(3))

        def callback() -> None:
            begun.put(None)
            gate.get(timeout=PATIENCE)
            order.append("callback ended")

        def remove_it() -> None:
            remove()
            order.append("remove returned")
            removed.put(None)

        remove = controller.signal.add_callback(callback)
        aborting = in_thread(controller.abort)
        begun.get(timeout=PATIENCE)
        removing = in_thread(remove_it)
        # A remove that does not wait gets the chance to show it.
        assert not AbortController().signal.wait(0.05)
        assert removed.empty()
        gate.put(None)
        finish(aborting, removing)
        assert order == ["callback ended", "remove returned"]

    def test_remove_on_the_main_thread_waits_too_and_can_be_interrupted(self, interrupt_after: Interrupts) -> None:
        controller = AbortController()
        begun, gate = SimpleQueue[None](), SimpleQueue[None]()
        remove = controller.signal.add_callback(lambda: (begun.put(None), gate.get(timeout=PATIENCE)))
        aborting = in_thread(controller.abort)
        begun.get(timeout=PATIENCE)
        interrupt_after(interrupt, 0.05)
        with pytest.raises(KeyboardInterrupt):
            remove()
        gate.put(None)
        remove()
        finish(aborting)

    def test_remove_inside_the_callback_returns_at_once(self) -> None:
        controller, calls = AbortController(), []
        remove = controller.signal.add_callback(lambda: (remove(), calls.append(1)))
        thread = in_thread(controller.abort)
        finish(thread)
        assert calls == [1]

    def test_remove_in_a_handler_that_interrupts_the_callback_returns_at_once(
        self, interrupt_after: Interrupts
    ) -> None:
        controller, order = AbortController(), []

        def callback() -> None:
            interrupt_after(lambda: (remove(), order.append("handler")), PATIENCE)
            os_signal.raise_signal(os_signal.SIGALRM)
            order.append("callback")

        remove = controller.signal.add_callback(callback)
        controller.abort()
        assert order == ["handler", "callback"]

    def test_a_callback_that_a_handler_removes_right_before_it_starts_does_not_start(self) -> None:
        signal, calls, run = AbortController().signal, [], _Run()
        callback = _Callback(lambda: calls.append(1), signal._hooks, None)
        callback.claim["run"] = run  # the frame that is interrupted has claimed it, and goes on after the handler
        callback.remove()
        callback.run(run)
        assert calls == []

    def test_a_remove_that_finds_the_callback_ending_does_not_wait(self) -> None:
        signal = AbortController().signal
        callback = _Callback(lambda: None, signal._hooks, None)
        callback.claim["run"] = run = _Run()
        run.thread_id = -1  # another thread

        class EndsNow(dict[Any, None]):
            def __setitem__(self, key: Any, value: None) -> None:
                callback.ended = True

        callback.removers = EndsNow()
        callback.remove()


class TestWaiting:
    def test_wait_returns_true_as_soon_as_another_thread_aborts(self) -> None:
        controller = AbortController()
        thread = in_thread(lambda: (AbortController().signal.wait(0.02), controller.abort()))
        assert controller.signal.wait(PATIENCE) is True
        finish(thread)
        assert listeners(controller.signal) == 0

    @pytest.mark.parametrize("timeout", [None, PATIENCE, math.inf, 1e300, threading.TIMEOUT_MAX])
    def test_wait_on_any_thread_is_woken_whatever_its_timeout(self, timeout: float | None) -> None:
        controller, results = AbortController(), []
        waiting = [in_thread(lambda: results.append(controller.signal.wait(timeout))) for _ in range(3)]
        aborting = in_thread(lambda: (AbortController().signal.wait(0.01), controller.abort()))
        assert controller.signal.wait(timeout)
        finish(*waiting, aborting)
        assert results == [True, True, True]

    @pytest.mark.parametrize("timeout", [0.01, 0, -1, -math.inf])
    def test_wait_returns_false_when_the_time_is_over(self, timeout: float) -> None:
        signal, results = AbortController().signal, []
        finish(in_thread(lambda: results.append(signal.wait(timeout))))
        assert (signal.wait(timeout), results) == (False, [False])
        assert listeners(signal) == 0

    def test_wait_refuses_nan(self) -> None:
        with pytest.raises(ValueError, match="NaN"):
            AbortController().signal.wait(math.nan)

    def test_wait_on_an_aborted_signal_returns_at_once(self) -> None:
        controller = AbortController()
        controller.abort()
        assert controller.signal.wait() is True

    def test_ctrl_c_ends_a_wait_on_the_main_thread(self, interrupt_after: Interrupts) -> None:
        signal = AbortController().signal
        interrupt_after(interrupt, 0.02)
        with pytest.raises(KeyboardInterrupt):
            signal.wait(PATIENCE)
        assert listeners(signal) == 0

    def test_a_callback_that_takes_long_does_not_hold_up_who_waits_nor_the_signals_that_follow(self) -> None:
        controller, seen = AbortController(), []
        child = AbortSignal.any(controller.signal)
        grandchild = AbortController(parents=[child]).signal
        woken: SimpleQueue[bool] = SimpleQueue()
        ready: SimpleQueue[None] = SimpleQueue()

        def wait_for(signal: AbortSignal) -> None:
            ready.put(None)
            woken.put(signal.wait(PATIENCE))

        def slow() -> None:
            seen.append((child.aborted, grandchild.aborted, grandchild.reason))
            # Joins the waiting threads: it would never end if they were woken after it.
            seen.extend(woken.get(timeout=PATIENCE) for _ in waiting)

        controller.signal.add_callback(slow)
        waiting = [in_thread(lambda signal=signal: wait_for(signal)) for signal in (controller.signal, grandchild)]
        for _ in waiting:
            ready.get(timeout=PATIENCE)
        controller.abort("stop")
        finish(*waiting)
        assert seen == [(True, True, "stop"), True, True]


class TestAnyAndChildren:
    def test_any_aborts_with_the_first_of_its_signals_and_its_reason(self) -> None:
        first, second, calls = AbortController(), AbortController(), []
        both = AbortSignal.any(first.signal, second.signal)
        both.add_callback(lambda: calls.append(both.reason))
        second.abort("second")
        first.abort("first")
        assert (both.aborted, both.reason, calls) == (True, "second", ["second"])
        assert not AbortSignal.any(AbortController().signal).aborted

    def test_any_of_a_signal_that_is_aborted_is_aborted(self) -> None:
        first, second = AbortController(), AbortController()
        second.abort("before")
        assert AbortSignal.any(first.signal, second.signal, first.signal).reason == "before"
        assert listeners(first.signal) == 0

    def test_any_of_nothing_never_aborts(self) -> None:
        assert AbortSignal.any().wait(0) is False

    def test_any_takes_signals_only(self) -> None:
        with pytest.raises(TypeError, match="expected an AbortSignal, got Event"):
            AbortSignal.any(threading.Event())  # type: ignore[arg-type]

    def test_any_wakes_who_waits_for_it(self) -> None:
        controller = AbortController()
        both = AbortSignal.any(AbortController().signal, controller.signal)
        thread = in_thread(lambda: (AbortController().signal.wait(0.01), controller.abort()))
        assert both.wait(PATIENCE)
        finish(thread)

    def test_any_unregisters_from_all_signals_when_it_aborts(self) -> None:
        long_lived, short = AbortController(), AbortController()
        both = AbortSignal.any(long_lived.signal, short.signal)
        short.abort()
        assert both.aborted
        assert listeners(long_lived.signal) == 0

    def test_any_unregisters_when_nobody_holds_it(self) -> None:
        parent = AbortController()
        AbortSignal.any(parent.signal)
        held = AbortSignal.any(parent.signal)
        assert listeners(parent.signal) == 1
        del held
        assert listeners(parent.signal) == 0

    def test_any_lives_on_while_somebody_listens_to_it_and_no_longer(self) -> None:
        parent, calls = AbortController(), []
        AbortSignal.any(AbortSignal.any(parent.signal)).add_callback(lambda: calls.append(1))
        remove = AbortSignal.any(parent.signal).add_callback(lambda: calls.append(2))
        gc.collect()
        assert listeners(parent.signal) == 2
        remove()
        del remove
        gc.collect()
        assert listeners(parent.signal) == 1
        parent.abort()
        assert calls == [1]

    def test_a_long_lived_parent_does_not_grow(self) -> None:
        parent = AbortController()
        for _ in range(1000):
            AbortSignal.any(parent.signal, AbortController().signal)
            with AbortController(parents=[parent.signal]) as controller:
                controller.signal.add_callback(lambda: None)
            AbortController(parents=[parent.signal]).abort()
            parent.signal.add_callback(lambda: None)()
            parent.signal.wait(0)
        assert listeners(parent.signal) == 0

    def test_a_child_aborts_with_its_parents_but_not_the_other_way_round(self) -> None:
        parents = AbortController(), AbortController()
        child = AbortController(parents=[parent.signal for parent in parents])
        other = AbortController(parents=[parents[0].signal])
        child.abort("only me")
        assert not parents[0].signal.aborted
        assert not other.signal.aborted
        parents[0].abort("all")
        assert (child.signal.reason, other.signal.reason) == ("only me", "all")

    def test_a_closed_controller_no_longer_follows_its_parents_but_can_abort(self) -> None:
        parent = AbortController()
        child = AbortController(parents=[parent.signal])
        child.close()
        child.close()
        assert listeners(parent.signal) == 0
        parent.abort()
        assert not child.signal.aborted
        child.abort("itself")
        assert child.signal.reason == "itself"

    def test_a_with_block_closes_the_controller_without_aborting(self) -> None:
        parent = AbortController()
        with pytest.raises(ZeroDivisionError), AbortController(parents=[parent.signal]) as child:
            _ = 1 / 0
        assert listeners(parent.signal) == 0
        assert not child.signal.aborted

    def test_a_dropped_controller_unregisters_though_its_callbacks_were_not_removed(self) -> None:
        parent = AbortController()
        child = AbortController(parents=[parent.signal])
        child.signal.add_callback(lambda: None)
        child.close()
        del child
        gc.collect()
        assert listeners(parent.signal) == 0

    def test_the_signals_that_follow_one_abort_in_the_order_in_which_they_came(self) -> None:
        parent, calls = AbortController(), []
        children = [AbortSignal.any(parent.signal) for _ in range(50)]
        for number, child in enumerate(children):
            child.add_callback(lambda number=number: calls.append(number))
        parent.abort()
        assert calls == list(range(50))

    def test_an_abort_passes_over_a_dependent_that_is_being_dropped(self) -> None:
        parent = AbortController()
        dropped = _Link(AbortSignal(), id)
        parent.signal._hooks.dependents.add(dropped)
        parent.abort()
        assert parent.signal.aborted


class TestTimeout:
    def test_a_timeout_aborts_by_itself_and_says_so(self) -> None:
        signal = AbortSignal.timeout(0.02)
        assert not signal.aborted
        assert signal.wait(PATIENCE)
        assert signal.reason == "timed out after 0.02 s"

    def test_callbacks_of_a_timeout_run_on_its_own_named_thread_which_then_ends(self) -> None:
        threads: SimpleQueue[threading.Thread] = SimpleQueue()
        signal = AbortSignal.timeout(0.02)
        signal.add_callback(lambda: threads.put(threading.current_thread()))
        thread = threads.get(timeout=PATIENCE)
        assert (thread.name, thread.daemon) == ("agentcore-timer", True)
        finish(thread)

    @pytest.mark.parametrize("seconds", [0, -1.5, -math.inf])
    def test_a_timeout_whose_time_is_over_is_aborted_at_once(self, seconds: float) -> None:
        assert AbortSignal.timeout(seconds).reason == f"timed out after {seconds:g} s"
        assert timer_threads() == []

    @pytest.mark.parametrize("seconds", [math.inf, 1e300])
    def test_a_timeout_of_for_ever_needs_no_thread(self, seconds: float) -> None:
        assert not AbortSignal.timeout(seconds).aborted
        assert timer_threads() == []

    def test_the_longest_timeout_that_a_thread_can_wait_is_accepted(self) -> None:
        signal = AbortSignal.timeout(threading.TIMEOUT_MAX)
        (thread,) = timer_threads()
        assert not signal.wait(0.01)
        assert thread.is_alive()
        del signal
        finish(thread)

    def test_a_timeout_refuses_nan(self) -> None:
        with pytest.raises(ValueError, match="NaN"):
            AbortSignal.timeout(math.nan)

    def test_the_thread_of_a_timeout_ends_when_nobody_holds_the_signal(self) -> None:
        signal = AbortSignal.timeout(3600)
        (thread,) = timer_threads()
        del signal
        finish(thread)

    def test_a_timeout_that_only_a_combined_signal_holds_still_fires(self) -> None:
        combined = AbortSignal.any(AbortController().signal, AbortSignal.timeout(0.02))
        gc.collect()
        assert combined.wait(PATIENCE)
        assert combined.reason == "timed out after 0.02 s"

    def test_a_timeout_that_nobody_holds_but_somebody_listens_to_still_fires(self) -> None:
        fired: SimpleQueue[None] = SimpleQueue()
        AbortSignal.timeout(0.02).add_callback(lambda: fired.put(None))
        AbortSignal.any(AbortSignal.timeout(0.02)).add_callback(lambda: fired.put(None))
        gc.collect()
        fired.get(timeout=PATIENCE)
        fired.get(timeout=PATIENCE)

    def test_the_thread_of_a_timeout_ends_when_the_last_listener_of_an_unheld_one_is_removed(self) -> None:
        remove = AbortSignal.timeout(3600).add_callback(lambda: None)
        (thread,) = timer_threads()
        gc.collect()
        assert thread.is_alive()
        remove()
        del remove
        gc.collect()
        finish(thread)

    def test_a_timeout_that_is_dropped_as_its_time_ends_does_nothing(self) -> None:
        stop = threading.Lock()
        stop.acquire()
        seen: list[Any] = []
        dropped = _Link(AbortSignal(), seen.append)
        assert seen == [dropped]
        _expire(dropped, stop, 0, "late")


@pytest.mark.usefixtures("hasty_threads")
class TestManyThreads:
    def test_callbacks_added_while_another_thread_aborts_run_exactly_once(self) -> None:
        for _ in range(60):
            controller, counts = AbortController(), Counter[tuple[int, int]]()
            start = threading.Barrier(5)

            def add(worker: int, controller: AbortController, counts: Counter[Any], start: threading.Barrier) -> None:
                start.wait(PATIENCE)
                for number in range(50):
                    controller.signal.add_callback(lambda number=number: counts.update([(worker, number)]))

            def abort(controller: AbortController, start: threading.Barrier) -> None:
                start.wait(PATIENCE)
                controller.abort()

            threads = [in_thread(lambda n=n: add(n, controller, counts, start)) for n in range(4)]  # noqa: B023
            finish(*threads, in_thread(lambda: abort(controller, start)))  # noqa: B023
            assert counts == {(worker, number): 1 for worker in range(4) for number in range(50)}
            assert listeners(controller.signal) == 0

    def test_of_several_aborts_at_once_one_gives_the_reason_and_each_callback_runs_once(self) -> None:
        for _ in range(100):
            controller, reasons, calls = AbortController(), [], []
            start = threading.Barrier(4)
            for number in range(20):
                controller.signal.add_callback(lambda number=number: calls.append(number))  # noqa: B023

            def abort(n: int, controller: AbortController, start: threading.Barrier, reasons: list[Any]) -> None:
                start.wait(PATIENCE)
                controller.abort(n)
                reasons.append(controller.signal.reason)

            finish(*[in_thread(lambda n=n: abort(n, controller, start, reasons)) for n in range(4)])  # noqa: B023
            assert len(set(reasons)) == 1
            assert sorted(calls) == list(range(20))

    def test_a_callback_never_runs_or_goes_on_after_its_remove_has_returned(self) -> None:
        for _ in range(150):
            controller, late = AbortController(), []
            start = threading.Barrier(4)

            def come_and_go(controller: AbortController, start: threading.Barrier, late: list[str]) -> None:
                removed: list[bool] = []

                def callback() -> None:
                    late.extend("ran after remove" for _ in range(20) if removed)

                remove = controller.signal.add_callback(callback)
                start.wait(PATIENCE)
                remove()
                removed.append(True)

            def abort(controller: AbortController, start: threading.Barrier) -> None:
                start.wait(PATIENCE)
                controller.abort()

            threads = [in_thread(lambda: come_and_go(controller, start, late)) for _ in range(3)]  # noqa: B023
            finish(*threads, in_thread(lambda: abort(controller, start)))  # noqa: B023
            assert late == []

    def test_signals_that_begin_to_follow_while_the_parent_aborts_are_all_aborted(self) -> None:
        for _ in range(60):
            parents = [AbortController() for _ in range(3)]
            start = threading.Barrier(5)
            followers: list[AbortSignal] = []

            def follow(parents: list[AbortController], start: threading.Barrier, followers: list[AbortSignal]) -> None:
                start.wait(PATIENCE)
                followers.extend(AbortSignal.any(*(parent.signal for parent in parents)) for _ in range(20))

            def abort(parent: AbortController, start: threading.Barrier) -> None:
                start.wait(PATIENCE)
                parent.abort()

            threads = [in_thread(lambda: follow(parents, start, followers)) for _ in range(3)]  # noqa: B023
            threads += [in_thread(lambda parent=parent: abort(parent, start)) for parent in parents[:2]]  # noqa: B023
            finish(*threads)
            assert len(followers) == 60
            assert all(follower.aborted for follower in followers)
            assert [listeners(parent.signal) for parent in parents] == [0, 0, 0]


class TestInterruptsAnywhere:
    """A real timer interrupts the main thread thousands of times, wherever it happens to be."""

    def test_an_abort_from_a_signal_handler_is_safe_inside_every_method(self, interrupt_after: Interrupts) -> None:
        long_lived = AbortController()
        for _ in range(2000):
            controller, counts, frozen = AbortController(), Counter[int](), {}
            signal = controller.signal
            interrupt_after(controller.abort, random.uniform(2e-6, 1.5e-4))
            for number in range(6):
                remove = signal.add_callback(lambda number=number, counts=counts: counts.update([number]))
                if number % 2:
                    remove()
                    frozen[number] = counts[number]
                both = AbortSignal.any(long_lived.signal, signal)
                AbortController(parents=[signal, long_lived.signal]).close()
            assert signal.wait(PATIENCE)
            assert both.aborted
            assert [counts[number] for number in (0, 2, 4)] == [1, 1, 1]
            assert frozen == {number: counts[number] for number in (1, 3, 5)}
            assert listeners(signal) == 0
        del both
        assert listeners(long_lived.signal) == 0

    def test_an_interrupt_anywhere_in_an_abort_loses_no_callback_and_repeats_none(
        self, interrupt_after: Interrupts
    ) -> None:
        interrupted_inside = 0
        for _ in range(3000):
            parent, calls = AbortController(), []
            child = AbortSignal.any(parent.signal)
            for number in range(5):  # a bound C method: the interrupt cannot come inside
                parent.signal.add_callback(lambda number=number, calls=calls: calls.append(number))
                child.add_callback(lambda number=number, calls=calls: calls.append(10 + number))
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 5e-5))
                parent.abort("stop")
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
            if not parent.signal.aborted:
                parent.abort("stop")  # the interrupt came before the abort began
                assert len(calls) == 10
            # An interrupt inside a callback ends that callback, and it only.
            assert len(calls) == len(set(calls)) >= 9
            interrupted_inside += len(calls) == 9
            assert (child.reason, listeners(child), listeners(parent.signal)) == ("stop", 0, 0)
        assert interrupted_inside < 3000

    def test_an_interrupt_anywhere_leaves_nothing_registered_that_nobody_holds(
        self, interrupt_after: Interrupts
    ) -> None:
        parent = AbortController()
        for _ in range(2000):
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 1e-4))
                for _ in range(3):
                    AbortSignal.any(parent.signal)
                    AbortController(parents=[parent.signal]).close()
                    parent.signal.wait(0)
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
        gc.collect()
        assert listeners(parent.signal) == 0

    # The standard library keeps its threads in a weak set, whose Python code swallows an interrupt when one is freed.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_an_interrupt_while_a_timeout_is_made_leaves_no_thread(self, interrupt_after: Interrupts) -> None:
        threads_before = _thread._count()
        for _ in range(400):
            try:
                interrupt_after(interrupt, random.uniform(2e-6, 3e-4))
                AbortSignal.timeout(3600)
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                pass
        gc.collect()
        pause = AbortController().signal
        waits = 0
        # An interrupted start goes on in the background, on a thread without a name, and then ends.
        while _thread._count() > threads_before or timer_threads():
            waits += not pause.wait(0.001)
            assert waits < 1000 * PATIENCE

    def test_an_abort_from_a_finaliser_that_the_collector_runs_anywhere_is_safe(self) -> None:
        before = gc.get_threshold()
        gc.freeze()  # the collector is to look at this test's objects only
        gc.set_threshold(7)
        try:
            for _ in range(500):
                controller, counts = AbortController(), Counter[int]()

                class Garbage:
                    def __init__(self, controller: AbortController) -> None:
                        self.me = self
                        self.controller = controller

                    def __del__(self) -> None:
                        self.controller.abort("collected")

                Garbage(controller)
                for number in range(10):
                    controller.signal.add_callback(lambda number=number, counts=counts: counts.update([number]))
                    both = AbortSignal.any(controller.signal)
                    controller.signal.add_callback(lambda: None)()
                    controller.signal.wait(0)
                gc.collect()
                assert both.reason == "collected"
                assert counts == dict.fromkeys(range(10), 1)
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()
