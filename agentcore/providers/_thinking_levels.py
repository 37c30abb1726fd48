"""What the models of each vendor take as a thinking level, as data: words of effort, and how thinking is turned off.

Told from the model's id, as the vendors' documentation had it in November 2026. A model that nobody here knows is taken
to be like the newest one of its family, but is never told to stop thinking: some refuse that.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from agentcore._records import Record
from agentcore.models import ThinkingLevel

__all__ = ["ClaudeThinking", "claude_thinking", "gemini_levels", "gemini_version", "nearest", "openai_efforts"]

_LADDER = ("minimal", "low", "medium", "high", "xhigh", "max")

# Pairs of a pattern and words. The first pattern that is found in a model's id counts; the last is found in any.
_Table = tuple[tuple[str, str], ...]


def nearest(level: ThinkingLevel, words: tuple[str, ...]) -> str:
    """Return the word among those that a model takes for a level: itself, else the next lower one, else the lowest."""
    wanted = _LADDER.index(level.value)
    known = [word for word in _LADDER if word in words]
    lower = [word for word in known if _LADDER.index(word) <= wanted]
    return lower[-1] if lower else known[0]


def _first(table: _Table, id: str) -> tuple[str, ...]:
    return tuple(next(words for pattern, words in table if re.search(pattern, id.lower())).split())


# --- OpenAI ---------------------------------------------------------------------------------------------------------

# `none` turns reasoning off.
_OPENAI: _Table = (
    (r"gpt-5-pro", "high"),
    (r"gpt-5-codex", "low medium high"),
    (r"gpt-5(?![.\d])", "minimal low medium high"),
    (r"gpt-5\.1-codex-max", "low medium high xhigh"),
    (r"gpt-5\.1-codex", "low medium high"),
    (r"gpt-5\.1(?!\d)", "none low medium high"),
    (r"gpt-5\.[2-5](?!\d).*-pro", "medium high xhigh"),
    (r"gpt-5\.[2-5](?!\d).*-codex", "low medium high xhigh"),
    (r"gpt-5\.[2-5](?!\d)", "none low medium high xhigh"),
    (r"gpt-5\.\d|gpt-6-(?:sol|luna)", "none low medium high xhigh max"),
    (r"gpt-(?:[6-9]|\d\d)", "low medium high xhigh max"),
    (r"", "low medium high"),
)


def openai_efforts(id: str) -> tuple[str, ...]:
    """Return the words of reasoning effort that a model of OpenAI's takes, for any other model those that most take."""
    return _first(_OPENAI, id)


# --- Google ---------------------------------------------------------------------------------------------------------

_GEMINI: _Table = (
    (r"gemini-3-pro", "low high"),
    (r"gemini-3(?:\.[0-6])?-flash", "minimal low medium high"),
    (r"gemini-4-hydrogen", "low medium high xhigh"),
    (r"", "low medium high"),
)

_GEMINI_VERSION = r"gemini-(\d+)(?:\.(\d+))?"
_NEWEST = (99, 0)


def gemini_levels(id: str) -> tuple[str, ...]:
    """Return the thinking levels that a Gemini model from version 3 on takes."""
    return _first(_GEMINI, id)


def gemini_version(id: str) -> tuple[int, int] | None:
    """Return the version in a Gemini model's id; one without a version is the newest, and other models have none."""
    found = re.search(_GEMINI_VERSION, id.lower())
    if found is not None:
        return int(found[1]), int(found[2] or 0)
    return _NEWEST if "gemini-" in id.lower() else None


# --- Anthropic ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ClaudeThinking(Record):
    """How one of Anthropic's models is told to think.

    - `style`: `adaptive` (levels are efforts) or `budget` (levels are token budgets).
    - `efforts`: the words of effort it takes.
    - `off`: what to send so that it does not think; empty where it does not by itself, or cannot be kept from it.
    - `shows`: whether it gives a readable summary only when asked to.
    - `samples`: whether it takes a temperature.
    - `binds`: whether it checks that nothing before its thinking has changed since.
    """

    style: str = "adaptive"
    efforts: tuple[str, ...] = ("low", "medium", "high", "xhigh", "max")
    off: dict[str, Any] = attrs.field(factory=dict)
    shows: bool = True
    samples: bool = False
    binds: bool = False


_CLAUDE_VERSION = r"claude-(?:([a-z]+)-)?(\d+)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?"
_OFF = {
    ("opus", (5, 0)): "disabled",
    ("sonnet", (5, 0)): "disabled",
    ("sonnet", (5, 5)): "between_tools",
    ("haiku", (5, 5)): "disabled",
}


def claude_thinking(id: str) -> ClaudeThinking:
    """Return how a model is told to think; one that is none of Anthropic's is taken to count tokens."""
    if "claude" not in id.lower():
        return ClaudeThinking(style="budget", shows=False, samples=True)
    found = re.search(_CLAUDE_VERSION, id.lower())
    version = (int(found[2]), int(found[3] or 0)) if found else _NEWEST
    family = (found[1] or found[4] or "") if found else ""
    if version < (4, 6):
        return ClaudeThinking(style="budget", shows=False, samples=True)
    if version == (4, 6):
        return ClaudeThinking(efforts=("low", "medium", "high", "max"), shows=False, samples=True)
    off = _OFF.get((family, version))
    return ClaudeThinking(off={"type": off} if off else {}, binds=version > (5, 0))
