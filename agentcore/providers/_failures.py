"""Turn what a provider says about a failure, in whatever shape, into an `ErrorInfo`.

`error_from_response` reads a response with an error status, `error_from_payload` an error that came inside a response
that had begun well. Neither ever shows a secret: texts pass through a `Redactor`.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

import attrs

from agentcore.messages import ErrorInfo
from agentcore.providers._overflow import OVERFLOW_WORDS, is_overflow_text
from agentcore.providers._retry import asked_delay

__all__ = ["Redactor", "error_from_payload", "error_from_response"]

_LONGEST_TEXT = 4000
"""Characters of an error's text that are kept: enough for every real one, and no web page."""

_REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "x-goog-request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "x-generation-id",
    "cf-ray",
)

_KIND_OF_WORD = {
    # What a provider writes into `code`, `type`, `status` or a reason, in lower case.
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "responsibleaipolicyviolation": "content_filter",
    "moderation_blocked": "content_filter",
    "insufficient_quota": "quota",
    "quota_exceeded": "quota",
    "billing_error": "quota",
    "billing_not_active": "quota",
    "billing_hard_limit_reached": "quota",
    "insufficient_balance": "quota",
    "insufficient_credits": "quota",
    "insufficient_funds": "quota",
    "payment_required": "quota",
    "authentication_error": "authentication",
    "permission_error": "authentication",
    "invalid_api_key": "authentication",
    "api_key_invalid": "authentication",
    "missing_api_key": "authentication",
    "unauthorized": "authentication",
    "unauthenticated": "authentication",
    "permission_denied": "authentication",
    "forbidden": "authentication",
    "account_deactivated": "authentication",
    "rate_limit": "rate_limit",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "rate_limited": "rate_limit",
    "ratelimitreached": "rate_limit",
    "too_many_requests": "rate_limit",
    "resource_exhausted": "rate_limit",
    "throttlingexception": "rate_limit",
    "timeout": "timeout",
    "timeout_error": "timeout",
    "request_timeout": "timeout",
    "deadline_exceeded": "timeout",
    "overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "server_overloaded": "overloaded",
    "server_is_overloaded": "overloaded",
    "engine_overloaded": "overloaded",
    "unavailable": "overloaded",
    "service_unavailable": "overloaded",
    "slow_down": "overloaded",
    "server_error": "overloaded",
    "internal": "overloaded",
    "internal_error": "overloaded",
    "internal_server_error": "overloaded",
    "api_error": "overloaded",
    "network_error": "overloaded",
    "invalid_request_error": "invalid_request",
    "invalid_request": "invalid_request",
    "invalid_argument": "invalid_request",
    "bad_request": "invalid_request",
    "not_found": "invalid_request",
    "not_found_error": "invalid_request",
    "model_not_found": "invalid_request",
    "failed_precondition": "invalid_request",
    **dict.fromkeys(OVERFLOW_WORDS, "context_overflow"),
}

_QUOTA_TEXT = (
    r"exceeded your current quota|insufficient (?:quota|balance|credits?|funds)|(?:out of|not enough|no) credits"
    r"|credit balance is too low|plan and billing|billing (?:hard )?limit|quota (?:has been )?(?:exceeded|exhausted)"
    r"|monthly (?:spending|usage|spend) limit|reached your specified api usage limit|payment required"
)
_KEY_TEXT = r"(?:incorrect|invalid|missing|no|unknown) api[ -_]?key|api[ -_]?key (?:is )?(?:not valid|invalid|missing)"
_OVERLOADED_TEXT = r"\boverloaded\b|at capacity|temporarily unavailable|service unavailable"


# --- secrets --------------------------------------------------------------------------------------------------------

_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie|password|credential|signature", re.IGNORECASE)

_SHORTEST_SECRET = 8
"""Characters. A shorter value (`none`, `ollama`) is a placeholder, and would strike out ordinary words."""


