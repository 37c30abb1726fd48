"""Write the schema of a tool's parameters as APIs take it: an object with properties, and no choice at its top.

Everything below the top stays as it is. A choice at the top (`anyOf` and its kin, a `$ref`) becomes one object that
allows what any of its branches does: what a model may then get wrong is still found when the call is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["object_schema"]

_CHOICES = ("anyOf", "oneOf")
_Parameters = tuple[dict[str, Any], set[str]]

_NOT_AT_THE_TOP = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const")


def object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as that of an object; nothing of the given one is changed."""
    rest = {name: value for name, value in parameters.items() if name not in _NOT_AT_THE_TOP}
    if len(rest) == len(parameters):
        return {"type": "object", "properties": {}, **rest} | {"type": "object"}
    properties, required = _merged(parameters, parameters, {})
    written = {"type": "object", **rest, "properties": properties, "required": sorted(required)}
    if not required:
        del written["required"]
    if parameters.get("additionalProperties") is False:
        del written["additionalProperties"]  # it knew only the properties beside it
    return written | {"type": "object"}


def _merged(schema: Mapping[str, Any], root: Mapping[str, Any], known: dict[str, _Parameters]) -> _Parameters:
    """Return the properties of a schema and all of its branches, and which of them it requires in any case.

    `known` holds what references came to: each is followed once, however often and in whatever circle they are made.
    """
    own, needed = schema.get("properties"), schema.get("required")
    properties: dict[str, Any] = dict(own) if isinstance(own, Mapping) else {}
    required = {name for name in needed if isinstance(name, str)} if isinstance(needed, list) else set()
    for branch in _branches(schema, "allOf"):
        required |= _add(properties, _merged(branch, root, known))
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = ({}, set())
            known[reference] = _merged(_target(reference, root), root, known)
        required |= _add(properties, known[reference])
    for choice in _CHOICES:
        found = [_add(properties, _merged(branch, root, known)) for branch in _branches(schema, choice)]
        required |= set.intersection(*found) if found else set()
    return properties, required


def _add(properties: dict[str, Any], more: _Parameters) -> set[str]:
    """Add the properties of a branch, as alternatives where they are known already; return which it requires."""
    for name, schema in more[0].items():
        known = properties.get(name, schema)
        if known != schema:
            alternatives = known["anyOf"] if isinstance(known, dict) and set(known) == {"anyOf"} else [known]
            schema = known if schema in alternatives else {"anyOf": [*alternatives, schema]}
        properties[name] = schema
    return more[1]


def _branches(schema: Mapping[str, Any], keyword: str) -> Iterator[Mapping[str, Any]]:
    branches = schema.get(keyword)
    for branch in branches if isinstance(branches, list) else ():
        if isinstance(branch, Mapping):
            yield branch


def _target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference inside the schema points to."""
    found: Any = root
    for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ("",):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
