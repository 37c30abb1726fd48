"""Run the benchmarks and print the table: `python -m benchmarks [--rounds N] [--only WORD] [--peers PYTHON]...`."""

from __future__ import annotations

import argparse
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import requests

from benchmarks import floor, ours
from benchmarks.peers import PEERS, PeerProcess, Wrong, peers_of
from benchmarks.server import WORD, BenchmarkServer

ROOT = Path(__file__).resolve().parent.parent


def cpu_of(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run, user and system, all threads."""
    began = time.process_time()
    run()
    return time.process_time() - began


@attrs.frozen
class Row:
    """One scenario at one level: `run()` does it once; `units` is what the cost is divided by.

    `cpu(run)` measures it: the CPU seconds of this process, all threads, where `run` does not return those of another
    process. A row that takes too long for every round takes part in the first `rounds` counted ones.
    """

    scenario: str
    level: str
    run: Callable[[], object]
    units: int
    bound: float | None = None
    cpu: Callable[[Callable[[], Any]], float] = cpu_of
    rounds: float = math.inf


def check(condition: bool, what: str) -> None:
    """Stop the benchmark when a result is wrong: a fast wrong answer is none."""
    if not condition:
        raise SystemExit(f"wrong result: {what}")


def delta_rows(base: str, api: str, session: requests.Session, size: int) -> list[Row]:
    """Return the rows for text and arguments in `size` deltas."""
    text, arguments = ours.model_for(base, api, f"text-{size}"), ours.model_for(base, api, f"args-{size}")
    note = ours.note_tool()

    def floor_text() -> None:
        check(len(floor.stream(session, base, api, f"text-{size}", len)) == size * len(WORD), "floor text")

    def response() -> None:
        check(len(ours.respond(text).text) == size * len(WORD), "stream_response text")

    def loop() -> None:
        check(len(ours.loop(text)[-1].text) == size * len(WORD), "loop text")

    def agent() -> None:
        seen: list[str] = []
        ours.agent(text, seen.append)
        check(len(seen) == size, "agent text")

    def floor_arguments() -> None:
        check(floor.tool_turns(session, base, api, f"args-{size}") == 2, "floor arguments")

    def loop_arguments() -> None:
        new = ours.loop(arguments, (note,))
        check(len(new[2].text) == (size - 2) * len(WORD), "loop arguments")

    scenario = f"{api} text, {size:,} deltas"
    call = f"{api} arguments, {size:,} deltas"
    return [
        Row(scenario, "floor", floor_text, size),
        Row(scenario, "stream_response", response, size),
        Row(scenario, "run_agent_loop", loop, size, 1.5),
        Row(scenario, "Agent, one listener", agent, size, 1.8),
        Row(call, "floor", floor_arguments, size),
        Row(call, "run_agent_loop", loop_arguments, size, 1.5),
    ]


def turn_rows(base: str, api: str, session: requests.Session, turns: int, bound: float) -> list[Row]:
    """Return the rows for a run of many tool turns."""
    model, note = ours.model_for(base, api, f"turns-{turns}"), ours.note_tool()

    def floor_turns() -> None:
        check(floor.tool_turns(session, base, api, f"turns-{turns}") == turns + 1, "floor turns")

    def loop() -> None:
        check(len(ours.loop(model, (note,))) == 2 + 2 * turns, "loop turns")

    scenario = f"{api} {turns} tool turns"
    return [Row(scenario, "floor", floor_turns, turns), Row(scenario, "run_agent_loop", loop, turns, bound)]


def long_rows(base: str, api: str, session: requests.Session) -> list[Row]:
    """Return the rows for a conversation of 1,000 messages that is sent for 50 more turns."""
    from agentcore import AssistantMessage, UserMessage

    model, note = ours.model_for(base, api, "turns-50"), ours.note_tool()
    texts = [f"message {number} " + WORD * 20 for number in range(1000)]
    history = tuple(
        UserMessage(text) if number % 2 == 0 else AssistantMessage(text, api=model.api, provider=model.provider)
        for number, text in enumerate(texts)
    )
    plain = [{"role": "user" if number % 2 == 0 else "assistant", "content": text} for number, text in enumerate(texts)]

    def floor_turns() -> None:
        check(floor.tool_turns(session, base, api, "turns-50", plain) == 51, "floor long")

    def loop() -> None:
        check(len(ours.loop(model, (note,), history)) == 102, "loop long")

    scenario = f"{api} 1,000 messages before 50 turns"
    return [Row(scenario, "floor", floor_turns, 50), Row(scenario, "run_agent_loop", loop, 50)]


def peer_rows(process: PeerProcess, level: str) -> list[Row]:
    """Return the rows of another library; it is measured in a process of its own."""

    def row(scenario: str, model: str, units: int, rounds: float = math.inf) -> Row:
        run = partial(process.run, model)
        return Row(f"{process.api} {scenario}", level, run, units, cpu=lambda run: run(), rounds=rounds)

    return [
        row("text, 2,000 deltas", "text-2000", 2_000),
        row("arguments, 2,000 deltas", "args-2000", 2_000),
        row("text, 20,000 deltas", "text-20000", 20_000, 1),
        row("arguments, 20,000 deltas", "args-20000", 20_000, 1),
        row("50 tool turns", "turns-50", 50),
        row("200 tool turns", "turns-200", 200, 1),
    ]


def in_order(rows: list[Row]) -> Callable[[Row], int]:
    """Return a key that brings the rows of a scenario together, in the order in which the scenarios first come."""
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    return lambda row: scenarios.index(row.scenario)


Times = dict[tuple[str, str], list[float]]


def measured(rows: list[Row], rounds: int) -> Times:
    """Run every row in turn, `rounds` times after a warm-up; return the CPU seconds. What fails is left out and told."""
    times: Times = {(row.scenario, row.level): [] for row in rows}
    for number in range(rounds + 1):
        for row in rows:
            if number > row.rounds or (number == 0 and row.rounds < math.inf):
                continue
            try:
                seconds = row.cpu(row.run)
            except Wrong as failure:
                print(failure, file=sys.stderr)
                continue
            if number:
                times[row.scenario, row.level].append(seconds)
        print(f"round {number}/{rounds}", file=sys.stderr)
    return times


def print_rows(rows: list[Row], times: Times) -> None:
    """Print the medians, and the median of the ratios to the floor of the same round."""
    print("| scenario | level | CPU µs a unit | against the floor | bound |")
    print("|---|---|---|---|---|")
    for row in rows:
        own, base = times[row.scenario, row.level], times[row.scenario, "floor"]
        if not own:
            print(f"| {row.scenario} | {row.level} | failed | | |")
            continue
        ratio = statistics.median(mine / theirs for mine, theirs in zip(own, base, strict=False))
        unit = statistics.median(own) / row.units * 1e6
        shown = "" if row.level == "floor" else f"{ratio:.2f}"
        print(f"| {row.scenario} | {row.level} | {unit:.2f} | {shown} | {row.bound or ''} |")


# --- single figures -------------------------------------------------------------------------------------------------


def parallel_tools(base: str, rounds: int) -> tuple[float, str]:
    """Return the wall seconds of eight parallel tools of 0.1 s, the two requests included."""
    from agentcore import AgentTool

    def pause(id: str, params: object, signal: object, *rest: object) -> str:
        signal.wait(0.1)  # type: ignore[attr-defined]
        return "ok"

    tool = AgentTool("pause", "Pause", "Wait.", {"type": "object"}, pause)
    model = ours.model_for(base, "openai", "tools-8")
    walls = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        new = ours.loop(model, (tool,))
        walls.append(time.perf_counter() - began)
        check(len(new) == 11, "parallel tools")
    return statistics.median(walls[1:]), "s wall (bound 0.125)"


def latency(base: str, session: requests.Session) -> tuple[float, str]:
    """Return how much later than at the floor a delta arrives, at one delta each 5 ms."""

    def floor_delays() -> list[float]:
        delays: list[float] = []
        floor.stream(session, base, "openai", "paced-200", lambda d: delays.append(time.monotonic() - float(d)))
        return delays

    def our_delays() -> list[float]:
        delays: list[float] = []
        model = ours.model_for(base, "openai", "paced-200")
        ours.agent(model, lambda d: delays.append(time.monotonic() - float(d)))
        return delays

    gaps = [statistics.median(our_delays()) - statistics.median(floor_delays()) for _ in range(3)]
    return statistics.median(gaps) * 1000, "ms over the floor (bound 0.5)"


def child(code: str, *arguments: str) -> str:
    """Run Python code in a process of its own, from compiled files as installed ones are; return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def import_time(rounds: int) -> tuple[float, str]:
    """Return the CPU milliseconds that `import agentcore` takes above `import attrs`."""
    code = "import sys, time; t = time.process_time(); __import__(sys.argv[1]); print(time.process_time() - t)"
    gaps = [float(child(code, "agentcore")) - float(child(code, "attrs")) for _ in range(max(rounds, 7) + 1)]
    return statistics.median(gaps[1:]) * 1000, "ms (bound 40)"


def first_answer(base: str, rounds: int) -> tuple[float, str]:
    """Return the wall seconds of a process that imports, sets up and gets a three-delta answer."""
    code = "import sys; from benchmarks import ours; ours.loop(ours.model_for(sys.argv[1], 'openai', 'text-3'))"
    walls = []
    for _ in range(max(rounds, 7) + 1):
        began = time.perf_counter()
        child(code, base)
        walls.append(time.perf_counter() - began)
    return statistics.median(walls[1:]), "s wall, the interpreter's start included (bound 0.25)"


def first_answer_of(name: str, python: str, api: str, base: str) -> tuple[float, str]:
    """Return the same of another library."""
    walls = []
    for _ in range(4):
        began = time.perf_counter()
        with PeerProcess(name, python, api, base) as process:
            process.run("text-3")
            walls.append(time.perf_counter() - began)
    return statistics.median(walls[1:]), "s wall"


def peak_memory(base: str) -> tuple[float, str]:
    """Return how much memory a message of 200,000 deltas takes at its peak, above the text itself."""
    code = (
        "import resource, sys; from benchmarks import ours\n"
        "ours.loop(ours.model_for(sys.argv[1], 'openai', 'text-3'))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "text = ours.loop(ours.model_for(sys.argv[1], 'openai', 'text-200000'))[-1].text\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before - len(text) // 1024)"
    )
    return int(child(code, base)) / 1024, "MiB (bound 40)"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds after the warm-up")
    parser.add_argument("--only", default="", help="run only the rows whose scenario holds this word")
    parser.add_argument("--peers", action="append", metavar="PYTHON", help="a Python that has other libraries")
    chosen = parser.parse_args()
    peers = peers_of(chosen.peers or [sys.executable])
    with ExitStack() as stack:
        server = stack.enter_context(BenchmarkServer())
        session = stack.enter_context(requests.Session())
        rows: list[Row] = []
        for api in ("openai", "anthropic"):
            for size in (2_000, 20_000):
                rows += delta_rows(server.url, api, session, size)
            rows += turn_rows(server.url, api, session, 50, 1.6)
            rows += turn_rows(server.url, api, session, 200, 1.8)
            rows += long_rows(server.url, api, session)
            for name, (python, version) in peers.items():
                if api in PEERS[name][1]:
                    process = stack.enter_context(PeerProcess(name, python, api, server.url))
                    rows += peer_rows(process, f"{name} {version}")
        rows = sorted((row for row in rows if chosen.only in row.scenario), key=in_order(rows))
        print(f"Python {platform.python_version()}, requests {requests.__version__}, {time.strftime('%Y-%m-%d')}\n")
        print_rows(rows, measured(rows, chosen.rounds))
        if chosen.only:
            return
        print()
        figures = {
            "eight parallel tools of 0.1 s": parallel_tools(server.url, chosen.rounds),
            "a delta's way to the listener": latency(server.url, session),
            "`import agentcore` above `import attrs`": import_time(chosen.rounds),
            "import, set-up and a three-delta answer": first_answer(server.url, chosen.rounds),
            "peak memory of 200,000 deltas above the text": peak_memory(server.url),
        }
        for name, (python, version) in peers.items():
            figures[f"the same of {name} {version}"] = first_answer_of(name, python, PEERS[name][1][0], server.url)
        for name, (value, unit) in figures.items():
            print(f"- {name}: {value:.3g} {unit}")
        print(f"- peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
