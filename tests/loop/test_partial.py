"""A partial message is the message as it stood at one event, whoever reads it, and whenever."""

import copy
import json
import pickle
import random
import threading
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore import partial as partial_module
from agentcore.content import ContentBlock, ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.messages import AssistantMessage, Usage
from agentcore.partial import MessageJournal, PartialMessage


def parse(raw: str) -> dict[str, Any]:
    """Read unfinished arguments in a way that shows exactly what was read."""
    return {"raw": raw}


def journal_with_text(*deltas: str) -> MessageJournal:
    journal = MessageJournal(timestamp=1)
    journal.open(0, TextContent(""))
    for delta in deltas:
        journal.append(0, delta)
    return journal


# --- what a partial shows ---


def test_a_partial_has_the_attributes_of_an_assistant_message_without_a_stop_reason() -> None:
    journal = MessageJournal(api="a", provider="p", model="m", timestamp=5)
    journal.open(0, ThinkingContent("", "sig"))
    journal.append(0, "hm")
    journal.open(1, TextContent("he"))
    journal.append(1, "llo")
    journal.update(usage=Usage(1, 2), response_id="r")
    partial = journal.partial()

    assert partial.content == (ThinkingContent("hm", "sig"), TextContent("hello"))
    assert (partial.api, partial.provider, partial.model, partial.timestamp) == ("a", "p", "m", 5)
    assert (partial.usage, partial.response_id) == (Usage(1, 2), "r")
    assert (partial.text, partial.thinking, partial.tool_calls) == ("hello", "hm", ())
    assert partial.stop_reason is None
    assert partial.raw_stop_reason is None
    assert partial.error is None
    assert partial.error_message is None
    for field in attrs.fields(AssistantMessage):
        assert hasattr(partial, field.name)
    assert partial.role == "assistant"
    assert not isinstance(partial, AssistantMessage)


def test_an_empty_journal_shows_an_empty_message() -> None:
    partial = MessageJournal().partial()

    assert partial.content == ()
    assert partial.usage is None
    assert partial.response_id is None
    assert isinstance(partial.timestamp, int)


def test_a_partial_stays_as_it_was_when_the_message_grows() -> None:
    journal = journal_with_text("a")
    early = journal.partial()
    journal.append(0, "b")
    late = journal.partial()
    journal.open(1, TextContent("more"))
    journal.update(model="other", usage=Usage(9))

    assert late.text == "ab"
    assert early.text == "a"
    assert late.text == "ab"
    assert (early.model, early.usage) == ("", None)
    assert (journal.partial().model, journal.partial().usage) == ("other", Usage(9))


def test_a_header_field_can_be_taken_back() -> None:
    journal = MessageJournal(model="m")
    journal.update(usage=Usage(1))
    journal.update(usage=None)

    assert journal.partial().usage is None


def test_a_block_goes_on_growing_after_a_header_field() -> None:
    journal = journal_with_text("a")
    journal.open(1, TextContent(""))
    journal.append(0, "b")
    journal.update(model="m")
    journal.append(0, "c")

    assert journal.partial().content == (TextContent("abc"), TextContent(""))


def test_interleaved_blocks_grow_each_for_itself() -> None:
    journal = MessageJournal(parse_arguments=parse)
    journal.open(0, TextContent(""))
    journal.open(1, ThinkingContent(""))
    journal.open(2, ToolCall("c", "t", {}, ""))
    for delta in ("1", "2"):
        for index in (2, 0, 1):
            journal.append(index, delta)

    assert journal.partial().content == (
        TextContent("12"),
        ThinkingContent("12"),
        ToolCall("c", "t", {"raw": "12"}, "12"),
    )


def test_a_finished_block_takes_the_place_of_what_was_joined() -> None:
    journal = MessageJournal(parse_arguments=parse)
    journal.open(0, ToolCall("c", "t", {}, "", "s"))
    journal.append(0, '{"a"')
    before = journal.partial()
    journal.close(0, ToolCall("c", "t", {"a": 1}, None, "s"))
    after = journal.partial()

    assert before.tool_calls == (ToolCall("c", "t", {"raw": '{"a"'}, '{"a"', "s"),)
    assert after.tool_calls == (ToolCall("c", "t", {"a": 1}, None, "s"),)


