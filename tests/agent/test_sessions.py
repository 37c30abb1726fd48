"""An agent whose conversation lasts: in a session, message by message, or in a file that it is saved to."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from agentcore import (
    Agent,
    AgentBusyError,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    AssistantMessage,
    BeforeToolCallResult,
    CompactionSummaryMessage,
    CustomMessage,
    MisuseError,
    NothingToContinueError,
    PendingCallsError,
    RequestRetryEvent,
    SessionCorruptError,
    SessionError,
    ToolResultMessage,
    Usage,
    UserMessage,
    allow,
)
from agentcore.events import CompactionEndEvent, CompactionStartEvent
from agentcore.sessions import Session
from agentcore.testing import Gate, call, reply, scripted, scripted_model, thinking
from tests.agent.agent_support import agent_with, requests, roles, said, tool, transcript_problems

HERE = Path(__file__).parent


def stored(session: Session) -> list[Any]:
    """Return what another process would read of a session that is open."""
    return Session.read(session.path).messages()


@pytest.fixture
def session(tmp_path: Path) -> Iterable[Session]:
    with Session.create(tmp_path / "session.jsonl") as made:
        yield made


# --- message by message ---------------------------------------------------------------------------------------------


def test_each_message_is_in_the_session_when_its_end_is_told(session: Session) -> None:
    answers = [
        reply(thinking("hm"), "Look.", call("echo", id="a"), call("echo", id="b")),
        reply("Done."),
        reply("More."),
    ]
    agent = agent_with(*answers, tools=[tool()], session=session)
    agent.steer("steered")
    agent.follow_up("followed")
    seen = []

    def listen(event: Any, signal: Any) -> None:
        if event.type == "message_end":
            assert stored(session)[-1] == event.message
            seen.append(len(session.messages()))

    agent.subscribe(listen)
    agent.prompt("hi")

    assert seen == list(range(1, 9))
    assert roles(agent) == [
        "user", "user", "assistant", "toolResult", "toolResult", "assistant", "user", "assistant"
    ]  # fmt: skip
    assert all(one is other for one, other in zip(session.messages(), agent.messages, strict=True))
    assert stored(session) == agent.messages


def test_an_agent_goes_on_with_what_is_in_the_session(session: Session) -> None:
    agent_with("one", session=session).prompt("first")
    session.close()
    with Session.open(session.path) as again:
        agent = agent_with("two", session=again)
        assert roles(agent) == ["user", "assistant"]
        agent.prompt("second")

        assert said(agent) == ["first", "second"]
        assert [message.role for message in requests(agent)[0].messages] == ["user", "assistant", "user"]
        assert stored(again) == agent.messages


def test_a_streamed_run_is_stored_as_well(session: Session) -> None:
    agent = agent_with("one", session=session)
    list(agent.stream("hi"))

    assert stored(session) == agent.messages
    assert len(agent.messages) == 2


def test_a_message_that_comes_twice_is_stored_twice(session: Session) -> None:
    message = UserMessage("again", timestamp=1)
    agent = agent_with("one", "two", session=session)
    agent.prompt([message, message])
    agent.prompt(message)

    assert said(agent) == ["again", "again", "again"]
    assert stored(session) == agent.messages


def test_messages_of_an_aborted_and_of_a_failed_run_are_stored(session: Session) -> None:
    gate = Gate()
    agent = agent_with(reply("half an answer", chunk=4, gates={2: gate}), session=session)
    stream = agent.stream("hi")
    gate.wait_reached()
    agent.abort("enough")
    list(stream)
    assert agent.prompt("again").stop_reason == "error"  # the script has no other reply

    assert [getattr(message, "stop_reason", None) for message in stored(session)] == [None, "aborted", None, "error"]
    assert stored(session) == agent.messages


def test_messages_of_an_application_are_stored_and_come_back_as_data(session: Session) -> None:
    @attrs.frozen
    class Note:
        role: ClassVar[str] = "note"
        text: str
        timestamp: int = 1

        def to_dict(self) -> dict[str, Any]:
            return {"role": self.role, "text": self.text, "timestamp": 1}

    agent_with("ok", session=session).prompt([Note("mine"), UserMessage("hi")])
    first = stored(session)[0]

    assert isinstance(first, CustomMessage)
    assert first.to_dict() == {"role": "note", "text": "mine", "timestamp": 1}


def test_messages_and_a_session_are_not_both_given(session: Session) -> None:
    with pytest.raises(ValueError, match="leave `messages` out"):
        agent_with(session=session, messages=[UserMessage("x")])
    assert agent_with(session=session, messages=[]).messages == []


@pytest.mark.parametrize("given", ["session.jsonl", Path("x"), object(), Session])
def test_what_is_no_session_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        agent_with(session=given)


def test_the_conversation_of_a_session_is_not_replaced_behind_its_back(session: Session) -> None:
    agent = agent_with("one", "two", session=session)
    agent.prompt("first")
    first = session.entries()[0].id
    for act in (agent.reset, lambda: setattr(agent, "messages", [UserMessage("x")])):
        with pytest.raises(MisuseError, match="is in a session"):
            act()
    assert roles(agent) == ["user", "assistant"]

    session.branch(first)
    agent.messages = session.messages()
    agent.continue_()

    assert [getattr(message, "text", None) for message in agent.messages] == [None, "two"]
    assert stored(session) == agent.messages
    assert len(session.entries()) == 4


def test_a_session_for_reading_fails_before_anything_is_asked(session: Session) -> None:
    agent = agent_with("one", session=Session.read(session.path))
    with pytest.raises(SessionError, match="opened for reading only"):
        agent.prompt("hi")

    assert requests(agent) == []
    assert agent.status().phase == "idle"


# --- what cannot be written -----------------------------------------------------------------------------------------


class FullDisk:
    """A session on a disk that is full at some messages."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.full_at: set[int] = set()
        self.tried = 0

    def messages(self) -> list[Any]:
        return self.session.messages()

    def append(self, message: Any) -> object:
        self.tried += 1
        if self.tried in self.full_at:
            raise OSError(28, "No space left on device")
        return self.session.append(message)

    def append_compaction(self, summary: Any, kept: Any) -> object:
        self.append(summary)
        raise AssertionError("not reached")


