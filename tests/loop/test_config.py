"""What a run is given: wrong settings are refused when they are made, secrets are not shown, nothing is shared."""

import copy
import pickle
from typing import Any

import attrs
import pytest

from agentcore.abort import AbortController
from agentcore.config import (
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    BeforeToolCallContext,
    BeforeToolCallResult,
    Limits,
    ModelContext,
    PrepareNextTurnContext,
    RecoverContext,
    StreamOptions,
)
from agentcore.content import TextContent, ToolCall
from agentcore.convert import convert_to_llm
from agentcore.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.tools import AgentTool, AgentToolResult, ToolExecutionMode

MODEL = Model("gpt")
PRICED = Model("gpt", cost={"input": 1.0, "output": 2.0})
NAN, INFINITY = float("nan"), float("inf")


def tool_named(name: str) -> AgentTool:
    return AgentTool(name, name, "Does something.", {}, lambda *arguments: "ok")


# --- contexts ---


def test_a_context_is_empty_by_default() -> None:
    context = AgentContext()

    assert (context.system_prompt, context.messages, context.tools) == ("", (), ())
    assert AgentContext(tools=None).tools == ()


def test_a_context_keeps_copies_of_the_lists_it_was_made_of() -> None:
    messages: list[Any] = [UserMessage("hi")]
    tools = [tool_named("read")]
    context, for_model = AgentContext("be kind", messages, tools), ModelContext("be kind", messages, tools)
    messages.clear()
    tools.clear()

    for kept in (context, for_model):
        assert len(kept.messages) == len(kept.tools) == 1
        assert kept.system_prompt == "be kind"
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            kept.messages = ()  # type: ignore[misc]


def test_two_tools_of_one_name_are_refused_in_a_context() -> None:
    with pytest.raises(ValueError, match="two tools are named 'run'"):
        AgentContext(tools=[tool_named("run"), tool_named("run")])
    with pytest.raises(ValueError, match="two tools are named 'run'"):
        attrs.evolve(AgentContext(), tools=[tool_named("run"), tool_named("run")])


def test_a_system_prompt_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="`system_prompt` is a `str`, not list"):
        AgentContext([UserMessage("hi")])  # type: ignore[arg-type]


def test_what_is_no_tool_is_refused_in_a_context() -> None:
    with pytest.raises(TypeError, match="`tools` holds `AgentTool`s and functions, not str"):
        AgentContext(tools=["read"])  # type: ignore[list-item]


@pytest.mark.parametrize("messages", ["hi", {"role": "user", "content": "hi"}])
@pytest.mark.parametrize("make", [AgentContext, ModelContext])
def test_messages_that_are_no_list_are_refused(make: Any, messages: Any) -> None:
    with pytest.raises(TypeError, match=f"`messages` is a list of messages, not {type(messages).__name__}"):
        make("", messages)


def test_contexts_have_a_short_repr() -> None:
    context = AgentContext("x" * 10_000, [UserMessage("y" * 10_000)] * 100, [tool_named("read")])

    assert len(repr(context)) < 600
    assert repr(AgentContext("hi", tools=[tool_named("read")])) == (
        "AgentContext(system_prompt='hi', tools=(AgentTool('read'),))"
    )


# --- limits ---


def test_limits_are_none_by_default() -> None:
    assert Limits() == Limits(turns=None, tokens=None, cost=None, seconds=None)
    assert Limits(turns=5, tokens=1e6, cost=0.5, seconds=1.5).tokens == 1_000_000  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Limits(5)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["turns", "tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [0, -1, -0.5, 0.0, NAN, INFINITY])
def test_a_limit_of_nothing_or_less_or_no_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"`Limits\.{name}` is {value!r}; it must be above 0 \(None is no limit\)"):
        Limits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["turns", "tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [True, "5", [1]])
def test_a_limit_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"`Limits\.{name}` is a number or None, not {type(value).__name__}"):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["turns", "tokens"])
def test_half_a_turn_or_token_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="it must be a whole number"):
        Limits(**{name: 2.5})  # type: ignore[arg-type]


