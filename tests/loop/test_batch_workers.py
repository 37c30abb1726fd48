"""Parallel batches: what runs at once, in which order things come out, and calls that take too long."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentcore._tool_workers import CallRunner
from agentcore._workers import DaemonThreadPool
from agentcore.abort import AbortController
from agentcore.config import AfterToolCallResult, AgentContext, AgentLoopConfig, BeforeToolCallResult
from agentcore.events import ToolExecutionEndEvent, ToolExecutionStartEvent, ToolExecutionUpdateEvent
from agentcore.loop import ResumedCalls, drive, new_run
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from tests.loop.loop_support import answer, line, returns, tool

PATIENCE = 20.0
"""Seconds after which a wait that should have ended is a failure."""

MODES = pytest.mark.parametrize("mode", ["parallel", "sequential"])


def ends_of(played: Any) -> list[str]:
    return [event.tool_call_id for event in played.of(ToolExecutionEndEvent)]


class Hall:
    """Tools that wait, each call at its own gate, and what a test needs to know of them."""

    def __init__(self, *ids: str) -> None:
        self.gates = {call_id: Gate() for call_id in ids}
        self.running: set[str] = set()
        self.most_at_once = 0
        self.begun: list[str] = []
        self.threads: dict[str, str] = {}
        self.lock = threading.Lock()

    def execute(self, call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        with self.lock:
            self.begun.append(call_id)
            self.threads[call_id] = threading.current_thread().name
            self.running.add(call_id)
            self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            self.gates[call_id].hold(signal)
        finally:
            with self.lock:
                self.running.discard(call_id)
        return f"left {call_id}"

    def stubborn(self, call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        """Wait without looking at the signal."""
        self.gates[call_id].hold()
        return f"left {call_id} late"

    def open_all(self) -> None:
        for gate in self.gates.values():
            gate.open()


def on_a_thread(*steps: Callable[[], object]) -> threading.Thread:
    """Do the steps of a test on a thread beside the run; they wait at gates."""

    def go() -> None:
        for step in steps:
            step()

    thread = threading.Thread(target=go)
    thread.start()
    return thread


# --- order ----------------------------------------------------------------------------------------------------------


def test_results_keep_source_order_when_tools_finish_out_of_order():
    hall = Hall("c1", "c2", "c3")

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent):
            following = {"c3": "c2", "c2": "c1"}.get(event.tool_call_id)
            if following:
                hall.gates[following].open()

    helper = on_a_thread(*[gate.wait_reached for gate in hall.gates.values()], hall.gates["c3"].open)
    played = answer(
        reply(*[call("w", id=name) for name in ("c1", "c2", "c3")]), "Done.", tools=[tool("w", hall.execute)], emit=emit
    )
    helper.join()
    assert played.lines[6:20] == [
        "call c1 w {}",
        "call c2 w {}",
        "call c3 w {}",
        "done c3: left c3",
        "done c2: left c2",
        "done c1: left c1",
        "start result c1: left c1",
        "end result c1: left c1",
        "start result c2: left c2",
        "end result c2: left c2",
        "start result c3: left c3",
        "end result c3: left c3",
        "turn_end c1 c2 c3",
        "turn_start",
    ]
    sent = played.model.requests[1].messages
    assert [message.tool_call_id for message in sent if message.role == "toolResult"] == ["c1", "c2", "c3"]


def test_calls_that_end_while_the_loop_is_busy_end_in_the_order_in_which_they_did():
    hall = Hall("c1", "c2", "c3")
    left: list[str] = []
    gone = {name: Gate() for name in hall.gates}

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        if call_id == "c3":
            on_update("busy")
        hall.execute(call_id, params, signal, on_update, context)
        left.append(call_id)
        gone[call_id].open()
        return "ok"

    def emit(event: Any) -> None:
        # While the loop's thread is in here, the calls end last one first.
        if isinstance(event, ToolExecutionUpdateEvent):
            for name in ("c3", "c2", "c1"):
                hall.gates[name].wait_reached()
                hall.gates[name].open()
                assert gone[name].wait(PATIENCE)
                wait_until_recorded(run, name)

    added: list[Any] = []
    events: list[Any] = []
    context = AgentContext(tools=[tool("w", execute)])
    model = scripted(reply(*[call("w", id=name) for name in hall.gates]), "Done.")

    def note(event: Any) -> None:
        events.append(event)
        emit(event)

    run = new_run(context, AgentLoopConfig(model=scripted_model()), note, None, model, added)
    drive(run, [UserMessage("hi")])
    assert left == ["c3", "c2", "c1"]
    assert [event.tool_call_id for event in events if isinstance(event, ToolExecutionEndEvent)] == ["c3", "c2", "c1"]
    assert [message.tool_call_id for message in added[2:5]] == ["c1", "c2", "c3"]


def wait_until_recorded(run: Any, call_id: str) -> None:
    """Wait until a worker has written down that its call has ended."""
    record = next(record for record in run.batch.records if record.call.id == call_id)
    assert wait_for(lambda: record.executed is not None)


def wait_for(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds that nobody announces."""
    ticks = AbortController().signal
    for _ in range(int(PATIENCE / 0.002)):
        if condition():
            return True
        ticks.wait(0.002)
    return False


