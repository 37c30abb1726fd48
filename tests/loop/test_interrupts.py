"""Ctrl-C belongs to the run wherever it arrives: it is raised at once, and leaves nothing in disorder.

A sweep raises `KeyboardInterrupt` at one point of a run after another. By default it takes one point in some dozens;
with AGENTCORE_ALL_INTERRUPTS=1 in the environment, every one, also those in the standard library (a quarter of an hour).
"""

import faulthandler
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentcore import loop
from agentcore.config import AgentContext, AgentLoopConfig
from agentcore.loop import drive, new_run
from agentcore.messages import UserMessage
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from tests.loop.interrupt_script import PLACES, WITH_WORKERS
from tests.loop.interrupt_sweep import scenarios
from tests.loop.loop_support import tool
from tests.loop.run_log import problems_of

HERE = Path(__file__).parent
PATIENCE = 100.0
ALL = bool(os.environ.get("AGENTCORE_ALL_INTERRUPTS"))
STEPS = {"lines": 1, "signals": 1, "everywhere": 1} if ALL else {"lines": 29, "signals": 67}

IN_CLEAN_UP = {"the clean-up after Ctrl-C", "the clean-up after Ctrl-C, in emit"}
"""Places where the closing events are not all sent, because Ctrl-C was pressed again."""