class Redactor:
    """Strikes the secrets of one request out of texts: what its headers, and the user and query of its URL, hold."""

    __slots__ = ("_pattern", "_secrets")

    def __init__(
        self, url: str = "", headers: Mapping[str, str | bytes] | None = None, more: Iterable[str] = ()
    ) -> None:
        secrets = {*more, *_secrets_of_url(url), *_secrets_of_headers(headers or {})}
        found = sorted((secret for secret in secrets if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._secrets = found
        self._pattern = re.compile("|".join(map(re.escape, found))) if found else None

    def knowing(self, url: str, headers: Mapping[str, str | bytes]) -> Redactor:
        """Return one that strikes out what these hold, too."""
        return Redactor(url, headers, self._secrets)

    def __call__(self, text: str) -> str:
        return self._pattern.sub("***", text) if self._pattern else text

    def __repr__(self) -> str:
        return "<Redactor>"


def _secrets_of_headers(headers: Mapping[str, str | bytes]) -> Iterator[str]:
    for name, value in headers.items():
        if not _SECRET_NAMES.search(name):
            continue
        # Without the white space around it, which is not sent, and so is not in what a server says again.
        text = (value if isinstance(value, str) else value.decode("latin-1")).strip()
        scheme, _, credentials = text.rpartition(" ")
        yield from (text, credentials)
        if scheme.lower() == "basic":
            try:
                pair = base64.b64decode(credentials).decode()
            except ValueError:
                continue
            yield from (pair, pair.partition(":")[2])


def _secrets_of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return
    if user or password:
        yield from (password, unquote(password), f"{user}:{password}")
        pair = f"{unquote(user)}:{unquote(password)}".encode()
        yield base64.b64encode(pair).decode()
        if not password:
            yield from (user, unquote(user))  # a token in the place of the user's name
    for field in parts.query.split("&"):
        name, _, value = field.partition("=")
        if _SECRET_NAMES.search(name):
            yield from (value, unquote_plus(value))


# --- what the provider says -----------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class _Said:
    """What an error body says, taken out of its shape."""

    message: str = ""
    code: str | None = None
    type: str | None = None
    status: int | None = None
    request_id: str | None = None
    words: set[str] = attrs.field(factory=set)


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, redact: Redactor) -> ErrorInfo:
    """Return the error of a response with this status; `headers` have lower-case names."""
    text = body.decode("utf-8", "replace").strip()
    payload = _json_or_none(text)
    said = _read(payload) if isinstance(payload, (dict, list)) else _Said(_plain(payload or text))
    if not said.message:
        said.message = _reason(status)
    said.words.add(headers.get("x-amzn-errortype", "").partition(":")[0].lower())
    return _info(said, status, asked_delay(headers, payload), headers, redact)


def error_from_payload(
    payload: Any, redact: Redactor | None = None, headers: Mapping[str, str] | None = None
) -> ErrorInfo:
    """Return the error that `payload`, an error object or what holds one, tells inside a response.

    `headers` of the response, with lower-case names, may give the request id.
    """
    said = _read(payload) if isinstance(payload, (dict, list)) else _Said(_plain(payload))
    if not said.message:
        said.message = "the provider reported an error without saying which"
    return _info(said, None, asked_delay({}, payload), headers or {}, redact or Redactor())


def _info(
    said: _Said, status: int | None, delay: float | None, headers: Mapping[str, str], redact: Redactor
) -> ErrorInfo:
    said.words.update(word.lower() for word in (said.code, said.type) if word)
    number = said.status if status is None else status
    request_id = next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), said.request_id)
    label = said.type or (said.code if said.code and not said.code.isdecimal() else None)
    head = " ".join(filter(None, (f"HTTP {status}" if status else None, label)))
    message = f"{head}: {said.message}" if head else said.message
    if request_id:
        message += f" (request id {request_id})"
    return ErrorInfo(
        kind=_kind(number, said, delay),
        message=redact(message),
        status=status,
        code=redact(said.code) if said.code else None,
        type=redact(said.type) if said.type else None,
        request_id=redact(request_id) if request_id else None,
        retry_after=delay,
    )


def _kind(status: int | None, said: _Said, delay: float | None) -> str:
    """Return the kind of an error; what is special comes before what is general."""
    text = said.message
    named = {_KIND_OF_WORD[word] for word in said.words if word in _KIND_OF_WORD}
    quota_text = delay is None and status in (None, 400, 403, 429) and re.search(_QUOTA_TEXT, text, re.IGNORECASE)
    key_text = status in (None, 400) and re.search(_KEY_TEXT, text, re.IGNORECASE)
    for kind, meant in (
        ("content_filter", "content_filter" in named),
        ("quota", status == 402 or "quota" in named or quota_text),
        ("rate_limit", status == 429),
        ("context_overflow", status == 413 or "context_overflow" in named or is_overflow_text(text)),
        ("authentication", status in (401, 403) or "authentication" in named or key_text),
        ("invalid_request", "invalid_request" in named),
        ("timeout", status in (408, 504)),
    ):
        if meant:
            return kind
    if status is not None and status < 500:
        return "invalid_request"
    for kind in ("rate_limit", "timeout", "overloaded"):
        if kind in named:
            return kind
    return "overloaded" if status is not None or re.search(_OVERLOADED_TEXT, text, re.IGNORECASE) else "protocol"


