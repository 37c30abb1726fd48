"""Press Ctrl-C, for real, at one place of a run after another, and tell what came of it.

`python interrupt_script.py MODE` (`parallel` or `sequential`) prints one JSON line a place; then it ends with exit code
7 while threads of its own are still stuck. What the places are is in `PLACES`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from agentcore import AgentContext, AgentLoopConfig, AgentTool, Model, RequestRetryEvent, stream_response
from agentcore.abort import AbortController
from agentcore.config import AgentLoopTurnUpdate
from agentcore.events import StartEvent
from agentcore.loop import drive, new_run
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.testing import Gate, SseServer, call, failure, reply, scripted, scripted_model
from agentcore.testing.sse_server import Reply, Stall, sse
from tests.loop.run_log import problems_of

STUCK = threading.Event()
_reached: SimpleQueue[int] = SimpleQueue()
_pressed: list[float] = []


def _press_when_reached() -> None:
    """Press Ctrl-C as often as asked, once somebody stands where it is to arrive."""
    while True:
        for _ in range(_reached.get()):
            time.sleep(0.03)
            _pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)


def stand_here(*args: object, times: int = 1) -> Any:
    """Wait, on the main thread, for a Ctrl-C that does not fail to come."""
    _reached.put(times)
    time.sleep(60)
    raise AssertionError("nobody has pressed Ctrl-C")


def stuck_worker(*args: object, times: int = 1) -> str:
    """A tool on a worker that does not stop when asked to."""
    if threading.current_thread() is threading.main_thread():
        stand_here()
    _reached.put(times)
    STUCK.wait()
    return "too late"


class Place:
    """A run that is interrupted somewhere: its script, its configuration and what its `emit` stops at."""

    def __init__(
        self,
        *replies: Any,
        stops_at: Sequence[str] = (),
        stream_fn: Any = None,
        model: Model | None = None,
        abort_first: bool = False,
        **config: Any,
    ) -> None:
        self.stops_at = list(stops_at)
        self.stream_fn = stream_fn or scripted(*(replies or (reply("On it.", *CALLS), reply("Done."))))
        self.config = {"model": model or scripted_model(), **config}
        self.abort_first = abort_first


CALLS = (call("quick", id="a"), call("stop", id="b"), call("quick", id="c"))


def quick(tool_call_id: str, params: Any, signal: Any, on_update: Callable[[Any], None], context: Any) -> str:
    on_update("half way")
    return "ran"


def at_the_second_call(context: Any, signal: Any) -> None:
    """A hook before or after a tool call that stands still at one of three."""
    if context.tool_call.id == "b":
        stand_here()


def _stalled(*args: object) -> Any:
    yield StartEvent(AssistantMessage("Hel"))
    stand_here()


def _returns(value: Any) -> Any:
    return lambda *args: value


def at_event(kind: str) -> Callable[[], Place]:
    return lambda: Place(
        reply(RequestRetryEvent(1, 0.0, "busy"), "On it.", *CALLS),
        reply("Done."),
        stops_at=[kind],
    )


def in_hook(name: str, *replies: Any, result: Any = None) -> Callable[[], Place]:
    return lambda: Place(*replies, **{name: stand_here})


def in_server(*pieces: Any, hold: Gate | None = None) -> Callable[[], Place]:
    def place() -> Place:
        server = SseServer([Reply(pieces, hold=hold)])
        server.__enter__()  # for as long as the process lives

        def watch() -> None:
            while not server.requests:
                time.sleep(0.01)
            _reached.put(1)

        threading.Thread(target=watch, daemon=True).start()
        model = Model("m", api="openai-completions", provider="test", base_url=f"{server.url}/v1")
        return Place(stream_fn=stream_response, model=model, api_key="k", max_retries=0)

    return place


HELLO = sse({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]})

PLACES: dict[str, Callable[[], Place]] = {
    "a tool": lambda: Place(stop=stuck_worker),
    "the clean-up after Ctrl-C, in emit": lambda: Place(stops_at=["message_update", "turn_end"]),
    "a stalled stream": lambda: Place(stream_fn=_stalled),
    "a stream function": lambda: Place(stream_fn=stand_here),
    "a stalled server": in_server(HELLO, Stall()),
    "a server that does not answer": in_server(HELLO, hold=Gate()),
    "before_tool_call": lambda: Place(before_tool_call=at_the_second_call),
    "after_tool_call": lambda: Place(after_tool_call=at_the_second_call),
    "prepare_arguments": lambda: Place(prepare_arguments=stand_here),
    "recover_from_error": lambda: Place(failure("busy", "So f"), recover_from_error=stand_here),
    "the second request": lambda: Place(
        failure("busy"), stand_here, recover_from_error=_returns(AgentLoopTurnUpdate())
    ),
    **{
        name: in_hook(name)
        for name in (
            "prepare_next_turn",
            "should_stop_after_turn",
            "transform_context",
            "convert_to_llm",
            "get_api_key",
            "get_steering_messages",
        )
    },
    "get_follow_up_messages": in_hook("get_follow_up_messages", reply("Done.")),
    **{
        f"emit of {kind}": at_event(kind)
        for kind in (
            "agent_start",
            "turn_start",
            "message_start",
            "message_update",
            "message_end",
            "request_retry",
            "tool_execution_start",
            "tool_execution_update",
            "tool_execution_end",
            "turn_end",
            "agent_end",
        )
    },
}

WITH_WORKERS: dict[str, Callable[[], Place]] = {
    "a tool, with a long grace": lambda: Place(stop=stuck_worker, abort_grace=30.0),
    "an abort that waits for a tool": lambda: Place(abort_first=True, stop=stuck_worker, abort_grace=30.0),
    "the clean-up after Ctrl-C": lambda: Place(stop=lambda *args: stuck_worker(times=2), abort_grace=0.9),
}


def run_at(place: Place, mode: str) -> dict[str, Any]:
    """Run once, with a Ctrl-C at the place, and once more without."""
    tools = (
        AgentTool("quick", "Quick", "Runs", {"type": "object"}, quick),
        AgentTool(
            "stop",
            "Stop",
            "May not come back",
            {"type": "object"},
            place.config.pop("stop", quick),
            place.config.pop("prepare_arguments", None),
        ),
    )
    log: list[Any] = []
    added: list[Any] = []
    controller = AbortController()

    def emit(event: Any) -> None:
        log.append(event)
        if place.abort_first and event.type == "tool_execution_update":
            controller.abort("enough")
        if event.type in place.stops_at:
            place.stops_at.remove(event.type)
            stand_here()

    config = AgentLoopConfig(tool_execution=mode, **place.config)
    run = new_run(AgentContext(tools=tools), config, emit, controller.signal, place.stream_fn, added)
    del _pressed[:]
    raised: BaseException | None = None
    try:
        drive(run, [UserMessage("hi")])
    except BaseException as error:
        raised = error
    seconds = time.monotonic() - _pressed[-1] if _pressed else -1.0
    return {
        "raised": type(raised).__name__,
        "pressed": len(_pressed),
        "seconds": seconds,
        "problems": problems_of(log, added),
        "twice": len(log) - len({id(event) for event in log}),
        "reason": log[-1].reason if log[-1].type == "agent_end" else None,
        "stop_reasons": [message.stop_reason for message in added if isinstance(message, AssistantMessage)],
        "results": [message.content[0].text for message in added if message.role == "toolResult"],
        "next": next_run(mode),
    }


def next_run(mode: str) -> list[str]:
    """Run again in the same process, undisturbed."""
    tool = AgentTool("quick", "Quick", "Runs", {"type": "object"}, quick)
    log: list[Any] = []
    config = AgentLoopConfig(model=scripted_model(), tool_execution=mode)
    model = scripted(reply(call("quick"), call("quick")), reply("Done."))
    added = drive(new_run(AgentContext(tools=[tool]), config, log.append, None, model), [UserMessage("hi")])
    return [*[message.role for message in added], *problems_of(log, added)]


def main(mode: str) -> None:
    threading.Thread(target=_press_when_reached, daemon=True).start()
    places = {**PLACES, **WITH_WORKERS} if mode == "parallel" else PLACES
    for name, make in places.items():
        print(json.dumps({"place": name, **run_at(make(), mode)}), flush=True)
    sys.exit(7)


if __name__ == "__main__":
    main(sys.argv[1])
