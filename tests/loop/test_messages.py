"""Messages and their blocks are values: frozen, compared, pickled, and the same after a trip through JSON."""

import copy
import dataclasses
import datetime as dt
import json
import pathlib
import pickle
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import errors
from agentcore.content import ContentBlock, as_blocks, block_from_dict, is_block, known_fields, text_or_blocks
from agentcore.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ErrorInfo,
    ImageContent,
    ProviderContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    message_from_dict,
)

BLOCKS: list[ContentBlock] = [
    TextContent("hello"),
    TextContent("", "signature"),
    ThinkingContent("hm"),
    ThinkingContent("", "encrypted", redacted=True),
    ImageContent("aGk=", "image/png"),
    ToolCall("c1", "read", {"path": "a.txt", "deep": [{"n": 1.5}, None, True]}),
    ToolCall("c2", "read", {}, partial_json='{"pa', thought_signature="s"),
    ProviderContent("anthropic", "anthropic-messages", {"type": "server_tool_use", "input": {"q": [1]}}),
]
USAGE = Usage(10, 5, 2, 1, 3, 20, {"input": 0.1, "total": 0.3})
ERROR = ErrorInfo("rate_limit", "slow down", 429, "too_many", "rate", "req_1", 2.5)
MESSAGES: list[Any] = [
    UserMessage("hello", 1),
    UserMessage([TextContent("look"), ImageContent("aGk=", "image/png")], 2),
    UserMessage("", 3),
    UserMessage((), 3),
    AssistantMessage(BLOCKS, timestamp=4),
    AssistantMessage(
        "text",
        api="openai-completions",
        provider="openai",
        model="gpt",
        usage=USAGE,
        stop_reason="error",
        error=ERROR,
        response_id="r1",
        raw_stop_reason="weird",
        timestamp=5,
    ),
    AssistantMessage((), usage=Usage(), stop_reason="aborted", error=ErrorInfo("aborted", ""), timestamp=6),
    ToolResultMessage("c1", "read", "ok", {"lines": [1, 2]}, USAGE, ("grep",), True, 7),
    ToolResultMessage("c1", "read", [], timestamp=8),
    BashExecutionMessage("ls", "a\nb\n", 1, True, True, "/tmp/out", True, 9),
    BashExecutionMessage("ls", "", timestamp=10),
    CompactionSummaryMessage("all of it", 1234, 11),
    BranchSummaryMessage("a branch", "e7", 12),
    CustomMessage("note", "text", False, {"a": 1}, 13),
    CustomMessage("note", [TextContent("block")], timestamp=14),
]


def through_json(message: Any) -> Any:
    return message_from_dict(json.loads(json.dumps(message.to_dict(), allow_nan=False)))


def ids(value: Any) -> str:
    return type(value).__name__


# --- the trip through JSON ---


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_is_the_same_after_a_trip_through_json(message: Any) -> None:
    loaded = through_json(message)

    assert loaded == message
    assert type(loaded) is type(message)
    assert loaded.to_dict() == message.to_dict()
    assert type(message).from_dict(message.to_dict()) == message


@pytest.mark.parametrize("block", BLOCKS, ids=ids)
def test_a_block_is_the_same_after_a_trip_through_json(block: Any) -> None:
    loaded = block_from_dict(json.loads(json.dumps(block.to_dict())))

    assert loaded == block
    assert type(loaded) is type(block)


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_dict_form_is_tagged_by_role_and_its_blocks_by_type(message: Any) -> None:
    data = message.to_dict()

    assert next(iter(data)) == "role"
    assert data["role"] == message.role == type(message).role
    for block in data["content"] if isinstance(data.get("content"), list) else []:
        assert next(iter(block)) == "type"


TEXTS = st.one_of(
    st.text(alphabet=st.characters()),
    st.sampled_from(["\u2028\u2029\x85", "\ud800", "\udfff\ud800 pair", "\x00", "\r\n", "x" * 300_000, "🎙️漢字", '"\\']),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)
