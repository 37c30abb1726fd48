"""What a response costs grows with its length and no faster: operations are counted, since times lie."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from agentcore.testing.sse_server import sse
from tests.providers.wire_support import WIRES, Wire, message_of


def operations(work: Callable[[], Any]) -> int:
    """Return how many functions, of Python and of C, are called by a piece of work."""
    count = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    gc.disable()  # it would call finalizers of others
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def blocks_of(wire: Wire, number: int, size: int | None) -> list[bytes]:
    """Return a body whose call has arguments in so many deltas: one event a block, or blocks of one size."""
    pieces = ['{"text": "', *("x" * (number - 2)), '"}']
    events = [sse(payload) for payload in wire.call(pieces)]
    if size is None:
        return events
    body = b"".join(events)
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("fewer", "size"), [(1_000, None), (400, 4096)], ids=["an event a block", "many events a block"]
)
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_ten_times_the_deltas_cost_ten_times_the_operations(wire: Wire, fewer: int, size: int | None) -> None:
    counts = []
    for number in (fewer, 10 * fewer):
        blocks = blocks_of(wire, number, size)
        counts.append(operations(lambda blocks=blocks: wire.events(blocks)))  # type: ignore[misc]

    assert 9 < counts[1] / counts[0] < 10.5


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_a_single_event_in_tiny_blocks_costs_no_more_than_its_blocks(wire: Wire) -> None:
    counts = []
    for length in (500, 5_000):
        body = sse(*wire.call(['{"text": "' + "x" * length + '"}']))
        blocks = [body[at : at + 1] for at in range(len(body))]
        counts.append(operations(lambda blocks=blocks: wire.events(blocks)))  # type: ignore[misc]

    assert counts[1] / counts[0] < 10.5


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.api)
def test_who_looks_at_the_arguments_now_and_then_pays_for_each_look_alone(wire: Wire) -> None:
    """`partial` is a position: holding on to all of them copies nothing."""
    events = wire.events(blocks_of(wire, 1_000, None))

    assert message_of(events).stop_reason == "tool_use"
    partials = [event.partial for event in events if hasattr(event, "partial")]
    size = sum(sys.getsizeof(partial) for partial in partials)
    assert size / len(partials) < 200
