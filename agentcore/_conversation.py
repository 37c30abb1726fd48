"""Where an agent keeps its conversation: what a session has to offer, and the plain file of `Agent.save`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from agentcore._logs import log_failure
from agentcore._records import json_safe
from agentcore.errors import MisuseError, SessionCorruptError
from agentcore.messages import AgentMessage, CompactionSummaryMessage, message_from_dict

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Conversation", "ConversationRecord", "load_conversation", "save_conversation"]

_TYPE, _VERSION = "agent", 1


class Conversation(Protocol):
    """What an agent needs of a session, such as `agentcore.sessions.Session`."""

    def messages(self) -> list[AgentMessage]:
        """Return the conversation so far."""
        ...

    def append(self, message: AgentMessage) -> object:
        """Add a message for good."""
        ...

    def append_compaction(self, summary: CompactionSummaryMessage, kept: Iterable[AgentMessage]) -> object:
        """Note that a summary stands for all but the kept messages."""
        ...


@attrs.define(eq=False, repr=False)
class _Log:
    """What is to be written, in order: what an earlier run could not write, then what the run adds.

    `written` counts what has been, and `trying` is the number of the message that was begun last. An interrupt leaves
    these two equal when it came after the message was begun and before that was counted.
    """

    messages: list[AgentMessage] = attrs.field(factory=list)
    earlier: int = 0
    written: int = 0
    trying: int = -1


class ConversationRecord:
    """Writes the messages of an agent to its session, if it has one: each once, in order, whatever fails or interrupts.

    What could not be written is written before anything else, at the latest when the next run begins.

    Threads: belongs to the thread of the run, or to the one that changes an idle agent.
    """

    def __init__(self, session: Conversation | None) -> None:
        if session is not None and not callable(getattr(session, "append_compaction", None)):
            raise TypeError(f"`session` is a `Session` or the like, not {type(session).__name__}")
        self._session = session
        self._log = _Log()

    def begin(self, messages: tuple[AgentMessage, ...]) -> tuple[AgentMessage, ...]:
        """Return the messages that an agent begins with."""
        if self._session is None:
            return messages
        if messages:
            raise ValueError("the messages of an agent with a session are those of the session; leave `messages` out")
        return tuple(self._session.messages())

    def check_replacement(self, messages: Sequence[AgentMessage]) -> None:
        """Raise `MisuseError` for messages that are not those of the session."""
        if self._session is None:
            return
        known = self._session.messages()
        if len(known) != len(messages) or any(a is not b for a, b in zip(known, messages, strict=True)):
            raise MisuseError(
                "the conversation of this agent is in a session: for another one make an agent with another session, or "
                "go to another branch of it and set `messages` to `session.messages()`"
            )

    def begin_run(self) -> None:
        """Write what could not be written before."""
        if self._session is None:
            return
        log = self._log
        left = log.messages[log.written :]
        self._log = _Log(left, len(left), trying=log.trying - log.written)
        self._write()

    def add(self, message: AgentMessage, added: Sequence[AgentMessage]) -> None:
        """Write a message that has come into the transcript, the newest of those that the run has added."""
        log = self._log
        if self._session is not None and len(added) == len(log.messages) - log.earlier + 1:
            log.messages.append(message)
            self._write()
        else:
            self.complete(added)  # an interrupt has kept some from getting here

    def complete(self, added: Iterable[AgentMessage]) -> None:
        """Write what a run has added, but for what has been written."""
        if self._session is None:
            return
        log = self._log
        known = Counter(map(id, log.messages[log.earlier :]))
        for message in added:
            if known[id(message)]:
                known[id(message)] -= 1
            else:
                log.messages.append(message)
        self._write()

    def end_run(self, added: Iterable[AgentMessage]) -> None:
        """Do the same at the end of a run, which has failed already if something cannot be written."""
        try:
            self.complete(added)
        except Exception as error:
            log_failure("agent", error, "a session could not be written, the next run tries again")

    def _write(self) -> None:
        log, session = self._log, self._session
        assert session is not None
        while log.written < len(log.messages):
            message = log.messages[log.written]
            if log.trying != log.written:
                log.trying = log.written
                session.append(message)
            elif not _is_last(message, session.messages()):
                session.append(message)
            log.written += 1

    def compact(self, summary: CompactionSummaryMessage, kept: Iterable[AgentMessage]) -> None:
        """Note that a summary stands for all but the kept messages."""
        if self._session is not None:
            self._session.append_compaction(summary, kept)


def _is_last(message: AgentMessage, messages: Sequence[AgentMessage]) -> bool:
    return bool(messages) and (messages[-1] is message or messages[-1] == message)


def save_conversation(path: str | Path, messages: Sequence[AgentMessage], system_prompt: str) -> None:
    """Write a conversation to a file as one piece: a crash leaves the old file or the new one."""
    import tempfile  # on first use: importing the package must stay light
    from pathlib import Path

    target = Path(os.path.realpath(path))
    data = {
        "type": _TYPE,
        "version": _VERSION,
        "system_prompt": system_prompt,
        "messages": [json_safe(message.to_dict()) for message in messages],
    }
    # `mkstemp` makes a file that only its owner can read.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_conversation(path: str | Path) -> dict[str, Any]:
    """Return what `save_conversation` wrote, as options of an agent; raises `SessionCorruptError` for anything else."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - without importing pathlib
        text = file.read()
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("type") != _TYPE:
            raise ValueError("it holds no agent")
        if data.get("version") != _VERSION:
            raise ValueError(f"it has the version {data.get('version')!r}, and this one reads {_VERSION}")
        messages = [message_from_dict(message) for message in data["messages"]]
        return {"system_prompt": str(data.get("system_prompt") or ""), "messages": messages}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SessionCorruptError(f"{path} is no file that `Agent.save` wrote: {error}", path=str(path)) from None
