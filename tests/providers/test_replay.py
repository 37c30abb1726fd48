"""Any transcript becomes one that any API accepts, and the caller's own stays as it was."""

import copy
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.messages import (
    AssistantMessage,
    CustomMessage,
    ErrorInfo,
    ToolResultMessage,
    UserMessage,
)
from agentcore.models import Model
from agentcore.providers._replay import IdRule, clean_json, clean_text, replayable

MODEL = Model("m", provider="p", api="a", input=("text", "image"))
BLIND = Model("m", provider="p", api="a")


def user(text: str = "go on") -> UserMessage:
    return UserMessage(text, timestamp=1)


def said(*content: Any, stop_reason: str = "stop", **origin: str) -> AssistantMessage:
    origin = {"provider": "p", "api": "a", "model": "m", **origin}
    blocks = [TextContent(block) if isinstance(block, str) else block for block in content]
    return AssistantMessage(blocks, stop_reason=stop_reason, timestamp=2, **origin)


def call(id: str, name: str = "f", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def result(id: str, text: str = "ok", name: str = "f") -> ToolResultMessage:
    return ToolResultMessage(id, name, text, timestamp=3)


def pairs(messages: list[Any]) -> list[tuple[str, ...]]:
    """Return who said what, in short."""
    short: list[tuple[str, ...]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            short.append(("assistant", message.text, *[item.id for item in message.tool_calls]))
        elif isinstance(message, ToolResultMessage):
            short.append(("result", message.tool_call_id, message.text))
        else:
            short.append(("user", message.content if isinstance(message.content, str) else "…"))
    return short


# --- calls and results ---


def test_a_transcript_that_is_fine_is_passed_on_as_it_is() -> None:
    messages = [user("hi"), said("let me look", call("c1", x=1)), result("c1"), said("done")]

    replayed = replayable(messages, MODEL)

    assert all(after is before for before, after in zip(messages, replayed, strict=True))


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
def test_a_turn_that_failed_goes_with_its_results(stop_reason: str) -> None:
    messages = [user("a"), said("half", call("c1"), stop_reason=stop_reason), result("c1"), user("continue")]

    assert pairs(replayable(messages, MODEL)) == [("user", "a"), ("user", "continue")]


def test_an_abort_before_the_first_word_leaves_no_empty_message() -> None:
    aborted = AssistantMessage([], stop_reason="aborted", error=ErrorInfo("aborted", "stopped"))

    assert pairs(replayable([user("a"), aborted, user("b")], MODEL)) == [("user", "a"), ("user", "b")]


def test_a_call_without_a_result_gets_an_error_result_after_the_others() -> None:
    messages = [user("a"), said(call("c1"), call("c2", "g")), result("c1", "one"), user("next")]

    replayed = replayable(messages, MODEL)

    assert pairs(replayed) == [
        ("user", "a"),
        ("assistant", "", "c1", "c2"),
        ("result", "c1", "one"),
        ("result", "c2", "no result was recorded"),
        ("user", "next"),
    ]
    assert replayed[3] == ToolResultMessage("c2", "g", "no result was recorded", is_error=True, timestamp=2)


def test_what_the_api_that_is_spoken_has_signed_goes_back_whatever_the_models_is_called() -> None:
    signed = ThinkingContent("Hm", "sig")
    messages = [said(signed, "yes", api="spoken")]

    assert replayable(messages, MODEL, api="spoken") == messages
    assert replayable(messages, MODEL)[0].content == (TextContent("Hm"), TextContent("yes"))


def test_results_come_right_after_their_calls_in_the_order_of_the_calls() -> None:
    messages = [said(call("c1"), call("c2")), result("c2", "two"), user("wait"), result("c1", "one")]

    assert pairs(replayable(messages, MODEL)) == [
        ("assistant", "", "c1", "c2"),
        ("result", "c1", "one"),
        ("result", "c2", "two"),
        ("user", "wait"),
    ]


def test_results_without_a_call_are_left_out_wherever_they_stand() -> None:
    messages = [
        result("old"),
        user("a"),
        said("b"),
        result("never"),
        said(call("c")),
        result("c"),
        result("c", "twice"),
    ]

    assert pairs(replayable(messages, MODEL)) == [
        ("user", "a"),
        ("assistant", "b"),
        ("assistant", "", "c"),
        ("result", "c", "ok"),
    ]


def test_calls_that_share_an_id_are_answered_one_by_one() -> None:
    messages = [
        said(call("call_0", "f", n=1), call("call_0", "f", n=2)),
        result("call_0", "one"),
        result("call_0", "two"),
    ]

    replayed = replayable(messages, MODEL)

    first, second = replayed[0].tool_calls  # type: ignore[union-attr]
    assert first.id == "call_0"
    assert second.id != "call_0"
    assert pairs(replayed)[1:] == [("result", first.id, "one"), ("result", second.id, "two")]


def test_an_id_that_is_used_in_every_turn_pairs_within_its_turn() -> None:
    messages = [
        said(call("search", "search", n=1)),
        user("it crashed here"),
        said(call("search", "search", n=2)),
        result("search", "two"),
        said(call("search", "search", n=3)),
        result("search", "three"),
    ]

    replayed = replayable(messages, MODEL)
    ids = [item.id for message in replayed if isinstance(message, AssistantMessage) for item in message.tool_calls]

    assert len(set(ids)) == 3
    assert pairs(replayed) == [
        ("assistant", "", ids[0]),
        ("result", ids[0], "no result was recorded"),
        ("user", "it crashed here"),
        ("assistant", "", ids[1]),
        ("result", ids[1], "two"),
        ("assistant", "", ids[2]),
        ("result", ids[2], "three"),
    ]


def test_arguments_that_could_not_be_read_go_back_as_none() -> None:
    broken = ToolCall("c", "f", {}, '{"path": "a.txt", "cont')

    (message, _) = replayable([said(broken), result("c", "no JSON")], MODEL)

    assert message.content == (ToolCall("c", "f", {}),)


def test_a_result_without_content_says_so() -> None:
    messages = [said(call("c")), ToolResultMessage("c", "f", [TextContent(" ")])]

    assert pairs(replayable(messages, MODEL))[1] == ("result", "c", "(no output)")


# --- ids and names ---


@pytest.mark.parametrize(
    ("rule", "ids"),
    [
        (IdRule(), ["a b", "a_b", "a.b", "x" * 65, "x" * 66, "", "ok", "\ud83d"]),
        (IdRule("!-~", 40), ["functions.f:0", "x" * 41, "x" * 40, "y" * 39 + " ", "é"]),
        (IdRule("a-zA-Z0-9", 9, exact=True), ["call_1", "abcdefghi", "call_2", "abcdefghij", ""]),
    ],
)
def test_ids_become_what_the_api_accepts_without_meeting_each_other(rule: IdRule, ids: list[str]) -> None:
    messages = [item for id in ids for item in (said(call(id)), result(id))]

    replayed = replayable(messages, MODEL, ids=rule)
    sent = [item.id for message in replayed if isinstance(message, AssistantMessage) for item in message.tool_calls]

    assert len(set(sent)) == len(ids)
    assert all(rule.accepts(id) for id in sent)
    assert [after for before, after in zip(ids, sent, strict=True) if rule.accepts(before)] == [
        id for id in ids if rule.accepts(id)
    ]
    assert [m.tool_call_id for m in replayed if isinstance(m, ToolResultMessage)] == sent


def test_ids_do_not_change_when_the_transcript_grows() -> None:
    messages = [item for id in ["a b", "a_b", "same", "same", "", "z" * 99] for item in (said(call(id)), result(id))]

    whole = replayable(messages, MODEL)

    for length in range(0, len(messages), 2):
        assert replayable(messages[:length], MODEL) == whole[:length]


def test_a_name_a_model_made_up_is_made_one_that_can_be_sent() -> None:
    messages = [said(call("1", "web search!"), call("2", ""), call("3", "x" * 80), call("4", "my.tool"))]

    replayed = replayable(messages, MODEL, tool_names=["my.tool"])

    names = [item.name for item in replayed[0].tool_calls]  # type: ignore[union-attr]
    assert names == ["web_search_", "unnamed", "x" * 64, "my.tool"]
    assert [message.tool_name for message in replayed[1:]] == names  # type: ignore[union-attr]


# --- content ---

SIGNED = (
    ThinkingContent("because", "sig"),
    ThinkingContent("", "encrypted", redacted=True),
    TextContent("", "empty but signed"),
    TextContent("answer", "sig"),
    ProviderContent("p", "a", {"type": "web_search"}),
    ToolCall("c", "f", {}, None, "thought"),
)


def test_what_is_signed_goes_back_unchanged_to_the_model_it_came_from() -> None:
    (message, _) = replayable([said(*SIGNED), result("c")], MODEL)

    assert message.content == SIGNED


@pytest.mark.parametrize("origin", [{"provider": "other"}, {"api": "other"}, {"model": "other"}])
def test_to_another_model_thinking_goes_as_text_and_nothing_signed_goes(origin: dict[str, str]) -> None:
    (message, _) = replayable([said(*SIGNED, **origin), result("c")], MODEL)

    assert message.content == (TextContent("because"), TextContent("answer"), ToolCall("c", "f", {}))


def test_a_block_of_another_provider_is_left_out_of_any_message() -> None:
    foreign = ProviderContent("other", "a", {"type": "x"})

    assert replayable([said("text", foreign)], MODEL)[0].content == (TextContent("text"),)


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_text_is_left_out_and_so_is_a_message_that_has_nothing_else(blank: str) -> None:
    messages = [
        UserMessage([TextContent(blank), TextContent("hi")]),
        said(blank, ThinkingContent(blank)),
        UserMessage(blank),
        UserMessage([TextContent(blank)]),
        said(TextContent(blank), call("c")),
        result("c"),
    ]

    replayed = replayable(messages, MODEL)

    assert [message.content for message in replayed[:2]] == [(TextContent("hi"),), (call("c"),)]
    assert len(replayed) == 3


def test_images_reach_a_model_that_reads_them() -> None:
    image = ImageContent("AAAA", "image/png")
    messages = [UserMessage([TextContent("what is it?"), image]), said(call("c")), result("c")]
    messages[2] = attrs.evolve(messages[2], content=[TextContent("here"), image])

    replayed = replayable(messages, MODEL)

    assert replayed[0].content[1] is image
    assert replayed[2].content[1] is image


def test_images_become_a_note_for_a_model_that_does_not_read_them() -> None:
    image = ImageContent("AAAA" * 1000, "image/png")
    messages = [UserMessage([image]), said(image, call("c")), ToolResultMessage("c", "f", image)]

    replayed = replayable(messages, BLIND)

    note = TextContent("[an image (image/png) was left out: this model does not read images]")
    assert [message.content for message in replayed] == [(note,), (note, call("c")), (note,)]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("image/png", "image/png"),
        ("image/PNG", "image/png"),
        ("image/jpg", "image/jpeg"),
        ("image/jpeg", "image/jpeg"),
        ("image/svg+xml", None),
        ("", None),
    ],
)
def test_images_of_a_type_that_the_api_does_not_take_become_a_note(given: str, sent: str | None) -> None:
    image = ImageContent("AAAA", given)
    messages = [UserMessage([image]), said(image, call("c")), ToolResultMessage("c", "f", image)]

    replayed = replayable(messages, MODEL, image_types=frozenset(("image/png", "image/jpeg")))
    blind = replayable(messages, BLIND, image_types=frozenset(("image/png", "image/jpeg")))

    note = TextContent(f"[an image ({given}) was left out: this model does not read such images]")
    shown = note if sent is None else ImageContent("AAAA", sent)
    assert [message.content for message in replayed] == [(shown,), (shown, call("c")), (shown,)]
    assert "does not read images" in blind[0].content[0].text  # type: ignore[union-attr]
    assert (replayed[0].content[0] is image) is (given == sent)


