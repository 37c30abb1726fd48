"""`EventStream`: a run in the background, read by one, ended by whoever leaves it, and never waited for in vain."""

import contextvars
import copy
import gc
import pickle
import random
import signal as os_signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.abort import AbortController, AbortSignal
from agentcore.config import AgentContext, AgentLoopConfig
from agentcore.errors import AbortRequested, StreamStateError
from agentcore.events import AgentEndEvent, AgentStartEvent, MessageUpdateEvent
from agentcore.loop import agent_loop, agent_loop_continue
from agentcore.messages import UserMessage
from agentcore.models import Model
from agentcore.streams import EventStream
from agentcore.testing import Gate, SseServer, call, reply, scripted, scripted_model
from agentcore.testing.sse_server import Reply, Stall, sse
from agentcore.tools import AgentTool
from tests.loop.run_log import problems_of

PATIENCE = 20.0
"""Seconds after which a wait that should have ended is a failure."""

Emit = Callable[[Any], None]
Interrupts = Callable[[Callable[[], object], float], None]


@pytest.fixture
def interrupt_after() -> Iterator[Interrupts]:
    """Have a function called by a signal handler on the main thread, once, after so many seconds; 0 calls it off."""
    action: list[Callable[[], object]] = []

    def handler(number: int, frame: object) -> None:
        if action:
            action.pop()()

    def interrupt_after(fn: Callable[[], object], seconds: float) -> None:
        action[:] = [fn] if seconds else []
        os_signal.setitimer(os_signal.ITIMER_REAL, seconds)

    before = os_signal.signal(os_signal.SIGALRM, handler)
    try:
        yield interrupt_after
    finally:
        os_signal.setitimer(os_signal.ITIMER_REAL, 0)
        os_signal.signal(os_signal.SIGALRM, before)


def interrupt() -> None:
    raise KeyboardInterrupt


def counting(count: int, gate: Gate | None = None) -> Any:
    """Return a run of so many events, the numbers from 0; each is also a message. It stands at the gate before the last."""

    def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
        for number in range(count):
            if gate is not None and number == count - 1:
                gate.hold(signal)
            messages.append(number)
            emit(number)

    return run


