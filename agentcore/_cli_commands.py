"""The commands of a conversation on the command line: `/model`, `/tools` and the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from agentcore._cli_history import Exchange, exchanges_of
from agentcore._cli_models import UsageError, choose_model, model_words
from agentcore._cli_settings import Settings, make_tools, tool_names
from agentcore.agent import Agent
from agentcore.compaction import compact, summarize_with
from agentcore.config import StreamOptions
from agentcore.display._text import counted, shortened_line, usage_words
from agentcore.display.terminal import View
from agentcore.errors import AgentCoreError
from agentcore.events import AgentEndEvent, AgentEvent
from agentcore.messages import AssistantMessage, Usage
from agentcore.models import Model
from agentcore.sessions import Session
from agentcore.tokens import estimate_tokens

__all__ = ["Commands", "command_of"]

_COMMAND: Final = re.compile(r"\s*(/[a-z]+)(?:\s+(.*))?", re.DOTALL)
_LONGEST_LINE: Final = 60

_HELP: Final = """\
/model [provider/id]  show or change the model
/tools [names]        show or change the tools: read,bash,edit,write or none
/cost                 what this conversation has taken so far
/compact              put a summary in place of the earlier conversation
/branch [number]      list what you asked, or go on from the answer to one of it
/quit                 leave (or Ctrl-D, or Ctrl-C twice)
Ctrl-C stops a run and keeps the conversation. A line typed during a run is read by the model after its turn."""


def command_of(line: str) -> str | None:
    """Return the command that a line gives; `None` for a prompt, and for a path such as `/etc/hosts`."""
    match = _COMMAND.fullmatch(line.rstrip())
    return match[1] if match else None


class Commands:
    """Carries the commands out.

    Threads: belongs to the main thread.
    """

    def __init__(self, agent: Agent, session: Session | None, settings: Settings, view: View) -> None:
        self._agent = agent
        self._session = session
        self._settings = settings
        self._view = view
        self._models = ExitStack()
        self._usage = Usage(cost={})
        for message in agent.messages:
            if isinstance(message, AssistantMessage) and message.usage is not None:
                self._usage += message.usage
        agent.subscribe(self._count)
        self._known: dict[str, Callable[[str], None]] = {
            "/branch": self._branch,
            "/compact": self._compact,
            "/cost": self._cost,
            "/help": self._help,
            "/model": self._model,
            "/tools": self._tools,
        }

    def close(self) -> None:
        """End what the commands have begun."""
        self._models.close()

    def greet(self) -> None:
        """Say where the user is."""
        agent, folder = self._agent, self._settings.cwd.resolve()
        tools = ", ".join(tool.name for tool in agent.tools) or "no tools"
        self._view.note(f"{model_words(agent.model)} · {tools} · in {folder}")
        if self._session is not None:
            known = f"{counted(len(agent.messages), 'message')} so far" if agent.messages else "new"
            self._view.note(f"The conversation is kept in {self._session.path} ({known}).")
            if self._session.problems:
                self._view.note(f"{counted(len(self._session.problems), 'line')} of it could not be read.")

    def run(self, line: str) -> bool:
        """Carry out a command; return whether the conversation goes on. Raises `UsageError`."""
        match = _COMMAND.fullmatch(line.rstrip())
        assert match is not None
        name, rest = match[1], (match[2] or "").strip()
        if name in ("/quit", "/exit"):
            return False
        run = self._known.get(name)
        if run is None:
            raise UsageError(f"there is no command {name}; /help lists them")
        run(rest)
        return True

    def _count(self, event: AgentEvent, signal: object) -> None:
        if isinstance(event, AgentEndEvent):
            self._usage += self._agent.status().usage

    # --- the commands -----------------------------------------------------------------------------------------------

    def _help(self, rest: str) -> None:
        self._view.lines(_HELP)

    def _model(self, rest: str) -> None:
        if rest:
            self._agent.model = self._chosen(rest)
            if self._session is not None:
                self._session.append_model_change(self._agent.model.provider, self._agent.model.id)
        self._view.note(f"The model is {model_words(self._agent.model)}.")

    def _chosen(self, name: str) -> Model:
        settings = self._settings
        if settings.base_url is None or name == "demo":
            return choose_model(name, self._models)
        # With a server of the user's own, names are those of its models.
        reasoning = settings.thinking not in (None, "off")
        return choose_model(name, self._models, base_url=settings.base_url, api=settings.api, reasoning=reasoning)

    def _tools(self, rest: str) -> None:
        if rest:
            self._agent.tools = tuple(make_tools(tool_names(rest), self._settings))
        names = ", ".join(tool.name for tool in self._agent.tools) or "none"
        self._view.note(f"The tools are: {names}.")

    def _cost(self, rest: str) -> None:
        cost = None if self._usage.cost is None else self._usage.cost.get("total")
        size, window = estimate_tokens(self._agent.messages), self._agent.model.context_window
        room = f" of {window:,}" if window else ""
        unknown = not self._usage.total_tokens and any(isinstance(m, AssistantMessage) for m in self._agent.messages)
        self._view.note("The server reports no tokens." if unknown else usage_words(self._usage, cost))
        self._view.note(f"The conversation takes about {size:,}{room} tokens now.")

    def _compact(self, rest: str) -> None:
        agent = self._agent
        self._view.note("Summarising the earlier conversation; Ctrl-C stops it.")
        try:
            done = compact(
                agent.messages, 0, summarize_with(agent.model, agent.stream_fn, options=StreamOptions(max_retries=1))
            )
        except KeyboardInterrupt:
            self._view.note("Stopped; the conversation is as it was.")
            return
        except (AgentCoreError, ValueError) as error:
            self._view.note(f"error: {error}; the conversation is as it was")
            return
        if done is None:
            self._view.note("There is nothing before the last turn to summarise.")
            return
        agent.apply_compaction(done.summary, done.kept)
        size = counted(estimate_tokens(agent.messages), "token")
        self._view.note(f"The earlier conversation was summarised; it takes about {size} now.")

    def _branch(self, rest: str) -> None:
        exchanges = exchanges_of(self._agent.messages, self._session)
        if not exchanges:
            self._view.note("There is nothing to go back to yet.")
        elif not rest:
            self._view.lines("\n".join(_listed(number, one) for number, one in enumerate(exchanges, start=1)))
            self._view.note("/branch and a number goes on from the answer to it.")
        elif not rest.isdigit() or not 1 <= int(rest) <= len(exchanges):
            raise UsageError(f"/branch takes a number from 1 to {len(exchanges)}")
        else:
            chosen = exchanges[int(rest) - 1]
            if self._session is not None and chosen.entry_id is not None:
                self._session.branch(chosen.entry_id)
                self._agent.messages = self._session.messages()
            else:
                self._agent.messages = self._agent.messages[: chosen.end]
            self._view.note(f"The conversation goes on from: {shortened_line(chosen.text, _LONGEST_LINE)}")


def _listed(number: int, exchange: Exchange) -> str:
    mark = "*" if exchange.current else " "
    return f"{mark}{number:3} {shortened_line(exchange.text, _LONGEST_LINE)}"
