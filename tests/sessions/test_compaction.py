"""`compact` cuts where no call is parted from its results, and what it leaves is a conversation that any API takes."""

import re
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import (
    AbortController,
    AbortRequested,
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ErrorInfo,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    run_agent_loop,
)
from agentcore._records import now_ms
from agentcore.compaction import Compaction, compact, summarize_with
from agentcore.testing import call, reply, scripted, scripted_model
from agentcore.tokens import estimate_message_tokens, estimate_tokens
from tests.agent.agent_support import tool
from tests.sessions.wire_rules import APIS, problems_of_request, refusals, request_of

EVERYTHING = 10**9


def counted(messages: Sequence[Any], previous: str | None, signal: Any) -> str:
    """Summarise in one line: how many messages, and from which summary it goes on."""
    return f"{len(messages)} messages" + (f" after ({previous})" if previous is not None else "")


def calls(*ids: str, text: str = "", **fields: Any) -> AssistantMessage:
    blocks = [TextContent(text)] if text else []
    return AssistantMessage(
        [*blocks, *(ToolCall(id, "look", {"n": 1}) for id in ids)], stop_reason="tool_use", **fields
    )


def result(id: str, text: str = "seen") -> ToolResultMessage:
    return ToolResultMessage(id, "look", text)


def failed(*content: Any, reason: str = "error") -> AssistantMessage:
    return AssistantMessage(content, stop_reason=reason, error=ErrorInfo("overloaded", "busy"))


def transcript() -> list[Any]:
    """Return a conversation with everything that makes cutting hard."""
    return [
        UserMessage("begin"),
        calls("a", "b", "c", text="three at once"),
        result("b"), result("a"), result("c"),  # not in their order
        calls("a"), result("a"),  # the id once more, in the next turn
        calls("a", "a"), result("a"), result("a"),  # and twice in one
        UserMessage("steered"), BashExecutionMessage("ls", "x.txt", 0),
        AssistantMessage([ThinkingContent("hm"), TextContent("done")]),
        UserMessage([TextContent("look"), ImageContent("aGk=", "image/png")]),
        failed(TextContent("half"), ToolCall("z", "look", {}), reason="aborted"), result("z"),  # an orphan for replay
        UserMessage("again"),
        failed(), failed(TextContent("quarter")),
        calls("d", "e"), result("d"),
        CustomMessage("note", "between the results"),
        result("e"),
        BranchSummaryMessage("another way", "x"),
        AssistantMessage("so"),
        AssistantMessage("and so"),
        CompactionSummaryMessage("an old one in the middle", 5, timestamp=1),
        UserMessage("more"),
        calls("f", "g"), result("f"),  # one never answered
        UserMessage("go on"),
        calls("h"), result("h"),
        calls("i"), result("i"),
    ]  # fmt: skip


def every_cut(messages: Sequence[Any], **options: Any) -> list[Compaction]:
    """Compact a conversation at each place where it can be cut, from the last to the first."""
    found: dict[int, Compaction] = {}
    sizes = [*map(estimate_message_tokens, messages)]
    for keep in [sum(sizes[begin:]) for begin in range(len(sizes) + 1)]:
        done = compact(messages, keep, counted, **options)
        if done is not None:
            found.setdefault(len(done.kept), done)
    return list(found.values())


