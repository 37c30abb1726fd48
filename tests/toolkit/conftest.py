"""Calling a tool as the loop does, and looking at the processes of the machine."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController, AbortSignal
from agentcore.tools import AgentTool, AgentToolResult


@pytest.fixture(autouse=True)
def _output_files_stay_with_the_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files that commands' long output is kept in made, and removed, with those of the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.getbasetemp()))


Use = Callable[..., AgentToolResult]


def use_tool(
    tool: AgentTool,
    *,
    signal: AbortSignal | None = None,
    on_update: Callable[[Any], None] | None = None,
    **params: Any,
) -> AgentToolResult:
    signal = signal or AbortController().signal
    result = tool.execute("call-1", params, signal, on_update or (lambda _update: None), tool.context)
    assert isinstance(result, AgentToolResult)
    return result


@pytest.fixture
def use() -> Use:
    """`use(tool, command=..., signal=..., on_update=...)` calls a tool and returns its result."""
    return use_tool


def text_of_result(result: AgentToolResult) -> str:
    assert len(result.content) == 1
    return result.content[0].text  # type: ignore[union-attr]


@pytest.fixture
def text_of() -> Callable[[AgentToolResult], str]:
    return text_of_result


def is_running(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether the condition came true; the time is only there so that a failure ends."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def ends() -> Callable[[int], bool]:
    """`ends(pid)` waits for a process to be gone and says whether it is."""
    return lambda pid, seconds=10.0: wait_until(lambda: not is_running(pid), seconds)


@pytest.fixture
def appears() -> Callable[[Path], str]:
    """`appears(path)` waits for a file with a whole line in it, and returns that line."""

    def appears(path: Path) -> str:
        assert wait_until(lambda: path.exists() and path.read_text().endswith("\n")), f"{path} never appeared"
        return path.read_text().strip()

    return appears


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """`python(source, *arguments)` starts a script in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(source: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", source, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
