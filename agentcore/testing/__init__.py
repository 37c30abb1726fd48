"""Helpers for the tests of programs that use the library.

A scripted model (`scripted`, with its replies and gates) takes the place of a stream function; `SseServer` and
`ProxyServer` are real servers on a loopback port, for what happens on the wire. The parts that a server's replies are
made of are in `agentcore.testing.sse_server`. `DemoServer` is a model of a few honest rules.
"""

from agentcore.testing.demo import DemoServer
from agentcore.testing.gate import Gate
from agentcore.testing.proxy_server import ProxyServer
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
    "ScriptedModel",
    "ScriptedReply",
    "SseServer",
    "call",
    "failure",
    "reply",
    "scripted",
    "scripted_model",
    "thinking",
]
