"""Functions as tools: what the decorator makes of them, what they are given, and what a run makes of what they return."""

import copy
import datetime as dt
import decimal
import enum
import functools
import json
import pathlib
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import attrs
import pytest

from agentcore import Agent, AgentContext, AgentTool, AgentToolResult, tool
from agentcore.abort import AbortController, AbortSignal
from agentcore.config import BeforeToolCallContext, BeforeToolCallResult
from agentcore.content import ImageContent, TextContent, ThinkingContent
from agentcore.errors import ToolArgumentsError
from agentcore.messages import ToolResultMessage, Usage
from agentcore.testing import call, reply, scripted, scripted_model
from agentcore.tools import (
    FunctionTool,
    OnUpdate,
    ToolCallContext,
    ToolExecutionMode,
    as_tool_result,
    check_unique_names,
)


@dataclass
class Point:
    x: float
    y: float = 0.0


def search(query: str, limit: int = 5) -> list[str]:
    """Search the web.

    Args:
        query: What to look for.
    """
    return [query] * limit


def returned_by(function: Any, signal: Any = None, on_update: Any = None, context: Any = None, **params: Any) -> Any:
    """Return what the tool of a function returns when it is executed."""
    made = function if isinstance(function, AgentTool) else tool(function)
    return made.execute("call-1", params, signal, on_update, context)


def returning(value: Any) -> AgentTool:
    def give() -> Any:
        return value

    return tool(give)


def run(agent_tools: list[Any], *calls: Any, **options: Any) -> tuple[Agent, list[ToolResultMessage]]:
    """Return an agent after a run in which the model makes these calls, and their results."""
    agent = Agent(scripted_model(), tools=agent_tools, stream_fn=scripted(reply(*calls), reply("Done.")), **options)
    agent.prompt("Go").raise_for_error()
    return agent, [message for message in agent.messages if isinstance(message, ToolResultMessage)]


# --- the decorator ---


def test_a_decorated_function_is_a_tool_named_and_described_as_the_function() -> None:
    made = tool(search)

    assert isinstance(made, AgentTool)
    assert (made.name, made.label, made.description) == ("search", "search", "Search the web.")
    assert made.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 5},
        },
        "required": ["query"],
    }
    unset = (made.prepare_arguments, made.execution_mode, made.context, made.timeout, made.exclusive)
    assert unset == (None,) * 5
    assert repr(made) == "AgentTool('search')"


def test_the_decorator_takes_the_options_of_a_tool() -> None:
    @tool(
        name="find",
        label="Find it",
        description="Finds.",
        execution_mode="sequential",
        context={"a": 1},
        timeout=5,
        exclusive="disk",
    )
    def search(query: str) -> str:
        """Not told."""
        return query

    assert (search.name, search.label, search.description) == ("find", "Find it", "Finds.")
    assert search.execution_mode is ToolExecutionMode.SEQUENTIAL
    assert (search.context, search.timeout, search.exclusive) == ({"a": 1}, 5, "disk")


