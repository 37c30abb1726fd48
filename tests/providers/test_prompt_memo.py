"""What the requests of a run keep of each other saves work and changes nothing: not a byte of any request."""

import contextlib
import copy
import gc
import json
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any
from unittest import mock

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore import (
    Agent,
    AgentTool,
    AssistantMessage,
    ImageContent,
    Model,
    ModelContext,
    StreamOptions,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    stream_response,
)
from agentcore.content import ContentBlock, ProviderContent
from agentcore.providers import _replay
from agentcore.providers._payload import Fragment, encoded
from agentcore.testing.sse_server import Reply, sse
from tests.providers.test_linear import operations
from tests.providers.wire_support import ANTHROPIC, BY_API, CHAT, GOOGLE, RESPONSES, WIRES, Wire, served

EYES = {"input": ("text", "image"), "reasoning": True}
URL = "http://127.0.0.1:1"
MODELS = (
    CHAT.model(URL, provider="openrouter", **EYES),
    Model("anthropic/claude", provider="openrouter", base_url=URL, **EYES),  # prompts are marked for caching
    Model("magistral", provider="mistral", base_url=URL, **EYES),  # ids of its own, thinking in parts
    Model("blind", provider="deepseek", base_url=URL, reasoning=True),
    Model("claude-sonnet-5", api=ANTHROPIC.api, provider="anthropic", base_url=URL, **EYES),
    Model("gemini-3.1-pro-preview", api=GOOGLE.api, provider="google", base_url=URL, **EYES),
    Model("gemini-2.5-flash", api=GOOGLE.api, provider="google", base_url=URL),
    Model("gpt-5.2", api=RESPONSES.api, provider="openai", base_url=URL, **EYES),
)
IMAGE = ImageContent("AAAA", "image/png")
RETENTIONS = ("none", "short", "long")


def tools(*names: str) -> tuple[AgentTool, ...]:
    return tuple(AgentTool(name, name, "d", {"type": "object"}, lambda *given: "ok") for name in names)


TOOLS = (tools("read"), tools("read", "made up: é"), ())


