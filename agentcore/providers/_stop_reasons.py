"""What a provider's word for the end of a response means, in one table for all APIs."""

from __future__ import annotations

from agentcore.messages import ErrorInfo
from agentcore.providers._overflow import OVERFLOW_WORDS

__all__ = ["stop_reason"]

_STOP_REASONS = {
    **dict.fromkeys(("stop", "end", "eos", "end_turn", "stop_sequence", "pause_turn", "completed"), "stop"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "tool_use"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), "length"),
}

_ERROR_KINDS = {
    **dict.fromkeys(
        (
            "refusal",
            "content_filter",
            "content_filtered",
            "guardrail_intervened",
            "sensitive",
            "safety",
            "image_safety",
            "recitation",
            "image_recitation",
            "blocklist",
            "prohibited_content",
            "image_prohibited_content",
            "spii",
            "language",
            "model_armor",
        ),
        "content_filter",
    ),
    **dict.fromkeys(OVERFLOW_WORDS, "context_overflow"),
    **dict.fromkeys(
        ("network_error", "insufficient_system_resource", "server_error", "engine_error", "overloaded"), "overloaded"
    ),
}


def stop_reason(raw: str) -> tuple[str, ErrorInfo | None]:
    """Return the stop reason that a provider's own word stands for, and the error if the reason is `error`.

    Upper and lower case are the same. A word that is not known is an error that names it: nobody knows whether such a
    response is whole.
    """
    word = raw.lower()
    reason = _STOP_REASONS.get(word)
    if reason is not None:
        return reason, None
    kind = _ERROR_KINDS.get(word, "protocol")
    if kind == "content_filter":
        text = f"the provider's filter or the model itself ended the response: {raw}"
    elif kind == "context_overflow":
        text = f"the conversation is longer than the model's context window: {raw}"
    elif kind == "overloaded":
        text = f"the provider could not finish the response: {raw}"
    else:
        text = f"the response ended for an unknown reason: {raw}"
    return "error", ErrorInfo(kind, text)