def test_the_label_is_the_name_that_was_given_and_options_may_go_with_the_function() -> None:
    assert tool(search, name="find").label == "find"
    assert tool()(search).name == "search"
    assert tool(search, name="find").name == "find"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"timeout": 0}, ValueError, "`timeout` of tool 'search' is 0"),
        ({"name": ""}, ValueError, "a tool needs a `name`"),
        ({"label": 5}, TypeError, "label"),
        ({"execution_mode": "sideways"}, ValueError, "sideways"),
        ({"nmae": "find"}, TypeError, "nmae"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused_when_decorating(options: Any, error: Any, said: str) -> None:
    with pytest.raises(error) as caught:
        tool(**options)(search)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("stranger", "said"),
    [
        (5, "`tool` takes a function, not int"),
        ("search", "`tool` takes a function, not str"),
        (Point, "`tool` takes a function, not the class `Point`"),
        (classmethod(search), "`tool` takes a function, not classmethod"),
        (tool(search), r"AgentTool\('search'\) is a tool already; `attrs.evolve` makes another of it"),
        (lambda: 5, r"a lambda has no name that a model could call it by: `tool\(function, name=…\)`"),
        (lambda x: x, "parameter `x` of `<lambda>` has no annotation"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_decorating(stranger: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        tool(stranger)


def test_a_lambda_with_a_name_is_a_tool() -> None:
    made = tool(lambda: "now", name="now")

    assert (made.name, made.description) == ("now", "")
    assert returned_by(made) == "now"


def test_a_decorated_function_can_still_be_called() -> None:
    made = tool(search)

    assert made("a", limit=2) == ["a", "a"]
    assert made.function is search
    with pytest.raises(TypeError):
        made()  # type: ignore[call-arg]


def test_another_tool_can_be_made_of_a_function_tool() -> None:
    made = tool(search)
    other = attrs.evolve(made, name="find", timeout=5)

    assert isinstance(other, FunctionTool)
    assert (other.name, other.timeout, other("a", 1)) == ("find", 5, ["a"])
    assert copy.deepcopy(made)("a", 1) == ["a"]
    assert made != other
    assert len({made, other}) == 2


def test_the_schema_of_one_tool_is_no_part_of_another() -> None:
    first, second = tool(search), tool(search)
    first.parameters["properties"]["query"]["type"] = "integer"

    assert second.parameters["properties"]["query"]["type"] == "string"


# --- tools among functions ---


def test_functions_among_tools_become_tools() -> None:
    made = tool(search, name="made")

    class Finder:
        def method(self, query: str) -> str:
            return query

    partial = functools.partial(Finder().method, query="x")
    tools = check_unique_names([made, search, Finder().method, tool(partial, name="partial")])

    assert [one.name for one in tools] == ["made", "search", "method", "partial"]
    assert tools[0] is made
    assert all(isinstance(one, AgentTool) for one in tools)


def test_a_function_and_a_tool_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named 'search'"):
        Agent(scripted_model(), tools=[search, tool(search)])


def test_a_function_that_cannot_be_a_tool_is_refused_where_the_agent_is_made() -> None:
    def bad(a: int, b) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="parameter `b` of `bad` has no annotation"):
        Agent(scripted_model(), tools=[bad])
    agent = Agent(scripted_model())
    with pytest.raises(TypeError, match="parameter `b` of `bad` has no annotation"):
        agent.tools = [bad]
    with pytest.raises(TypeError, match="parameter `b` of `bad` has no annotation"):
        AgentContext("", [], [bad])


def test_a_local_type_in_a_string_is_found_for_a_function_given_to_an_agent() -> None:
    Word = Literal["word"]  # noqa: N806

    def speak(word: "Word") -> str:
        return word

    agent = Agent(scripted_model(), tools=[speak])
    assert agent.tools[0].parameters["properties"]["word"]["enum"] == ["word"]


# --- injected parameters ---


def test_a_function_is_given_the_signal_the_updates_and_the_context_that_it_asks_for() -> None:
    def work(
        call: ToolCallContext, n: int, signal: AbortSignal, on_update: OnUpdate, other: AbortSignal | None = None
    ) -> Any:
        """Work.

        Args:
            n: How much.
            signal: Says stop.
            call: Of no interest.
        """
        return AgentToolResult("", (call, n, signal, on_update, other))

    signal, updates = AbortController().signal, [].append
    made = tool(work, context="the context")

    assert made.parameters == {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "How much."}},
        "required": ["n"],
    }
    result = made.execute("call-1", {"n": 1}, signal, updates, made.context)
    given, *rest = result.details
    assert (given.tool_call_id, given.context, given.signal, given.on_update) == (
        "call-1",
        "the context",
        signal,
        updates,
    )
    assert rest == [1, signal, updates, signal]
    assert repr(given).startswith("ToolCallContext(tool_call_id='call-1', context='the context', signal=")


@pytest.mark.parametrize(
    "hint",
    [
        AbortSignal,
        OnUpdate,
        ToolCallContext,
        AbortSignal | None,
        OnUpdate | None,
        Optional[OnUpdate],  # noqa: UP045
        ToolCallContext | None,
        Annotated[ToolCallContext, "of the call"],
        "AbortSignal",
        "OnUpdate",
        "OnUpdate | None",
        "Optional[ToolCallContext]",
    ],
    ids=str,
)
def test_an_injected_parameter_is_never_in_the_schema_however_it_is_written(hint: Any) -> None:
    def work(n: int, it: Any = None) -> Any:
        return AgentToolResult("", it)

    work.__annotations__["it"] = hint
    made = tool(work)

    assert made.parameters == {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert made.execute("1", {"n": 1}, "signal", "updates", None).details is not None  # type: ignore[arg-type,union-attr]


# --- what a function returns ---


class Color(enum.Enum):
    RED = "red"


@attrs.define
class Record:
    id: int
    point: Point


class Modelled:
    def to_dict(self) -> dict[str, Any]:
        return {"a": 1, "when": dt.date(2024, 12, 31)}


def numbers() -> Iterator[int]:
    yield from (1, 2)


IMAGE = ImageContent("aGk=", "image/png")
TEXT = TextContent("text")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # as a tool gives it
        ("text", AgentToolResult("text")),
        ("", AgentToolResult("(no output)")),
        (None, AgentToolResult("(no output)")),
        (TEXT, AgentToolResult([TEXT])),
        (IMAGE, AgentToolResult([IMAGE])),
        ([TEXT, IMAGE], AgentToolResult([TEXT, IMAGE])),
        ((TEXT,), AgentToolResult([TEXT])),
        (["look:", IMAGE], AgentToolResult([TextContent("look:"), IMAGE])),
        ([ThinkingContent("hm")], AgentToolResult([ThinkingContent("hm")])),
        (iter([TEXT, "more"]), AgentToolResult([TEXT, TextContent("more")])),
        (AgentToolResult("text", 1, Usage(1), terminate=True), AgentToolResult("text", 1, Usage(1), terminate=True)),
        (AgentToolResult("text", is_error=True), AgentToolResult("text", is_error=True)),
        # data
        (5, AgentToolResult("5")),
        (0.5, AgentToolResult("0.5")),
        (True, AgentToolResult("true")),
        ({}, AgentToolResult("{}")),
        ([], AgentToolResult("[]")),
        ((), AgentToolResult("[]")),
        ({"a": [1, None], "b": "ü"}, AgentToolResult('{"a": [1, null], "b": "ü"}')),
        (["a", "b"], AgentToolResult('["a", "b"]')),
        ((1, "a"), AgentToolResult('[1, "a"]')),
        ({"b", "a"}, AgentToolResult('["a", "b"]')),
        (Point(1, 2), AgentToolResult('{"x": 1, "y": 2}')),
        ([Point(1, 2)], AgentToolResult('[{"x": 1, "y": 2}]')),
        (Record(1, Point(1, 2)), AgentToolResult('{"id": 1, "point": {"x": 1, "y": 2}}')),
        (Modelled(), AgentToolResult('{"a": 1, "when": "2024-12-31"}')),
        ({"when": dt.date(2024, 12, 31), 1: pathlib.Path("a")}, AgentToolResult('{"when": "2024-12-31", "1": "a"}')),
        (numbers(), AgentToolResult("[1, 2]")),
        (map(str, [1, 2]), AgentToolResult('["1", "2"]')),
        ([TEXT, 5], None),
        # what is a text in JSON is told without quotes
        (pathlib.Path("a/b"), AgentToolResult("a/b")),
        (dt.date(2024, 12, 31), AgentToolResult("2024-12-31")),
        (uuid.UUID(int=1), AgentToolResult("00000000-0000-0000-0000-000000000001")),
        (decimal.Decimal("0.10"), AgentToolResult("0.10")),
        (Color.RED, AgentToolResult("red")),
        (float("inf"), AgentToolResult("inf")),
        (b"bytes", AgentToolResult("b'bytes'")),
        (ValueError("oh"), AgentToolResult("ValueError('oh')")),
    ],
)
def test_what_a_function_returns_becomes_a_result(value: Any, expected: AgentToolResult | None) -> None:
    given = returned_by(returning(value))

    if expected is None:
        with pytest.raises(TypeError, match="a tool returned list"):
            as_tool_result(given)
    else:
        assert as_tool_result(given) == expected