def test_a_delta_after_the_finished_block_extends_it() -> None:
    journal = journal_with_text("a")
    journal.close(0, TextContent("A", "signed"))
    journal.append(0, "b")

    assert journal.partial().content == (TextContent("Ab", "signed"),)


def test_blocks_that_do_not_grow_are_shown_as_they_are() -> None:
    journal = MessageJournal()
    image, provider = ImageContent("aGk=", "image/png"), ProviderContent("p", "a", {"x": 1})
    journal.open(0, image)
    journal.open(1, provider)
    journal.append(1, "ignored")

    assert journal.partial().content == (image, provider)


# --- a call that is still arriving ---


def arriving_call(raw: str = '{"a', parser: Any = parse) -> ToolCall:
    journal = MessageJournal(parse_arguments=parser)
    journal.open(0, ToolCall("c", "t", {}, "", "sig"))
    journal.append(0, raw)
    return journal.partial().tool_calls[0]


def test_an_arriving_call_shows_its_raw_text_and_what_can_be_read_of_it() -> None:
    call = arriving_call()

    assert (call.id, call.name, call.partial_json, call.thought_signature) == ("c", "t", '{"a', "sig")
    assert call.arguments == {"raw": '{"a'}


def test_arguments_are_read_once_and_only_when_somebody_asks() -> None:
    asked: list[str] = []

    def counting(raw: str) -> dict[str, Any]:
        asked.append(raw)
        return {}

    journal = MessageJournal(parse_arguments=counting)
    journal.open(0, ToolCall("c", "t", {}, ""))
    partials = []
    for _ in range(100):
        journal.append(0, "x")
        partials.append(journal.partial())
    assert [len(partial.tool_calls[0].partial_json or "") for partial in partials] == list(range(1, 101))
    assert asked == []

    call = partials[49].tool_calls[0]
    assert call.arguments == call.arguments == {}
    assert asked == ["x" * 50]


def test_without_a_parser_an_arriving_call_has_no_arguments() -> None:
    assert arriving_call(parser=None).arguments == {}


def test_an_arriving_call_is_a_tool_call_in_every_way() -> None:
    call, plain = arriving_call(), ToolCall("c", "t", {"raw": '{"a'}, '{"a', "sig")

    assert isinstance(call, ToolCall)
    assert call == plain
    assert plain == call
    assert call == arriving_call()
    assert call != arriving_call("{")
    assert call != "call"  # type: ignore[comparison-overlap]
    assert repr(call) == repr(plain)
    assert call.to_dict() == plain.to_dict()
    assert attrs.evolve(call, name="u") == ToolCall("c", "u", {"raw": '{"a'}, '{"a', "sig")
    match call:
        case ToolCall(name=name, arguments=arguments):
            assert (name, arguments) == ("t", {"raw": '{"a'})
    with pytest.raises(TypeError):
        hash(call)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        call.name = "u"  # type: ignore[misc]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda call: pickle.loads(pickle.dumps(call))])
def test_a_copy_of_an_arriving_call_is_a_plain_one(duplicate: Any) -> None:
    call = duplicate(arriving_call())

    assert type(call) is ToolCall
    assert call == arriving_call()


# --- snapshots and copies ---


def full_journal() -> MessageJournal:
    journal = MessageJournal(api="a", provider="p", model="m", timestamp=5, parse_arguments=parse)
    journal.open(0, TextContent(""))
    journal.append(0, "hello")
    journal.open(1, ToolCall("c", "t", {}, ""))
    journal.append(1, "{")
    journal.update(usage=Usage(1), response_id="r")
    return journal


