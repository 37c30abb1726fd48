"""What a tool is, and what it gives back."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, overload

import attrs

from agentcore._displayed import Displayed
from agentcore._records import Record, is_a, json_safe
from agentcore.content import ContentBlock, TextContent, as_blocks, is_block
from agentcore.messages import Usage

if TYPE_CHECKING:
    from agentcore.abort import AbortSignal

__all__ = [
    "AgentTool",
    "AgentToolResult",
    "FunctionTool",
    "OnUpdate",
    "ToolCallContext",
    "ToolExecute",
    "ToolExecutionMode",
    "ToolOutput",
    "as_tool_result",
    "check_unique_names",
    "tool",
]


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class ToolExecutionMode(str, Enum):
    """How the calls of one message run: one by one on the loop's thread, or side by side on workers."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(f"{value!r} is no execution mode: it is {' or '.join(cls)}")


def _names(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


@attrs.frozen(eq=False, repr=False)
class AgentToolResult(Record, Displayed):
    """What a tool call gives.

    `content` (str, block or blocks) is what the model reads, `details` what people and programs may want beside it.
    `usage` is what the tool itself spent on models. `terminate=True` asks the run to end after this batch (it does
    when every call of the batch says so). `is_error=True` makes it an error result that keeps its details.
    """

    content: tuple[ContentBlock, ...] = attrs.field(converter=as_blocks)
    details: Any = None
    usage: Usage | None = attrs.field(default=None, validator=is_a(Usage, optional=True))
    added_tool_names: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    terminate: bool | None = None
    is_error: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the result as data that JSON can hold; never raises."""
        names = [field.name for field in attrs.fields(AgentToolResult)]
        return {name: json_safe(value) for name in names if (value := getattr(self, name)) is not None}


ToolOutput = AgentToolResult | str | ContentBlock | Iterable[ContentBlock]
"""What `execute` may return and `on_update` takes: a result, text, a block, or blocks."""

OnUpdate = Callable[[ToolOutput], None]
"""Reports progress of a running call, from any thread; never raises and never blocks, and is ignored after the end."""

ToolExecute = Callable[[str, dict[str, Any], "AbortSignal", OnUpdate, Any], ToolOutput]
"""`execute(tool_call_id, params, signal, on_update, context)`."""


def as_tool_result(value: Any) -> AgentToolResult:
    """Return what a tool gave as a result; `None`, no blocks and empty text become words.

    Raises `TypeError` for anything that is not a result, text, a block or blocks.
    """
    if isinstance(value, AgentToolResult):
        result = value
    elif value is None:
        result = AgentToolResult("")
    elif isinstance(value, str) or is_block(value) or (isinstance(value, (list, tuple)) and all(map(is_block, value))):
        result = AgentToolResult(value)
    else:
        wanted = "an `AgentToolResult`, text, a block or a list of blocks"
        raise TypeError(f"a tool returned {type(value).__name__}; it must return {wanted}")
    says_nothing = all(isinstance(block, TextContent) and not block.text for block in result.content)
    return attrs.evolve(result, content="(no output)") if says_nothing else result


def _frozen_schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"`parameters` is a JSON schema as a dict, not {type(value).__name__}")
    try:
        return copy.deepcopy(dict(value))
    except RecursionError:
        raise ValueError("`parameters` is nested too deeply") from None


def _as_mode(value: str | ToolExecutionMode | None) -> ToolExecutionMode | None:
    return None if value is None else ToolExecutionMode(value)


def _check_callable(tool: AgentTool, field: attrs.Attribute[Any], value: Any) -> None:
    if not callable(value):
        raise TypeError(f"`{field.name}` of tool {tool.name!r} is not callable: {type(value).__name__}")


@attrs.frozen(eq=False, repr=False)
class AgentTool:
    """A tool a model can call.

    `parameters` is the JSON schema of its arguments (an object). `execute(tool_call_id, params, signal, on_update,
    context)` does the work: `params` are the validated arguments, `signal` is aborted when the call should stop,
    `on_update(result)` reports progress, `context` is the value the tool was made with. It returns an
    `AgentToolResult`, text, a block or blocks; what it raises becomes an error result with its message.

    `prepare_arguments(arguments)` may mend arguments before they are validated. `execution_mode="sequential"` makes
    every batch with a call of this tool run one by one on the loop's thread. `timeout` is seconds from the start of
    execution; such a call always runs on a worker. Calls with the same `exclusive` name never run at the same time.

    Raises `TypeError` or `ValueError` for fields that cannot be right; the schema is checked when a run begins.

    Threads: immutable. `execute` runs on a worker, or on the loop's thread in a sequential batch; `prepare_arguments`
    always on the loop's thread.
    """

    type: ClassVar[str] = "function"
    name: str = attrs.field(validator=is_a(str))
    label: str = attrs.field(validator=is_a(str))
    description: str = attrs.field(validator=is_a(str))
    parameters: dict[str, Any] = attrs.field(converter=_frozen_schema)
    execute: ToolExecute = attrs.field(validator=_check_callable)
    prepare_arguments: Callable[[dict[str, Any]], dict[str, Any]] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_callable)
    )
    execution_mode: ToolExecutionMode | None = attrs.field(default=None, converter=_as_mode)
    context: Any = attrs.field(default=None, kw_only=True)
    timeout: float | None = attrs.field(default=None, kw_only=True)
    exclusive: str | None = attrs.field(default=None, kw_only=True)
    # The compiled schema, put here once by the first run that uses the tool.
    compiled: Any = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise ValueError("a tool needs a `name`")
        timeout, exclusive = self.timeout, self.exclusive
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float))):
            raise TypeError(f"`timeout` of tool {self.name!r} is seconds or None, not {type(timeout).__name__}")
        if timeout is not None and (not math.isfinite(timeout) or timeout <= 0):
            raise ValueError(f"`timeout` of tool {self.name!r} is {timeout!r}; it must be seconds above 0, or None")
        if exclusive is not None and not isinstance(exclusive, str):
            raise TypeError(f"`exclusive` of tool {self.name!r} is a name or None, not {type(exclusive).__name__}")
        if exclusive == "":
            raise ValueError(f"`exclusive` of tool {self.name!r} is empty; it is the name of what the calls share")

    def __repr__(self) -> str:
        return f"AgentTool({self.name!r})"


# --- functions as tools ---------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class ToolCallContext(Record):
    """What a function that is a tool may want to know of its call: a parameter with this annotation gets it.

    `context` is the value the tool was made with.
    """

    tool_call_id: str
    context: Any
    signal: AbortSignal
    on_update: OnUpdate


@attrs.frozen(eq=False, repr=False)
class FunctionTool(AgentTool, Generic[Parameters, Returned]):
    """A tool made of a function: `function`, which calling the tool calls too, as if it were none."""

    function: Callable[Parameters, Returned] = attrs.field(kw_only=True)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        return self.function(*args, **kwargs)


@overload
def tool(
    function: Callable[Parameters, Returned],
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    execution_mode: ToolExecutionMode | str | None = None,
    context: Any = None,
    timeout: float | None = None,
    exclusive: str | None = None,
) -> FunctionTool[Parameters, Returned]: ...
@overload
def tool(
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    execution_mode: ToolExecutionMode | str | None = None,
    context: Any = None,
    timeout: float | None = None,
    exclusive: str | None = None,
) -> Callable[[Callable[Parameters, Returned]], FunctionTool[Parameters, Returned]]: ...
def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    label: str | None = None,
    description: str | None = None,
    execution_mode: ToolExecutionMode | str | None = None,
    context: Any = None,
    timeout: float | None = None,
    exclusive: str | None = None,
) -> Any:
    """Make a tool of a function: `@tool`, `@tool(name=…, timeout=…)`, or `tool(function, name=…)`.

    The schema comes from the annotations (plain types, `Optional`, unions, `Literal`, enums, lists, sets, tuples,
    dicts, dataclasses, attrs classes, named tuples, `TypedDict`, paths, dates, `Annotated[int, "what it is"]`), the
    descriptions from the docstring (Google, NumPy or Sphinx style). Arguments arrive as the annotated types; what a
    model gives beyond the parameters is left out. Parameters annotated `AbortSignal`, `OnUpdate` or `ToolCallContext`
    are filled in and not shown to the model. The function may return text, blocks, an `AgentToolResult`, or data,
    which the model gets as JSON. The tool can still be called as the function.

    Raises `TypeError`, naming the parameter, for what cannot be expressed.
    """
    given = {
        "name": name,
        "label": label,
        "description": description,
        "execution_mode": execution_mode,
        "context": context,
        "timeout": timeout,
        "exclusive": exclusive,
    }
    options = {key: value for key, value in given.items() if value is not None}
    if function is None:
        return lambda decorated: _function_tool(decorated, options)
    return _function_tool(function, options)


def _function_tool(function: Any, options: Mapping[str, Any]) -> AgentTool:
    from agentcore._signature import signature_of
    from agentcore.abort import AbortSignal as Signal

    if isinstance(function, AgentTool):
        raise TypeError(f"{function!r} is a tool already; `attrs.evolve` makes another of it")
    if isinstance(function, type) or not callable(function):
        what = f"the class `{function.__name__}`" if isinstance(function, type) else type(function).__name__
        raise TypeError(f"`tool` takes a function, not {what}")
    signature = signature_of(function, (Signal, OnUpdate, ToolCallContext))

    def execute(
        tool_call_id: str, params: dict[str, Any], signal: AbortSignal, on_update: OnUpdate, context: Any
    ) -> Any:
        call = ToolCallContext(tool_call_id, context, signal, on_update)
        return _as_output(signature.call(params, {Signal: signal, OnUpdate: on_update, ToolCallContext: call}))

    name = options.get("name", signature.name)
    if name == "<lambda>":
        raise TypeError("a lambda has no name that a model could call it by: `tool(function, name=…)`")
    texts = {"name": name, "label": name, "description": signature.description}
    fields = {**texts, "parameters": signature.schema, "execute": execute, "function": function, **options}
    return FunctionTool(**fields)


def _as_output(value: Any) -> Any:
    """Return what a function gave as a tool may give it: data becomes JSON, but for what is a text in JSON."""
    if isinstance(value, Iterator):
        value = list(value)
    if value is None or isinstance(value, (str, AgentToolResult, CoroutineType)) or is_block(value):
        return value
    if isinstance(value, (list, tuple)) and any(map(is_block, value)):
        return [TextContent(item) if isinstance(item, str) else item for item in value]
    data = json_safe(value)
    import json

    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def check_unique_names(tools: Iterable[AgentTool | Callable[..., Any]]) -> tuple[AgentTool, ...]:
    """Return tools as a tuple, functions made into tools.

    Raises `TypeError` for what is no tool, `ValueError` naming a name that is used twice.
    """
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise TypeError(f"`tools` is a list of tools, not {type(tools).__name__}")
    checked = tuple(_as_tool(one) for one in tools)
    seen: set[str] = set()
    for one in checked:
        if one.name in seen:
            raise ValueError(f"two tools are named {one.name!r}; the names of an agent's tools must be unique")
        seen.add(one.name)
    return checked


def _as_tool(value: Any) -> AgentTool:
    if isinstance(value, AgentTool):
        return value
    if callable(value) and not isinstance(value, type):
        return _function_tool(value, {})
    raise TypeError(f"`tools` holds `AgentTool`s and functions, not {type(value).__name__}")
