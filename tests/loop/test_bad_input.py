"""Input that cannot be right is refused at the call, with a clear error, before any event and any request."""

import threading
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.config import AgentContext, AgentLoopConfig, Limits
from agentcore.content import TextContent
from agentcore.loop import agent_loop, agent_loop_continue, run_agent_loop, run_agent_loop_continue
from agentcore.messages import AssistantMessage, ToolResultMessage, UserMessage
from agentcore.models import Model
from agentcore.partial import MessageJournal
from agentcore.testing import scripted, scripted_model
from tests.loop.loop_support import tool

CONFIG = AgentLoopConfig(model=scripted_model())
ENTRIES = pytest.mark.parametrize(
    "entry",
    [run_agent_loop, run_agent_loop_continue, agent_loop, agent_loop_continue],
    ids=lambda entry: entry.__name__,
)
PROMPTED = pytest.mark.parametrize("entry", [run_agent_loop, agent_loop], ids=lambda entry: entry.__name__)


def refused(entry: Any, error: type[Exception], match: str, **changed: Any) -> None:
    """Call an entry point with one wrong argument; it must refuse, without an event, a request or a thread."""
    events: list[Any] = []
    model = scripted("never")
    context = AgentContext(messages=[UserMessage("before")])
    given: dict[str, Any] = {"context": context, "config": CONFIG, "signal": None, "stream_fn": model}
    if entry in (run_agent_loop, agent_loop):
        given["prompts"] = "hi"
    if entry in (run_agent_loop, run_agent_loop_continue):
        given["emit"] = events.append
    before = threading.active_count()
    with pytest.raises(error, match=match):
        entry(**{**given, **changed})
    assert events == []
    assert model.requests == []
    assert threading.active_count() == before


# --- prompts --------------------------------------------------------------------------------------------------------


@PROMPTED
@pytest.mark.parametrize(
    "prompts",
    [
        7,
        b"hi",
        {"role": "user", "content": "hi"},
        [{"role": "user", "content": "hi"}],
        ["hi"],
        [UserMessage("hi"), None],
        [TextContent("hi")],
        TextContent("hi"),
        UserMessage,
        [UserMessage],
        MessageJournal().partial(),
        [MessageJournal().partial()],
    ],
    ids=repr,
)
def test_a_prompt_that_is_no_message_is_refused(entry: Any, prompts: Any):
    refused(entry, TypeError, "`prompts`", prompts=prompts)


@PROMPTED
@pytest.mark.parametrize("prompts", [None, [], ()])
def test_no_prompt_at_all_is_refused_with_a_hint(entry: Any, prompts: Any):
    refused(
        entry,
        ValueError,
        "`prompts` is empty; to answer the context as it is, call the `continue` form",
        prompts=prompts,
    )


async def prompts_later() -> str:
    return "hi"


@PROMPTED
def test_a_coroutine_as_the_prompt_is_refused_and_closed(entry: Any):
    refused(entry, TypeError, "`prompts` is a coroutine", prompts=prompts_later())


# --- the other arguments --------------------------------------------------------------------------------------------


@ENTRIES
@pytest.mark.parametrize("context", [None, [UserMessage("hi")], {"messages": []}, AgentContext])
def test_a_context_of_another_kind_is_refused(entry: Any, context: Any):
    refused(entry, TypeError, "`context` is an `AgentContext`", context=context)


@ENTRIES
@pytest.mark.parametrize("config", [None, Model("m"), {"model": Model("m")}, AgentLoopConfig])
def test_a_config_of_another_kind_is_refused(entry: Any, config: Any):
    refused(entry, TypeError, "`config` is an `AgentLoopConfig`", config=config)


@ENTRIES
@pytest.mark.parametrize("signal", [AbortController(), True, threading.Event()], ids=lambda value: type(value).__name__)
def test_a_signal_of_another_kind_is_refused(entry: Any, signal: Any):
    refused(entry, TypeError, "`signal` is an `AbortSignal`", signal=signal)


@ENTRIES
@pytest.mark.parametrize("stream_fn", [7, [], "stream_response"])
def test_a_stream_function_that_cannot_be_called_is_refused(entry: Any, stream_fn: Any):
    refused(entry, TypeError, "`stream_fn` must be callable", stream_fn=stream_fn)


