"""Whatever other threads do at whatever point of a run: no message is lost or doubled, nothing hangs, nothing lies."""

import faulthandler
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from agentcore import (
    Agent,
    AgentBusyError,
    AgentLoopConfig,
    AgentTool,
    PendingCallsError,
    ToolResultMessage,
    UserMessage,
)
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from tests.agent.agent_support import agent_with, said, tool, transcript_problems

# --- at every point of a run, on another thread ---------------------------------------------------------------------


class Puppet:
    """A thread that does what it is told while the run stands still."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order()
            except BaseException as error:
                self._done.put(error)
            else:
                self._done.put(None)

    def do(self, order: Callable[[], object]) -> None:
        self._orders.put(order)
        failure = self._done.get(timeout=20)
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(20)


@pytest.fixture(scope="module")
def puppet() -> Iterator[Puppet]:
    one = Puppet()
    yield one
    one.close()


class Points:
    """Counts the points that a run comes to, and does something at chosen ones."""

    def __init__(self, actions: dict[int, Callable[[], object]], puppet: Puppet) -> None:
        self.count = 0
        self.actions = actions
        self._puppet = puppet

    def reached(self, *given: Any) -> Any:
        number = self.count
        self.count += 1
        action = self.actions.get(number)
        if action is not None:
            self._puppet.do(action)


def played(actions: dict[int, Callable[[Agent], object]], puppet: Puppet, mode: str) -> tuple[Agent, Points, list[Any]]:
    """Run an agent once, with actions of another thread at some of its points, and look at all that must hold."""
    agent = agent_with(
        reply("Hm", call("echo", id="a"), call("echo", id="b")),
        reply("One more", call("echo", id="c")),
        *["Done."] * 40,
        tools=[tool(execute=lambda *given: points.reached() or "ran", execution_mode="sequential")],
        steering_mode=mode,
        follow_up_mode=mode,
    )
    points = Points({at: lambda action=action: action(agent) for at, action in actions.items()}, puppet)
    agent.config = AgentLoopConfig(
        model=agent.model,
        before_tool_call=points.reached,
        after_tool_call=points.reached,
        prepare_next_turn=points.reached,
        should_stop_after_turn=points.reached,
        transform_context=lambda messages, signal: points.reached() or messages,
        get_api_key=points.reached,
    )
    events: list[Any] = []

    def listen(event: Any, signal: Any) -> None:
        events.append(event)
        assert agent.state.is_streaming
        points.reached()

    remove = agent.subscribe(listen)
    agent.prompt("hi")
    remove()
    points.actions.clear()
    return agent, points, events


def check(agent: Agent, events: list[Any], accepted: list[str]) -> None:
    """Every accepted message is in the transcript once or still waits; after the next run it is in the transcript."""
    assert agent.wait_for_idle(0) is True
    assert not agent.state.is_streaming
    assert agent.status().phase == "idle"
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-1]) == ("agent_start", "agent_end")
    assert (kinds.count("agent_start"), kinds.count("agent_end")) == (1, 1)
    assert transcript_problems(agent.messages) == []
    status = agent.status()
    waiting = [message.content for message in (*status.steering_queue, *status.follow_up_queue)]
    delivered = said(agent)[1:]
    assert sorted([*delivered, *waiting]) == sorted(accepted)
    agent.prompt("last")
    assert sorted(said(agent)) == sorted(["hi", "last", *accepted])
    assert not agent.has_queued_messages()
    assert transcript_problems(agent.messages) == []


ACTIONS: dict[str, Callable[[Agent], object]] = {
    "steer": lambda agent: agent.steer("S"),
    "follow_up": lambda agent: agent.follow_up("F"),
    "abort": lambda agent: agent.abort(),
    "steer, abort": lambda agent: (agent.steer("S"), agent.abort()),
    "abort, steer": lambda agent: (agent.abort(), agent.steer("S")),
    "all": lambda agent: (
        agent.follow_up("F"),
        agent.steer("S"),
        agent.abort(),
        agent.follow_up("F"),
        agent.steer("S"),
    ),
}


def accepted_by(name: str) -> list[str]:
    return {"steer": ["S"], "follow_up": ["F"], "abort": [], "all": ["F", "S", "F", "S"]}.get(name, ["S"])


@pytest.mark.parametrize("name", ACTIONS)
def test_at_every_point_of_a_run(name: str, puppet: Puppet) -> None:
    _, points, _ = played({}, puppet, "all")
    assert points.count > 60

    for at in range(points.count):
        agent, _, events = played({at: ACTIONS[name]}, puppet, "one-at-a-time" if at % 2 else "all")
        check(agent, events, accepted_by(name))


def test_two_hundred_interleavings_of_several_actions(puppet: Puppet) -> None:
    _, points, _ = played({}, puppet, "all")
    dice = random.Random(5)
    for _ in range(200):
        chosen = {dice.randrange(points.count + 10): dice.choice(list(ACTIONS)) for _ in range(4)}
        performed: list[str] = []

        def noted(name: str) -> Callable[[Agent], object]:
            return lambda agent: (performed.extend(accepted_by(name)), ACTIONS[name](agent))  # noqa: B023

        agent, _, events = played(
            {at: noted(name) for at, name in chosen.items()}, puppet, dice.choice(["all", "one-at-a-time"])
        )
        check(agent, events, performed)


# --- two threads that want to run -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny_switch_interval")
def test_of_many_threads_in_prompt_exactly_one_runs() -> None:
    for _ in range(100):
        with Gate() as gate:
            agent = agent_with(reply(gate, "text"), "unused")
            barrier = threading.Barrier(8)
            outcomes: SimpleQueue[str] = SimpleQueue()

            def run(agent: Agent = agent, barrier: threading.Barrier = barrier, outcomes: Any = outcomes) -> None:
                barrier.wait(20)
                try:
                    outcomes.put(agent.prompt("hi").text)
                except AgentBusyError as error:
                    outcomes.put(str(error))

            threads = [threading.Thread(target=run, daemon=True) for _ in range(8)]
            for thread in threads:
                thread.start()
            refused = [outcomes.get(timeout=20) for _ in range(7)]
            gate.open()
            assert outcomes.get(timeout=20) == "text"
            for thread in threads:
                thread.join(20)
        assert all("`steer`" in text and "`follow_up`" in text for text in refused)
        assert said(agent) == ["hi"]


def test_two_threads_that_both_find_the_agent_idle_do_not_both_run() -> None:
    """Both have looked before either goes on: looking first and claiming then would let both in."""

    class Claims(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            try:
                both_have_looked.wait(0.2)
            except threading.BrokenBarrierError:
                pass
            return found

    both_have_looked = threading.Barrier(2)
    outcomes: SimpleQueue[str] = SimpleQueue()

    def run() -> None:
        try:
            agent.prompt("hi")
            outcomes.put("ran")
        except AgentBusyError:
            outcomes.put("refused")

    with Gate() as gate:
        agent = agent_with(reply(gate, "text"), reply("second"))
        agent._claims = Claims()
        threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert outcomes.get(timeout=20) == "refused"
        gate.open()
        assert outcomes.get(timeout=20) == "ran"
        for thread in threads:
            thread.join(20)


@pytest.mark.parametrize("how", ["prompt", "stream", "continue_", "resume", "reset"])
def test_a_second_run_is_refused_before_anything_changes(how: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"prompt": ("x",), "stream": ("x",), "resume": ({},)}
    with Gate() as gate:
        agent = agent_with(reply("half", gate, " and whole"))
        agent.follow_up("later")
        stream = agent.stream("hi")
        gate.wait_reached()
        before = agent.state
        with pytest.raises(AgentBusyError, match="`steer` and `follow_up`"):
            getattr(agent, how)(*arguments.get(how, ()))
        assert repr(agent.state) == repr(before)
        assert agent.has_queued_messages()
        agent.clear_all_queues()
        gate.open()
        stream.result(20)

    assert [getattr(message, "text", message) for message in agent.messages][1:] == ["half and whole"]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_a_tool_that_prompts_resets_or_waits_for_its_own_agent_is_refused(mode: str) -> None:
    refused: list[str] = []

    def misuse(*given: Any) -> str:
        for attempt in (lambda: agent.prompt("x"), agent.reset, agent.continue_, agent.wait_for_idle):
            with pytest.raises(AgentBusyError) as caught:
                attempt()
            refused.append(str(caught.value))
        agent.messages.append(UserMessage("smuggled"))
        return "tried"

    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool(execute=misuse)], tool_execution=mode)

    assert agent.prompt("hi").text == "Done."
    assert len(refused) == 4
    assert transcript_problems(agent.messages) == []
    assert len(agent.messages) == 4


def test_waiting_for_idle_is_refused_in_listeners_hooks_and_sub_agents_of_the_run() -> None:
    refused: list[str] = []

    def wait(where: str) -> None:
        with pytest.raises(AgentBusyError, match="wait for its own end"):
            agent.wait_for_idle(0)
        refused.append(where)

    def delegate(*given: Any) -> str:
        inner = agent_with("inner", before_tool_call=None)
        inner.subscribe(lambda event, signal: wait("inner") if event.type == "agent_end" else None)
        return inner.prompt("x").text

    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool(execute=delegate)])
    agent.before_tool_call = lambda context, signal: wait("hook")
    agent.subscribe(lambda event, signal: wait("listener") if event.type == "agent_end" else None)

    agent.prompt("hi")
    agent_with("x").prompt("x")
    assert refused == ["hook", "inner", "listener"]
    assert agent.wait_for_idle() is True


def test_waiting_for_idle_ends_with_the_run_or_with_the_timeout() -> None:
    with Gate() as gate:
        agent = agent_with(reply(gate, "text"))
        assert agent.wait_for_idle() is True
        stream = agent.stream("hi")
        gate.wait_reached()
        assert agent.wait_for_idle(0.01) is False
        assert agent.wait_for_idle(0) is False
        outcomes: SimpleQueue[Any] = SimpleQueue()

        def wait() -> None:
            outcomes.put((agent.wait_for_idle(20), agent.state.is_streaming))

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        gate.open()
        assert [outcomes.get(timeout=20) for _ in range(3)] == [(True, False)] * 3
        stream.result(20)
        for thread in threads:
            thread.join(20)


def test_the_agent_is_busy_until_the_listeners_of_the_end_have_returned() -> None:
    with Gate() as gate:
        agent = agent_with("text", "more")
        agent.subscribe(lambda event, signal: gate.hold() if event.type == "agent_end" else None)
        stream = agent.stream("hi")
        gate.wait_reached()
        assert agent.state.is_streaming
        assert agent.wait_for_idle(0) is False
        with pytest.raises(AgentBusyError):
            agent.prompt("x")
        gate.open()
        stream.result(20)

    assert agent.prompt("x").text == "more"


# --- from inside ----------------------------------------------------------------------------------------------------


def test_listeners_hooks_and_tools_may_call_everything_that_is_safe_from_inside() -> None:
    called: list[str] = []

    def everything(where: str) -> None:
        agent.steer(f"steered at {where}")
        agent.follow_up(f"followed at {where}")
        agent.subscribe(lambda event, signal: None)()
        assert agent.status().phase != "idle"
        assert agent.state.is_streaming
        assert agent.has_queued_messages()
        assert isinstance(agent.pending_calls, list)
        agent.abort_tool("nothing")
        called.append(where)

    def once(where: str, result: Any = None) -> Callable[..., Any]:
        def hook(*given: Any) -> Any:
            if where not in called:
                everything(where)
            return given[0] if result == "first" else result

        return hook

    config = AgentLoopConfig(
        model=scripted_model(),
        before_tool_call=once("before"),
        after_tool_call=once("after"),
        prepare_next_turn=once("prepare"),
        should_stop_after_turn=once("stop", False),
        transform_context=once("transform", "first"),
        convert_to_llm=once("convert", "first"),
        get_api_key=once("key"),
    )
    agent = agent_with(
        reply(call("echo", id="a")), *["x"] * 40, tools=[tool(execute=once("tool", "ran"))], config=config
    )
    agent.subscribe(once("listener"))

    agent.prompt("hi")

    places = ["listener", "transform", "convert", "key", "before", "tool", "after", "prepare", "stop"]
    assert sorted(called) == sorted(places)
    assert sorted(said(agent)) == sorted(["hi", *(f"{how} at {p}" for p in places for how in ("steered", "followed"))])


@pytest.mark.parametrize("where", ["agent_start", "message_update", "tool_execution_start", "turn_end", "agent_end"])
def test_a_listener_may_abort_from_inside(where: str) -> None:
    agent = agent_with(reply("Hm", call("echo", id="a")), "Done.", *["more"] * 2, tools=[tool()])
    remove = agent.subscribe(lambda event, signal: agent.abort("enough") if event.type == where else None)

    agent.prompt("hi")
    remove()

    assert transcript_problems(agent.messages) == []
    assert agent.wait_for_idle(0)
    assert agent.prompt("again").stop_reason == "stop"


# --- under load -----------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("tiny_switch_interval")
def test_eight_threads_at_one_agent_while_runs_go_on() -> None:
    numbers = itertools.count()
    accepted: list[str] = []
    failures: list[BaseException] = []
    over = threading.Event()

    def answer(request: Any) -> Any:
        number = next(numbers)
        calls = [call("echo", id=f"{number}-{index}") for index in range(number % 4)]
        return reply("some text", *calls, chunk=3)

    agent = Agent(scripted_model(), tools=[tool()], stream_fn=scripted(answer, repeat=True), steering_mode="all")
    open_runs: list[str] = []

    def bracket(event: Any, signal: Any) -> None:
        # On one thread at a time: a second run that overlaps would show here.
        if event.type == "agent_start":
            assert open_runs == []
            open_runs.append("run")
        elif event.type == "agent_end":
            open_runs.clear()
        else:
            assert open_runs == ["run"]

    def guarded(work: Callable[[random.Random], object], seed: int) -> Callable[[], None]:
        def loop() -> None:
            dice = random.Random(seed)
            try:
                while not over.is_set():
                    work(dice)
            except BaseException as error:
                failures.append(error)

        return loop

    def queue(dice: random.Random) -> None:
        if len(accepted) < 400:
            text = f"{dice.random()}"
            accepted.append(text)
            dice.choice([agent.steer, agent.follow_up])(text)

    def abort(dice: random.Random) -> None:
        over.wait(dice.random() / 50)
        agent.abort()
        agent.abort_tool(f"{dice.randrange(50)}-0")

    def watch(dice: random.Random) -> None:
        status, state = agent.status(), agent.state
        assert all(one.seconds >= 0 for one in status.running_calls)
        assert not (state.streaming_message is not None and not state.is_streaming)
        repr(agent), agent.pending_calls, agent.has_queued_messages()

    def listen(dice: random.Random) -> None:
        remove = agent.subscribe(lambda event, signal: None)
        agent.wait_for_idle(0.001)
        remove()

    agent.subscribe(bracket)
    works = [queue, queue, abort, watch, watch, listen, listen, queue]
    threads = [threading.Thread(target=guarded(work, seed), daemon=True) for seed, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for number in range(40):
        if number % 4 == 3:
            list(agent.stream("streamed"))
        else:
            agent.prompt("prompted")
    over.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    agent.prompt("last")

    assert failures == []
    assert open_runs == []
    assert not agent.has_queued_messages()
    assert transcript_problems(agent.messages) == []
    assert sorted(said(agent)) == sorted([*accepted, *["prompted"] * 30, *["streamed"] * 10, "last"])
    assert sum(isinstance(message, ToolResultMessage) for message in agent.messages) > 10


def test_a_paused_agent_refuses_prompts_from_every_thread() -> None:
    from agentcore.approvals import pause_for_approval

    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool()], before_tool_call=pause_for_approval)
    agent.prompt("hi")
    refused: SimpleQueue[str] = SimpleQueue()

    def attempt() -> None:
        try:
            agent.prompt("x")
        except (PendingCallsError, AgentBusyError) as error:
            refused.put(type(error).__name__)

    threads = [threading.Thread(target=attempt, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert "PendingCallsError" in {refused.get(timeout=20) for _ in range(4)}
    assert len(agent.messages) == 2


def test_tools_of_parallel_batches_see_one_agent() -> None:
    """Sixteen calls that all read and steer their own agent at once."""

    def busy(*given: Any) -> str:
        agent.steer(given[0])
        return agent.status().phase

    calls = [call("echo", id=f"id{number}") for number in range(16)]
    agent = agent_with(reply(*calls), *["x"] * 20, tools=[tool(execute=busy)])

    agent.prompt("hi")

    assert sorted(said(agent)) == sorted(["hi", *(one.id for one in calls)])
    results = [one.text for one in agent.messages if isinstance(one, ToolResultMessage)]
    assert set(results) == {"running tools"}


def test_a_tool_record_is_immutable_and_can_be_shared_by_agents_on_many_threads() -> None:
    shared: AgentTool = tool()
    with pytest.raises(AttributeError):
        shared.name = "other"
    outcomes: SimpleQueue[Any] = SimpleQueue()

    def run() -> None:
        agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[shared])
        outcomes.put(agent.prompt("hi").text)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert [outcomes.get(timeout=20) for _ in threads] == ["Done."] * 8
    for thread in threads:
        thread.join(20)