def test_a_cost_limit_needs_a_model_with_prices() -> None:
    limits = Limits(cost=1.0)

    assert AgentLoopConfig(model=PRICED, limits=limits).limits == limits
    assert AgentLoopConfig(model=MODEL, limits=Limits(tokens=5)).limits == Limits(tokens=5)
    for model in (MODEL, Model("gpt", cost={"input": 1.0})):
        with pytest.raises(ValueError, match="a cost limit needs the model's prices, and 'gpt' has none"):
            AgentLoopConfig(model=model, limits=limits)
    with pytest.raises(ValueError, match="a cost limit needs the model's prices"):
        attrs.evolve(AgentLoopConfig(model=PRICED, limits=limits), model=MODEL)


# --- options ---


def test_options_have_these_defaults() -> None:
    assert {field.name: getattr(StreamOptions(), field.name) for field in attrs.fields(StreamOptions)} == {
        "reasoning": None,
        "session_id": None,
        "on_payload": None,
        "on_response": None,
        "transport": "auto",
        "thinking_budgets": None,
        "max_retry_delay_ms": 60_000,
        "max_tokens": None,
        "temperature": None,
        "cache_retention": None,
        "headers": None,
        "metadata": None,
        "signal": None,
        "api_key": None,
        "connect_timeout": 10.0,
        "idle_timeout": 300.0,
        "max_retries": 2,
        "session": None,
    }


def test_a_config_needs_only_a_model_and_extends_the_options() -> None:
    config = AgentLoopConfig(model=MODEL)
    own = {
        field.name: getattr(config, field.name)
        for field in attrs.fields(AgentLoopConfig)[len(attrs.fields(StreamOptions)) :]
    }

    assert isinstance(config, StreamOptions)
    assert own == {
        "model": MODEL,
        "tool_execution": ToolExecutionMode.PARALLEL,
        "before_tool_call": None,
        "after_tool_call": None,
        "prepare_next_turn": None,
        "convert_to_llm": convert_to_llm,
        "transform_context": None,
        "get_api_key": None,
        "get_steering_messages": None,
        "get_follow_up_messages": None,
        "should_stop_after_turn": None,
        "recover_from_error": None,
        "max_parallel_tools": 16,
        "abort_grace": 0.5,
        "limits": None,
    }
    with pytest.raises(TypeError):
        AgentLoopConfig()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        AgentLoopConfig(MODEL)  # type: ignore[call-arg, arg-type]