OPTIONAL_TEXTS = st.none() | TEXTS
ANY_BLOCK: st.SearchStrategy[Any] = st.one_of(
    st.builds(TextContent, TEXTS, OPTIONAL_TEXTS),
    st.builds(ThinkingContent, TEXTS, OPTIONAL_TEXTS, st.booleans()),
    st.builds(ImageContent, TEXTS, TEXTS),
    st.builds(ToolCall, TEXTS, TEXTS, OBJECTS, OPTIONAL_TEXTS, OPTIONAL_TEXTS),
    st.builds(ProviderContent, TEXTS, TEXTS, OBJECTS),
    st.builds(ProviderContent, st.just(""), st.just(""), OBJECTS),
    st.builds(
        ProviderContent,
        st.just(""),
        st.just(""),
        st.fixed_dictionaries({"type": st.sampled_from(["text", "tool", "provider", "other", None, 5])}),
    ),
)
CONTENT = st.lists(ANY_BLOCK, max_size=4)
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    st.none() | COUNTS,
    COUNTS,
    st.none() | st.dictionaries(st.sampled_from(["input", "output", "total"]), st.floats(0, 100)),
)
ERRORS = st.builds(
    ErrorInfo, TEXTS, TEXTS, st.none() | st.integers(100, 599), OPTIONAL_TEXTS, OPTIONAL_TEXTS, OPTIONAL_TEXTS
)
TIMES = st.integers(0, 2**53)
ANY_MESSAGE: st.SearchStrategy[Any] = st.one_of(
    st.builds(UserMessage, TEXTS | CONTENT, TIMES),
    st.builds(
        AssistantMessage,
        CONTENT,
        api=TEXTS,
        provider=TEXTS,
        model=TEXTS,
        usage=st.none() | USAGES,
        stop_reason=st.sampled_from(["stop", "length", "tool_use", "error", "aborted"]),
        error=st.none() | ERRORS,
        response_id=OPTIONAL_TEXTS,
        raw_stop_reason=OPTIONAL_TEXTS,
        timestamp=TIMES,
    ),
    st.builds(
        ToolResultMessage,
        TEXTS,
        TEXTS,
        CONTENT,
        JSON_VALUES,
        st.none() | USAGES,
        st.none() | st.lists(TEXTS, max_size=2),
        st.booleans(),
        TIMES,
    ),
    st.builds(
        BashExecutionMessage,
        TEXTS,
        TEXTS,
        st.none() | st.integers(0, 255),
        st.booleans(),
        st.booleans(),
        OPTIONAL_TEXTS,
        st.booleans(),
        TIMES,
    ),
    st.builds(CompactionSummaryMessage, TEXTS, COUNTS, TIMES),
    st.builds(BranchSummaryMessage, TEXTS, TEXTS, TIMES),
    st.builds(CustomMessage, TEXTS, TEXTS | CONTENT, st.booleans(), JSON_VALUES, TIMES),
)


@given(ANY_MESSAGE)
def test_every_message_is_the_same_after_a_trip_through_json(message: Any) -> None:
    assert through_json(message) == message


@given(ANY_MESSAGE)
def test_every_message_is_the_same_after_pickling_and_copying(message: Any) -> None:
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    assert copy.copy(message) == message


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_arguments_nested_deeper_than_any_tool_takes_are_kept() -> None:
    message = AssistantMessage([ToolCall("c", "t", nested(190))], timestamp=1)

    assert through_json(message) == message


@dataclasses.dataclass
class Details:
    path: pathlib.Path


@attrs.define
class OtherDetails:
    when: dt.datetime


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


MOMENT = dt.datetime(2024, 5, 6, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("details", "as_data"),
    [
        (MOMENT, "2024-05-06T00:00:00+00:00"),
        (pathlib.PurePosixPath("/a"), "/a"),
        ({3, 1}, [1, 3]),
        (b"ab", "b'ab'"),
        (Details(pathlib.Path("x")), {"path": "x"}),
        (OtherDetails(MOMENT), {"when": "2024-05-06T00:00:00+00:00"}),
        (float("nan"), "nan"),
        ({1: {None: (1, 2)}}, {"1": {"None": [1, 2]}}),
        (Unspeakable(), "<Unspeakable>"),
        ([Unspeakable()], ["<Unspeakable>"]),
        (UserMessage("hi", 1), {"role": "user", "content": "hi", "timestamp": 1}),
        (USAGE, USAGE.to_dict()),
    ],
)
@pytest.mark.parametrize("kind", ["result", "custom"])
def test_details_come_back_as_the_data_they_were_written_as(kind: str, details: Any, as_data: Any) -> None:
    message: Any = (
        ToolResultMessage("c", "t", "ok", details, timestamp=1)
        if kind == "result"
        else CustomMessage("note", "text", details=details, timestamp=1)
    )
    loaded = through_json(message)

    assert loaded.details == as_data
    assert loaded == attrs.evolve(message, details=as_data)