def _reason(status: int) -> str:
    try:
        return f"{HTTPStatus(status).phrase}, without an explanation"
    except ValueError:
        return "no explanation"


# --- shapes ---------------------------------------------------------------------------------------------------------


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(payload: Any) -> _Said:
    """Read an error body, whichever of the known shapes it has."""
    if isinstance(payload, list):
        payload = next((item for item in payload if isinstance(item, dict)), {})
    outer: dict[str, Any] = payload
    inner = outer.get("error")
    if inner is None and isinstance(outer.get("response"), dict):
        inner = outer["response"].get("error")  # a failed response of the Responses API
    error: dict[str, Any] = inner if isinstance(inner, dict) else outer
    said = _Said()
    said.message = _plain(inner) if isinstance(inner, str) else _message(error)
    said.code = _word(error.get("code"))
    said.type = _word(error.get("type")) if error is not outer or outer.get("type") != "error" else None
    status = error.get("status")
    said.type = said.type or (_word(status) if isinstance(status, str) else None)
    said.status = next(filter(None, (_status(error.get(name)) for name in ("status_code", "status", "code"))), None)
    said.request_id = _word(outer.get("request_id")) or _word(error.get("request_id"))
    said.words.update(_further_words(error))
    raw = _upstream(error)
    if raw and raw not in said.message:
        said.message = f"{said.message}: {raw}" if said.message else raw
    return said


def _status(value: Any) -> int | None:
    """Return an HTTP error status that stands in a body, as a number or as digits."""
    return int(value) if re.fullmatch(r"[45]\d\d", str(value)) else None


def _message(error: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "error_description", "msg", "title", "reason", "error_message"):
        value = error.get(name)
        if isinstance(value, dict):
            value = value.get("message") or value.get("detail") or value
        if isinstance(value, list):
            return "; ".join(_validation_problem(item) for item in value)[:_LONGEST_TEXT]
        if value not in (None, ""):
            return _plain(value)
    return ""


def _validation_problem(item: Any) -> str:
    """Return one problem of a list as FastAPI gives it: where, and what."""
    if not isinstance(item, dict):
        return _plain(item)
    place = item.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    what = _plain(item.get("msg") or item.get("message") or item)
    return f"{where}: {what}" if where else what


def _further_words(error: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else in an error names its kind: Google's reasons, Azure's inner code, OpenRouter's moderation."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str):
            yield detail["reason"].lower()
    if isinstance(error.get("status"), str):
        yield error["status"].lower()
    inner = error.get("innererror")
    if isinstance(inner, dict) and isinstance(inner.get("code"), str):
        yield inner["code"].lower()
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("flagged_input"):
        yield "content_filter"


def _upstream(error: Mapping[str, Any]) -> str:
    """Return the text of the provider behind a router, which says more than the router's own."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not raw:
        return ""
    payload = _json_or_none(raw) if isinstance(raw, str) else raw
    return (_read(payload).message if isinstance(payload, dict) else "") or _plain(raw)


def _word(value: Any) -> str | None:
    if isinstance(value, str):
        return value[:200] or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


_INVISIBLE = re.compile(r"<(script|style|head)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]{0,1000}>")


def _plain(value: Any) -> str:
    """Return a text fit for one line of an error: no web page, no endless one."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = text[: 5 * _LONGEST_TEXT]
    if re.match(r"\s*<(?:!doctype|html|head|body)\b", text, re.IGNORECASE):
        title = _TITLE.search(text)
        body = html.unescape(_TAG.sub(" ", _INVISIBLE.sub(" ", text)))
        text = " ".join(f"{html.unescape(title[1]) if title else ''} {body}".split())[:500]
    return text.strip()[:_LONGEST_TEXT]
