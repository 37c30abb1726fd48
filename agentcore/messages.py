"""The messages of a conversation, the blocks they are made of, and their dict form.

Every class is frozen, compares by value, pickles, and goes through `to_dict` → JSON → `from_dict` unchanged (but for
`details`, which come back as the JSON data they were written as). `timestamp` is integer milliseconds since the
epoch, UTC. Sequences given by the caller are copied into tuples.

Threads: all of it may be read from any thread.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import attrs

from agentcore._displayed import Displayed
from agentcore._records import Record, is_a, json_safe, now_ms
from agentcore.content import (
    ContentBlock,
    ImageContent,
    ProviderContent,
    Tagged,
    TextContent,
    ThinkingContent,
    ToolCall,
    as_blocks,
    block_from_dict,
    is_block,
    known_fields,
    text_or_blocks,
)
from agentcore.errors import ProviderError, error_class_for_kind

__all__ = [
    "AgentMessage",
    "AssistantMessage",
    "BashExecutionMessage",
    "BranchSummaryMessage",
    "CompactionSummaryMessage",
    "ContentBlock",
    "CustomMessage",
    "ErrorInfo",
    "ImageContent",
    "MESSAGE_CLASSES",
    "ProviderContent",
    "TextContent",
    "ThinkingContent",
    "ToolCall",
    "ToolResultMessage",
    "Usage",
    "UserMessage",
    "as_blocks",
    "block_from_dict",
    "is_block",
    "message_from_dict",
]

STOP_REASONS = ("stop", "length", "tool_use", "error", "aborted")

_T = TypeVar("_T")


def _content_from_dict(content: Any) -> Any:
    if isinstance(content, (list, tuple)):
        return tuple(block_from_dict(item) for item in content)
    return content


# --- usage and errors -----------------------------------------------------------------------------------------------


def _sum_or_none(left: int | None, right: int | None) -> int | None:
    return None if left is None and right is None else (left or 0) + (right or 0)


def _tokens(self: Any) -> int:
    total: int = self.input + self.output + self.cache_read + self.cache_write
    return total


@attrs.frozen(eq=False, repr=False)
class Usage(Record, Displayed):
    """Tokens of a response, in disjoint counts, and what they cost.

    `input` excludes cached tokens; `output` includes `reasoning`. `total_tokens` is their sum when left out. `cost` is
    USD by kind (`input`, `output`, `cache_read`, `cache_write`) and in `total`; `None` when a price is unknown.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int | None = None
    total_tokens: int = attrs.field(default=attrs.Factory(_tokens, takes_self=True))
    cost: dict[str, float] | None = None

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        cost = None
        if self.cost is not None and other.cost is not None:
            kinds = [*self.cost, *(kind for kind in other.cost if kind not in self.cost)]
            cost = {kind: self.cost.get(kind, 0.0) + other.cost.get(kind, 0.0) for kind in kinds}
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=_sum_or_none(self.reasoning, other.reasoning),
            total_tokens=self.total_tokens + other.total_tokens,
            cost=cost,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the counts that are known, as data."""
        names = [field.name for field in attrs.fields(Usage)]
        return {name: json_safe(value) for name in names if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Make a usage from its dict form."""
        return known_fields(cls, data)