def test_details_that_hold_themselves_are_cut() -> None:
    details: dict[str, Any] = {}
    details["self"] = details

    assert through_json(ToolResultMessage("c", "t", "ok", details)).details == {"self": "…"}


def test_arguments_that_json_cannot_hold_do_not_make_saving_fail() -> None:
    message = AssistantMessage([ToolCall("c", "t", {"when": MOMENT, "n": float("inf")})], timestamp=1)

    assert through_json(message).tool_calls[0].arguments == {"when": "2024-05-06T00:00:00+00:00", "n": "inf"}


def test_a_dict_form_shares_nothing_with_its_message() -> None:
    message = AssistantMessage([ToolCall("c", "t", {"list": [1]})], usage=Usage(cost={"total": 1.0}))
    data = message.to_dict()
    data["content"][0]["arguments"]["list"].append(2)
    data["usage"]["cost"]["total"] = 2.0

    assert message.tool_calls[0].arguments == {"list": [1]}
    assert message.usage == Usage(cost={"total": 1.0})


def test_a_dict_form_leaves_out_what_is_none() -> None:
    assert UserMessage("hi", 1).to_dict() == {"role": "user", "content": "hi", "timestamp": 1}
    assert TextContent("hi").to_dict() == {"type": "text", "text": "hi"}
    assert Usage(1, 2).to_dict() == {"input": 1, "output": 2, "cache_read": 0, "cache_write": 0, "total_tokens": 3}
    assert ErrorInfo("timeout", "late").to_dict() == {"kind": "timeout", "message": "late"}


# --- what is unknown ---


@pytest.mark.parametrize(
    "data",
    [
        {"type": "video", "url": "x", "nested": {"a": [1]}},
        {"no type": 1},
        {"type": None},
        {"type": 5, "text": "x"},
        {},
    ],
)
def test_an_unknown_block_is_written_back_unchanged(data: dict[str, Any]) -> None:
    message = message_from_dict({"role": "user", "content": [data, {"type": "text", "text": "hi"}], "timestamp": 1})
    assert isinstance(message, UserMessage)

    assert message.content == (ProviderContent("", "", data), TextContent("hi"))
    assert message.to_dict()["content"][0] == data
    assert through_json(message) == message


@pytest.mark.parametrize(
    "data",
    [
        {"role": "reminder", "text": "hi", "timestamp": 5},
        {"role": "reminder", "content": [{"type": "weird"}], "nested": {"a": [None]}},
        {"role": "system", "timestamp": "yesterday"},
    ],
)
def test_a_message_of_an_unknown_role_is_written_back_unchanged(data: dict[str, Any]) -> None:
    message = message_from_dict(data)

    assert isinstance(message, CustomMessage)
    assert message.custom_type == data["role"]
    assert not message.display
    assert isinstance(message.timestamp, int)
    assert message.to_dict() == data
    assert through_json(message).to_dict() == data
    assert pickle.loads(pickle.dumps(message)) == message
    assert repr(message).startswith("ForeignMessage(custom_type=")


def test_a_message_of_an_unknown_role_keeps_a_copy_of_its_own() -> None:
    data = {"role": "reminder", "items": [1], "timestamp": 7}
    message = message_from_dict(data)
    data["items"].append(2)  # type: ignore[attr-defined]

    assert message.timestamp == 7
    assert message.to_dict() == {"role": "reminder", "items": [1], "timestamp": 7}


def test_an_unknown_block_keeps_a_copy_of_its_own() -> None:
    data = {"type": "video", "items": [1]}
    block = block_from_dict(data)
    data["items"].append(2)  # type: ignore[attr-defined]

    assert block.to_dict() == {"type": "video", "items": [1]}


@pytest.mark.parametrize("kind", ["text", "thinking", "image", "tool", "provider"])
def test_a_provider_block_that_looks_like_another_is_still_itself(kind: str) -> None:
    block = ProviderContent("", "", {"type": kind, "text": "x"})

    assert block_from_dict(json.loads(json.dumps(block.to_dict()))) == block


