"""An agent in a real Jupyter kernel: in a cell, in a cell of its event loop, and after the interrupt of either."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import jupyter_client
import pytest
from jupyter_client.kernelspec import KernelSpec

ROOT = Path(__file__).resolve().parents[2]

SETUP = f"""
import sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from agentcore import Agent, AgentTool, approvals
from agentcore.testing import call, reply, scripted, scripted_model
from tests.agent.agent_support import transcript_problems

def show(event, signal):
    if event.type == "message_update" and event.assistant_message_event.type == "text_delta":
        print(event.assistant_message_event.delta, end="", flush=True)

def agent_with(*replies, execute=lambda *given: "ran", **given):
    tool = AgentTool("work", "Work", "Works.", {{"type": "object"}}, execute)
    agent = Agent(scripted_model(), tools=[tool], stream_fn=scripted(*replies), **given)
    agent.subscribe(show)
    return agent

def stuck(*given):
    print("READY", flush=True)
    time.sleep(600)

def deaf_model(request):
    print("READY", flush=True)
    while True:
        pass
"""


class Kernel:
    """A kernel on this machine, and what its cells print."""

    def __init__(self) -> None:
        self.manager = jupyter_client.KernelManager(transport="ipc")
        self.manager._kernel_spec = KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
        )
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str, answers: tuple[str, ...] = (), *, interrupt: bool = False) -> tuple[str, str, float]:
        """Run a cell; return what it printed, the exception it ended with, and how long after the interrupt it ended.

        `interrupt` presses the stop button when the cell prints READY.
        """
        cell = self.client.execute(code, allow_stdin=bool(answers))
        printed, error, stopped_at = "", "", 0.0
        left = list(answers)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if left and self.client.stdin_channel.msg_ready():
                self.client.get_stdin_msg(timeout=1)
                self.client.input(left.pop(0))
            try:
                message = self.client.get_iopub_msg(timeout=0.1)
            except Empty:
                continue
            # Only what belongs to this cell: output in the wrong place would be missing here.
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed += content["text"]
                if interrupt and not stopped_at and "READY" in printed:
                    stopped_at = time.monotonic()
                    self.manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                error = content["ename"]
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                self.client.get_shell_msg(timeout=20)
                return printed, error, time.monotonic() - stopped_at
        raise TimeoutError(f"the cell has not ended; it printed {printed!r}")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("jupyter")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        patch.setenv(name, str(home / name.lower()))
    one = Kernel()
    one.run(SETUP)
    yield one
    one.close()
    patch.undo()


def test_the_text_streams_into_the_cell_that_prompts(kernel: Kernel) -> None:
    printed, error, _ = kernel.run("agent = agent_with('first', 'second'); message = agent.prompt('hi')")
    assert (printed, error) == ("first", "")

    printed, error, _ = kernel.run("message = agent.prompt('more'); print('|', len(agent.messages))")
    assert (printed, error) == ("second| 4\n", "")


def test_an_event_stream_is_read_in_a_cell(kernel: Kernel) -> None:
    printed, error, _ = kernel.run("print([event.type for event in agent_with('text').stream('hi')][-1])")

    assert (printed.endswith("agent_end\n"), error) == (True, "")


def test_a_prompt_works_in_a_cell_of_the_running_event_loop(kernel: Kernel) -> None:
    printed, error, _ = kernel.run(
        "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return agent_with('text').prompt('hi').text\n"
        "print('|', await main(), asyncio.get_running_loop().is_running())"
    )

    assert (printed, error) == ("text| text True\n", "")


BEFORE = "agent = agent_with({replies}, execute=stuck, tool_execution={mode!r})\n"
CELLS = {
    "a cell": BEFORE + "agent.prompt('hi')",
    "an async cell": BEFORE + "async def main():\n    agent.prompt('hi')\nawait main()",
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    ("replies", "mode"),
    [
        ("reply(call('work', id='a')), 'fine'", "parallel"),
        ("reply(call('work', id='a')), 'fine'", "sequential"),
        ("deaf_model, 'fine'", "parallel"),
    ],
    ids=["a tool on a worker", "a tool in the cell", "a stream"],
)
def test_the_interrupt_of_the_notebook_ends_the_run_and_the_next_cell_prompts(
    kernel: Kernel, cell: str, replies: str, mode: str
) -> None:
    _, error, seconds = kernel.run(CELLS[cell].format(replies=replies, mode=mode), interrupt=True)
    assert error == "KeyboardInterrupt"
    assert seconds < 4.0  # 1.5 on a machine with nothing else to do

    printed, error, _ = kernel.run(
        "agent.prompt('again')\nprint('|', agent.state.is_streaming, transcript_problems(agent.messages))\n"
        "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    assert (printed, error) == ("fine| False []\nTrue\n", "")


@pytest.mark.parametrize("wait", ["for event in stream: pass", "stream.result()", "agent.wait_for_idle()"])
@pytest.mark.parametrize("end", ["wait()", "async def main(): wait()\nawait main()"], ids=["a cell", "an async cell"])
def test_the_interrupt_of_the_notebook_ends_a_wait_for_a_run_in_the_background(
    kernel: Kernel, wait: str, end: str
) -> None:
    code = f"""
def patient(request):
    waiting.wait(20)
    time.sleep(0.2)  # the cell is about to wait: nothing tells when it does
    print("READY", flush=True)
    request.options.signal.wait(600)
    return "too late"
waiting = threading.Event()
agent = agent_with(patient, "fine")
stream = agent.stream("hi")
def wait():
    waiting.set()
    {wait}
{end}"""
    _, error, seconds = kernel.run(code, interrupt=True)
    assert error == "KeyboardInterrupt"
    assert seconds < 4.0

    printed, error, _ = kernel.run(
        "agent.abort(); agent.wait_for_idle(20); agent.prompt('again')\n"
        "import signal; print('|', signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    assert (printed, error) == ("fine| True\n", "")


ASK = """
agent = agent_with(reply(call("work", id="a", n=1)), reply(call("work", id="b", n=1)), "Done.",
                   before_tool_call=approvals.ask_with_input)
message = agent.prompt("hi")
print("|", [one.text for one in agent.messages if one.role == "toolResult"])
"""


def test_a_notebook_asks_below_the_cell(kernel: Kernel) -> None:
    printed, error, _ = kernel.run(ASK, answers=("perhaps", "no, not that", "y"))

    assert error == ""
    assert printed.endswith("| ['The user did not allow the call of `work`: not that', 'ran']\n")


def test_a_notebook_that_is_run_by_a_program_denies(kernel: Kernel) -> None:
    printed, error, _ = kernel.run(ASK)

    assert error == ""
    assert "the user gave no answer" in printed
    assert "ran" not in printed.replace("was not run", "")


WIDGET = """
import queue
clicks = queue.SimpleQueue()   # what a button's callback would put there
answered = threading.Event()
def ask(context, signal):
    clicks.put(context.tool_call.name)
    return approvals.allow() if approvals.wait(answered, signal) else approvals.deny()
agent = agent_with(reply(call("work", id="a")), "Done.", before_tool_call=ask)
stream = agent.stream("hi")
print(clicks.get(timeout=20), agent.status().phase)
"""


def test_a_run_in_the_background_waits_for_a_later_cell(kernel: Kernel) -> None:
    printed, error, _ = kernel.run(WIDGET)
    assert (printed, error) == ("work running tools\n", "")

    printed, error, _ = kernel.run("answered.set(); print(len(stream.result(20)))")
    assert (printed.endswith("4\n"), error) == (True, "")
