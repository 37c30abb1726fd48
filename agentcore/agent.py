"""`Agent`: a conversation with a model and tools, one run at a time, that can be steered and stopped from any thread.

Guarantees for threads. No lock is taken. That a run is going on is one entry of a dict, claimed by `setdefault`: of
two threads exactly one gets it, before anything has changed. The transcript is what was there before the run and the
list that the run adds to; both are in one `AgentRun`, which is put in place by one assignment and needs no settling
afterwards. Giving the claim back is done twice, each time whole, so that it is given back though an interrupt comes
in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

from agentcore._agent_run import AgentRun, AgentState, AgentStatus, busy_error
from agentcore._agent_settings import AgentSettings, Setting
from agentcore._conversation import Conversation, ConversationRecord, load_conversation, save_conversation
from agentcore._displayed import Displayed
from agentcore._listeners import Listener, Listeners
from agentcore._prompts import as_one_message, as_prompts
from agentcore._queues import MessageQueue
from agentcore._resume import allow, deny, refuse_unanswered, replace, resumed_calls, unanswered_calls
from agentcore._run import as_messages
from agentcore._scope import is_inside
from agentcore.abort import AbortSignal
from agentcore.config import AgentContext, AgentLoopConfig, BeforeToolCallResult, Limits, StreamFn
from agentcore.content import ImageContent
from agentcore.errors import AgentBusyError, NothingToContinueError
from agentcore.events import AgentEvent, MessageEndEvent
from agentcore.loop import ResumedCalls, check_can_continue, drive, new_run
from agentcore.messages import AgentMessage, AssistantMessage, CompactionSummaryMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.streams import EventStream
from agentcore.tools import AgentTool, ToolExecutionMode

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Agent", "AgentState", "AgentStatus", "Listener", "allow", "deny", "replace"]

Plan = Callable[[AgentRun], "tuple[Sequence[AgentMessage], ResumedCalls | None]"]
"""Looks at a run that has been claimed; returns its prompts, and calls that it answers first."""

_RUN = "run"


class Agent(Displayed):
    """A conversation with a model that can use tools.

    `model` is a `Model`, or the `provider/id` of one in the catalog. `config` carries every option that has no
    parameter here; its `model` must equal the agent's, and its `signal` and queue hooks must be unset. What is named
    here and not `None` overrides it. `messages` is the conversation so far; with a `session` it is the session's, and
    each message is written to it as it comes into the transcript. Hooks, options, tools and messages are attributes
    and can be replaced between runs; what cannot be right raises `TypeError` or `ValueError` at once.

    A run begins with `prompt`, `stream`, `continue_` or `resume`. Failures of the model, the network and the tools do
    not raise: they are in the returned message (`raise_for_error()`) and in `state.error_message`. What a hook raises
    ends the run and is raised; so is `KeyboardInterrupt`, also in an event loop with a handler of its own. Whatever
    ends a run, the transcript is valid, the agent is idle, and the next prompt works.

    Threads: one run at a time; a second one raises `AgentBusyError` and changes nothing. `steer`, `follow_up`, `abort`,
    `abort_tool`, `subscribe` and what it returns, `status`, `state`, `pending_calls`, `has_queued_messages` and the
    `clear_…` methods may be called from any thread, from listeners, hooks and tools, and from signal handlers; they
    never wait. `wait_for_idle` may be called from any thread but the run's own and its workers. Listeners and hooks
    run on the thread that called `prompt`, `continue_` or `resume`, for `stream` on the stream's own, one at a time.
    Each read of `state` and `status()` is a copy of one moment.
    """

    model: Setting[Model] = Setting()
    system_prompt: Setting[str] = Setting()
    tools: Setting[tuple[AgentTool, ...]] = Setting()
    thinking_level: Setting[ThinkingLevel] = Setting()
    tool_execution: Setting[ToolExecutionMode] = Setting()
    before_tool_call: Setting[Callable[..., Any] | None] = Setting()
    after_tool_call: Setting[Callable[..., Any] | None] = Setting()
    prepare_next_turn: Setting[Callable[..., Any] | None] = Setting()
    should_stop_after_turn: Setting[Callable[..., Any] | None] = Setting()
    recover_from_error: Setting[Callable[..., Any] | None] = Setting()
    transform_context: Setting[Callable[..., Any] | None] = Setting()
    convert_to_llm: Setting[Callable[..., Any]] = Setting()
    get_api_key: Setting[Callable[[str], str | None] | None] = Setting()
    limits: Setting[Limits | None] = Setting()
    steering_mode: Setting[str] = Setting()
    follow_up_mode: Setting[str] = Setting()
    stream_fn: Setting[StreamFn | None] = Setting()

    def __init__(
        self,
        model: Model | str,
        *,
        system_prompt: str = "",
        tools: Iterable[AgentTool | Callable[..., Any]] = (),
        messages: Iterable[AgentMessage] = (),
        thinking_level: ThinkingLevel | str | None = None,
        tool_execution: ToolExecutionMode | str | None = None,
        before_tool_call: Callable[..., Any] | None = None,
        after_tool_call: Callable[..., Any] | None = None,
        prepare_next_turn: Callable[..., Any] | None = None,
        limits: Limits | None = None,
        steering_mode: str = "one-at-a-time",
        follow_up_mode: str = "one-at-a-time",
        stream_fn: StreamFn | None = None,
        config: AgentLoopConfig | None = None,
        session: Conversation | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "model": model,
            "system_prompt": system_prompt,
            "tools": tools,
            "thinking_level": thinking_level,
            "tool_execution": tool_execution,
            "before_tool_call": before_tool_call,
            "after_tool_call": after_tool_call,
            "prepare_next_turn": prepare_next_turn,
            "limits": limits,
            "steering_mode": steering_mode,
            "follow_up_mode": follow_up_mode,
            "stream_fn": stream_fn,
        }
        self._settings = AgentSettings(config, given)
        self._steering = MessageQueue()
        self._follow_ups = MessageQueue()
        self._listeners = Listeners()
        self._extensions: dict[object, Callable[[AgentLoopConfig], AgentLoopConfig]] = {}
        self._claims: dict[str, AgentRun] = {}
        self._record = ConversationRecord(session)
        self._latest = AgentRun(base=self._record.begin(as_messages(messages, "`messages`")))

    @classmethod
    def load(cls, path: str | Path, model: Model | str, **options: Any) -> Agent:
        """Make an agent that goes on with what `save` wrote; `options` are those of the constructor.

        Raises `FileNotFoundError`, and `SessionCorruptError` for a file that `save` did not write.
        """
        return cls(model, **{**load_conversation(path), **options})

    def save(self, path: str | Path) -> None:
        """Write the conversation and the system prompt to a file, readable by its owner only, as one piece."""
        save_conversation(path, self.messages, self._settings["system_prompt"])

    # --- runs -------------------------------------------------------------------------------------------------------

    def prompt(
        self, prompt: str | AgentMessage | Sequence[AgentMessage], images: Iterable[ImageContent] = ()
    ) -> AssistantMessage:
        """Say something and run until the model has nothing left to do; return its last message.

        `images` go with a prompt that is text. Raises `AgentBusyError` during a run, and `PendingCallsError` while
        calls wait for a decision.
        """
        return self._run(partial(self._plan_prompt, as_prompts(prompt, images)))

    def stream(
        self,
        prompt: str | AgentMessage | Sequence[AgentMessage],
        images: Iterable[ImageContent] = (),
        *,
        max_queue_size: int | None = None,
    ) -> EventStream[AgentEvent]:
        """Do the same as `prompt` on a background thread; return the events as a stream.

        Listeners and hooks run on that thread. When the stream yields its `AgentEndEvent` the agent is idle. Closing
        or dropping the stream aborts the run. `max_queue_size` makes the run wait when that many events have not been
        read. Raises what `prompt` raises before a run begins.
        """
        plan = partial(self._plan_prompt, as_prompts(prompt, images))
        record = AgentRun()
        try:
            try:
                return self._streamed(record, plan, max_queue_size)
            except BaseException:
                self._take_back(record)
                raise
        except BaseException:
            self._take_back(record)
            raise

    def continue_(self) -> AssistantMessage:
        """Go on from the transcript as it is; return the model's last message.

        From a message that the model has answered, queued messages go on: the steering queue is drained once, or else
        the follow-up queue. Raises `NothingToContinueError` when there is nothing to answer, and what `prompt` raises.
        """
        return self._run(self._plan_continuation)

    def resume(self, decisions: Mapping[str, BeforeToolCallResult]) -> AssistantMessage:
        """Answer the calls that wait for a decision, and go on; return the model's last message.

        `decisions` maps the id of a pending call to `allow()`, `deny(reason)` or `replace(args)`. What is allowed runs
        as it would have, its arguments validated again; a call without a decision is answered with an error. Raises
        `NothingToContinueError` when no call waits, `ValueError` for an id that is not pending, and `AgentBusyError`.
        """
        return self._run(lambda record: ((), resumed_calls(record.base, decisions)))

    def steer(self, message: str | AgentMessage) -> None:
        """Queue a message for the run to take in after its current turn, or for the next run."""
        self._steering.put(as_one_message(message))

    def follow_up(self, message: str | AgentMessage) -> None:
        """Queue a message for the run to take in when it would otherwise be done, or for the next run."""
        self._follow_ups.put(as_one_message(message))

    def abort(self, reason: object = None) -> None:
        """Ask the run to stop; does nothing when the agent is idle."""
        record = self._claims.get(_RUN)
        if record is not None:
            record.controller.abort(reason)

    def abort_tool(self, tool_call_id: str) -> bool:
        """Ask one tool call to stop, and the run to go on; return whether that call was still unanswered.

        A call on a worker ends with an error result at the latest after the abort grace. One on the loop's thread, in
        a sequential batch, can only be asked.
        """
        record = self._claims.get(_RUN)
        run = record.run if record is not None else None
        batch = run.batch if run is not None else None
        return batch.abort_call(tool_call_id) if batch is not None else False

    def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until the run that is going on has ended, at most `timeout` seconds; return whether it has.

        Raises `AgentBusyError` from the run's own thread and from its workers, where it would wait for itself.
        """
        record = self._claims.get(_RUN)
        if record is None:
            return True
        run = record.run
        if run is not None and is_inside(run):
            raise AgentBusyError("a run cannot wait for its own end; `follow_up` queues what is to be done after it")
        return record.wait(timeout)

    def reset(self) -> None:
        """Forget the conversation, the queued messages and the latest error; raises `MisuseError` with a session."""
        self._record.check_replacement(())
        self._replace_messages((), "reset the agent")
        self.clear_all_queues()

    def apply_compaction(self, summary: CompactionSummaryMessage, kept: Sequence[AgentMessage]) -> None:
        """Put a summary and the messages that stay after it in place of the transcript; a session notes it.

        Between runs, or on the thread of a run, from one of its hooks: the hook then returns a context of the same
        messages, since a run goes on from its own. Raises `AgentBusyError` elsewhere during a run.
        """
        record = self._claims.get(_RUN)
        if record is None:
            noted = partial(self._record.compact, summary, kept)
            self._replace_messages((summary, *kept), "compact the transcript", noted)
        elif record.is_here:
            self._record.complete(record.added)
            self._record.compact(summary, kept)
            record.compacted = ((summary, *kept), len(record.added))
        else:
            raise busy_error("compact the transcript")

    def announce(self, event: AgentEvent) -> None:
        """Tell the listeners of a run of an event that is not the loop's own; from one of the run's hooks."""
        record = self._claims.get(_RUN)
        if record is not None and record.run is not None and record.is_here:
            record.run.emit(event)

    def extend_runs(self, extend: Callable[[AgentLoopConfig], AgentLoopConfig]) -> Callable[[], object]:
        """Have `extend(config)` change the config of every run from the next one on; return what takes that back.

        It is called before a run begins, for `stream` once more to check it, and has to keep the queue hooks.
        """
        key = object()
        self._extensions[key] = extend
        return partial(self._extensions.pop, key, None)

    # --- what is known ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """The agent as it is now."""
        return self._latest.state(self._settings.snapshot(), busy=_RUN in self._claims)

    def status(self) -> AgentStatus:
        """Return what the agent is doing now."""
        queues = self._steering.waiting(), self._follow_ups.waiting()
        return self._latest.status(*queues, busy=_RUN in self._claims)

    @property
    def messages(self) -> list[AgentMessage]:
        """The transcript, as a list of the reader's own; it can be replaced between runs."""
        return self._latest.messages

    @messages.setter
    def messages(self, messages: Iterable[AgentMessage]) -> None:
        replacement = as_messages(messages, "`messages`")
        self._record.check_replacement(replacement)
        self._replace_messages(replacement, "replace `messages`")

    @property
    def config(self) -> AgentLoopConfig:
        """Every option of a run, as one record; it can be replaced between runs, but for its model."""
        return self._settings.config

    @config.setter
    def config(self, config: AgentLoopConfig) -> None:
        self._refuse_when_busy("replace `config`")
        self._settings.config = config

    @property
    def pending_calls(self) -> list[dict[str, Any]]:
        """The calls that have no result yet and that `resume` decides on, as data that JSON can hold.

        They are those of the last assistant message, if nothing but results follows it. During a run they are the
        calls that it has not answered yet.
        """
        return [call.to_dict() for call in unanswered_calls(self._latest.messages)[1]]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener(event, signal)` called with every event from now on; return what takes it back.

        Listeners are called in the order of subscription, after `state` has taken the event in. What one raises is
        logged. Taken back during an event, a listener does not get that event any more.
        """
        return self._listeners.add(listener)

    def has_queued_messages(self) -> bool:
        """Return whether messages wait in a queue."""
        return bool(self._steering.waiting() or self._follow_ups.waiting())

    def clear_steering_queue(self) -> None:
        """Drop the messages queued by `steer`."""
        self._steering.clear()

    def clear_follow_up_queue(self) -> None:
        """Drop the messages queued by `follow_up`."""
        self._follow_ups.clear()

    def clear_all_queues(self) -> None:
        """Drop all queued messages."""
        self._steering.clear()
        self._follow_ups.clear()

    # --- the claim --------------------------------------------------------------------------------------------------

    def _refuse_when_busy(self, what: str) -> None:
        if _RUN in self._claims:
            raise busy_error(what)

    def _claim(self, record: AgentRun, what: str) -> None:
        if self._claims.setdefault(_RUN, record) is not record:
            raise busy_error(what)
        record.base = tuple(self._latest.messages)
        self._record.begin_run()

    def _release(self, record: AgentRun) -> None:
        """Leave the agent idle, if `record` has the claim; once more does no harm."""
        if self._claims.get(_RUN) is record:
            self._record.end_run(record.added)
            self._steering.settle(record.added)
            self._follow_ups.settle(record.added)
            record.leave()
            self._claims.pop(_RUN, None)
        record.interrupts.give_back()
        record.controller.close()
        record.ended.abort("ended")

    def _replace_messages(
        self, messages: Sequence[AgentMessage], what: str, first: Callable[[], object] | None = None
    ) -> None:
        record = AgentRun()
        try:
            try:
                self._claim(record, what)
                if first is not None:
                    first()
                self._latest = AgentRun(base=messages)
            finally:
                self._release(record)
        finally:
            self._release(record)

    # --- how a run goes ---------------------------------------------------------------------------------------------

    def _plan_prompt(
        self, prompts: Sequence[AgentMessage], record: AgentRun
    ) -> tuple[Sequence[AgentMessage], ResumedCalls | None]:
        refuse_unanswered(record.base)
        return prompts, None

    def _plan_continuation(self, record: AgentRun) -> tuple[Sequence[AgentMessage], ResumedCalls | None]:
        refuse_unanswered(record.base)
        try:
            check_can_continue(AgentContext(messages=record.base))
        except NothingToContinueError:
            steering = self._steering.take(self._settings["steering_mode"], record.added)
            record.skips_steering = bool(steering)
            prompts = steering or self._follow_ups.take(self._settings["follow_up_mode"], record.added)
            if not prompts:
                raise
            return prompts, None
        return (), None

    def _run(self, plan: Plan) -> AssistantMessage:
        """Run on the calling thread."""
        record = AgentRun()
        try:
            try:
                self._claim(record, "begin a run")
                record.interrupts.take_over()
                self._drive(record, plan(record), record.controller.signal)
            finally:
                self._release(record)
        finally:
            self._release(record)
        # Of all there were: a compaction may have taken the last one out of the transcript.
        return next(one for one in reversed((*record.base, *record.added)) if isinstance(one, AssistantMessage))

    def _streamed(self, record: AgentRun, plan: Plan, max_queue_size: int | None) -> EventStream[AgentEvent]:
        """Begin a run on a thread of its own."""
        self._claim(record, "begin a run")
        planned = plan(record)
        self._new_run(record, record.controller.signal).controller.close()  # checks everything, here and now

        def run(emit: Callable[[AgentEvent], None], signal: AbortSignal, added: list[AgentMessage]) -> None:
            if record.owner.setdefault("owner", "stream") != "stream":
                return
            record.forward, record.added = emit, added
            try:
                self._drive(record, planned, signal)
            finally:
                last_event = record.held
                self._release(record)
                if last_event is not None:
                    emit(last_event)  # now that the agent is idle: who reads it can begin the next run

        return EventStream(
            run,
            signals=[record.controller.signal],
            max_queue_size=max_queue_size,
            abort_grace=self._settings["abort_grace"],
        )

    def _take_back(self, record: AgentRun) -> None:
        """Give up a run for a stream: it does not begin any more, or is aborted; once more does no harm."""
        if record.owner.setdefault("owner", "caller") == "caller":
            self._release(record)
        else:
            record.controller.abort("interrupted")

    def _new_run(self, record: AgentRun, signal: AbortSignal) -> Any:
        settings = self._settings.snapshot()
        config = self._settings.run_config(
            settings,
            get_steering_messages=partial(self._poll_steering, record, settings["steering_mode"]),
            get_follow_up_messages=lambda: self._follow_ups.take(settings["follow_up_mode"], record.added),
        )
        for extend in list(self._extensions.values()):
            config = extend(config)
        context = AgentContext(settings["system_prompt"], record.base, settings["tools"])
        return new_run(context, config, partial(self._emit, record), signal, settings["stream_fn"], record.added)

    def _drive(
        self, record: AgentRun, planned: tuple[Sequence[AgentMessage], ResumedCalls | None], signal: AbortSignal
    ) -> None:
        record.thread_id = get_ident()
        record.run = run = self._new_run(record, signal)
        self._latest = record
        try:
            drive(run, *planned)
        except BaseException as failure:
            record.fail(failure)
            raise

    def _poll_steering(self, record: AgentRun, mode: str) -> tuple[AgentMessage, ...]:
        if record.skips_steering:
            record.skips_steering = False
            return ()
        return self._steering.take(mode, record.added)

    def _emit(self, record: AgentRun, event: AgentEvent) -> None:
        """Take an event in, and tell it to the listeners and to the stream."""
        record.take(event)
        if type(event) is MessageEndEvent:
            self._record.add(event.message, record.added)
        assert record.run is not None
        request = self._listeners.tell(event, record.run.signal, record.logged)
        if record.forward is not None:
            record.pass_on(event, record.forward)
        if request is not None:
            try:
                raise request
            finally:
                del request  # its traceback holds this frame

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "an Agent holds hooks and threads and cannot be pickled or copied; `save` writes its conversation, and "
            "`Agent.load` makes a new one of it"
        )

    def __repr__(self) -> str:
        phase = self.status().phase
        return f"<Agent {self.model.id!r}, {phase}, {len(self._latest.messages)} messages>"