def test_unknown_keys_are_left_alone() -> None:
    loaded = message_from_dict({"role": "user", "content": "hi", "timestamp": 1, "mood": "good"})

    assert loaded == UserMessage("hi", 1)
    assert Usage.from_dict({"input": 1, "images": 2}) == Usage(1)
    assert ErrorInfo.from_dict({"kind": "timeout", "message": "late", "more": 1}) == ErrorInfo("timeout", "late")


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        ("hi", TypeError, "a message is a dict, not str"),
        (None, TypeError, "a message is a dict, not NoneType"),
        ({}, ValueError, "a message dict needs a `role`"),
        ({"role": 5}, ValueError, "a message dict needs a `role`"),
        ({"role": "user"}, ValueError, "a `UserMessage` needs `content`"),
        ({"role": "toolResult", "content": []}, ValueError, "needs `tool_call_id`, `tool_name`"),
        ({"role": "assistant", "content": [], "stop_reason": "tired"}, ValueError, "stop_reason"),
        ({"role": "assistant", "content": 5}, TypeError, "content is text or blocks, not int"),
        ({"role": "assistant", "content": ["hi"]}, TypeError, "a block is a dict, not str"),
        ({"role": "assistant", "content": [{"type": "tool", "id": "c"}]}, ValueError, "`ToolCall` needs `name`"),
        ({"role": "assistant", "content": [], "usage": 5}, TypeError, "a `Usage` is made from a dict, not int"),
        ({"role": "assistant", "content": [], "error": "x"}, TypeError, "a `ErrorInfo` is made from a dict, not str"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, TypeError, "text"),
    ],
)
def test_a_dict_that_is_no_message_is_refused_with_the_reason(data: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        message_from_dict(data)

    assert said in str(caught.value)


def test_a_class_refuses_the_dict_of_another_role() -> None:
    with pytest.raises(ValueError, match="a `UserMessage` has the role 'user', not 'assistant'"):
        UserMessage.from_dict({"role": "assistant", "content": "hi"})
    with pytest.raises(TypeError, match="a message is a dict, not list"):
        UserMessage.from_dict([])  # type: ignore[arg-type]


def test_known_fields_take_converted_values_first() -> None:
    assert known_fields(TextContent, {"text": "a", "signature": "s"}, text="b") == TextContent("b", "s")


# --- content ---


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hi", (TextContent("hi"),)),
        ("", (TextContent(""),)),
        (TextContent("hi"), (TextContent("hi"),)),
        ([TextContent("a"), ImageContent("b", "image/png")], (TextContent("a"), ImageContent("b", "image/png"))),
        ((), ()),
        (iter([TextContent("a")]), (TextContent("a"),)),
    ],
)
def test_content_becomes_a_tuple_of_blocks(content: Any, expected: Any) -> None:
    assert as_blocks(content) == expected


@pytest.mark.parametrize("content", [None, 5, b"bytes", {"type": "text", "text": "hi"}, [1], ["text"], [None]])
@pytest.mark.parametrize("make", [AssistantMessage, UserMessage, lambda content: CustomMessage("note", content)])
def test_content_that_is_neither_text_nor_blocks_is_refused(make: Any, content: Any) -> None:
    with pytest.raises(TypeError, match="content"):
        make(content)


def test_text_in_a_list_of_blocks_is_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"content holds blocks, not str \(wrap text in `TextContent`\)"):
        as_blocks(["hi"])  # type: ignore[list-item]


def test_a_user_message_keeps_text_as_text() -> None:
    assert UserMessage("hi").content == "hi"
    assert text_or_blocks("hi") == "hi"
    assert text_or_blocks(TextContent("hi")) == (TextContent("hi"),)


def test_sequences_that_the_caller_gave_are_copied() -> None:
    blocks: list[ContentBlock] = [TextContent("a")]
    names = ["grep"]
    message = AssistantMessage(blocks)
    result = ToolResultMessage("c", "t", blocks, added_tool_names=names)
    blocks.append(TextContent("b"))
    names.append("find")

    assert message.content == result.content == (TextContent("a"),)
    assert result.added_tool_names == ("grep",)


def test_blocks_are_told_from_other_values() -> None:
    assert all(is_block(block) for block in BLOCKS)
    assert not any(is_block(value) for value in ("text", None, {"type": "text"}, UserMessage("hi"), TextContent))


def test_blocks_carry_their_type_and_messages_their_role() -> None:
    assert [block.type for block in BLOCKS[::2]] == ["text", "thinking", "image", "tool"]
    assert ProviderContent.type == "provider"
    assert {type(message).role for message in MESSAGES} == {
        "user", "assistant", "toolResult", "bashExecution", "compactionSummary", "branchSummary", "custom"
    }  # fmt: skip


def test_text_content_takes_only_text() -> None:
    with pytest.raises(TypeError):
        TextContent(5)  # type: ignore[arg-type]


