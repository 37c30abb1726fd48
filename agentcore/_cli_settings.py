"""What the command line was told, and the agent that it makes of it."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs

from agentcore._cli_models import UsageError
from agentcore.agent import Agent
from agentcore.compaction import auto_compact
from agentcore.config import AgentLoopConfig, Limits
from agentcore.errors import SessionError
from agentcore.models import Model, has_prices
from agentcore.sessions import Session
from agentcore.toolkit import coding_tools
from agentcore.tools import AgentTool

__all__ = ["Settings", "make_agent", "make_tools", "tool_names"]

TOOL_NAMES: Final = ("read", "bash", "edit", "write")


@attrs.frozen(kw_only=True)
class Settings:
    """What the command line was told."""

    model: Model
    model_is_named: bool
    base_url: str | None
    api: str | None
    tools: tuple[str, ...]
    cwd: Path
    root: Path | None
    session_file: Path | None
    system_prompt: str | None
    thinking: str | None
    ask_first: bool
    max_turns: int | None
    max_cost: float | None


def tool_names(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; raises `UsageError` for what is no tool."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ("none",):
        return ()
    wrong = [name for name in names if name not in TOOL_NAMES]
    if wrong or not names:
        raise UsageError(f"{wrong[0] if wrong else text!r} is no tool: use some of {','.join(TOOL_NAMES)}, or none")
    return names


def make_tools(names: tuple[str, ...], settings: Settings) -> list[AgentTool]:
    """Return the tools of these names; raises `UsageError` for folders that cannot be used."""
    try:
        tools = coding_tools(settings.cwd, settings.root)
    except (ValueError, OSError) as error:
        raise UsageError(str(error).rstrip(".")) from None
    by_name = {tool.name: tool for tool in tools}
    return [by_name[name] for name in names]


def make_agent(settings: Settings, stack: ExitStack) -> tuple[Agent, Session | None]:
    """Return the agent, and its session, which is closed with the stack; raises `UsageError`."""
    if not settings.cwd.is_dir():
        raise UsageError(f"there is no folder {os.fspath(settings.cwd)!r}")
    tools = make_tools(settings.tools, settings)
    session = None if settings.session_file is None else stack.enter_context(_session(settings))
    if settings.max_cost is not None and not has_prices(settings.model):
        raise UsageError(f"`--max-cost` needs a model whose prices are known, and those of {settings.model.id} are not")
    limits = None
    if settings.max_turns is not None or settings.max_cost is not None:
        limits = Limits(turns=settings.max_turns, cost=settings.max_cost)
    try:
        agent = Agent(
            settings.model,
            system_prompt=_default_prompt(settings) if settings.system_prompt is None else settings.system_prompt,
            tools=tools,
            thinking_level=settings.thinking,
            limits=limits,
            config=AgentLoopConfig(model=settings.model, session_id=session.id if session is not None else None),
            session=session,
        )
    except (TypeError, ValueError) as error:
        raise UsageError(str(error).rstrip(".")) from None
    auto_compact(agent)
    return agent, session


def _session(settings: Settings) -> Session:
    path = settings.session_file
    assert path is not None
    try:
        return Session.open(path) if path.exists() else Session.create(path, cwd=settings.cwd)
    except (SessionError, OSError) as error:
        raise UsageError(str(error).rstrip(".")) from None


def _default_prompt(settings: Settings) -> str:
    if not settings.tools:
        return "You are a helpful assistant. You answer in a terminal: be brief, and use plain text."
    return (
        f"You are a careful assistant with tools that work in the folder {settings.cwd.resolve()} of the user's "
        "computer. Look before you change anything, and say briefly what you did. You answer in a terminal: be brief, "
        "and use plain text."
    )
