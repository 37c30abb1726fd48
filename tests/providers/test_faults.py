"""Every fault that `llmock` knows, against every API: what was cut is not accepted, what must not be tried again is not.

`llmock` imitates the providers, was written by nobody here, and judges what it sees of its clients. Its verdict has to be
a pass, warnings included.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    AgentTool,
    AssistantMessage,
    Model,
    RecoverContext,
    RequestRetryEvent,
    StreamOptions,
    ToolResultMessage,
    run_agent_loop,
)
from agentcore.events import StreamEvent
from agentcore.providers._overflow import is_context_overflow
from agentcore.testing.sse_server import Reply, Stall, json_reply, sse
from tests.providers.wire_support import BY_API, WIRES, Wire, ask, message_of, served

PROVIDERS = {
    "openai-completions": "openai",
    "anthropic-messages": "anthropic",
    "google-generative-ai": "gemini",
    "openai-responses": "openai",
}
"""Who speaks each API at `llmock`."""

each_api = pytest.mark.parametrize("api", PROVIDERS)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for the verdict to tell it from no delay, and each one clearly longer than the one before.
    monkeypatch.setattr("agentcore.providers._retry.FIRST_DELAY", 0.12)
    monkeypatch.setattr("agentcore.providers._retry.random.uniform", lambda low, high: 0.9)


def model_of(llmock: Any, api: str) -> Model:
    base = llmock.base_url(PROVIDERS[api]) + ("/v1beta" if api == "google-generative-ai" else "")
    return Model("mock-model", api=api, provider="mock", base_url=base)


def retries_of(events: list[StreamEvent]) -> list[RequestRetryEvent]:
    return [event for event in events if isinstance(event, RequestRetryEvent)]


def asked(llmock: Any, api: str, **options: Any) -> tuple[AssistantMessage, list[RequestRetryEvent]]:
    events = ask(model_of(llmock, api), options=StreamOptions(api_key="k", **options))
    return message_of(events), retries_of(events)


def run(llmock: Any, api: str, *, tools: Any = (), recovers: bool = True, **options: Any) -> list[Any]:
    """Run an agent that asks again, once, where an answer broke off."""

    def recover(context: RecoverContext, signal: Any) -> AgentLoopTurnUpdate | None:
        assert context.message.error is not None
        assert llmock.requests  # which waits until the server has noticed that nobody reads any more
        broke = context.message.error.kind in ("connection", "timeout", "protocol")
        return AgentLoopTurnUpdate() if recovers and broke and context.attempt == 1 else None

    config = AgentLoopConfig(model=model_of(llmock, api), api_key="k", recover_from_error=recover, **options)
    return run_agent_loop("What is the weather in Paris?", AgentContext(tools=tools), config, lambda event: None)


# --- before the first event ---


@each_api
def test_a_rate_limit_is_waited_for_as_long_as_was_asked(llmock: Any, api: str) -> None:
    llmock.rate_limit(times=2, retry_after=0.3)

    message, retries = asked(llmock, api)

    assert message.stop_reason == "stop"
    assert [retry.delay for retry in retries] == [0.3, 0.3]
    llmock.assert_resilient(strict=True)
    assert len(llmock.requests) == 3


@each_api
@pytest.mark.parametrize(
    ("status", "asked_for"), [(408, None), (409, None), (500, None), (502, None), (503, 0.1), (504, 0.1), (529, 0.1)]
)
def test_what_may_pass_is_tried_again(llmock: Any, api: str, status: int, asked_for: float | None) -> None:
    llmock.fail(status, times=1, retry_after=asked_for)

    message, retries = asked(llmock, api)

    assert (message.stop_reason, len(retries)) == ("stop", 1)
    llmock.assert_resilient(strict=True)


@each_api
def test_an_outage_is_given_up_on_after_the_retries_that_were_allowed(llmock: Any, api: str) -> None:
    llmock.fail(503, times=None, retry_after=0.1)

    message, retries = asked(llmock, api, max_retries=2)

    assert message.error is not None
    assert (message.error.kind, message.error.status, len(retries)) == ("overloaded", 503, 2)
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


@each_api
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request"),
        (401, "authentication"),
        (402, "quota"),
        (403, "authentication"),
        (404, "invalid_request"),
        (413, "context_overflow"),
        (422, "invalid_request"),
    ],
)
def test_what_cannot_pass_is_not_tried_again(llmock: Any, api: str, status: int, kind: str) -> None:
    llmock.fail(status, times=None, message="so it is")

    message, retries = asked(llmock, api)

    assert message.error is not None
    assert (message.error.kind, message.error.status, retries) == (kind, status, [])
    assert "so it is" in message.error.message
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


@each_api
def test_a_prompt_that_is_too_long_is_told_apart(llmock: Any, api: str) -> None:
    llmock.context_overflow()

    message, _ = asked(llmock, api)

    assert is_context_overflow(message)
    assert len(llmock.requests) == 1


@each_api
def test_a_real_quota_that_refills_is_waited_for(llmock: Any, api: str) -> None:
    llmock.limits(rpm=60)
    for _ in range(3):
        asked(llmock, api)
    llmock.limits(rpm=1)
    asked(llmock, api)

    message, retries = asked(llmock, api, max_retry_delay_ms=100)

    # The minute that it asks for is more than is allowed here: no retry, and the error says how long was asked.
    assert message.error is not None
    assert (message.error.kind, retries) == ("rate_limit", [])
    assert (message.error.retry_after or 0) > 1


# --- in the middle of an answer ---


@each_api
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
@pytest.mark.parametrize("after", [1, 3])
def test_an_answer_that_breaks_off_is_an_error_that_keeps_what_came_and_is_not_tried_again(
    llmock: Any, api: str, fault: str, after: int
) -> None:
    llmock.reply("one two three four five six seven")
    getattr(llmock, fault)(after_chunks=after)

    message, retries = asked(llmock, api)

    assert message.error is not None
    assert message.error.kind == ("connection" if fault == "disconnect" else "protocol")
    assert "one two three four five six seven".startswith(message.text)
    assert message.text != "one two three four five six seven"
    assert retries == []
    assert len(llmock.requests) == 1


@each_api
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
def test_a_run_that_recovers_from_an_answer_that_broke_off_is_resilient(llmock: Any, api: str, fault: str) -> None:
    llmock.reply("word " * 30)
    getattr(llmock, fault)(after_chunks=2)
    if fault == "corrupt":
        llmock.pace(20)  # so that it sees who stops reading

    *_, broken, answer = run(llmock, api)

    assert (broken.stop_reason, answer.stop_reason) == ("error", "stop")
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@each_api
def test_a_silence_ends_with_the_idle_timeout(llmock: Any, api: str) -> None:
    llmock.reply("one two three four")
    llmock.stall(after_chunks=2, seconds=30)

    *_, broken, answer = run(llmock, api, idle_timeout=0.4)

    assert broken.error.kind == "timeout"
    assert answer.stop_reason == "stop"
    llmock.assert_resilient(strict=True)


@each_api
def test_a_slow_first_word_is_waited_for(llmock: Any, api: str) -> None:
    llmock.slow_first_token(0.4)

    message, retries = asked(llmock, api)

    assert (message.stop_reason, retries) == ("stop", [])
    llmock.assert_resilient(strict=True)


@each_api
def test_a_slow_answer_is_waited_for(llmock: Any, api: str) -> None:
    llmock.delay(0.4)

    message, retries = asked(llmock, api)

    assert (message.stop_reason, retries) == ("stop", [])
    llmock.assert_resilient(strict=True)


# --- calls ---


def weather_tool(calls: list[dict[str, Any]]) -> AgentTool:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

    def execute(tool_call_id: str, params: dict[str, Any], *rest: Any) -> str:
        calls.append(params)
        return f"21 °C in {params['city']}"

    return AgentTool("get_weather", "Weather", "Get the current weather for a city.", schema, execute)


def results_of(messages: list[Any]) -> list[ToolResultMessage]:
    return [message for message in messages if isinstance(message, ToolResultMessage)]


def arguments_in(value: Any) -> Iterator[Any]:
    """Yield the arguments of every call in the messages of a request."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("arguments", "input") and ("name" in value or value.get("type") == "tool_use"):
                yield item
            elif key != "tools":
                yield from arguments_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from arguments_in(item)