def test_a_call_that_is_answered_at_once_ends_before_one_that_runs_and_still_comes_after_it():
    hall = Hall("c1")

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent) and event.tool_call_id == "c2":
            hall.gates["c1"].open()

    def before(context: Any, signal: Any) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(block=True) if context.tool_call.id == "c2" else None

    played = answer(
        reply(call("w", id="c1"), call("w", id="c2")),
        "Done.",
        tools=[tool("w", hall.execute)],
        before_tool_call=before,
        emit=emit,
    )
    assert ends_of(played) == ["c2", "c1"]
    assert [result.tool_call_id for result in played.results] == ["c1", "c2"]
    assert [result.tool_call_id for result in played.turn_ends[0].tool_results] == ["c1", "c2"]


def test_all_calls_are_prepared_in_order_before_the_first_is_executed():
    order: list[str] = []

    def execute(call_id: str, *rest: Any) -> str:
        order.append("run")
        return "ok"

    def before(context: Any, signal: Any) -> None:
        order.append(f"before {context.tool_call.id}")

    answer(
        reply(*[call("w", id=f"c{number}") for number in range(4)]),
        "Done.",
        tools=[tool("w", execute)],
        before_tool_call=before,
    )
    assert order == ["before c0", "before c1", "before c2", "before c3", "run", "run", "run", "run"]


# --- how many at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_calls_run_at_once_than_allowed_and_they_start_in_order(most: int):
    ids = [f"c{number}" for number in range(9)]
    hall = Hall(*ids)

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent):
            following = ids.index(event.tool_call_id) + 1
            if following < len(ids):
                hall.gates[ids[following]].open()

    helper = on_a_thread(*[hall.gates[name].wait_reached for name in ids[:most]], hall.gates["c0"].open)
    played = answer(
        reply(*[call("w", id=name) for name in ids]),
        "Done.",
        tools=[tool("w", hall.execute)],
        max_parallel_tools=most,
        emit=emit,
    )
    helper.join()
    assert hall.most_at_once == most
    # A thread is named by the number of the call that it runs, in the order in which the loop started them.
    assert [hall.threads[name] for name in ids] == [f"agentcore-tool-w-{number}" for number in range(1, 10)]
    assert ends_of(played) == ids


def test_sixteen_calls_run_at_once_by_default():
    ids = [f"c{number}" for number in range(20)]
    hall = Hall(*ids)
    helper = on_a_thread(*[hall.gates[name].wait_reached for name in ids[:16]], hall.open_all)
    played = answer(reply(*[call("w", id=name) for name in ids]), "Done.", tools=[tool("w", hall.execute)])
    helper.join()
    assert hall.most_at_once == 16
    assert [result.tool_call_id for result in played.results] == ids


def test_a_worker_that_was_given_up_frees_its_slot():
    hall = Hall("c1")
    try:
        played = answer(
            reply(call("stuck", id="c1"), call("w", id="c2"), call("w", id="c3")),
            "Done.",
            tools=[tool("stuck", hall.stubborn, timeout=0.01), tool("w")],
            max_parallel_tools=1,
            abort_grace=0.01,
        )
    finally:
        hall.open_all()
    assert [result.is_error for result in played.results] == [True, False, False]
    assert played.reason == "completed"


# --- calls that take too long ---------------------------------------------------------------------------------------


