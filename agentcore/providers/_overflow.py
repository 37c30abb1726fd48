"""Recognise that a conversation was too long for its model, in every provider's words.

A rate limit speaks of too many tokens as well; it is none, since waiting helps there and shortening does not.
"""

from __future__ import annotations

import re

from agentcore.messages import AssistantMessage

__all__ = ["OVERFLOW_WORDS", "is_context_overflow", "is_overflow_text"]

OVERFLOW_WORDS = frozenset(
    (
        "context_length_exceeded",  # OpenAI, Azure and most imitators
        "exceed_context_size_error",  # llama.cpp
        "context_window_exceeded",
        "model_context_window_exceeded",  # Anthropic and z.ai, as a stop reason
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
        "request_too_large",  # Anthropic, with status 413
        "prompt_too_long",
        "input_too_long",
    )
)
"""Codes, types and stop reasons that mean overflow, in lower case."""

# Written out, not compiled: compiling takes 2 ms, and most programs never see such an error.
_OVERFLOW = r"""
      context[ _]length[ _]exceeded
    | maximum\ (?:context|prompt|model)\ length      # OpenAI, DeepSeek, OpenRouter, vLLM, Mistral; xAI; vLLM
    | (?:exceed|greater|larger|longer|too\ (?:long|large)|beyond|overflow)[^.\n]{0,80}\bcontext[ _-]?(?:window|length|size|limit)
    | \bcontext[ _-]?(?:window|length|size|limit)\b[^.\n]{0,60}(?:exceed|overflow|too\ small|reached)
    | (?:prompt|input|request|conversation|messages?)\ (?:is|are|was|were)\ too\ long   # Anthropic, Fireworks, Bedrock
    | prompt\ too\ long                               # Ollama
    | prompt\ exceeds?\ (?:the\ )?max(?:imum)?\ length   # z.ai
    | prompt\ is\ longer\ than | longer\ than\ the\ maximum\ model\ length
    | input\ token\ count\b.{0,80}\bexceeds           # Google
    | (?:prompt\ )?token\ count\ of\ \d+\ exceeds     # GitHub Copilot
    | input\ length\ and\ `?max_tokens`?\ exceed      # Anthropic
    | exceeded\ model\ token\ limit                   # Moonshot
    | reduce\ (?:the\ )?(?:length\ of\ (?:the\ |your\ )?(?:messages|prompt|input|either)|your\ prompt)
    | range\ of\ input\ length\ should\ be            # Qwen
    | input\ tokens?\ exceeded|number\ of\ input\ tokens\ exceeds   # Amazon
    | `inputs`\ (?:tokens\ \+|must\ have\ less\ than) # text-generation-inference, Together
    | total\ number\ of\ tokens\ in\ the\ prompt\ cannot\ exceed    # Cohere
    | exceed\ max\ message\ tokens                    # Volcengine
    | (?:exceeds|larger\ than|over)\ (?:the\ )?maximum\ allowed\ (?:input|content|prompt)\ (?:length|size|tokens)
    | request\ exceeds\ the\ maximum\ size            # Anthropic
    """

_RATE = r"""
      rate[ _-]?limit | throttl | too\ many\ requests | quota
    | (?:tokens?|requests?)[ _]per[ _-]?(?:min|hour|day|sec) | \b[RT]P[MD]\b
    | please\ (?:wait|retry\ (?:in|after)|try\ again\ (?:in|later))
    """


def is_overflow_text(text: str) -> bool:
    """Return whether an error's text says that the input was too long, and does not speak of a rate."""
    flags = re.IGNORECASE | re.VERBOSE
    return re.search(_OVERFLOW, text, flags) is not None and re.search(_RATE, text, flags) is None


def is_context_overflow(message: AssistantMessage, context_window: int | None = None) -> bool:
    """Return whether a response failed, or was cut, because the conversation exceeds the model's context window.

    With `context_window` (tokens), an answer counts too whose provider dropped or ignored what was too long without
    saying so: more input than fits, or no output at all because the input filled the window.
    """
    if message.stop_reason == "aborted":
        return False
    if (message.raw_stop_reason or "").lower() in OVERFLOW_WORDS:
        return True
    if message.stop_reason == "error":
        error = message.error
        if error is None:
            return False
        if error.kind in ("context_overflow", "invalid_request", "stream_function", "protocol", "overloaded"):
            words = {(error.code or "").lower(), (error.type or "").lower()}
            return (
                error.kind == "context_overflow"
                or error.status == 413
                or not words.isdisjoint(OVERFLOW_WORDS)
                or is_overflow_text(error.message)
            )
        return False
    if context_window is None or message.usage is None:
        return False
    taken = message.usage.input + message.usage.cache_read + message.usage.cache_write
    return taken > context_window or (
        message.stop_reason == "length" and message.usage.output == 0 and taken >= 0.99 * context_window
    )
