"""Asking the user of the command line before a tool changes something."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, Final
from unicodedata import east_asian_width

from agentcore._records import json_safe
from agentcore._resume import allow, deny
from agentcore.abort import AbortSignal
from agentcore.config import BeforeToolCallContext, BeforeToolCallResult
from agentcore.display._text import exact

__all__ = ["ASKED_TOOLS", "Approver", "question_text"]

ASKED_TOOLS: Final = ("bash", "write", "edit")
"""The tools that change something."""


class Approver:
    """A `before_tool_call` that asks before the tools that change something run.

    `ask(question, tool_call_id, signal)` shows a question and returns the line that answers it, `None` if nobody does;
    it is `None` itself where there is nobody to ask. `columns()` is the width of the terminal.
    """

    def __init__(self, ask: Callable[[str, str, AbortSignal], str | None] | None, columns: Callable[[], int]) -> None:
        self._ask = ask
        self._columns = columns
        self._always: set[str] = set()

    def __call__(self, context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult:
        name = context.tool_call.name
        exactly = f"{name} {json.dumps(json_safe(context.args), sort_keys=True)}"
        if name not in ASKED_TOOLS or exactly in self._always:
            return allow()
        if self._ask is None:
            return deny(f"`{name}` was not run: there is no terminal to ask the user in. `--yes` allows it unasked.")
        question = question_text(name, context.args, self._columns())
        while True:
            answer = self._ask(question, context.tool_call.id, signal)
            if answer is None:
                return deny(f"`{name}` was not run: the user gave no answer.")
            word, _, reason = answer.strip().partition(" ")
            word = word.lower().rstrip(",.:;")
            if word in ("n", "no"):
                return deny(f"The user did not allow the call of `{name}`{': ' if reason else ''}{reason.strip()}")
            if word in ("y", "yes", "a", "always") and not reason:
                if word.startswith("a"):
                    self._always.add(exactly)
                return allow()
            question = (
                "Please answer y (yes), n (no, and why if you like) or a (always: this very call, also next time)."
            )


def question_text(name: str, args: dict[str, Any], width: int) -> str:
    """Return a question that shows all that would run, each argument behind a bar that no argument can forge.

    No line is wider than `width` columns, so that the terminal breaks none.
    """
    leaves = list(_leaves(args, ""))
    longest = min(max((len(label) for label, _ in leaves), default=0), width // 3)
    room = max(8, width - longest - len("   │ "))
    lines = [f"The model wants to run {exact(name)}:"]
    for label, value in leaves:
        rows = [row for line in value.split("\n") for row in _rows(exact(line), room)]
        pairs = zip_longest(_rows(label, longest), rows, fillvalue="")
        lines += [f"  {left:{longest}} │ {right}" for left, right in pairs]
    return "\n".join(lines)


def _rows(text: str, width: int) -> list[str]:
    """Return text cut into rows of at most `width` columns."""
    rows, row, used = [], "", 0
    for char in text:
        columns = 2 if east_asian_width(char) in "WF" else 1
        if row and used + columns > width:
            rows.append(row)
            row, used = "", 0
        row += char
        used += columns
    return [*rows, row]


def _leaves(value: Any, label: str) -> Iterator[tuple[str, str]]:
    """Yield every text, number and flag inside arguments, and where it is."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{label}.{exact(str(key))}" if label else exact(str(key)))
    elif isinstance(value, (list, tuple)) and value:
        for at, item in enumerate(value):
            yield from _leaves(item, f"{label}[{at}]")
    elif label:
        yield label, value if isinstance(value, str) else json.dumps(json_safe(value), ensure_ascii=False)
