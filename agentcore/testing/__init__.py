"""Helpers for the tests of programs that use the library.

A scripted model (`scripted`, with its replies and gates) takes the place of a stream function; `SseServer` and
`ProxyServer` are real servers on a loopback port, for what happens on the wire. The parts that a server's replies are
made of are in `agentcore.testing.sse_server`. `DemoServer` is a model of a few honest rules. `Recorder` writes a real run
down, `replay` gives it again. `check_stream_function`, `check_events` and `assert_valid_transcript` check what every stream
function and every transcript must keep to.
"""

from agentcore.testing.conformance import assert_valid_transcript, check_events, check_stream_function
from agentcore.testing.demo import DemoServer
from agentcore.testing.gate import Gate
from agentcore.testing.proxy_server import ProxyServer
from agentcore.testing.recorder import Recorder, replay
from agentcore.testing.scripted import (
    ModelRequest,
    ScriptedModel,
    ScriptedReply,
    call,
    failure,
    reply,
    scripted,
    scripted_model,
    thinking,
)
from agentcore.testing.sse_server import SseServer

__all__ = [
    "DemoServer",
    "Gate",
    "ModelRequest",
    "ProxyServer",
    "Recorder",
    "ScriptedModel",
    "ScriptedReply",
    "SseServer",
    "assert_valid_transcript",
    "call",
    "check_events",
    "check_stream_function",
    "failure",
    "replay",
    "reply",
    "scripted",
    "scripted_model",
    "thinking",
]
