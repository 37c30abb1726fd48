"""`Agent`: a run through it is a run of the loop, its state is never behind, and its parts can be replaced."""

import copy
import gc
import json
import logging
import pickle
import re
import threading
import weakref
from pathlib import Path
from typing import Any

import attrs
import pytest

import agentcore
from agentcore import (
    AbortController,
    AbortRequested,
    Agent,
    AgentBusyError,
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    AuthenticationError,
    ImageContent,
    Limits,
    MisuseError,
    Model,
    NothingToContinueError,
    PartialMessage,
    RequestRetryEvent,
    TextContent,
    ThinkingLevel,
    ToolExecutionMode,
    ToolResultMessage,
    Usage,
    UserMessage,
    run_agent_loop,
)
from agentcore.messages import message_from_dict
from agentcore.providers.catalog import get_model
from agentcore.testing import Gate, call, failure, reply, scripted, scripted_model, thinking
from tests.agent.agent_support import agent_with, requests, roles, tool

CATALOG = Path(agentcore.__file__).parent / "providers" / "catalog.json"
PRICED = scripted_model(cost={"input": 1.0, "output": 2.0})


def untimed(value: Any) -> Any:
    """Return the dict form of events without what differs from run to run."""
    if isinstance(value, dict):
        return {key: untimed(item) for key, item in value.items() if key != "timestamp"}
    return [untimed(item) for item in value] if isinstance(value, list) else value


# --- a run ----------------------------------------------------------------------------------------------------------


def script() -> list[Any]:
    return [
        reply(thinking("hm"), "Let me see.", call("echo", id="a", n=1), call("echo", id="b", n=2), chunk=4),
        failure("too busy", "half"),
        reply("Done."),
    ]


def go_on(context: Any, signal: Any) -> Any:
    return AgentLoopTurnUpdate()


def test_the_events_of_a_run_are_those_of_the_loop() -> None:
    loop_events: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), recover_from_error=go_on, tool_execution="sequential")
    run_agent_loop(
        "hi", AgentContext("Be brief.", (), (tool(),)), config, loop_events.append, None, scripted(*script())
    )

    heard: list[Any] = []
    agent = agent_with(*script(), tools=[tool()], system_prompt="Be brief.", config=config)
    agent.subscribe(lambda event, signal: heard.append(event))
    agent.prompt("hi")
    streamed = list(agent_with(*script(), tools=[tool()], config=config).stream("hi"))

    expected = untimed([event.to_dict() for event in loop_events])
    assert untimed([event.to_dict() for event in heard]) == expected
    assert untimed([event.to_dict() for event in streamed]) == expected


def test_a_prompt_returns_the_last_assistant_message_and_the_transcript_grows() -> None:
    agent = agent_with(reply(call("echo", id="a")), reply("Done."), reply("Again."), tools=[tool()])

    first = agent.prompt("hi")
    second = agent.prompt([UserMessage("one"), UserMessage("two")])

    assert (first.text, second.text) == ("Done.", "Again.")
    assert roles(agent) == ["user", "assistant", "toolResult", "assistant", "user", "user", "assistant"]
    assert agent.state.messages[3] is first
    assert [len(request.messages) for request in requests(agent)] == [1, 3, 6]


def test_a_message_is_a_prompt_and_images_go_with_text() -> None:
    image = ImageContent("aGk=", "image/png")
    agent = agent_with("one", "two", "three")

    agent.prompt(UserMessage("hi"))
    agent.prompt("Look:", images=[image])
    agent.prompt("", images=(image,))

    said = [message.content for message in agent.messages if isinstance(message, UserMessage)]
    assert said == ["hi", (TextContent("Look:"), image), (image,)]


@pytest.mark.parametrize(
    ("prompt", "images", "error"),
    [
        ([], (), ValueError),
        (None, (), ValueError),
        (5, (), TypeError),
        ({"role": "user"}, (), TypeError),
        ("text", ["not an image"], TypeError),
        (UserMessage("hi"), [ImageContent("aGk=", "image/png")], TypeError),
    ],
)
@pytest.mark.parametrize("how", ["prompt", "stream"])
def test_what_is_no_prompt_is_refused_and_changes_nothing(how: str, prompt: Any, images: Any, error: Any) -> None:
    agent = agent_with("one")

    with pytest.raises(error):
        getattr(agent, how)(prompt, images)

    assert agent.prompt("hi").text == "one"
    assert roles(agent) == ["user", "assistant"]


def test_a_stream_gives_the_events_and_the_messages_and_leaves_the_agent_idle() -> None:
    agent = agent_with(reply(call("echo", id="a")), reply("Done."), "Next.", tools=[tool()])

    stream = agent.stream("hi", max_queue_size=1)
    types_seen = [event.type for event in stream]

    assert types_seen[0] == "agent_start"
    assert types_seen[-1] == "agent_end"
    assert stream.result() == agent.state.messages
    assert agent.prompt("more").text == "Next."
    assert roles(agent)[-2:] == ["user", "assistant"]


