"""A model server for benchmarks: a process of its own that sends bytes rendered beforehand.

The model's id names the scenario, `KIND-N`: `text-N` answers with N deltas of text, `args-N` with one tool call whose
arguments come in N deltas (and text once its result is there), `turns-N` with one small tool call in each of N turns and
text in the next, `tools-N` with N calls at once, `paced-N` with N deltas of text 5 ms apart, each stamped with the time
it was sent. It speaks Chat Completions and Anthropic Messages, chunked, one event a chunk.
"""

from __future__ import annotations

import functools
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORD = "hello wor "
PACE_SECONDS = 0.005


def _openai(delta: dict[str, Any], finish: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _openai_call(index: int, number: int, name: str) -> bytes:
    function = {"name": name, "arguments": ""}
    call = {"index": index, "id": f"call_{number}_{index}", "type": "function", "function": function}
    return _openai({"tool_calls": [call]})


def _openai_arguments(index: int, part: str) -> bytes:
    return _openai({"tool_calls": [{"index": index, "function": {"arguments": part}}]})


def _openai_end(finish: str) -> list[bytes]:
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    return [
        _openai({}, finish),
        b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [], "usage": usage}).encode() + b"\n\n",
        b"data: [DONE]\n\n",
    ]


def _openai_events(calls: list[tuple[str, list[str]]], text: int, number: int) -> list[bytes]:
    events = [_openai({"role": "assistant", "content": ""})]
    events += [_openai({"content": WORD})] * text
    for index, (name, parts) in enumerate(calls):
        events.append(_openai_call(index, number, name))
        events += [_openai_arguments(index, part) for part in parts]
    return events + _openai_end("tool_calls" if calls else "stop")


def _anthropic(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def _anthropic_block(index: int, start: dict[str, Any], deltas: list[bytes]) -> list[bytes]:
    begin = _anthropic("content_block_start", index=index, content_block=start)
    return [begin, *deltas, _anthropic("content_block_stop", index=index)]


def _anthropic_events(calls: list[tuple[str, list[str]]], text: int, number: int) -> list[bytes]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "bench",
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    events = [_anthropic("message_start", message=message)]
    if text:
        delta = _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": WORD})
        events += _anthropic_block(0, {"type": "text", "text": ""}, [delta] * text)
    for index, (name, parts) in enumerate(calls, start=1 if text else 0):
        deltas = [
            _anthropic("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": part})
            for part in parts
        ]
        start = {"type": "tool_use", "id": f"call_{number}_{index}", "name": name, "input": {}}
        events += _anthropic_block(index, start, deltas)
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [
        *events,
        _anthropic("message_delta", delta=reason, usage={"output_tokens": 10}),
        _anthropic("message_stop"),
    ]


def _arguments(deltas: int) -> list[str]:
    return ['{"text":"', *[WORD] * (deltas - 2), '"}']


@functools.lru_cache(maxsize=64)
def events_for(api: str, kind: str, size: int, results: int) -> list[bytes]:
    """Return the events of a response, given how many tool results the request holds."""
    render = _anthropic_events if api == "anthropic" else _openai_events
    if kind in ("text", "paced", "context"):
        return render([], size, results)
    if results >= {"args": 1, "turns": size, "tools": size}[kind]:
        return render([], 3, results)
    if kind == "args":
        return render([("note", _arguments(size))], 0, results)
    if kind == "turns":
        return render([("note", ['{"text":', f'"{results}"}}'])], 0, results)
    return render([("pause", ["{}"])] * size, 0, results)


def _chunked(event: bytes) -> bytes:
    return f"{len(event):x}\r\n".encode() + event + b"\r\n"


@functools.lru_cache(maxsize=64)
def body_for(api: str, kind: str, size: int, results: int) -> bytes:
    """Return the chunked body of a response, whole."""
    return b"".join(_chunked(event) for event in events_for(api, kind, size, results)) + b"0\r\n\r\n"


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _requests(connection: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            received = connection.recv(1 << 16)
            if not received:
                return
            buffer += received
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])  # type: ignore[index]
        parts, have = [buffer], len(buffer)
        while have < length:
            received = connection.recv(1 << 20)
            if not received:
                return
            parts.append(received)
            have += len(received)
        whole = b"".join(parts)
        buffer = whole[length:]
        yield head, whole[:length]


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        try:
            for head, body in _requests(connection):
                _answer(connection, head, body)
        except OSError:
            return


def _answer(connection: socket.socket, head: bytes, body: bytes) -> None:
    api = "anthropic" if b"/v1/messages" in head.split(b"\r\n", 1)[0] else "openai"
    kind, size = re.search(rb'"model": ?"([a-z]+)-(\d+)"', body).groups()  # type: ignore[union-attr]
    results = body.count(b'"tool_result"') if api == "anthropic" else body.count(b'"tool_call_id"')
    if kind != b"paced":
        connection.sendall(_HEAD + body_for(api, kind.decode(), int(size), results))
        return
    connection.sendall(_HEAD)
    clock = threading.Event()
    for event in events_for(api, "paced", int(size), results):
        clock.wait(PACE_SECONDS)
        stamp = f"{time.monotonic():>10.7f}"
        connection.sendall(_chunked(event.replace(WORD.encode(), f"{stamp:<20}".encode())))
    connection.sendall(b"0\r\n\r\n")


def main() -> None:
    """Serve on a free loopback port, and print it, until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


class BenchmarkServer:
    """The server in a process of its own, for as long as the `with` block lasts; `url` has no path."""

    def __enter__(self) -> BenchmarkServer:
        command = [sys.executable, "-m", "benchmarks.server"]
        root = Path(__file__).resolve().parent.parent
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main()