def test_plain_strings_become_levels_and_modes() -> None:
    config = AgentLoopConfig(
        model=MODEL, reasoning="high", tool_execution="sequential", thinking_budgets={"low": 10, ThinkingLevel.MAX: 20}
    )

    assert config.reasoning is ThinkingLevel.HIGH
    assert config.tool_execution is ToolExecutionMode.SEQUENTIAL
    assert config.thinking_budgets == {"low": 10, "max": 20}
    assert AgentLoopTurnUpdate(thinking_level="off").thinking_level is ThinkingLevel.OFF
    assert AgentLoopConfig(model=MODEL, convert_to_llm=None).convert_to_llm is convert_to_llm


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"model": "gpt"}, TypeError, "`model` is a `Model`, not str; `get_model(provider, id)` returns one"),
        ({"model": None}, TypeError, "`model` is a `Model`, not NoneType"),
        ({"reasoning": "enormous"}, ValueError, "'enormous' is no thinking level: it is one of off, minimal, low"),
        ({"tool_execution": "sideways"}, ValueError, "'sideways' is no execution mode: it is sequential or parallel"),
        ({"tool_execution": None}, ValueError, "None"),
        ({"thinking_budgets": {"enormous": 5}}, ValueError, "'enormous'"),
        ({"transport": "websocket"}, ValueError, "`transport` is 'websocket'; it takes 'auto', 'sse'"),
        ({"transport": None}, ValueError, "`transport` is None; it takes 'auto', 'sse'"),
        ({"cache_retention": "ever"}, ValueError, "`cache_retention` is 'ever'; it takes 'none', 'short', 'long'"),
        ({"max_retry_delay_ms": -1}, ValueError, "`max_retry_delay_ms` is -1; it must be at least 0"),
        ({"max_retry_delay_ms": "1"}, TypeError, "`max_retry_delay_ms` is a number, not str"),
        ({"max_retry_delay_ms": INFINITY}, ValueError, "`max_retry_delay_ms` is inf; it must be finite"),
        ({"max_tokens": 0}, ValueError, "`max_tokens` is 0; it must be above 0"),
        ({"max_tokens": 1.5}, TypeError, "`max_tokens` is a whole number, not float"),
        ({"max_tokens": True}, TypeError, "`max_tokens` is a whole number, not bool"),
        ({"temperature": -0.1}, ValueError, "`temperature` is -0.1; it must be at least 0"),
        ({"temperature": NAN}, ValueError, "`temperature` is nan; it must be at least 0"),
        ({"temperature": INFINITY}, ValueError, "`temperature` is inf; it must be finite"),
        ({"connect_timeout": 0}, ValueError, "`connect_timeout` is 0; it must be above 0"),
        ({"connect_timeout": None}, TypeError, "`connect_timeout` is a number, not NoneType"),
        ({"idle_timeout": -1}, ValueError, "`idle_timeout` is -1; it must be above 0"),
        ({"idle_timeout": NAN}, ValueError, "`idle_timeout` is nan; it must be above 0"),
        ({"max_retries": -1}, ValueError, "`max_retries` is -1; it must be at least 0"),
        ({"max_retries": 0.5}, TypeError, "`max_retries` is a whole number, not float"),
        ({"max_retries": None}, TypeError, "`max_retries` is a whole number, not NoneType"),
        ({"max_parallel_tools": 0}, ValueError, "`max_parallel_tools` is 0; it must be at least 1"),
        ({"max_parallel_tools": 1.5}, TypeError, "`max_parallel_tools` is a whole number, not float"),
        ({"abort_grace": -0.5}, ValueError, "`abort_grace` is -0.5; it must be at least 0"),
        ({"abort_grace": INFINITY}, ValueError, "`abort_grace` is inf; it must be finite"),
        ({"limits": 5}, TypeError, "`limits` is a `Limits`, not int"),
        ({"limits": {"turns": 5}}, TypeError, "`limits` is a `Limits`, not dict"),
        *[
            ({name: "not callable"}, TypeError, f"`{name}` must be callable, not str")
            for name in (
                "before_tool_call", "after_tool_call", "prepare_next_turn", "convert_to_llm", "transform_context",
                "get_api_key", "get_steering_messages", "get_follow_up_messages", "should_stop_after_turn",
                "recover_from_error", "on_payload", "on_response",
            )
        ],
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_right_is_refused(fields: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        AgentLoopConfig(**{"model": MODEL, **fields})

    assert said in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_retry_delay_ms": None},
        {"max_retry_delay_ms": 0},
        {"max_retry_delay_ms": 1.5},
        {"max_tokens": 1},
        {"temperature": 0},
        {"connect_timeout": INFINITY},
        {"idle_timeout": INFINITY},
        {"max_retries": 0},
        {"max_parallel_tools": 1},
        {"abort_grace": 0},
        {"cache_retention": "none"},
        {"transport": "sse"},
        {"limits": Limits(turns=1)},
        {"before_tool_call": lambda context, signal: None},
    ],
)
def test_a_setting_at_its_bound_is_taken(fields: Any) -> None:
    config = AgentLoopConfig(model=MODEL, **fields)

    for name, value in fields.items():
        assert getattr(config, name) == value


def test_what_the_caller_gave_is_copied() -> None:
    headers: dict[str, str | None] = {"a": "b", "removed": None}
    metadata, budgets = {"user": "u"}, {"low": 1}
    options = StreamOptions(headers=headers, metadata=metadata, thinking_budgets=budgets)
    headers.clear()
    metadata.clear()
    budgets.clear()

    assert options.headers == {"a": "b", "removed": None}
    assert options.metadata == {"user": "u"}
    assert options.thinking_budgets == {"low": 1}