FOUR = (reply("Look.", call("echo", id="a"), call("echo", id="b")), "Done.", "Next.", "Last.")


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("again", [0, 1, 2])
def test_an_append_that_fails_is_raised_and_nothing_is_missing_later(session: Session, at: int, again: int) -> None:
    disk = FullDisk(session)
    disk.full_at = set(range(at, at + 1 + again))
    agent = agent_with(*FOUR, tools=[tool()], session=disk)
    with pytest.raises(OSError, match="No space left"):
        agent.prompt("hi")
    assert agent.wait_for_idle(0)
    assert transcript_problems(agent.messages) == []
    before = agent.messages
    if again == 2:  # it is still full when the next run begins: that one changes nothing
        with pytest.raises(OSError, match="No space left"):
            agent.prompt("lost")
        assert agent.messages == before
    agent.prompt("after")

    assert stored(session) == agent.messages
    assert agent.messages[: len(before)] == before
    assert said(agent) == ["hi", "after"]


def test_a_streamed_run_whose_append_fails_raises_and_leaves_the_agent_idle(session: Session) -> None:
    disk = FullDisk(session)
    disk.full_at = {2, 3, 4}
    agent = agent_with(*FOUR, tools=[tool()], session=disk)
    stream = agent.stream("hi")
    with pytest.raises(OSError, match="No space left"):
        list(stream)

    assert agent.wait_for_idle(10)
    assert agent.state.error_message == "[Errno 28] No space left on device"
    disk.full_at = set()
    agent.prompt("after")
    assert stored(session) == agent.messages