# --- values ---


@pytest.mark.parametrize("value", [*MESSAGES, *BLOCKS, USAGE, ERROR], ids=ids)
def test_values_are_frozen_slotted_and_have_a_short_repr(value: Any) -> None:
    name = attrs.fields(type(value))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(value, name, None)
    assert not hasattr(value, "__dict__")
    assert len(repr(value)) < 600
    assert repr(value).startswith(type(value).__name__ + "(")


def test_a_repr_is_short_however_long_the_message_is() -> None:
    call = ToolCall("c", "write", {"content": "x" * 100_000, "list": list(range(10_000))})
    message = AssistantMessage([TextContent("y" * 100_000), call] * 100)

    assert len(repr(message)) < 600
    assert repr(TextContent("hi")) == "TextContent(text='hi')"
    assert repr(UserMessage("hi", 1)) == "UserMessage(content='hi')"
    assert repr(AssistantMessage("hi")) == "AssistantMessage(content=(TextContent(text='hi'),))"


def test_values_that_hold_dicts_are_not_hashable_and_others_are() -> None:
    for value in (ToolCall("c", "t", {}), ProviderContent("p", "a", {}), Usage(cost={}), AssistantMessage([BLOCKS[5]])):
        with pytest.raises(TypeError):
            hash(value)
    assert len({TextContent("a"), TextContent("a"), UserMessage("a", 1), UserMessage("a", 1)}) == 2


def test_messages_of_different_classes_are_not_equal() -> None:
    pairs: list[tuple[Any, Any]] = [
        (UserMessage("a", 1), CustomMessage("a", "a", timestamp=1)),
        (TextContent("a"), ThinkingContent("a")),
    ]
    assert all(left != right for left, right in pairs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: UserMessage("a"),
        lambda: AssistantMessage("a"),
        lambda: ToolResultMessage("c", "t", "a"),
        lambda: BashExecutionMessage("ls", ""),
        lambda: CompactionSummaryMessage("s", 1),
        lambda: BranchSummaryMessage("s", "e"),
        lambda: CustomMessage("n", "a"),
    ],
)
def test_a_timestamp_is_integer_milliseconds_of_now(make: Any) -> None:
    now = dt.datetime.now(dt.timezone.utc).timestamp() * 1000
    timestamp = make().timestamp

    assert isinstance(timestamp, int)
    assert abs(timestamp - now) < 60_000


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_every_message_is_an_agent_message(message: Any) -> None:
    assert isinstance(message, AgentMessage)


def test_an_application_adds_a_class_of_its_own() -> None:
    class Reminder:
        role: ClassVar[str] = "reminder"
        timestamp = 5

        def to_dict(self) -> dict[str, Any]:
            return {"role": self.role, "timestamp": self.timestamp}

    assert isinstance(Reminder(), AgentMessage)
    assert not isinstance("text", AgentMessage)
    assert message_from_dict(Reminder().to_dict()).to_dict() == Reminder().to_dict()


# --- what an assistant message tells ---


def test_the_text_is_joined_without_separators() -> None:
    blocks: list[ContentBlock] = [TextContent("one"), ThinkingContent("hm"), TextContent("two"), TextContent(" three")]

    assert AssistantMessage(blocks).text == "onetwo three"
    assert AssistantMessage(()).text == ""
    assert (
        ToolResultMessage("c", "t", [TextContent("a"), ImageContent("b", "image/png"), TextContent("c")]).text == "ac"
    )


def test_the_thinking_has_a_blank_line_between_blocks_and_none_for_hidden_ones() -> None:
    blocks: list[ContentBlock] = [
        ThinkingContent("one"),
        TextContent("x"),
        ThinkingContent("", "s", redacted=True),
        ThinkingContent("two"),
    ]

    assert AssistantMessage(blocks).thinking == "one\n\ntwo"
    assert AssistantMessage("x").thinking == ""


def test_the_tool_calls_come_in_order() -> None:
    calls = (ToolCall("1", "a", {}), ToolCall("2", "b", {}))

    assert AssistantMessage([calls[0], TextContent("x"), calls[1]]).tool_calls == calls
    assert AssistantMessage("x").tool_calls == ()


def test_the_error_message_is_that_of_the_error() -> None:
    assert AssistantMessage("x").error_message is None
    assert AssistantMessage("x", stop_reason="error", error=ERROR).error_message == "slow down"