def test_who_reads_the_end_of_a_stream_can_begin_the_next_run() -> None:
    agent = agent_with(*["text"] * 50, tools=[tool()])

    for _ in range(25):
        for event in agent.stream("hi"):
            if event.type == "agent_end":
                assert not agent.state.is_streaming
                assert agent.prompt("more").text == "text"
                break


def test_the_end_of_a_stream_is_not_told_before_the_agent_is_idle() -> None:
    agent = agent_with("text")
    settle = agent._steering.settle

    def settle_late(added: Any) -> None:
        threading.Event().wait(0.05)
        settle(added)

    agent._steering.settle = settle_late
    streaming = [agent.state.is_streaming for event in agent.stream("hi") if event.type == "agent_end"]

    assert streaming == [False]


def test_a_stream_that_has_been_made_is_a_run_though_its_thread_has_not_begun_it() -> None:
    agent = agent_with("one")
    may_begin = Gate()
    on_threads: list[int] = []

    def hold_up(config: AgentLoopConfig) -> AgentLoopConfig:
        on_threads.append(threading.get_ident())
        if threading.get_ident() != threading.main_thread().ident:
            may_begin.wait()
        return config

    agent.extend_runs(hold_up)
    stream = agent.stream("hi")
    try:
        assert agent.state.is_streaming
        assert agent.status().phase == "waiting for model"
    finally:
        may_begin.open()
    assert [message.text for message in stream.result()[1:]] == ["one"]
    assert len(set(on_threads)) == 2


def test_an_agent_keeps_nothing_of_a_stream_that_is_gone() -> None:
    agent = agent_with(reply("text", chunk=1))
    events: list[Any] = []
    agent.subscribe(lambda event, signal: events.append(weakref.ref(event)) if event.type != "agent_start" else None)
    stream = agent.stream("hi")
    stream.result(20)
    assert None not in [event() for event in events]  # unread

    del stream
    gc.collect()

    assert [event() for event in events if event() is not None] == []


def test_a_failed_response_does_not_raise_but_is_told_everywhere() -> None:
    agent = agent_with(failure("wrong key", kind="authentication"), "fine")

    message = agent.prompt("hi")

    assert (message.stop_reason, message.error_message) == ("error", "wrong key")
    assert agent.state.error_message == "wrong key"
    assert "wrong key" in repr(message)
    with pytest.raises(AuthenticationError, match="wrong key"):
        message.raise_for_error()
    assert agent.prompt("again").raise_for_error().text == "fine"
    assert agent.state.error_message is None


def test_an_error_that_was_recovered_from_is_not_the_last_word() -> None:
    config = AgentLoopConfig(model=scripted_model(), recover_from_error=go_on)
    agent = agent_with(failure("overloaded"), reply(call("echo", id="a")), "Done.", tools=[tool()], config=config)
    seen: list[Any] = []
    agent.subscribe(lambda event, signal: seen.append((event.type, agent.state.is_streaming)))

    message = agent.prompt("hi")

    assert message.text == "Done."
    assert agent.state.error_message is None
    assert seen[-1] == ("agent_end", True)
    assert all(streaming for _, streaming in seen)
    assert agent.wait_for_idle(0) is True
    assert not agent.state.is_streaming


def test_a_hook_that_fails_ends_the_run_and_leaves_the_agent_idle() -> None:
    def broken(messages: Any) -> Any:
        raise ZeroDivisionError("no converter")

    agent = agent_with("one", "two")
    agent.convert_to_llm = broken
    told: list[Any] = []
    agent.subscribe(lambda event, signal: told.append((event.type, agent.state.error_message)))

    with pytest.raises(ZeroDivisionError):
        agent.prompt("hi")

    assert told[-1] == ("agent_end", "no converter")
    assert (agent.state.error_message, agent.state.is_streaming) == ("no converter", False)
    agent.convert_to_llm = None
    assert agent.prompt("again").text == "one"
    assert agent.state.error_message is None


def test_a_hook_that_fails_in_a_stream_is_raised_to_the_reader() -> None:
    def broken(messages: Any) -> Any:
        raise ZeroDivisionError("no converter")

    agent = agent_with("one")
    agent.convert_to_llm = broken
    stream = agent.stream("hi")

    with pytest.raises(ZeroDivisionError):
        list(stream)

    assert agent.state.error_message == "no converter"
    agent.convert_to_llm = None
    assert agent.prompt("again").text == "one"


def test_system_exit_leaves_the_agent_idle_and_says_that_it_was_interrupted() -> None:
    def leave(messages: Any) -> Any:
        raise SystemExit(3)

    agent = agent_with("one")
    agent.convert_to_llm = leave

    with pytest.raises(SystemExit):
        agent.prompt("hi")

    assert agent.state.error_message == "interrupted"
    assert not agent.state.is_streaming


def test_an_interrupt_after_the_last_word_is_noted_too() -> None:
    def interrupt(event: Any, signal: Any) -> None:
        if event.type == "agent_end":
            raise KeyboardInterrupt

    agent = agent_with("one", "two")
    remove = agent.subscribe(interrupt)

    with pytest.raises(KeyboardInterrupt):
        agent.prompt("hi")

    assert agent.state.error_message == "interrupted"
    assert agent.state.messages[-1].text == "one"
    remove()
    assert agent.prompt("again").text == "two"