@MODES
def test_a_call_that_returns_after_its_timeout_says_in_its_own_words_what_it_had(mode: str):
    signals: list[Any] = []

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        signals.append(signal)
        signal.wait(PATIENCE)
        return "half of it"

    played = answer(
        reply(call("slow")),
        "Done.",
        tools=[tool("slow", execute, timeout=0.01)],
        tool_execution=mode,
        abort_grace=PATIENCE,
    )
    assert (played.results[0].is_error, played.results[0].text) == (True, "half of it")
    (end,) = played.of(ToolExecutionEndEvent)
    assert (end.is_error, end.result.is_error) == (True, True)
    assert signals[0].reason == "timed out after 0.01 s"
    assert played.reason == "completed"


@MODES
def test_a_call_that_raises_after_its_timeout_is_answered_with_what_it_raised(mode: str):
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        signal.wait(PATIENCE)
        signal.raise_if_aborted()
        return "never"

    played = answer(
        reply(call("slow")),
        "Done.",
        tools=[tool("slow", execute, timeout=0.01)],
        tool_execution=mode,
        abort_grace=PATIENCE,
    )
    assert (played.results[0].is_error, played.results[0].text) == (True, "timed out after 0.01 s")


@MODES
def test_a_call_that_ignores_its_timeout_is_given_up_its_late_output_dropped_and_that_logged(
    mode: str, caplog: pytest.LogCaptureFixture
):
    hall = Hall("c1")
    hooked: list[str] = []
    late: list[Any] = []

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        late.append(on_update)
        result = hall.stubborn(call_id, params, signal, on_update, context)
        on_update("late progress")
        return result

    def emit(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "toolResult":
            hall.open_all()

    try:
        with caplog.at_level(logging.INFO):
            played = answer(
                reply(call("stuck", id="c1"), call("w", id="c2")),
                "Done.",
                tools=[tool("stuck", execute, timeout=0.01), tool("w")],
                tool_execution=mode,
                abort_grace=0.01,
                emit=emit,
                after_tool_call=lambda context, signal: hooked.append(context.tool_call.id),
            )
    finally:
        hall.open_all()
    result = played.results[0]
    assert result.is_error
    assert "timed out after 0.01 s" in result.text
    assert "given up" in result.text
    assert "late" not in "".join(result.text for result in played.results)
    assert played.of(ToolExecutionUpdateEvent) == []
    assert hooked == ["c2"]
    assert [result.tool_call_id for result in played.results] == ["c1", "c2"]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "tool call c1 (`stuck`) did not stop when asked to and was given up")
    ]


def test_the_end_of_a_call_that_was_given_up_is_told_while_the_others_still_run():
    hall = Hall("c1", "c2")

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent) and event.tool_call_id == "c1":
            hall.gates["c2"].open()

    try:
        played = answer(
            reply(call("stuck", id="c1"), call("w", id="c2")),
            "Done.",
            tools=[tool("stuck", hall.stubborn, timeout=0.01), tool("w", hall.execute, timeout=PATIENCE)],
            abort_grace=0.01,
            emit=emit,
        )
    finally:
        hall.open_all()
    assert ends_of(played) == ["c1", "c2"]
    assert [result.is_error for result in played.results] == [True, False]


def test_a_call_that_has_a_timeout_and_returns_in_time_is_as_any_other():
    played = answer(reply(call("w")), "Done.", tools=[tool("w", timeout=PATIENCE)])
    assert (played.results[0].is_error, played.results[0].text) == (False, "ran")


@MODES
def test_a_timeout_of_centuries_is_no_timeout(mode: str):
    played = answer(reply(call("w")), "Done.", tools=[tool("w", timeout=1e300)], tool_execution=mode)
    assert played.results[0].text == "ran"


def test_the_timeout_of_a_call_that_waits_for_a_slot_has_not_begun():
    hall = Hall("c1")
    timer = threading.Timer(0.1, hall.gates["c1"].open)
    timer.start()
    played = answer(
        reply(call("w", id="c1"), call("quick", id="c2")),
        "Done.",
        tools=[tool("w", hall.execute), tool("quick", timeout=0.09)],
        max_parallel_tools=1,
    )
    timer.join()
    assert [result.text for result in played.results] == ["left c1", "ran"]


