"""Recorded responses of real providers come out as the vendors' own clients read them, whatever way they are cut.

The recordings lie beside the project, not in it: without them these tests are skipped.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    DoneEvent,
    ErrorEvent,
    Model,
    ModelContext,
    StreamOptions,
    UserMessage,
    stream_response,
)
from agentcore.content import ContentBlock, ProviderContent, TextContent, ThinkingContent, ToolCall
from agentcore.providers import _MODULES

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
SPLITS = ["whole", "1", "7", "utf8", "crlf", "events", "rand:1"]

BASES = {"anthropic-messages": "", "google-generative-ai": "/v1beta"}
"""What follows the address of a case in `base_url`; `/v1` for all others."""

NO_ORDER = {"openai-completions"}
"""APIs without an order of blocks on the wire: ours is the order of arrival, the recorded one made up."""

BARE_SIGNATURES = {"openai-completions", "anthropic-messages"}
"""APIs whose signatures are kept as they are; others need more beside them to be sent back, and keep both in one."""

EXPLAINED = {
    "goog-google-sse-signature-on-empty-text-image-in": (
        {"blocks"},
        "the empty part that carries the signature has to go back as a part of its own, so it is a block of its own",
    ),
    "goog-google-vertex-sse-finish-reason-missing-no-role": (
        {"error"},
        "nothing in the stream says that it is whole, so it counts as cut off",
    ),
    "resp-openai-json-status-queued": ({"error"}, "a response that waits in a queue is no answer yet"),
    "resp-openai-sse-item-custom-tool-call": (
        {"tool_calls.count", "blocks"},
        "a call of a custom tool has text instead of arguments; no tool of ours can be one, so it is the provider's",
    ),
}
"""The cases that come out differently, the fields that do, and why."""

_BLOCK_TYPES: dict[type[ContentBlock], str] = {TextContent: "text", ToolCall: "tool_call", ProviderContent: "server"}

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"the recorded responses are not there: {CORPUS}")


@pytest.fixture(scope="module")
def check() -> Iterator[ModuleType]:
    """Give the recordings' own module for serving and comparing."""
    sys.path.insert(0, str(CORPUS))
    try:
        yield importlib.import_module("check")
    finally:
        sys.path.remove(str(CORPUS))
        for name in ("check", "replay"):
            sys.modules.pop(name, None)


def answer(case: dict[str, Any], base_url: str) -> AssistantMessage:
    """Return our message for one recorded response."""
    api = case["api"]
    # The id that a model goes by at its provider may be missing; any will do.
    model = Model(
        case["model"] or "model",
        api=api,
        provider=case["provider"],
        base_url=base_url + BASES.get(api, "/v1"),
        input=("text", "image"),
    )
    options = StreamOptions(api_key="sk-recorded", max_retries=0)
    *_, last = stream_response(model, ModelContext(messages=[UserMessage("hi")]), options)
    assert isinstance(last, (DoneEvent, ErrorEvent))
    return last.message


def adapter(case: dict[str, Any], base_url: str) -> dict[str, Any]:
    """Return our message in the recordings' terms."""
    message = answer(case, base_url)
    usage, error = message.usage, message.error
    if error is not None and error.kind == "content_filter" and message.raw_stop_reason:
        error = None  # to the recordings a filtered answer is an answer
    result = {
        "text": message.text,
        "thinking": message.thinking,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls],
        "stop_reason": message.raw_stop_reason,
        "usage": usage.to_dict() if usage is not None else None,
        "error": error.to_dict() if error is not None else None,
    }
    if case["api"] in BARE_SIGNATURES:
        result["signatures"] = [text for block in message.content if (text := signature(block))]
    # A refusal is text to us, and its blocks cannot be told apart.
    if case["api"] not in NO_ORDER and "refusal" not in case["features"]:
        result["blocks"] = [{"type": block_type(block)} for block in message.content]
    return result


def signature(block: ContentBlock) -> str | None:
    if isinstance(block, ToolCall):
        return block.thought_signature
    return block.signature if isinstance(block, (TextContent, ThinkingContent)) else None


def block_type(block: ContentBlock) -> str:
    if isinstance(block, ThinkingContent):
        return "redacted_thinking" if block.redacted else "thinking"
    return _BLOCK_TYPES[type(block)]


def built_apis() -> list[str]:
    return [api for api, module in _MODULES.items() if importlib.util.find_spec(f"agentcore.providers.{module}")]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("api", built_apis())
def test_recorded_responses_come_out_right(check: ModuleType, api: str, split: str) -> None:
    cases = check.load_cases(api=api)
    assert cases

    results = check.run(adapter, cases, split, "exclusive", catch=())

    unexplained = {name: wrong for name, wrong in results.items() if wrong and name not in EXPLAINED}
    assert unexplained == {}
    for name, (fields, _) in EXPLAINED.items():
        if name in results:
            assert {field for field, *_ in results[name]} == fields, name


@pytest.mark.parametrize("api", built_apis())
def test_a_recorded_stream_that_is_cut_is_never_a_success_unless_its_end_had_come(check: ModuleType, api: str) -> None:
    """Cut in steps through one stream of each kind of content, cleanly and not."""
    replay = importlib.import_module("replay")
    streams = [case for case in check.load_cases(api=api) if case["stream_format"] == "sse" and case["status"] == 200]
    chosen = [case for case in streams if len(case["response_body"]) < 6_000 and not case["expected"]["error"]][:3]
    assert chosen
    with replay.ReplayServer(chosen) as server:
        for case in chosen:
            body = case["response_body"].encode()
            whole = answer(case, server.url(case["name"]))
            for cut in range(0, len(body), 97):
                for way in ("eof", "cut"):
                    message = answer(case, server.url(case["name"], f"{way}:{cut}"))
                    assert whole.text.startswith(message.text)
                    if message.stop_reason != "error":
                        # What ends a response had come; only what follows it was cut.
                        assert (message.text, message.tool_calls) == (whole.text, whole.tool_calls)