@pytest.mark.parametrize("stored_first", [True, False])
@pytest.mark.parametrize("at", range(1, 6))
def test_an_interrupt_during_an_append_stores_the_message_once(session: Session, at: int, stored_first: bool) -> None:
    class Interrupted(FullDisk):
        def append(self, message: Any) -> object:
            self.tried += 1
            if self.tried != at:
                return self.session.append(message)
            if stored_first:
                self.session.append(message)
            raise KeyboardInterrupt

    agent = agent_with(*FOUR, tools=[tool()], session=Interrupted(session))
    with pytest.raises(KeyboardInterrupt):
        agent.prompt("hi")
    assert agent.wait_for_idle(0)
    assert stored(session) == agent.messages
    agent.prompt("after")

    assert stored(session) == agent.messages
    assert transcript_problems(agent.messages) == []
    assert said(agent) == ["hi", "after"]


DISK_FULL = """
import json, resource, sys
from agentcore import Agent
from agentcore.sessions import Session
from agentcore.testing import scripted, scripted_model

session = Session.create(sys.argv[1])
agent = Agent(scripted_model(), stream_fn=scripted("x" * 5000, "small"), session=session)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
try:
    agent.prompt("one")
except OSError as error:
    raised = error.errno
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
agent.prompt("two")
again = Session.read(sys.argv[1])
print(json.dumps([raised, agent.status().phase, again.messages() == agent.messages, len(again.messages()),
                  [problem.what for problem in again.problems]]))
"""


def test_a_disk_that_is_really_full_costs_no_message(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(tmp_path / "a")], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    raised, phase, same, count, problems = json.loads(told.stdout)

    assert raised in (27, 28)  # EFBIG, ENOSPC
    assert (phase, same, count) == ("idle", True, 4)
    assert set(problems) == {"no JSON; skipped"}


# --- killed ---------------------------------------------------------------------------------------------------------

KILLED = """
import sys, threading
from agentcore import Agent, AgentTool
from agentcore.sessions import Session
from agentcore.testing import call, reply, scripted, scripted_model

def run(tool_call_id, params, signal, on_update, context):
    print("ran", tool_call_id, flush=True)
    if tool_call_id != "a":
        print("stuck", flush=True)
        signal.wait()
    return "fine"

tool = AgentTool("work", "Work", "d", {"type": "object"}, run)
calls = [call("work", id=one) for one in "abc"]
agent = Agent(scripted_model(), tools=[tool], stream_fn=scripted(reply("On it.", *calls)),
              tool_execution=sys.argv[2], session=Session.create(sys.argv[1]))
agent.prompt("go")
"""


