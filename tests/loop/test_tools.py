"""Tools and what they give back: fields that cannot be right are refused when the tool is made."""

import copy
import functools
import json
import pickle
from typing import Any

import attrs
import pytest

from agentcore.config import AgentContext
from agentcore.content import ImageContent, TextContent, ThinkingContent
from agentcore.messages import Usage, UserMessage
from agentcore.tools import AgentTool, AgentToolResult, ToolExecutionMode, as_tool_result, check_unique_names

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def read(tool_call_id: str, params: dict[str, Any], signal: Any, on_update: Any, context: Any) -> str:
    return "text"


def tool_named(name: str, **fields: Any) -> AgentTool:
    return AgentTool(name, name.title(), "Reads a file.", SCHEMA, read, **fields)


# --- tools ---


def test_a_tool_has_its_fields_in_this_order() -> None:
    prepare = functools.partial(dict[str, Any])
    tool = AgentTool(
        "read", "Read", "Reads.", SCHEMA, read, prepare, "sequential", context=5, timeout=2, exclusive="db"
    )

    assert (tool.name, tool.label, tool.description, tool.parameters) == ("read", "Read", "Reads.", SCHEMA)
    assert (tool.execute, tool.prepare_arguments) == (read, prepare)
    assert tool.execution_mode is ToolExecutionMode.SEQUENTIAL
    assert (tool.context, tool.timeout, tool.exclusive) == (5, 2, "db")
    assert tool.type == "function"


def test_a_tool_needs_five_fields() -> None:
    tool = tool_named("read")

    assert (tool.prepare_arguments, tool.execution_mode, tool.context, tool.timeout, tool.exclusive) == (None,) * 5
    with pytest.raises(TypeError):
        AgentTool("read", "Read", "Reads.", SCHEMA)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        AgentTool("read", "Read", "Reads.", SCHEMA, read, None, None, 5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"name": ""}, ValueError, "a tool needs a `name`"),
        ({"name": None}, TypeError, "name"),
        ({"name": 5}, TypeError, "name"),
        ({"label": None}, TypeError, "label"),
        ({"description": None}, TypeError, "description"),
        ({"parameters": None}, TypeError, "`parameters` is a JSON schema as a dict, not NoneType"),
        ({"parameters": True}, TypeError, "`parameters` is a JSON schema as a dict, not bool"),
        ({"parameters": "{}"}, TypeError, "`parameters` is a JSON schema as a dict, not str"),
        ({"execute": None}, TypeError, "`execute` of tool 'read' is not callable: NoneType"),
        ({"execute": "text"}, TypeError, "`execute` of tool 'read' is not callable: str"),
        ({"prepare_arguments": 5}, TypeError, "`prepare_arguments` of tool 'read' is not callable: int"),
        ({"execution_mode": "sideways"}, ValueError, "'sideways'"),
        ({"timeout": 0}, ValueError, "`timeout` of tool 'read' is 0; it must be seconds above 0, or None"),
        ({"timeout": -1.5}, ValueError, "`timeout` of tool 'read' is -1.5"),
        ({"timeout": float("nan")}, ValueError, "`timeout` of tool 'read' is nan"),
        ({"timeout": float("inf")}, ValueError, "`timeout` of tool 'read' is inf"),
        ({"timeout": True}, TypeError, "`timeout` of tool 'read' is seconds or None, not bool"),
        ({"timeout": "5"}, TypeError, "`timeout` of tool 'read' is seconds or None, not str"),
        ({"exclusive": True}, TypeError, "`exclusive` of tool 'read' is a name or None, not bool"),
        ({"exclusive": ""}, ValueError, "`exclusive` of tool 'read' is empty"),
    ],
)
def test_a_field_that_cannot_be_right_is_refused(fields: Any, error: type[Exception], said: str) -> None:
    good = {"name": "read", "label": "Read", "description": "Reads.", "parameters": SCHEMA, "execute": read}

    with pytest.raises(error) as caught:
        AgentTool(**{**good, **fields})

    assert said in str(caught.value)


def test_a_schema_is_copied_all_the_way_down() -> None:
    schema: dict[str, Any] = copy.deepcopy(SCHEMA)
    tool = AgentTool("read", "Read", "Reads.", schema, read)
    schema["properties"]["path"]["type"] = "integer"

    assert tool.parameters == SCHEMA


def test_a_schema_nested_absurdly_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"items": schema}

    with pytest.raises(ValueError, match="`parameters` is nested too deeply"):
        AgentTool("read", "Read", "Reads.", schema, read)


def test_a_tool_is_frozen_compared_by_identity_and_shown_by_its_name() -> None:
    tool = tool_named("read", context={"secret": "SECRET"})

    assert tool != tool_named("read")
    assert tool == tool
    assert len({tool, tool}) == 1
    assert repr(tool) == "AgentTool('read')"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        tool.name = "write"  # type: ignore[misc]
    assert not hasattr(tool, "__dict__")


def test_a_tool_is_changed_by_making_another() -> None:
    tool = tool_named("read")
    object.__setattr__(tool, "compiled", "a compiled schema")
    other = attrs.evolve(tool, parameters={"type": "object"})

    assert other.parameters == {"type": "object"}
    assert other.compiled is None


def test_a_tool_of_module_functions_can_be_pickled_and_copied() -> None:
    for tool in (
        pickle.loads(pickle.dumps(tool_named("read", timeout=1))),
        copy.deepcopy(tool_named("read", timeout=1)),
    ):
        assert (tool.name, tool.parameters, tool.execute, tool.timeout) == ("read", SCHEMA, read, 1)