def test_a_schema_that_cannot_be_used_is_refused_at_the_call_and_changes_nothing() -> None:
    bad = AgentTool("bad", "bad", "bad", {"type": "nonsense"}, lambda *given: "x")
    agent = agent_with(failure("first"), "fine")
    agent.prompt("hi")
    agent.tools = [bad]
    before = agent.state

    for begin in (agent.prompt, agent.stream):
        with pytest.raises(ValueError, match="bad"):
            begin("again")

    assert agent.state.messages == before.messages
    assert agent.state.error_message == "first"
    agent.tools = ()
    assert agent.prompt("again").text == "fine"


# --- state ----------------------------------------------------------------------------------------------------------


def test_state_has_taken_an_event_in_before_a_listener_sees_it() -> None:
    agent = agent_with(reply("Hm", call("echo", id="a"), chunk=1), "Done.", tools=[tool()])
    told: list[tuple[Any, ...]] = []

    def listen(event: Any, signal: Any) -> None:
        state = agent.state
        message = getattr(event, "message", None)
        if event.type in ("message_start", "message_update") and not isinstance(
            message, UserMessage | ToolResultMessage
        ):
            assert state.streaming_message is message
            told.append((event.type, state.streaming_message.text))
        elif event.type == "message_end":
            assert state.messages[-1] is message
            assert state.streaming_message is None
        elif event.type.startswith("tool_execution"):
            told.append((event.type, sorted(state.pending_tool_calls)))
        assert state.is_streaming

    agent.subscribe(listen)
    agent.prompt("hi")

    assert ("message_update", "H") in told
    assert ("tool_execution_start", ["a"]) in told
    assert ("tool_execution_end", []) in told
    state = agent.state
    assert (state.streaming_message, state.pending_tool_calls, state.is_streaming) == (None, frozenset(), False)


def test_the_assistant_message_is_in_the_state_before_the_hook_sees_its_calls() -> None:
    seen: list[Any] = []

    def look(context: Any, signal: Any) -> None:
        last = agent.state.messages[-1]
        seen.append((last.role, [one.id for one in last.tool_calls], sorted(agent.state.pending_tool_calls)))

    agent = agent_with(
        reply(call("echo", id="a"), call("echo", id="b")), "Done.", tools=[tool()], before_tool_call=look
    )
    agent.prompt("hi")

    assert seen == [("assistant", ["a", "b"], ["a"]), ("assistant", ["a", "b"], ["a", "b"])]


def test_calls_that_share_an_id_are_pending_until_both_have_ended() -> None:
    agent = agent_with(reply(call("echo", id="a"), call("echo", id="a")), "Done.", tools=[tool()])
    told: list[Any] = []
    agent.subscribe(
        lambda event, signal: (
            told.append((event.type[15:], sorted(agent.state.pending_tool_calls)))
            if event.type.startswith("tool_execution")
            else None
        )
    )

    agent.prompt("hi")

    assert told == [("start", ["a"]), ("start", ["a"]), ("end", ["a"]), ("end", [])]


def test_what_state_gave_does_not_change_and_changing_it_changes_nothing() -> None:
    agent = agent_with("one", "two")
    agent.prompt("hi")
    state = agent.state
    state.messages.append(UserMessage("smuggled"))
    agent.messages.clear()

    assert roles(agent) == ["user", "assistant"]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.is_streaming = True
    agent.prompt("more")
    assert len(state.messages) == 3


def test_a_transcript_that_went_through_json_goes_on() -> None:
    agent = agent_with(reply(thinking("hm"), "one", call("echo", id="a")), "two", tools=[tool()])
    agent.prompt("hi")
    saved = json.loads(json.dumps([message.to_dict() for message in agent.messages]))

    later = agent_with("three", messages=[message_from_dict(data) for data in saved])
    later.prompt("more")

    assert later.messages[:4] == agent.messages
    assert pickle.loads(pickle.dumps(agent.messages)) == agent.messages
    assert copy.deepcopy(agent.messages) == agent.messages


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_agent_refuses_to_be_copied_and_says_what_to_save(attempt: Any) -> None:
    with pytest.raises(TypeError, match="`save` writes its conversation"):
        attempt(agent_with())


def test_the_repr_of_an_agent_is_short() -> None:
    agent = agent_with("one")
    agent.prompt("hi" * 1000)

    assert repr(agent) == "<Agent 'scripted-1', idle, 2 messages>"


def test_reset_forgets_the_conversation_the_queues_and_the_error_and_keeps_the_settings() -> None:
    agent = agent_with(failure("broken"), "fresh", system_prompt="Be brief.", thinking_level="high")
    agent.prompt("hi")
    agent.steer("a")
    agent.follow_up("b")

    agent.reset()

    state = agent.state
    assert (state.messages, state.error_message, agent.has_queued_messages()) == ([], None, False)
    assert (state.system_prompt, state.thinking_level) == ("Be brief.", ThinkingLevel.HIGH)
    assert agent.prompt("hi").text == "fresh"


