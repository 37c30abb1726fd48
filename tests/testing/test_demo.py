"""The demo model lists, reads, and does not take what went wrong for a file."""

from pathlib import Path

import pytest

from agentcore import Agent, AgentTool, BeforeToolCallResult
from agentcore.testing import DemoServer
from agentcore.toolkit import coding_tools


def ask(folder: Path, tools: list[AgentTool] | None = None, refusal: str | None = None) -> str:
    """Ask the demo in a folder; with a refusal no tool runs."""

    def refuse(context: object, signal: object) -> BeforeToolCallResult:
        return BeforeToolCallResult(block=True, reason=refusal)

    with DemoServer() as server:
        agent = Agent(server.model, tools=coding_tools(folder) if tools is None else tools)
        if refusal is not None:
            agent.before_tool_call = refuse
        return agent.prompt("List the files and read the first one").raise_for_error().text


def test_it_lists_the_files_and_reads_the_first(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plan: b.txt").write_text("\nbuy milk\nbuy bread\n", "utf-8")

    assert ask(tmp_path) == (
        "I see 1 file here. I read the first one, plan: b.txt: the tool showed me 3 lines, and the first that is not "
        "blank is: buy milk"
    )


def test_an_empty_folder_has_no_file_to_read(tmp_path: Path) -> None:
    assert ask(tmp_path) == "There is no file that I could read. The listing says:\n(no output)"


def test_without_tools_it_says_what_it_needs(tmp_path: Path) -> None:
    assert "give me the `bash` and `read` tools" in ask(tmp_path, tools=[])


@pytest.mark.parametrize(
    "refusal", ["Only reading is allowed here.", "The user did not allow the call of `bash`: not now", None]
)
def test_a_refusal_is_not_taken_for_a_file(tmp_path: Path, refusal: str | None) -> None:
    (tmp_path / "plan.txt").write_text("buy milk\n", "utf-8")

    answer = ask(tmp_path, refusal=refusal or "")

    assert answer.startswith("I could not list the files. The tool says:\n")
    assert refusal is None or answer.endswith(refusal)
