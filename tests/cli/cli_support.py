"""Support for tests of the command line: a server that answers from a script, and the command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agentcore.testing.sse_server import Reply, Request, SseServer, Stall, sse

ROOT = Path(__file__).resolve().parent.parent.parent


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    """Return one event of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return sse({"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]})


def says(*parts: str | Stall, thinking: str = "", calls: Iterable[tuple[str, dict[str, Any]]] = ()) -> Reply:
    """Return a streamed answer: thinking, text in pieces with stalls between them, then tool calls."""
    pieces: list[Any] = [chunk({"role": "assistant", "content": ""})]
    if thinking:
        pieces.append(chunk({"reasoning_content": thinking}))
    pieces += [part if isinstance(part, Stall) else chunk({"content": part}) for part in parts]
    calls = list(calls)
    for index, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        pieces.append(
            chunk({"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]})
        )
    pieces.append(chunk({}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 1200, "completion_tokens": 34, "total_tokens": 1234}
    pieces.append(sse({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage}))
    pieces.append(sse("[DONE]"))
    return Reply(pieces)


def server_of(*replies: Reply | Callable[[Request], Reply]) -> SseServer:
    """Return a server that gives these replies in turn."""
    waiting = list(replies)

    def answer(request: Request) -> Reply:
        reply = waiting.pop(0)
        return reply(request) if callable(reply) else reply

    return SseServer(answer)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agentcore", *arguments]


def run_command(
    *arguments: str, cwd: Path, stdin: str | None = None, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; without `stdin` it has no input."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
        **given,
    )
