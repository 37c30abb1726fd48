"""How the cost grows with the size: `python -m benchmarks.growth` prints the fitted exponents (1 is linear)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

from agentcore import AgentTool
from benchmarks import ours
from benchmarks.server import BenchmarkServer

ROUNDS = 5


def exponent(sizes: list[int], costs: list[float]) -> float:
    """Return the slope of the logarithms by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - mean_x) ** 2 for x in xs)


def fitted(name: str, sizes: list[int], run: Callable[[int], object], bound: float | None = None) -> None:
    """Time `run(size)` for each size, and print the medians and the exponent."""
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(ROUNDS):
        for size in sizes:
            began = time.process_time()
            run(size)
            costs[size].append(time.process_time() - began)
    medians = [statistics.median(costs[size]) for size in sizes]
    shown = ", ".join(f"{size:,}: {cost * 1000:.1f} ms" for size, cost in zip(sizes, medians, strict=True))
    limit = f" (bound {bound})" if bound else ""
    print(f"- {name}: exponent {exponent(sizes, medians):.2f}{limit}; {shown}")


def main() -> None:
    """Measure and print."""
    from agentcore import AssistantMessage, UserMessage

    quick = AgentTool("pause", "Pause", "Return at once.", {"type": "object"}, lambda *arguments: "ok")
    note = ours.note_tool()
    with BenchmarkServer() as server:

        def model(kind: str, size: int) -> object:
            return ours.model_for(server.url, "openai", f"{kind}-{size}")

        def history(size: int) -> tuple[object, ...]:
            pairs = [(UserMessage("question " * 20), AssistantMessage("answer " * 20)) for _ in range(size // 2)]
            return tuple(message for pair in pairs for message in pair)

        histories = {size: history(size) for size in (2_000, 8_000, 32_000)}
        deltas = [5_000, 20_000, 80_000]
        fitted("deltas", deltas, lambda size: ours.loop(model("text", size)), 1.05)
        fitted("arguments", deltas, lambda size: ours.loop(model("args", size), (note,)), 1.05)
        fitted("parallel tools", [200, 400, 800], lambda size: ours.loop(model("tools", size), (quick,)), 1.05)
        fitted(
            "turns (each sends all before it)", [50, 100, 200], lambda size: ours.loop(model("turns", size), (note,))
        )
        fitted(
            "length of the transcript", list(histories), lambda size: ours.loop(model("text", 3), (), histories[size])
        )
        many = {
            size: tuple(AgentTool(f"t{n}", "T", "Do.", ours.SCHEMA, lambda *a: "ok") for n in range(size))
            for size in (50, 200, 800)
        }
        fitted("tools on offer", list(many), lambda size: ours.loop(model("text", 3), many[size]))


if __name__ == "__main__":
    main()
