"""Put a summary in place of the past of a conversation, so that it fits the model's window again.

`compact` is a pure function: it decides where to cut, has the part before summarised, and returns both. `auto_compact`
attaches it to an `Agent`. A plain run uses it inside `transform_context`, and keeps what came of it, since a run hands
over its whole conversation every time::

    upto, instead = 0, []

    def transform_context(messages, signal):
        nonlocal upto, instead
        current = [*instead, *messages[upto:]]
        if estimate_tokens(current) > 100_000:
            done = compact(current, 20_000, summarize_with(model), signal=signal)
            if done is not None:
                upto, instead = len(messages), done.messages
                return done.messages
        return current
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from agentcore._foreign import error_text
from agentcore._logs import log_failure
from agentcore._records import Record, now_ms
from agentcore._summaries import Summarize, summarize_with
from agentcore.abort import AbortController, AbortSignal
from agentcore.agent import Agent
from agentcore.config import (
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    PrepareNextTurnContext,
    RecoverContext,
    StreamOptions,
)
from agentcore.events import CompactionEndEvent, CompactionStartEvent
from agentcore.messages import (
    AgentMessage,
    AssistantMessage,
    CompactionSummaryMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.models import Model
from agentcore.providers._overflow import is_context_overflow
from agentcore.tokens import estimate_message_tokens, estimate_tokens, has_failed

__all__ = ["Compaction", "Summarize", "auto_compact", "compact", "summarize_with"]


@attrs.frozen(repr=False, eq=False)
class Compaction(Record):
    """What a compaction came to: the summary, the messages that stay after it, and those it stands for.

    `usage` is what making the summary took, if that is known.
    """

    summary: CompactionSummaryMessage
    kept: tuple[AgentMessage, ...]
    dropped: tuple[AgentMessage, ...]
    usage: Usage | None = None

    @property
    def messages(self) -> list[AgentMessage]:
        """The conversation as it goes on: the summary, then what was kept."""
        return [self.summary, *self.kept]


def compact(
    messages: Sequence[AgentMessage],
    keep_tokens: int,
    summarize: Summarize,
    *,
    keep_user_messages: bool = False,
    signal: AbortSignal | None = None,
) -> Compaction | None:
    """Summarise all but the latest turns, of which at most `keep_tokens` tokens are kept; the last turn always is.

    The cut comes between turns, never between a call and its results. With `keep_user_messages` what the user said
    before it stays too, verbatim. An earlier summary at the beginning is given to `summarize` as `previous`, to be
    carried on. Returns `None` when there is nothing to summarise, or everything fits into `keep_tokens`. What
    `summarize(messages, previous, signal)` raises is raised; an empty summary is a `ValueError`, and an abort of the
    signal meanwhile `AbortRequested`.
    """
    first, previous = _beginning(messages)
    cut = _cut(messages, first, keep_tokens)
    stays: list[AgentMessage] = []
    dropped: list[AgentMessage] = []
    for message in messages[first:cut]:
        (stays if keep_user_messages and isinstance(message, UserMessage) else dropped).append(message)
    if not dropped:
        return None
    signal = signal if signal is not None else AbortController().signal
    answer = summarize(messages[first:cut], previous, signal)
    signal.raise_if_aborted()
    text, usage = (answer.text, answer.usage) if isinstance(answer, AssistantMessage) else (answer, None)
    if not isinstance(text, str):
        raise TypeError(f"`summarize` returned {type(text).__name__}, not text")
    if not text.strip():
        raise ValueError("the summary is empty")
    # Not older than what it stands before, though the clock was set back: what that used is the past.
    latest = max(message.timestamp for message in messages)
    summary = CompactionSummaryMessage(text.strip(), estimate_tokens(messages), timestamp=max(now_ms(), latest))
    return Compaction(summary, (*stays, *messages[cut:]), tuple(dropped), usage)


# --- where to cut ---------------------------------------------------------------------------------------------------


def _beginning(messages: Sequence[AgentMessage]) -> tuple[int, str | None]:
    """Return where the messages to be summarised begin, and the summary that stands before them."""
    head = messages[0] if messages else None
    return (1, head.summary) if isinstance(head, CompactionSummaryMessage) else (0, None)


def _cut(messages: Sequence[AgentMessage], first: int, keep_tokens: int) -> int:
    """Return where the part that is kept begins: as early as it fits, but at the latest place there is."""
    places = _places(messages, first)
    best = places[-1]
    sizes = [estimate_message_tokens(message) for message in messages]
    # What was reported counts for the whole; the guesses only say how it is spread over the messages.
    scale = estimate_tokens(messages) / max(1, sum(sizes))
    size, end = 0, len(messages)
    for place in reversed(places):
        size += sum(sizes[place:end])
        if size * scale > keep_tokens:
            break
        best = end = place
    return best


def _places(messages: Sequence[AgentMessage], first: int) -> list[int]:
    """Return where turns begin, with what the user said before them; `first`, the beginning of all, is one of them.

    At none of these places a call before it has a result after it.
    """
    places = [first]
    answered = _last_results(messages)
    open_until = -1
    previous: AgentMessage | None = None
    for index, message in enumerate(messages):
        # What failed is no turn of its own: the model is still to answer what stands before it.
        begins = isinstance(previous, (AssistantMessage, ToolResultMessage)) and not (
            isinstance(message, ToolResultMessage) or has_failed(message)
        )
        if index > first and begins and index > open_until:
            places.append(index)
        open_until = max(open_until, answered.get(index, -1))
        previous = message
    return places


def _last_results(messages: Sequence[AgentMessage]) -> dict[int, int]:
    """Return where the last result of each assistant message's calls is.

    A result belongs to the last unanswered call of its id before it: some providers use the same ids in every turn.
    """
    waiting: dict[str, list[int]] = {}
    last: dict[int, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append(index)
        elif isinstance(message, ToolResultMessage) and waiting.get(message.tool_call_id):
            last[waiting[message.tool_call_id].pop()] = index
    return last


# --- attached to an agent -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Settings:
    """How an agent compacts by itself."""

    threshold: int | None
    keep_tokens: int
    summarize: Summarize | None
    keep_user_messages: bool


def auto_compact(
    agent: Agent,
    threshold: int | None = None,
    *,
    keep_tokens: int = 20_000,
    summarize: Summarize | None = None,
    keep_user_messages: bool = False,
) -> Callable[[], object]:
    """Have an agent compact its conversation by itself, from its next run on; return what takes that back.

    It happens between turns and before the first request of a run, once the conversation takes `threshold` tokens (left
    out: four fifths of the model's context window), and after a response that failed because the conversation was too
    long, which is then asked for again, once. `keep_tokens` is never more than half of the threshold. `summarize`
    defaults to the model of the run, with the options of its requests. The agent's transcript is replaced, a session
    notes it, and the listeners get a `CompactionStartEvent` and a `CompactionEndEvent`. A summary that fails, is empty
    or is aborted leaves everything as it was. The agent's own hooks are asked first. Raises `ValueError` for numbers that
    make no sense.
    """
    if (threshold is not None and threshold < 1) or keep_tokens < 0:
        raise ValueError("`threshold` and `keep_tokens` are numbers of tokens")
    settings = _Settings(
        threshold=threshold, keep_tokens=keep_tokens, summarize=summarize, keep_user_messages=keep_user_messages
    )
    return agent.extend_runs(lambda config: _RunCompactor(agent, settings, config).extended())


class _RunCompactor:
    """The hooks by which one run compacts the conversation.

    A hook before a request can change what is sent, not what the run goes on from. So after a compaction there, `_sent`
    stands for `_given`, with which the run's own conversation begins, until the next turn is prepared.
    """

    def __init__(self, agent: Agent, settings: _Settings, config: AgentLoopConfig) -> None:
        self._agent = agent
        self._settings = settings
        self._config = config
        self._model: Model = config.model
        self._given: list[AgentMessage] = []
        self._sent: list[AgentMessage] = []
        self._latest: list[AgentMessage] = []
        self._has_recovered = False
        self._not_below = 0

    def extended(self) -> AgentLoopConfig:
        """Return the config of the run with these hooks."""
        return attrs.evolve(
            self._config,
            transform_context=self.transform_context,
            prepare_next_turn=self.prepare_next_turn,
            recover_from_error=self.recover_from_error,
        )

    # --- the hooks --------------------------------------------------------------------------------------------------

    def transform_context(self, messages: list[AgentMessage], signal: AbortSignal) -> Sequence[AgentMessage]:
        current = self._current(messages)
        compacted = self._over_threshold(current, signal)
        if compacted is not None:
            self._given, self._sent = messages.copy(), compacted
            current = compacted.copy()
        own = self._config.transform_context
        return current if own is None else own(current, signal)

    def prepare_next_turn(self, context: PrepareNextTurnContext, signal: AbortSignal) -> AgentLoopTurnUpdate | None:
        own = self._config.prepare_next_turn
        update = (None if own is None else own(context, signal)) or AgentLoopTurnUpdate()
        self._follow(update)
        # What the hook wants to go on from is looked at before the next request, if there is one; without results
        # this may have been the last turn. What is no update at all is for the loop to refuse.
        if not context.tool_results or getattr(update, "context", update) is not None:
            return update
        current = self._current(context.context.messages)
        compacted = self._over_threshold(current, signal) or current
        if _same(compacted, context.context.messages):
            return update
        return attrs.evolve(update, context=_with_messages(context.context, compacted))

    def recover_from_error(self, context: RecoverContext, signal: AbortSignal) -> AgentLoopTurnUpdate | None:
        own = self._config.recover_from_error
        update = None if own is None else own(context, signal)
        self._follow(update)
        if update is not None:
            return update
        if context.attempt == 1:
            self._has_recovered = False
        # Once for one overflow: if it is still too long after that, compacting again would not help.
        if self._has_recovered or not is_context_overflow(context.message):
            return None
        self._has_recovered = True
        current = self._current(context.context.messages)
        # The estimate was wrong, or the window is smaller than thought: keep no more than half of what there is.
        keep = min(self._settings.keep_tokens, estimate_tokens(current) // 2)
        compacted = self._compacted(current, keep, "overflow", signal)
        if compacted is None:
            return None
        return AgentLoopTurnUpdate(context=_with_messages(context.context, compacted))

    def _follow(self, update: Any) -> None:
        if isinstance(update, AgentLoopTurnUpdate) and update.model is not None:
            self._model = update.model

    # --- what they do -----------------------------------------------------------------------------------------------

    def _current(self, messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        """Return the run's conversation with what has been compacted in it."""
        length = len(self._given)
        if length and _same(self._given, messages[:length]):
            return [*self._sent, *messages[length:]]
        self._given, self._sent = [], []  # the run goes on from something else by now
        return list(messages)

    def _over_threshold(self, messages: list[AgentMessage], signal: AbortSignal) -> list[AgentMessage] | None:
        threshold, window = self._settings.threshold, self._model.context_window
        if threshold is None and window is not None:
            threshold = window * 4 // 5
        # What a compaction has just left gets no smaller by another one.
        if threshold is None or _same(messages, self._latest):
            return None
        tokens = estimate_tokens(messages)
        keep = min(self._settings.keep_tokens, threshold // 2)
        first, _ = _beginning(messages)
        if tokens < max(threshold, self._not_below) or _cut(messages, first, keep) == first:
            return None
        compacted = self._compacted(messages, keep, "threshold", signal)
        # A summary that failed is not asked for again at once: it costs as much as it would save.
        self._not_below = 0 if compacted is not None else tokens + threshold // 10
        return compacted

    def _compacted(
        self, messages: list[AgentMessage], keep_tokens: int, reason: str, signal: AbortSignal
    ) -> list[AgentMessage] | None:
        """Compact, and return the conversation to go on with; `None` when everything stays as it was."""
        agent = self._agent
        tokens = estimate_tokens(messages)
        end = CompactionEndEvent(None, tokens, "it was stopped")
        try:
            agent.announce(CompactionStartEvent(reason, tokens))
            done = self._summarized(messages, keep_tokens, signal)
            if isinstance(done, str):
                end = CompactionEndEvent(None, tokens, done)
                return None
            # A conversation that some hook has put in place for this run is not the agent's.
            if _same(messages, agent.messages):
                agent.apply_compaction(done.summary, done.kept)
            end = CompactionEndEvent(done.summary, estimate_tokens(done.messages), None, done.usage)
            self._latest = done.messages
            return done.messages
        except Exception as failure:  # the session could not be written
            end = CompactionEndEvent(None, tokens, error_text(failure))
            raise
        finally:
            agent.announce(end)

    def _summarized(self, messages: list[AgentMessage], keep_tokens: int, signal: AbortSignal) -> Compaction | str:
        """Compact; return why that came to nothing, if it did. An abort is raised."""
        keep_user_messages = self._settings.keep_user_messages
        try:
            summarize = self._settings.summarize or self._own_summarize()
            done = compact(messages, keep_tokens, summarize, keep_user_messages=keep_user_messages, signal=signal)
        except Exception as failure:
            signal.raise_if_aborted()
            log_failure("compaction", failure, "a compaction failed")
            return error_text(failure)
        return "there is nothing before the last turn to summarise" if done is None else done

    def _own_summarize(self) -> Summarize:
        """Return a `summarize` that asks the model of the run the way the run does."""
        config, model = self._config, self._model
        key = config.get_api_key(model.provider) if config.get_api_key is not None else None
        options = {name: getattr(config, name) for name in _SAME_FOR_A_SUMMARY}
        return summarize_with(
            model,
            self._agent.stream_fn,
            options=StreamOptions(**options, api_key=key or config.api_key),
            convert_to_llm=config.convert_to_llm,
        )


_SAME_FOR_A_SUMMARY = (
    "connect_timeout",
    "headers",
    "idle_timeout",
    "max_retries",
    "max_retry_delay_ms",
    "metadata",
    "on_payload",
    "on_response",
    "session",
    "transport",
)


def _same(left: Sequence[AgentMessage], right: Sequence[AgentMessage]) -> bool:
    """Return whether two conversations are made of the same objects."""
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


def _with_messages(context: AgentContext, messages: Sequence[AgentMessage]) -> AgentContext:
    return AgentContext(context.system_prompt, messages, context.tools)
