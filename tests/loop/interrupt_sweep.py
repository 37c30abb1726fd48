"""Interrupt a run at one point after another, as Ctrl-C would, and say where it was left in disorder.

`python interrupt_sweep.py MODE FIRST STEP [SCENARIO ...]` runs each scenario again and again on the main thread; the
n-th time a `KeyboardInterrupt` is raised at the n-th point (FIRST, FIRST + STEP, …) that the thread reaches in the
package, until a run ends before its point. Prints one JSON object: for each scenario how many points there were, and
the faults. MODE:

- `lines`: before every line. Stronger than any signal, which is noticed only after calls and on backward jumps.
- `signals`: at each instruction where the interpreter may notice a signal.
- `everywhere`: as `signals`, also in the modules of the standard library that the package calls.
"""

from __future__ import annotations

import dis
import faulthandler
import gc
import json
import linecache
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import agentcore
from agentcore import _scope
from agentcore.abort import AbortController
from agentcore.config import AgentContext, AgentLoopConfig, AgentLoopTurnUpdate, BeforeToolCallResult
from agentcore.loop import ResumedCalls, drive, new_run
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.streams import EventStream
from agentcore.testing.scripted import call, failure, reply, scripted, scripted_model
from agentcore.tools import AgentTool
from tests.loop.run_log import problems_of, threads_that_stay

PACKAGE = str(Path(agentcore.__file__).parent)
SECONDS_UNTIL_STUCK = 20.0


# --- raising at a point -------------------------------------------------------------------------------------------------

_CALLS = frozenset("CALL CALL_KW CALL_FUNCTION CALL_FUNCTION_KW CALL_FUNCTION_EX CALL_METHOD".split())
_points_of_code: dict[CodeType, frozenset[int]] = {}