def test_a_coroutine_that_a_function_returns_is_refused_by_the_run() -> None:
    async def later() -> str:
        return "late"

    def soon() -> Any:
        return later()

    _, [result] = run([soon], call("soon"))

    assert result.is_error
    assert "coroutine" in result.content[0].text  # type: ignore[union-attr]


def test_an_async_function_is_refused_when_decorating() -> None:
    with pytest.raises(TypeError, match="`later` is `async`; tools run on threads: write it with `def`"):

        @tool
        async def later(a: int) -> int:
            return a


# --- in a run ---


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_a_bare_function_works_as_a_tool_from_the_call_to_the_answer(mode: str) -> None:
    def shift(point: Point, by: float, labels: set[str] | None = None) -> dict[str, Any]:
        """Move a point."""
        assert type(point) is Point
        assert type(by) is float
        return {"point": Point(point.x + by, point.y), "labels": labels}

    agent, results = run(
        [shift, search],
        call("shift", point={"x": 1, "z": "odd"}, by="2", note="hi"),
        call("search", query="a", limit=1),
        call("shift", point='{"x": 5}', by=1, labels=["b", "a", "a"]),
        tool_execution=mode,
    )

    assert [result.is_error for result in results] == [False] * 3
    assert [json.loads(result.content[0].text) for result in results] == [  # type: ignore[union-attr]
        {"point": {"x": 3.0, "y": 0.0}, "labels": None},
        ["a"],
        {"point": {"x": 6.0, "y": 0.0}, "labels": ["a", "b"]},
    ]
    assert agent.messages[-1].text == "Done."  # type: ignore[union-attr]


