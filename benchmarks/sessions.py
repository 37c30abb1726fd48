"""What long sessions cost: `python -m benchmarks.sessions` prints CPU seconds by the number of entries."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from agentcore import AssistantMessage, ToolCall, ToolResultMessage, Usage, UserMessage
from agentcore.compaction import compact
from agentcore.messages import AgentMessage
from agentcore.sessions import Session
from agentcore.tokens import estimate_tokens

SIZES = (1_000, 10_000, 100_000)
LAST = 500


def message(number: int) -> AgentMessage:
    """Return one of a round of four: a question, a call, its result, an answer; about 450 bytes each."""
    match number % 4:
        case 0:
            return UserMessage(f"question {number} " + "x" * 300)
        case 1:
            content = [ToolCall(f"c{number}", "read", {"path": "/some/where.py"})]
            usage = Usage(input=number, output=5)
            return AssistantMessage(content, provider="p", model="m", usage=usage, stop_reason="tool_use")
        case 2:
            return ToolResultMessage(f"c{number - 1}", "read", "y" * 300, details={"size": 300})
        case _:
            return AssistantMessage("z" * 300, provider="p", model="m")


def cpu(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def row(size: int, folder: Path) -> list[str]:
    path = folder / str(size)
    messages = [message(number) for number in range(size)]
    with Session.create(path) as session:
        appended = cpu(lambda: [session.append(one) for one in messages[:-LAST]])
        last = cpu(lambda: [session.append(one) for one in messages[-LAST:]])
    opened = cpu(lambda: Session.open(path).close())
    tracemalloc.start()
    session = Session.read(path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    read = cpu(session.messages)
    found = session.messages()
    return [
        f"{size:,}",
        f"{path.stat().st_size / 1e6:.1f} MB",
        f"{1e6 * appended / (size - LAST):.1f} µs",
        f"{1e6 * last / LAST:.1f} µs",
        f"{opened:.2f} s",
        f"{1e6 * opened / size:.1f} µs",
        f"{1e3 * read:.1f} ms",
        f"{1e3 * cpu(lambda: estimate_tokens(found[:-1])):.1f} ms",
        f"{1e3 * cpu(lambda: compact(found, 20_000, lambda *given: 'short')):.0f} ms",
        f"{held / 1e6:.0f} MB",
    ]


def main() -> None:
    """Print the table."""
    print("entries | file | append | the last 500 | open | an entry | messages() | estimate | compact | memory")
    print("---:|" * 9 + "---:")
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            print(" | ".join(row(size, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
