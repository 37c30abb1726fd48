"""A conversation that is too long is recognised in every provider's words, and a rate limit is not taken for one."""

import pytest

from agentcore import AssistantMessage, Usage
from agentcore.messages import ErrorInfo
from agentcore.providers._overflow import is_context_overflow, is_overflow_text

OVERFLOW = [
    "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens (129000 in the messages, 1000 in the completion).",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
    "The input token count (1250074) exceeds the maximum number of tokens allowed (1048576).",
    "The input token count exceeds the maximum number of tokens allowed 1048576.",
    "Input is too long for requested model.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 200000 tokens. However, you requested about 2500021 tokens (2500021 of text input).",
    "Prompt contains 150000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
    "the request exceeds the available context size, try increasing it",
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Input length (5000) exceeds model's maximum context length (4096).",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
    "`inputs` must have less than 1024 tokens. Given: 1500",
    "prompt too long; exceeded max context length by 100 tokens",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
    "prompt token count of 150000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit",
    "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
    "Range of input length should be [1, 30720]",
    "The prompt is too long: 40000, model maximum context length: 32767",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    "Total tokens of image and text exceed max message tokens",
    "Prompt exceeds max length",
    "Request exceeds the maximum size",
    "context_length_exceeded",
]

OTHER = [
    "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced.",
    "Too many tokens, please wait before trying again.",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute; reduce the prompt length",
    "You exceeded your current quota, please check your plan and billing details.",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 200 instead.",
    "messages.1.content: field required",
    "The image is too large",
    "Overloaded",
    "",
]


@pytest.mark.parametrize("text", OVERFLOW)
def test_overflow_is_recognised_in_each_providers_words(text: str) -> None:
    assert is_overflow_text(text)
    error = ErrorInfo("invalid_request", f"HTTP 400 invalid_request_error: {text}", status=400)
    assert is_context_overflow(AssistantMessage((), stop_reason="error", error=error))


@pytest.mark.parametrize("text", OTHER)
def test_other_errors_are_no_overflow(text: str) -> None:
    assert not is_overflow_text(text)
    error = ErrorInfo("invalid_request", text, status=400)
    assert not is_context_overflow(AssistantMessage((), stop_reason="error", error=error))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorInfo("context_overflow", "x"), True),
        (ErrorInfo("invalid_request", "x", status=413), True),
        (ErrorInfo("invalid_request", "x", code="context_length_exceeded"), True),
        (ErrorInfo("overloaded", "x", status=500, type="exceed_context_size_error"), True),
        (ErrorInfo("stream_function", "my own server: prompt is too long"), True),
        (ErrorInfo("rate_limit", "prompt is too long", status=429), False),
        (ErrorInfo("quota", "prompt is too long"), False),
        (ErrorInfo("authentication", "prompt is too long"), False),
        (ErrorInfo("connection", "no connection"), False),
        (None, False),
    ],
)
def test_a_failed_message_is_judged_by_its_kind_status_words_and_text(error: ErrorInfo | None, expected: bool) -> None:
    assert is_context_overflow(AssistantMessage((), stop_reason="error", error=error)) is expected
    assert not is_context_overflow(AssistantMessage((), stop_reason="aborted", error=error))


def test_a_stop_reason_can_tell_an_overflow() -> None:
    message = AssistantMessage((), stop_reason="error", raw_stop_reason="model_context_window_exceeded")

    assert is_context_overflow(message)


@pytest.mark.parametrize(
    ("stop_reason", "usage", "window", "expected"),
    [
        ("stop", Usage(input=900, cache_read=100, output=5), 1000, False),
        ("stop", Usage(input=900, cache_read=90, cache_write=20, output=5), 1000, True),
        ("stop", Usage(input=2000, output=5), None, False),
        ("stop", None, 1000, False),
        ("length", Usage(input=995, output=0), 1000, True),
        ("length", Usage(input=995, output=5), 1000, False),
        ("length", Usage(input=500, output=0), 1000, False),
    ],
)
def test_an_overflow_that_nobody_told_shows_in_the_usage(
    stop_reason: str, usage: Usage | None, window: int | None, expected: bool
) -> None:
    assert is_context_overflow(AssistantMessage((), stop_reason=stop_reason, usage=usage), window) is expected


@pytest.mark.parametrize("text", ["exceeds " * 20_000, "context " * 20_000, "input token count" * 5_000, "`" * 50_000])
def test_no_text_is_expensive(text: str) -> None:
    assert not is_overflow_text(text)
