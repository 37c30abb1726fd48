"""What a run is given: its context, its options, its hooks and its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from agentcore._records import Record, is_a
from agentcore.content import ContentBlock, as_blocks
from agentcore.convert import convert_to_llm as default_convert_to_llm
from agentcore.events import StreamEvent
from agentcore.messages import AgentMessage, AssistantMessage, ToolCall, ToolResultMessage, Usage
from agentcore.models import Model, ThinkingLevel, has_prices
from agentcore.tools import AgentTool, AgentToolResult, ToolExecutionMode, check_unique_names

if TYPE_CHECKING:
    from agentcore.abort import AbortSignal

__all__ = [
    "AfterToolCallContext",
    "AfterToolCallResult",
    "AgentContext",
    "AgentLoopConfig",
    "AgentLoopTurnUpdate",
    "BeforeToolCallContext",
    "BeforeToolCallResult",
    "Limits",
    "ModelContext",
    "PrepareNextTurnContext",
    "RecoverContext",
    "StreamFn",
    "StreamOptions",
]


def _messages(messages: Iterable[AgentMessage]) -> tuple[AgentMessage, ...]:
    if isinstance(messages, (str, Mapping)):
        raise TypeError(f"`messages` is a list of messages, not {type(messages).__name__}")
    return tuple(messages)


def _given_tools(tools: Iterable[AgentTool]) -> tuple[AgentTool, ...]:
    # `tuple` itself as a converter would tell a type checker nothing about what it takes; so too below.
    return tuple(tools)


def _given_results(results: Iterable[ToolResultMessage]) -> tuple[ToolResultMessage, ...]:
    return tuple(results)


def _tools(tools: Iterable[AgentTool | Callable[..., Any]] | None) -> tuple[AgentTool, ...]:
    return () if tools is None else check_unique_names(tools)


@attrs.frozen(eq=False, repr=False)
class AgentContext(Record):
    """What a run starts from: the system prompt, the conversation so far, the tools.

    A run works on copies: neither the context nor the lists it was made of change. Raises `ValueError` when two tools
    have one name.
    """

    system_prompt: str = attrs.field(default="", validator=is_a(str))
    messages: tuple[AgentMessage, ...] = attrs.field(default=(), converter=_messages)
    tools: tuple[AgentTool, ...] = attrs.field(default=(), converter=_tools)


@attrs.frozen(eq=False, repr=False)
class ModelContext(Record):
    """What a stream function gets to send: the system prompt, the messages a model understands, the tools.

    `memo` is the same dict in all requests of one run: a stream function may keep there what it has made of messages,
    which never change, instead of making it again for every request.
    """

    system_prompt: str = ""
    messages: tuple[Any, ...] = attrs.field(default=(), converter=_messages)
    tools: tuple[AgentTool, ...] = attrs.field(default=(), converter=_given_tools)
    memo: dict[str, Any] = attrs.field(factory=dict, repr=False, kw_only=True)


def _check_limit(limits: Limits, field: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`Limits.{field.name}` is a number or None, not {type(value).__name__}")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"`Limits.{field.name}` is {value!r}; it must be above 0 (None is no limit)")
    if field.name in ("turns", "tokens") and value != int(value):
        raise ValueError(f"`Limits.{field.name}` is {value!r}; it must be a whole number")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Limits(Record):
    """When a run ends by itself: after the first turn that reaches one of these.

    `turns` counts the model's responses, `tokens` and `cost` (USD) the usage of all responses of the run, failed ones
    too, and what tool results report; `seconds` is the time since it began. `None` is no limit. Raises `ValueError`
    for 0 or less.
    """

    turns: int | None = attrs.field(default=None, validator=_check_limit)
    tokens: int | None = attrs.field(default=None, validator=_check_limit)
    cost: float | None = attrs.field(default=None, validator=_check_limit)
    seconds: float | None = attrs.field(default=None, validator=_check_limit)


# --- options of a request -------------------------------------------------------------------------------------------


def _as_level(value: str | ThinkingLevel | None) -> ThinkingLevel | None:
    return None if value is None else ThinkingLevel(value)


def _as_budgets(value: Mapping[Any, int] | None) -> dict[str, int] | None:
    return None if value is None else {str(ThinkingLevel(level)): int(tokens) for level, tokens in value.items()}


def _one_of(*choices: str | None) -> Callable[[Any, Any, Any], None]:
    def check(options: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if value not in choices:
            raise ValueError(f"`{field.name}` is {value!r}; it takes {', '.join(repr(choice) for choice in choices)}")

    return check


def _number(
    *,
    above: float | None = None,
    least: float | None = None,
    whole: bool = False,
    endless: bool = False,
    optional: bool = False,
) -> Callable[[Any, Any, Any], None]:
    """Make a check of a number; infinity passes where a time may be `endless`."""

    def check(options: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            kind = "a whole number" if whole else "a number"
            raise TypeError(f"`{field.name}` is {kind}, not {type(value).__name__}")
        if (above is not None and value <= above) or (least is not None and value < least) or math.isnan(value):
            bound = f"above {above}" if above is not None else f"at least {least}"
            raise ValueError(f"`{field.name}` is {value!r}; it must be {bound}")
        if math.isinf(value) and not endless:
            raise ValueError(f"`{field.name}` is {value!r}; it must be finite")

    return check


def _callable(options: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"`{field.name}` must be callable, not {type(value).__name__}")


def _is_model(options: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, Model):
        hint = "; `get_model(provider, id)` returns one of the catalog" if isinstance(value, str) else ""
        raise TypeError(f"`model` is a `Model`, not {type(value).__name__}{hint}")


def _header_names(headers: Mapping[str, Any] | None) -> str:
    return "None" if headers is None else "{" + ", ".join(f"{name}: …" for name in headers) + "}"


def _dict_or_none(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StreamOptions(Record):
    """The options of one request to a model.

    `reasoning` is a `ThinkingLevel`, `thinking_budgets` tokens by level. `max_tokens` bounds the answer.
    `cache_retention` is `none`, `short` or `long`; `session_id` names the conversation to caches. `transport` is `auto`
    or `sse`. `headers` are added to the request; a `None` value removes one. `on_payload(payload, model)` may return a
    replacement of the request body, `on_response(status, headers, model)` sees the response; both run on the loop's
    thread. `connect_timeout` and `idle_timeout` (the longest silence between bytes) are seconds; `max_retry_delay_ms`
    is the longest wait a provider may ask for. `session` is a `requests.Session` whose `verify`, `proxies`, `cert`
    and adapters are used. `api_key` is never shown.
    """

    reasoning: ThinkingLevel | None = attrs.field(default=None, converter=_as_level)
    session_id: str | None = None
    on_payload: Callable[[dict[str, Any], Model], dict[str, Any] | None] | None = attrs.field(
        default=None, validator=_callable
    )
    on_response: Callable[[int, Mapping[str, str], Model], None] | None = attrs.field(default=None, validator=_callable)
    transport: str = attrs.field(default="auto", validator=_one_of("auto", "sse"))
    thinking_budgets: dict[str, int] | None = attrs.field(default=None, converter=_as_budgets)
    max_retry_delay_ms: int | None = attrs.field(default=60_000, validator=_number(least=0, optional=True))
    max_tokens: int | None = attrs.field(default=None, validator=_number(above=0, whole=True, optional=True))
    temperature: float | None = attrs.field(default=None, validator=_number(least=0, optional=True))
    cache_retention: str | None = attrs.field(default=None, validator=_one_of("none", "short", "long", None))
    headers: dict[str, str | None] | None = attrs.field(default=None, converter=_dict_or_none, repr=_header_names)
    metadata: dict[str, Any] | None = attrs.field(default=None, converter=_dict_or_none)
    signal: AbortSignal | None = attrs.field(default=None, repr=False)
    api_key: str | None = attrs.field(default=None, repr=False)
    connect_timeout: float = attrs.field(default=10.0, validator=_number(above=0, endless=True))
    idle_timeout: float = attrs.field(default=300.0, validator=_number(above=0, endless=True))
    max_retries: int = attrs.field(default=2, validator=_number(least=0, whole=True))
    session: Any = attrs.field(default=None, repr=False)


StreamFn = Callable[[Model, ModelContext, StreamOptions], "Iterator[StreamEvent] | Iterable[StreamEvent]"]
"""Asks a model: returns an iterator of stream events that ends with a `DoneEvent` or an `ErrorEvent`.

