"""Decide whether a failed request is sent again, and after how long."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from agentcore.messages import ErrorInfo

__all__ = ["asked_delay", "backoff", "is_retryable_status"]

FIRST_DELAY = 0.5
"""Seconds before the first retry when the provider names none; doubled for each further one."""

LONGEST_DELAY = 8.0
"""Seconds that the doubling ends at."""

_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)
_RETRIED = (408, 409, 429)


def is_retryable_status(error: ErrorInfo) -> bool:
    """Return whether the status of a failed response allows another try, whatever its text.

    One status needs more than its number: 429 is also how an exhausted account is told, which no waiting refills
    unless the provider says when.
    """
    status = error.status or 0
    if status == 429 and error.kind == "quota":
        return error.retry_after is not None
    return status in _RETRIED or 500 <= status <= 599


def backoff(attempt: int) -> float:
    """Return the seconds to wait before a retry, counted from 1: doubling, and different for each client."""
    longest: float = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt - 1, 30))
    return longest * random.uniform(0.5, 1.0)


def asked_delay(headers: Mapping[str, str], body: Any = None) -> float | None:
    """Return the seconds that a response asks to wait, or `None` if it asks for nothing sensible.

    `headers` have lower-case names. In order: `retry-after-ms`, `Retry-After` in seconds or as a date (by the server's
    own clock, if it tells), and Google's `retryDelay` in the body. Never negative.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000.0
    given = headers.get("retry-after", "")
    seconds = _number(given)
    if seconds is None:
        seconds = _seconds_until(given, headers.get("date", ""))
    if seconds is None:
        seconds = next(_retry_delays(body), None)
    return seconds


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    value = float(match[0]) if match else math.inf
    return value if math.isfinite(value) else None


def _seconds_until(date: str, now: str) -> float | None:
    then = _timestamp(date)
    if then is None:
        return None
    start = _timestamp(now)
    return max(0.0, then - (time.time() if start is None else start))


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (TypeError, ValueError, OverflowError):
        return None


def _retry_delays(body: Any) -> Iterator[float]:
    """Yield the `retryDelay` of a `google.rpc.RetryInfo` among the details of an error."""
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str):
            seconds = _number(delay.strip().removesuffix("s"))
            if seconds is not None:
                yield seconds