def test_execution_modes_are_strings() -> None:
    assert [mode.value for mode in ToolExecutionMode] == ["sequential", "parallel"]
    assert str(ToolExecutionMode.PARALLEL) == "parallel"
    assert ToolExecutionMode.PARALLEL == "parallel"  # type: ignore[comparison-overlap]
    assert tool_named("read", execution_mode=ToolExecutionMode.PARALLEL).execution_mode is ToolExecutionMode.PARALLEL


# --- names ---


def test_tools_with_names_of_their_own_become_a_tuple() -> None:
    tools = [tool_named("read"), tool_named("write")]

    assert check_unique_names(iter(tools)) == tuple(tools)
    assert check_unique_names(()) == ()


def test_two_tools_of_one_name_are_refused_with_the_name() -> None:
    with pytest.raises(ValueError, match="two tools are named 'run'; the names of an agent's tools must be unique"):
        check_unique_names([tool_named("run"), tool_named("read"), tool_named("run")])


def test_one_tool_twice_is_refused_too() -> None:
    tool = tool_named("run")
    with pytest.raises(ValueError, match="two tools are named 'run'"):
        check_unique_names([tool, tool])


@pytest.mark.parametrize("stranger", [None, dict, "read", {"name": "read"}])
def test_what_is_no_tool_is_refused(stranger: Any) -> None:
    with pytest.raises(TypeError, match=f"`tools` holds `AgentTool`s and functions, not {type(stranger).__name__}"):
        check_unique_names([tool_named("read"), stranger])


# --- results ---


def test_a_result_has_its_fields_in_this_order() -> None:
    result = AgentToolResult("text", {"a": 1}, Usage(1), ["grep"], True, True)

    assert result.content == (TextContent("text"),)
    assert (result.details, result.usage, result.added_tool_names) == ({"a": 1}, Usage(1), ("grep",))
    assert (result.terminate, result.is_error) == (True, True)
    bare = AgentToolResult("text")
    assert (bare.details, bare.usage, bare.added_tool_names, bare.terminate, bare.is_error) == (*[None] * 4, False)


@pytest.mark.parametrize("content", [None, 5, {"a": 1}, ["text"], b"bytes"])
def test_a_result_holds_text_or_blocks(content: Any) -> None:
    with pytest.raises(TypeError, match="content"):
        AgentToolResult(content)


def test_a_result_is_a_value() -> None:
    blocks = [TextContent("text")]
    result = AgentToolResult(blocks, {"a": [1]}, Usage(1))
    blocks.clear()

    assert result == AgentToolResult("text", {"a": [1]}, Usage(1))
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
    assert repr(result) == (
        "AgentToolResult(content=(TextContent(text='text'),), details={'a': [1]}, usage=Usage(input=1, total_tokens=1))"
    )
    assert len(repr(AgentToolResult("x" * 100_000, ["y" * 1000] * 1000))) < 600


def test_the_dict_form_of_a_result_goes_through_json() -> None:
    result = AgentToolResult("text", {1: {2}}, Usage(1), ["grep"], True)

    assert json.loads(json.dumps(result.to_dict())) == {
        "content": [{"type": "text", "text": "text"}],
        "details": {"1": [2]},
        "usage": Usage(1).to_dict(),
        "added_tool_names": ["grep"],
        "terminate": True,
        "is_error": False,
    }
    assert AgentToolResult("text").to_dict() == {"content": [{"type": "text", "text": "text"}], "is_error": False}


IMAGE = ImageContent("aGk=", "image/png")
NOTHING = AgentToolResult("(no output)")


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (AgentToolResult("text", 1, terminate=True), AgentToolResult("text", 1, terminate=True)),
        ("text", AgentToolResult("text")),
        (" ", AgentToolResult(" ")),
        (TextContent("text"), AgentToolResult("text")),
        (IMAGE, AgentToolResult([IMAGE])),
        ([TextContent("a"), IMAGE], AgentToolResult([TextContent("a"), IMAGE])),
        ((TextContent("a"),), AgentToolResult("a")),
        ([TextContent(""), IMAGE], AgentToolResult([TextContent(""), IMAGE])),
        ([ThinkingContent("")], AgentToolResult([ThinkingContent("")])),
        (None, NOTHING),
        ("", NOTHING),
        ([], NOTHING),
        ((), NOTHING),
        (TextContent(""), NOTHING),
        ([TextContent(""), TextContent("")], NOTHING),
        (AgentToolResult("", 1, is_error=True), AgentToolResult("(no output)", 1, is_error=True)),
        (AgentToolResult([], {"a": 1}), AgentToolResult("(no output)", {"a": 1})),
    ],
)
def test_what_a_tool_returns_becomes_a_result_with_words(returned: Any, expected: AgentToolResult) -> None:
    assert as_tool_result(returned) == expected


def test_a_result_that_says_something_is_returned_itself() -> None:
    result = AgentToolResult("text")

    assert as_tool_result(result) is result


@pytest.mark.parametrize(
    "returned", [5, True, {"a": 1}, {}, b"bytes", object(), ["text"], [TextContent("a"), None], UserMessage("hi"), {1}]
)
def test_anything_else_that_a_tool_returns_is_refused_with_its_type(returned: Any) -> None:
    with pytest.raises(TypeError) as caught:
        as_tool_result(returned)

    assert str(caught.value) == (
        f"a tool returned {type(returned).__name__}; "
        "it must return an `AgentToolResult`, text, a block or a list of blocks"
    )


@pytest.mark.parametrize("tools", [print, 5, "bash", {"bash": print}])
def test_tools_that_are_not_in_a_list_are_refused(tools: Any) -> None:
    with pytest.raises(TypeError, match=f"`tools` is a list of tools, not {type(tools).__name__}"):
        AgentContext(tools=tools)
