"""What a user's program looks like to a type checker; checked by mypy --strict, never run.

A line with `# type: ignore[...]` is a mistake that the checker has to find: strict mode reports an ignore without one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from typing_extensions import assert_never, assert_type

from agentcore import (
    AbortController,
    AbortSignal,
    AfterToolCallContext,
    AfterToolCallResult,
    Agent,
    AgentContext,
    AgentEndEvent,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    AgentMessage,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    BeforeToolCallContext,
    BeforeToolCallResult,
    DoneEvent,
    ErrorEvent,
    ErrorInfo,
    EventStream,
    ImageContent,
    Limits,
    MessageUpdateEvent,
    Model,
    ModelContext,
    PrepareNextTurnContext,
    ProviderContent,
    RecoverContext,
    RequestRetryEvent,
    StartEvent,
    StreamOptions,
    TextContent,
    TextDeltaEvent,
    ThinkingContent,
    ThinkingLevel,
    ToolCall,
    ToolCallContext,
    ToolExecutionEndEvent,
    ToolResultMessage,
    Usage,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    convert_to_llm,
    run_agent_loop,
    run_agent_loop_continue,
    stream_response,
)
from agentcore import tool as as_tool
from agentcore.agent import AgentState, AgentStatus
from agentcore.config import StreamFn
from agentcore.events import AgentEvent, StreamEvent
from agentcore.tools import FunctionTool, OnUpdate

# --- a tool ---


def look(
    tool_call_id: str, params: dict[str, Any], signal: AbortSignal, on_update: OnUpdate, context: Any
) -> AgentToolResult:
    on_update("looking")
    on_update(AgentToolResult([TextContent("half way")]))
    on_update(3)  # type: ignore[arg-type]
    signal.raise_if_aborted()
    return AgentToolResult([TextContent("seen")], details={"path": params["path"]}, usage=Usage(input=1))


def too_few_arguments(tool_call_id: str, params: dict[str, Any]) -> AgentToolResult:
    return AgentToolResult([])


schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
tool = AgentTool("look", "Look", "Looks at a file.", schema, look, timeout=5.0, exclusive="disk")
AgentTool("look", "Look", "Looks at a file.", schema, too_few_arguments)  # type: ignore[arg-type]
AgentTool("look", "Look", "Looks at a file.", schema, look, timeout="5")  # type: ignore[arg-type]
tool.name = "other"  # type: ignore[misc]


# --- functions as tools ---


@as_tool
def search(query: str, call: ToolCallContext, limit: int = 5) -> list[str]:
    assert_type(call.signal, AbortSignal)
    call.on_update("searching")
    return [query] * limit


@as_tool(name="count", timeout=5, execution_mode="sequential", exclusive="disk", context={"a": 1})
def count_words(text: str) -> int:
    return len(text.split())


def plain(text: str) -> str:
    return text


as_an_agent_tool: AgentTool = search
a_function_tool: FunctionTool[[str], int] = count_words
assert_type(count_words("two words"), int)
assert_type(as_tool(plain, name="other")("text"), str)
assert_type(as_tool(plain).function("text"), str)
count_words(5)  # type: ignore[arg-type]
as_tool(5)  # type: ignore[call-overload]
as_tool(nmae="count")  # type: ignore[call-overload]
Agent("openai/some-model", tools=[search, count_words, plain, tool])
AgentContext("", [], [search, plain, tool])
assert_type(Agent("openai/some-model").status(), AgentStatus)
assert_type(Agent("openai/some-model").state, AgentState)
Agent("openai/some-model", tools=["search"])  # type: ignore[list-item]


# --- hooks ---


def before(ctx: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult | None:
    assert_type(ctx.tool_call, ToolCall)
    assert_type(ctx.args, dict[str, Any])
    return BeforeToolCallResult(block=True, reason="no") if ctx.tool_call.name == "rm" else None


def after(ctx: AfterToolCallContext, signal: AbortSignal) -> AfterToolCallResult | None:
    return AfterToolCallResult(is_error=False) if ctx.is_error else None


def next_turn(ctx: PrepareNextTurnContext, signal: AbortSignal) -> AgentLoopTurnUpdate | None:
    assert_type(ctx.tool_results, tuple[ToolResultMessage, ...])
    return AgentLoopTurnUpdate(thinking_level=ThinkingLevel.OFF)


def recover(ctx: RecoverContext, signal: AbortSignal) -> AgentLoopTurnUpdate | None:
    return AgentLoopTurnUpdate(context=ctx.context) if ctx.attempt < 3 else None


def wrong_hook(ctx: AfterToolCallContext, signal: AbortSignal) -> bool:
    return True


def trim(messages: list[AgentMessage], signal: AbortSignal) -> list[AgentMessage]:
    return messages[-20:]


model = Model("some-model", provider="somebody", base_url="http://localhost/v1", input=("text", "image"))
Model()  # type: ignore[call-arg]
config = AgentLoopConfig(
    model=model,
    reasoning="high",
    tool_execution="sequential",
    before_tool_call=before,
    after_tool_call=after,
    prepare_next_turn=next_turn,
    recover_from_error=recover,
    transform_context=trim,
    convert_to_llm=convert_to_llm,
    limits=Limits(turns=10, cost=0.5),
)
AgentLoopConfig()  # type: ignore[call-arg]
AgentLoopConfig(model=model, before_tool_call=wrong_hook)  # type: ignore[arg-type]
AgentLoopConfig(model=model, after_tool_cal=after)  # type: ignore[call-arg]
assert_type(config.model, Model)

# --- running ---


def emit(event: AgentEvent) -> None:
    match event:
        case MessageUpdateEvent(assistant_message_event=TextDeltaEvent(delta=delta)):
            assert_type(delta, str)
        case ToolExecutionEndEvent():
            assert_type(event.is_error, bool)
        case RequestRetryEvent():
            assert_type(event.delay, float)
        case AgentEndEvent():
            assert_type(event.reason, str)
        case _:
            assert_type(event.type, str)


controller = AbortController()
context = AgentContext("You are terse.", [UserMessage("hello")], [tool])
assert_type(run_agent_loop("hello", context, config, emit), list[AgentMessage])
assert_type(run_agent_loop([UserMessage("hello")], context, config, emit, controller.signal), list[AgentMessage])
assert_type(run_agent_loop_continue(context, config, emit), list[AgentMessage])
run_agent_loop(3, context, config, emit)  # type: ignore[arg-type]

with agent_loop(UserMessage("hello"), context, config) as stream:
    assert_type(stream, EventStream[AgentEvent])
    for event in stream:
        emit(event)
    assert_type(stream.result(timeout=5), list[AgentMessage])
agent_loop_continue(context, config, stream_fn=stream_response).close()

# --- a stream function by hand ---


def answers(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[StreamEvent]:
    partial = AssistantMessage([])
    yield StartEvent(partial)
    yield TextDeltaEvent(0, "hi", partial)
    try:
        yield DoneEvent(AssistantMessage([TextContent("hi")], usage=None))
    except ConnectionError as error:
        info = ErrorInfo("connection", str(error))
        yield ErrorEvent(AssistantMessage([], stop_reason="error", error=info))


stream_fn: StreamFn = answers
list(answers(model, ModelContext("", [UserMessage("hello")], [tool]), StreamOptions(max_tokens=100)))
run_agent_loop("hello", context, config, emit, stream_fn=answers)
run_agent_loop("hello", context, config, emit, stream_fn=look)  # type: ignore[arg-type]

# --- values ---


def describe(message: AssistantMessage) -> str:
    for block in message.content:
        match block:
            case TextContent() | ThinkingContent() | ImageContent() | ToolCall() | ProviderContent():
                pass
            case _:
                assert_never(block)
    assert_type(message.text, str)
    assert_type(message.tool_calls, tuple[ToolCall, ...])
    assert_type(message.usage, Usage | None)
    assert_type(message.error_message, str | None)
    assert_type(message.raise_for_error(), AssistantMessage)
    message.stop_reason = "stop"  # type: ignore[misc]
    return message.text


def shorten(messages: Sequence[AgentMessage]) -> list[str]:
    return [message.role for message in messages]


assert_type(Usage() + Usage(), Usage)
assert_type(UserMessage.from_dict({}), UserMessage)
