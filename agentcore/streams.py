"""A run on a background thread, and the stream of its events.

Guarantees for threads. The run's thread holds the channel, never the `EventStream`, so a stream that nobody holds any
more is finalised and aborts its run. An event is put into a deque before its reader is woken, and the end is noted
before that; each side says that it is going to sleep, and then looks once more, so that one of the two always sees the
other. No lock is taken, so an interrupt (Ctrl-C) leaves none taken.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Empty
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from agentcore._interrupts import Interrupts
from agentcore._mailbox import Mailbox, start_daemon
from agentcore._scope import entered, is_inside
from agentcore.abort import AbortController, AbortSignal
from agentcore.errors import StreamStateError

if TYPE_CHECKING:
    from agentcore.messages import AgentMessage

__all__ = ["EventStream"]

_E = TypeVar("_E")
_EXTRA_CLOSE_SECONDS = 0.5
_SECONDS_BETWEEN_LOOKS = 0.5

StreamedRun = Callable[[Callable[[Any], None], AbortSignal, "list[Any]"], object]
"""`run(emit, signal, messages)`: does the run, adds to `messages`, and raises what ended it, if anything did."""


class _Channel:
    """What the run's thread and the reader share."""

    __slots__ = (
        "bound",
        "ended",
        "events",
        "failure",
        "finished",
        "messages",
        "reader_sleeps",
        "readers",
        "room",
        "woken",
        "writer_sleeps",
    )

    def __init__(self, max_queue_size: int | None) -> None:
        self.events: deque[Any] = deque()
        self.bound = math.inf if max_queue_size is None else max_queue_size
        self.woken: Mailbox[None] = Mailbox()
        self.reader_sleeps = False
        self.room: Mailbox[None] = Mailbox()
        self.writer_sleeps = False
        self.messages: list[Any] = []
        self.failure: BaseException | None = None
        self.ended = False
        self.finished = AbortController()  # a flag that many may wait for, interrupted or not
        self.readers: dict[str, int] = {}

    def put(self, event: object) -> None:
        """Add an event, once there is room for it; on the run's thread."""
        if len(self.events) >= self.bound:
            self._wait_for_room()
        self.events.append(event)
        if self.reader_sleeps:
            self.woken.put(None)

    def _wait_for_room(self) -> None:
        self.writer_sleeps = True
        while len(self.events) >= self.bound:
            try:
                self.room.get(_SECONDS_BETWEEN_LOOKS)
            except Empty:
                pass  # nothing woke us: then the one who should have was interrupted before it could
        self.writer_sleeps = False

    def lift(self) -> None:
        """Take the bound away; from any thread."""
        self.bound = math.inf
        self.room.put(None)

    def wait(self, interrupts: Interrupts) -> bool:
        """Wait for an event; return whether there is one, or else the run has ended."""
        while not self.events:
            if self.ended:
                # What was put before the end was noted is seen now, if there is anything.
                return bool(self.events)
            try:
                self.reader_sleeps = True
                if not self.events and not self.ended:
                    interrupts.take_over()
                    self.woken.get()
            finally:
                self.reader_sleeps = False
                interrupts.give_back()
        return True

    def take(self) -> Any:
        """Return the oldest event."""
        try:
            return self.events.popleft()
        finally:
            if self.writer_sleeps:
                self.room.put(None)

    def leave(self, reader: int) -> None:
        """Give the reader's place back, if that thread has it."""
        if self.readers.get("reader") == reader:
            self.readers.pop("reader", None)

    def end(self, failure: BaseException | None) -> None:
        """Say that the run is over; on its thread."""
        self.failure = failure
        self.ended = True
        self.woken.put(None)
        self.finished.abort("finished")


def _feed(run: StreamedRun, channel: _Channel, controller: AbortController) -> None:
    failure: BaseException | None = None
    try:
        with entered(channel):
            run(channel.put, controller.signal, channel.messages)
    except BaseException as error:
        failure = error
    finally:
        controller.close()
        channel.end(failure)
        del failure  # its traceback holds this frame


