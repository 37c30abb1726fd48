"""What the package promises by name: exactly these exports, documented, and errors that behave as their tree says."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import types

import pytest

import agentcore
from agentcore import errors

# name: (its parent in the tree, the builtin it also is)
ERRORS: dict[str, tuple[str | None, type[BaseException]]] = {
    "AgentCoreError": (None, Exception),
    "MisuseError": ("AgentCoreError", RuntimeError),
    "AgentBusyError": ("MisuseError", RuntimeError),
    "NothingToContinueError": ("MisuseError", ValueError),
    "PendingCallsError": ("MisuseError", RuntimeError),
    "StreamStateError": ("MisuseError", RuntimeError),
    "ToolError": ("AgentCoreError", Exception),
    "ToolNotFoundError": ("ToolError", LookupError),
    "ToolArgumentsError": ("ToolError", ValueError),
    "ToolTimeoutError": ("ToolError", TimeoutError),
    "ToolAbandonedError": ("ToolError", Exception),
    "ProviderError": ("AgentCoreError", Exception),
    "AuthenticationError": ("ProviderError", Exception),
    "RateLimitError": ("ProviderError", Exception),
    "QuotaError": ("ProviderError", Exception),
    "OverloadedError": ("ProviderError", Exception),
    "InvalidRequestError": ("ProviderError", ValueError),
    "ContextOverflowError": ("InvalidRequestError", ValueError),
    "ContentFilterError": ("ProviderError", Exception),
    "ProviderConnectionError": ("ProviderError", ConnectionError),
    "ProviderTimeoutError": ("ProviderError", TimeoutError),
    "StreamProtocolError": ("ProviderError", Exception),
    "StreamFunctionError": ("ProviderError", Exception),
    "AbortedError": ("AgentCoreError", Exception),
    "SessionError": ("AgentCoreError", Exception),
    "SessionCorruptError": ("SessionError", Exception),
    "SessionLockedError": ("SessionError", Exception),
    "AbortRequested": (None, BaseException),
}

PROVIDER_FACTS = {
    "provider": "openai",
    "model": "some-model",
    "status": 429,
    "code": "slow_down",
    "type": "requests",
    "request_id": "request-1",
    "retry_after": 1.5,
}

PROMISED = set(
    """
    run_agent_loop run_agent_loop_continue agent_loop agent_loop_continue
    Agent allow deny replace
    AgentContext AgentLoopConfig StreamOptions ModelContext Limits
    AgentTool AgentToolResult ToolExecutionMode tool ToolCallContext OnUpdate
    EventStream AbortController AbortSignal
    Model ThinkingLevel
    stream_response convert_to_llm get_model register_api

    TextContent ThinkingContent ImageContent ToolCall ProviderContent
    Usage ErrorInfo AgentMessage PartialMessage
    UserMessage AssistantMessage ToolResultMessage BashExecutionMessage
    CompactionStartEvent CompactionEndEvent
    CompactionSummaryMessage BranchSummaryMessage CustomMessage

    AgentStartEvent AgentEndEvent TurnStartEvent TurnEndEvent
    MessageStartEvent MessageUpdateEvent MessageEndEvent
    ToolExecutionStartEvent ToolExecutionUpdateEvent ToolExecutionEndEvent
    RequestRetryEvent

    StartEvent TextStartEvent TextDeltaEvent TextEndEvent
    ThinkingStartEvent ThinkingDeltaEvent ThinkingEndEvent
    ToolCallStartEvent ToolCallDeltaEvent ToolCallEndEvent
    DoneEvent ErrorEvent

    BeforeToolCallContext BeforeToolCallResult AfterToolCallContext AfterToolCallResult
    PrepareNextTurnContext AgentLoopTurnUpdate RecoverContext
    """.split()
) | set(ERRORS)

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(agentcore.__path__, "agentcore.")
    if module.name.rpartition(".")[2] != "__main__"
)


def test_the_package_exports_exactly_what_is_promised() -> None:
    assert agentcore.__all__ == sorted(PROMISED)


def test_nothing_but_the_promised_names_and_the_submodules_is_visible() -> None:
    public = {name for name in dir(agentcore) if not name.startswith("_")}
    visible = {name for name in public if not isinstance(getattr(agentcore, name), types.ModuleType)}

    assert visible == PROMISED


@pytest.mark.parametrize("name", MODULES)
def test_all_names_only_what_exists_and_every_public_class_and_function_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])

    assert [missing for missing in exported if not hasattr(module, missing)] == []
    own = [getattr(module, public) for public in exported]
    assert undocumented(own) == []


def test_every_promised_class_and_function_has_a_docstring() -> None:
    assert undocumented([getattr(agentcore, name, None) for name in sorted(PROMISED)]) == []


def undocumented(things: list[object]) -> list[str]:
    """Return the names of the classes and functions without a docstring of their own (an inherited one says nothing)."""
    return [
        thing.__qualname__
        for thing in things
        if (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__.startswith("agentcore")
        and not (thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__)
    ]


def test_the_docstring_check_can_fail() -> None:
    class Documented:
        """Says something."""

    class Inherits(Documented):
        pass

    def function() -> None:
        pass

    for thing in (Documented, Inherits, function):
        thing.__module__ = "agentcore.somewhere"

    assert [name.rpartition(".")[2] for name in undocumented([Documented, Inherits, function])] == [
        "Inherits",
        "function",
    ]


# --- errors ---


def test_the_error_tree_has_exactly_these_classes() -> None:
    defined = {
        name for name, thing in vars(errors).items() if inspect.isclass(thing) and issubclass(thing, BaseException)
    }

    assert defined == set(ERRORS)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_has_its_place_in_the_tree_and_is_the_matching_builtin(name: str) -> None:
    parent, builtin = ERRORS[name]
    error_class = getattr(errors, name)

    assert issubclass(error_class, builtin)
    if parent is not None:
        assert getattr(errors, parent) in error_class.__bases__
    assert issubclass(error_class, Exception) == (name != "AbortRequested")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_needs_only_a_message_and_survives_pickling_with_its_attributes(name: str, protocol: int) -> None:
    error = getattr(errors, name)("what happened")
    error.extra = ["an attribute"]

    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == "what happened"
        assert twin.args == error.args
        assert vars(twin) == vars(error)


@pytest.mark.parametrize(
    "name", sorted(name for name in ERRORS if issubclass(getattr(errors, name), errors.ProviderError))
)
def test_a_provider_error_keeps_its_facts_through_pickling(name: str) -> None:
    bare = getattr(errors, name)("what happened")
    error = getattr(errors, name)("what happened", **PROVIDER_FACTS)
    twin = pickle.loads(pickle.dumps(error))

    assert [getattr(bare, fact) for fact in PROVIDER_FACTS] == [None] * len(PROVIDER_FACTS)
    assert {fact: getattr(twin, fact) for fact in PROVIDER_FACTS} == PROVIDER_FACTS
    assert str(twin) == "what happened"


def test_a_corrupt_session_error_says_where_after_pickling() -> None:
    twin = pickle.loads(pickle.dumps(errors.SessionCorruptError("unreadable", path="talk.jsonl", line=3)))

    assert (str(twin), twin.path, twin.line) == ("unreadable", "talk.jsonl", 3)


def test_the_request_to_abort_keeps_its_reason_after_pickling() -> None:
    assert pickle.loads(pickle.dumps(errors.AbortRequested("enough"))).reason == "enough"


KINDS = {
    "authentication": "AuthenticationError",
    "rate_limit": "RateLimitError",
    "quota": "QuotaError",
    "overloaded": "OverloadedError",
    "invalid_request": "InvalidRequestError",
    "context_overflow": "ContextOverflowError",
    "content_filter": "ContentFilterError",
    "connection": "ProviderConnectionError",
    "timeout": "ProviderTimeoutError",
    "protocol": "StreamProtocolError",
    "stream_function": "StreamFunctionError",
    "aborted": "AbortedError",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_failure_has_a_class_of_its_own(kind: str) -> None:
    assert errors.error_class_for_kind(kind) is getattr(errors, KINDS[kind])


def test_every_provider_error_class_belongs_to_a_kind() -> None:
    leaves = {name for name in ERRORS if issubclass(getattr(errors, name), errors.ProviderError)} - {"ProviderError"}

    assert leaves | {"AbortedError"} == set(KINDS.values())