def output_of(script: str, *args: object, timeout: float = PATIENCE) -> Any:
    """Run a script beside this file in a process of its own; return the JSON it prints."""
    command = [sys.executable, str(HERE / script), *map(str, args)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


# --- a real Ctrl-C at every place -----------------------------------------------------------------------------------


class Told:
    """What a process told in which Ctrl-C was pressed at one place after another, and how it ended."""

    def __init__(self, mode: str) -> None:
        command = [sys.executable, str(HERE / "interrupt_script.py"), mode]
        self.places: dict[str, dict[str, Any]] = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            last = time.monotonic()
            for line in process.stdout:
                told = json.loads(line)
                self.places[told["place"]] = told
                last = time.monotonic()
            _, self.errors = process.communicate(timeout=PATIENCE)
        self.seconds_to_exit = time.monotonic() - last
        self.exit_code = process.returncode


_told: dict[str, Told] = {}


def told_in(mode: str) -> Told:
    if mode not in _told:
        _told[mode] = Told(mode)
    return _told[mode]


AT_PLACES = [("parallel", place) for place in {**PLACES, **WITH_WORKERS}] + [("sequential", place) for place in PLACES]


@pytest.mark.parametrize(("mode", "place"), AT_PLACES)
def test_ctrl_c_is_raised_in_time_and_leaves_a_valid_transcript_at(mode: str, place: str) -> None:
    told = told_in(mode).places[place]

    assert told["raised"] == "KeyboardInterrupt"
    assert told["seconds"] < 1.5
    assert told["twice"] == 0
    if place not in IN_CLEAN_UP:
        assert told["problems"] == []
        assert told["reason"] == ("completed" if place == "emit of agent_end" else "aborted")
    assert told["next"] == ["user", "assistant", "toolResult", "toolResult", "assistant"]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_the_process_ends_at_once_with_its_exit_code_though_tools_are_stuck(mode: str) -> None:
    told = told_in(mode)

    assert told.exit_code == 7
    assert told.seconds_to_exit < 2
    # A warning that a tool was given up is in order; a traceback is not.
    assert all("did not stop when asked to and was given up" in line for line in told.errors.splitlines())


def test_a_second_ctrl_c_is_raised_at_once() -> None:
    clean_up = told_in("parallel").places["the clean-up after Ctrl-C"]

    assert clean_up["pressed"] == 2
    assert clean_up["seconds"] < 0.5
    assert clean_up["reason"] is None


def test_calls_that_ctrl_c_cut_off_are_answered_as_aborted_and_finished_ones_are_kept() -> None:
    for mode in ("parallel", "sequential"):
        first, second, third = told_in(mode).places["a tool"]["results"]
        assert first == "ran"
        assert "was aborted" in second
        assert third == "ran" if mode == "parallel" else "was aborted" in third


def test_no_grace_keeps_ctrl_c_waiting() -> None:
    places = told_in("parallel").places
    for place in ("a tool, with a long grace", "an abort that waits for a tool"):
        assert places[place]["seconds"] < 1.5
        assert "was given up" in places[place]["results"][1]


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_ctrl_c_after_the_last_word_adds_no_message(mode: str) -> None:
    places = told_in(mode).places
    assert places["get_follow_up_messages"]["stop_reasons"] == ["stop"]
    assert places["emit of agent_end"]["stop_reasons"] == ["tool_use", "stop"]
    assert places["prepare_next_turn"]["stop_reasons"] == ["tool_use", "aborted"]


# --- at moments that can be chosen ----------------------------------------------------------------------------------


class Interrupted:
    """A run of two tools, in this process, that something interrupts."""

    def __init__(self, *execute: Any, added: list[Any] | None = None) -> None:
        self.log: list[Any] = []
        self.added: list[Any] = [] if added is None else added
        self.executed: list[str] = []
        tools = [tool(f"tool{number}", one) for number, one in enumerate(execute or (self.note, self.note))]
        model = scripted(reply(*[call(one.name, id=one.name) for one in tools]), reply("Done."))
        config = AgentLoopConfig(model=scripted_model(), abort_grace=0.1)
        self.run = new_run(AgentContext(tools=tools), config, self.log.append, None, model, self.added)

    def note(self, call_id: str, *args: Any) -> str:
        self.executed.append(call_id)
        return "ran"

    def go(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            drive(self.run, [UserMessage("hi")])
        assert problems_of(self.log, self.added) == []
        assert self.log[-1].reason == "aborted"

    @property
    def results(self) -> list[str]:
        return [message.content[0].text for message in self.added if message.role == "toolResult"]


def test_an_interrupt_before_the_first_event_still_has_the_prompts_in_the_transcript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def enter(run: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "enter", enter)
    interrupted = Interrupted()
    interrupted.go()
    assert [message.role for message in interrupted.added] == ["user", "assistant"]


@pytest.mark.parametrize("at", range(5))
def test_an_interrupt_just_after_a_message_was_added_does_not_add_it_again(at: int) -> None:
    class Added(list[Any]):
        inserted = 0

        def insert(self, position: Any, item: Any) -> None:
            super().insert(position, item)
            self.inserted += 1
            if self.inserted == at + 1:
                raise KeyboardInterrupt

    interrupted = Interrupted(added=Added())
    interrupted.go()
    roles = [message.role for message in interrupted.added]
    assert roles == (
        ["user", "assistant"] if at == 0 else ["user", "assistant", "toolResult", "toolResult", "assistant"]
    )


class Handing:
    """Takes the place of a run's workers, and is interrupted while it hands a call over."""

    def __init__(self, hand: Any) -> None:
        self.hand = hand

    def submit_named(self, name: str, fn: Any, record: Any) -> None:
        self.hand(lambda: fn(record))
        raise KeyboardInterrupt


def test_a_call_that_was_interrupted_on_its_way_to_a_worker_never_runs() -> None:
    interrupted = Interrupted()
    late: list[Any] = []
    interrupted.run.workers = lambda: Handing(late.append)  # type: ignore[method-assign, assignment, return-value]
    interrupted.go()
    assert interrupted.results == [f"The call of `tool{number}` was aborted: interrupted." for number in (0, 1)]

    late[0]()  # its worker comes after all
    assert interrupted.executed == []


def test_a_call_that_has_begun_though_its_handing_over_was_interrupted_is_waited_for_and_given_up() -> None:
    with Gate() as gate:

        def stuck(*args: Any) -> str:
            gate.hold()
            return "too late"

        def hand(fn: Any) -> None:
            threading.Thread(target=fn, daemon=True).start()
            gate.wait_reached()

        interrupted = Interrupted(stuck)
        interrupted.run.workers = lambda: Handing(hand)  # type: ignore[method-assign, assignment, return-value]
        interrupted.go()
    assert "did not stop when asked to and was given up" in interrupted.results[0]


# --- at random moments, and at every point --------------------------------------------------------------------------


def test_three_hundred_interrupts_at_random_moments_leave_no_lock_taken_and_no_run_stuck() -> None:
    told = output_of("interrupt_storm.py", 300, 1)
    assert told["faults"] == []
    assert told["interrupted"] == 300


_swept: dict[str, Any] = {}


def swept(mode: str) -> Any:
    if mode not in _swept:
        if ALL:
            faulthandler.cancel_dump_traceback_later()  # which watches over tests that take too long
        _swept[mode] = output_of("interrupt_sweep.py", mode, 1, STEPS[mode], timeout=3600 if ALL else PATIENCE)
    return _swept[mode]


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("scenario", scenarios())
def test_an_interrupt_at_any_point_leaves_the_books_whole(scenario: str, mode: str) -> None:
    told = swept(mode)[scenario]
    assert told["faults"] == {}
    assert told["points"] > 200
    assert told["before_it_began"] < 200
