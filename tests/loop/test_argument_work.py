"""Checking arguments ends in reasonable time, whatever schema and arguments come together, and long ones are checked whole."""

import threading
from typing import Any

import pytest

from agentcore import AgentTool, ToolArgumentsError
from agentcore._arguments import check_arguments, validate_arguments

NODE = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}, "b": {}}, "required": ["a"]},
        {"type": "integer"},
    ]
}
"""A union that holds itself twice: what does not fit is tried in two ways at each level."""


def tool_of(x: Any, **definitions: Any) -> AgentTool:
    parameters = {"type": "object", "properties": {"x": x}, "$defs": definitions}
    return AgentTool("note", "Note", "Take a note.", parameters, lambda *args: "ok")


def doubling(keyword: str, levels: int) -> AgentTool:
    """Return a tool whose schema leads to its end on `2 ** levels` ways."""
    steps: dict[str, Any] = {
        f"step{number}": {keyword: [{"$ref": f"#/$defs/step{number + 1}"}, {"$ref": f"#/$defs/step{number + 1}"}]}
        for number in range(levels)
    }
    return tool_of({"$ref": "#/$defs/step0"}, **steps, **{f"step{levels}": {"type": "integer"}})


def nested(levels: int, leaf: Any) -> dict[str, Any]:
    for _ in range(levels):
        leaf = {"a": leaf}
    return {"x": leaf}


UNION = tool_of({"$ref": "#/$defs/node"}, node=NODE)


@pytest.mark.parametrize("check", [validate_arguments, check_arguments])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (UNION, nested(20, "wrong")),
        (doubling("anyOf", 40), {"x": "wrong"}),
        (doubling("oneOf", 40), {"x": 5}),
        (doubling("allOf", 40), {"x": 5}),
    ],
    ids=["a union that holds itself", "anyOf", "oneOf", "allOf"],
)
def test_what_would_take_for_ever_to_check_is_refused(check: Any, tool: AgentTool, arguments: Any) -> None:
    with pytest.raises(ToolArgumentsError, match=r"'note' do not fit its schema in a way that could be told"):
        check(tool, arguments)


def test_what_fits_is_found_at_any_depth() -> None:
    assert validate_arguments(UNION, nested(40, 5)) == nested(40, 5)


def test_what_a_few_levels_of_a_union_lack_is_told_and_mended() -> None:
    assert validate_arguments(UNION, nested(4, "5")) == nested(4, 5)
    with pytest.raises(ToolArgumentsError, match="x: fits none of 3 alternatives"):
        validate_arguments(UNION, nested(4, "wrong"))


def test_every_item_of_a_long_list_is_mended() -> None:
    tool = tool_of({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}})
    assert validate_arguments(tool, {"x": [str(number) for number in range(3000)]}) == {"x": list(range(3000))}


def test_one_that_was_given_up_takes_nothing_from_the_next_or_from_other_threads() -> None:
    """Each of these takes more than half of what there is."""
    ends = threading.Barrier(2)
    seen: list[str] = []

    def check() -> None:
        ends.wait(20)
        for _ in range(2):
            try:
                check_arguments(doubling("anyOf", 12), {"x": "wrong"})
            except ToolArgumentsError as error:
                seen.append(str(error).splitlines()[0])

    threads = [threading.Thread(target=check) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == ["the arguments do not fit the schema of tool 'note':"] * 4
