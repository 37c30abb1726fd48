"""An agent works wherever Python code runs: in a running event loop, after one, in a thread pool, inside a tool."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentcore import AgentLoopConfig, AgentToolResult, ToolResultMessage
from agentcore.testing import call, reply, scripted_model
from tests.agent.agent_support import agent_with, tool, transcript_problems


def working_agent(**given: Any) -> Any:
    return agent_with(reply(call("echo", id="a"), call("echo", id="b")), "Done.", tools=[tool()], **given)


def test_a_prompt_works_inside_a_running_event_loop() -> None:
    async def main() -> str:
        before = asyncio.get_running_loop()
        text: str = working_agent().prompt("hi").text
        streamed = [event.type for event in working_agent().stream("hi")]
        assert asyncio.get_running_loop() is before
        assert streamed[-1] == "agent_end"
        await asyncio.sleep(0)
        return text

    assert asyncio.run(main()) == "Done."


def test_a_prompt_works_after_an_event_loop_was_closed_and_on_a_thread_of_one() -> None:
    agent = agent_with("one", "two")

    async def main() -> str:
        return await asyncio.to_thread(lambda: agent.prompt("hi").text)

    assert asyncio.run(main()) == "one"
    assert agent.prompt("hi").text == "two"


def test_nothing_of_an_agent_brings_an_event_loop() -> None:
    code = (
        "import sys\nfrom agentcore import Agent\nfrom agentcore.testing import scripted, scripted_model\n"
        "print(Agent(scripted_model(), stream_fn=scripted('hello')).prompt('hi').text, 'asyncio' in sys.modules)"
    )

    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (outcome.stdout, outcome.stderr) == ("hello False\n", "")


def test_a_pool_of_request_threads_runs_an_agent_each() -> None:
    """As a WSGI server does: many short requests on few threads, an agent for each conversation."""
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

    def whoami(*given: Any) -> str:
        return user.get()

    def handle(number: int) -> tuple[str, str]:
        user.set(f"user {number}")
        agent = agent_with(reply(call("echo", id="a"), call("echo", id="b")), "Done.", tools=[tool(execute=whoami)])
        text = agent.prompt("hi").text
        results = {one.text for one in agent.messages if isinstance(one, ToolResultMessage)}
        assert results == {f"user {number}"}
        return text, threading.current_thread().name

    with ThreadPoolExecutor(4, "request") as pool:
        outcomes = list(pool.map(handle, range(40)))

    assert {text for text, _ in outcomes} == {"Done."}
    assert all(name.startswith("request") for _, name in outcomes)


def test_listeners_and_hooks_run_on_the_thread_that_prompts_or_on_that_of_the_stream() -> None:
    names: set[str] = set()

    def note(*given: Any) -> None:
        names.add(threading.current_thread().name)

    config = AgentLoopConfig(
        model=scripted_model(), before_tool_call=note, after_tool_call=note, prepare_next_turn=note, get_api_key=note
    )
    agent = working_agent(config=config)
    agent.subscribe(note)
    thread = threading.Thread(target=lambda: agent.prompt("hi"), name="mine")
    thread.start()
    thread.join(20)
    assert names == {"mine"}

    names.clear()
    streamed = working_agent(config=config)
    streamed.subscribe(note)
    streamed.stream("hi").result(20)
    assert names == {"agentcore-stream"}


def test_agents_inside_tools_three_levels_deep_with_two_workers_each() -> None:
    config = AgentLoopConfig(model=scripted_model(), max_parallel_tools=2)

    def agent_at(level: int) -> Any:
        calls = [call("delegate", id=f"{level}-{number}") for number in range(4)]

        def delegate(*given: Any) -> AgentToolResult:
            if level == 0:
                return AgentToolResult("leaf")
            inner = agent_at(level - 1)
            text = inner.prompt("go").text
            results = [one.text for one in inner.messages if isinstance(one, ToolResultMessage)]
            assert transcript_problems(inner.messages) == []
            return AgentToolResult(f"{text}({','.join(results)})")

        return agent_with(reply(*calls), f"level {level}", tools=[tool("delegate", delegate)], config=config)

    agent = agent_at(2)
    agent.prompt("go")

    leaf = "level 0(leaf,leaf,leaf,leaf)"
    middle = f"level 1({','.join([leaf] * 4)})"
    assert [one.text for one in agent.messages if isinstance(one, ToolResultMessage)] == [middle] * 4


def test_an_agent_inside_a_tool_stops_with_the_call_that_holds_it() -> None:
    stopped: list[str] = []

    def delegate(tool_call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        def wait(*given: Any) -> str:
            outer.abort("enough")
            given[2].wait(20)
            return "stopped"

        inner = agent_with(reply(call("wait", id="w")), "unused", tools=[tool("wait", wait)])
        remove = signal.add_callback(inner.abort)
        try:
            message = inner.prompt("go")
        finally:
            remove()
        stopped.append(message.stop_reason)
        return "ended"

    outer = agent_with(reply(call("delegate", id="d")), "unused", tools=[tool("delegate", delegate)])

    assert outer.prompt("go").stop_reason == "aborted"
    assert stopped == ["aborted"]
    assert transcript_problems(outer.messages) == []