@pytest.mark.parametrize(("mode", "pending"), [("sequential", ["b", "c"]), ("parallel", ["a", "b", "c"])])
def test_a_run_killed_in_a_batch_leaves_its_unanswered_calls_pending(
    tmp_path: Path, mode: str, pending: list[str]
) -> None:
    path = tmp_path / "a"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path), mode], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line == "stuck\n":
                break
    finally:
        child.send_signal(signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
        child.stdout.close()

    executed: list[str] = []
    work = tool("work", lambda id, *given: executed.append(id))
    with Session.open(path) as session:
        assert session.problems == ()
        agent = agent_with("Sorry.", tools=[work], session=session)
        assert [one["id"] for one in agent.pending_calls] == pending
        for act in (lambda: agent.prompt("hi"), agent.continue_):
            with pytest.raises(PendingCallsError):
                act()
        assert agent.resume({}).text == "Sorry."

        assert executed == []
        assert transcript_problems(agent.messages) == []
        results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
        assert [(one.tool_call_id, one.is_error) for one in results] == [
            (one, one in pending) for one in ("a", "b", "c")
        ]
        assert stored(session) == agent.messages


def test_a_paused_call_is_decided_on_by_another_agent_with_the_session(session: Session) -> None:
    def pause(context: Any, signal: Any) -> BeforeToolCallResult:
        return BeforeToolCallResult(pause=True)

    agent_with(reply(call("echo", id="a", n=1)), tools=[tool()], before_tool_call=pause, session=session).prompt("hi")
    session.close()
    with Session.open(session.path) as again:
        agent = agent_with("Done.", tools=[tool()], session=again)
        assert agent.resume({"a": allow()}).text == "Done."

        assert agent.messages[2].text == "ran {'n': 1}"
        assert stored(again) == agent.messages


@pytest.mark.parametrize(
    ("scenario", "first", "step"),
    [("prompt", 1, 11), ("stream", 1, 3), ("compact", 3, 11), ("between", 1, 3), ("failing", 5, 11)],
)
def test_an_interrupt_at_any_point_loses_and_repeats_no_message(scenario: str, first: int, step: int) -> None:
    outcome = subprocess.run(
        [sys.executable, str(HERE / "interrupt_session.py"), scenario, str(first), str(step)],
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert outcome.returncode == 0, outcome.stderr
    told = json.loads(outcome.stdout)
    assert told["faults"] == {}
    if scenario == "stream" and not told["points"] and sys.version_info >= (3, 12):
        pytest.skip("this interpreter shows no points of the thread that reads the stream")
    assert told["points"] > 30


# --- compaction by hand ---------------------------------------------------------------------------------------------

SUMMARY = CompactionSummaryMessage("so far", 100, timestamp=5)


def test_an_idle_agent_can_be_compacted_and_goes_on_from_there(session: Session) -> None:
    agent = agent_with("one", "two", session=session)
    agent.prompt("first")
    kept = agent.messages[1:]
    agent.apply_compaction(SUMMARY, kept)
    agent.prompt("second")

    assert roles(agent) == ["compactionSummary", "assistant", "user", "assistant"]
    assert agent.messages[1] is kept[0]
    assert stored(session) == agent.messages
    assert [message.role for message in requests(agent)[1].messages] == ["user", "assistant", "user"]
    assert len(session.entries()) == 5
    assert Agent(scripted_model(), session=Session.read(session.path)).messages == agent.messages


def test_an_agent_without_a_session_can_be_compacted() -> None:
    agent = agent_with("one")
    agent.prompt("first")
    agent.apply_compaction(SUMMARY, [])

    assert agent.messages == [SUMMARY]


def test_a_prompt_returns_the_last_message_though_a_hook_compacted_it_away() -> None:
    agent = agent_with("one")
    agent.prepare_next_turn = lambda context, signal: agent.apply_compaction(SUMMARY, [])

    assert agent.prompt("hi").text == "one"
    assert agent.messages == [SUMMARY]


def test_a_hook_can_compact_during_a_run(session: Session) -> None:
    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool()], session=session)

    def compact(context: Any, signal: Any) -> AgentLoopTurnUpdate | None:
        if not context.tool_results:
            return None
        kept = agent.messages[1:]
        agent.apply_compaction(SUMMARY, kept)
        assert agent.messages == [SUMMARY, *kept]
        return AgentLoopTurnUpdate(context=attrs.evolve(context.context, messages=[SUMMARY, *kept]))

    agent.prepare_next_turn = compact
    agent.prompt("hi")

    assert roles(agent) == ["compactionSummary", "assistant", "toolResult", "assistant"]
    assert [message.role for message in requests(agent)[1].messages] == ["user", "assistant", "toolResult"]
    assert stored(session) == agent.messages
    assert [entry.kind for entry in session.entries()] == ["message", "message", "message", "compaction", "message"]