def parted(kept: Sequence[Any], messages: Sequence[Any]) -> list[str]:
    """Return the results that were kept without their call, and the calls without their results."""
    waiting: dict[str, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for one in message.tool_calls:
                waiting.setdefault(one.id, []).append(index)
        elif isinstance(message, ToolResultMessage):
            pairs.append((waiting[message.tool_call_id].pop(), index))
    stay = {id(message) for message in kept}
    return [
        f"{asked} and {told} were parted"
        for asked, told in pairs
        if (id(messages[asked]) in stay) != (id(messages[told]) in stay)
    ]


# --- where it cuts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_user_messages", [False, True])
def test_no_cut_parts_a_call_from_its_results_and_every_api_takes_what_is_left(keep_user_messages: bool) -> None:
    messages = transcript()
    cuts = every_cut(messages, keep_user_messages=keep_user_messages)

    assert len(cuts) > 8
    for done in cuts:
        users = [one for one in done.kept if isinstance(one, UserMessage)] if keep_user_messages else []
        assert parted(done.kept, messages) == []
        assert sorted(map(id, [*done.kept, *done.dropped])) == sorted(map(id, messages))
        assert [one for one in messages if isinstance(one, UserMessage)] == users or not keep_user_messages
        assert list(done.kept) == [one for one in messages if any(one is kept for kept in done.kept)]
        assert done.messages == [done.summary, *done.kept]
        for api in APIS:
            assert refusals(done.messages, api) == []


def test_a_conversation_compacted_again_and_again_stays_acceptable() -> None:
    for first in every_cut(transcript()):
        for second in every_cut(first.messages):
            assert second.summary.summary.endswith(f"after ({first.summary.summary})")
            assert [*map(id, second.dropped), *map(id, second.kept)] == [*map(id, first.kept)]
            for api in APIS:
                assert refusals(second.messages, api) == []


def blocks() -> st.SearchStrategy[list[Any]]:
    ids = st.sampled_from(["a", "b", "c"])
    one = st.one_of(
        st.just("user").map(UserMessage),
        st.lists(ids, max_size=3).map(lambda given: calls(*given)),
        ids.map(result),
        st.lists(ids, max_size=2).map(lambda given: failed(*(ToolCall(id, "look", {}) for id in given))),
        st.just(BranchSummaryMessage("b", "x")),
        st.just(AssistantMessage("said")),
    )
    return st.lists(one, max_size=14).map(lambda given: [UserMessage("begin"), *given])


@settings(max_examples=150)
@given(messages=blocks(), keep=st.integers(0, 60))
def test_whatever_is_cut_every_api_takes_what_is_left(messages: list[Any], keep: int) -> None:
    done = compact(messages, keep, counted)
    if done is not None:
        for api in APIS:
            assert refusals(done.messages, api) == []


def pairs_of(messages: Sequence[Any]) -> list[tuple[int, int]]:
    """Return where each call's message and its result are; of calls with one id the latest is answered first."""
    waiting: dict[str, list[int]] = {}
    pairs = []
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for one in message.tool_calls:
                waiting.setdefault(one.id, []).append(index)
        elif isinstance(message, ToolResultMessage) and waiting.get(message.tool_call_id):
            pairs.append((waiting[message.tool_call_id].pop(), index))
    return pairs


@settings(max_examples=150)
@given(messages=blocks(), keep=st.integers(0, 60), keep_user_messages=st.booleans())
def test_whatever_is_cut_no_call_is_parted_and_everything_is_either_kept_or_dropped(
    messages: list[Any], keep: int, keep_user_messages: bool
) -> None:
    messages = [attrs.evolve(message) for message in messages]  # each an object of its own
    done = compact(messages, keep, counted, keep_user_messages=keep_user_messages)

    if done is None:
        return
    stays = {id(message) for message in done.kept}
    assert [message for message in messages if id(message) in stays] == list(done.kept)
    assert [message for message in messages if id(message) not in stays] == list(done.dropped)
    assert all((id(messages[a]) in stays) == (id(messages[b]) in stays) for a, b in pairs_of(messages))
    assert not isinstance(done.kept[0], ToolResultMessage)
    # More than asked for is kept only of the last turn, of which there is no earlier one to cut before.
    if not keep_user_messages and estimate_tokens(done.kept) > keep:
        less = compact(messages, 0, counted)
        assert less is not None
        assert len(less.kept) == len(done.kept)


def test_what_was_used_before_a_compaction_is_the_past_though_the_clock_was_set_back() -> None:
    # The last turn, which is kept, was answered when the clock was ahead.
    ahead = now_ms() + 3_600_000
    messages = [
        UserMessage("begin", timestamp=ahead),
        AssistantMessage("answer", usage=Usage(input=100_000), timestamp=ahead + 1),
        UserMessage("again", timestamp=ahead + 2),
        AssistantMessage("answer", usage=Usage(input=190_000), timestamp=ahead + 3),
    ]
    done = compact(messages, 0, counted)

    assert done is not None
    assert done.kept == tuple(messages[2:])
    assert estimate_tokens(messages) == 190_000
    assert estimate_tokens(done.messages) < 1000


def sizes(keep: int, messages: Sequence[Any]) -> int | None:
    done = compact(messages, keep, counted)
    return None if done is None else len(done.kept)


def test_as_much_is_kept_as_fits_but_the_last_turn_always() -> None:
    turn = [UserMessage("x" * 400), AssistantMessage("y" * 400)]
    messages = [*turn, *turn, *turn]
    size = sum(map(estimate_message_tokens, turn))

    assert [sizes(keep, messages) for keep in (0, size - 1, size, 2 * size - 1, 2 * size, 3 * size - 1)] == [
        2, 2, 2, 2, 4, 4
    ]  # fmt: skip
    assert sizes(3 * size, messages) is None


def test_what_fits_as_a_whole_or_has_only_one_turn_is_not_compacted() -> None:
    asked = []

    def noted(*given: Any) -> str:
        asked.append(given)
        return "?"

    assert compact([], 0, noted) is None
    assert compact([UserMessage("x")], 0, noted) is None
    assert compact([UserMessage("x"), calls("a", "b"), result("a"), result("b")], 0, noted) is None
    assert compact([CompactionSummaryMessage("s", 1), UserMessage("x")], 0, noted) is None
    assert compact(transcript(), EVERYTHING, noted) is None
    assert compact([UserMessage("x"), AssistantMessage("y"), UserMessage("z")], 0, noted, keep_user_messages=True)
    assert compact([AssistantMessage("y"), UserMessage("z")], EVERYTHING, noted) is None
    assert len(asked) == 1


def test_a_conversation_of_user_messages_that_all_stay_is_left_alone() -> None:
    messages = [UserMessage("a"), failed(), UserMessage("b"), AssistantMessage("c"), UserMessage("d")]

    assert compact(messages[:1] + messages[3:], 0, counted, keep_user_messages=True) is not None
    assert compact([UserMessage("a"), UserMessage("b")], 0, counted, keep_user_messages=True) is None


def test_a_response_that_failed_is_no_turn_to_keep() -> None:
    messages = [UserMessage("go"), calls("a"), result("a"), calls("b"), result("b"), failed()]
    done = compact(messages, 0, counted)

    assert done is not None
    assert list(done.kept) == messages[3:]


def test_a_turn_that_a_run_begins_with_goes_with_what_the_user_said() -> None:
    messages = [
        UserMessage("one"),
        AssistantMessage("1"),
        UserMessage("two"),
        UserMessage("three"),
        AssistantMessage("2"),
    ]
    done = compact(messages, 0, counted)

    assert done is not None
    assert list(done.kept) == messages[2:]


def test_the_conversation_that_was_given_stays_as_it_was() -> None:
    messages = transcript()
    before = list(messages)
    every_cut(messages)

    assert all(one is other for one, other in zip(messages, before, strict=True))
    assert len(messages) == len(before)


# --- what it gives --------------------------------------------------------------------------------------------------


def test_the_summary_says_how_long_it_was_and_the_compaction_what_became_of_it() -> None:
    messages = [UserMessage("one"), AssistantMessage("1", usage=Usage(input=900, output=100)), UserMessage("two")]
    given: list[Any] = []

    def summarize(*args: Any) -> str:
        given.append(args)
        return "  They said one.\n"

    signal = AbortController().signal
    done = compact(tuple(messages), 0, summarize, signal=signal)

    assert done is not None
    assert done.summary.summary == "They said one."
    assert done.summary.tokens_before == estimate_tokens(messages) > 1000
    assert (done.kept, done.dropped, done.usage) == ((messages[2],), tuple(messages[:2]), None)
    assert [(list(args[0]), *args[1:]) for args in given] == [(messages[:2], None, signal)]
    assert "They said one" in repr(done)


def test_a_model_may_be_the_author_and_its_usage_is_passed_on() -> None:
    message = AssistantMessage("by a model", usage=Usage(input=5, output=2))
    done = compact([UserMessage("one"), AssistantMessage("1"), UserMessage("two")], 0, lambda *given: message)

    assert done is not None
    assert (done.summary.summary, done.usage) == ("by a model", message.usage)


@pytest.mark.parametrize("answer", ["", " \n\t", AssistantMessage(""), AssistantMessage([ThinkingContent("hm")])])
def test_an_empty_summary_is_an_error(answer: Any) -> None:
    with pytest.raises(ValueError, match="the summary is empty"):
        compact(transcript(), 0, lambda *given: answer)


@pytest.mark.parametrize("answer", [None, 7, ["text"]])
def test_a_summary_that_is_no_text_is_an_error(answer: Any) -> None:
    with pytest.raises(TypeError, match="`summarize` returned"):
        compact(transcript(), 0, lambda *given: answer)


def test_what_summarize_raises_is_raised() -> None:
    def broken(*given: Any) -> str:
        raise LookupError("no model")

    with pytest.raises(LookupError, match="no model"):
        compact(transcript(), 0, broken)


def test_an_abort_during_the_summary_is_an_abort_whatever_came_of_it() -> None:
    controller = AbortController()

    def aborted(*given: Any) -> str:
        controller.abort("enough")
        return "too late"

    with pytest.raises(AbortRequested):
        compact(transcript(), 0, aborted, signal=controller.signal)


# --- in a plain run -------------------------------------------------------------------------------------------------


def test_a_plain_run_compacts_inside_transform_context() -> None:
    upto, instead, asked = 0, [], []  # type: ignore[var-annotated]
    summaries = scripted("the first half", "all but the last")

    def transform(messages: list[Any], signal: Any) -> list[Any]:
        nonlocal upto, instead
        current = [*instead, *messages[upto:]]
        if estimate_tokens(current) > 600:
            asked.append(len(current))
            done = compact(current, 300, summarize_with(scripted_model(), summaries), signal=signal)
            if done is not None:
                upto, instead = len(messages), done.messages
                return done.messages
        return current

    replies = [reply(call("look", id="same")) for _ in range(6)]
    model = scripted(*replies, "Done.")
    config = AgentLoopConfig(model=scripted_model(), transform_context=transform)
    look = tool("look", lambda *given: "x" * 800)
    new = run_agent_loop("go", AgentContext("", (), (look,)), config, lambda event: None, None, model)

    assert len(new) == 14  # the run keeps its whole conversation
    sent = [[message.role for message in request.messages] for request in model.requests]
    assert [len(one) for one in sent] == [1, 3, 5, 3, 5, 3, 5]
    assert sent[3] == ["user", "assistant", "toolResult"]
    assert asked == [7, 7]
    second = summaries.requests[1].messages[0].content
    assert "<summary>\nthe first half\n</summary>" in second
    for request in model.requests:
        for api in APIS:
            assert refusals(request.messages, api) == []


# --- the checks themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_the_checks_of_a_request_can_fail(api: str) -> None:
    answered = [UserMessage("x"), calls("a", "b"), result("a"), result("b"), UserMessage("y")]
    payload = request_of(answered, api)
    key = next(key for key in ("messages", "input", "contents") if key in payload)
    results = [at for at, item in enumerate(payload[key]) if re.search(RESULT, str(item))]
    called = [at for at, item in enumerate(payload[key]) if re.search(CALL, str(item))]

    assert problems_of_request(payload, api) == []
    assert problems_of_request(without(payload, key, results[-1:]), api)
    assert problems_of_request(without(payload, key, called), api)


RESULT = "'tool_result'|'role': 'tool'|'function_call_output'|'functionResponse'"
CALL = "'tool_use'|'tool_calls'|'function_call'|'functionCall'"


def without(payload: dict[str, Any], key: str, places: list[int]) -> dict[str, Any]:
    return {**payload, key: [item for at, item in enumerate(payload[key]) if at not in places]}


def test_the_check_for_parted_calls_can_fail() -> None:
    messages = [calls("a", "b"), result("a"), result("b")]

    assert parted(messages[1:], messages) == ["0 and 1 were parted", "0 and 2 were parted"]
    assert parted(messages, messages) == parted([], messages) == []