def test_the_hook_sees_a_call_that_returned_in_its_grace_and_can_make_it_good():
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        signal.wait(PATIENCE)
        return "all of it, in fact"

    seen: list[Any] = []

    def after(context: Any, signal: Any) -> AfterToolCallResult:
        seen.append((context.is_error, context.result.is_error))
        return AfterToolCallResult(is_error=False)

    played = answer(
        reply(call("slow")),
        "Done.",
        tools=[tool("slow", execute, timeout=0.01)],
        after_tool_call=after,
        abort_grace=PATIENCE,
    )
    assert seen == [(True, True)]
    assert (played.results[0].is_error, played.of(ToolExecutionEndEvent)[0].is_error) == (False, False)


def test_an_abort_gives_calls_their_grace_and_keeps_what_the_others_have_done():
    hall = Hall("c2", "c3")
    controller = AbortController()

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent) and event.tool_call_id == "c1":
            hall.gates["c2"].wait_reached()
            hall.gates["c3"].wait_reached()
            controller.abort("enough")

    try:
        played = answer(
            reply(call("w", id="c1"), call("waits", id="c2"), call("stuck", id="c3")),
            tools=[tool("w"), tool("waits", hall.execute), tool("stuck", hall.stubborn)],
            signal=controller.signal,
            abort_grace=0.02,
            emit=emit,
        )
    finally:
        hall.open_all()
    assert [(result.is_error, result.text) for result in played.results] == [
        (False, "ran"),
        (False, "left c2"),
        (True, "The call of `stuck` was aborted (enough); it did not stop when asked to and was given up."),
    ]
    assert played.reason == "aborted"


def test_calls_that_wait_for_a_slot_are_answered_as_aborted_without_being_run():
    hall = Hall("c1", "c2", "c3")
    controller = AbortController()
    helper = on_a_thread(hall.gates["c1"].wait_reached, lambda: controller.abort("enough"))
    played = answer(
        reply(*[call("w", id=name) for name in hall.gates]),
        tools=[tool("w", hall.execute)],
        signal=controller.signal,
        max_parallel_tools=1,
    )
    helper.join()
    assert hall.begun == ["c1"]
    assert [result.is_error for result in played.results] == [False, True, True]
    assert [result.text for result in played.results[1:]] == ["The call of `w` was aborted: enough."] * 2
    assert sorted(ends_of(played)) == ["c1", "c2", "c3"]


def test_a_call_that_was_aborted_alone_does_not_wait_for_a_slot():
    hall = Hall("c1", "c2")
    events: list[Any] = []
    model = scripted(reply(call("w", id="c1"), call("w", id="c2")), "Done.")

    def emit(event: Any) -> None:
        events.append(event)
        if isinstance(event, ToolExecutionEndEvent) and event.tool_call_id == "c2":
            hall.gates["c1"].open()

    def abort_second() -> None:
        assert run.batch is not None
        assert run.batch.abort_call("c2")
        assert not run.batch.abort_call("no such call")

    added: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), max_parallel_tools=1)
    run = new_run(AgentContext(tools=[tool("w", hall.execute)]), config, emit, None, model, added)
    helper = on_a_thread(hall.gates["c1"].wait_reached, abort_second)
    drive(run, [UserMessage("hi")])
    helper.join()
    assert [(message.is_error, message.text) for message in added[2:4]] == [
        (False, "left c1"),
        (True, "The call of `w` was aborted."),
    ]


def test_a_call_that_is_aborted_alone_before_its_turn_is_not_asked_about_and_not_run():
    asked: list[str] = []

    def before(context: Any, signal: Any) -> None:
        asked.append(context.tool_call.id)
        if context.tool_call.id == "c1":
            run.batch.abort_call("c2")

    model = scripted(reply(call("w", id="c1"), call("w", id="c2"), call("w", id="c3")), "Done.")
    added: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), before_tool_call=before)
    run = new_run(AgentContext(tools=[tool("w")]), config, lambda event: None, None, model, added)
    drive(run, [UserMessage("hi")])
    assert asked == ["c1", "c3"]
    assert [message.text for message in added[2:5]] == ["ran", "The call of `w` was aborted.", "ran"]