# --- settings -------------------------------------------------------------------------------------------------------


def test_without_a_word_an_agent_does_not_think_runs_in_parallel_and_has_no_hook() -> None:
    agent = agent_with()

    assert agent.thinking_level is ThinkingLevel.OFF
    assert agent.tool_execution is ToolExecutionMode.PARALLEL
    assert (agent.before_tool_call, agent.after_tool_call, agent.prepare_next_turn, agent.limits) == (None,) * 4
    assert (agent.steering_mode, agent.follow_up_mode) == ("one-at-a-time", "one-at-a-time")


def nothing(*given: Any) -> None:
    return None


def test_a_config_carries_the_rest_and_what_is_named_overrides_it() -> None:
    config = AgentLoopConfig(
        model=scripted_model(),
        reasoning="low",
        tool_execution="sequential",
        max_parallel_tools=3,
        temperature=0.5,
        before_tool_call=nothing,
        limits=Limits(turns=5),
    )

    plain = Agent(scripted_model(), config=config)
    named = Agent(
        scripted_model(), config=config, thinking_level="high", tool_execution="parallel", limits=Limits(turns=9)
    )

    assert plain.config == config
    assert (plain.thinking_level, plain.tool_execution) == (ThinkingLevel.LOW, ToolExecutionMode.SEQUENTIAL)
    assert named.config == attrs.evolve(config, reasoning="high", tool_execution="parallel", limits=Limits(turns=9))


def test_a_run_gets_the_options_of_the_config_and_no_reasoning_when_thinking_is_off() -> None:
    config = AgentLoopConfig(model=scripted_model(), temperature=0.25, session_id="s")
    agent = agent_with("one", "two", config=config)
    agent.prompt("hi")
    agent.thinking_level = "medium"
    agent.prompt("hi")

    options = [request.options for request in requests(agent)]
    assert [(one.reasoning, one.temperature, one.session_id) for one in options] == [
        (None, 0.25, "s"),
        (ThinkingLevel.MEDIUM, 0.25, "s"),
    ]


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        (AgentLoopConfig(model=Model("other")), ValueError, "'other'"),
        (AgentLoopConfig(model=scripted_model(), signal=AbortController().signal), ValueError, "config.signal"),
        (AgentLoopConfig(model=scripted_model(), get_steering_messages=list), ValueError, "get_steering_messages"),
        (AgentLoopConfig(model=scripted_model(), get_follow_up_messages=list), ValueError, "get_follow_up_messages"),
        ({"temperature": 1}, TypeError, "AgentLoopConfig"),
    ],
)
def test_a_config_that_an_agent_cannot_have_is_refused(config: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        Agent(scripted_model(), config=config)
    agent = Agent(scripted_model())
    with pytest.raises(error, match=text):
        agent.config = config


def test_a_config_can_be_replaced_as_a_whole_but_for_the_model() -> None:
    agent = agent_with("one", thinking_level="high", before_tool_call=nothing)

    agent.config = AgentLoopConfig(model=scripted_model(), max_tokens=10)

    assert (agent.thinking_level, agent.before_tool_call, agent.config.max_tokens) == (ThinkingLevel.OFF, None, 10)


NEW_TOOL = tool("other")
REPLACEMENTS = [
    ("model", Model("another", provider="p"), Model("another", provider="p")),
    ("system_prompt", "Be long.", "Be long."),
    ("tools", [NEW_TOOL], (NEW_TOOL,)),
    ("tools", None, ()),
    ("thinking_level", "max", ThinkingLevel.MAX),
    ("thinking_level", None, ThinkingLevel.OFF),
    ("tool_execution", "sequential", ToolExecutionMode.SEQUENTIAL),
    ("before_tool_call", nothing, nothing),
    ("after_tool_call", nothing, nothing),
    ("prepare_next_turn", nothing, nothing),
    ("should_stop_after_turn", nothing, nothing),
    ("recover_from_error", nothing, nothing),
    ("transform_context", nothing, nothing),
    ("convert_to_llm", nothing, nothing),
    ("get_api_key", nothing, nothing),
    ("limits", Limits(turns=1), Limits(turns=1)),
    ("steering_mode", "all", "all"),
    ("follow_up_mode", "all", "all"),
    ("stream_fn", nothing, nothing),
    ("stream_fn", None, None),
    ("messages", [UserMessage("a", 1)], [UserMessage("a", 1)]),
]


@pytest.mark.parametrize(("name", "value", "expected"), REPLACEMENTS)
def test_every_part_can_be_replaced_between_runs(name: str, value: Any, expected: Any) -> None:
    agent = agent_with("one")
    agent.prompt("hi")

    setattr(agent, name, value)

    assert getattr(agent, name) == expected


@pytest.mark.parametrize(("name", "value", "expected"), [*REPLACEMENTS, ("config", None, None)])
def test_no_part_can_be_replaced_during_a_run(name: str, value: Any, expected: Any) -> None:
    refused: list[str] = []

    def replace_it(*given: Any) -> str:
        with pytest.raises(AgentBusyError) as caught:
            setattr(agent, name, value)
        refused.append(str(caught.value))
        return "tried"

    agent = agent_with(reply(call("echo", id="a")), "Done.", tools=[tool(execute=replace_it)], system_prompt="As was.")
    before = attrs.evolve(agent.state, messages=[])

    assert agent.prompt("hi").text == "Done."
    assert f"replace `{name}`" in refused[0]
    after = attrs.evolve(agent.state, messages=[])
    assert repr(after) == repr(before)
    assert roles(agent) == ["user", "assistant", "toolResult", "assistant"]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("model", 5, TypeError),
        ("system_prompt", None, TypeError),
        ("tools", ["echo"], TypeError),
        ("tools", [tool(), tool()], ValueError),
        ("thinking_level", "hard", ValueError),
        ("tool_execution", "both", ValueError),
        ("before_tool_call", "yes", TypeError),
        ("limits", 5, TypeError),
        ("limits", Limits(cost=1.0), ValueError),  # the scripted model has no prices
        ("steering_mode", "some", ValueError),
        ("follow_up_mode", None, ValueError),
        ("stream_fn", "url", TypeError),
        ("messages", ["hi", 5], TypeError),
    ],
)
def test_what_cannot_be_right_is_refused_when_it_is_set_and_when_it_is_given(name: str, value: Any, error: Any) -> None:
    agent = agent_with("one")
    before = repr(agent.state)

    with pytest.raises(error):
        setattr(agent, name, value)
    given = {"model": scripted_model(), name: value}
    with pytest.raises(error):
        Agent(**given)

    assert repr(agent.state) == before
    assert agent.prompt("hi").text == "one"