@pytest.mark.parametrize("stop_reason", ["stop", "length", "tool_use"])
def test_raise_for_error_returns_a_message_that_ended_well(stop_reason: str) -> None:
    message = AssistantMessage("x", stop_reason=stop_reason, error=ERROR)

    assert message.raise_for_error() is message


KINDS = {
    "authentication": errors.AuthenticationError,
    "rate_limit": errors.RateLimitError,
    "quota": errors.QuotaError,
    "overloaded": errors.OverloadedError,
    "invalid_request": errors.InvalidRequestError,
    "context_overflow": errors.ContextOverflowError,
    "content_filter": errors.ContentFilterError,
    "connection": errors.ProviderConnectionError,
    "timeout": errors.ProviderTimeoutError,
    "protocol": errors.StreamProtocolError,
    "stream_function": errors.StreamFunctionError,
    "surprise": errors.ProviderError,
}


@pytest.mark.parametrize("from_json", [False, True])
@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
def test_raise_for_error_raises_the_class_of_the_kind_with_its_facts(
    kind: str, expected: type[errors.ProviderError], from_json: bool
) -> None:
    message = AssistantMessage(
        "so far", provider="openai", model="gpt", stop_reason="error", error=attrs.evolve(ERROR, kind=kind)
    )
    if from_json:
        message = through_json(message)

    with pytest.raises(errors.ProviderError) as caught:
        message.raise_for_error()

    error = caught.value
    assert type(error) is expected
    assert str(error) == "slow down"
    assert (error.provider, error.model, error.status, error.code) == ("openai", "gpt", 429, "too_many")
    assert (error.type, error.request_id, error.retry_after) == ("rate", "req_1", 2.5)


@pytest.mark.parametrize("from_json", [False, True])
def test_raise_for_error_raises_for_an_aborted_message(from_json: bool) -> None:
    for error in (ErrorInfo("aborted", "stopped by the user"), None):
        message = AssistantMessage("so far", stop_reason="aborted", error=error)
        if from_json:
            message = through_json(message)
        with pytest.raises(errors.AbortedError) as caught:
            message.raise_for_error()
        assert str(caught.value) == ("stopped by the user" if error else "the response ended as aborted")


def test_raise_for_error_copes_with_an_error_that_says_nothing() -> None:
    with pytest.raises(errors.ProviderError, match="the response ended as error") as caught:
        AssistantMessage((), stop_reason="error").raise_for_error()

    assert type(caught.value) is errors.ProviderError
    assert caught.value.provider is None
    assert caught.value.model is None


def test_an_unknown_stop_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="stop_reason"):
        AssistantMessage("x", stop_reason="tired")


# --- usage ---


def test_the_total_is_the_sum_of_the_disjoint_counts_when_it_is_left_out() -> None:
    assert Usage(1, 2, 3, 4, reasoning=1).total_tokens == 10
    assert Usage(1, 2, total_tokens=99).total_tokens == 99
    assert Usage().total_tokens == 0
    assert Usage.from_dict({"input": 1, "output": 2}).total_tokens == 3


def test_usages_are_added_to_a_new_one() -> None:
    left = Usage(1, 2, 3, 4, 5, 20, {"input": 1.0, "total": 1.5})
    right = Usage(10, 20, 30, 40, None, 200, {"output": 2.0, "total": 2.0})

    assert left + right == Usage(11, 22, 33, 44, 5, 220, {"input": 1.0, "total": 3.5, "output": 2.0})
    assert left == Usage(1, 2, 3, 4, 5, 20, {"input": 1.0, "total": 1.5})
    assert (Usage() + Usage()).reasoning is None
    assert (Usage(reasoning=0) + Usage(reasoning=2)).reasoning == 2


def test_the_cost_of_a_sum_is_unknown_if_either_is() -> None:
    priced = Usage(1, cost={"total": 1.0})

    assert (priced + Usage(1)).cost is None
    assert (Usage(1) + priced).cost is None
    assert (Usage() + Usage()).cost is None


def test_a_usage_is_added_only_to_a_usage() -> None:
    with pytest.raises(TypeError):
        Usage() + 1


@given(USAGES, USAGES, USAGES)
def test_adding_usages_counts_every_token_once(first: Usage, second: Usage, third: Usage) -> None:
    left, right = (first + second) + third, first + (second + third)

    assert left.total_tokens == right.total_tokens == sum(usage.total_tokens for usage in (first, second, third))
    assert attrs.evolve(left, cost=None) == attrs.evolve(right, cost=None)