def test_only_the_thread_of_a_run_may_compact_or_announce_during_it() -> None:
    refused: list[Any] = []
    events: list[Any] = []

    def execute(*given: Any) -> str:  # on a worker
        try:
            agent.apply_compaction(SUMMARY, [])
        except AgentBusyError as error:
            refused.append(str(error))
        agent.announce(CompactionStartEvent("worker", 1))
        return "ran"

    agent = agent_with(reply(call("work")), "Done.", tools=[tool("work", execute)])
    agent.subscribe(lambda event, signal: events.append(event.type))
    agent.announce(CompactionStartEvent("idle", 1))

    def elsewhere(event: Any, signal: Any) -> None:
        if event.type == "turn_end":
            thread = threading.Thread(target=execute)
            thread.start()
            thread.join()

    agent.subscribe(elsewhere)
    agent.prompt("hi")

    assert len(refused) == 3
    assert all("cannot compact the transcript during a run" in text for text in refused)
    assert "compaction_start" not in events
    assert roles(agent) == ["user", "assistant", "toolResult", "assistant"]


def test_what_a_compaction_cannot_note_it_does_not_do(session: Session) -> None:
    agent = agent_with("one", session=FullDisk(session))
    agent.prompt("first")
    with pytest.raises(AssertionError):
        agent.apply_compaction(SUMMARY, [])

    assert roles(agent) == ["user", "assistant"]
    assert agent.status().phase == "idle"


def test_what_is_announced_is_taken_in_and_told_in_its_place() -> None:
    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool()])
    told: list[tuple[str, str]] = []
    agent.subscribe(lambda event, signal: told.append((event.type, agent.status().phase)))

    def announce(context: Any, signal: Any) -> None:
        if context.tool_results:
            agent.announce(CompactionStartEvent("mine", 10))
            agent.announce(CompactionEndEvent(None, 10, "no", Usage(input=5, output=2, cost={"total": 0.5})))
            agent.announce(CompactionEndEvent(None, 10, "no"))

    agent.prepare_next_turn = announce
    agent.prompt("hi")

    at = told.index(("compaction_start", "compacting"))
    assert told[at - 1 : at + 4] == [
        ("turn_end", "waiting for model"),
        ("compaction_start", "compacting"),
        ("compaction_end", "waiting for model"),
        ("compaction_end", "waiting for model"),
        ("turn_start", "waiting for model"),
    ]
    assert agent.status().usage.total_tokens == 7
    assert isinstance(RequestRetryEvent(1, 0.0, "x"), RequestRetryEvent)


# --- what goes along with an agent ----------------------------------------------------------------------------------


def test_runs_can_be_extended_until_that_is_taken_back() -> None:
    agent = agent_with("one", "two", "three", "four", repeat=True)
    made: list[AgentLoopConfig] = []

    def extend(config: AgentLoopConfig) -> AgentLoopConfig:
        made.append(config)
        return attrs.evolve(config, temperature=0.5)

    take_back = agent.extend_runs(extend)
    agent.prompt("hi")
    list(agent.stream("hi"))
    take_back()
    take_back()
    agent.prompt("hi")

    assert [request.options.temperature for request in requests(agent)] == [0.5, 0.5, None]
    assert agent.config.temperature is None
    assert len(made) == 3  # a stream is checked before it begins


def test_an_extension_that_gives_no_config_is_refused_before_the_run_begins() -> None:
    agent = agent_with("one")
    take_back = agent.extend_runs(lambda config: None)
    with pytest.raises(TypeError, match="AgentLoopConfig"):
        agent.prompt("hi")
    take_back()

    assert agent.prompt("again").text == "one"
    assert said(agent) == ["again"]


# --- saved to a file ------------------------------------------------------------------------------------------------


def test_an_agent_that_is_saved_and_loaded_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    agent = agent_with(reply(thinking("hm"), "naïve ✅ \ud800", call("echo", id="a")), "Done.", tools=[tool()])
    agent.system_prompt = "Be brief."
    agent.prompt("hi \u2028")
    agent.save(path)
    again = Agent.load(str(path), model=scripted_model(), tools=[tool()], stream_fn=scripted("Next."))

    assert again.messages == agent.messages
    assert again.system_prompt == "Be brief."
    assert again.prompt("more").text == "Next."
    again.save(str(path))
    assert len(Agent.load(path, scripted_model(), system_prompt="Other.").messages) == len(agent.messages) + 2
    assert Agent.load(path, scripted_model(), system_prompt="Other.").system_prompt == "Other."


