"""Understanding the argument names that models have learned from other tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["PATH_ALIASES", "with_canonical_names"]

PATH_ALIASES: Final = {"file_path": "path", "filePath": "path", "filepath": "path"}


def with_canonical_names(arguments: Any, aliases: Mapping[str, str]) -> Any:
    """Return arguments under the names the schema has; one that is there already is never replaced."""
    if not isinstance(arguments, dict):
        return arguments
    renamed = dict(arguments)
    for alias, name in aliases.items():
        if alias in renamed and name not in renamed:
            renamed[name] = renamed.pop(alias)
    return renamed