@each_api
def test_a_call_runs_and_its_result_is_answered(llmock: Any, api: str) -> None:
    calls: list[dict[str, Any]] = []
    llmock.call_tool("get_weather", {"city": "Paris"})

    messages = run(llmock, api, tools=[weather_tool(calls)])

    assert calls == [{"city": "Paris"}]
    assert [message.role for message in messages] == ["user", "assistant", "toolResult", "assistant"]
    assert messages[-1].stop_reason == "stop"
    llmock.assert_resilient(strict=True)


@each_api
def test_a_tool_that_was_never_offered_is_answered_with_those_there_are(llmock: Any, api: str) -> None:
    calls: list[dict[str, Any]] = []
    llmock.break_tool_call("unknown_tool")

    messages = run(llmock, api, tools=[weather_tool(calls)])

    first = results_of(messages)[0]
    assert first.is_error
    assert "get_weather" in first.content[0].text  # type: ignore[union-attr]
    assert messages[-1].stop_reason == "stop"
    llmock.assert_resilient(strict=True)


@each_api
def test_arguments_that_are_malformed_run_nothing(llmock: Any, api: str) -> None:
    calls: list[dict[str, Any]] = []
    llmock.break_tool_call("malformed_arguments")

    messages = run(llmock, api, tools=[weather_tool(calls)])

    assert results_of(messages)[0].is_error
    assert calls == []
    assert messages[-1].stop_reason == "stop"
    if api != "google-generative-ai":  # which sends arguments as an object
        # What cannot be read never goes back as arguments.
        assert messages[1].tool_calls[0].partial_json
        assert list(arguments_in(llmock.requests[1].body)) in ([{}], ["{}"])
    llmock.assert_resilient(strict=True)


