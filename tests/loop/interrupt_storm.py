"""Interrupt runs at random moments, by real signals and from another thread, and say where one was left in disorder.

`python interrupt_storm.py COUNT SEED` runs until so many runs were interrupted, and prints one JSON object: how many
runs that took, and the faults.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import logging
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from agentcore import _scope
from agentcore.abort import AbortController
from tests.loop.interrupt_sweep import Scenario, scenarios, waits_in_vain
from tests.loop.run_log import problems_of, threads_that_stay

SECONDS_UNTIL_STUCK = 20.0


_came: list[int] = []


def interrupt(number: int, frame: object) -> None:
    """Do as the interpreter does on Ctrl-C, and count."""
    _came.append(number)
    raise KeyboardInterrupt


def by_timer(seconds: float) -> Callable[[], object]:
    """Have a signal come after so many seconds; return what calls it off."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return lambda: signal.setitimer(signal.ITIMER_REAL, 0)


def by_thread(seconds: float) -> Callable[[], object]:
    """Have another thread interrupt this one after so many seconds; return what calls it off."""
    # Not a `threading.Thread`: freeing one runs Python code of the standard library that swallows an interrupt.
    off, done = threading.Lock(), threading.Lock()
    off.acquire()
    done.acquire()

    def wait() -> None:
        if not off.acquire(timeout=seconds):
            _thread.interrupt_main()
        done.release()

    _thread.start_new_thread(wait, ())

    def call_off() -> None:
        off.release()
        done.acquire()

    return call_off


def interrupted(scenario: Scenario, arm: Callable[[float], Callable[[], object]], seconds: float) -> tuple[bool, str]:
    """Run a scenario with an interrupt after so many seconds; return whether it came, and what was wrong."""
    log: list[Any] = []
    added: list[Any] = []
    parent = AbortController()
    run = scenario.start(log, added, parent)
    faulthandler.dump_traceback_later(SECONDS_UNTIL_STUCK, exit=True)
    story = ""
    del _came[:]
    try:
        call_off = arm(seconds)
        try:
            scenario.go(run)
        finally:
            call_off()
    except KeyboardInterrupt as error:
        story = "".join(traceback.format_exception(error))
    problems = problems_of(log, added) if log or added else []
    problems += waits_in_vain(added)
    if _scope.is_inside(run):
        problems.append("the thread still counts as working for the run")
    faulthandler.cancel_dump_traceback_later()
    if len(_came) > 1:
        # Another thread of the process was to handle a signal, and came late: a second one ends the clean-up.
        return False, ""
    return bool(_came), "; ".join([*problems, story]) if problems else ""


def locks_taken() -> list[str]:
    """Return which locks of the interpreter's own library another thread cannot get."""
    taken: list[str] = []

    def look() -> None:
        for name, lock in (("logging", logging._lock), ("threading", threading._active_limbo_lock)):  # type: ignore[attr-defined]
            if lock.acquire(timeout=5):
                lock.release()
            else:
                taken.append(name)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return taken


def storm(count: int, seed: int) -> dict[str, Any]:
    """Interrupt so many runs; return what came of it."""
    dice = random.Random(seed)
    for number in (signal.SIGALRM, signal.SIGINT):
        signal.signal(number, interrupt)
    makes = [scenarios()[name] for name in ("parallel", "sequential", "hooks", "timed")]
    longest = [_seconds_of(make) for make in makes]
    faults: list[str] = []
    hits = runs = 0
    while hits < count and runs < 10 * count:
        which = runs % len(makes)
        arm = (by_timer, by_thread)[runs // len(makes) % 2]
        came, problems = interrupted(makes[which](), arm, dice.uniform(1e-6, longest[which]))
        hits += came
        runs += 1
        if problems:
            faults.append(problems)
    faults += threads_that_stay(SECONDS_UNTIL_STUCK)
    faults += [f"the lock of {name} is taken" for name in locks_taken()]
    return {"runs": runs, "interrupted": hits, "faults": faults}


def _seconds_of(make: Callable[[], Scenario]) -> float:
    """Return about how long a scenario takes; the second time, when everything is imported."""
    seconds = 0.0
    for _ in range(2):
        scenario = make()
        began = time.monotonic()
        scenario.go(scenario.start([], [], AbortController()))
        seconds = time.monotonic() - began
    return seconds


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(storm(int(sys.argv[1]), int(sys.argv[2]))))