def points_of(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which a signal may be noticed."""
    if code not in _points_of_code:
        points = set()
        instructions = list(dis.get_instructions(code))
        for before, instruction in zip([None, *instructions], [*instructions, None], strict=False):
            if instruction is None:
                continue
            if before is None or before.opname == "RESUME" or before.opname in _CALLS:
                points.add(instruction.offset)
            elif (
                "JUMP" in instruction.opname
                and isinstance(instruction.argval, int)
                and instruction.argval <= instruction.offset
            ):
                points.add(instruction.argval)
        _points_of_code[code] = frozenset(points)
    return _points_of_code[code]


class Interrupter:
    """A trace function that raises `KeyboardInterrupt` at the n-th point, once."""

    def __init__(self, at: int, mode: str) -> None:
        self.at = at
        self.mode = mode
        self.count = 0
        self.where: str | None = None
        self.began = True

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not self.is_watched(frame):
            return None
        if self.mode != "lines":
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
        return self.local

    def is_watched(self, frame: FrameType) -> bool:
        path = frame.f_code.co_filename
        if "/testing/" in path or path == __file__:
            return False
        if path.startswith(PACKAGE):
            return True
        return self.mode == "everywhere" and "/lib/python3" in path and "/importlib/" not in path

    def local(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            if frame.f_lasti not in points_of(frame.f_code):
                return self.local
        elif event != "line" or self.mode != "lines" or _is_hand_over(frame) or _is_lock(frame):
            return self.local
        self.count += 1
        if self.count == self.at:
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
            raise KeyboardInterrupt
        return self.local


def _is_hand_over(frame: FrameType) -> bool:
    """Tell the one line before which no signal is noticed: an event that counts as delivered is handed to `emit`."""
    return frame.f_code.co_name == "flush" and frame.f_lineno == _HAND_OVER


def _is_lock(frame: FrameType) -> bool:
    """Tell the lines that take a lock for a block: each is visited again at the block's end, before the lock is given back.

    Between the two no signal is noticed, so a real one never leaves the lock taken.
    """
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "with self.lock:"


def _hand_over_line() -> int:
    lines = (Path(PACKAGE) / "_run.py").read_text(encoding="utf-8").splitlines()
    at = [number for number, line in enumerate(lines, 1) if line.strip() == "self.last = event"]
    assert len(at) == 1
    assert lines[at[0]].strip() == "sink(event)"
    return at[0] + 1


_HAND_OVER = _hand_over_line()


# --- what is run --------------------------------------------------------------------------------------------------------


def _echo(tool_call_id: str, params: Any, signal: Any, on_update: Callable[[Any], None], context: Any) -> str:
    on_update("half way")
    return f"said {params['text']}"


def _fails(tool_call_id: str, params: Any, signal: Any, on_update: Callable[[Any], None], context: Any) -> str:
    raise ValueError("out of order")


_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = AgentTool("echo", "Echo", "Says it again", _SCHEMA, _echo)
FAILS = AgentTool("fails", "Fails", "Does not work", {"type": "object"}, _fails, exclusive="one")
TIMED = AgentTool("timed", "Timed", "Echo, in time", _SCHEMA, _echo, timeout=60.0)
CALLS = (call("echo", id="a", text="x"), call("nothing", id="b"), call("fails", id="c"), call("echo", id="d", text="y"))


class Scenario:
    """A run that can be made again and again, and what is expected of it."""

    prompts = 2
    fails_at = 0
    pauses = False

    def __init__(self, *replies: Any, tools: tuple[AgentTool, ...] = (ECHO, FAILS, TIMED), **config: Any) -> None:
        self.replies = replies
        self.tools = tools
        self.config = config

    def start(self, log: list[Any], added: list[Any], parent: AbortController) -> Any:
        config = AgentLoopConfig(model=scripted_model(), abort_grace=1.0, **self.config)
        context = AgentContext("Be brief.", [UserMessage("before")], self.tools)
        return new_run(context, config, log.append, parent.signal, scripted(*self.replies), added)

    def go(self, run: Any) -> None:
        drive(run, [UserMessage("one"), UserMessage("two")])

    def problems(self, log: list[Any], added: list[Any]) -> list[str]:
        """Return what is wrong after a run."""
        if not log and not added:
            return []  # it has not begun, and there is nothing to close
        problems = problems_of(log, added, emit_failed=len(log) == self.fails_at, pauses=self.pauses)
        prompts = [message.content for message in added[: self.prompts]]
        if prompts != ["one", "two"][: self.prompts]:
            problems.append(f"the prompts are missing: {prompts}")
        return problems


class Streamed(Scenario):
    """The run goes on in the background, and this thread, which is interrupted, reads its events."""

    def __init__(self, *replies: Any, bound: int | None = None) -> None:
        super().__init__(*replies)
        self.bound = bound
        self.read: list[Any] = []
        self.stream: EventStream[Any] | None = None

    def start(self, log: list[Any], added: list[Any], parent: AbortController) -> Any:
        run = super().start(log, added, parent)

        def streamed(emit: Callable[[Any], None], signal: Any, messages: list[Any]) -> None:
            signal.add_callback(parent.abort)
            run.sink = lambda event: (log.append(event), emit(event))
            super(Streamed, self).go(run)

        self.streamed = streamed
        return run

    def go(self, run: Any) -> None:
        self.stream = EventStream(self.streamed, max_queue_size=self.bound)
        self.read.extend(self.stream)

    def problems(self, log: list[Any], added: list[Any]) -> list[str]:
        if self.stream is None:
            return []  # dropped before anybody had it
        stream = self.stream
        stream.abort()  # if it was interrupted when it was not yet, or no longer, waiting
        stream.result(SECONDS_UNTIL_STUCK)
        rest: list[Any] = []
        reader = threading.Thread(target=lambda: rest.extend(stream))
        reader.start()
        reader.join()
        seen = {id(event) for event in (*self.read, *rest)}
        problems = super().problems(log, added)
        # The one that was about to be handed over when the interrupt came may be lost with it.
        if [id(event) for event in log if id(event) in seen] != [id(event) for event in (*self.read, *rest)]:
            problems.append("the events were read in another order")
        if len(log) - len(seen) > 1:
            problems.append(f"{len(log) - len(seen)} events were lost")
        return problems


class Resumed(Scenario):
    """Goes on with calls that an earlier run left open."""

    prompts = 0

    def go(self, run: Any) -> None:
        message = AssistantMessage(CALLS[:2], stop_reason="tool_use")
        drive(run, (), ResumedCalls(message, CALLS[:2], lambda context, signal: None))

    def problems(self, log: list[Any], added: list[Any]) -> list[str]:
        answered = [message.tool_call_id for message in added if message.role == "toolResult"]
        left_open = added and answered != [one.id for one in CALLS[:2]]
        return [*super().problems(log, added), *(["a call was left open"] if left_open else [])]


class Pausing(Scenario):
    """A hook pauses the first call."""

    pauses = True


class FailingEmit(Scenario):
    """`emit` fails at the event of a number."""

    def __init__(self, at: int, *replies: Any, **config: Any) -> None:
        super().__init__(*replies, **config)
        self.fails_at = at

    def start(self, log: list[Any], added: list[Any], parent: AbortController) -> Any:
        run = super().start(log, added, parent)

        def emit(event: object) -> None:
            log.append(event)
            if len(log) == self.fails_at:
                raise ValueError("no paper")

        run.sink = emit
        return run


class Aborting(Scenario):
    """Somebody aborts when the first tool has begun."""

    def start(self, log: list[Any], added: list[Any], parent: AbortController) -> Any:
        run = super().start(log, added, parent)

        def emit(event: Any) -> None:
            log.append(event)
            if event.type == "tool_execution_start":
                parent.abort("enough")

        run.sink = emit
        return run


def _queue(*items: Any) -> Callable[[], Any]:
    """Return a hook that gives something at its second call only."""
    asked = []

    def hook() -> Any:
        asked.append(None)
        return [UserMessage(item) for item in items] if len(asked) == 2 else []

    return hook


def _pause(context: Any, signal: Any) -> BeforeToolCallResult | None:
    return BeforeToolCallResult(pause=True) if context.tool_call.id == "a" else None


def _raises(*args: object) -> Any:
    raise LookupError("no such thing")


def scenarios() -> dict[str, Callable[[], Scenario]]:
    two_turns = (reply("On it.", *CALLS), reply("Done."))
    return {
        "text": lambda: Scenario(reply("Hello there", chunk=6)),
        "parallel": lambda: Scenario(*two_turns),
        "sequential": lambda: Scenario(*two_turns, tool_execution="sequential"),
        "timed": lambda: Scenario(reply(call("timed", text="z")), reply("Done."), tool_execution="sequential"),
        "pause": lambda: Pausing(reply(*CALLS), before_tool_call=_pause),
        "cut-off": lambda: Scenario(reply(*CALLS[:2], stop_reason="length"), reply("Done.")),
        "recovery": lambda: Scenario(
            failure("busy", "So f"), reply("Done."), recover_from_error=lambda *args: AgentLoopTurnUpdate()
        ),
        "failure": lambda: Scenario(failure("busy", start=False)),
        "hooks": lambda: Scenario(
            reply(CALLS[0]),
            reply("Done."),
            reply("Again."),
            reply("At last."),
            transform_context=lambda messages, signal: messages,
            get_api_key=lambda provider: None,
            after_tool_call=lambda *args: None,
            prepare_next_turn=lambda *args: None,
            should_stop_after_turn=lambda context: False,
            get_steering_messages=_queue("left", "right"),
            get_follow_up_messages=_queue("more"),
        ),
        "resumed": lambda: Resumed(reply("Done.")),
        "aborted": lambda: Aborting(*two_turns),
        "failing-hook": lambda: Scenario(*two_turns, prepare_next_turn=_raises),
        "stream": lambda: Streamed(*two_turns),
        "bounded-stream": lambda: Streamed(*two_turns, bound=1),
        "failing-emit": lambda: FailingEmit(9, *two_turns),
    }


# --- what must hold -----------------------------------------------------------------------------------------------------


def interrupted_at(scenario: Scenario, at: int, mode: str) -> tuple[Interrupter, list[str]]:
    """Run a scenario with an interrupt at one point; return what was wrong afterwards."""
    log: list[Any] = []
    added: list[Any] = []
    parent = AbortController()
    run = scenario.start(log, added, parent)
    interrupter = Interrupter(at, mode)
    raised: BaseException | None = None
    faulthandler.dump_traceback_later(SECONDS_UNTIL_STUCK, exit=True)
    if sys.version_info[:2] == (3, 12):
        sys._getframe().f_trace_opcodes = mode != "lines"  # this version wants to be told before
    gc.disable()  # a finaliser of what an earlier run has left would swallow the interrupt
    sys.settrace(interrupter)
    try:
        scenario.go(run)
    except BaseException as error:
        raised = error
    finally:
        sys.settrace(None)
        gc.enable()
        faulthandler.cancel_dump_traceback_later()
    problems = waits_in_vain(added)
    if interrupter.where is not None and not isinstance(raised, KeyboardInterrupt):
        problems.append(f"the interrupt came out as {raised!r}")
    elif isinstance(raised, Exception) and not isinstance(raised, (ValueError, LookupError)):
        problems.append("".join(traceback.format_exception(raised)))
    problems += scenario.problems(log, added)
    interrupter.began = bool(log)
    if _scope.is_inside(run):
        problems.append("the thread still counts as working for the run")
    if raised is not None:
        # Frames keep what they hold, and so would the signals of the run.
        traceback.clear_frames(raised.__traceback__)
    return interrupter, problems


def waits_in_vain(added: list[Any]) -> list[str]:
    """Say so if a call was given up: none of these tools takes any time, so somebody has waited for one that never ran."""
    texts = [message.content[0].text for message in added if message.role == "toolResult"]
    return [text for text in texts if "did not stop when asked to" in text]


def sweep(name: str, mode: str, first: int, step: int) -> dict[str, Any]:
    """Interrupt a scenario at each point in turn."""
    make = scenarios()[name]
    faults: dict[str, str] = {}
    before_it_began = 0
    at = first
    while True:
        interrupter, problems = interrupted_at(make(), at, mode)
        before_it_began += not interrupter.began
        if problems:
            faults.setdefault(f"{interrupter.where} ({'; '.join(problems)})", f"point {at}")
        if interrupter.where is None:
            break
        at += step
    faults.update(dict.fromkeys(threads_that_stay(SECONDS_UNTIL_STUCK), "at the end"))
    return {"points": interrupter.count, "before_it_began": before_it_began, "faults": faults}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    mode, first, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    names = sys.argv[4:] or list(scenarios())
    print(json.dumps({name: sweep(name, mode, first, step) for name in names}))