It should not raise, and runs on the loop's thread. A generator function will do.
"""


# --- hooks ----------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class BeforeToolCallContext(Record):
    """A call that is about to run: `args` are the validated arguments, a copy of the hook's own."""

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: dict[str, Any]
    context: AgentContext


@attrs.frozen(eq=False, repr=False)
class BeforeToolCallResult(Record):
    """What to do with a call.

    `block` refuses it, with `reason` for the model (`terminate` then counts as the result's). `args` replace the
    arguments; they are validated, not coerced. `pause` leaves the call unanswered and ends the run after this turn.
    """

    block: bool = False
    reason: str | None = None
    terminate: bool | None = None
    args: dict[str, Any] | None = None
    pause: bool = False


@attrs.frozen(eq=False, repr=False)
class AfterToolCallContext(Record):
    """A call that has run, and what it gave."""

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: dict[str, Any]
    result: AgentToolResult
    is_error: bool
    context: AgentContext


def _blocks_or_none(content: Any) -> tuple[ContentBlock, ...] | None:
    return None if content is None else as_blocks(content)


@attrs.frozen(eq=False, repr=False)
class AfterToolCallResult(Record):
    """What to change in a result: every field that is not `None` replaces that field; nothing is merged."""

    content: tuple[ContentBlock, ...] | None = attrs.field(default=None, converter=_blocks_or_none)
    details: Any = None
    is_error: bool | None = None
    usage: Usage | None = attrs.field(default=None, validator=is_a(Usage, optional=True))
    terminate: bool | None = None