def test_a_class_tells_what_can_be_replaced() -> None:
    assert "replaced between runs" in (type(Agent.model).__doc__ or "")


def test_a_model_can_be_given_by_its_name_in_the_catalog() -> None:
    names = [
        (provider, known["models"])
        for provider, known in json.loads(CATALOG.read_text("utf-8"))["providers"].items()
        if known["models"]
    ]
    (first, models), (second, others) = names[0], names[-1]
    one, other = get_model(first, next(iter(models))), get_model(second, next(iter(others)))

    agent = Agent(f"{first}/{one.id}", config=AgentLoopConfig(model=one))
    assert agent.model == one
    agent.model = f"{second}/{other.id}"
    assert agent.state.model == other


@pytest.mark.parametrize("name", ["nonsense", "", "nobody/nothing", "openai/nothing-like-this"])
def test_a_name_that_is_not_in_the_catalog_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(repr(name.rpartition("/")[2] if "openai" in name else name.partition("/")[0]))
    ):
        Agent(name)


def test_a_name_without_its_provider_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="'gpt-5-mini' names no model: the provider is wanted too, as in 'openai/"):
        Agent("gpt-5-mini")


# --- listeners ------------------------------------------------------------------------------------------------------


def test_listeners_are_called_in_the_order_of_subscription_until_they_are_taken_back() -> None:
    agent = agent_with("one", "two")
    heard: list[Any] = []
    remove_first = agent.subscribe(lambda event, signal: heard.append(("first", event.type)))
    agent.subscribe(lambda event, signal: heard.append(("second", event.type)))

    agent.prompt("hi")
    remove_first()
    remove_first()
    agent.prompt("hi")

    names = [name for name, _ in heard]
    half = names.index("second", len(names) // 2)
    assert heard[:2] == [("first", "agent_start"), ("second", "agent_start")]
    assert names.count("second") == 2 * names.count("first")
    assert set(names[2 * names.count("first") :]) == {"second"}
    assert half > 0


def test_one_listener_may_be_subscribed_twice() -> None:
    agent = agent_with("one")
    heard: list[str] = []

    def listen(event: Any, signal: Any) -> None:
        heard.append(event.type)

    agent.subscribe(listen)
    remove = agent.subscribe(listen)
    remove()
    agent.prompt("hi")

    assert heard.count("agent_start") == 1


def test_listeners_may_be_added_and_taken_back_during_an_event() -> None:
    agent = agent_with("one", "two")
    heard: list[Any] = []
    removes: list[Any] = []

    def late(event: Any, signal: Any) -> None:
        heard.append(("late", event.type))

    def first(event: Any, signal: Any) -> None:
        if event.type == "turn_start":
            removes[0]()
            agent.subscribe(late)

    agent.subscribe(first)
    removes.append(agent.subscribe(lambda event, signal: heard.append(("second", event.type))))
    agent.prompt("hi")

    assert heard[:2] == [("second", "agent_start"), ("late", "message_start")]


def test_a_listener_gets_the_signal_of_the_run() -> None:
    agent = agent_with("one", "two")
    signals: list[Any] = []
    agent.subscribe(lambda event, signal: signals.append(signal))
    agent.subscribe(lambda event, signal: agent.abort("enough") if event.type == "turn_end" else None)

    agent.prompt("hi")
    first = signals[0]
    agent.prompt("hi")

    assert (first.aborted, first.reason) == (True, "enough")
    assert len(set(map(id, signals))) == 2


def test_a_listener_that_raises_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Any, signal: Any) -> None:
        raise ValueError("a secret payload")

    agent = agent_with(reply("a long text in many pieces", chunk=1), "two")
    heard: list[str] = []
    agent.subscribe(broken)
    agent.subscribe(lambda event, signal: heard.append(event.type))

    assert agent.prompt("hi").stop_reason == "stop"

    assert heard[0] == "agent_start"
    assert heard.count("message_update") == 28
    assert heard[-1] == "agent_end"
    logged = [record.getMessage() for record in caplog.records if record.name == "agentcore.agent"]
    assert len(logged) == len(set(heard))  # once for each type of event
    assert "a listener failed at `message_update`: ValueError" in logged
    assert "secret" not in caplog.text
    with caplog.at_level(logging.DEBUG, "agentcore.agent"):
        agent.prompt("hi")
    assert "a secret payload" in caplog.text


