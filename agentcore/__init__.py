"""A synchronous, thread-based LLM agent loop: no asyncio, every event on your own thread."""

from typing import TYPE_CHECKING, Any

from agentcore.abort import AbortController, AbortSignal
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
from agentcore.content import ImageContent, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.convert import convert_to_llm
from agentcore.errors import (
    AbortedError,
    AbortRequested,
    AgentBusyError,
    AgentCoreError,
    AuthenticationError,
    ContentFilterError,
    ContextOverflowError,
    InvalidRequestError,
    MisuseError,
    NothingToContinueError,
    OverloadedError,
    PendingCallsError,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeoutError,
    QuotaError,
    RateLimitError,
    SessionCorruptError,
    SessionError,
    SessionLockedError,
    StreamFunctionError,
    StreamProtocolError,
    StreamStateError,
    ToolAbandonedError,
    ToolArgumentsError,
    ToolError,
    ToolNotFoundError,
    ToolTimeoutError,
)
from agentcore.events import (
    AgentEndEvent,
    AgentStartEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    DoneEvent,
    ErrorEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RequestRetryEvent,
    StartEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from agentcore.loop import agent_loop, agent_loop_continue, run_agent_loop, run_agent_loop_continue
from agentcore.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ErrorInfo,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.models import Model, ThinkingLevel
from agentcore.partial import PartialMessage
from agentcore.streams import EventStream
from agentcore.tools import AgentTool, AgentToolResult, OnUpdate, ToolCallContext, ToolExecutionMode, tool

if TYPE_CHECKING:
    from agentcore.agent import Agent, allow, deny, replace
    from agentcore.providers import register_api, stream_response
    from agentcore.providers.catalog import get_model

__all__ = [
    "AbortController",
    "AbortRequested",
    "AbortSignal",
    "AbortedError",
    "AfterToolCallContext",
    "AfterToolCallResult",
    "Agent",
    "AgentBusyError",
    "AgentContext",
    "AgentCoreError",
    "AgentEndEvent",
    "AgentLoopConfig",
    "AgentLoopTurnUpdate",
    "AgentMessage",
    "AgentStartEvent",
    "AgentTool",
    "AgentToolResult",
    "AssistantMessage",
    "AuthenticationError",
    "BashExecutionMessage",
    "BeforeToolCallContext",
    "BeforeToolCallResult",
    "BranchSummaryMessage",
    "CompactionEndEvent",
    "CompactionStartEvent",
    "CompactionSummaryMessage",
    "ContentFilterError",
    "ContextOverflowError",
    "CustomMessage",
    "DoneEvent",
    "ErrorEvent",
    "ErrorInfo",
    "EventStream",
    "ImageContent",
    "InvalidRequestError",
    "Limits",
    "MessageEndEvent",
    "MessageStartEvent",
    "MessageUpdateEvent",
    "MisuseError",
    "Model",
    "ModelContext",
    "NothingToContinueError",
    "OnUpdate",
    "OverloadedError",
    "PartialMessage",
    "PendingCallsError",
    "PrepareNextTurnContext",
    "ProviderConnectionError",
    "ProviderContent",
    "ProviderError",
    "ProviderTimeoutError",
    "QuotaError",
    "RateLimitError",
    "RecoverContext",
    "RequestRetryEvent",
    "SessionCorruptError",
    "SessionError",
    "SessionLockedError",
    "StartEvent",
    "StreamFunctionError",
    "StreamOptions",
    "StreamProtocolError",
    "StreamStateError",
    "TextContent",
    "TextDeltaEvent",
    "TextEndEvent",
    "TextStartEvent",
    "ThinkingContent",
    "ThinkingDeltaEvent",
    "ThinkingEndEvent",
    "ThinkingLevel",
    "ThinkingStartEvent",
    "ToolAbandonedError",
    "ToolArgumentsError",
    "ToolCall",
    "ToolCallContext",
    "ToolCallDeltaEvent",
    "ToolCallEndEvent",
    "ToolCallStartEvent",
    "ToolError",
    "ToolExecutionEndEvent",
    "ToolExecutionMode",
    "ToolExecutionStartEvent",
    "ToolExecutionUpdateEvent",
    "ToolNotFoundError",
    "ToolResultMessage",
    "ToolTimeoutError",
    "TurnEndEvent",
    "TurnStartEvent",
    "Usage",
    "UserMessage",
    "agent_loop",
    "agent_loop_continue",
    "allow",
    "convert_to_llm",
    "deny",
    "get_model",
    "register_api",
    "replace",
    "run_agent_loop",
    "run_agent_loop_continue",
    "stream_response",
    "tool",
]

_ON_FIRST_USE = {
    **dict.fromkeys(("Agent", "allow", "deny", "replace"), "agentcore.agent"),
    "get_model": "agentcore.providers.catalog",
    "register_api": "agentcore.providers",
    "stream_response": "agentcore.providers",
}


def __getattr__(name: str) -> Any:
    """Import what is not needed to start on first use."""
    module = _ON_FIRST_USE.get(name)
    if module is None:
        raise AttributeError(f"module `agentcore` has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
