"""The page of all public names is complete and true: it is what the docstrings say, a line each.

Run as a script, this file prints the page.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import agentcore

PAGE = Path(__file__).resolve().parent.parent / "docs" / "names.md"

HEAD = """\
# Names

Everything public, with the first line of its docstring; `help(name)` says the rest. What is not here is private. The
first part is imported from `agentcore`, the others from the module they are listed under.
"""

# Where the names of the package are defined, in the order in which one meets them.
PARTS = [
    ("Runs", ["loop", "agent", "_resume", "streams"]),
    ("Tools", ["tools", "_signature"]),
    ("Options, hooks and what they get", ["config"]),
    ("Messages", ["messages", "partial", "convert"]),
    ("Blocks of messages", ["content"]),
    ("Events", ["events"]),
    ("Stopping", ["abort"]),
    ("Models", ["models", "providers", "providers.catalog"]),
    ("Errors", ["errors"]),
]

MODULES = [
    "toolkit",
    "sessions",
    "compaction",
    "approvals",
    "display.notebook",
    "display.terminal",
    "testing",
    "testing.sse_server",
]

# Of the other modules: types to annotate with, and what is of use beside the package's names.
MORE = {
    "agent": ["AgentState", "AgentStatus"],
    "config": ["StreamFn"],
    "events": ["AgentEvent", "StreamEvent"],
    "messages": ["message_from_dict"],
    "providers.catalog": ["catalog_models"],
    "tokens": ["estimate_tokens"],
}

# What has no docstring of its own.
LINES = {
    "OnUpdate": "The type of `on_update`: takes text, blocks or an `AgentToolResult`, on any thread.",
    "Summarize": "The type of what `compact` asks for the summary of messages.",
    "StreamFn": "The type of a stream function.",
    "AgentEvent": "The union of the loop's events.",
    "StreamEvent": "The union of the events of one response.",
}


def line(name: str, value: object) -> str:
    """Return the line of a name."""
    said = LINES.get(name.rpartition(".")[2]) or (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return f"- `{name}`: {said}"


def part_of(name: str) -> str:
    """Return the module of the package that defines a name."""
    if name == "OnUpdate":
        return "tools"
    return str(getattr(agentcore, name).__module__).removeprefix("agentcore.")


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    yield "## agentcore\n"
    for heading, modules in PARTS:
        yield f"### {heading}\n"
        for module in modules:
            yield from (line(name, getattr(agentcore, name)) for name in agentcore.__all__ if part_of(name) == module)
        yield ""
    for module in MODULES:
        loaded = importlib.import_module(f"agentcore.{module}")
        yield f"## agentcore.{module}\n"
        yield (loaded.__doc__ or "").split("\n")[0] + "\n"
        yield from (line(name, getattr(loaded, name)) for name in loaded.__all__)
        yield ""
    yield "## Elsewhere\n"
    for module, names in MORE.items():
        loaded = importlib.import_module(f"agentcore.{module}")
        yield from (line(f"agentcore.{module}.{name}", getattr(loaded, name)) for name in names)


def page() -> str:
    """Return the page as it should be."""
    return "\n".join(lines()) + "\n"


def test_the_page_says_what_the_docstrings_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "print the page anew: python tests/test_names.py >docs/names.md"


def test_every_name_of_the_package_is_on_the_page_once_with_words() -> None:
    text = page()

    for name in agentcore.__all__:
        assert text.count(f"\n- `{name}`: ") == 1
    assert ": \n" not in text


def test_what_is_listed_elsewhere_is_exported() -> None:
    for module, names in MORE.items():
        assert set(names) <= set(importlib.import_module(f"agentcore.{module}").__all__)


if __name__ == "__main__":
    print(page(), end="")