def test_a_snapshot_is_a_message_of_its_own_that_did_not_finish() -> None:
    journal = full_journal()
    snapshot = journal.partial().snapshot()
    journal.append(0, " more")

    assert type(snapshot) is AssistantMessage
    assert snapshot.content == (TextContent("hello"), ToolCall("c", "t", {"raw": "{"}, "{"))
    assert [type(block) for block in snapshot.content] == [TextContent, ToolCall]
    assert (snapshot.api, snapshot.provider, snapshot.model, snapshot.timestamp) == ("a", "p", "m", 5)
    assert (snapshot.usage, snapshot.response_id) == (Usage(1), "r")
    assert snapshot.stop_reason == "aborted"
    assert snapshot.error_message == "the message had not finished"
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_the_dict_form_has_no_stop_reason_and_no_error() -> None:
    data = full_journal().partial().to_dict()

    assert json.loads(json.dumps(data)) == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "hello"},
            {"type": "tool", "id": "c", "name": "t", "arguments": {"raw": "{"}, "partial_json": "{"},
        ],
        "api": "a",
        "provider": "p",
        "model": "m",
        "usage": Usage(1).to_dict(),
        "stop_reason": None,
        "response_id": "r",
        "timestamp": 5,
    }


def test_a_pickled_partial_stands_where_it_stood() -> None:
    journal = full_journal()
    partial = journal.partial()
    written = pickle.dumps(partial)
    journal.append(0, " more")
    loaded = pickle.loads(written)

    assert isinstance(loaded, PartialMessage)
    assert loaded == partial
    assert loaded.content == partial.content
    assert loaded.snapshot() == partial.snapshot()
    assert loaded.stop_reason is None
    assert pickle.loads(pickle.dumps(loaded)) == partial


def test_a_copy_of_a_partial_is_the_partial_itself() -> None:
    partial = full_journal().partial()

    assert copy.copy(partial) is partial
    assert copy.deepcopy([partial])[0] is partial


def test_a_journal_refuses_to_be_pickled_and_says_what_to_save() -> None:
    with pytest.raises(TypeError, match=r"pickle the message, or a partial's `snapshot\(\)`"):
        pickle.dumps(full_journal())


def test_partials_compare_by_value() -> None:
    journal = full_journal()
    partial = journal.partial()

    assert partial == journal.partial()
    assert partial == full_journal().partial()
    journal.append(0, "!")
    assert partial != journal.partial()
    assert partial != partial.snapshot()
    assert partial != "hello"
    with pytest.raises(TypeError):
        hash(partial)


def test_the_repr_of_a_partial_is_short() -> None:
    assert repr(journal_with_text("hi").partial()) == "PartialMessage(content=(TextContent(text='hi'),))"
    assert len(repr(journal_with_text("x" * 100_000).partial())) < 200


# --- against a naive model, in any order, from several threads ---

FIRST_BLOCKS: st.SearchStrategy[ContentBlock] = st.sampled_from(
    [
        TextContent(""),
        TextContent("start", "sig"),
        ThinkingContent(""),
        ThinkingContent("start", "sig", True),
        ToolCall("c", "t", {}, ""),
        ToolCall("d", "u", {}, "{", "sig"),
        ToolCall("e", "v", {}),
        ImageContent("aGk=", "image/png"),
        ProviderContent("p", "a", {"x": 1}),
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.just(0), FIRST_BLOCKS),
        st.tuples(st.just("append"), st.integers(0, 5), st.text("ab\ud800🎙", max_size=3)),
        st.tuples(st.just("append"), st.integers(0, 5), st.text("xy", min_size=1, max_size=3)),
        st.tuples(st.just("close"), st.integers(0, 5), FIRST_BLOCKS),
        st.tuples(
            st.just("update"),
            st.just(0),
            st.fixed_dictionaries(
                {},
                optional={
                    "usage": st.sampled_from([Usage(1), Usage(2), None]),
                    "response_id": st.sampled_from(["r1", "r2", None]),
                    "model": st.sampled_from(["m1", "m2", None]),
                },
            ),
        ),
    ),
    max_size=40,
)


