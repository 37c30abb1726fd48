"""Runs shown in a real notebook kernel: live, once in each cell, and readable when the kernel is gone."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ipykernel", reason="ipykernel is not installed: no notebook can be run")

from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec

from agentcore import Agent
from agentcore.display import notebook
from agentcore.testing import scripted, scripted_model
from tests.display.test_html import page

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "notebook.ipynb"
SECONDS = 60

SETUP = f"""
import sys, tempfile, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from agentcore import Agent
from agentcore.display.notebook import hide, show
from agentcore.testing import Gate, call, reply, scripted, scripted_model
from tests.display.display_support import HOSTILE, full_agent, hostile_agent
"""


class Kernel:
    """A kernel in a process of its own, to which cells are given one by one."""

    def __init__(self) -> None:
        self._manager = KernelManager()
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager._kernel_spec = KernelSpec(argv=command, display_name="Python", language="python")
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=SECONDS)
        self.run(SETUP)

    def begin(self, code: str) -> str:
        """Begin to run a cell; return its id."""
        cell: str = self._client.execute(code)
        return cell

    def messages(self, cell: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the kind and the content of what a cell sends, until it is idle."""
        while True:
            message = self._client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status":
                if content["execution_state"] == "idle":
                    return
                continue
            yield kind, content

    def run(self, code: str, *, failing: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Run a cell; return what it has sent."""
        sent = list(self.messages(self.begin(code)))
        errors = [content["ename"] for kind, content in sent if kind == "error"]
        assert errors == ([failing] if failing else []), sent[-1]
        return sent

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


def displays(sent: list[tuple[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """Return the HTML of each display, as it was first and after each update."""
    found: dict[str, list[str]] = {}
    for kind, content in sent:
        if kind in ("display_data", "update_display_data"):
            display_id = content["transient"]["display_id"]
            assert (kind == "display_data") is (display_id not in found)
            found.setdefault(display_id, []).append(content["data"]["text/html"])
    return found


def only_display(sent: list[tuple[str, dict[str, Any]]]) -> list[str]:
    (one,) = displays(sent).values()
    return one


def test_the_run_of_a_stream_is_one_display_that_grows(kernel: Kernel) -> None:
    sent = kernel.run("agent = full_agent(Path(tempfile.mkdtemp()))\nshow(agent.stream('Improve the plan.'))")

    versions = only_display(sent)
    last = page(versions[-1])
    assert len(versions) > 3
    assert "4,000 tokens in (1,600 cached), 68 out, $0.0060 · 2 turns" in last.text
    assert "+buy cheese" in last.text
    assert len(last.pictures) == 1
    assert "running" not in last.text
    plain = [content["data"]["text/plain"] for kind, content in sent if "display_data" in kind][-1]
    assert "Improve the plan." in plain
    assert "[failed] bash echo one; echo two; exit 3" in plain


def test_every_run_of_an_agent_is_shown_in_the_cell_that_begins_it_until_hide(kernel: Kernel) -> None:
    setup = "agent = Agent(scripted_model(), stream_fn=scripted('One.', 'Two.', 'Three.'))\nshow(agent)\nshow(agent)"
    assert displays(kernel.run(setup)) == {}

    for word in ("One.", "Two."):
        assert word in page(only_display(kernel.run("answer = agent.prompt('go')"))[-1]).text
    assert displays(kernel.run("hide(agent)\nanswer = agent.prompt('go')")) == {}


def test_a_fast_stream_is_not_drawn_at_each_delta_and_ends_complete(kernel: Kernel) -> None:
    code = (
        "text = ' '.join(f'word{n}' for n in range(3000))\n"
        "agent = Agent(scripted_model(), stream_fn=scripted(reply(text, chunk=4)))\n"
        "began = time.monotonic()\nshow(agent.stream('go'))\nprint(time.monotonic() - began)"
    )
    sent = kernel.run(code)

    versions = only_display(sent)
    seconds = float(next(content["text"] for kind, content in sent if kind == "stream"))
    assert len(versions) < 10 + 11 * seconds
    assert "word2999" in versions[-1]


def test_while_a_tool_is_silent_its_clock_goes_on(kernel: Kernel) -> None:
    code = (
        "gate = Gate()\n"
        "from agentcore import AgentTool\n"
        "def work(*given):\n    gate.hold(given[2])\n    return 'done'\n"
        "tool = AgentTool('slow', 'Slow', 'Slow.', {'type': 'object'}, work)\n"
        "agent = Agent(scripted_model(), tools=[tool], stream_fn=scripted(reply(call('slow')), 'Done.'))\n"
        "import threading\n"
        "def open_later():\n    gate.wait_reached()\n    time.sleep(0.6)\n    gate.open()\n"
        "threading.Thread(target=open_later).start()\n"
        "show(agent.stream('go'))"
    )

    clocks = re.findall(r"running · (\d\.\d)s", " ".join(page(one).text for one in only_display(kernel.run(code))))

    assert len(set(clocks)) >= 3


def test_the_interrupt_of_the_kernel_stops_the_run_and_the_display_says_so(kernel: Kernel) -> None:
    cell = kernel.begin(
        "gate = Gate()\nagent = Agent(scripted_model(), stream_fn=scripted(reply('Half', gate, ' more'), 'Next.'))\n"
        "show(agent.stream('go'))"
    )
    sent = []
    for message in kernel.messages(cell):
        sent.append(message)
        if "Half" in str(message[1].get("data")):
            kernel.interrupt()
            sent += list(kernel.messages(cell))
            break

    assert [content["ename"] for kind, content in sent if kind == "error"] == ["KeyboardInterrupt"]
    last = page(only_display(sent)[-1]).text
    assert "Half" in last
    assert "Stopped" in last
    assert "more" not in last
    assert "Next." in only_display(kernel.run("show(agent.stream('go'))"))[-1]


def test_what_ends_a_stream_is_raised_by_its_result(kernel: Kernel) -> None:
    code = (
        "def refuse(messages, signal):\n    raise LookupError('not today')\n"
        "agent.transform_context = refuse\nstream = agent.stream('go')\nshow(stream)"
    )
    only_display(kernel.run(code))
    kernel.run("stream.result()", failing="LookupError")


def test_hostile_texts_are_harmless_in_the_notebook(kernel: Kernel) -> None:
    sent = kernel.run("agent = hostile_agent()\nshow(agent)\nanswer = agent.prompt(HOSTILE)")

    for html in only_display(sent):
        page(html)
    for value in ("answer", "agent", "agent.messages[1]", "agent.messages[2]"):
        ((_, content),) = [one for one in kernel.run(value) if one[0] == "execute_result"]
        page(content["data"]["text/html"])
        assert "\x1b" not in content["data"]["text/plain"]


def test_the_example_runs_and_can_be_read_without_a_kernel(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook can be read")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook can be run whole")
    book = nbformat.read(EXAMPLE, as_version=4)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client = nbclient.NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}})
    client.create_kernel_manager()
    client.km._kernel_spec = KernelSpec(argv=command, display_name="Python", language="python")
    client.execute()

    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    assert [output.output_type for output in outputs] == ["display_data", *["execute_result"] * 3]
    shown = [page(output.data["text/html"]).text for output in outputs]
    assert "I read the first one, plan.txt" in shown[0]
    assert " · 3 turns · " in shown[0]
    assert "demo/demo" in shown[1]
    assert "tokens" in shown[2]
    assert "List the files and read the first one." in shown[3]


def test_the_example_is_short_and_holds_no_output_of_an_earlier_run() -> None:
    text = EXAMPLE.read_text("utf-8")
    book = json.loads(text)

    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert sum(len(cell["source"]) for cell in code) < 80
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_outside_a_notebook_a_run_is_shown_as_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent(scripted_model(), stream_fn=scripted("One.", "Two.", "Three."))
    notebook.show(agent.stream("first"))
    notebook.show(agent)
    agent.prompt("second")
    notebook.hide(agent)
    agent.prompt("third")

    assert capsys.readouterr().out == "One.\nTwo.\n"


def test_show_refuses_what_it_cannot_show() -> None:
    with pytest.raises(TypeError, match="`show` takes an `Agent` or an `EventStream`, not str"):
        notebook.show("agent")  # type: ignore[arg-type]
