"""Every error needs only a message, is also the matching builtin, carries its facts, and can be pickled and copied."""

import copy
import pickle
from typing import Any

import pytest

from agentcore import errors

ALL = [getattr(errors, name) for name in errors.__all__ if name != "error_class_for_kind"]
PROVIDER_ERRORS = [cls for cls in ALL if issubclass(cls, errors.ProviderError)]
FACTS = {
    "provider": "openai",
    "model": "gpt",
    "status": 429,
    "code": "c",
    "type": "t",
    "request_id": "r",
    "retry_after": 1.5,
}
DUPLICATES = [copy.copy, copy.deepcopy, *(lambda error, n=n: pickle.loads(pickle.dumps(error, n)) for n in range(6))]


def facts_of(error: BaseException) -> tuple[Any, ...]:
    return type(error), error.args, str(error), vars(error)


@pytest.mark.parametrize("duplicate", DUPLICATES)
@pytest.mark.parametrize("cls", ALL)
def test_an_error_with_a_message_is_the_same_after_a_copy(cls: Any, duplicate: Any) -> None:
    error = cls("what happened")
    error.note = "added later"
    loaded = duplicate(error)

    assert facts_of(loaded) == facts_of(error)
    assert str(loaded) == "what happened"


@pytest.mark.parametrize("cls", ALL)
def test_an_error_needs_no_message_either(cls: Any) -> None:
    assert facts_of(pickle.loads(pickle.dumps(cls()))) == facts_of(cls())


@pytest.mark.parametrize("cls", PROVIDER_ERRORS)
def test_a_provider_error_carries_its_facts(cls: Any) -> None:
    bare, full = cls("m"), cls("m", **FACTS)

    assert vars(bare) == dict.fromkeys(FACTS)
    assert vars(full) == FACTS
    for duplicate in DUPLICATES:
        assert facts_of(duplicate(full)) == facts_of(full)


def test_a_corrupt_session_error_carries_its_place() -> None:
    error = errors.SessionCorruptError("m", path="/a", line=3)

    assert (error.path, error.line) == ("/a", 3)
    assert facts_of(pickle.loads(pickle.dumps(error))) == facts_of(error)
    assert (errors.SessionCorruptError().path, errors.SessionCorruptError().line) == (None, None)


def test_a_request_to_abort_carries_its_reason_and_no_broad_except_swallows_it() -> None:
    assert errors.AbortRequested().reason == "aborted"
    assert errors.AbortRequested({"why": 1}).reason == {"why": 1}
    assert not issubclass(errors.AbortRequested, Exception)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.MisuseError, RuntimeError),
        (errors.AgentBusyError, RuntimeError),
        (errors.PendingCallsError, RuntimeError),
        (errors.StreamStateError, RuntimeError),
        (errors.NothingToContinueError, ValueError),
        (errors.ToolNotFoundError, LookupError),
        (errors.ToolArgumentsError, ValueError),
        (errors.ToolTimeoutError, TimeoutError),
        (errors.InvalidRequestError, ValueError),
        (errors.ContextOverflowError, ValueError),
        (errors.ProviderConnectionError, ConnectionError),
        (errors.ProviderTimeoutError, TimeoutError),
    ],
)
def test_an_error_is_caught_as_the_matching_builtin_and_as_ours(cls: Any, builtin: Any) -> None:
    for caught in (builtin, errors.AgentCoreError):
        with pytest.raises(caught, match="boom"):
            raise cls("boom")


def test_every_error_but_the_request_to_abort_is_one_of_ours() -> None:
    assert [cls for cls in ALL if not issubclass(cls, errors.AgentCoreError)] == [errors.AbortRequested]


def test_an_unknown_kind_is_a_provider_error() -> None:
    assert errors.error_class_for_kind("surprise") is errors.ProviderError
    assert errors.error_class_for_kind("") is errors.ProviderError
    assert errors.error_class_for_kind("quota") is errors.QuotaError
    assert errors.error_class_for_kind("aborted") is errors.AbortedError