class NaiveMessage:
    """The same message, written the plain way: every step builds all of it anew."""

    def __init__(self) -> None:
        self.blocks: list[ContentBlock] = []
        self.header: dict[str, Any] = {"model": "m", "usage": None, "response_id": None}

    def extend(self, index: int, delta: str) -> None:
        match self.blocks[index]:
            case TextContent(text=text) as block:
                self.blocks[index] = attrs.evolve(block, text=text + delta)
            case ThinkingContent(thinking=thinking) as block:
                self.blocks[index] = attrs.evolve(block, thinking=thinking + delta)
            case ToolCall(partial_json=raw) as block:
                raw = (raw or "") + delta
                self.blocks[index] = attrs.evolve(block, partial_json=raw, arguments=parse(raw))

    def take(self, journal: MessageJournal, step: tuple[str, int, Any]) -> None:
        kind, index, value = step
        if kind == "open":
            journal.open(len(self.blocks), value)
            self.blocks.append(value)
        elif kind == "update":
            journal.update(**value)
            self.header.update(value)
        elif self.blocks:
            index %= len(self.blocks)
            if kind == "append":
                journal.append(index, value)
                self.extend(index, value)
            else:
                journal.close(index, value)
                self.blocks[index] = value

    def state(self) -> tuple[Any, ...]:
        return tuple(self.blocks), self.header["model"], self.header["usage"], self.header["response_id"]


def state_of(partial: PartialMessage) -> tuple[Any, ...]:
    return partial.content, partial.model, partial.usage, partial.response_id


def played(steps: list[tuple[str, int, Any]], read_along: bool = False) -> list[tuple[PartialMessage, Any]]:
    journal, naive = MessageJournal(model="m", parse_arguments=parse), NaiveMessage()
    played_back = [(journal.partial(), naive.state())]
    for step in steps:
        naive.take(journal, step)
        played_back.append((journal.partial(), naive.state()))
        if read_along:
            assert state_of(played_back[-1][0]) == naive.state()
    return played_back


@given(steps=STEPS, read_along=st.booleans(), order=st.randoms(use_true_random=False))
def test_a_partial_shows_the_message_of_its_event_in_whatever_order_it_is_read(
    steps: list[tuple[str, int, Any]], read_along: bool, order: random.Random
) -> None:
    pairs = played(steps, read_along)
    for _ in range(2):
        order.shuffle(pairs)
        for partial, expected in pairs:
            assert state_of(partial) == expected
            assert partial.snapshot().content == expected[0]


@settings(max_examples=30)
@given(steps=STEPS, seeds=st.lists(st.integers(), min_size=4, max_size=4))
def test_a_partial_shows_the_message_of_its_event_to_several_threads_at_once(
    steps: list[tuple[str, int, Any]], seeds: list[int]
) -> None:
    pairs = played(steps)
    gate = threading.Barrier(len(seeds))
    wrong: list[Any] = []

    def read(seed: int) -> None:
        mine = list(pairs)
        random.Random(seed).shuffle(mine)
        gate.wait(timeout=60)
        wrong.extend(partial for partial, expected in mine if state_of(partial) != expected)

    in_threads(read, seeds)

    assert wrong == []


def in_threads(work: Any, arguments: list[Any]) -> None:
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)


