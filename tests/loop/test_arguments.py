"""Arguments are coerced where that is safe, validated, and refused in words that a model can act on."""

import copy
import json
import pickle
import subprocess
import sys
import threading
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore._arguments import check_arguments, compile_schema, validate_arguments
from agentcore._coercion import Mender
from agentcore.errors import ToolArgumentsError, ToolError
from agentcore.tools import AgentTool, ToolOutput


def nothing(*arguments: Any) -> ToolOutput:
    return "ok"


def tool_with(schema: dict[str, Any], name: str = "edit") -> AgentTool:
    return AgentTool(name, name, "Does something.", schema, nothing)


def properties(*required: str, **schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas, "required": list(required)}


def validated(schema: dict[str, Any], arguments: Any) -> Any:
    return validate_arguments(tool_with(schema), arguments)


def refusal(schema: dict[str, Any], arguments: Any) -> str:
    with pytest.raises(ToolArgumentsError) as caught:
        validate_arguments(tool_with(schema), arguments)
    return str(caught.value)


def problems(schema: dict[str, Any], arguments: Any) -> list[str]:
    """Return the `path: message` lines of a refusal."""
    lines = refusal(schema, arguments).splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def counted_tries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows with each value, or alternative of one, that is tried."""
    tries: list[Any] = []
    mend = Mender.mend

    def counted(mender: Mender, *arguments: Any, **options: Any) -> Any:
        tries.append(mender)
        return mend(mender, *arguments, **options)

    monkeypatch.setattr(Mender, "mend", counted)
    return tries


def written(value: Any) -> str:
    """Return a form that tells 5 from 5.0 and `True` from 1."""
    return json.dumps(value, sort_keys=True)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
NODE = {
    "$defs": {
        "Node": properties("value", value=INTEGER, children={"type": "array", "items": {"$ref": "#/$defs/Node"}}),
    },
    "$ref": "#/$defs/Node",
}


# --- what is coerced ---


@pytest.mark.parametrize(
    ("schema", "given_value", "expected"),
    [
        (INTEGER, "5", 5),
        (INTEGER, " -12 ", -12),
        (INTEGER, "+3", 3),
        (INTEGER, "5.0", 5),
        (INTEGER, "123456789012345678901234567890", 123456789012345678901234567890),
        (INTEGER, 5.0, 5),
        (NUMBER, "5.5", 5.5),
        (NUMBER, "5", 5),
        (NUMBER, "-.5e1", -5.0),
        (NUMBER, 3, 3),
        (NUMBER, 5.0, 5.0),
        (BOOLEAN, "true", True),
        (BOOLEAN, "false", False),
        (BOOLEAN, "True", True),
        (STRING, 5, "5"),
        (STRING, 5.5, "5.5"),
        (STRING, True, "true"),
        ({"type": "array", "items": INTEGER}, "[1, 2]", [1, 2]),
        ({"type": "array", "items": INTEGER}, '["1", 2]', [1, 2]),
        (properties("n", n=INTEGER), '{"n": "5"}', {"n": 5}),
        ({"type": "array", "items": properties(n=INTEGER)}, '["{\\"n\\": \\"5\\"}"]', [{"n": 5}]),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"type": ["boolean", "integer"]}, "5", 5),
        ({"type": ["integer", "string"]}, 5.0, 5),
        ({"type": ["string", "integer"]}, 5.0, 5),
        ({"enum": ["a", "b"], "type": "string"}, "a", "a"),
        ({"enum": [1, 2], "type": "integer"}, "2", 2),
    ],
)
def test_a_value_of_the_wrong_json_type_is_coerced_where_that_is_safe(
    schema: dict[str, Any], given_value: Any, expected: Any
) -> None:
    result = validated(properties("x", x=schema), {"x": given_value})

    assert written(result) == written({"x": expected})


@pytest.mark.parametrize(
    ("schema", "given_value", "message"),
    [
        (INTEGER, "five", 'must be an integer, not "five"'),
        (INTEGER, "", 'must be an integer, not ""'),
        (INTEGER, "5.5", 'must be an integer, not "5.5"'),
        (INTEGER, "1_000", 'must be an integer, not "1_000"'),
        (INTEGER, "٥", 'must be an integer, not "٥"'),
        (INTEGER, 5.5, "must be an integer, not 5.5"),
        (INTEGER, True, "must be an integer, not true"),
        (INTEGER, [5], "must be an integer, not [5]"),
        (INTEGER, "5" * 5000, f'must be an integer, not "{"5" * 99}…'),
        (NUMBER, "1e999", 'must be a number, not "1e999"'),
        (NUMBER, "nan", 'must be a number, not "nan"'),
        (NUMBER, False, "must be a number, not false"),
        (BOOLEAN, "yes", 'must be a boolean, not "yes"'),
        (BOOLEAN, 1, "must be a boolean, not 1"),
        (STRING, None, "must be a string, not null"),
        (STRING, ["a"], 'must be a string, not ["a"]'),
        ({"type": "array"}, "a, b", 'must be an array, not "a, b"'),
        ({"type": "array"}, '{"a": 1}', 'must be an array, not "{\\"a\\": 1}"'),
        ({"type": "array"}, {"a": 1}, 'must be an array, not {"a": 1}'),
        ({"type": "array"}, "[NaN]", 'must be an array, not "[NaN]"'),
        ({"type": "array"}, "[1e999]", 'must be an array, not "[1e999]"'),
        ({"type": "object"}, "[1]", 'must be an object, not "[1]"'),
        ({"type": ["integer", "null"]}, "x", 'must be an integer or null, not "x"'),
        ({"type": "null"}, "null", 'must be null, not "null"'),
        (False, 1, "is not allowed"),
        ({"type": "string", "minLength": 3}, 5, "'5' is too short"),
        ({"enum": [1, 2]}, "3", "'3' is not one of [1, 2]"),
    ],
)
def test_a_value_that_cannot_be_coerced_safely_is_refused_with_its_path(
    schema: Any, given_value: Any, message: str
) -> None:
    assert problems(properties("x", x=schema), {"x": given_value}) == [f"x: {message}"]


def test_only_what_failed_is_coerced() -> None:
    schema = properties(n=INTEGER, text=STRING, f=NUMBER, any={})
    arguments = {"n": "5", "text": "5", "f": 3, "any": "true", "extra": "7"}

    assert written(validated(schema, arguments)) == written({**arguments, "n": 5})


def test_safe_coercions_succeed_side_by_side_and_the_one_that_is_not_names_its_field() -> None:
    schema = properties("n", n=INTEGER, f=NUMBER, flag=BOOLEAN)

    assert validated(schema, {"n": "5", "f": 3, "flag": "true"}) == {"n": 5, "f": 3, "flag": True}
    assert problems(schema, {"n": "five", "f": "3"}) == ['n: must be an integer, not "five"']


def test_null_for_an_optional_property_is_left_out() -> None:
    inner = properties("must", must=STRING, may=STRING)
    schema = properties("items", items={"type": "array", "items": inner}, choice={"enum": ["a", "b"]}, n=INTEGER)

    result = validated(schema, {"items": [{"must": "x", "may": None}], "choice": None, "n": None})

    assert result == {"items": [{"must": "x"}]}


def test_null_stays_where_the_schema_allows_it() -> None:
    schema = properties(a={"type": ["string", "null"]}, b={"anyOf": [STRING, {"type": "null"}]}, c={})

    assert validated(schema, {"a": None, "b": None, "c": None}) == {"a": None, "b": None, "c": None}


def test_null_for_a_required_property_is_refused_as_null_not_as_missing() -> None:
    schema = properties("n", n=INTEGER, optional=INTEGER)

    assert problems(schema, {"n": None, "optional": None}) == ["n: must be an integer, not null"]


def test_null_is_put_back_where_another_part_of_the_schema_requires_it() -> None:
    schema = {"allOf": [properties(n=INTEGER), {"required": ["n"]}]}

    assert problems(schema, {"n": None}) == ["n: must be an integer, not null"]


def test_null_that_is_left_out_does_not_hide_another_key_that_is_missing() -> None:
    assert problems(properties("other", n=INTEGER, other=STRING), {"n": None}) == ["other: is required but missing"]


def test_a_value_that_two_parts_of_a_schema_complain_about_is_coerced_once() -> None:
    schema = properties("x", x={"allOf": [INTEGER, NUMBER, {"type": "integer", "minimum": 5}]})

    assert validated(schema, {"x": "5"}) == {"x": 5}
    assert problems(schema, {"x": "4"}) == ["x: 4 is less than the minimum of 5"]


def test_null_in_an_array_is_refused() -> None:
    assert problems(properties(a={"type": "array", "items": STRING}), {"a": ["x", None]}) == [
        "a[1]: must be a string, not null"
    ]


# --- alternatives ---


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_the_first_alternative_that_fits_after_coercion_wins(keyword: str) -> None:
    schema = properties("x", x={keyword: [INTEGER, BOOLEAN, {"type": "array", "items": INTEGER}]})

    assert validated(schema, {"x": "5"}) == {"x": 5}
    assert validated(schema, {"x": "true"}) == {"x": True}
    assert validated(schema, {"x": '["5"]'}) == {"x": [5]}


@pytest.mark.parametrize("order", [[INTEGER, STRING], [STRING, INTEGER]])
def test_what_fits_one_alternative_is_not_touched_for_another(order: list[Any]) -> None:
    schema = properties("x", x={"anyOf": order})

    assert written(validated(schema, {"x": "5"})) == written({"x": "5"})
    assert written(validated(schema, {"x": 5})) == written({"x": 5})


@pytest.mark.parametrize("order", [[INTEGER, STRING], [STRING, INTEGER], [BOOLEAN, STRING, INTEGER]])
def test_a_whole_float_becomes_the_integer_whatever_the_order_of_the_alternatives(order: list[Any]) -> None:
    inside = properties("x", x={"anyOf": order}, n=INTEGER)
    nested = {"anyOf": [properties("y", y=INTEGER), {"type": "array", "items": inside}]}

    result = validated(properties("a", a=nested), {"a": [{"x": 5.0, "n": "1"}]})

    assert written(result) == written({"a": [{"n": 1, "x": 5}]})


def test_a_whole_float_stays_where_a_number_is_allowed_too() -> None:
    schema = properties(a={"anyOf": [INTEGER, NUMBER]}, b={"type": ["integer", "number"]}, c={})
    arguments = {"a": 5.0, "b": 5.0, "c": 5.0}

    assert written(validated(schema, arguments)) == written(arguments)


@pytest.mark.parametrize("function", [validate_arguments, check_arguments])
@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        ({"not": INTEGER}, False),
        ({"oneOf": [INTEGER, NUMBER]}, False),
        ({"if": INTEGER, "then": True, "else": False}, True),
        ({"if": INTEGER, "then": False, "else": True}, False),
    ],
)
def test_a_whole_float_is_an_integer_where_a_schema_tells_values_apart(
    function: Any, schema: dict[str, Any], valid: bool
) -> None:
    tool = tool_with(properties(x=schema))

    if valid:
        assert written(function(tool, {"x": 5.0})) == written({"x": 5.0})
    else:
        with pytest.raises(ToolArgumentsError, match=r"- x: |- \(root\): "):
            function(tool, {"x": 5.0})


def test_an_alternative_that_fails_for_another_reason_is_passed_over() -> None:
    by_id = {"type": "object", "properties": {"kind": {"const": "id"}, "value": INTEGER}, "required": ["kind"]}
    by_name = {"type": "object", "properties": {"kind": {"const": "name"}, "value": STRING}, "required": ["kind"]}
    schema = properties("by", by={"anyOf": [by_id, by_name]})

    assert validated(schema, {"by": {"kind": "name", "value": 5}}) == {"by": {"kind": "name", "value": "5"}}
    assert validated(schema, {"by": {"kind": "id", "value": "5"}}) == {"by": {"kind": "id", "value": 5}}


def test_an_alternative_that_failed_leaves_no_trace_in_the_next() -> None:
    numbers = properties(n=INTEGER, flag=INTEGER)
    schema = properties("x", x={"anyOf": [numbers, properties(n={"const": "5"}, flag=BOOLEAN)]})

    assert validated(schema, {"x": {"n": "5", "flag": "true"}}) == {"x": {"n": "5", "flag": True}}


def test_what_one_part_made_of_a_value_is_not_touched_when_it_satisfies_the_others() -> None:
    either = {"anyOf": [properties(n=INTEGER), properties(n=STRING)]}
    schema = properties("x", x={"allOf": [{"type": "object"}, {**either, "type": "object"}]})

    assert validated(schema, {"x": '{"n": "5"}'}) == {"x": {"n": "5"}}


def test_alternatives_that_cannot_fit_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"anyOf": [INTEGER, BOOLEAN]}
    kinds = [properties("kind", kind={"const": kind}, value=value) for kind in "abc"]
    tries = counted_tries(monkeypatch)

    assert validated(properties(by={"anyOf": kinds}), {"by": {"kind": "c", "value": "5"}}) == {
        "by": {"kind": "c", "value": 5}
    }
    assert len(tries) == 5  # the arguments, the three kinds, and the integer of the last


def test_a_coercion_that_fits_two_alternatives_of_oneof_is_no_fit() -> None:
    schema = properties("x", x={"oneOf": [INTEGER, NUMBER, BOOLEAN]})

    assert problems(schema, {"x": "5"}) == [
        (
            'x: fits none of 3 alternatives: (1) must be an integer, not "5"; (2) must be a number, not "5"; '
            '(3) must be a boolean, not "5"'
        )
    ]
    assert validated(schema, {"x": "true"}) == {"x": True}


def test_a_value_that_fits_two_alternatives_of_oneof_is_refused() -> None:
    [problem] = problems(properties("x", x={"oneOf": [INTEGER, NUMBER]}), {"x": 5})

    assert problem.startswith("x: 5 is valid under each of")


def test_the_refusal_says_what_is_wrong_with_each_alternative() -> None:
    point = properties("x", "y", x=NUMBER, y=NUMBER)
    schema = properties("at", at={"anyOf": [point, {"type": "null"}]})

    assert problems(schema, {"at": {"x": "here"}}) == [
        (
            'at: fits none of 2 alternatives: (1) x: must be a number, not "here", y: is required but missing; '
            '(2) must be null, not {"x": "here"}'
        )
    ]


def test_alternatives_at_the_top_are_coerced_too() -> None:
    schema = {"anyOf": [properties("a", a=INTEGER), properties("b", b=INTEGER)]}

    assert validated(schema, {"b": "5"}) == {"b": 5}


def test_references_inside_alternatives_are_coerced_where_they_point() -> None:
    schema = {
        "$defs": {"Count": INTEGER, "Either": {"anyOf": [{"$ref": "#/$defs/Count"}, BOOLEAN]}},
        "properties": {"x": {"$ref": "#/$defs/Either"}},
    }

    assert validated(schema, {"x": "5"}) == {"x": 5}


def test_references_inside_an_embedded_schema_are_relative_to_it() -> None:
    embedded = {
        "$id": "https://example.test/embedded",
        "$defs": {"Count": INTEGER},
        "anyOf": [{"$ref": "#/$defs/Count"}, BOOLEAN],
    }

    assert validated({"properties": {"x": embedded}, "$defs": {"Count": STRING}}, {"x": "5"}) == {"x": 5}


def test_an_embedded_schema_of_another_draft_validates_by_its_own_rules() -> None:
    # `items` as a list is a tuple in draft 7, and no schema at all in 2020-12.
    embedded = {
        "$id": "https://example.test/embedded",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [INTEGER, {"anyOf": [BOOLEAN, INTEGER]}],
    }
    schema: dict[str, Any] = {
        "definitions": {"Pair": embedded},
        "properties": {"x": {"$ref": "https://example.test/embedded"}},
    }
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    modern: dict[str, Any] = {
        "$id": "https://example.test/modern",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    modern |= {"prefixItems": [{"anyOf": [BOOLEAN, INTEGER]}]}
    schema["properties"]["y"] = modern

    assert validated(schema, {"x": ["1", "true"]}) == {"x": [1, True]}
    assert problems(schema, {"y": ["x"]}) == [
        'y[0]: fits none of 2 alternatives: (1) must be a boolean, not "x"; (2) must be an integer, not "x"'
    ]


def test_rules_that_undo_each_other_end_in_a_refusal() -> None:
    schema = properties("x", x={"allOf": [STRING, INTEGER]})

    assert len(problems(schema, {"x": 5})) == 1


def test_a_union_that_holds_itself_many_times_over_is_answered() -> None:
    definitions: dict[str, Any] = {
        f"L{level}": {"anyOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 2} for level in range(9)
    }
    schema = {"$defs": {**definitions, "L8": properties(n=INTEGER)}, "$ref": "#/$defs/L0"}

    assert validated(schema, {"n": "5"}) == {"n": 5}
    assert validated(schema, {"n": 5.0}) == {"n": 5}
    assert len(refusal(schema, {"n": "x"})) < 2000


def test_the_tries_at_nested_alternatives_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    definitions: dict[str, Any] = {
        f"L{level}": {"anyOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 4} for level in range(6)
    }
    tool = tool_with({"$defs": {**definitions, "L6": properties(n=INTEGER)}, "$ref": "#/$defs/L0"})
    tries = counted_tries(monkeypatch)
    with pytest.raises(ToolArgumentsError, match="fits none of 4 alternatives"):
        validate_arguments(tool, {"n": "x"})

    assert len(tries) < 3000  # all of them would be 5,460


# --- the arguments as a whole ---


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("ls", 'the arguments must be a JSON object, not a string: "ls"'),
        (["ls"], 'the arguments must be a JSON object, not a list: ["ls"]'),
        (("ls",), 'the arguments must be a JSON object, not a list: ["ls"]'),
        (7, "the arguments must be a JSON object, not a number: 7"),
        (7.5, "the arguments must be a JSON object, not a number: 7.5"),
        (True, "the arguments must be a JSON object, not a boolean: true"),
        (None, "the arguments must be a JSON object, not null: null"),
        ("[1]", 'the arguments must be a JSON object, not a string: "[1]"'),
        ({1}, 'the arguments must be a JSON object, not a set: "{1}"'),
    ],
)
def test_arguments_that_are_no_object_are_refused(arguments: Any, expected: str) -> None:
    for schema in ({}, properties("command", command=STRING)):
        assert refusal(schema, arguments) == expected
    with pytest.raises(ToolArgumentsError, match="must be a JSON object"):
        check_arguments(tool_with({}), arguments)


def test_an_object_that_was_encoded_twice_is_read() -> None:
    assert validated(properties("n", n=INTEGER), '{"n": "5"}') == {"n": 5}
    with pytest.raises(ToolArgumentsError, match="must be a JSON object, not a string"):
        check_arguments(tool_with({}), '{"n": 5}')


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert validated({}, {}) == {}
    assert validated({"type": "object", "properties": {}}, {}) == {}


def test_an_empty_schema_takes_any_object() -> None:
    arguments = {"a": [1, {"b": None}], "c": 5.0}

    assert written(validated({}, arguments)) == written(arguments)


def test_a_missing_field_is_called_missing() -> None:
    schema = properties("path", "content", path=STRING, content=STRING)

    assert problems(schema, {}) == ["path: is required but missing", "content: is required but missing"]
    assert refusal(schema, {"path": "a.txt"}).endswith('Received: {"path": "a.txt"}')
    assert validated(schema, {"path": "a.txt", "content": ""}) == {"path": "a.txt", "content": ""}


def test_extra_keys_are_tolerated_unless_the_schema_forbids_them() -> None:
    schema = properties("find", find=STRING)
    strict = {**schema, "additionalProperties": False}

    assert validated(schema, {"find": "a", "reason": "b"}) == {"find": "a", "reason": "b"}
    [problem] = problems(strict, {"find": "a", "reason": "b"})
    assert problem.startswith("(root): ")
    assert "'reason'" in problem


def test_every_problem_is_listed_with_its_path() -> None:
    edit = properties("find", "replacement", find=STRING, replacement=STRING)
    schema = properties("path", path=STRING, edits={"type": "array", "items": edit})
    schema["properties"]["odd key"] = schema["properties"]["a.b"] = INTEGER
    schema["properties"][""] = schema["properties"]["x[0]"] = INTEGER
    arguments = {"edits": [{"find": "a", "replacement": "b"}, {"find": []}], "odd key": "x", "a.b": "x"}
    arguments |= {"": "x", "x[0]": "x"}

    assert sorted(problems(schema, arguments)) == sorted(
        [
            "path: is required but missing",
            "edits[1].find: must be a string, not []",
            "edits[1].replacement: is required but missing",
            '["odd key"]: must be an integer, not "x"',
            '["a.b"]: must be an integer, not "x"',
            '[""]: must be an integer, not "x"',
            '["x[0]"]: must be an integer, not "x"',
        ]
    )


def test_the_refusal_names_the_tool_and_shows_what_was_received() -> None:
    text = refusal(properties("n", n=INTEGER, m=INTEGER), {"n": "five", "m": "6"})

    assert text.splitlines() == [
        "the arguments do not fit the schema of tool 'edit':",
        '- n: must be an integer, not "five"',
        'Received: {"n": "five", "m": "6"}',
    ]


def test_a_refusal_is_a_tool_error_and_a_value_error() -> None:
    with pytest.raises(ValueError) as caught:
        validated(properties("n"), {})

    assert isinstance(caught.value, ToolError)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (properties("n", n=INTEGER), {"n": "x" * 1_000_000}),
        (properties("n", n={"type": "array", "maxItems": 2}), {"n": list(range(100_000))}),
        (properties("n", n={"type": "array", "items": INTEGER}), {"n": ["x"] * 10_000}),
        (properties("n", n={"type": "array", "items": properties(a=INTEGER)}), {"n": [{"a": "x"}] * 1_000}),
        (properties("n", n={"anyOf": [INTEGER, BOOLEAN, {"type": "array", "items": INTEGER}]}), {"n": ["x"] * 2000}),
        (properties(additional={}) | {"additionalProperties": False}, {"k" * 100_000: 1}),
        (properties() | {"additionalProperties": INTEGER}, {"k" * 100_000: "x"}),
        (properties(n=NUMBER), {"n": 10**6000, "x": float("nan")}),
    ],
)
def test_a_refusal_is_short_whatever_was_received(schema: dict[str, Any], arguments: Any) -> None:
    assert len(refusal(schema, arguments)) < 12_000


def test_more_problems_than_are_worth_reading_are_counted() -> None:
    lines = problems(properties(n={"type": "array", "items": INTEGER}), {"n": ["x"] * 120})

    assert len(lines) == 51
    assert lines[-1] == "… and 70 more problems"


# --- values JSON cannot hold ---


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("schema", [{}, properties(a={"type": "array", "items": {"items": NUMBER}})])
def test_nan_and_infinities_fail_everywhere(schema: dict[str, Any], number: float) -> None:
    arguments = {"a": [1.0, [number]], "b": {"c": number}}

    assert problems(schema, arguments) == [
        f"a[1][0]: must be a finite number, not {number!r}",
        f"b.c: must be a finite number, not {number!r}",
    ]
    with pytest.raises(ToolArgumentsError, match="must be a finite number"):
        check_arguments(tool_with(schema), arguments)


def test_keys_that_are_no_strings_are_refused() -> None:
    assert problems({}, {"a": {5: 1, "b": 2}}) == ["a: the key 5 is not a string"]
    assert problems({}, {(1, 2): 1}) == ["(root): the key (1, 2) is not a string"]
    assert problems({}, {Unspeakable(): 1}) == ["(root): the key <Unspeakable> is not a string"]


def test_values_that_cannot_be_shown_are_refused_all_the_same() -> None:
    assert "cannot be validated (RuntimeError: no words)" in refusal(properties(n=INTEGER), {"n": Unspeakable()})
    assert refusal({}, [Unspeakable()]) == 'the arguments must be a JSON object, not a list: ["<Unspeakable>"]'


def test_absurd_nesting_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    deep_list: list[Any] = []
    for _ in range(100_000):
        deep_list = [deep_list]

    assert "nested too deeply" in refusal({}, deep)
    assert "nested too deeply" in refusal({}, {"a": deep_list})
    assert refusal({}, deep_list).startswith("the arguments must be a JSON object, not a list: [[[")
    assert "nested too deeply" in refusal({}, '{"a":' * 100_000 + "1" + "}" * 100_000)
    while deep:  # taken apart level by level: freeing it in one go would recurse as deep
        deep = deep["a"]
    while deep_list:
        deep_list = deep_list[0]


def test_a_cycle_is_refused() -> None:
    arguments: dict[str, Any] = {}
    arguments["self"] = arguments

    assert "nested too deeply" in refusal({}, arguments)


def test_arithmetic_that_overflows_is_a_refusal() -> None:
    text = refusal(properties(n={"multipleOf": 0.1}), {"n": 10**400})

    assert text.startswith("the arguments of tool 'edit' cannot be validated (OverflowError: ")


# --- validating without coercion ---


def test_replaced_arguments_are_validated_but_not_coerced() -> None:
    tool = tool_with(properties("n", n=INTEGER, s=STRING, o=INTEGER))

    assert check_arguments(tool, {"n": 5, "s": "5"}) == {"n": 5, "s": "5"}
    with pytest.raises(ToolArgumentsError) as caught:
        check_arguments(tool, {"n": "5", "s": 5, "o": None})
    assert str(caught.value).splitlines() == [
        "the arguments do not fit the schema of tool 'edit':",
        '- n: must be an integer, not "5"',
        "- s: must be a string, not 5",
        "- o: must be an integer, not null",
        'Received: {"n": "5", "s": 5, "o": null}',
    ]


@pytest.mark.parametrize("schema", [INTEGER, {"anyOf": [STRING, INTEGER]}, {"type": ["null", "integer"]}])
def test_a_whole_float_counts_as_the_integer_it_equals_without_coercion_too(schema: Any) -> None:
    assert written(check_arguments(tool_with(properties(x=schema)), {"x": 5.0})) == written({"x": 5})


def test_alternatives_are_not_coerced_without_coercion() -> None:
    with pytest.raises(ToolArgumentsError, match="fits none of 2 alternatives"):
        check_arguments(tool_with(properties(x={"anyOf": [INTEGER, BOOLEAN]})), {"x": "5"})


# --- whose values are whose ---


@pytest.mark.parametrize("function", [validate_arguments, check_arguments])
def test_the_result_shares_nothing_with_what_was_given(function: Any) -> None:
    arguments = {"a": [{"b": [1]}], "n": 5.0}
    before = copy.deepcopy(arguments)

    result = function(tool_with(properties(n=INTEGER)), arguments)
    result["a"][0]["b"].append(2)
    result["a"].append(3)
    result["more"] = 4

    assert written(arguments) == written(before)


def test_what_was_given_is_not_changed_by_coercion() -> None:
    union = {"anyOf": [BOOLEAN, properties(n=INTEGER)]}
    schema = properties("a", a={"type": "array", "items": properties("n", n=INTEGER, x=STRING)}, u=union)
    arguments = {"a": [{"n": "5", "x": None}], "u": {"n": "5"}}
    before = copy.deepcopy(arguments)

    assert validated(schema, arguments) == {"a": [{"n": 5}], "u": {"n": 5}}
    assert arguments == before


# --- compiling ---


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, "type: 'objekt' is not valid"),
        ({"properties": {"n": {"type": "int"}}}, "properties.n.type: 'int' is not valid"),
        ({"required": "path"}, "required: 'path' is not of type 'array'"),
        ({"required": ("path",)}, "required: ('path',) is not of type 'array'"),
        ({"properties": {"n": {"pattern": "("}}}, "properties.n.pattern: '(' is not a 'regex'"),
        ({"properties": {"n": {"type": Unspeakable()}}}, "it is no JSON (RuntimeError: no words)"),
        ({"type": "string"}, "it allows no object"),
        ({"type": ["array", "null"]}, "it allows no object"),
        ({"const": 5}, "it allows no object"),
        ({"enum": [1, "a"]}, "it allows no object"),
        ({"allOf": [{"type": "array"}]}, "it allows no object"),
        ({"allOf": [False]}, "it allows no object"),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, "it allows no object"),
        ({"oneOf": [{"type": "array"}, False]}, "it allows no object"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "array"}}}, "it allows no object"),
        ({"$schema": "urn:surprise"}, '`$schema` names no known draft of JSON Schema: "urn:surprise"'),
        ({"$schema": 7}, "`$schema` names no known draft of JSON Schema: 7"),
        ({"$ref": "#"}, "(root): its references lead back to itself"),
        ({"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {}]}}}, "its references lead back to itself"),
        ({"$defs": {"A": {"not": {"$ref": "#/$defs/A"}}}}, "its references lead back to itself"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "its references lead back to itself"),
    ],
)
def test_a_schema_that_cannot_be_right_is_refused_with_the_tool_and_the_place(schema: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        compile_schema(tool_with(schema, "paint"))

    assert str(caught.value).startswith("the schema of tool 'paint' cannot be used: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("https://example.test/schema.json", "points out of the schema; nothing is fetched"),
        ("https://json-schema.org/draft/2020-12/schema", "points out of the schema; nothing is fetched"),
        ("file:///etc/passwd", "points out of the schema; nothing is fetched"),
        ("other.json#/$defs/A", "points out of the schema; nothing is fetched"),
        ("#/$defs/missing", "does not point to a part of the schema"),
        ("#/properties/list/items/x", "does not point to a part of the schema"),
        ("#/required/one", "does not point to a part of the schema"),
        ("#missing", "does not point to a part of the schema"),
        ("#/title", "does not point to a schema"),
        ("#/required", "does not point to a schema"),
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_that_does_not_resolve_inside_the_schema_is_refused(
    keyword: str, reference: str, said: str
) -> None:
    # The network guard of the tests fails this test if anything is fetched.
    schema = properties("x", list={"items": False}, x={"items": {keyword: reference}})
    schema |= {"title": "edit", "$defs": {"A": {}}}

    with pytest.raises(ValueError) as caught:
        compile_schema(tool_with(schema, "paint"))

    assert f"tool 'paint' cannot be used: properties.x.items: the reference \"{reference}\"" in str(caught.value)
    assert said in str(caught.value)


def test_data_that_looks_like_a_reference_is_none() -> None:
    looks = {"$ref": "https://example.test/x"}
    schema = properties(a={"default": looks, "examples": [looks], "enum": [looks, 1]}, **{"$ref": STRING})

    assert validated(schema, {"a": 1, "$ref": "x"}) == {"a": 1, "$ref": "x"}


def test_references_inside_the_schema_work_in_all_their_spellings() -> None:
    schema = {
        "$id": "https://example.test/tool",
        "$defs": {
            "by anchor": {"$anchor": "count", **INTEGER},
            "by/path~": INTEGER,
            "embedded": {"$id": "embedded", "$ref": "#/$defs/inner", "$defs": {"inner": INTEGER}},
            "dynamic": {"$dynamicAnchor": "node", **INTEGER},
            "always": True,
        },
        "elsewhere": {"not a keyword": INTEGER},
        "properties": {
            "a": {"$ref": "#count"},
            "b": {"$ref": "#/$defs/by~1path~0"},
            "c": {"$ref": "https://example.test/tool#count"},
            "d": {"$ref": "embedded"},
            "e": {"$dynamicRef": "#node"},
            "f": {"$ref": "#/elsewhere/not a keyword"},
            "g": {"$ref": "#/properties/a"},
            "h": {"$ref": "#/$defs/always"},
        },
    }

    assert validated(schema, dict.fromkeys("abcdefg", "5")) == dict.fromkeys("abcdefg", 5)
    assert validated(schema, {"h": "5"}) == {"h": "5"}


def test_a_target_where_no_schema_is_kept_is_checked_too() -> None:
    good = {"elsewhere": {"A": {"properties": {"b": {"$ref": "#/elsewhere/B"}}}, "B": INTEGER}}
    bad = {"elsewhere": {"A": {"type": "strin"}}}
    use = {"properties": {"a": {"$ref": "#/elsewhere/A"}, "again": {"$ref": "#/elsewhere/A"}}}

    assert validated({**good, **use}, {"a": {"b": "5"}}) == {"a": {"b": 5}}
    with pytest.raises(ValueError, match=r"elsewhere\.A\.type: 'strin'"):
        compile_schema(tool_with({**bad, **use}))


def test_the_draft_that_the_schema_names_is_the_one_that_counts() -> None:
    def pair(dialect: str) -> dict[str, Any]:
        return {"$schema": dialect, "properties": {"x": {"items": [INTEGER, STRING]}}}

    assert validated(pair("http://json-schema.org/draft-07/schema#"), {"x": ["5", 5]}) == {"x": [5, "5"]}
    assert validated(pair("http://json-schema.org/draft-07/schema"), {"x": ["5", 5]}) == {"x": [5, "5"]}
    with pytest.raises(ValueError, match=r"properties\.x\.items"):
        compile_schema(tool_with(pair("https://json-schema.org/draft/2020-12/schema")))


@pytest.mark.parametrize("draft", ["draft-03", "draft-04", "draft-06", "draft-07"])
def test_older_drafts_coerce_too(draft: str) -> None:
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        "type": "object",
        "definitions": {"count": INTEGER},
        "properties": {"a": {"$ref": "#/definitions/count"}, "b": {"$ref": "#/definitions/count"}},
    }

    assert written(validated(schema, {"a": "5", "b": 5.0})) == written({"a": 5, "b": 5})


def test_schemas_as_types_and_required_as_a_flag_work_in_the_oldest_draft() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-03/schema#",
        "type": "any",
        "properties": {"a": {"type": [{"type": "integer"}, "boolean"]}, "b": {"required": True}},
    }

    assert validated(schema, {"a": "true", "b": 1}) == {"a": True, "b": 1}
    missing, wrong = problems(schema, {"a": "x"})
    assert "'b' is a required property" in wrong + missing
    assert 'must be as its schema says or a boolean, not "x"' in wrong + missing


def test_a_schema_that_names_its_draft_again_inside_stays_strict_about_integers() -> None:
    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema = {"$schema": dialect, "$defs": {"A": {"$schema": dialect, **INTEGER}}}
    schema["properties"] = {"a": {"$ref": "#/$defs/A"}, "again": {"$ref": "#"}, "n": INTEGER}

    result = validated(schema, {"a": 5.0, "again": {"n": 5.0}})

    assert written(result) == written({"a": 5, "again": {"n": 5}})


def test_a_recursive_schema_is_validated_and_coerced_at_every_level() -> None:
    arguments = {"value": "1", "children": [{"value": 2, "children": [{"value": "3"}]}]}

    assert validated(NODE, arguments) == {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}
    assert problems(NODE, {"value": 1, "children": [{"value": 2, "children": [{}]}]}) == [
        "children[0].children[0].value: is required but missing"
    ]


@pytest.mark.parametrize("form", ["properties", "anyOf"])
def test_a_chain_of_references_that_doubles_twelve_times_is_compiled_and_used(form: str) -> None:
    definitions: dict[str, Any] = {"L12": properties("n", n=INTEGER)}
    for level in range(12):
        below = {"$ref": f"#/$defs/L{level + 1}"}
        either = {"anyOf": [below, below]}
        definitions[f"L{level}"] = either if form == "anyOf" else properties(left=below, right=below)
    tool = tool_with({"$defs": definitions, "$ref": "#/$defs/L0"})
    arguments: Any = {"n": 5}
    if form == "properties":
        for _ in range(12):
            arguments = {"left": arguments}

    assert validate_arguments(tool, arguments) == arguments


@pytest.mark.parametrize("last", ["array", "object"])
def test_a_chain_of_references_that_doubles_sixty_times_is_still_compiled_or_refused(last: str) -> None:
    definitions: dict[str, Any] = {"L60": {"type": last}}
    for level in range(60):
        definitions[f"L{level}"] = {"allOf": [{"$ref": f"#/$defs/L{level + 1}"}] * 2}
    tool = tool_with({"$defs": definitions, "$ref": "#/$defs/L0"})

    if last == "object":
        compile_schema(tool)
        assert tool.compiled is not None
    else:
        with pytest.raises(ValueError, match="it allows no object"):
            compile_schema(tool)


def test_a_schema_nested_absurdly_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(150):
        schema = {"properties": {"a": schema}}

    with pytest.raises(ValueError, match="the schema of tool 'edit' is nested too deeply"):
        compile_schema(tool_with(schema))
    for _ in range(1000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ValueError, match="`parameters` is nested too deeply"):
        tool_with(schema)


def test_a_schema_is_compiled_once_for_each_tool() -> None:
    tool = tool_with(properties(n=INTEGER))
    assert tool.compiled is None

    validate_arguments(tool, {})
    first = tool.compiled
    compile_schema(tool)
    check_arguments(tool, {})

    assert first is not None
    assert tool.compiled is first


def test_compiling_does_not_change_the_schema() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **properties(n=INTEGER)}
    tool = tool_with(schema)
    compile_schema(tool)

    assert tool.parameters == schema


def test_a_compiled_tool_can_be_copied_and_pickled() -> None:
    tool = tool_with(properties(n=INTEGER))
    compile_schema(tool)

    assert validate_arguments(copy.deepcopy(tool), {"n": "5"}) == {"n": 5}
    assert validate_arguments(copy.copy(tool), {"n": "5"}) == {"n": 5}
    loaded = pickle.loads(pickle.dumps(tool.compiled))
    assert loaded is None  # it is compiled again where it is used


def test_threads_may_compile_and_validate_one_tool_at_once() -> None:
    tool = tool_with(NODE)
    gate = threading.Barrier(8)
    results: list[Any] = []

    def work() -> None:
        gate.wait(timeout=30)
        results.extend(validate_arguments(tool, {"value": "5"}) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert results == [{"value": 5}] * 160


def test_importing_the_module_does_not_import_jsonschema() -> None:
    script = (
        "import sys, agentcore._arguments as module\n"
        "print(sorted({'jsonschema', 'referencing', 'requests', 'urllib'} & set(sys.modules)))"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert outcome.stdout.strip() == "[]", outcome.stderr


# --- what holds for all schemas and arguments ---

KEYS = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.0, 1e300]),
    st.sampled_from(["", "5", "5.0", "-1", "true", "null", "x", "[1]", '["1", null]', '{"a": "1"}', "{}", '"5"']),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(KEYS, inner, max_size=3)},
            optional={
                "required": st.lists(KEYS, unique=True, max_size=2),
                "additionalProperties": st.just(False) | inner,
            },
        ),
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"oneOf": several}),
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
    )


SCHEMAS = st.recursive(
    st.one_of(
        st.just({}),
        TYPES.map(lambda kind: {"type": kind}),
        st.lists(TYPES, min_size=1, max_size=3, unique=True).map(lambda kinds: {"type": kinds}),
        st.lists(SCALARS, min_size=1, max_size=3).map(lambda members: {"enum": members}),
        st.just({"type": "integer", "minimum": 1}),
        st.just({"type": "string", "minLength": 2}),
    ),
    compound,
    max_leaves=6,
)
TOOLS = st.dictionaries(KEYS, SCHEMAS, min_size=1, max_size=3).map(lambda schemas: properties(**schemas))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


def is_valid(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def holds_whole_floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(holds_whole_floats, value.values()))
    if isinstance(value, list):
        return any(map(holds_whole_floats, value))
    return isinstance(value, float) and value.is_integer()


@settings(max_examples=300)
@given(schema=TOOLS, arguments=OBJECTS)
def test_what_validates_is_returned_as_it_is(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    tool = tool_with(schema)
    if not is_valid(schema, arguments):
        return
    result = validate_arguments(tool, arguments)

    assert result == arguments
    if not holds_whole_floats(arguments):
        assert written(result) == written(arguments)
        assert written(check_arguments(tool, arguments)) == written(arguments)


@settings(max_examples=300)
@given(schema=TOOLS, arguments=OBJECTS)
def test_what_is_returned_always_validates_and_what_was_given_is_never_changed(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    tool = tool_with(schema)
    before = written(arguments)
    for function in (validate_arguments, check_arguments):
        try:
            result = function(tool, arguments)
        except ToolArgumentsError:
            assert not is_valid(schema, arguments)
        else:
            assert is_valid(schema, result)
            assert function is validate_arguments or is_valid(schema, arguments)
    assert written(arguments) == before


@settings(max_examples=200)
@given(schema=TOOLS, arguments=OBJECTS)
def test_validating_the_result_again_changes_nothing(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    tool = tool_with(schema)
    try:
        once = validate_arguments(tool, arguments)
    except ToolArgumentsError:
        return

    assert written(validate_arguments(tool, once)) == written(once)
    assert written(check_arguments(tool, once)) == written(once)