def test_a_memo_of_other_types_of_images_is_not_gone_on_with() -> None:
    memo: dict[str, Any] = {}
    messages = [UserMessage([ImageContent("AAAA", "image/gif")])]

    replayable(messages, MODEL, image_types=frozenset(("image/png",)), memo=memo)

    assert replayable(messages, MODEL, memo=memo) == messages


def test_an_image_a_model_made_goes_back_to_that_model_only() -> None:
    image = ImageContent("AAAA", "image/png")

    (same,) = replayable([said(image)], MODEL)
    (other,) = replayable([said(image, model="other")], MODEL)

    assert same.content == (image,)
    assert isinstance(other.content[0], TextContent)


def test_messages_that_no_model_understands_are_left_out() -> None:
    assert pairs(replayable([CustomMessage("note", "x"), object(), user("a")], MODEL)) == [("user", "a")]


def test_halves_of_characters_are_mended_or_replaced_everywhere() -> None:
    half, pair = "\ud83d", "\ud83d\ude00"
    messages = [
        UserMessage(f"a{half}"),
        UserMessage([TextContent(f"b{pair}")]),
        said(
            ThinkingContent(f"c{half}"),
            f"d{half}",
            ToolCall(f"id{half}", f"n{half}", {f"k{half}": [f"v{half}", {"deep": pair}]}),
        ),
        ToolResultMessage(f"id{half}", f"n{half}", f"e{half}"),
    ]

    replayed = replayable(messages, MODEL)

    text = json.dumps([message.to_dict() for message in replayed], ensure_ascii=False)
    assert text.encode()
    assert replayed[0].content == "a\ufffd"
    assert replayed[1].content == (TextContent("b😀"),)
    assert replayed[2].tool_calls[0].arguments == {"k\ufffd": ["v\ufffd", {"deep": "😀"}]}  # type: ignore[union-attr]


