"""An agent that compacts by itself: when, once, in which place of the events, and leaving everything if it fails."""

import itertools
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AbortRequested,
    Agent,
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    AssistantMessage,
    ErrorInfo,
    Limits,
    Usage,
    UserMessage,
)
from agentcore.compaction import auto_compact
from agentcore.events import CompactionEndEvent, CompactionStartEvent
from agentcore.sessions import Session
from agentcore.testing import Gate, call, failure, reply, scripted, scripted_model
from tests.agent.agent_support import agent_with, requests, roles, said, tool, transcript_problems
from tests.sessions.wire_rules import APIS, refusals

LONG = "x" * 4000  # about 1,000 tokens


def counted(messages: Sequence[Any], previous: str | None, signal: Any) -> str:
    return f"S({len(messages)})" if previous is None else f"S({previous},{len(messages)})"


def overflow(text: str = "prompt is too long: 210000 tokens > 200000 maximum", *parts: Any) -> Any:
    return failure(text, *parts, kind="context_overflow")


def look(text: str = LONG) -> Any:
    return tool("look", lambda *given: text)


def turns(count: int, **fields: Any) -> list[Any]:
    return [reply(call("look", id="same"), **fields) for _ in range(count)]


def long_talk(rounds: int = 4) -> list[Any]:
    """Return a conversation of about 1,000 tokens a round."""
    return [message for _ in range(rounds) for message in (UserMessage(LONG), AssistantMessage("Fine."))]


class Heard:
    """What the listeners of an agent were told, without the pieces of the responses."""

    def __init__(self, agent: Agent) -> None:
        self.events: list[Any] = []
        agent.subscribe(lambda event, signal: None if event.type == "message_update" else self.events.append(event))

    @property
    def lines(self) -> list[str]:
        return [self.line(event) for event in self.events]

    @staticmethod
    def line(event: Any) -> str:
        if event.type == "message_end":
            return f"message_end {event.message.role}"
        if isinstance(event, CompactionStartEvent):
            return f"compaction_start {event.reason}"
        return str(event.type)

    @property
    def ends(self) -> list[CompactionEndEvent]:
        return [event for event in self.events if isinstance(event, CompactionEndEvent)]

    def around(self, kind: str = "compaction") -> list[str]:
        """Return the events from the one before the first of a kind to the one after the last."""
        at = [number for number, line in enumerate(self.lines) if line.startswith(kind)]
        return self.lines[at[0] - 1 : at[-1] + 2]


def compacting(*replies: Any, threshold: int | None = 2500, keep: int = 500, **given: Any) -> tuple[Agent, Heard]:
    """Return an agent that compacts by itself, and what it tells."""
    options = {name: given.pop(name) for name in ("summarize", "keep_user_messages") if name in given}
    agent = agent_with(*replies, tools=given.pop("tools", [look()]), **given)
    auto_compact(agent, threshold, keep_tokens=keep, **{"summarize": counted, **options})
    return agent, Heard(agent)


def check(agent: Agent) -> None:
    """See that a transcript is one that every API takes, and the same as the session."""
    assert transcript_problems(agent.messages) == []
    for api in APIS:
        assert refusals(agent.messages, api) == []


# --- over the threshold ---------------------------------------------------------------------------------------------


