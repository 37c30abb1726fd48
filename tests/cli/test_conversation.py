"""The parts of a conversation on the command line: questions before a call runs, commands, and what was asked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AbortController,
    AbortSignal,
    Agent,
    AgentContext,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    ToolCall,
    Usage,
    UserMessage,
)
from agentcore._cli_approvals import Approver, question_text
from agentcore._cli_commands import Commands, command_of
from agentcore._cli_history import exchanges_of
from agentcore._cli_models import UsageError
from agentcore._cli_settings import Settings
from agentcore.display.terminal import PlainView
from agentcore.sessions import Session
from agentcore.testing import call, failure, reply, scripted, scripted_model

# --- questions ------------------------------------------------------------------------------------------------------


def asked(approver: Approver, name: str = "bash", **args: Any) -> BeforeToolCallResult:
    call = ToolCall("c1", name, args)
    context = BeforeToolCallContext(AssistantMessage((call,)), call, args, AgentContext())
    return approver(context, AbortController().signal)


def answering(*answers: str | None) -> tuple[Approver, list[str]]:
    """Return an approver whose user gives these answers, and the questions that were shown."""
    waiting, questions = list(answers), []

    def ask(question: str, tool_call_id: str, signal: AbortSignal) -> str | None:
        questions.append(question)
        return waiting.pop(0)

    return Approver(ask, lambda: 80), questions


@pytest.mark.parametrize("answer", ["y", "yes", "Y", " yes. "])
def test_yes_lets_a_call_run_once(answer: str) -> None:
    approver, questions = answering(answer, "n")

    assert not asked(approver, command="ls").block
    assert asked(approver, command="ls").block
    assert len(questions) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("n", "The user did not allow the call of `bash`"),
        ("no, use git", "The user did not allow the call of `bash`: use git"),
        (None, "`bash` was not run: the user gave no answer."),
    ],
)
def test_no_and_no_answer_keep_a_call_from_running(answer: str | None, reason: str) -> None:
    approver, _ = answering(answer)

    decision = asked(approver, command="ls")

    assert (decision.block, decision.reason) == (True, reason)


def test_always_allows_exactly_that_call_and_no_other() -> None:
    approver, questions = answering("a", "n", "n")

    assert not asked(approver, command="ls").block
    assert not asked(approver, command="ls").block
    assert asked(approver, command="ls; rm x").block
    assert asked(approver, "write", command="ls").block
    assert len(questions) == 3


@pytest.mark.parametrize("answer", ["", "maybe", "yes but only once", "a b", "ye"])
def test_an_answer_that_is_not_clear_is_asked_again(answer: str) -> None:
    approver, questions = answering(answer, "n")

    assert asked(approver, command="ls").block
    assert questions[1].startswith("Please answer y (yes), n (no, and why if you like) or a (always: this very call")


def test_a_tool_that_changes_nothing_is_not_asked_about() -> None:
    approver, questions = answering()

    assert not asked(approver, "read", path="x").block
    assert questions == []


def test_with_nobody_to_ask_the_call_does_not_run() -> None:
    assert asked(Approver(None, lambda: 80), command="ls").block


def test_a_question_shows_every_argument_whole_and_nothing_can_forge_one() -> None:
    args = {
        "path": "a\u202eb\x1b[2J",
        "edits": [
            {"find": "one\ntwo │ x\n  timeout │ 3", "replacement": ""},
            {"find": "日本語日本語", "replacement": "é"},
        ],
        "options": {},
        "timeout": 3,
    }

    lines = question_text("edit", args, 40).split("\n")

    assert lines == [
        "The model wants to run edit:",
        "  path          │ a\\u202eb\\u001b[2J",
        "  edits[0].find │ one",
        "                │ two │ x",
        "                │   timeout │ 3",
        "  edits[0].repl │ ",
        "  acement       │ ",
        "  edits[1].find │ 日本語日本語",
        "  edits[1].repl │ é",
        "  acement       │ ",
        "  options       │ {}",
        "  timeout       │ 3",
    ]


def test_no_row_of_a_question_is_wider_than_the_terminal() -> None:
    lines = question_text("bash", {"command": "日" * 50 + "x" * 90}, 30).split("\n")

    assert all(len(line) + line.count("日") <= 30 for line in lines)
    assert "".join(line.partition("│ ")[2] for line in lines[1:]) == "日" * 50 + "x" * 90
    assert all(line[:12] == "          │ " for line in lines[2:])


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/model", "/model"),
        ("  /model openai/gpt-5 ", "/model"),
        ("/etc/hosts is wrong", None),
        ("/2", None),
        ("what is /model?", None),
        ("/", None),
        ("", None),
    ],
)
def test_only_a_word_behind_a_slash_at_the_beginning_is_a_command(line: str, command: str | None) -> None:
    assert command_of(line) == command


def settings_for(folder: Path, **changes: Any) -> Settings:
    known: dict[str, Any] = {
        "model": scripted_model(),
        "model_is_named": True,
        "base_url": None,
        "api": None,
        "tools": ("read",),
        "cwd": folder,
        "root": None,
        "session_file": None,
        "system_prompt": None,
        "thinking": None,
        "ask_first": False,
        "max_turns": None,
        "max_cost": None,
    }
    return Settings(**{**known, **changes})


class Conversation:
    """An agent with a script, and the commands about it."""

    def __init__(self, folder: Path, stack: ExitStack, *replies: Any, session: Session | None = None) -> None:
        self.agent = Agent(scripted_model(context_window=10_000), stream_fn=scripted(*replies), session=session)
        self.shown = io.StringIO()
        view = PlainView(io.StringIO(), self.shown)
        self.commands = Commands(self.agent, session, settings_for(folder), view)
        stack.callback(self.commands.close)

    def run(self, line: str) -> str:
        """Run a command; return what it showed."""
        self.shown.seek(0)
        self.shown.truncate()
        assert self.commands.run(line)
        return self.shown.getvalue()

    def said(self) -> list[str]:
        return [getattr(message, "text", None) or getattr(message, "content", "") for message in self.agent.messages]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_quit_leaves_and_what_is_no_command_says_so(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack)

    assert not one.commands.run("/quit")
    with pytest.raises(UsageError, match="there is no command /foo; /help lists them"):
        one.commands.run("/foo")


def test_help_names_every_command(tmp_path: Path, stack: ExitStack) -> None:
    shown = Conversation(tmp_path, stack).run("/help")

    for name in ("/model", "/tools", "/cost", "/compact", "/branch", "/quit", "Ctrl-C"):
        assert name in shown


def test_the_model_can_be_shown_and_changed(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack)

    assert one.run("/model") == "The model is scripted/scripted-1.\n"
    assert one.run("/model demo").startswith("The model is the built-in demo model")
    assert one.agent.model.provider == "demo"
    with pytest.raises(UsageError, match="the catalog has no provider 'nobody'"):
        one.commands.run("/model nobody/x")
    assert one.agent.model.provider == "demo"


def test_a_model_of_the_users_own_server_is_named_by_its_id(tmp_path: Path, stack: ExitStack) -> None:
    agent, view = Agent(scripted_model()), PlainView(io.StringIO(), io.StringIO())
    settings = settings_for(tmp_path, base_url="http://127.0.0.1:1/v1", thinking="high")
    commands = Commands(agent, None, settings, view)
    stack.callback(commands.close)

    commands.run("/model other/model")

    assert (agent.model.id, agent.model.base_url, agent.model.reasoning) == (
        "other/model",
        "http://127.0.0.1:1/v1",
        True,
    )


def test_the_tools_can_be_shown_and_changed(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack)

    assert one.run("/tools") == "The tools are: none.\n"
    assert one.run("/tools read, bash") == "The tools are: read, bash.\n"
    assert [tool.name for tool in one.agent.tools] == ["read", "bash"]
    assert one.run("/tools none") == "The tools are: none.\n"
    with pytest.raises(UsageError, match="'hammer' is no tool"):
        one.commands.run("/tools hammer")


def test_cost_adds_up_the_runs_and_what_was_there_before(tmp_path: Path, stack: ExitStack) -> None:
    usage = Usage(input=1000, output=10, cache_read=500, cost={"total": 0.25})
    with Session.create(tmp_path / "talk.jsonl") as session:
        session.append(UserMessage("before"))
        session.append(AssistantMessage("Yes.", usage=usage))
        one = Conversation(tmp_path, stack, reply("One.", usage=usage), reply("Two.", usage=usage), session=session)
        one.agent.prompt("first")
        one.agent.prompt("second")

        shown = one.run("/cost").splitlines()

    assert shown[0] == "4,500 tokens in (1,500 cached), 30 out, $0.7500"
    assert shown[1] == "The conversation takes about 1,510 of 10,000 tokens now."


def test_cost_says_that_nothing_was_reported_rather_than_nothing_taken(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack, "One.")
    assert one.run("/cost").splitlines()[0] == "0 tokens in, 0 out"
    one.agent.prompt("first")
    assert one.run("/cost").splitlines()[0] == "The server reports no tokens."


def test_compact_puts_a_summary_in_place_of_the_past(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack, "One.", "Two.", "They counted.")
    one.agent.prompt("first")
    assert "There is nothing before the last turn to summarise." in one.run("/compact")
    one.agent.prompt("second")

    shown = one.run("/compact").splitlines()

    assert shown[0] == "Summarising the earlier conversation; Ctrl-C stops it."
    assert shown[1].startswith("The earlier conversation was summarised; it takes about ")
    assert [message.role for message in one.agent.messages] == ["compactionSummary", "user", "assistant"]


def test_a_summary_that_fails_leaves_the_conversation_as_it_was(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack, "One.", "Two.", failure("no summary today"), KeyboardInterrupt())
    one.agent.prompt("first")
    one.agent.prompt("second")
    before = one.agent.messages

    assert one.run("/compact").splitlines()[1] == "error: no summary today; the conversation is as it was"
    assert one.run("/compact").splitlines()[1] == "Stopped; the conversation is as it was."
    assert one.agent.messages == before


def test_branch_goes_back_to_the_answer_of_an_earlier_question(tmp_path: Path, stack: ExitStack) -> None:
    one = Conversation(tmp_path, stack, "One.", "Two.", "Three.")
    assert one.run("/branch") == "There is nothing to go back to yet.\n"
    for text in ("first", "second\nline", "third"):
        one.agent.prompt(text)

    assert one.run("/branch").splitlines() == [
        "*  1 first",
        "*  2 second⏎line",
        "*  3 third",
        "/branch and a number goes on from the answer to it.",
    ]
    assert one.run("/branch 2") == "The conversation goes on from: second⏎line\n"
    assert one.said() == ["first", "One.", "second\nline", "Two."]
    for wrong in ("0", "3", "x"):
        with pytest.raises(UsageError, match="/branch takes a number from 1 to 2"):
            one.commands.run(f"/branch {wrong}")


def test_branches_of_a_session_stay_and_can_be_returned_to(tmp_path: Path, stack: ExitStack) -> None:
    with Session.create(tmp_path / "talk.jsonl") as session:
        replies = [reply("One.", call("gone")), "One more.", "Two.", "Three.", "Four."]
        one = Conversation(tmp_path, stack, *replies, session=session)
        one.agent.prompt("first")
        one.agent.prompt("second")
        one.run("/branch 1")
        assert [message.role for message in one.agent.messages] == ["user", "assistant", "toolResult", "assistant"]
        one.agent.prompt("third")

        assert one.run("/branch").splitlines()[:3] == ["*  1 first", "   2 second", "*  3 third"]
        one.run("/branch 2")
        one.agent.prompt("fourth")
        assert one.said()[-4:] == ["second", "Two.", "fourth", "Four."]
    again = Session.read(tmp_path / "talk.jsonl")
    assert again.messages() == one.agent.messages
    assert [exchange.text for exchange in exchanges_of((), again)] == ["first", "second", "third", "fourth"]


def test_the_greeting_says_which_model_tools_folder_and_session(tmp_path: Path, stack: ExitStack) -> None:
    with Session.create(tmp_path / "talk.jsonl") as session:
        one = Conversation(tmp_path, stack, session=session)
        one.commands.greet()

    lines = one.shown.getvalue().splitlines()
    assert lines[0] == f"scripted/scripted-1 · no tools · in {tmp_path.resolve()}"
    assert lines[1] == f"The conversation is kept in {tmp_path / 'talk.jsonl'} (new)."