def test_clean_text_passes_clean_text_on() -> None:
    text = "naïve 你好 😀"

    assert clean_text(text) is text


def test_arguments_become_what_json_can_hold() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]

    cleaned = clean_json({"nan": float("nan"), 1: (1, 2.5, None, True), "set": {"x"}, "deep": deep})

    json.dumps(cleaned, allow_nan=False)
    assert (cleaned["nan"], cleaned["1"], cleaned["set"]) == ("nan", [1, 2.5, None, True], ["x"])


# --- whatever comes ---

texts = st.sampled_from(["", " ", "text", "\ud83d", "\ud83d\ude00", "é"])
ids = st.sampled_from(["c1", "c2", "", "a b", "x" * 70])
signatures = st.sampled_from([None, "sig"])
origins = st.sampled_from([{}, {"provider": "other"}, {"model": "other"}])
reasons = st.sampled_from(["stop", "length", "tool_use", "error", "aborted"])
image = st.just(ImageContent("AAAA", "image/png"))
blocks: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextContent, texts, signatures),
    st.builds(ThinkingContent, texts, signatures, st.booleans()),
    st.builds(ToolCall, ids, texts, st.dictionaries(texts, texts), st.sampled_from([None, "{"]), signatures),
    st.builds(ProviderContent, st.sampled_from(["p", "other"]), st.just("a"), st.just({"type": "x"})),
    image,
)
readable = st.lists(st.one_of(st.builds(TextContent, texts), image), max_size=3)
transcripts = st.lists(
    st.one_of(
        st.builds(UserMessage, texts | readable, timestamp=st.just(1)),
        st.builds(
            lambda content, reason, origin: said(*content, stop_reason=reason, **origin),
            st.lists(blocks, max_size=4),
            reasons,
            origins,
        ),
        st.builds(ToolResultMessage, ids, texts, readable, timestamp=st.just(3)),
    ),
    max_size=8,
)


@given(transcripts, st.sampled_from([MODEL, BLIND]))
def test_any_transcript_becomes_an_acceptable_one_and_stays_as_it_was(messages: list[Any], model: Model) -> None:
    before = copy.deepcopy(messages)

    replayed = replayable(messages, model)

    assert messages == before
    used: set[str] = set()
    waiting: list[ToolCall] = []
    for message in replayed:
        assert message.content
        json.dumps(message.to_dict(), ensure_ascii=False).encode()
        if isinstance(message, ToolResultMessage):
            expected = waiting.pop(0)
            assert (message.tool_call_id, message.tool_name) == (expected.id, expected.name)
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            assert message.stop_reason not in ("error", "aborted")
            for item in message.tool_calls:
                assert IdRule().accepts(item.id)
                assert item.id not in used
                assert item.partial_json is None
                used.add(item.id)
            waiting = list(message.tool_calls)
        for block in message.content if not isinstance(message.content, str) else ():
            assert not isinstance(block, ImageContent) or model is MODEL
            assert not isinstance(block, TextContent) or block.text.strip() or block.signature
    assert not waiting
    assert replayable(replayed, model) == replayed