def test_the_conversation_is_compacted_between_turns_once_it_is_too_long(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        agent, heard = compacting(*turns(4), "Done.", session=session)
        agent.prompt("go")

        assert heard.around() == ["turn_end", "compaction_start threshold", "compaction_end", "turn_start"]
        assert [len(request.messages) for request in requests(agent)] == [1, 3, 5, 3, 5]
        assert [message.role for message in requests(agent)[3].messages] == ["user", "assistant", "toolResult"]
        assert roles(agent) == ["compactionSummary", *["assistant", "toolResult"] * 2, "assistant"]
        assert agent.messages[0].summary == "S(5)"  # type: ignore[attr-defined]
        (end,) = heard.ends
        assert end.summary is agent.messages[0]
        assert 1000 < end.tokens < 1100
        check(agent)
        assert Session.read(session.path).messages() == agent.messages
        assert [entry.kind for entry in session.entries()] == ["message"] * 7 + ["compaction"] + ["message"] * 3


def test_a_conversation_that_is_too_long_at_the_start_is_compacted_before_the_first_request(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        for message in long_talk():
            session.append(message)
        agent, heard = compacting(*turns(2), "Done.", session=session)
        agent.prompt("go")

        assert heard.lines[:9] == [
            "agent_start",
            "turn_start",
            "message_start",
            "message_end user",
            "compaction_start threshold",
            "compaction_end",
            "message_start",
            "message_end assistant",
            "tool_execution_start",
        ]
        assert len(heard.ends) == 1
        assert [len(request.messages) for request in requests(agent)] == [2, 4, 6]
        assert [message.role for message in requests(agent)[0].messages] == ["user", "user"]
        assert requests(agent)[0].messages[1].content == "go"
        assert roles(agent) == ["compactionSummary", "user", *["assistant", "toolResult"] * 2, "assistant"]
        check(agent)
        assert Session.read(session.path).messages() == agent.messages


@pytest.mark.parametrize("how", ["stream", "continue", "steer"])
def test_every_kind_of_run_is_compacted_before_its_first_request(how: str) -> None:
    agent, heard = compacting(
        "Done.", "Done.", messages=[*long_talk(), *([UserMessage("go")] if how == "continue" else [])]
    )
    if how == "stream":
        streamed = [event.type for event in agent.stream("go")]
        assert streamed.count("compaction_start") == streamed.count("compaction_end") == 1
    elif how == "continue":
        agent.continue_()
    else:
        agent.steer("go")
        agent.continue_()

    assert len(heard.ends) == 1
    assert [len(request.messages) for request in requests(agent)] == [2]
    assert roles(agent) == ["compactionSummary", "user", "assistant"]


def test_a_message_that_makes_it_too_long_in_between_is_looked_at_too() -> None:
    agent, heard = compacting(*turns(1), "One.", "Two.", threshold=2500)

    def steer(event: Any, signal: Any) -> None:
        if event.type == "turn_end" and len(agent.messages) == 3:
            agent.steer(LONG)
            agent.steer(LONG)

    agent.steering_mode = "all"
    agent.subscribe(steer)
    agent.prompt("go")

    assert heard.around() == ["message_end user", "compaction_start threshold", "compaction_end", "message_start"]
    assert roles(agent) == ["compactionSummary", "user", "user", "assistant"]
    assert said(agent) == [LONG, LONG]
    assert len(requests(agent)) == 2


def test_after_the_last_answer_nothing_is_compacted_until_something_follows() -> None:
    agent, heard = compacting(
        reply("Done.", usage=Usage(input=9000, output=10)), "Next.", messages=long_talk(1), threshold=2500
    )
    agent.prompt("go")
    assert heard.ends == []
    agent.prompt("more")

    assert len(heard.ends) == 1
    assert roles(agent) == ["compactionSummary", *["user", "assistant"] * 2]


def test_the_threshold_is_four_fifths_of_the_window_when_it_is_left_out() -> None:
    for window, compactions in ((4000, 0), (3700, 1), (None, 0)):
        agent, heard = compacting(*turns(3), "Done.", threshold=None)
        agent.model = scripted_model(context_window=window)
        agent.prompt("go")
        assert len(heard.ends) == compactions


def test_usage_of_before_a_compaction_does_not_cause_another_one() -> None:
    used = Usage(input=190_000, output=10)
    small = Usage(input=2_000, output=10)
    agent, heard = compacting(
        *turns(2, usage=used),
        *turns(2, usage=small),
        "Done.",
        "Next.",
        threshold=160_000,
        keep=1500,
        tools=[look("short")],
    )
    agent.prompt("go")
    agent.prompt("more")

    # After the first turn there is nothing to compact, since it is the last one, too.
    assert [end.error for end in heard.ends] == [None]
    assert len(requests(agent)) == 6


def test_what_a_compaction_has_left_is_not_compacted_again_though_it_is_still_too_long() -> None:
    agent, heard = compacting("Done.", messages=long_talk(), threshold=1200)
    agent.prompt([UserMessage(LONG), UserMessage(LONG)])

    assert len(heard.ends) == 1
    assert heard.ends[0].tokens > 1200
    assert roles(agent) == ["compactionSummary", "user", "user", "assistant"]


def test_a_long_run_is_compacted_as_often_as_it_needs_and_each_summary_goes_on_from_the_last(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        agent, heard = compacting(*turns(9), "Done.", session=session, keep=1100)
        agent.prompt("go")

        assert [end.error for end in heard.ends] == [None] * 4
        assert heard.ends[2].summary.summary == "S(S(S(5),4),4)"  # type: ignore[union-attr]
        assert max(len(request.messages) for request in requests(agent)) == 5
        assert Session.read(session.path).messages() == agent.messages
        assert sum(entry.kind == "message" for entry in session.entries()) == 20


def test_what_the_user_said_stays_verbatim_if_asked_for() -> None:
    agent, _ = compacting("Done.", messages=[UserMessage("first"), *long_talk()], keep_user_messages=True)
    agent.prompt("go")

    assert roles(agent) == ["compactionSummary", *["user"] * 6, "assistant"]
    assert said(agent)[0] == "first"


def test_with_nothing_to_cut_nothing_is_said() -> None:
    agent, heard = compacting("Done.", threshold=100)
    agent.prompt(LONG)

    assert heard.ends == []
    assert roles(agent) == ["user", "assistant"]


# --- an overflow ----------------------------------------------------------------------------------------------------


def test_an_overflow_is_compacted_once_and_asked_again(tmp_path: Path) -> None:
    with Session.create(tmp_path / "a") as session:
        agent, heard = compacting(*turns(3), overflow(), "Done.", session=session, threshold=None, keep=20_000)
        answer = agent.prompt("go")

        assert answer.text == "Done."
        assert heard.around() == ["message_end assistant", "compaction_start overflow", "compaction_end", "turn_end"]
        assert [len(request.messages) for request in requests(agent)] == [1, 3, 5, 7, 4]
        assert [message.role for message in requests(agent)[4].messages] == [
            "user", "assistant", "toolResult", "assistant"
        ]  # fmt: skip
        assert agent.state.error_message is None
        check_kept = [message.stop_reason for message in agent.messages if isinstance(message, AssistantMessage)]
        assert check_kept == ["tool_use", "error", "stop"]
        for api in APIS:
            assert refusals(agent.messages, api) == []
        assert Session.read(session.path).messages() == agent.messages


def test_a_model_that_always_overflows_ends_with_its_error_after_one_compaction() -> None:
    agent, heard = compacting(overflow(), repeat=True, messages=long_talk())
    answer = agent.prompt("go")

    assert (answer.stop_reason, answer.error_message) == (
        "error",
        "prompt is too long: 210000 tokens > 200000 maximum",
    )
    assert agent.state.error_message == answer.error_message
    # Once before the first request, since it is over the threshold; then there is nothing left to cut.
    assert [event.reason for event in heard.events if isinstance(event, CompactionStartEvent)] == [
        "threshold",
        "overflow",
    ]
    assert [end.error for end in heard.ends] == [None, "there is nothing before the last turn to summarise"]
    assert len(requests(agent)) == 1


def test_without_a_threshold_a_model_that_always_overflows_is_asked_twice() -> None:
    agent, heard = compacting(overflow(), repeat=True, messages=long_talk(), threshold=None)
    assert agent.prompt("go").stop_reason == "error"

    assert len(heard.ends) == 1
    assert len(requests(agent)) == 2
    assert heard.lines[-3:] == ["message_end assistant", "turn_end", "agent_end"]
    assert heard.events[-1].reason == "error"


def test_each_overflow_of_a_run_is_compacted_once() -> None:
    replies = [*turns(2), overflow(), *turns(2), overflow(), overflow(), "never"]
    agent, heard = compacting(*replies, threshold=None)
    assert agent.prompt("go").stop_reason == "error"

    assert [end.error for end in heard.ends] == [None, None]
    assert len(requests(agent)) == 7


def test_failures_before_and_after_an_overflow_are_not_mistaken_for_it() -> None:
    def busy(context: Any, signal: Any) -> AgentLoopTurnUpdate | None:
        return AgentLoopTurnUpdate() if context.message.error.kind == "overloaded" else None

    script = [failure("busy"), overflow(), failure("busy"), overflow(), "never"]
    config = AgentLoopConfig(model=scripted_model(), recover_from_error=busy)
    agent, heard = compacting(*script, config=config, messages=long_talk(), threshold=None)
    assert agent.prompt("go").error_message == "prompt is too long: 210000 tokens > 200000 maximum"

    assert len(heard.ends) == 1
    assert len(requests(agent)) == 4


def test_other_failures_are_not_compacted() -> None:
    for answer in (
        failure("429: too many tokens per minute", kind="rate_limit"),
        failure("busy"),
        reply(stop_reason="error", error=ErrorInfo("connection", "reset")),
    ):
        agent, heard = compacting(answer, messages=long_talk(), threshold=None)
        assert agent.prompt("go").stop_reason == "error"
        assert heard.ends == []


def test_an_overflow_in_words_of_a_stream_function_counts_too() -> None:
    agent, heard = compacting(
        failure("This model's maximum context length is 8192 tokens", kind="invalid_request"), "Done.",
        messages=long_talk(), threshold=None,
    )  # fmt: skip
    assert agent.prompt("go").text == "Done."
    assert len(heard.ends) == 1


def test_an_overflow_with_nothing_to_cut_says_so_and_is_the_end() -> None:
    agent, heard = compacting(overflow(), threshold=None)
    assert agent.prompt(LONG).stop_reason == "error"

    assert [end.error for end in heard.ends] == ["there is nothing before the last turn to summarise"]
    assert heard.around() == ["message_end assistant", "compaction_start overflow", "compaction_end", "turn_end"]
    assert len(requests(agent)) == 1


# --- a summary that fails -------------------------------------------------------------------------------------------


def broken(*given: Any) -> str:
    raise LookupError("no such model")


@pytest.mark.parametrize(
    ("summarize", "error"),
    [
        (broken, "no such model"),
        (lambda *given: " ", "the summary is empty"),
        (lambda *given: None, "`summarize` returned NoneType, not text"),
        (lambda *given: AssistantMessage(()), "the summary is empty"),
    ],
)
def test_a_summary_that_fails_leaves_the_conversation_and_the_run_goes_on(
    summarize: Any, error: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), Session.create(tmp_path / "a") as session:
        agent, heard = compacting(*turns(3), "Done.", summarize=summarize, session=session)
        assert agent.prompt("go").text == "Done."

        assert [(end.summary, end.error) for end in heard.ends] == [(None, error)]
        assert roles(agent) == ["user", *["assistant", "toolResult"] * 3, "assistant"]
        assert Session.read(session.path).messages() == agent.messages
        assert [entry.kind for entry in session.entries()] == ["message"] * 8
    assert [record.message for record in caplog.records if record.name == "agentcore.compaction"] == [
        f"a compaction failed: {'LookupError' if summarize is broken else 'TypeError' if 'None' in error else 'ValueError'}"
    ]


def test_a_summary_that_failed_is_tried_again_when_the_conversation_has_grown() -> None:
    tried: list[int] = []

    def at_last(messages: Sequence[Any], previous: str | None, signal: Any) -> str:
        tried.append(len(messages))
        if len(tried) < 3:
            raise LookupError("not yet")
        return "at last"

    agent, heard = compacting(*turns(22), "Done.", summarize=at_last, tools=[look("x" * 800)], threshold=3000, keep=300)
    agent.prompt("go")

    # A turn is two messages of about 210 tokens, and a tenth of the threshold is 300.
    assert [later - earlier for earlier, later in itertools.pairwise(tried)] == [4, 4]
    assert [end.error for end in heard.ends] == ["not yet", "not yet", None]
    assert agent.messages[0].summary == "at last"  # type: ignore[attr-defined]


def test_a_summary_that_fails_after_an_overflow_leaves_the_error() -> None:
    agent, heard = compacting(overflow(), "never", messages=long_talk(), threshold=None, summarize=broken)
    before = agent.messages
    assert agent.prompt("go").stop_reason == "error"

    assert [end.error for end in heard.ends] == ["no such model"]
    assert agent.messages[: len(before)] == before
    assert len(requests(agent)) == 1


def test_a_session_that_cannot_note_the_compaction_is_raised_and_nothing_is_compacted() -> None:
    class Full:
        def messages(self) -> list[Any]:
            return long_talk()

        def append(self, message: Any) -> None:
            pass

        def append_compaction(self, summary: Any, kept: Any) -> None:
            raise OSError(28, "No space left on device")

    agent, heard = compacting("Done.", session=Full())
    with pytest.raises(OSError, match="No space left"):
        agent.prompt("go")

    assert [end.error for end in heard.ends] == ["[Errno 28] No space left on device"]
    assert roles(agent)[0] == "user"
    assert heard.lines[-1] == "agent_end"
    assert agent.status().phase == "idle"


# --- aborts and Ctrl-C ----------------------------------------------------------------------------------------------

PLACES: dict[str, Callable[[Any], tuple[Agent, Heard]]] = {
    "between turns": lambda summarize: compacting(*turns(3), "Done.", summarize=summarize),
    "before the first request": lambda summarize: compacting("Done.", messages=long_talk(), summarize=summarize),
    "after an overflow": lambda summarize: compacting(
        overflow(), "Done.", messages=long_talk(), threshold=None, summarize=summarize
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["the model of the run", "a function that looks", "a function that ignores it"])
def test_an_abort_during_the_summary_ends_the_run_and_leaves_the_conversation(place: str, how: str) -> None:
    gate = Gate()

    def looks(messages: Any, previous: Any, signal: Any) -> str:
        gate.hold(signal)
        if how == "a function that looks":
            signal.raise_if_aborted()
        return "too late"

    agent, heard = PLACES[place](None if how == "the model of the run" else looks)
    if how == "the model of the run":
        fn = agent.stream_fn
        summary = scripted(reply("too late", chunk=2, gates={1: gate}))

        def either(model: Any, context: Any, options: Any) -> Any:
            asks = "takes the place of the earlier part" in context.system_prompt
            return (summary if asks else fn)(model, context, options)  # type: ignore[misc]

        agent.stream_fn = either

    def abort() -> None:
        gate.wait_reached()
        agent.abort("enough")

    thread = threading.Thread(target=abort)
    thread.start()
    answer = agent.prompt("go")
    thread.join()

    # After a response that failed, that is the last word.
    reason = "error" if place == "after an overflow" else "aborted"
    assert answer.stop_reason == heard.events[-1].reason == reason
    assert [(end.summary, end.error) for end in heard.ends] == [(None, "it was stopped")]
    assert "compactionSummary" not in roles(agent)
    assert transcript_problems(agent.messages) == []
    gate.open()


@pytest.mark.parametrize("place", PLACES)
def test_what_asks_for_an_abort_during_the_summary_gets_one(place: str) -> None:
    def asks(*given: Any) -> str:
        raise AbortRequested("no more")

    agent, heard = PLACES[place](asks)
    reason = "error" if place == "after an overflow" else "aborted"
    assert agent.prompt("go").stop_reason == heard.events[-1].reason == reason

    assert [end.error for end in heard.ends] == ["it was stopped"]


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupt_during_the_summary_is_raised_and_the_next_prompt_works(place: str) -> None:
    pressed: list[bool] = []

    def interrupted(*given: Any) -> str:
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return "later"

    agent, heard = PLACES[place](interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.prompt("go")

    assert [end.error for end in heard.ends] == ["it was stopped"]
    assert heard.lines[-1] == "agent_end"
    assert "compactionSummary" not in roles(agent)
    assert transcript_problems(agent.messages) == []
    assert agent.prompt("more").stop_reason in ("stop", "tool_use", "error")
    assert transcript_problems(agent.messages) == []


CTRL_C = """
import json, threading, time
from agentcore import Agent, AssistantMessage, UserMessage
from agentcore.compaction import auto_compact
from agentcore.testing import Gate, reply, scripted, scripted_model

gate = Gate()
talk = [message for _ in range(4) for message in (UserMessage("x" * 4000), AssistantMessage("Fine."))]
model = scripted(reply("a summary", chunk=2, gates={1: gate}), "summary", "Done.")
agent = Agent(scripted_model(), messages=talk, stream_fn=model)
auto_compact(agent, 2500, keep_tokens=500)
ends = []
agent.subscribe(lambda event, signal: ends.append(event.error) if event.type == "compaction_end" else None)

def say():
    gate.wait_reached()
    print("ready", flush=True)

threading.Thread(target=say).start()
try:
    agent.prompt("go")
except KeyboardInterrupt:
    raised = time.monotonic()
gate.open()
answer = agent.prompt("again")
print(json.dumps({"raised": raised, "ends": ends, "answer": answer.text,
                  "roles": [message.role for message in agent.messages]}))
"""


def test_ctrl_c_during_the_summary_is_raised_in_time() -> None:
    child = subprocess.Popen([sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        told = json.loads(next(line for line in child.stdout if line.startswith("{")))
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

    assert told["raised"] - sent < 1.5
    assert told["ends"] == ["it was stopped", None]
    assert told["answer"] == "Done."
    assert told["roles"][0] == "compactionSummary"


# --- with other hooks -----------------------------------------------------------------------------------------------


def test_the_hooks_of_the_agent_are_asked_first_and_see_what_is_sent() -> None:
    seen: list[list[str]] = []

    def transform(messages: list[Any], signal: Any) -> list[Any]:
        seen.append([message.role for message in messages])
        messages.append(UserMessage("remember"))  # it is a list of its own
        return messages

    prepared: list[int] = []

    def prepare(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        prepared.append(len(context.context.messages))
        return AgentLoopTurnUpdate(thinking_level="high")  # type: ignore[arg-type]

    config = AgentLoopConfig(model=scripted_model(), transform_context=transform)
    agent, heard = compacting(*turns(1), "Done.", messages=long_talk(), config=config, prepare_next_turn=prepare)
    agent.prompt("go")

    assert seen == [["compactionSummary", "user"], ["compactionSummary", "user", "assistant", "toolResult"]]
    assert [request.messages[-1].content for request in requests(agent)] == ["remember", "remember"]
    assert requests(agent)[1].options.reasoning == "high"
    assert prepared == [11, 5]  # before the first request only what is sent was changed
    assert len(heard.ends) == 1
    assert "remember" not in said(agent)


def test_a_hook_set_after_attaching_is_used_and_compaction_goes_on() -> None:
    agent, heard = compacting(*turns(3), "Done.")
    seen: list[Any] = []
    agent.prepare_next_turn = lambda context, signal: seen.append(context)
    agent.prompt("go")

    assert len(seen) == 4
    assert len(heard.ends) == 1


def test_a_context_that_a_hook_has_put_in_place_is_compacted_and_the_transcript_is_not() -> None:
    own = [UserMessage("mine"), *long_talk(3), UserMessage("and now")]

    def prepare(context: Any, signal: Any) -> AgentLoopTurnUpdate | None:
        if len(context.new_messages) != 3:
            return None
        return AgentLoopTurnUpdate(context=AgentContext("Other.", own, context.context.tools))

    agent, heard = compacting(*turns(1), "Done.", tools=[look("short")], prepare_next_turn=prepare)
    agent.prompt("go")

    assert len(heard.ends) == 1
    assert heard.ends[0].error is None
    assert [message.role for message in requests(agent)[1].messages] == ["user", "user"]
    assert requests(agent)[1].context.system_prompt == "Other."
    assert roles(agent) == ["user", "assistant", "toolResult", "assistant"]


def test_an_update_that_is_none_is_refused_by_the_loop_as_ever() -> None:
    agent, _ = compacting(*turns(1), "Done.", prepare_next_turn=lambda context, signal: "yes")
    with pytest.raises(TypeError, match="`prepare_next_turn` returned str"):
        agent.prompt("go")


def test_a_recovery_of_the_agents_own_comes_before_a_compaction() -> None:
    def recover(context: Any, signal: Any) -> AgentLoopTurnUpdate | None:
        return AgentLoopTurnUpdate(model=scripted_model(id="larger")) if context.attempt == 1 else None

    config = AgentLoopConfig(model=scripted_model(), recover_from_error=recover)
    script = [overflow(), overflow(), "Done."]
    agent, heard = compacting(*script, messages=long_talk(), threshold=None, config=config)
    assert agent.prompt("go").text == "Done."

    assert len(heard.ends) == 1
    assert [request.model.id for request in requests(agent)] == ["scripted-1", "larger", "larger"]


def test_a_model_that_a_hook_has_chosen_sets_the_threshold_and_writes_the_summary() -> None:
    small = scripted_model(id="small", context_window=2500)

    def prepare(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        return AgentLoopTurnUpdate(model=small)

    fn = scripted(*turns(2), "A summary.", "Done.")
    agent = Agent(scripted_model(context_window=100_000), tools=[look()], stream_fn=fn, prepare_next_turn=prepare)
    auto_compact(agent, keep_tokens=500)
    agent.prompt("go")

    assert [request.model.id for request in fn.requests] == ["scripted-1", "small", "small", "small"]
    assert agent.messages[0].summary == "A summary."  # type: ignore[attr-defined]


def test_it_can_be_taken_back() -> None:
    agent = agent_with(*turns(3), "Done.", tools=[look()])
    heard = Heard(agent)
    take_back = auto_compact(agent, 2500, keep_tokens=500, summarize=counted)
    take_back()
    agent.prompt("go")

    assert heard.ends == []
    assert agent.transform_context is agent.prepare_next_turn is agent.recover_from_error is None


@pytest.mark.parametrize("numbers", [{"threshold": 0}, {"threshold": -5}, {"keep_tokens": -1}])
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="numbers of tokens"):
        auto_compact(agent_with(), **numbers)


# --- the summary of its own -----------------------------------------------------------------------------------------


def test_the_summary_is_made_by_the_model_of_the_run_as_the_run_asks_it() -> None:
    fn = scripted(
        reply("A summary.", usage=Usage(input=3000, output=100)), reply("Done.", usage=Usage(input=50, output=5))
    )
    model = scripted_model(cost={"input": 1000.0, "output": 0.0})
    session = object()
    config = AgentLoopConfig(
        model=model,
        get_api_key=lambda provider: f"key for {provider}",
        headers={"x-team": "a"},
        temperature=0.7,
        max_tokens=99,
        session_id="s",
        session=session,
        max_retries=5,
    )
    agent = Agent(model, messages=long_talk(), stream_fn=fn, config=config, thinking_level="high")
    auto_compact(agent, 2500, keep_tokens=500)
    heard = Heard(agent)
    agent.prompt("go")
    options = fn.requests[0].options

    assert (options.api_key, options.headers, options.session, options.max_retries) == (
        "key for scripted", {"x-team": "a"}, session, 5
    )  # fmt: skip
    assert (options.temperature, options.max_tokens, options.session_id, options.reasoning) == (None,) * 4
    assert "[user]\nxxxx" in fn.requests[0].messages[0].content
    assert agent.messages[0].summary == "A summary."  # type: ignore[attr-defined]
    assert heard.ends[0].usage == Usage(
        input=3000, output=100, cost={"input": 3.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0, "total": 3.0}
    )
    assert agent.status().usage.total_tokens == 3155
    assert agent.status().cost == pytest.approx(3.05)


def test_what_summaries_take_counts_for_the_limits_of_the_run() -> None:
    fn = scripted(reply("A summary.", usage=Usage(input=3000, output=100)), *turns(3))
    agent = Agent(scripted_model(), messages=long_talk(), tools=[look()], stream_fn=fn, limits=Limits(tokens=3000))
    auto_compact(agent, 2500, keep_tokens=500)
    heard = Heard(agent)
    agent.prompt("go")

    assert heard.events[-1].reason == "limit:tokens"
    assert len(fn.requests) == 2


def test_messages_of_an_application_are_summarised_as_the_model_saw_them() -> None:
    class Note:
        role = "note"
        timestamp = 1

        def to_dict(self) -> dict[str, Any]:
            return {"role": "note", "timestamp": 1}

    def convert(messages: Sequence[Any]) -> list[Any]:
        return [UserMessage("a note") if isinstance(message, Note) else message for message in messages]

    fn = scripted("A summary.", "Done.")
    config = AgentLoopConfig(model=scripted_model(), convert_to_llm=convert)
    agent = Agent(scripted_model(), messages=[Note(), *long_talk()], stream_fn=fn, config=config)
    auto_compact(agent, 2500, keep_tokens=500)
    agent.prompt("go")

    assert "[user]\na note" in fn.requests[0].messages[0].content


# --- over processes -------------------------------------------------------------------------------------------------


def test_an_agent_resumed_from_a_compacted_session_goes_on_with_the_summary(tmp_path: Path) -> None:
    used = Usage(input=190_000, output=10)
    with Session.create(tmp_path / "a") as session:
        agent, heard = compacting(
            *turns(2, usage=used), "Done.", session=session, threshold=160_000, keep=1100, tools=[look()]
        )
        agent.prompt("go")
        assert [end.error for end in heard.ends] == [None]
        assert agent.messages[1].usage == used  # type: ignore[attr-defined]
        before = agent.messages
    with Session.open(tmp_path / "a") as session:
        again, heard = compacting("Next.", session=session, threshold=160_000, keep=1100)
        assert again.messages == before
        assert again.status().tokens < 3000  # the usage that is left was reported before the compaction
        again.prompt("more")

        assert heard.ends == []
        assert requests(again)[0].messages[0].content.startswith("The conversation before this point")
        assert session.messages()[: len(before)] == before
