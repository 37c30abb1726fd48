"""The current thread knows which runs it works for, and so does what copies its context."""

import contextvars
import sys
import threading

import pytest

from agentcore._scope import current, enter, entered, is_inside, restore
from agentcore.errors import AbortRequested
from tests.loop.loop_support import play


def test_a_thread_is_inside_a_run_while_it_works_for_it() -> None:
    run, other = object(), object()
    assert not is_inside(run)

    with entered(run):
        assert is_inside(run)
        assert not is_inside(other)

    assert not is_inside(run)


def test_runs_nest() -> None:
    outer, inner = object(), object()
    with entered(outer):
        with entered(inner):
            assert is_inside(outer)
            assert is_inside(inner)
        assert is_inside(outer)
        assert not is_inside(inner)


def test_a_run_entered_by_hand_is_left_by_restoring_what_was_before() -> None:
    outer, inner = object(), object()
    nothing = current()
    enter(outer)
    before = current()
    enter(inner)
    assert current() == (*nothing, outer, inner)

    for _ in range(2):  # once more does no harm
        restore(before)
        assert is_inside(outer)
        assert not is_inside(inner)
    restore(nothing)

    assert current() == nothing
    assert not is_inside(outer)


def test_a_run_is_told_by_identity() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    with entered(Equal()):
        assert not is_inside(Equal())


def test_a_run_that_fails_is_left_all_the_same() -> None:
    run = object()
    with pytest.raises(KeyError), entered(run):
        raise KeyError

    assert not is_inside(run)


@pytest.mark.parametrize("failure", [None, ValueError, AbortRequested, SystemExit, KeyboardInterrupt])
def test_a_thread_is_out_of_a_run_when_it_has_ended_whichever_way(failure: type[BaseException] | None) -> None:
    before = current()
    inside: list[tuple[object, ...]] = []

    def emit(event: object) -> None:
        inside.append(current())
        if failure is not None:
            raise failure

    play("Hello", emit=emit)

    assert len(inside[0]) == len(before) + 1
    assert current() is before


def test_another_thread_is_inside_only_with_a_copy_of_the_context() -> None:
    run = object()
    seen: list[bool] = []
    with entered(run):
        context = contextvars.copy_context()
        for work in (lambda: seen.append(is_inside(run)), lambda: context.run(lambda: seen.append(is_inside(run)))):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(timeout=30)

    # From Python 3.14 on a thread may start with a copy of its parent's context.
    assert seen[1] is True
    assert seen[0] is bool(getattr(sys.flags, "thread_inherit_context", 0))