def test_a_running_call_that_is_aborted_alone_ends_and_the_run_goes_on():
    hall = Hall("c1")
    model = scripted(reply(call("w", id="c1")), "Done.")
    added: list[Any] = []
    events: list[Any] = []
    config = AgentLoopConfig(model=scripted_model())
    run = new_run(AgentContext(tools=[tool("w", hall.execute)]), config, events.append, None, model, added)
    helper = on_a_thread(hall.gates["c1"].wait_reached, lambda: run.batch.abort_call("c1"))
    drive(run, [UserMessage("hi")])
    helper.join()
    assert (added[2].is_error, added[2].text) == (True, "left c1")
    assert events[-1].reason == "completed"


def test_a_running_call_that_is_aborted_alone_and_does_not_stop_is_given_up():
    hall = Hall("c1")
    model = scripted(reply(call("w", id="c1"), call("quick", id="c2")), "Done.")
    added: list[Any] = []
    events: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), abort_grace=0.01)
    context = AgentContext(tools=[tool("w", hall.stubborn), tool("quick")])
    run = new_run(context, config, events.append, None, model, added)

    def abort() -> None:
        # When the other call has ended, the loop has nothing to do but to wait, and soon does.
        assert wait_for(lambda: any(isinstance(event, ToolExecutionEndEvent) for event in events))
        AbortController().signal.wait(0.05)
        assert run.batch.abort_call("c1")

    helper = on_a_thread(hall.gates["c1"].wait_reached, abort)
    try:
        drive(run, [UserMessage("hi")])
    finally:
        hall.open_all()
        helper.join()
    assert (added[2].is_error, added[2].text) == (
        True,
        "The call of `w` was aborted; it did not stop when asked to and was given up.",
    )
    assert events[-1].reason == "completed"


def test_a_tool_that_reports_faster_than_anybody_can_listen_does_not_keep_an_abort_out():
    controller = AbortController()
    stop = Gate()

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        while not stop.is_open:
            on_update("more")
        return "never seen"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            controller.abort("enough")

    try:
        played = answer(
            reply(call("w", id="c1")),
            tools=[tool("w", execute)],
            signal=controller.signal,
            abort_grace=0.05,
            emit=emit,
        )
    finally:
        stop.open()
    assert played.results[0].is_error
    assert played.reason == "aborted"
    end = played.events.index(played.of(ToolExecutionEndEvent)[0])
    assert all(not isinstance(event, ToolExecutionUpdateEvent) for event in played.events[end:])


def test_progress_that_arrives_while_its_call_ends_never_follows_the_end():
    class Slow(list):  # type: ignore[type-arg]
        """Blocks that take their time to be looked at."""

        def __len__(self) -> int:
            looking.hold()
            return 0

    looking = Gate()
    threads: list[threading.Thread] = []

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        threads.append(on_a_thread(lambda: on_update(Slow())))
        looking.wait_reached()
        return "ok"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent):
            looking.open()
            threads[0].join(PATIENCE)

    played = answer(reply(call("w", id="c1")), "Done.", tools=[tool("w", execute)], emit=emit)
    assert played.of(ToolExecutionUpdateEvent) == []
    assert played.lines[6:10] == ["call c1 w {}", "done c1: ok", "start result c1: ok", "end result c1: ok"]


def test_a_listener_that_fails_at_the_last_moment_of_a_batch_still_ends_the_run():
    class Broken(Exception):
        pass

    hall = Hall("c2")
    reports: dict[str, Any] = {}

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        reports[call_id] = on_update
        return hall.execute(call_id, params, signal, on_update, context)

    def first(*rest: Any) -> str:
        hall.gates["c2"].wait_reached()
        return "ok"

    def after(context: Any, signal: Any) -> None:
        if context.tool_call.id == "c1":
            reports["c2"]("from the hook, on the loop's thread")
            wait_until_recorded(run, "c2")  # the failure has aborted the run, which lets the call go

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            raise Broken

    added: list[Any] = []
    model = scripted(reply(call("first", id="c1"), call("w", id="c2")), "never")
    config = AgentLoopConfig(model=scripted_model(), after_tool_call=after, abort_grace=PATIENCE)
    context = AgentContext(tools=[tool("first", first), tool("w", execute)])
    run = new_run(context, config, emit, None, model, added)
    with pytest.raises(Broken):
        drive(run, [UserMessage("hi")])
    assert [(message.role, message.tool_call_id) for message in added[2:]] == [
        ("toolResult", "c1"),
        ("toolResult", "c2"),
    ]
    assert len(model.requests) == 1