def test_a_coroutine_function_as_a_listener_is_told_off(caplog: pytest.LogCaptureFixture) -> None:
    async def listen(event: Any, signal: Any) -> None: ...

    agent = agent_with("one")
    agent.subscribe(listen)

    assert agent.prompt("hi").text == "one"
    assert "a listener failed at `agent_start`: TypeError" in caplog.text


def test_a_listener_that_asks_to_abort_aborts_the_run() -> None:
    def stop(event: Any, signal: Any) -> None:
        if event.type == "message_update" and event.message.text:
            raise AbortRequested("seen enough")

    agent = agent_with(reply("a long text", chunk=1), "two")
    remove = agent.subscribe(stop)

    message = agent.prompt("hi")

    assert (message.stop_reason, message.text) == ("aborted", "a")
    assert agent.state.error_message == "seen enough"
    remove()
    assert agent.prompt("hi").text == "two"


@pytest.mark.parametrize("streamed", [False, True], ids=["prompt", "stream"])
def test_a_listener_that_asks_to_abort_keeps_no_event_from_the_others(streamed: bool) -> None:
    told: list[str] = []

    def stop_in_time(event: Any, signal: Any) -> None:
        signal.raise_if_aborted()

    def enough(event: Any, signal: Any) -> None:
        if event.type == "message_update" and event.message.text:
            agent.abort("seen enough")

    agent = agent_with(reply("a long text", chunk=1))
    for listener in (stop_in_time, enough, lambda event, signal: told.append(event.type)):
        agent.subscribe(listener)
    if streamed:
        read = [event.type for event in agent.stream("hi")]
        assert read == told
    else:
        assert agent.prompt("hi").stop_reason == "aborted"

    assert told[-3:] == ["message_end", "turn_end", "agent_end"]
    assert not agent.state.is_streaming


def test_what_is_no_listener_is_refused() -> None:
    with pytest.raises(TypeError, match="callable"):
        agent_with().subscribe("print")


# --- stopping -------------------------------------------------------------------------------------------------------


def test_aborting_an_idle_agent_does_nothing() -> None:
    agent = agent_with("one")

    agent.abort()

    assert agent.abort_tool("a") is False
    assert agent.prompt("hi").text == "one"


def test_an_abort_during_a_response_keeps_what_has_arrived() -> None:
    with Gate() as gate:
        agent = agent_with(reply("half ", gate, "whole"), "two")
        stream = agent.stream("hi")
        gate.wait_reached()
        agent.abort("changed my mind")
        stream.result(10)

    message = agent.state.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.stop_reason) == ("half ", "aborted")
    assert agent.state.error_message == "changed my mind"
    assert agent.prompt("again").text == "two"


def test_dropping_a_stream_aborts_the_run_and_frees_the_agent() -> None:
    with Gate() as gate:
        agent = agent_with(reply("half ", gate, "whole"), "two")
        stream = agent.stream("hi")
        gate.wait_reached()
        del stream
        assert agent.wait_for_idle(10)

    assert agent.state.messages[-1].stop_reason == "aborted"
    assert agent.prompt("again").text == "two"


def test_leaving_a_stream_early_aborts_the_run_and_frees_the_agent() -> None:
    with Gate() as gate:
        agent = agent_with(reply("half ", gate, "whole"), "two")
        with agent.stream("hi") as stream:
            next(stream)

        assert agent.prompt("again").text == "two"


def test_a_stream_with_an_impossible_bound_begins_no_run() -> None:
    agent = agent_with("one")

    with pytest.raises(ValueError, match="max_queue_size"):
        agent.stream("hi", max_queue_size=0)

    assert agent.prompt("hi").text == "one"