class EventStream(Generic[_E]):
    """The events of a run that goes on in the background.

    `for event in stream` yields them; `break` pauses, a later `for` goes on. Closing, leaving a `with` block, or
    dropping the stream aborts the run. What the run raised is raised at the end of the iteration and by `result()`.
    A `KeyboardInterrupt` while waiting aborts the run; Ctrl-C raises it also in an event loop with a handler of its own.

    Threads: made and read by one thread at a time; two threads in `__next__` at once raise `StreamStateError`.
    `result`, `abort`, `close` and `messages` may be used from any thread. From the run's own threads (its listeners,
    hooks and tools) `close` only aborts, and reading and `result` raise `StreamStateError`, since they would wait for
    themselves. `abort` is safe in a signal handler.
    """

    def __init__(
        self,
        run: StreamedRun,
        *,
        signals: Iterable[AbortSignal] = (),
        max_queue_size: int | None = None,
        abort_grace: float = 0.5,
    ) -> None:
        if max_queue_size is not None and max_queue_size < 1:
            raise ValueError(f"`max_queue_size` is {max_queue_size!r}; it must be at least 1, or None for no bound")
        self._abort_grace = abort_grace
        self._channel = channel = _Channel(max_queue_size)
        self._controller = AbortController(parents=signals)
        self._controller.signal.add_callback(channel.lift)
        start_daemon(partial(_feed, run, channel, self._controller), "agentcore-stream")

    def __iter__(self) -> Iterator[_E]:
        return self

    def __next__(self) -> _E:
        self._refuse_from_inside("read")
        channel, me, interrupts = self._channel, get_ident(), Interrupts()
        try:
            try:
                if channel.readers.setdefault("reader", me) != me:
                    raise StreamStateError("another thread is reading this event stream; it has one reader at a time")
                if channel.wait(interrupts):
                    event: _E = channel.take()
                    return event
            except KeyboardInterrupt:
                self.abort("interrupted")
                raise
            finally:
                channel.leave(me)
        finally:
            channel.leave(me)  # again, if an interrupt has ended the first try
            interrupts.give_back()
        if isinstance(channel.failure, StopIteration):
            # As it is, it would look like the end of a run that went well.
            raise RuntimeError("the run raised StopIteration") from channel.failure
        if channel.failure is not None:
            raise channel.failure
        raise StopIteration

    @property
    def messages(self) -> list[Any]:
        """What the run has added so far, also after a failure; a copy."""
        return list(self._channel.messages)

    @property
    def signal(self) -> AbortSignal:
        """The signal that the run looks at."""
        return self._controller.signal

    def result(self, timeout: float | None = None) -> list[AgentMessage]:
        """Wait for the run's end; return its new messages, or raise what it raised.

        It needs no reader: a bound on the queue is lifted. Raises `TimeoutError` after `timeout` seconds.
        """
        self._refuse_from_inside("wait for the result of")
        channel, interrupts = self._channel, Interrupts()
        try:
            channel.lift()
            done = interrupts.reaching(lambda: channel.finished.signal.wait(timeout))
        except KeyboardInterrupt:
            self.abort("interrupted")
            raise
        finally:
            interrupts.give_back()
        if not done:
            raise TimeoutError(f"the run had not ended after {timeout:g} s; `abort()` ends it")
        if channel.failure is not None:
            raise channel.failure
        return list(channel.messages)

    def abort(self, reason: object = None) -> None:
        """Ask the run to stop; its closing events can still be read."""
        self._controller.abort(reason)

    def close(self) -> None:
        """Abort the run and wait for its end, at most the abort grace and half a second.

        From the run's own threads it only aborts.
        """
        self._controller.abort("the event stream was closed")
        if not is_inside(self._channel):
            self._channel.finished.signal.wait(self._abort_grace + _EXTRA_CLOSE_SECONDS)

    def _refuse_from_inside(self, what: str) -> None:
        # What a run has started may outlive it, and may then wait: the run has ended.
        if is_inside(self._channel) and not self._channel.ended:
            raise StreamStateError(f"cannot {what} this event stream from its own run: that would wait for itself")

    def __enter__(self) -> EventStream[_E]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        controller = getattr(self, "_controller", None)  # missing when the arguments were refused
        if controller is not None and not self._channel.ended:
            controller.abort("the event stream was dropped")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an EventStream belongs to its process and cannot be pickled or copied; save its `messages`")

    def __repr__(self) -> str:
        channel = self._channel
        state = "running" if not channel.ended else "failed" if channel.failure is not None else "ended"
        return f"<EventStream {state}, {len(channel.messages)} messages>"