@attrs.frozen(eq=False, repr=False)
class ErrorInfo(Record):
    """Why a response failed.

    `kind` is one of `authentication`, `rate_limit`, `quota`, `overloaded`, `invalid_request`, `context_overflow`,
    `content_filter`, `connection`, `timeout`, `protocol`, `stream_function`, `aborted`. `status` is the HTTP status,
    `code` and `type` the provider's own words, `retry_after` the seconds it asked to wait.
    """

    kind: str
    message: str
    status: int | None = None
    code: str | None = None
    type: str | None = None
    request_id: str | None = None
    retry_after: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what is known, as data."""
        names = [field.name for field in attrs.fields(ErrorInfo)]
        return {name: json_safe(value) for name in names if (value := getattr(self, name)) is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ErrorInfo:
        """Make an error info from its dict form."""
        return known_fields(cls, data)


def _part(cls: Any, data: Mapping[str, Any], key: str) -> Any:
    return cls.from_dict(data[key]) if data.get(key) is not None else None


# --- messages -------------------------------------------------------------------------------------------------------


@runtime_checkable
class AgentMessage(Protocol):
    """What every message has, so that applications can add classes of their own.

    `role` is a class variable, `timestamp` integer milliseconds since the epoch. A class that `convert_to_llm` does
    not know is left out of requests.
    """

    @property
    def role(self) -> str: ...

    @property
    def timestamp(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...


class _Message(Tagged):
    """The base of our messages."""

    __slots__ = ()
    _tag: ClassVar[str] = "role"
    # For type checkers: a list of messages of several classes is a list of `AgentMessage`s.
    role: ClassVar[str]
    timestamp: int

    @classmethod
    def from_dict(cls: type[_T], data: Mapping[str, Any]) -> _T:
        """Make a message from its dict form.

        Raises `ValueError` for a dict of another role or one that lacks a required key, `TypeError` for what is no dict.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"a message is a dict, not {type(data).__name__}")
        role = getattr(cls, "role", None)
        if data.get("role") != role:
            raise ValueError(f"a `{cls.__name__}` has the role {role!r}, not {data.get('role')!r}")
        return known_fields(cls, data, **cls._converted(data))  # type: ignore[attr-defined]

    @classmethod
    def _converted(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        return {"content": _content_from_dict(data["content"])} if data.get("content") is not None else {}


def _timestamp() -> Any:
    return attrs.field(factory=now_ms)


@attrs.frozen(eq=False, repr=False)
class UserMessage(_Message):
    """What the user said: text, or blocks of text and images."""

    role: ClassVar[str] = "user"
    content: str | tuple[ContentBlock, ...] = attrs.field(converter=text_or_blocks)
    timestamp: int = _timestamp()


def joined_text(content: tuple[ContentBlock, ...]) -> str:
    """Return the text blocks of a content as one string."""
    return "".join(block.text for block in content if isinstance(block, TextContent))


def joined_thinking(content: tuple[ContentBlock, ...]) -> str:
    """Return the thinking blocks of a content, a blank line between them."""
    return "\n\n".join(block.thinking for block in content if isinstance(block, ThinkingContent) and block.thinking)


def calls_of(content: tuple[ContentBlock, ...]) -> tuple[ToolCall, ...]:
    """Return the tool calls of a content, in order."""
    return tuple(block for block in content if isinstance(block, ToolCall))


@attrs.frozen(eq=False, repr=False)
class AssistantMessage(_Message, Displayed):
    """What a model answered.

    `stop_reason` is `stop`, `length`, `tool_use`, `error` or `aborted`; with the last two `error` says why.
    `raw_stop_reason` is the provider's own word. `usage` is `None` when the provider reported none.
    """

    role: ClassVar[str] = "assistant"
    content: tuple[ContentBlock, ...] = attrs.field(converter=as_blocks)
    api: str = attrs.field(default="", kw_only=True)
    provider: str = attrs.field(default="", kw_only=True)
    model: str = attrs.field(default="", kw_only=True)
    usage: Usage | None = attrs.field(default=None, kw_only=True, validator=is_a(Usage, optional=True))
    stop_reason: str = attrs.field(default="stop", kw_only=True, validator=attrs.validators.in_(STOP_REASONS))
    error: ErrorInfo | None = attrs.field(default=None, kw_only=True, validator=is_a(ErrorInfo, optional=True))
    response_id: str | None = attrs.field(default=None, kw_only=True)
    raw_stop_reason: str | None = attrs.field(default=None, kw_only=True)
    timestamp: int = attrs.field(factory=now_ms, kw_only=True)

    @classmethod
    def _converted(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        parts = {"usage": _part(Usage, data, "usage"), "error": _part(ErrorInfo, data, "error")}
        return {**super()._converted(data), **parts}

    @property
    def text(self) -> str:
        """The text of the message, refusals included, without separators."""
        return joined_text(self.content)

    @property
    def thinking(self) -> str:
        """What the model thought, a blank line between blocks."""
        return joined_thinking(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return calls_of(self.content)

    @property
    def error_message(self) -> str | None:
        """The message of the error, if there is one."""
        return self.error.message if self.error is not None else None

    def raise_for_error(self) -> AssistantMessage:
        """Return the message, or raise what its error's kind names if it ended in `error` or `aborted`.

        Raises the class of `agentcore.errors` for `error.kind`: an `AbortedError` or a kind of `ProviderError`.
        """
        if self.stop_reason not in ("error", "aborted"):
            return self
        info = self.error or ErrorInfo(
            kind="aborted" if self.stop_reason == "aborted" else "", message=f"the response ended as {self.stop_reason}"
        )
        cls = error_class_for_kind(info.kind)
        if not issubclass(cls, ProviderError):
            raise cls(info.message)
        raise cls(
            info.message,
            provider=self.provider or None,
            model=self.model or None,
            status=info.status,
            code=info.code,
            type=info.type,
            request_id=info.request_id,
            retry_after=info.retry_after,
        )


def _names(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


@attrs.frozen(eq=False, repr=False)
class ToolResultMessage(_Message, Displayed):
    """What a tool call gave, for the model to read; `details` are for people and programs and are never sent."""

    role: ClassVar[str] = "toolResult"
    tool_call_id: str
    tool_name: str
    content: tuple[ContentBlock, ...] = attrs.field(converter=as_blocks)
    details: Any = None
    usage: Usage | None = attrs.field(default=None, validator=is_a(Usage, optional=True))
    added_tool_names: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    is_error: bool = False
    timestamp: int = _timestamp()

    @classmethod
    def _converted(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._converted(data), "usage": _part(Usage, data, "usage")}

    @property
    def text(self) -> str:
        """The text of the result."""
        return joined_text(self.content)


@attrs.frozen(eq=False, repr=False)
class BashExecutionMessage(_Message):
    """A command that the user ran beside the conversation, with its output."""

    role: ClassVar[str] = "bashExecution"
    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False
    timestamp: int = _timestamp()


@attrs.frozen(eq=False, repr=False)
class CompactionSummaryMessage(_Message):
    """A summary that stands for the messages before it; `tokens_before` is what those took."""

    role: ClassVar[str] = "compactionSummary"
    summary: str
    tokens_before: int
    timestamp: int = _timestamp()


@attrs.frozen(eq=False, repr=False)
class BranchSummaryMessage(_Message):
    """A summary of a branch that was left; `from_id` is the entry it was left at."""

    role: ClassVar[str] = "branchSummary"
    summary: str
    from_id: str
    timestamp: int = _timestamp()


@attrs.frozen(eq=False, repr=False)
class CustomMessage(_Message):
    """A message of an application; `display` says whether people see it, `details` are never sent to a model."""

    role: ClassVar[str] = "custom"
    custom_type: str
    content: str | tuple[ContentBlock, ...] = attrs.field(converter=text_or_blocks)
    display: bool = True
    details: Any = None
    timestamp: int = _timestamp()


@attrs.frozen(eq=False, repr=False)
class _ForeignMessage(CustomMessage):
    """A message of a role that is not known here: `details` is its dict, which is written back unchanged."""

    def to_dict(self) -> dict[str, Any]:
        return dict(json_safe(self.details))


MESSAGE_CLASSES = frozenset(
    (
        UserMessage,
        AssistantMessage,
        ToolResultMessage,
        BashExecutionMessage,
        CompactionSummaryMessage,
        BranchSummaryMessage,
        CustomMessage,
        _ForeignMessage,
    )
)

_MESSAGES: dict[str, Callable[[Mapping[str, Any]], AgentMessage]] = {
    "user": UserMessage.from_dict,
    "assistant": AssistantMessage.from_dict,
    "toolResult": ToolResultMessage.from_dict,
    "bashExecution": BashExecutionMessage.from_dict,
    "compactionSummary": CompactionSummaryMessage.from_dict,
    "branchSummary": BranchSummaryMessage.from_dict,
    "custom": CustomMessage.from_dict,
}


def message_from_dict(data: Mapping[str, Any]) -> AgentMessage:
    """Make a message from its dict form, by its `role`.

    An unknown role becomes a `CustomMessage` that is written back unchanged. Raises `ValueError` or `TypeError` for a
    dict that lacks what its role needs.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"a message is a dict, not {type(data).__name__}")
    role = data.get("role")
    if not isinstance(role, str):
        raise ValueError("a message dict needs a `role`")
    make = _MESSAGES.get(role)
    if make is not None:
        return make(data)
    timestamp = data.get("timestamp")
    return _ForeignMessage(
        role, "", False, copy.deepcopy(dict(data)), timestamp if isinstance(timestamp, int) else now_ms()
    )