def test_one_call_can_be_stopped_and_the_run_goes_on() -> None:
    def patient(tool_call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> AgentToolResult:
        if tool_call_id == "slow":
            with gate:
                signal.wait(10)
            return AgentToolResult("gave up")
        return AgentToolResult("quick")

    with Gate() as gate:
        agent = agent_with(
            reply(call("echo", id="slow"), call("echo", id="quick")), "Done.", tools=[tool(execute=patient)]
        )
        stopped: list[bool] = []

        def stop(event: Any, signal: Any) -> None:
            if event.type == "tool_execution_end" and event.tool_call_id == "quick":
                stopped.append(agent.abort_tool("slow"))
                stopped.append(agent.abort_tool("quick"))
                stopped.append(agent.abort_tool("unknown"))

        agent.subscribe(stop)
        message = agent.prompt("hi")

    assert message.text == "Done."
    assert stopped == [True, False, False]
    results = [one for one in agent.messages if isinstance(one, ToolResultMessage)]
    assert [(one.tool_call_id, one.is_error) for one in results] == [("slow", True), ("quick", False)]
    assert agent.state.error_message is None
    assert agent.abort_tool("slow") is False


def test_a_call_that_waits_for_a_slot_is_answered_as_soon_as_it_is_stopped() -> None:
    """Its answer comes while the only slot is still taken."""
    ends: list[str] = []

    def held(tool_call_id: str, *given: Any) -> str:
        if tool_call_id == "running":
            gate.hold()
        return tool_call_id

    with Gate() as gate:
        agent = agent_with(
            reply(call("echo", id="running"), call("echo", id="waiting"), call("echo", id="last")),
            "Done.",
            tools=[tool(execute=held)],
            config=AgentLoopConfig(model=scripted_model(), max_parallel_tools=1),
        )

        def note(event: Any, signal: Any) -> None:
            if event.type == "tool_execution_end":
                ends.append(event.tool_call_id)
                if event.tool_call_id == "waiting":
                    gate.open()

        agent.subscribe(note)
        stream = agent.stream("hi")
        gate.wait_reached()
        assert agent.abort_tool("waiting")
        stream.result(10)

    assert ends == ["waiting", "running", "last"]
    results = [one for one in agent.messages if isinstance(one, ToolResultMessage)]
    assert [one.is_error for one in results] == [False, True, False]


def test_between_batches_there_is_no_call_to_stop() -> None:
    answers: list[bool] = []
    agent = agent_with("one")
    agent.subscribe(lambda event, signal: answers.append(agent.abort_tool("a")))

    agent.prompt("hi")

    assert set(answers) == {False}


def test_a_call_that_ignores_being_stopped_is_given_up() -> None:
    with Gate() as gate:
        agent = agent_with(
            reply(call("echo", id="deaf")),
            "Done.",
            tools=[tool(execute=lambda *given: gate.hold())],
            config=AgentLoopConfig(model=scripted_model(), abort_grace=0.01),
        )
        stream = agent.stream("hi")
        gate.wait_reached()
        assert agent.abort_tool("deaf")
        stream.result(10)

    result = agent.messages[2]
    assert isinstance(result, ToolResultMessage)
    assert (result.is_error, "aborted" in result.text) == (True, True)
    assert agent.messages[-1].text == "Done."


# --- continuing -----------------------------------------------------------------------------------------------------


def test_continuing_after_an_abort_answers_the_same_prompt() -> None:
    agent = agent_with(reply("half", chunk=1), "whole")
    remove = agent.subscribe(lambda event, signal: agent.abort() if event.type == "message_update" else None)
    agent.prompt("hi")
    remove()

    assert agent.continue_().text == "whole"
    assert roles(agent) == ["user", "assistant", "assistant"]


def test_continuing_with_an_answered_transcript_and_empty_queues_is_refused_before_any_request() -> None:
    agent = agent_with("one")
    agent.prompt("hi")

    with pytest.raises(NothingToContinueError) as caught:
        agent.continue_()

    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, MisuseError)
    assert len(requests(agent)) == 1
    assert not agent.state.is_streaming


def test_an_empty_transcript_has_nothing_to_continue() -> None:
    with pytest.raises(NothingToContinueError):
        agent_with("one").continue_()


def test_continuing_from_a_user_message_needs_no_queue() -> None:
    agent = agent_with("one", messages=[UserMessage("hi")])
    agent.steer("and this")

    assert agent.continue_().text == "one"
    assert roles(agent) == ["user", "user", "assistant"]


def test_a_context_from_a_hook_holds_for_the_run_and_the_transcript_does_not_follow_it() -> None:
    def trim(context: Any, signal: Any) -> AgentLoopTurnUpdate:
        return AgentLoopTurnUpdate(context=AgentContext("Be brief.", context.context.messages[-1:], [tool()]))

    agent = agent_with(
        "before", reply(call("echo")), reply(call("echo")), "Done.", "after", tools=[tool()], prepare_next_turn=trim
    )
    agent.prompt("hi")
    agent.prompt("more")

    assert [len(request.messages) for request in requests(agent)] == [1, 3, 1, 1]
    expected = ["user", "assistant", "user", "assistant", "toolResult", "assistant", "toolResult", "assistant"]
    assert roles(agent) == expected
    agent.prepare_next_turn = None
    agent.prompt("last")
    assert len(requests(agent)[4].messages) == 9
    assert agent.state.system_prompt == ""