# --- names that only one call may hold ------------------------------------------------------------------------------


def test_calls_of_one_exclusive_name_never_run_at_once_and_keep_their_order():
    ids = [f"c{number}" for number in range(6)]
    hall = Hall(*ids)
    holders: list[str] = []
    overlaps: list[str] = []

    def exclusive(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        if holders:
            overlaps.append(call_id)
        holders.append(call_id)
        hall.execute(call_id, params, signal, on_update, context)
        holders.remove(call_id)
        return "ok"

    tools = [
        tool("a", exclusive, exclusive="disk"),
        tool("b", exclusive, exclusive="disk"),
        tool("free", hall.execute),
    ]
    asked = [call(name, id=call_id) for name, call_id in zip(["a", "free", "b", "a", "free", "b"], ids, strict=True)]
    exclusive_ids = ["c0", "c2", "c3", "c5"]
    # The free calls run beside the first of the others; each that ends lets the next one come.
    helper = on_a_thread(
        hall.gates["c0"].wait_reached,
        hall.gates["c1"].wait_reached,
        hall.gates["c4"].wait_reached,
        *[step for name in exclusive_ids for step in (hall.gates[name].wait_reached, hall.gates[name].open)],
        hall.open_all,
    )
    played = answer(reply(*asked), "Done.", tools=tools)
    helper.join()
    assert overlaps == []
    assert [name for name in hall.begun if name in exclusive_ids] == exclusive_ids
    assert [result.tool_call_id for result in played.results] == ids


def test_a_call_that_waits_for_a_name_takes_no_slot():
    hall = Hall("c1", "c2", "c3")
    helper = on_a_thread(hall.gates["c1"].wait_reached, hall.gates["c3"].wait_reached, hall.open_all)
    played = answer(
        reply(call("x", id="c1"), call("x", id="c2"), call("free", id="c3")),
        "Done.",
        tools=[tool("x", hall.execute, exclusive="disk"), tool("free", hall.execute)],
        max_parallel_tools=2,
    )
    helper.join()
    assert [result.is_error for result in played.results] == [False, False, False]


@MODES
def test_a_name_whose_holder_was_given_up_is_not_given_again(mode: str):
    hall = Hall("c1")
    try:
        played = answer(
            reply(call("stuck", id="c1"), call("x", id="c2"), call("y", id="c3"), call("x", id="c4")),
            "Done.",
            tools=[
                tool("stuck", hall.stubborn, exclusive="disk", timeout=0.01),
                tool("x", exclusive="disk"),
                tool("y", exclusive="net"),
            ],
            tool_execution=mode,
            abort_grace=0.01,
        )
    finally:
        hall.open_all()
    assert [result.is_error for result in played.results] == [True, True, False, True]
    for result in (played.results[1], played.results[3]):
        assert result.text == ("`x` was not run: an earlier call that holds `disk` did not stop when it was asked to.")


def test_a_name_is_free_again_in_the_next_batch():
    hall = Hall("c1")
    try:
        played = answer(
            reply(call("stuck", id="c1")),
            reply(call("x", id="c2")),
            "Done.",
            tools=[tool("stuck", hall.stubborn, exclusive="disk", timeout=0.01), tool("x", exclusive="disk")],
            abort_grace=0.01,
        )
    finally:
        hall.open_all()
    assert [result.is_error for result in played.results] == [True, False]


@pytest.mark.parametrize("ending", ["said", OSError("no disk")], ids=["returned", "raised"])
def test_a_name_goes_from_a_call_on_the_loops_thread_to_one_on_a_worker_and_back(ending):
    played = answer(
        reply(call("here", id="c1"), call("there", id="c2"), call("here", id="c3")),
        "Done.",
        tools=[
            tool("here", returns(ending), exclusive="disk", execution_mode="sequential"),
            tool("there", returns(ending), exclusive="disk", timeout=100),
        ],
    )
    assert [result.content[0].text for result in played.results] == [str(ending)] * 3


def test_calls_that_wait_for_a_name_are_answered_when_the_run_is_aborted():
    hall = Hall("c1", "c2", "c3")
    controller = AbortController()
    helper = on_a_thread(hall.gates["c1"].wait_reached, controller.abort)
    played = answer(
        reply(*[call("x", id=name) for name in hall.gates]),
        tools=[tool("x", hall.execute, exclusive="disk")],
        signal=controller.signal,
    )
    helper.join()
    assert hall.begun == ["c1"]
    assert [result.is_error for result in played.results] == [False, True, True]


# --- when no thread can be had --------------------------------------------------------------------------------------


def starts_one_thread_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pools behave as at the exit of the interpreter."""
    submit = DaemonThreadPool.submit_named

    def submit_named(pool: DaemonThreadPool, name: str, fn: Any, /, *args: Any) -> Any:
        if not name.endswith("-1"):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        return submit(pool, name, fn, *args)

    monkeypatch.setattr(DaemonThreadPool, "submit_named", submit_named)


def test_a_thread_that_cannot_be_started_is_the_answer_of_that_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    starts_one_thread_and_no_more(monkeypatch)
    hall = Hall("c1")

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent) and event.tool_call_id == "c3":
            hall.open_all()

    with caplog.at_level(logging.INFO):
        played = answer(
            reply(call("w", id="c1"), call("x", id="c2"), call("x", id="c3")),
            "Done.",
            tools=[tool("w", hall.execute), tool("x", exclusive="disk")],
            emit=emit,
        )
    assert [(result.tool_call_id, result.is_error) for result in played.results] == [
        ("c1", False),
        ("c2", True),
        ("c3", True),
    ]
    for result in played.results[1:]:
        assert "no thread could be started: cannot schedule new futures" in result.text
    assert played.reason == "completed"
    assert [record.getMessage() for record in caplog.records] == [
        "starting a thread failed for tool call c2: RuntimeError",
        "starting a thread failed for tool call c3: RuntimeError",
    ]


# --- a batch of everything ------------------------------------------------------------------------------------------


def test_every_kind_of_answer_in_one_batch_comes_in_order():
    hall = Hall("c6")
    asked = [
        call("w", id="c1"),
        call("nothing", id="c2"),
        call("strict", id="c3", n="x"),
        call("w", id="c4"),
        call("bad", id="c5"),
        call("stuck", id="c6"),
        call("w", id="c7"),
    ]

    def before(context: Any, signal: Any) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(block=True, reason="no") if context.tool_call.id == "c4" else None

    def after(context: Any, signal: Any) -> None:
        if context.tool_call.id == "c7":
            raise LookupError("the check broke")

    strict = {"type": "object", "properties": {"n": {"type": "integer"}}}
    try:
        played = answer(
            reply(*asked),
            "Done.",
            tools=[
                tool("w"),
                tool("strict", schema=strict),
                tool("bad", returns(ValueError("boom"))),
                tool("stuck", hall.stubborn, timeout=0.01),
            ],
            before_tool_call=before,
            after_tool_call=after,
            abort_grace=0.01,
        )
    finally:
        hall.open_all()
    assert [result.tool_call_id for result in played.results] == [one.id for one in asked]
    assert [result.is_error for result in played.results] == [False, True, True, True, True, True, True]
    assert [event.tool_call_id for event in played.of(ToolExecutionStartEvent)] == [one.id for one in asked]
    assert sorted(ends_of(played)) == [one.id for one in asked]
    assert ends_of(played)[:3] == ["c2", "c3", "c4"]


# --- what is known of a call while it runs --------------------------------------------------------------------------


def test_of_each_call_its_state_its_start_and_its_thread_are_known_from_any_thread():
    hall = Hall("c1", "c2")
    seen: list[Any] = []

    def look(call_id: str, *rest: Any) -> str:
        hall.gates["c1"].wait_reached()
        seen.extend((record.call.id, record.state, record.thread_name) for record in run.batch.records)
        assert run.batch.records[0].started_at is not None
        hall.open_all()
        return "ok"

    def before(context: Any, signal: Any) -> BeforeToolCallResult | None:
        match context.tool_call.id:
            case "c3":
                return BeforeToolCallResult(pause=True)
            case "c4":
                return BeforeToolCallResult(block=True)
        return None

    model = scripted(
        reply(call("w", id="c1"), call("look", id="c0"), call("w", id="c3"), call("w", id="c4"), call("w", id="c2"))
    )
    config = AgentLoopConfig(model=scripted_model(), before_tool_call=before, max_parallel_tools=2)
    events: list[Any] = []
    context = AgentContext(tools=[tool("w", hall.execute), tool("look", look)])
    run = new_run(context, config, events.append, None, model, [])
    drive(run, [UserMessage("hi")])
    assert seen == [
        ("c1", "running", "agentcore-tool-w-1"),
        ("c0", "running", "agentcore-tool-look-2"),
        ("c3", "paused", None),
        ("c4", "done", None),
        ("c2", "waiting", None),
    ]
    assert events[-1].reason == "paused"


def test_of_a_call_on_the_loops_own_thread_the_same_is_known():
    seen: list[Any] = []

    def look(call_id: str, *rest: Any) -> str:
        seen.extend((record.call.id, record.state, record.thread_name) for record in run.batch.records)
        assert run.batch.records[0].started_at is not None
        return "ok"

    model = scripted(reply(call("look", id="c1"), call("w", id="c2")), "Done.")
    config = AgentLoopConfig(model=scripted_model(), tool_execution="sequential")
    run = new_run(AgentContext(tools=[tool("look", look), tool("w")]), config, lambda event: None, None, model, [])
    drive(run, [UserMessage("hi")])
    assert seen == [("c1", "running", threading.current_thread().name), ("c2", "waiting", None)]


# --- calls that an earlier run left open ----------------------------------------------------------------------------


def resumed(decide: Any, *calls: Any, **options: Any) -> tuple[list[str], list[Any], Any]:
    """Go on with calls that an earlier run left open."""
    message = AssistantMessage(calls, stop_reason="tool_use")
    history = [UserMessage("before"), message]
    events: list[Any] = []
    added: list[Any] = []
    model = scripted("Done.")
    config = AgentLoopConfig(model=scripted_model(), **options)
    run = new_run(AgentContext(messages=history, tools=[tool("f")]), config, events.append, None, model, added)
    drive(run, (), ResumedCalls(message, message.tool_calls, decide))
    return [line(event) for event in events if event.type != "message_update"], added, model


def test_calls_that_were_left_open_are_decided_on_run_and_answered_as_any_others():
    def decide(context: Any, signal: Any) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(block=True, reason="denied") if context.tool_call.id == "c2" else None

    never: list[Any] = []
    polls: list[str] = []
    lines, added, model = resumed(
        decide,
        call("f", id="c1", n=1),
        call("f", id="c2", n=2),
        before_tool_call=lambda *args: never.append(args),
        get_steering_messages=lambda: polls.append("steering"),
    )
    assert lines == [
        "agent_start",
        "turn_start",
        "call c1 f {'n': 1}",
        "call c2 f {'n': 2}",
        "done c2: error",
        "done c1: ran 1",
        "start result c1: ran 1",
        "end result c1: ran 1",
        "start result c2 error",
        "end result c2 error",
        "turn_end c1 c2",
        "turn_start",
        "start assistant",
        "end assistant stop: Done.",
        "turn_end",
        "agent_end completed",
    ]
    assert [message.role for message in added] == ["toolResult", "toolResult", "assistant"]
    assert [message.role for message in model.requests[0].messages] == [
        "user",
        "assistant",
        "toolResult",
        "toolResult",
    ]
    assert never == []
    assert polls == ["steering", "steering"]


def test_calls_that_were_left_open_may_be_left_open_again():
    lines, added, model = resumed(lambda context, signal: BeforeToolCallResult(pause=True), call("f", id="c1"))
    assert lines == ["agent_start", "turn_start", "call c1 f {}", "turn_end", "agent_end paused"]
    assert added == []
    assert model.requests == []


def test_calls_that_wait_for_a_slot_are_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    may_begin = CallRunner._may_begin

    def counted(runner: CallRunner, record: Any) -> bool:
        nonlocal looks
        looks += 1
        return may_begin(runner, record)

    monkeypatch.setattr(CallRunner, "_may_begin", counted)
    calls = [call("f", id=str(number)) for number in range(200)]
    played = answer(reply(*calls), "Done.", tools=[tool("f", returns("ok"))], max_parallel_tools=2)
    assert [result.tool_call_id for result in played.results] == [asked.id for asked in calls]
    assert looks <= 2 * len(calls)