class SessionWithSecret:
    def __repr__(self) -> str:
        return "SECRET"


def test_the_repr_of_options_and_config_shows_no_secrets() -> None:
    fields: dict[str, Any] = {
        "api_key": "SECRET",
        "headers": {"Authorization": "Bearer SECRET", "x-gone": None},
        "session": SessionWithSecret(),
        "signal": AbortController().signal,
    }
    model = Model("gpt", base_url="https://u:SECRET@host/v1", headers={"x-key": "SECRET"})

    for shown in (repr(StreamOptions(**fields)), repr(AgentLoopConfig(model=model, **fields))):
        assert "SECRET" not in shown
        assert "headers={Authorization: …, x-gone: …}" in shown
    assert repr(StreamOptions()) == "StreamOptions()"


def test_a_config_is_changed_by_making_another() -> None:
    config = AgentLoopConfig(model=MODEL, api_key="k", max_tokens=5)
    other = attrs.evolve(config, temperature=0.5)

    assert (other.api_key, other.max_tokens, other.temperature) == ("k", 5, 0.5)
    assert config.temperature is None
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.api_key = "other"  # type: ignore[misc]


# --- hook records ---

MESSAGE = AssistantMessage([ToolCall("c", "read", {})], timestamp=1)
RESULT = ToolResultMessage("c", "read", "ok", timestamp=2)


def hook_records() -> list[Any]:
    call, context = MESSAGE.tool_calls[0], AgentContext("hi")
    return [
        BeforeToolCallContext(MESSAGE, call, {"a": 1}, context),
        BeforeToolCallResult(True, "no", True, {"a": 1}, True),
        AfterToolCallContext(MESSAGE, call, {"a": 1}, AgentToolResult("ok"), False, context),
        AfterToolCallResult("text", {"a": 1}, True, Usage(1), True),
        PrepareNextTurnContext(MESSAGE, [RESULT], context, [MESSAGE, RESULT]),
        RecoverContext(MESSAGE, context, [MESSAGE], 2),
        AgentLoopTurnUpdate(context, MODEL, "high"),
    ]


@pytest.mark.parametrize("record", hook_records(), ids=lambda record: type(record).__name__)
def test_hook_records_are_frozen_and_have_a_short_repr(record: Any) -> None:
    name = attrs.fields(type(record))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(record, name, None)
    assert repr(record).startswith(type(record).__name__ + "(")
    assert len(repr(record)) < 600
    assert not hasattr(record, "__dict__")


def test_results_of_hooks_change_nothing_by_default() -> None:
    assert attrs.astuple(BeforeToolCallResult()) == (False, None, None, None, False)
    assert attrs.astuple(AfterToolCallResult()) == (None,) * 5
    assert attrs.astuple(AgentLoopTurnUpdate()) == (None,) * 3


def test_results_of_hooks_are_values() -> None:
    for record in (BeforeToolCallResult(True, "no", args={"a": [1]}), AfterToolCallResult("text", {"a": [1]})):
        assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record


def test_the_content_that_a_hook_returns_becomes_blocks() -> None:
    assert AfterToolCallResult("text").content == (TextContent("text"),)
    assert AfterToolCallResult([]).content == ()
    assert AfterToolCallResult(None).content is None
    with pytest.raises(TypeError, match="content"):
        AfterToolCallResult(5)


def test_sequences_in_hook_records_become_tuples_of_their_own() -> None:
    results, messages = [RESULT], [MESSAGE, RESULT]
    turn = PrepareNextTurnContext(MESSAGE, results, AgentContext(), messages)
    failure = RecoverContext(MESSAGE, AgentContext(), messages, 1)
    results.clear()
    messages.clear()

    assert turn.tool_results == (RESULT,)
    assert turn.new_messages == failure.new_messages == (MESSAGE, RESULT)