# --- what it is doing -----------------------------------------------------------------------------------------------


def test_status_tells_the_phases_of_a_run() -> None:
    spent = Usage(input=100, output=50)
    replies = [
        reply(RequestRetryEvent(1, 60.0, "busy"), "Hm", call("echo", id="a"), usage=spent),
        reply(RequestRetryEvent(1, 0.0, "busy"), "Done.", usage=spent),
    ]
    agent = Agent(PRICED, tools=[tool()], stream_fn=scripted(*replies))
    told: list[Any] = []
    idle = agent.status()
    agent.subscribe(lambda event, signal: told.append((event.type, agent.status())))

    agent.prompt("hi")

    assert (idle.phase, idle.turn, idle.running_calls, idle.usage.total_tokens, idle.cost) == ("idle", 0, (), 0, 0.0)
    phases = [(kind, status.phase, status.turn) for kind, status in told]
    assert list(dict.fromkeys(phases)) == [
        ("agent_start", "waiting for model", 0),
        ("turn_start", "waiting for model", 1),
        ("message_start", "waiting for model", 1),
        ("message_end", "waiting for model", 1),
        ("request_retry", "waiting to retry", 1),
        ("message_start", "streaming", 1),
        ("message_update", "streaming", 1),
        ("message_end", "streaming", 1),
        ("tool_execution_start", "running tools", 1),
        ("tool_execution_end", "running tools", 1),
        ("message_start", "running tools", 1),
        ("message_end", "running tools", 1),
        ("turn_end", "waiting for model", 1),
        ("turn_start", "waiting for model", 2),
        ("request_retry", "waiting for model", 2),  # the delay is over
        ("message_start", "streaming", 2),
        ("message_update", "streaming", 2),
        ("message_end", "streaming", 2),
        ("turn_end", "waiting for model", 2),
        ("agent_end", "waiting for model", 2),
    ]
    last = agent.status()
    assert (last.phase, last.turn, last.usage.total_tokens) == ("idle", 2, 300)
    assert last.cost == pytest.approx(2 * (100 * 1.0 + 50 * 2.0) / 1e6)
    assert told[-1][1].cost == last.cost


def test_status_names_the_running_calls_their_time_and_their_threads() -> None:
    with Gate() as gate, Gate() as other:
        gates = {"a": gate, "b": other}
        agent = agent_with(
            reply(call("echo", id="a"), call("echo", id="b")),
            "Done.",
            tools=[tool(execute=lambda tool_call_id, *given: gates[tool_call_id].hold())],
        )
        stream = agent.stream("hi")
        gate.wait_reached()
        other.wait_reached()
        agent.steer("wait")
        agent.follow_up("and then")
        status = agent.status()
        gate.open()
        while len(agent.status().running_calls) == 2:
            agent.state  # noqa: B018 - give the other threads their turn
        left = agent.status().running_calls
        agent.clear_all_queues()
        other.open()
        stream.result(10)

    assert (status.phase, status.turn) == ("running tools", 1)
    assert [(one.tool_call_id, one.tool_name) for one in status.running_calls] == [("a", "echo"), ("b", "echo")]
    assert all(one.seconds >= 0 for one in status.running_calls)
    assert [one.thread_name for one in status.running_calls] == ["agentcore-tool-echo-1", "agentcore-tool-echo-2"]
    assert [message.content for message in status.steering_queue] == ["wait"]
    assert [message.content for message in status.follow_up_queue] == ["and then"]
    assert [one.tool_call_id for one in left] == ["b"]
    assert agent.status().running_calls == ()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        status.phase = "idle"


def test_status_names_the_thread_of_a_call_that_runs_in_sequence() -> None:
    seen: list[Any] = []

    def look(*given: Any) -> str:
        seen.extend(agent.status().running_calls)
        return "x"

    agent = agent_with(
        reply(call("echo", id="a"), call("echo", id="b")),
        "Done.",
        tools=[tool(execute=look, execution_mode="sequential")],
    )
    agent.prompt("hi")

    assert [(one.tool_call_id, one.thread_name) for one in seen] == [("a", "MainThread"), ("b", "MainThread")]


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        (scripted_model(), Usage(input=10), None),
        (PRICED, None, None),
        (PRICED, Usage(input=10), pytest.approx(1e-5)),
        (scripted_model(), Usage(input=10, cost={"total": 0.5}), 0.5),
    ],
    ids=["no prices", "no usage", "prices", "a cost of its own"],
)
def test_a_cost_that_is_not_known_is_none_and_never_nothing(model: Model, usage: Any, cost: Any) -> None:
    agent = Agent(model, stream_fn=scripted(reply("one", usage=usage)))

    agent.prompt("hi")

    assert agent.status().cost == cost


def test_a_partial_message_is_what_streams() -> None:
    kinds: set[type] = set()
    agent = agent_with(reply("text", chunk=1))
    agent.subscribe(lambda event, signal: kinds.add(type(agent.state.streaming_message)))

    agent.prompt("hi")

    assert kinds == {PartialMessage, type(None)}