def test_threads_read_while_the_message_arrives() -> None:
    journal = MessageJournal(timestamp=1)
    journal.open(0, TextContent(""))
    journal.open(1, ThinkingContent(""))
    partials: list[tuple[PartialMessage, int]] = [(journal.partial(), 0)]
    finished = threading.Event()
    wrong: list[Any] = []
    reads: list[int] = []

    def read(step: int) -> None:
        count = 0
        while not finished.is_set() or count < 100:
            partial, length = partials[-1 - (count * step) % min(len(partials), 50)]
            if (len(partial.text), len(partial.thinking)) != (length, length):
                wrong.append(length)
            count += 1
        reads.append(count)

    def write(_: int) -> None:
        for length in range(1, 3001):
            journal.append(0, "a")
            journal.append(1, "b")
            partials.append((journal.partial(), length))
        finished.set()

    threads = [threading.Thread(target=read, args=(step,)) for step in (0, 1, 7)]
    threads.append(threading.Thread(target=write, args=(0,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert wrong == []
    assert len(reads) == 3


# --- what it costs, counted ---


class CountedEntries(list[Any]):
    """The entries of a journal, counting how many have been looked at."""

    visits = 0

    def __getitem__(self, index: Any) -> Any:
        self.visits += 1
        return super().__getitem__(index)


def counted_journal() -> tuple[MessageJournal, CountedEntries]:
    journal, entries = MessageJournal(parse_arguments=parse), CountedEntries()
    journal.entries = entries
    return journal, entries


def write_deltas(journal: MessageJournal, count: int, read: Any = None) -> list[PartialMessage]:
    """Write deltas round robin to three open blocks; `read` is called with the partial of each."""
    blocks: list[ContentBlock] = [TextContent(""), ThinkingContent(""), ToolCall("c", "t", {}, "")]
    for index, block in enumerate(blocks):
        journal.open(index, block)
    partials = []
    for number in range(count):
        journal.append(number % 3, "x")
        partials.append(journal.partial())
        if read is not None:
            read(partials[-1])
    return partials


def test_making_partials_looks_at_nothing() -> None:
    journal, entries = counted_journal()
    write_deltas(journal, 1000)

    assert entries.visits == 0


def test_a_reader_at_every_delta_looks_at_every_entry_once() -> None:
    journal, entries = counted_journal()
    partials = write_deltas(journal, 1000, read=lambda partial: partial.content)

    assert entries.visits == len(entries)
    assert partials[-1].text == "x" * 334


def test_a_reader_of_stored_events_in_order_looks_at_every_entry_once() -> None:
    journal, entries = counted_journal()
    for number, partial in enumerate(write_deltas(journal, 1000), 1):
        assert len(partial.text) == (number + 2) // 3

    assert entries.visits == len(entries)


def test_a_reader_of_stored_events_beside_one_at_every_delta_adds_one_pass() -> None:
    journal, entries = counted_journal()
    stored: list[PartialMessage] = []

    def read(partial: PartialMessage) -> None:
        stored.append(partial)
        assert partial.content
        assert stored[len(stored) // 2].content

    write_deltas(journal, 1000, read)

    assert entries.visits <= 2 * len(entries)


def test_reading_one_partial_again_looks_at_nothing_more() -> None:
    journal, entries = counted_journal()
    partial = write_deltas(journal, 300)[-1]
    assert partial.content == partial.content
    assert partial.snapshot() == partial.snapshot()

    assert entries.visits == len(entries)


def test_each_character_is_joined_once_however_often_the_message_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = []
    build = partial_module._GrowingBlock.build

    def counting_build(block: Any, parse_arguments: Any) -> Any:
        joined.append(sum(map(len, block.parts)))
        return build(block, parse_arguments)

    monkeypatch.setattr(partial_module._GrowingBlock, "build", counting_build)
    journal = MessageJournal()
    write_deltas(journal, 1000, read=lambda partial: (partial.text, partial.thinking))

    assert sum(joined) == 1000


def test_a_block_that_has_not_grown_is_not_built_again() -> None:
    journal = MessageJournal()
    journal.open(0, TextContent(""))
    journal.append(0, "done")
    first = journal.partial().content[0]
    journal.open(1, TextContent(""))
    journal.append(1, "more")

    assert journal.partial().content[0] is first


def test_only_a_few_positions_are_remembered() -> None:
    journal, _ = counted_journal()
    partials = write_deltas(journal, 100)
    for partial in (*partials[::-1], *partials):
        assert partial.content

    assert len(journal._cursors) <= 2


def test_a_reader_that_is_interrupted_leaves_nothing_wrong_behind() -> None:
    class InterruptedEntries(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            if interruptions and index == interruptions[-1]:
                interruptions.pop()
                raise KeyboardInterrupt
            return super().__getitem__(index)

    journal = MessageJournal()
    journal.entries = InterruptedEntries()
    interruptions: list[int] = []
    partials = write_deltas(journal, 30)
    assert partials[9].text == "x" * 4

    interruptions = [5, 40]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            _ = partials[29].content

    assert partials[29].text == "x" * 10
    assert partials[9].text == "x" * 4