@attrs.frozen
class Request:
    """What one request is made of."""

    messages: tuple[Any, ...]
    model: Model
    retention: str = "short"
    tools: tuple[AgentTool, ...] = TOOLS[0]

    def built(self, memo: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return its payload, with the memo of the requests before or without."""
        context = ModelContext("Be kind.", self.messages, self.tools, memo={} if memo is None else memo)
        options = StreamOptions(cache_retention=self.retention, session_id="s")
        payload = BY_API[self.model.api].adapter.build_request(self.model, context, options)
        assert isinstance(payload, dict)
        return payload


def written(payload: Any) -> str:
    """Return a payload as text: equal texts are equal bytes on the wire."""
    return json.dumps(payload)


# --- whatever a run does ---

ids = st.sampled_from(["c1", "c2", "call|é/1", ""])
texts = st.sampled_from(["", "text", "half \ud83d"])
signatures = st.sampled_from([None, "sig", '{"type":"reasoning","encrypted_content":"c"}'])
blocks: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextContent, texts, signatures),
    st.builds(ThinkingContent, texts, signatures, st.booleans()),
    st.builds(ToolCall, ids, st.sampled_from(["read", "made up: é"]), st.just({"n": 1})),
    st.builds(ProviderContent, st.just("openai"), st.just(RESPONSES.api), st.just({"type": "x", "n": float("nan")})),
    st.just(IMAGE),
)
heard = st.lists(st.one_of(st.builds(TextContent, texts), st.just(IMAGE)), max_size=2)
messages_of_any_kind = st.one_of(
    st.builds(UserMessage, texts | heard, timestamp=st.just(1)),
    st.builds(
        lambda content, model, reason: AssistantMessage(
            content, api=model.api, provider=model.provider, model=model.id, stop_reason=reason, timestamp=2
        ),
        st.lists(blocks, max_size=4),
        st.sampled_from(MODELS),
        st.sampled_from(["stop", "tool_use", "tool_use", "error", "aborted"]),
    ),
    st.builds(ToolResultMessage, ids, st.just("read"), heard, timestamp=st.just(3)),
)


@st.composite
def runs(draw: st.DrawFn) -> list[Request]:
    """Return the requests of a run: its transcript grows, and now and then a hook or the user changes something."""
    # Few messages that come again and again: the same objects stand in several places.
    pool = draw(st.lists(messages_of_any_kind, min_size=1, max_size=8))
    some = st.lists(st.sampled_from(pool), max_size=3)
    request = Request(tuple(draw(some)), draw(st.sampled_from(MODELS)))
    requests = [request]
    for _ in range(draw(st.integers(1, 6))):
        messages = [*request.messages, *draw(some)]
        match draw(st.sampled_from(["grow", "grow", "grow", "cut", "anew", "model", "tools", "retention"])):
            case "cut":  # as a hook cuts off the beginning
                messages = messages[draw(st.integers(0, 2)) :]
            case "anew":  # as a hook does that makes its own messages
                at = draw(st.integers(0, len(messages)))
                messages = [*messages[:at], *(attrs.evolve(message) for message in messages[at:])]
            case "model":
                request = attrs.evolve(request, model=draw(st.sampled_from(MODELS)))
            case "tools":
                request = attrs.evolve(request, tools=draw(st.sampled_from(TOOLS)))
            case "retention":
                request = attrs.evolve(request, retention=draw(st.sampled_from(RETENTIONS)))
        request = attrs.evolve(request, messages=tuple(messages))
        requests.append(request)
    return requests


@given(runs())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_every_request_of_a_run_is_what_it_would_be_without_the_ones_before(run: list[Request]) -> None:
    before = copy.deepcopy([request.messages for request in run])
    memo: dict[str, Any] = {}
    payloads: list[tuple[dict[str, Any], str]] = []
    for request in run:
        payload = request.built(memo)
        payloads.append((payload, written(payload)))
        assert payloads[-1][1] == written(request.built())

    # Nothing that was sent before was changed by what came later, nor were the messages.
    assert [written(payload) for payload, _ in payloads] == [text for _, text in payloads]
    assert written([[message.to_dict() for message in messages] for messages in before]) == written(
        [[message.to_dict() for message in request.messages] for request in run]
    )


@contextlib.contextmanager
def unchangeable_fragments() -> Iterator[None]:
    """Have every attempt to change a fragment raise."""

    def refuse(*given: Any, **more: Any) -> None:
        raise AssertionError("a fragment was changed")

    ways = ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update")
    with contextlib.ExitStack() as stack:
        for way in ways:
            stack.enter_context(mock.patch.object(Fragment, way, refuse, create=True))
        yield


def test_the_guard_of_fragments_works() -> None:
    fragment = Fragment(a=1)
    with unchangeable_fragments(), pytest.raises(AssertionError):
        fragment["a"] = 2
    fragment["a"] = 2


@given(runs())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_that_is_kept_for_later_requests_is_ever_changed(run: list[Request]) -> None:
    """Neither by the building of another request nor by a hook, which changes all it can of a copy."""
    memo: dict[str, Any] = {}
    kept: list[tuple[Any, Any]] = []
    with unchangeable_fragments():
        for request in run:
            payload = request.built(memo)
            spoil(copy.deepcopy(payload))
            assert encoded(payload) == encoded(copy.deepcopy(request.built()))
            kept += [(what, copy.deepcopy(what)) for _, what in memo["written"].entries.values()]
            kept.append((payload, copy.deepcopy(payload)))

    for now, before in kept:
        assert now == before


# --- what is told apart ---


def said(model: Model, *content: Any, stop_reason: str = "tool_use") -> AssistantMessage:
    origin = {"api": model.api, "provider": model.provider, "model": model.id}
    return AssistantMessage(content, stop_reason=stop_reason, timestamp=2, **origin)


def result(id: str, text: str = "fine", *more: ContentBlock) -> ToolResultMessage:
    return ToolResultMessage(id, "read", [TextContent(text), *more], timestamp=3)


def turns(model: Model, number: int) -> list[Any]:
    """Return the messages of so many turns, each with two calls whose results come in the other order."""
    messages: list[Any] = []
    for turn in range(number):
        calls = [ToolCall(f"c{turn}", "read", {"n": turn}), ToolCall(f"d{turn}", "read", {"path": ["a", {"b": 1}]})]
        thought = ThinkingContent("Hm.", '{"type":"reasoning","encrypted_content":"c"}')
        messages += [
            UserMessage([TextContent(f"question {turn}"), IMAGE] if turn % 2 else f"question {turn}", timestamp=1),
            said(model, thought, TextContent("Let me see."), *calls),
            result(f"d{turn}", "fine", *[IMAGE] * (turn % 2)),
            result(f"c{turn}"),
        ]
    return messages


each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.provider}:{model.id}")


@each_model
def test_results_that_arrive_later_take_their_places(model: Model) -> None:
    late = [
        said(model, ToolCall("a", "read", {}), ToolCall("b", "read", {})),
        result("b", "second"),
        UserMessage("meanwhile"),
        said(model, ToolCall("a", "read", {})),
        result("a", "of the later call"),
        result("a", "of the earlier call"),
    ]
    memo: dict[str, Any] = {}
    for length in range(1, len(late) + 1):
        request = Request(tuple(late[:length]), model)
        assert written(request.built(memo)) == written(request.built())

    assert "of the earlier call" in written(request.built(memo))


@each_model
def test_history_that_was_written_anew_is_not_taken_for_the_old_one(model: Model) -> None:
    messages = turns(model, 2)
    memo: dict[str, Any] = {}
    Request(tuple(messages), model).built(memo)
    secret = messages[0]
    messages[0] = UserMessage("left out", timestamp=1)
    rewritten = Request(tuple(messages), model)

    assert written(rewritten.built(memo)) == written(rewritten.built())
    assert secret.content not in written(rewritten.built(memo))


def test_a_memo_goes_on_through_every_change_of_the_model() -> None:
    memo: dict[str, Any] = {}
    messages: list[Any] = []
    for model in (*MODELS, *MODELS[::-1]):
        messages += turns(model, 1)
        request = Request(tuple(messages), model)
        assert written(request.built(memo)) == written(request.built())


@each_model
def test_marks_of_one_request_do_not_stay_for_the_next(model: Model) -> None:
    """Which messages are marked for caching changes with every turn; only the last ones ever are."""
    memo: dict[str, Any] = {}
    messages = turns(model, 3)
    counts = set()
    for length in range(1, len(messages) + 1):
        for retention in RETENTIONS:
            request = Request(tuple(messages[:length]), model, retention)
            text = written(request.built(memo))
            assert text == written(request.built())
            counts.add((retention, text.count("cache_control")))

    assert {count for retention, count in counts if retention == "none"} == {0}
    assert max(count for _, count in counts) <= 4


def spoil(value: Any) -> None:
    """Change everything that there is to change."""
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoilt"] = "spoilt"
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoilt")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_hook_that_changes_its_payload_in_place_does_not_change_the_next_request(wire: Wire, retention: str) -> None:
    compat = {"cache_control_for": ("",)} if wire is CHAT else {}
    seen: list[str] = []

    def hook(payload: dict[str, Any], model: Model) -> None:
        seen.append(written(payload))
        spoil(payload)

    with served(wire, Reply(sse(*wire.turn)), compat=compat, **EYES) as (server, model), unchangeable_fragments():
        memo: dict[str, Any] = {}
        messages = turns(model, 3)
        for length in (5, 8, 9, 12):  # after results with an image, and after a question that follows them
            request = Request(tuple(messages[:length]), model, retention)
            context = ModelContext("Be kind.", request.messages, request.tools, memo=memo)
            options = StreamOptions(on_payload=hook, session_id="s", cache_retention=retention)
            list(stream_response(model, context, options))
            assert seen[-1] == written(request.built())
            assert "spoilt" not in seen[-1]

        assert all(request.json()["spoilt"] == "spoilt" for request in server.requests)


@each_model
def test_an_interrupt_anywhere_in_the_middle_leaves_a_memo_to_go_on_with(model: Model) -> None:
    messages = turns(model, 4)
    first, whole, more = (Request(tuple(messages[:length]), model) for length in (6, 11, 16))
    expected = [written(request.built()) for request in (whole, more)]
    memo = interrupted_at(10**9, first, whole)[1]
    assert written(whole.built(memo)) == expected[0]
    lines = interrupted_at(10**9, first, whole)[0]
    assert lines > 100
    for number in range(1, lines, max(1, lines // 60)):
        reached, memo = interrupted_at(number, first, whole)
        assert reached == number
        assert [written(request.built(memo)) for request in (whole, more)] == expected


def interrupted_at(number: int, first: Request, then: Request) -> tuple[int, dict[str, Any]]:
    """Build two requests, the second with Ctrl-C before the line of that number; return the lines reached, the memo."""
    memo: dict[str, Any] = {}
    first.built(memo)
    reached = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal reached
        if "providers" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if event == "line" and reached < number:
            reached += 1
            if reached == number:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        then.built(memo)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return reached, memo


# --- what it saves, and what it costs ---


@each_model
def test_a_request_costs_what_is_new_in_it(model: Model) -> None:
    messages = turns(model, 60)
    memo: dict[str, Any] = {}
    Request(tuple(messages[:-4]), model).built(memo)
    request = Request(tuple(messages), model)

    assert operations(lambda: request.built(memo)) < operations(request.built) / 2


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_each_message_is_written_once_in_a_run(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    assistant_content = _replay._Writer._assistant_content
    monkeypatch.setattr(
        _replay._Writer,
        "_assistant_content",
        lambda writer, message: looked_at.append(message) or assistant_content(writer, message),
    )
    model = wire.model()
    messages = turns(model, 5)
    memo: dict[str, Any] = {}
    for length in range(1, len(messages) + 1):
        Request(tuple(messages[:length]), model).built(memo)

    assert looked_at == [message for message in messages if isinstance(message, AssistantMessage)]


@each_model
def test_messages_that_a_hook_makes_anew_for_each_request_are_not_all_kept(model: Model) -> None:
    memo: dict[str, Any] = {}
    made: list[weakref.ref[Any]] = []
    for _ in range(12):
        messages = turns(model, 2)
        made += [weakref.ref(message) for message in messages]
        Request(tuple(messages), model).built(memo)
        del messages
    gc.collect()

    alive = [reference for reference in made if reference() is not None]
    assert alive
    assert len(alive) <= 2 * 8


def test_messages_of_the_beginning_are_still_written_once_when_a_hook_changes_the_end() -> None:
    """As hooks do that add a reminder to the last message of every request."""
    model = MODELS[4]
    messages = turns(model, 10)
    memo: dict[str, Any] = {}
    parts: list[list[int]] = []
    for number in range(3):
        payload = Request((*messages, UserMessage(f"reminder {number}", timestamp=1)), model).built(memo)
        parts.append([id(block) for message in payload["messages"][:8] for block in message["content"]])

    assert parts[0] == parts[1] == parts[2]


# --- the loop's part ---


def test_the_requests_of_a_run_share_a_memo_and_runs_do_not() -> None:
    memos: list[dict[str, Any]] = []
    asked: list[Sequence[Any]] = []

    def stream(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[Any]:
        memos.append(context.memo)
        asked.append(context.messages)
        return stream_response(model, context, options)

    body = sse(*CHAT.turn)
    last = sse({"choices": [{"delta": {"content": "done"}, "finish_reason": "stop"}]}, "[DONE]")
    with served(CHAT, [Reply(body), Reply(body), Reply(last), Reply(last)]) as (server, model):
        agent = Agent(model, tools=TOOLS[0], stream_fn=stream)
        agent.prompt("go")
        agent.prompt("again")

        assert len(server.requests) == 4
        assert memos[0] is memos[1] is memos[2]
        assert memos[3] is not memos[0]
        for request, messages in zip(server.requests, asked, strict=True):
            expected = CHAT.adapter.build_request(model, ModelContext("", messages, TOOLS[0]), StreamOptions())
            assert request.json() == expected


def test_results_are_the_same_objects_as_long_as_the_transcript_only_grows() -> None:
    memo: dict[str, Any] = {}
    model = MODELS[0]
    given = [UserMessage("half \ud83d"), said(model, ToolCall("", "read", {})), result(""), UserMessage("b")]
    replay: Callable[[int], list[Any]] = lambda length: _replay.replayable(given[:length], model, memo=memo)  # noqa: E731

    first, second = replay(3), replay(4)

    assert [id(message) for message in first] == [id(message) for message in second[:3]]
    second.clear()
    assert len(replay(4)) == 4
