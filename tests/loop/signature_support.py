"""What the tests of functions as tools share: functions that take one annotation, and calls like a model's."""

import json
from typing import Any

from agentcore._arguments import validate_arguments
from agentcore._signature import FunctionSignature, signature_of
from agentcore.tools import AgentTool

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOLEAN, NULL = {"type": "boolean"}, {"type": "null"}
WORDS = {"type": "array", "items": STRING}


def taking(hint: Any, *default: Any) -> Any:
    """Return a function that takes one argument, `value`, and returns it."""

    def f(value: Any) -> Any:
        return value

    f.__annotations__ = {"value": hint}
    f.__defaults__ = default or None
    return f


def property_of(hint: Any, *default: Any) -> dict[str, Any]:
    """Return the schema that a hint becomes."""
    found: dict[str, Any] = signature_of(taking(hint, *default)).schema["properties"]["value"]
    return found


def definitions_of(hint: Any) -> dict[str, Any]:
    """Return the named schemas that a hint needs."""
    found: dict[str, Any] = signature_of(taking(hint)).schema["$defs"]
    return found


def tool_of(signature: FunctionSignature) -> AgentTool:
    return AgentTool(signature.name, "", signature.description, signature.schema, lambda *arguments: "")


def called(function: Any, injected: dict[Any, Any] | None = None, /, **arguments: Any) -> Any:
    """Return what a function returns when a model calls it: the arguments are validated, coerced and made."""
    signature = signature_of(function, tuple(injected or ()))
    valid = validate_arguments(tool_of(signature), json.loads(json.dumps(arguments)))
    return signature.call(valid, injected or {})


def arriving(hint: Any, data: Any) -> Any:
    return called(taking(hint), value=data)