def test_a_saved_file_is_for_its_owner_and_replaced_as_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    (tmp_path / "link.json").symlink_to(path)
    agent = agent_with("one")
    before = os.umask(0o022)
    try:
        agent.save(tmp_path / "link.json")
    finally:
        os.umask(before)
    agent.prompt("hi")
    agent.save(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (tmp_path / "link.json").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["agent.json", "link.json"]
    assert list(json.loads(path.read_text("utf-8"))) == ["type", "version", "system_prompt", "messages"]


def test_a_save_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    class Broken:
        role = "broken"
        timestamp = 1
        works = True

        def to_dict(self) -> dict[str, Any]:
            if not self.works:
                raise RuntimeError("broken")
            return {"role": "broken", "timestamp": 1, "where": tmp_path}

    broken = Broken()
    path = tmp_path / "agent.json"
    agent = agent_with("one", messages=[broken])
    agent.save(path)
    content = path.read_bytes()
    broken.works = False
    with pytest.raises(RuntimeError):
        agent.save(path)
    with pytest.raises(IsADirectoryError):
        agent_with("one").save(tmp_path)
    with pytest.raises(FileNotFoundError):
        agent_with("one").save(tmp_path / "no" / "folder.json")

    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["agent.json"]
    assert Agent.load(path, scripted_model()).messages[0].to_dict()["where"] == str(tmp_path)


def test_an_agent_is_saved_during_its_run_and_its_calls_stay_pending(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    agent = agent_with(reply(call("work", id="a")), "Done.", tools=[tool("work", lambda *given: agent.save(path))])
    agent.prompt("hi")
    again = Agent.load(path, scripted_model(), tools=[tool("work")], stream_fn=scripted("Sorry."))

    assert [one["id"] for one in again.pending_calls] == ["a"]
    assert again.resume({"a": allow()}).text == "Sorry."


@pytest.mark.parametrize(
    "content",
    [
        "", "notes", "[]", "{}", '{"type":"session","version":1}', '{"type":"agent","version":1}',
        '{"type":"agent","version":2,"messages":[]}', '{"type":"agent","version":1,"messages":[{"role":"user"}]}',
        '{"type":"agent","version":1,"messages":7}', '{"type":"agent","version":1,"messages":[7]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_file_that_no_agent_was_saved_to_is_refused_untouched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a"
    path.write_text(content)
    with pytest.raises(SessionCorruptError, match=r"is no file that `Agent\.save` wrote") as caught:
        Agent.load(path, scripted_model())

    assert caught.value.path == str(path)
    assert path.read_text() == content


def test_loading_a_file_that_is_missing_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Agent.load(tmp_path / "a", scripted_model())


def test_a_loaded_conversation_and_a_session_are_not_mixed(tmp_path: Path, session: Session) -> None:
    agent = agent_with("one")
    agent.prompt("hi")
    agent.save(tmp_path / "a")
    with pytest.raises(ValueError, match="leave `messages` out"):
        Agent.load(tmp_path / "a", scripted_model(), session=session)


# --- how long it is -------------------------------------------------------------------------------------------------


def test_the_status_tells_how_long_the_conversation_is() -> None:
    agent = agent_with(reply("one", usage=Usage(input=500, output=20)), "x" * 400)
    assert agent.status().tokens == 0
    agent.prompt("hi")
    assert agent.status().tokens == 520
    agent.prompt("x" * 400)

    assert 720 <= agent.status().tokens <= 740
    assert isinstance(agent.messages[-1], AssistantMessage)
    with pytest.raises(NothingToContinueError):
        agent.continue_()