@pytest.mark.parametrize("entry", [run_agent_loop, run_agent_loop_continue])
@pytest.mark.parametrize("emit", [None, [], "print"])
def test_an_emit_that_cannot_be_called_is_refused(entry: Any, emit: Any):
    refused(entry, TypeError, "`emit` must be callable", emit=emit)


async def hears_later(event: Any) -> None:
    """Stand for a listener that somebody wrote with `async def` by mistake."""


@pytest.mark.parametrize("entry", [run_agent_loop, run_agent_loop_continue])
def test_a_coroutine_function_as_emit_is_refused(entry: Any):
    refused(entry, TypeError, "`emit` is a coroutine function", emit=hears_later)


@pytest.mark.parametrize("entry", [agent_loop, agent_loop_continue])
@pytest.mark.parametrize("size", [0, -1])
def test_a_queue_without_room_is_refused(entry: Any, size: int):
    refused(entry, ValueError, "`max_queue_size`", max_queue_size=size)


@ENTRIES
@pytest.mark.parametrize("message", [{"role": "user", "content": "hi"}, "hi", None, UserMessage], ids=repr)
def test_a_context_that_holds_no_messages_is_refused(entry: Any, message: Any):
    context = AgentContext(messages=[message, UserMessage("hi")])
    refused(entry, TypeError, r"`context\.messages`", context=context)


# --- tools ----------------------------------------------------------------------------------------------------------


@ENTRIES
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "nothing"}, id="a type that is none"),
        pytest.param({"type": "string"}, id="a schema that allows no object"),
        pytest.param({"properties": []}, id="properties that are a list"),
        pytest.param({"$ref": "http://127.0.0.1:9/schema.json"}, id="a reference out of the schema"),
        pytest.param({"$ref": "#/$defs/missing"}, id="a reference to nothing"),
        pytest.param({"$schema": "https://example.org/none"}, id="a draft that is none"),
    ],
)
def test_a_tool_whose_schema_is_none_or_points_outside_itself_is_refused_by_name(entry: Any, schema: dict[str, Any]):
    context = AgentContext(messages=[UserMessage("hi")], tools=[tool("good"), tool("bad_one", schema=schema)])
    refused(entry, ValueError, "'bad_one'", context=context)


def test_two_tools_of_one_name_are_refused_by_name():
    with pytest.raises(ValueError, match="two tools are named 'run'"):
        AgentContext(tools=[tool("run"), tool("walk"), tool("run")])


@pytest.mark.parametrize("wrong", [7, "tool", {"name": "f"}, object()])
def test_what_is_no_tool_is_refused(wrong: Any):
    with pytest.raises(TypeError, match="`tools` holds `AgentTool`s"):
        AgentContext(tools=[wrong])


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tool_execution": "sideways"}, ValueError),
        ({"reasoning": "very"}, ValueError),
        ({"limits": {"turns": 5}}, TypeError),
        ({"model": "gpt"}, TypeError),
        ({"before_tool_call": "ask"}, TypeError),
        ({"get_steering_messages": []}, TypeError),
        ({"max_parallel_tools": 0}, ValueError),
        ({"abort_grace": -1}, ValueError),
        ({"transport": "carrier pigeon"}, ValueError),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_an_option_that_cannot_be_right_is_refused_where_the_config_is_made(
    options: dict[str, Any], error: type[Exception]
):
    with pytest.raises(error):
        AgentLoopConfig(**{"model": scripted_model(), **options})


def test_a_limit_of_no_turns_is_refused_where_it_is_made():
    with pytest.raises(ValueError, match=r"Limits\.turns"):
        Limits(turns=0)


# --- input that looks odd and is right ------------------------------------------------------------------------------


def test_a_message_class_of_an_application_is_welcome():
    class Note:
        role = "note"
        timestamp = 0

        def to_dict(self) -> dict[str, Any]:
            return {"role": "note"}

    events: list[Any] = []
    messages = run_agent_loop(
        [Note(), UserMessage("hi")], AgentContext(), CONFIG, events.append, stream_fn=scripted("ok")
    )
    assert [message.role for message in messages] == ["note", "user", "assistant"]


def test_a_transcript_that_no_provider_would_take_is_none_of_the_loops_business():
    history = [ToolResultMessage("c9", "gone", "orphan"), AssistantMessage("a"), UserMessage("q")]
    model = scripted("ok")
    run_agent_loop("hi", AgentContext(messages=history), CONFIG, lambda event: None, stream_fn=model)
    assert [message.role for message in model.requests[0].messages] == ["toolResult", "assistant", "user", "user"]