def until_aborted(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
    """Run until somebody aborts, and say so."""
    emit("begun")
    signal.wait()
    emit(("aborted", signal.reason))


def failing(failure: BaseException, *events: Any) -> Any:
    def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
        for event in events:
            messages.append(event)
            emit(event)
        raise failure

    return run


def in_thread(fn: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=fn, name="test", daemon=True)
    thread.start()
    return thread


def finish(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def caught(fn: Callable[[], object]) -> BaseException:
    try:
        fn()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what nothing can be waited for with."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class TestReading:
    def test_the_events_come_in_order_and_then_the_iteration_ends(self) -> None:
        assert list(EventStream(counting(1000))) == list(range(1000))

    def test_break_pauses_and_a_later_for_goes_on(self) -> None:
        stream: EventStream[int] = EventStream(counting(4))
        for event in stream:
            if event == 1:
                break
        assert list(stream) == [2, 3]

    def test_a_second_iteration_after_the_end_gives_nothing(self) -> None:
        stream: EventStream[int] = EventStream(counting(2))
        assert list(stream) == [0, 1]
        assert list(stream) == []

    def test_after_the_result_the_events_can_still_be_read(self) -> None:
        stream: EventStream[int] = EventStream(counting(3))
        assert stream.result(PATIENCE) == [0, 1, 2]
        assert list(stream) == [0, 1, 2]

    def test_an_event_can_be_read_while_the_run_goes_on(self) -> None:
        with Gate() as gate:
            stream: EventStream[int] = EventStream(counting(3, gate))
            assert [next(stream), next(stream)] == [0, 1]
            gate.wait_reached()
            assert stream.messages == [0, 1]
            gate.open()
            assert next(stream) == 2

    def test_many_events_from_a_hasty_run_reach_a_hasty_reader(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            assert list(EventStream(counting(5000), max_queue_size=1)) == list(range(5000))
            assert list(EventStream(counting(5000))) == list(range(5000))
        finally:
            sys.setswitchinterval(before)

    @pytest.mark.parametrize("ended", [False, True])
    def test_an_event_that_comes_just_before_the_reader_sleeps_is_not_slept_through(self, ended: bool) -> None:
        class Coming(deque[Any]):
            looks = 0

            def __len__(self) -> int:
                self.looks += 1
                return 0 if self.looks == 1 else super().__len__()

        with Gate() as gate:
            stream: EventStream[Any] = EventStream(counting(1, gate))
            gate.wait_reached()
            if ended:
                gate.open()
                assert stream.result(PATIENCE) == [0]
            stream._channel.events = Coming(["just in time"])
            assert next(stream) == "just in time"


class TestTheEnd:
    def test_what_the_run_raised_comes_after_its_events_and_from_the_result(self) -> None:
        failure = LookupError("no such thing")
        stream: EventStream[int] = EventStream(failing(failure, 1, 2))
        seen = []

        def read() -> None:
            for event in stream:
                seen.append(event)  # noqa: PERF402 - the events before the failure are wanted

        assert caught(read) is failure
        assert seen == [1, 2]
        assert caught(lambda: next(stream)) is failure
        assert caught(stream.result) is failure
        assert stream.messages == [1, 2]

    @pytest.mark.parametrize("failure", [SystemExit(3), KeyboardInterrupt(), AbortRequested("why")])
    def test_what_is_no_exception_proper_is_raised_too(self, failure: BaseException) -> None:
        stream: EventStream[int] = EventStream(failing(failure))
        assert caught(lambda: list(stream)) is failure
        assert caught(stream.result) is failure

    def test_a_run_that_raises_stop_iteration_does_not_look_like_one_that_went_well(self) -> None:
        failure = StopIteration("over")
        stream: EventStream[int] = EventStream(failing(failure))
        error = caught(lambda: list(stream))
        assert isinstance(error, RuntimeError)
        assert error.__cause__ is failure
        assert caught(stream.result) is failure

    def test_the_result_waits_at_most_as_long_as_asked(self) -> None:
        with Gate() as gate:
            stream: EventStream[int] = EventStream(counting(1, gate))
            with pytest.raises(TimeoutError, match=r"had not ended after 0\.01 s"):
                stream.result(0.01)
            gate.open()
            assert stream.result(PATIENCE) == [0]

    def test_the_result_is_the_callers_own_list(self) -> None:
        stream: EventStream[int] = EventStream(counting(2))
        stream.result(PATIENCE).append(7)
        stream.messages.append(7)
        assert stream.result(PATIENCE) == stream.messages == [0, 1]


class TestLeaving:
    def test_abort_asks_the_run_to_stop_and_its_closing_events_can_be_read(self) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        assert not stream.signal.aborted
        stream.abort("enough")
        assert stream.signal.aborted
        assert list(stream) == ["begun", ("aborted", "enough")]

    def test_close_aborts_and_waits_for_the_end(self) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        stream.close()
        assert repr(stream) == "<EventStream ended, 0 messages>"
        assert list(stream) == ["begun", ("aborted", "the event stream was closed")]
        stream.close()

    def test_leaving_a_with_block_closes(self) -> None:
        with EventStream[Any](until_aborted) as stream:
            assert next(stream) == "begun"
        assert repr(stream).startswith("<EventStream ended")

    def test_close_does_not_wait_for_ever(self) -> None:
        with Gate() as gate:
            stream: EventStream[Any] = EventStream(lambda emit, signal, messages: gate.hold(), abort_grace=0.1)
            began = time.monotonic()
            stream.close()
            assert 0.1 <= time.monotonic() - began < 5
            assert repr(stream).startswith("<EventStream running")

    def test_a_dropped_stream_aborts_its_run(self) -> None:
        reasons: list[object] = []
        ended = Gate()

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            for number in range(10):
                emit(number)
            signal.wait()
            reasons.append(signal.reason)
            ended.open()

        for event in EventStream[int](run):
            assert event == 0
            break
        assert ended.wait(PATIENCE)
        assert reasons == ["the event stream was dropped"]

    def test_the_run_does_not_keep_its_stream_alive(self) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        alive = weakref.ref(stream)
        assert next(stream) == "begun"
        del stream
        assert alive() is None

    def test_no_thread_is_left_after_the_end(self) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        assert [thread.name for thread in threading.enumerate()].count("agentcore-stream") == 1
        stream.close()
        wait_until(lambda: "agentcore-stream" not in [thread.name for thread in threading.enumerate()])

    def test_an_aborted_parent_stops_the_run(self) -> None:
        parent, other = AbortController(), AbortController()
        stream: EventStream[Any] = EventStream(until_aborted, signals=[other.signal, parent.signal])
        parent.abort("no more")
        assert list(stream) == ["begun", ("aborted", "no more")]

    def test_a_parent_does_not_grow_with_the_streams_that_have_ended(self) -> None:
        parent = AbortController()
        streams: list[EventStream[int]] = [EventStream(counting(1), signals=[parent.signal]) for _ in range(100)]
        for stream in streams:
            stream.result(PATIENCE)
        assert len(parent.signal._hooks.dependents) == 0

    def test_a_run_that_was_refused_leaves_nothing(self) -> None:
        for size in (0, -1):
            with pytest.raises(ValueError, match="max_queue_size"):
                EventStream(counting(1), max_queue_size=size)
        gc.collect()  # the finaliser of what was refused raises nothing either


class TestFromInside:
    """The run's listeners, hooks and tools, which would wait for themselves."""

    def test_close_only_aborts(self) -> None:
        stream: EventStream[Any]
        ready, left = Gate(), Gate()

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            ready.hold()
            stream.close()
            emit(signal.reason)
            left.hold()

        stream = EventStream(run, abort_grace=3600)
        ready.open()
        assert next(stream) == "the event stream was closed"
        left.open()

    @pytest.mark.parametrize("where", ["the run's thread", "a thread with a copy of its context"])
    def test_reading_and_the_result_are_refused(self, where: str) -> None:
        stream: EventStream[Any]
        ready = Gate()
        errors: list[BaseException] = []

        def misuse() -> None:
            errors.append(caught(lambda: next(stream)))
            errors.append(caught(stream.result))

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            ready.hold()
            if where == "the run's thread":
                misuse()
            else:
                context = contextvars.copy_context()
                finish(in_thread(lambda: context.run(misuse)))

        stream = EventStream(run)
        ready.open()
        assert stream.result(PATIENCE) == []
        assert [type(error) for error in errors] == [StreamStateError, StreamStateError]
        assert "cannot read this event stream from its own run" in str(errors[0])
        assert "cannot wait for the result of this event stream" in str(errors[1])

    def test_what_outlives_the_run_may_wait_for_it(self) -> None:
        contexts: list[contextvars.Context] = []

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            contexts.append(contextvars.copy_context())
            messages.append("done")
            emit("done")

        stream: EventStream[Any] = EventStream(run)
        stream.result(PATIENCE)
        assert contexts[0].run(stream.result) == ["done"]
        assert contexts[0].run(next, stream) == "done"


class TestTheBound:
    def test_the_run_waits_when_so_many_events_are_unread(self) -> None:
        put: list[int] = []

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            for number in range(100):
                put.append(number)
                emit(number)

        stream: EventStream[int] = EventStream(run, max_queue_size=3)
        for expected in range(100):
            wait_until(lambda: stream._channel.writer_sleeps or len(put) == 100)
            # Those read, three in the queue, one that waits to be put.
            assert len(put) <= expected + 4
            assert next(stream) == expected
        assert list(stream) == []

    def test_the_result_lifts_it(self) -> None:
        stream: EventStream[int] = EventStream(counting(10_000), max_queue_size=1)
        assert next(stream) == 0
        assert stream.result(PATIENCE) == list(range(10_000))
        assert list(stream) == list(range(1, 10_000))

    @pytest.mark.parametrize("leave", [EventStream.abort, EventStream.close])
    def test_a_full_queue_does_not_outlive_an_abort(self, leave: Callable[[EventStream[Any]], None]) -> None:
        stream: EventStream[Any] = EventStream(counting(1000), max_queue_size=2)
        wait_until(lambda: stream._channel.writer_sleeps)
        leave(stream)
        assert list(stream) == list(range(1000))

    def test_a_full_queue_does_not_outlive_its_stream(self) -> None:
        ended = Gate()

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            for number in range(1000):
                emit(number)
            ended.open()

        stream: EventStream[Any] = EventStream(run, max_queue_size=2)
        channel = stream._channel
        wait_until(lambda: channel.writer_sleeps)
        del stream
        assert ended.wait(PATIENCE)

    def test_a_wake_up_that_an_interrupt_has_swallowed_is_made_up_for(self) -> None:
        stream: EventStream[int] = EventStream(counting(3), max_queue_size=1)
        channel = stream._channel
        wait_until(lambda: channel.writer_sleeps)
        channel.events.popleft()  # as `take` does, but interrupted before it has woken the run
        wait_until(lambda: len(channel.events) == 1)
        assert list(stream) == [1, 2]


class TestThreads:
    def test_a_second_reader_is_refused_and_the_first_goes_on(self) -> None:
        with Gate() as gate:
            stream: EventStream[int] = EventStream(counting(2, gate))
            assert next(stream) == 0
            read: list[int] = []
            reader = in_thread(lambda: read.append(next(stream)))
            wait_until(lambda: bool(stream._channel.readers))
            with pytest.raises(StreamStateError, match="one reader at a time"):
                next(stream)
            gate.open()
            finish(reader)
        assert read == [1]
        assert list(stream) == []

    def test_threads_may_take_turns(self) -> None:
        stream: EventStream[int] = EventStream(counting(2))
        read: list[int] = []
        finish(in_thread(lambda: read.append(next(stream))))
        finish(in_thread(lambda: read.append(next(stream))))
        assert read == [0, 1]

    def test_many_readers_get_each_event_once_or_an_error(self) -> None:
        stream: EventStream[int] = EventStream(counting(2000))
        read: list[int] = []

        def hammer() -> None:
            while True:
                try:
                    read.append(next(stream))
                except StreamStateError:
                    continue
                except StopIteration:
                    return

        finish(*[in_thread(hammer) for _ in range(4)])
        assert sorted(read) == list(range(2000))

    def test_the_result_can_be_waited_for_by_many(self) -> None:
        with Gate() as gate:
            stream: EventStream[int] = EventStream(counting(2, gate))
            results: list[list[int]] = []
            threads = [in_thread(lambda: results.append(stream.result(PATIENCE))) for _ in range(3)]
            gate.open()
            finish(*threads)
        assert results == [[0, 1]] * 3

    def test_abort_and_messages_work_from_any_thread(self) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        seen: list[Any] = []
        finish(in_thread(lambda: (seen.append(stream.messages), stream.abort("elsewhere"))))
        assert seen == [[]]
        assert list(stream) == ["begun", ("aborted", "elsewhere")]

    def test_close_works_from_another_thread_while_the_stream_is_read(self) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        read: list[Any] = []
        reader = in_thread(lambda: read.extend(stream))
        wait_until(lambda: read == ["begun"])
        stream.close()
        finish(reader)
        assert read == ["begun", ("aborted", "the event stream was closed")]

    def test_abort_is_safe_in_a_signal_handler(self, interrupt_after: Interrupts) -> None:
        for _ in range(50):
            stream: EventStream[Any] = EventStream(until_aborted)
            interrupt_after(lambda: stream.abort("signal"), random.uniform(1e-6, 2e-3))  # noqa: B023
            assert list(stream) == ["begun", ("aborted", "signal")]

    def test_the_run_has_a_named_daemon_thread_and_a_copy_of_the_context(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        seen: list[Any] = []

        def run(emit: Emit, signal: AbortSignal, messages: list[Any]) -> None:
            thread = threading.current_thread()
            seen.extend([thread.name, thread.daemon, variable.get()])
            variable.set("inside")

        token = variable.set("outside")
        try:
            EventStream[Any](run).result(PATIENCE)
            assert seen == ["agentcore-stream", True, "outside"]
            assert variable.get() == "outside"
        finally:
            variable.reset(token)


class TestInterrupts:
    def test_an_interrupt_while_waiting_for_the_next_event_aborts_the_run(self, interrupt_after: Interrupts) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        assert next(stream) == "begun"
        interrupt_after(interrupt, 0.05)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert list(stream) == [("aborted", "interrupted")]

    def test_an_interrupt_while_waiting_for_the_result_aborts_the_run(self, interrupt_after: Interrupts) -> None:
        stream: EventStream[Any] = EventStream(until_aborted)
        interrupt_after(interrupt, 0.05)
        with pytest.raises(KeyboardInterrupt):
            stream.result()
        assert stream.result(PATIENCE) == []
        assert list(stream) == ["begun", ("aborted", "interrupted")]

    @pytest.mark.parametrize("bound", [None, 1])
    def test_after_an_interrupt_at_any_moment_the_stream_is_whole(
        self, interrupt_after: Interrupts, bound: int | None
    ) -> None:
        interrupted = 0
        for _ in range(150):
            stream: EventStream[Any] = EventStream(counting(200), max_queue_size=bound)
            read: list[Any] = []
            try:
                interrupt_after(interrupt, random.uniform(1e-6, 3e-4))
                for event in stream:
                    read.append(event)  # noqa: PERF402 - what was read before the interrupt is wanted
                interrupt_after(interrupt, 0)
            except KeyboardInterrupt:
                interrupted += 1
                stream.abort()
            rest: list[Any] = []
            finish(in_thread(lambda: rest.extend(stream)))  # noqa: B023 - the reader's place is free
            # The one that was about to be handed over when the interrupt came can be lost with it.
            assert [*read, *rest] == [event for event in range(200) if event in (*read, *rest)]
            assert len(read) + len(rest) >= 199
            assert stream.result(PATIENCE) == list(range(200))
        assert interrupted > 20


class TestValue:
    def test_it_can_be_neither_pickled_nor_copied(self) -> None:
        stream: EventStream[int] = EventStream(counting(1))
        for fn in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="save its `messages`"):
                fn(stream)
        stream.close()

    def test_its_repr_tells_its_state(self) -> None:
        with Gate() as gate:
            stream: EventStream[int] = EventStream(counting(1, gate))
            assert repr(stream) == "<EventStream running, 0 messages>"
            gate.open()
            stream.result(PATIENCE)
        assert repr(stream) == "<EventStream ended, 1 messages>"
        failed: EventStream[int] = EventStream(failing(ValueError(), 1))
        assert caught(failed.result)
        assert repr(failed) == "<EventStream failed, 1 messages>"


# --- with the loop --------------------------------------------------------------------------------------------------


def config(**options: Any) -> AgentLoopConfig:
    return AgentLoopConfig(model=scripted_model(), **options)


def never_ending(*args: Any) -> str:
    threading.Event().wait()
    return "never"


class TestTheLoop:
    def test_a_run_can_be_read_to_its_end(self) -> None:
        stream = agent_loop("hi", AgentContext(), config(), stream_fn=scripted(reply("Hello")))
        events = list(stream)
        assert [type(events[0]), type(events[-1])] == [AgentStartEvent, AgentEndEvent]
        assert problems_of(events, stream.messages) == []
        assert [message.role for message in stream.result()] == ["user", "assistant"]

    def test_a_run_can_continue_a_context(self) -> None:
        stream = agent_loop_continue(
            AgentContext(messages=[UserMessage("hi")]), config(), stream_fn=scripted(reply("Hello"))
        )
        assert [message.role for message in stream.result(PATIENCE)] == ["assistant"]

    def test_the_reader_gets_the_exception_of_a_hook_after_the_closing_events(self) -> None:
        failure = LookupError("no such thing")

        def prepare_next_turn(*args: Any) -> None:
            raise failure

        stream = agent_loop(
            "hi", AgentContext(), config(prepare_next_turn=prepare_next_turn), stream_fn=scripted(reply("Hello"))
        )
        events = []

        def read() -> None:
            for event in stream:
                events.append(event)  # noqa: PERF402 - the events before the failure are wanted

        assert caught(read) is failure
        assert events[-1].reason == "error"
        assert [message.role for message in stream.messages] == ["user", "assistant"]

    def test_ten_thousand_deltas_do_not_wait_for_a_reader_that_has_gone(self) -> None:
        model = scripted(reply("x" * 10_000, chunk=1))
        stream = agent_loop("hi", AgentContext(), config(), stream_fn=model, max_queue_size=4)
        assert type(next(stream)) is AgentStartEvent
        assert stream.result(PATIENCE)[-1].text == "x" * 10_000

    def test_the_result_of_a_run_whose_stream_function_fails_at_once_comes_at_once(self) -> None:
        def stream_fn(*args: Any) -> Any:
            raise OSError("no network")

        stream = agent_loop("hi", AgentContext(), config(), stream_fn=stream_fn, max_queue_size=1)
        assert stream.result(PATIENCE)[-1].stop_reason == "error"

    def test_both_signals_count(self) -> None:
        for give in ("argument", "config"):
            controller = AbortController()
            with Gate() as gate:
                stream = agent_loop(
                    "hi",
                    AgentContext(),
                    config(signal=controller.signal if give == "config" else None),
                    controller.signal if give == "argument" else None,
                    scripted(reply("Hello", gate, "world")),
                )
                gate.wait_reached()
                controller.abort("enough")
                assert stream.result(PATIENCE)[-1].stop_reason == "aborted"

    def test_misuse_raises_at_the_call(self) -> None:
        for wrong in (lambda: agent_loop("", [], config()), lambda: agent_loop([], AgentContext(), config())):  # type: ignore[arg-type]
            with pytest.raises((TypeError, ValueError)):
                wrong()
        assert "agentcore-stream" not in [thread.name for thread in threading.enumerate()]

    def test_a_stream_in_a_tool_of_another_run_can_be_waited_for(self) -> None:
        def sub_agent(*args: Any) -> str:
            inner = agent_loop("sub", AgentContext(), config(), stream_fn=scripted(reply("inner")))
            return inner.result(PATIENCE)[-1].text

        tool = AgentTool("sub", "Sub", "A sub-agent", {"type": "object"}, sub_agent)
        model = scripted(reply(call("sub"), call("sub")), reply("outer"))
        stream = agent_loop("hi", AgentContext(tools=[tool]), config(), stream_fn=model)
        roles = [message.role for message in stream.result(PATIENCE)]
        assert roles == ["user", "assistant", "toolResult", "toolResult", "assistant"]

    def test_a_tool_cannot_wait_for_its_own_stream(self) -> None:
        streams: list[Any] = []
        ready = Gate()

        def own(*args: Any) -> str:
            ready.hold()
            return str(streams[0].result())

        tool = AgentTool("own", "Own", "Waits for itself", {"type": "object"}, own)
        model = scripted(reply(call("own")), reply("Done."))
        streams.append(agent_loop("hi", AgentContext(tools=[tool]), config(), stream_fn=model))
        ready.open()
        result = streams[0].result(PATIENCE)[2]
        assert result.is_error
        assert "would wait for itself" in result.content[0].text


def chat_chunk(text: str) -> bytes:
    return sse({"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]})


class TestOverTheWire:
    """A real connection to a server that stalls after the first words of its answer."""

    def start(self, server: SseServer, **options: Any) -> Any:
        model = Model("m", api="openai-completions", provider="test", base_url=f"{server.url}/v1")
        return agent_loop("hi", AgentContext(), AgentLoopConfig(model=model, api_key="k", max_retries=0), **options)

    @pytest.mark.parametrize("leave", ["drop", "close", "with"])
    def test_a_reader_that_leaves_ends_the_connection(self, leave: str) -> None:
        with SseServer([Reply([chat_chunk("Hel"), Stall()])]) as server:
            stream = self.start(server)
            for event in stream:
                if type(event) is MessageUpdateEvent:
                    break
            connection = server.connections[0]
            began = time.monotonic()
            if leave == "close":
                stream.close()
            elif leave == "with":
                with stream:
                    pass
            del stream, event
            assert connection.closed.wait(PATIENCE)
            assert connection.closed_by == "client"
            assert time.monotonic() - began < 2
            wait_until(lambda: "agentcore-stream" not in [thread.name for thread in threading.enumerate()])

    def test_a_stream_dropped_after_its_first_event_ends_the_request(self) -> None:
        with SseServer([Reply([chat_chunk("Hel"), Stall()])]) as server:
            for _event in self.start(server):
                break
            wait_until(lambda: "agentcore-stream" not in [thread.name for thread in threading.enumerate()])
            # It may have ended before the request was sent.
            assert all(connection.closed.wait(PATIENCE) for connection in server.connections)

    def test_an_interrupted_reader_ends_the_connection(self, interrupt_after: Interrupts) -> None:
        with SseServer([Reply([chat_chunk("Hel"), Stall()])]) as server:
            stream = self.start(server)
            interrupt_after(interrupt, 0.3)
            events: list[Any] = []
            with pytest.raises(KeyboardInterrupt):
                events.extend(stream)
            assert all(connection.closed.wait(PATIENCE) for connection in server.connections)
            assert stream.result(PATIENCE)[-1].stop_reason == "aborted"


# --- scripts --------------------------------------------------------------------------------------------------------

PRELUDE = """
import threading, time
from agentcore import AgentContext, AgentLoopConfig, AgentTool, agent_loop
from agentcore.testing import Gate, call, reply, scripted, scripted_model

def stuck(*args):
    begun.open()
    threading.Event().wait()

begun = Gate()
config = AgentLoopConfig(model=scripted_model(), abort_grace=0.1)
tool = AgentTool("stuck", "Stuck", "Never returns", {"type": "object"}, stuck)
context = AgentContext(tools=[tool])

def start(*parts):
    return agent_loop("hi", context, config, stream_fn=scripted(reply(*parts), reply("Done.")))
"""

SCRIPTS = {
    "forgets to close a stream that waits for the model": """
        gate = Gate()
        stream = start("Hello", gate)
        gate.wait_reached()
    """,
    "forgets to close a stream whose tool never returns": """
        stream = start(call("stuck"))
        begun.wait(10)
    """,
    "closes a stream whose tool never returns": """
        with start(call("stuck")) as stream:
            begun.wait(10)
        print(len(stream.messages))
    """,
    "drops a stream whose tool never returns": """
        start(call("stuck"))
    """,
    "reads half of a stream and ends": """
        for event in start("Hello"):
            break
    """,
    "keeps a stream in a cycle": """
        class Holder: pass
        holder = Holder()
        holder.self, holder.stream = holder, start(call("stuck"))
        begun.wait(10)
        del holder
    """,
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_ends_with_its_own_exit_code_when_it(script: str) -> None:
    ending = "\nprint('end', flush=True)\nraise SystemExit(7)\n"
    source = PRELUDE + textwrap.dedent(SCRIPTS[script]) + ending
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == b"end\n":
                break
        began = time.monotonic()
        _, errors = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 2
    assert process.returncode == 7
    # A warning that a tool was given up is in order; a traceback is not.
    assert all(b"did not stop when asked to and was given up" in line for line in errors.splitlines())
