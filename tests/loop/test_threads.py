"""On which thread things happen: callbacks on the loop's own, one at a time; only parallel tools elsewhere."""

import asyncio
import contextvars
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate
from agentcore.content import TextContent
from agentcore.events import (
    DoneEvent,
    StartEvent,
    TextDeltaEvent,
    TextStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionUpdateEvent,
)
from agentcore.loop import agent_loop, run_agent_loop
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.partial import MessageJournal
from agentcore.testing import Gate, call, failure, reply, scripted, scripted_model
from tests.loop.loop_support import answer, quick_run, tool

MODES = pytest.mark.parametrize("mode", ["parallel", "sequential"])


class LoopThread:
    """Wraps callbacks: each must be called on the loop's thread, and never while another one is."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.inside: str | None = None
        self.faults: list[str] = []
        self.calls: Counter[str] = Counter()

    def enter(self, name: str) -> None:
        self.calls[name] += 1
        if self.thread is None:
            self.thread = threading.current_thread()
        if threading.current_thread() is not self.thread:
            self.faults.append(f"{name} on {threading.current_thread().name}")
        if self.inside is not None:
            self.faults.append(f"{name} inside {self.inside}")
        self.inside = name

    def leave(self) -> None:
        self.inside = None

    def watch(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            self.enter(name)
            try:
                return fn(*args)
            finally:
                self.leave()

        return watched

    def watch_stream(self, stream_fn: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def watched(*args: Any) -> Iterator[Any]:
            iterator = stream_fn(*args)
            try:
                while True:
                    self.enter("stream function")
                    try:
                        event = next(iterator)
                    except StopIteration:
                        return
                    finally:
                        self.leave()
                    yield event
            finally:
                self.enter("closing the stream")
                self.leave()

        return watched


def hooks(loop: LoopThread) -> dict[str, Any]:
    """Return all hooks there are, watched."""
    follow_ups = iter([[UserMessage("and then")]])
    plain: dict[str, Callable[..., Any]] = {
        "before_tool_call": lambda context, signal: None,
        "after_tool_call": lambda context, signal: None,
        "prepare_next_turn": lambda context, signal: None,
        "should_stop_after_turn": lambda context: False,
        "recover_from_error": lambda context, signal: AgentLoopTurnUpdate(),
        "transform_context": lambda messages, signal: messages,
        "convert_to_llm": lambda messages: messages,
        "get_api_key": lambda provider: None,
        "get_steering_messages": list,
        "get_follow_up_messages": lambda: next(follow_ups, []),
    }
    return {name: loop.watch(name, hook) for name, hook in plain.items()}


def reports_from_its_own_threads(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
    """Report progress from three threads at once, and from the one the tool runs on."""

    def report(name: int) -> None:
        for number in range(20):
            on_update(f"{name}.{number}")

    threads = [threading.Thread(target=report, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    report(3)
    for thread in threads:
        thread.join()
    return "ok"


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Switch between threads as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@MODES
def test_every_callback_is_called_on_the_loops_thread_and_never_two_at_once(mode: str, hasty_threads: None):
    loop = LoopThread()
    model = scripted(
        failure("busy"), reply("On it.", *[call("f", id=f"c{number}") for number in range(6)], chunk=2), "One.", "Two."
    )
    events: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), tool_execution=mode, **hooks(loop))
    run_agent_loop(
        "hi",
        AgentContext(tools=[tool("f", reports_from_its_own_threads)]),
        config,
        loop.watch("emit", events.append),
        stream_fn=loop.watch_stream(model),
    )
    assert loop.faults == []
    assert loop.thread is threading.current_thread()
    # All of them were called, so that none escaped by not being called.
    assert {name for name in loop.calls if loop.calls[name]} == {
        *hooks(loop),
        "emit",
        "stream function",
        "closing the stream",
    }
    updates = [event for event in events if isinstance(event, ToolExecutionUpdateEvent)]
    assert len(updates) == 6 * 4 * 20
    assert events[-1].reason == "completed"


def test_in_a_stream_everything_happens_on_its_own_thread():
    loop = LoopThread()
    model = scripted(failure("busy"), reply(call("f")), "One.", "Two.")
    config = AgentLoopConfig(model=scripted_model(), **hooks(loop))
    context = AgentContext(tools=[tool("f", reports_from_its_own_threads)])
    with agent_loop("hi", context, config, stream_fn=loop.watch_stream(model)) as stream:
        events = list(stream)
    assert loop.faults == []
    assert loop.thread is not None
    assert loop.thread.name == "agentcore-stream"
    assert events[-1].reason == "completed"


# --- tools ----------------------------------------------------------------------------------------------------------


def where_tools_run(mode: str, **options: Any) -> tuple[list[threading.Thread], list[str]]:
    """Return the threads on which two calls ran, and what they were called meanwhile."""
    threads: list[threading.Thread] = []
    names: list[str] = []

    def execute(*args: Any) -> str:
        threads.append(threading.current_thread())
        names.append(threading.current_thread().name)
        return "ok"

    quick_run(reply(call("bash"), call("bash")), "Done.", tools=[tool("bash", execute, **options)], tool_execution=mode)
    return threads, sorted(names)


def test_sequential_tools_run_on_the_loops_own_thread():
    threads, _ = where_tools_run("sequential")
    assert threads == [threading.current_thread()] * 2


def test_parallel_tools_run_on_daemon_threads_that_are_named_after_them():
    threads, names = where_tools_run("parallel")
    assert names == ["agentcore-tool-bash-1", "agentcore-tool-bash-2"]
    assert all(thread.daemon for thread in threads)


@MODES
def test_a_tool_with_a_timeout_runs_on_a_worker_in_both_modes(mode: str):
    threads, names = where_tools_run(mode, timeout=60)
    assert threading.current_thread() not in threads
    assert names == ["agentcore-tool-bash-1", "agentcore-tool-bash-2"]


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_each_call_on_a_worker_runs_in_its_own_copy_of_the_callers_context():
    seen: list[str] = []
    together = threading.Barrier(3)

    def execute(call_id: str, *rest: Any) -> str:
        seen.append(variable.get())
        variable.set(call_id)
        together.wait(20)
        assert variable.get() == call_id
        return "ok"

    token = variable.set("the caller's")
    try:
        quick_run(reply(*[call("f") for _ in range(3)]), "Done.", tools=[tool("f", execute)])
        assert seen == ["the caller's"] * 3
        assert variable.get() == "the caller's"
    finally:
        variable.reset(token)


def test_the_hooks_of_a_run_share_the_context_of_its_thread():
    seen: list[str] = []

    def before(context: Any, signal: Any) -> None:
        variable.set("set by the hook")

    def execute(*args: Any) -> str:
        seen.append(variable.get())
        return "ok"

    def go() -> None:
        quick_run(reply(call("f")), "Done.", tools=[tool("f", execute)], before_tool_call=before)
        seen.append(variable.get())

    contextvars.copy_context().run(go)
    assert seen == ["set by the hook"] * 2


def test_a_stream_runs_in_a_copy_of_the_context_in_which_it_was_made():
    seen: list[str] = []

    def answer_later(request: Any) -> str:
        seen.append(variable.get())
        variable.set("the stream's")
        return "Hello"

    token = variable.set("the caller's")
    try:
        stream = agent_loop(
            "hi", AgentContext(), AgentLoopConfig(model=scripted_model()), stream_fn=scripted(answer_later)
        )
        stream.result(20)
        assert seen == ["the caller's"]
        assert variable.get() == "the caller's"
    finally:
        variable.reset(token)


# --- progress from other threads ------------------------------------------------------------------------------------


@MODES
def test_progress_from_another_thread_is_emitted_before_the_end_of_its_call(mode: str):
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        thread = threading.Thread(target=on_update, args=("from elsewhere",))
        thread.start()
        thread.join()
        return "ok"

    played = answer(reply(call("f", id="c1")), "Done.", tools=[tool("f", execute)], tool_execution=mode)
    assert played.lines[6:9] == ["call c1 f {}", "progress c1: from elsewhere", "done c1: ok"]


def test_progress_is_emitted_while_its_call_goes_on():
    heard = Gate()

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        # By now the loop has nothing to do but to wait for this call.
        signal.wait(0.05)
        on_update("are you there?")
        return "yes" if heard.wait(20) else "no"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            heard.open()

    played = answer(reply(call("f")), "Done.", tools=[tool("f", execute)], emit=emit)
    assert played.results[0].text == "yes"


def test_during_a_sequential_tool_progress_from_elsewhere_waits_for_its_next_report():
    emitted: list[str] = []
    seen: list[list[str]] = []

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent):
            emitted.append(event.partial_result.content[0].text)

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        thread = threading.Thread(target=on_update, args=("first",))
        thread.start()
        thread.join()
        seen.append(list(emitted))
        on_update("second")
        seen.append(list(emitted))
        return "ok"

    answer(reply(call("f")), "Done.", tools=[tool("f", execute)], tool_execution="sequential", emit=emit)
    assert seen == [[], ["first", "second"]]


def test_progress_never_blocks_the_tool_though_the_listener_is_busy():
    reported, busy = Gate(), Gate()

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        on_update("first")
        busy.wait_reached()
        for number in range(100):
            on_update(str(number))
        reported.open()
        return "ok"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionUpdateEvent) and not busy.is_reached:
            busy.open()
            busy.hold()
            assert reported.wait(20)

    played = answer(reply(call("f")), "Done.", tools=[tool("f", execute)], emit=emit)
    assert len(played.of(ToolExecutionUpdateEvent)) == 101


def test_progress_of_one_thread_keeps_its_order():
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        for number in range(300):
            on_update(str(number))
        return "ok"

    played = answer(reply(call("f"), call("f")), "Done.", tools=[tool("f", execute)])
    texts: dict[str, list[int]] = {}
    for event in played.of(ToolExecutionUpdateEvent):
        texts.setdefault(event.tool_call_id, []).append(int(event.partial_result.content[0].text))
    assert list(texts.values()) == [list(range(300))] * 2


def test_a_listener_that_reports_progress_itself_has_it_emitted_after_the_event_it_is_at():
    reports: list[Any] = []
    gate = Gate()

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        reports.append(on_update)
        on_update("from the tool")
        gate.hold(signal)
        return "ok"

    inside: list[str] = []
    order: list[str] = []

    def emit(event: Any) -> None:
        assert inside == []
        inside.append(event.type)
        if isinstance(event, ToolExecutionUpdateEvent):
            text = event.partial_result.content[0].text
            order.append(text)
            if text == "from the tool":
                reports[0]("from the listener")
                order.append("the listener goes on")
                gate.open()
        inside.clear()

    answer(reply(call("f")), "Done.", tools=[tool("f", execute)], emit=emit)
    assert order == ["from the tool", "the listener goes on", "from the listener"]


# --- runs inside runs -----------------------------------------------------------------------------------------------


@MODES
def test_sub_agents_three_levels_deep_work_with_two_workers_each(mode: str):
    leaves: list[str] = []

    def agent_tool(level: int) -> Any:
        def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
            if level == 0:
                leaves.append(call_id)
                return "leaf"
            inner = agent_tool(level - 1)
            asked = [call(inner.name) for _ in range(3)]
            messages = quick_run(
                reply(*asked), f"level {level} done", tools=[inner], max_parallel_tools=2, tool_execution=mode
            )
            assert [message.role for message in messages[2:5]] == ["toolResult"] * 3
            return messages[-1].text

        return tool(f"level_{level}", execute)

    top = agent_tool(3)
    messages = quick_run(reply(call(top.name)), "all done", tools=[top], max_parallel_tools=2, tool_execution=mode)
    assert messages[2].text == "level 3 done"
    assert len(leaves) == 27
    assert len(set(leaves)) == 27


def test_a_stream_read_inside_a_tool_works():
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        config = AgentLoopConfig(model=scripted_model())
        with agent_loop("inner", AgentContext(), config, signal, scripted("inner answer")) as stream:
            for event in stream:
                on_update(event.type)
        return stream.result()[-1].text

    played = answer(reply(call("f", id="c1")), "Done.", tools=[tool("f", execute)])
    assert played.results[0].text == "inner answer"
    assert played.of(ToolExecutionUpdateEvent)[-1].partial_result.content == (TextContent("agent_end"),)


def test_several_runs_at_once_do_not_disturb_each_other():
    outcomes: list[list[str]] = []

    def go() -> None:
        played = answer(reply(call("f", id="c1")), "Done.", tools=[shared])
        outcomes.append(played.lines)

    shared = tool("f", reports_from_its_own_threads)
    threads = [threading.Thread(target=go) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6
    assert {tuple(line for line in lines if not line.startswith("progress")) for lines in outcomes} == {
        (
            "agent_start", "turn_start", "start user: hi", "end user: hi",
            "start assistant", "end assistant tool_use: <f:c1>",
            "call c1 f {}", "done c1: ok", "start result c1: ok", "end result c1: ok", "turn_end c1",
            "turn_start", "start assistant", "end assistant stop: Done.", "turn_end",
            "agent_end completed",
        )
    }  # fmt: skip


def test_a_run_works_inside_the_thread_of_a_running_event_loop():
    async def main() -> list[Any]:
        assert asyncio.get_running_loop() is not None
        return quick_run(reply(call("f")), "Done.", tools=[tool("f")])

    assert [message.role for message in asyncio.run(main())] == ["user", "assistant", "toolResult", "assistant"]


def test_no_thread_is_left_when_a_run_has_ended():
    before = set(threading.enumerate())
    quick_run(reply(*[call("f") for _ in range(8)]), "Done.", tools=[tool("f")])
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
    assert set(threading.enumerate()) <= before


# --- cost -----------------------------------------------------------------------------------------------------------


class CountedEntries(list):  # type: ignore[type-arg]
    """The entries of a journal, and how many of them were looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        CountedEntries.looked_at += 1
        return super().__getitem__(index)