@attrs.frozen(eq=False, repr=False)
class PrepareNextTurnContext(Record):
    """A turn that is over: its message, its results, the context as it is now, and all that the run has added."""

    message: AssistantMessage
    tool_results: tuple[ToolResultMessage, ...] = attrs.field(converter=_given_results)
    context: AgentContext
    new_messages: tuple[AgentMessage, ...] = attrs.field(converter=_messages)


@attrs.frozen(eq=False, repr=False)
class RecoverContext(Record):
    """A response that ended in an error; `attempt` counts the failures in a row, from 1."""

    message: AssistantMessage
    context: AgentContext
    new_messages: tuple[AgentMessage, ...] = attrs.field(converter=_messages)
    attempt: int


@attrs.frozen(eq=False, repr=False)
class AgentLoopTurnUpdate(Record):
    """What the following requests use instead; a field that is `None` keeps what is set."""

    context: AgentContext | None = None
    model: Model | None = None
    thinking_level: ThinkingLevel | None = attrs.field(default=None, converter=_as_level)


def _default_converter(value: Any) -> Any:
    return default_convert_to_llm if value is None else value


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentLoopConfig(StreamOptions):
    """How a run goes: the model, the options of its requests, its hooks and its limits.

    Only `model` is required. Hooks run on the loop's thread, one at a time:

    - `before_tool_call(BeforeToolCallContext, signal)` → `BeforeToolCallResult | None`
    - `after_tool_call(AfterToolCallContext, signal)` → `AfterToolCallResult | None`
    - `prepare_next_turn(PrepareNextTurnContext, signal)` → `AgentLoopTurnUpdate | None`
    - `should_stop_after_turn(PrepareNextTurnContext)` → bool
    - `recover_from_error(RecoverContext, signal)` → `AgentLoopTurnUpdate | None`
    - `transform_context(messages, signal)` → messages (it gets a list of its own)
    - `convert_to_llm(messages)` → messages a model understands
    - `get_api_key(provider)` → str or None
    - `get_steering_messages()`, `get_follow_up_messages()` → messages

    `max_parallel_tools` calls run at once at the most; `abort_grace` is the seconds a call on a worker has to return
    after it was asked to stop (after Ctrl-C 1 at the most). Raises `TypeError` or `ValueError` for what cannot be right.
    """

    model: Model = attrs.field(validator=_is_model)
    tool_execution: ToolExecutionMode = attrs.field(default=ToolExecutionMode.PARALLEL, converter=ToolExecutionMode)
    before_tool_call: Callable[[BeforeToolCallContext, AbortSignal], BeforeToolCallResult | None] | None = attrs.field(
        default=None, validator=_callable
    )
    after_tool_call: Callable[[AfterToolCallContext, AbortSignal], AfterToolCallResult | None] | None = attrs.field(
        default=None, validator=_callable
    )
    prepare_next_turn: Callable[[PrepareNextTurnContext, AbortSignal], AgentLoopTurnUpdate | None] | None = attrs.field(
        default=None, validator=_callable
    )
    convert_to_llm: Callable[[Sequence[AgentMessage]], Sequence[Any]] = attrs.field(
        default=default_convert_to_llm, converter=_default_converter, validator=_callable
    )
    transform_context: Callable[[list[AgentMessage], AbortSignal], Sequence[AgentMessage]] | None = attrs.field(
        default=None, validator=_callable
    )
    get_api_key: Callable[[str], str | None] | None = attrs.field(default=None, validator=_callable)
    get_steering_messages: Callable[[], Sequence[AgentMessage]] | None = attrs.field(default=None, validator=_callable)
    get_follow_up_messages: Callable[[], Sequence[AgentMessage]] | None = attrs.field(default=None, validator=_callable)
    should_stop_after_turn: Callable[[PrepareNextTurnContext], bool] | None = attrs.field(
        default=None, validator=_callable
    )
    recover_from_error: Callable[[RecoverContext, AbortSignal], AgentLoopTurnUpdate | None] | None = attrs.field(
        default=None, validator=_callable
    )
    max_parallel_tools: int = attrs.field(default=16, validator=_number(least=1, whole=True))
    abort_grace: float = attrs.field(default=0.5, validator=_number(least=0))
    limits: Limits | None = attrs.field(default=None, validator=is_a(Limits, optional=True))

    def __attrs_post_init__(self) -> None:
        if self.limits is not None and self.limits.cost is not None and not has_prices(self.model):
            raise ValueError(
                f"a cost limit needs the model's prices, and {self.model.id!r} has none; set `Model.cost` or limit tokens"
            )