@each_api
@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt"])
def test_a_call_in_an_answer_that_breaks_off_is_not_run(llmock: Any, api: str, fault: str) -> None:
    calls: list[dict[str, Any]] = []
    # Google's calls come whole: there it breaks off in the text before.
    text = "one two three four five" if api == "google-generative-ai" else None
    llmock.call_tool("get_weather", {"city": "Paris, the one in Texas"}, text=text)
    getattr(llmock, fault)(after_chunks=3)

    messages = run(llmock, api, tools=[weather_tool(calls)], recovers=False)

    assert messages[-1].stop_reason == "error"
    assert calls == []
    assert results_of(messages) == []


# --- what it cannot do ---


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
@pytest.mark.parametrize(
    "busy",
    [
        Reply(b"", status=429, headers={"Retry-After": "0"}),
        json_reply({"error": {"code": 429, "details": [{"@type": "x.RetryInfo", "retryDelay": "0.05s"}]}}, 429),
        json_reply({"error": {"message": "Overloaded", "type": "overloaded_error"}}, 529, {"retry-after-ms": "20"}),
        Reply(b"<html>Bad gateway</html>", status=502),
    ],
    ids=["empty", "Google's", "Anthropic's", "a web page"],
)
def test_every_way_to_say_wait_is_understood_from_all(wire: Wire, busy: Reply) -> None:
    with served(wire, [busy, Reply(sse(*wire.turn))]) as (server, model):
        events = ask(model)

        assert message_of(events).stop_reason == "tool_use"
        assert len(retries_of(events)) == 1
        assert len(server.requests) == 2


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_an_exhausted_account_is_not_asked_again(wire: Wire) -> None:
    error = {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    with served(wire, json_reply({"error": error}, 429)) as (server, model):
        message = message_of(ask(model))

        assert message.error is not None
        assert message.error.kind == "quota"
        assert len(server.requests) == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_comments_count_as_a_sign_of_life(wire: Wire) -> None:
    body = sse(*wire.turn)
    pieces: list[Any] = [b": still here\n\n"] * 3 + [body]
    with served(wire, Reply(pieces)) as (_, model):
        assert message_of(ask(model, options=StreamOptions(idle_timeout=5))).stop_reason == "tool_use"
    with served(wire, Reply([b": hi\n\n", Stall()])) as (_, model):
        message = message_of(ask(model, options=StreamOptions(idle_timeout=0.2)))
    assert message.error is not None
    assert message.error.kind == "timeout"


def test_every_api_is_here() -> None:
    assert set(PROVIDERS) == set(BY_API)