def long_answer(deltas: int) -> Callable[..., Iterator[Any]]:
    """Return a stream function that sends so many deltas, alternating between two blocks from time to time."""

    def stream_fn(model: Any, context: Any, options: Any) -> Iterator[Any]:
        journal = MessageJournal()
        journal.entries = CountedEntries()
        yield StartEvent(journal.partial())
        for index in (0, 1):
            journal.open(index, TextContent(""))
            yield TextStartEvent(index, journal.partial())
        for number in range(deltas):
            index = number // 100 % 2
            journal.append(index, "some text")
            yield TextDeltaEvent(index, "some text", journal.partial())
        yield DoneEvent(AssistantMessage("some text" * deltas))

    return stream_fn


def operations(deltas: int, *, read: bool) -> int:
    """Count the calls and the looks into the journal that a run with so many deltas takes."""
    count = 0
    lengths: list[int] = []

    def count_calls(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    def emit(event: Any) -> None:
        if read and event.type == "message_update":
            lengths.append(len(event.message.text))

    config = AgentLoopConfig(model=scripted_model())
    CountedEntries.looked_at = 0
    sys.setprofile(count_calls)
    try:
        run_agent_loop("hi", AgentContext(), config, emit, stream_fn=long_answer(deltas))
    finally:
        sys.setprofile(None)
    assert not read or lengths[-1] == len("some text") * deltas
    return count + CountedEntries.looked_at


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_twenty_times_the_deltas_cost_twenty_times_as_much(read: bool):
    few, many = operations(1_000, read=read), operations(20_000, read=read)
    assert few > 1_000
    assert many / few <= 22


def test_the_message_of_any_event_can_be_read_afterwards_in_order_at_the_same_cost():
    def looks(deltas: int) -> int:
        events: list[Any] = []
        config = AgentLoopConfig(model=scripted_model())
        run_agent_loop("hi", AgentContext(), config, events.append, stream_fn=long_answer(deltas))
        CountedEntries.looked_at = 0
        texts = [event.message.text for event in events if event.type == "message_update"]
        assert len(texts) == deltas + 2
        return CountedEntries.looked_at

    few, many = looks(500), looks(10_000)
    assert few > 0
    assert many / few <= 22


def test_an_end_event_is_the_last_of_its_call_whatever_its_threads_still_say(hasty_threads: None):
    stop = threading.Event()

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        def chatter() -> None:
            while not stop.is_set():
                on_update("still talking")

        threads.append(threading.Thread(target=chatter))
        threads[-1].start()
        return "ok"

    threads: list[threading.Thread] = []
    try:
        played = answer(
            reply(*[call("f", id=f"c{number}") for number in range(4)]), "Done.", tools=[tool("f", execute)]
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for end in played.of(ToolExecutionEndEvent):
        after = played.events[played.events.index(end) + 1 :]
        assert not [
            event
            for event in after
            if isinstance(event, ToolExecutionUpdateEvent) and event.tool_call_id == end.tool_call_id
        ]
