"""The schema of a tool's parameters is written as an object with properties, whatever stands at its top."""

import copy
from typing import Any

import pytest

from agentcore.providers._tool_schema import object_schema
from tests.providers.wire_support import ANTHROPIC, GOOGLE, RESPONSES, Wire

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"a": {"anyOf": [TEXT, {"$ref": "#/$defs/B"}]}},
            "$defs": {"B": {"oneOf": [{"const": 1}]}},
            "additionalProperties": False,
            "required": ["a"],
        },
    ],
)
def test_an_object_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert object_schema(schema) == schema


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"properties": {}}, {"type": ["object", "null"]}, {"$ref": "elsewhere.json"}]
)
def test_what_makes_an_object_is_added(schema: dict[str, Any]) -> None:
    assert object_schema(schema) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_a_choice_at_the_top_becomes_an_object_that_allows_what_any_branch_does(choice: str) -> None:
    schema = {
        "description": "Either.",
        "properties": {"a": TEXT},
        "required": ["a"],
        "additionalProperties": False,
        choice: [
            {"properties": {"b": TEXT, "c": TEXT}, "required": ["b", "c"]},
            {"properties": {"b": NUMBER}, "required": ["b"]},
            {"properties": {"b": TEXT}, "required": ["b"]},
            "no schema",
        ],
    }

    assert object_schema(schema) == {
        "type": "object",
        "description": "Either.",
        "properties": {"a": TEXT, "b": {"anyOf": [TEXT, NUMBER]}, "c": TEXT},
        "required": ["a", "b"],
    }


def test_all_of_several_and_references_are_taken_together() -> None:
    schema = {
        "$defs": {"A/~": {"properties": {"a": TEXT}, "required": ["a"]}, "Loop": {"allOf": [{"$ref": "#/$defs/Loop"}]}},
        "allOf": [
            {"$ref": "#/$defs/A~1~0"},
            {"properties": {"b": NUMBER}, "required": ["b"]},
            {"$ref": "#/$defs/Loop"},
        ],
    }

    assert object_schema(schema) == {
        "type": "object",
        "$defs": schema["$defs"],
        "properties": {"a": TEXT, "b": NUMBER},
        "required": ["a", "b"],
    }


def test_a_reference_at_the_top_is_followed() -> None:
    schema = {"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object", "properties": {"a": TEXT}}}}

    assert object_schema(schema)["properties"] == {"a": TEXT}


def test_a_long_chain_of_references_that_doubles_at_each_step_is_followed_once() -> None:
    chain = {
        f"L{level}": {"allOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 2, "properties": {f"p{level}": TEXT}}
        for level in range(60)
    }

    assert len(object_schema({"$ref": "#/$defs/L0", "$defs": chain})["properties"]) == 60


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": 5, "properties": 7, "required": 8, "$ref": 9},
        {"anyOf": [], "allOf": {}, "required": [1]},
        {"$ref": "#/$defs/a/b/c", "$defs": {"a": 1}},
        {"not": {"required": ["a"]}, "enum": [{}]},
    ],
)
def test_a_strange_schema_does_no_harm(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)

    written = object_schema(schema)

    assert (written["type"], written["properties"]) == ("object", {})
    assert schema == before


@pytest.mark.parametrize("wire", [ANTHROPIC, GOOGLE, RESPONSES], ids=lambda wire: wire.api)
def test_no_choice_at_the_top_is_sent(wire: Wire) -> None:
    from agentcore import AgentTool

    schema = {"oneOf": [{"properties": {"a": TEXT}}, {"properties": {"b": TEXT}}]}
    tool = AgentTool("t", "t", "d", schema, lambda *given: "")

    (declared,) = wire.build(tools=[tool])["tools"]

    if wire is GOOGLE:
        (declared,) = declared["functionDeclarations"]
    written = declared.get("input_schema") or declared.get("parameters") or declared.get("parametersJsonSchema")
    assert written == {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
