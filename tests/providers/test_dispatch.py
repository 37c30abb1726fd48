"""`stream_response` finds the adapter of a model's API; what cannot be asked is an answer that says so."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    DoneEvent,
    ErrorEvent,
    Model,
    ModelContext,
    StreamOptions,
    providers,
    run_agent_loop,
    stream_response,
)
from agentcore.providers import register_api
from agentcore.testing.sse_server import Reply, sse
from tests.providers.chat_support import DONE, ask, finish, message_of, served, text


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_registered", {})


def test_the_default_api_is_chat_completions() -> None:
    with served(Reply([sse(text("hello"), finish(), DONE)])) as (_, model):
        message = message_of(ask(model))

    assert (message.api, message.text) == ("openai-completions", "hello")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Model("m", api="smoke-signals", provider="p", base_url="http://127.0.0.1:1"), "smoke-signals"),
        (Model("m", provider="p"), "base_url"),
        (Model("m", provider="p", api="anthropic-messages"), "base_url"),
    ],
)
def test_what_cannot_be_asked_is_an_error_response_that_says_why(model: Model, said: str) -> None:
    (event,) = list(stream_response(model, ModelContext(), StreamOptions()))

    assert isinstance(event, ErrorEvent)
    message = event.message
    assert message.error is not None
    assert (message.stop_reason, message.error.kind) == ("error", "invalid_request")
    assert said in message.error.message
    assert (message.api, message.provider, message.model) == (model.api, "p", "m")


def test_an_unknown_api_names_the_known_ones() -> None:
    register_api("pigeons", answering("coo"))

    message = message_of(ask(Model("m", api="smoke-signals")))

    assert "openai-completions" in (message.error_message or "")
    assert "pigeons" in (message.error_message or "")


def test_a_run_with_a_model_without_an_address_ends_in_an_error_message() -> None:
    messages = run_agent_loop("hi", AgentContext(), AgentLoopConfig(model=Model("m")), lambda event: None)

    assert "base_url" in messages[-1].error_message  # type: ignore[union-attr]


def answering(text: str) -> Any:
    def fn(model: Model, context: ModelContext, options: StreamOptions) -> Iterator[Any]:
        yield DoneEvent(AssistantMessage(text, api=model.api, model=model.id))

    return fn


def test_an_api_of_ones_own_needs_no_address() -> None:
    register_api("pigeons", answering("coo"))

    assert message_of(ask(Model("m", api="pigeons"))).text == "coo"


def test_an_api_of_ones_own_may_take_the_place_of_a_built_in_one() -> None:
    register_api("openai-completions", answering("mine"))

    assert message_of(ask(Model("m", base_url="http://127.0.0.1:1/v1"))).text == "mine"


@pytest.mark.parametrize(("name", "fn", "error"), [("", print, ValueError), ("x", "y", TypeError)])
def test_registering_what_cannot_work_is_refused(name: str, fn: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        register_api(name, fn)


LAZY = """
import sys
import agentcore.providers
from agentcore import Model, ModelContext, StreamOptions, stream_response

loaded = lambda: sorted(name for name in sys.modules if name.startswith("agentcore.providers."))
print(loaded(), "requests" in sys.modules)
list(stream_response(Model("m"), ModelContext(), StreamOptions()))
print(loaded(), "requests" in sys.modules)
list(stream_response(Model("m", base_url="nonsense"), ModelContext(), StreamOptions()))
print("agentcore.providers.openai_completions" in sys.modules, "requests" in sys.modules)
"""


def test_an_adapter_is_imported_with_its_first_request() -> None:
    outcome = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, timeout=60)

    assert outcome.stderr == ""
    assert outcome.stdout.splitlines() == ["[] False", "[] False", "True False"]