def test_functions_run_side_by_side_on_workers_or_one_by_one_on_the_thread_of_the_loop() -> None:
    both = threading.Barrier(2, timeout=30)
    threads = []

    def meet(who: str) -> str:
        both.wait()
        return who

    @tool(execution_mode="sequential")
    def alone(who: str) -> str:
        threads.append(threading.current_thread())
        return who

    _, results = run([meet], call("meet", who="a"), call("meet", who="b"))
    assert [result.content[0].text for result in results] == ["a", "b"]  # type: ignore[union-attr]
    _, results = run([alone], call("alone", who="a"), call("alone", who="b"))
    assert threads == [threading.current_thread()] * 2


def test_what_a_function_raises_is_the_error_that_the_model_reads() -> None:
    def fail(why: str) -> None:
        raise ValueError(why)

    _, [result] = run([fail], call("fail", why="no such thing"))

    assert result.is_error
    assert result.content == (TextContent("no such thing"),)


def test_arguments_that_do_not_fit_are_errors_that_name_them() -> None:
    def f(n: int, when: dt.date) -> str:
        return f"{n} {when}"

    _, results = run([f], call("f", n="five", when="2024-12-31"), call("f", n=5, when="soon"), call("f", when=5))

    texts = [result.content[0].text for result in results]  # type: ignore[union-attr]
    assert [result.is_error for result in results] == [True] * 3
    assert "- n: " in texts[0]
    assert texts[1] == "the argument `when` cannot be used: 'soon' is not a date like 2024-12-31"
    assert "n" in texts[2]


def test_keys_beyond_the_parameters_are_not_passed_on_unless_the_schema_forbids_them() -> None:
    def f(x: int) -> str:
        return f"got {x}"

    lenient = tool(f)
    strict = attrs.evolve(lenient, name="strict", parameters={**lenient.parameters, "additionalProperties": False})
    _, [tolerated, refused] = run([lenient, strict], call("f", x=1, note="hi"), call("strict", x=1, note="hi"))

    assert (tolerated.is_error, tolerated.content) == (False, (TextContent("got 1"),))
    assert refused.is_error
    assert "note" in refused.content[0].text  # type: ignore[union-attr]


def test_a_function_reports_progress_and_learns_of_the_abort() -> None:
    started = threading.Event()

    def work(n: int, signal: AbortSignal, on_update: OnUpdate) -> str:
        on_update(f"{n} to do")
        started.set()
        signal.wait(30)
        signal.raise_if_aborted()
        return "done"

    agent = Agent(scripted_model(), tools=[work], stream_fn=scripted(reply(call("work", n=3)), reply("Done.")))
    events: list[Any] = []
    agent.subscribe(lambda event, signal: events.append(event))
    with agent.stream("Go") as stream:
        assert started.wait(30)
        agent.abort()
        stream.result(timeout=30)

    [update] = [event for event in events if event.type == "tool_execution_update"]
    assert update.partial_result == AgentToolResult("3 to do")
    [result] = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert result.is_error


def test_a_hook_sees_and_changes_the_arguments_as_data() -> None:
    seen: list[Any] = []

    def move(to: Point) -> str:
        return f"at {to.x}"

    def guard(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult:
        seen.append(context.args)
        return BeforeToolCallResult(args={"to": {"x": 9}})

    _, [result] = run([move], call("move", to={"x": 1}), before_tool_call=guard)

    assert seen == [{"to": {"x": 1}}]
    assert result.content == (TextContent("at 9.0"),)


def test_a_call_does_not_share_its_defaults_or_values_with_the_arguments() -> None:
    def add(items: list[int], extra: dict[str, list[int]]) -> str:
        items.append(1)
        extra["a"].append(1)
        return "ok"

    made = tool(add)
    params: dict[str, Any] = {"items": [], "extra": {"a": []}}
    made.execute("1", params, None, None, None)  # type: ignore[arg-type]

    assert params == {"items": [], "extra": {"a": []}}


def test_one_tool_can_be_called_from_many_threads() -> None:
    @dataclass
    class Tree:
        name: str
        children: "list[Tree | Point]"

    def count(tree: Tree) -> int:
        return 1 + sum(count(child) if isinstance(child, Tree) else 1 for child in tree.children)

    made = tool(count)
    tree: dict[str, Any] = {"name": "leaf", "children": [{"x": 1}]}
    for _ in range(20):
        tree = {"name": "branch", "children": [tree, {"x": 1}]}
    calls = [call("count", tree=tree) for _ in range(16)]
    _, results = run([made], *calls)

    assert {result.content for result in results} == {(TextContent("42"),)}


def test_an_argument_that_is_nested_too_deeply_is_an_error_result() -> None:
    @dataclass
    class Nest:
        inner: "Nest | None" = None

    def f(nest: Nest) -> str:
        return "ok"

    made = tool(f)
    data: Any = None
    for _ in range(5000):
        data = {"inner": data}

    with pytest.raises(ToolArgumentsError, match="the argument `nest` cannot be used: "):
        made.execute("1", {"nest": data}, None, None, None)  # type: ignore[arg-type]
