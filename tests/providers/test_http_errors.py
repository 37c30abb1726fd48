"""What a provider says about a failure reaches the `ErrorInfo`, whatever shape it has, and its kind is told apart."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.messages import ErrorInfo
from agentcore.providers._failures import Redactor, error_from_payload, error_from_response
from agentcore.testing.sse_server import Reply, SseServer, Stall, json_reply, sse
from tests.providers.http_support import fetch, opened


def test_the_explanation_of_a_failed_streaming_request_is_kept() -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "tools.0: no such field"}}
    with SseServer(json_reply(body, 400, {"request-id": "req_011"})) as server:
        outcome = fetch(server.url)

    assert outcome.error == ErrorInfo(
        "invalid_request",
        "HTTP 400 invalid_request_error: tools.0: no such field (request id req_011)",
        status=400,
        type="invalid_request_error",
        request_id="req_011",
    )
    assert str(outcome.failure) == outcome.error.message


def of(status: int, body: Any, headers: dict[str, str] | None = None) -> ErrorInfo:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_from_response(status, headers or {}, raw, Redactor())


def facts(info: ErrorInfo) -> tuple[str | None, str | None, str]:
    return info.code, info.type, info.message


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        # OpenAI and its imitators
        (
            400,
            {"error": {"message": "Bad.", "type": "invalid_request_error", "param": None, "code": "invalid_image_url"}},
            ("invalid_image_url", "invalid_request_error", "HTTP 400 invalid_request_error: Bad."),
        ),
        (404, {"error": {"message": "No.", "code": "DeploymentNotFound"}}, ("DeploymentNotFound", None, "HTTP 404 DeploymentNotFound: No.")),
        (401, {"error": {"message": "Who?", "code": 401}}, ("401", None, "HTTP 401: Who?")),
        (400, {"error": "model not found"}, (None, None, "HTTP 400: model not found")),
        (400, {"code": "bad", "error": "Wrong key"}, ("bad", None, "HTTP 400 bad: Wrong key")),
        (401, {"detail": "Invalid API Key"}, (None, None, "HTTP 401: Invalid API Key")),
        (
            422,
            {"detail": [{"loc": ["body", "messages", 0], "msg": "field required", "type": "missing"}, "and more"]},
            (None, None, "HTTP 422: body.messages.0: field required; and more"),
        ),
        (
            400,
            {"object": "error", "message": "No logprobs", "type": "invalid_request_invalid_args", "code": "3051"},
            ("3051", "invalid_request_invalid_args", "HTTP 400 invalid_request_invalid_args: No logprobs"),
        ),
        (422, {"object": "error", "message": {"detail": [{"loc": ["a"], "msg": "b"}]}}, (None, None, "HTTP 422: a: b")),
        (
            400,
            {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": '{"error":{"message":"Too odd"}}'}}},
            ("400", None, "HTTP 400: Provider returned error: Too odd"),
        ),
        (400, {"error": {"message": "", "metadata": {"raw": "plain upstream text"}}}, (None, None, "HTTP 400: plain upstream text")),
        # Google, and its list form
        (
            400,
            {"error": {"code": 400, "message": "Nope", "status": "INVALID_ARGUMENT", "details": []}},
            ("400", "INVALID_ARGUMENT", "HTTP 400 INVALID_ARGUMENT: Nope"),
        ),
        (404, [{"error": {"code": 404, "message": "Nope", "status": "NOT_FOUND"}}], ("404", "NOT_FOUND", "HTTP 404 NOT_FOUND: Nope")),
        # no JSON, or none that helps
        (502, b"upstream connect error\n", (None, None, "HTTP 502: upstream connect error")),
        (
            502,
            b"<!DOCTYPE html><html><head><title>502 Bad &amp; Gateway</title><style>a{}</style></head><body><h1>Sorry</h1>\n<p>come back</p>",
            (None, None, "HTTP 502: 502 Bad & Gateway Sorry come back"),
        ),
        (503, b"", (None, None, "HTTP 503: Service Unavailable, without an explanation")),
        (529, b"", (None, None, "HTTP 529: no explanation")),
        (500, {}, (None, None, "HTTP 500: Internal Server Error, without an explanation")),
        (500, [], (None, None, "HTTP 500: Internal Server Error, without an explanation")),
        (500, b'"just text"', (None, None, "HTTP 500: just text")),
        (500, b"null", (None, None, "HTTP 500: null")),
        (500, b"\xff\xfe", (None, None, "HTTP 500: \ufffd\ufffd")),
        (400, b"[" * 100_000, (None, None, "HTTP 400: " + "[" * 4000)),
    ],
)  # fmt: skip
def test_every_shape_of_an_error_body_is_read(status: int, body: Any, expected: tuple[Any, ...]) -> None:
    info = of(status, body)

    assert facts(info) == expected
    assert info.status == status


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        ("authentication", 401, {"error": {"message": "x"}}),
        ("authentication", 403, b"forbidden"),
        ("authentication", 400, {"error": {"message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}),
        ("authentication", 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***"}),
        ("rate_limit", 429, {"error": {"message": "Rate limit reached for tokens per min (TPM): Limit 30000"}}),
        ("rate_limit", 429, {"error": {"message": "Too many tokens, please wait before trying again."}}),
        ("rate_limit", 429, {"error": {"message": "maximum context length of your tier, too many tokens"}}),
        ("rate_limit", 429, b""),
        ("quota", 402, {"error": {"message": "Insufficient Balance"}}),
        ("quota", 429, {"error": {"message": "x", "type": "insufficient_quota"}}),
        ("quota", 429, {"error": {"message": "You exceeded your current quota, please check your plan and billing details."}}),
        ("quota", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}}),
        ("overloaded", 503, b""),
        ("overloaded", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        ("overloaded", 500, {"error": {"message": "The server had an error", "type": "server_error"}}),
        ("overloaded", 502, b"<html>Bad gateway</html>"),
        ("timeout", 408, b""),
        ("timeout", 504, b""),
        ("invalid_request", 400, {"error": {"message": "x"}}),
        ("invalid_request", 404, {"error": {"message": "model: nope", "type": "not_found_error"}}),
        ("invalid_request", 422, {"detail": [{"loc": ["a"], "msg": "b"}]}),
        ("invalid_request", 400, {"error": {"message": "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"}}),
        ("invalid_request", 500, {"error": {"code": 500, "message": "bad grammar", "type": "invalid_request_error"}}),
        ("context_overflow", 413, b""),
        ("context_overflow", 400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum", "type": "invalid_request_error"}}),
        ("context_overflow", 400, {"error": {"message": "x", "code": "context_length_exceeded"}}),
        ("context_overflow", 500, {"error": {"message": "x", "type": "exceed_context_size_error"}}),
        ("context_overflow", 413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
        ("content_filter", 400, {"error": {"message": "x", "code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
        ("content_filter", 403, {"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"], "flagged_input": "…"}}}),
        ("authentication", 403, {"error": {"code": 403, "message": "no", "metadata": {"provider_name": "P", "flagged_input": ""}}}),
    ],
)  # fmt: skip
def test_kinds_are_told_apart(kind: str, status: int, body: Any) -> None:
    assert of(status, body).kind == kind


def test_amazons_word_for_an_error_is_read_from_its_header() -> None:
    headers = {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/coral/"}

    assert error_from_response(503, headers, b"{}", Redactor()).kind == "rate_limit"
    assert error_from_response(503, {}, b"{}", Redactor()).kind == "overloaded"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": {"message": "overloaded"}}, ErrorInfo("overloaded", "overloaded")),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"},
            ErrorInfo("overloaded", "overloaded_error: Overloaded (request id req_1)", type="overloaded_error", request_id="req_1"),
        ),
        (
            {"error": {"code": "tool_use_failed", "message": "no", "type": "invalid_request_error", "status_code": 400}},
            ErrorInfo("invalid_request", "invalid_request_error: no", code="tool_use_failed", type="invalid_request_error"),
        ),
        ({"code": 429, "message": "slow"}, ErrorInfo("rate_limit", "slow", code="429")),
        ({"code": 502, "message": "upstream"}, ErrorInfo("overloaded", "upstream", code="502")),
        (
            {"type": "error", "code": "server_error", "message": "oops", "param": None},
            ErrorInfo("overloaded", "server_error: oops", code="server_error"),
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "long"}}},
            ErrorInfo("context_overflow", "context_length_exceeded: long", code="context_length_exceeded"),
        ),
        (
            {"error": {"code": 503, "message": "later", "status": "UNAVAILABLE", "details": [{"retryDelay": "3s"}]}},
            ErrorInfo("overloaded", "UNAVAILABLE: later", code="503", type="UNAVAILABLE", retry_after=3.0),
        ),
        ({"error": "just text"}, ErrorInfo("protocol", "just text")),
        ("just text", ErrorInfo("protocol", "just text")),
        ({"error": {}}, ErrorInfo("protocol", "the provider reported an error without saying which")),
    ],
)  # fmt: skip
def test_an_error_inside_a_response_is_read_too(payload: Any, expected: ErrorInfo) -> None:
    assert error_from_payload(payload) == expected


def test_an_error_inside_a_response_has_the_request_id_of_its_headers() -> None:
    with SseServer(Reply(sse({"x": 1}), headers={"x-request-id": "r-9"})) as server, opened(server.url) as response:
        assert response.error({"error": {"message": "m"}}).request_id == "r-9"


@pytest.mark.parametrize(
    "name", ["x-request-id", "request-id", "x-goog-request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"]
)
def test_the_request_id_is_found_in_every_providers_header(name: str) -> None:
    assert of(400, {"error": {"message": "m"}}, {name: "abc"}).request_id == "abc"


def test_the_request_id_is_found_in_the_body() -> None:
    assert of(400, {"error": {"message": "m"}, "request_id": "abc"}).request_id == "abc"
    assert of(400, {"error": {"message": "m"}, "request_id": None}).request_id is None


def test_an_error_body_that_stalls_or_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcore.providers import _http

    monkeypatch.setattr(_http, "_ERROR_SECONDS", 0.1)
    monkeypatch.setattr(_http, "_ERROR_BYTES", 1000)
    replies = [
        Reply([b"half of an expl", Stall()], status=400),
        Reply([Stall()], status=400, framing="length", headers={"Content-Length": "5"}),
        Reply([b"x" * 600, b"y" * 600, Stall()], status=400),
    ]
    with SseServer(replies) as server:
        messages = [fetch(server.url).error.message for _ in range(3)]

        assert messages[0] == "HTTP 400: half of an expl"
        assert messages[1] == "HTTP 400: Bad Request, without an explanation"
        assert messages[2] == "HTTP 400: " + "x" * 600 + "y" * 600
        for connection in server.connections:
            assert connection.closed.wait(2)


def test_an_error_body_in_pieces_and_compressed_is_read_whole() -> None:
    import gzip

    packed = gzip.compress(json.dumps({"error": {"message": "whole"}}).encode())
    pieces = [packed[i : i + 5] for i in range(0, len(packed), 5)]
    with SseServer(Reply(pieces, status=400, headers={"Content-Encoding": "gzip"})) as server:
        assert fetch(server.url).error.message == "HTTP 400: whole"


KEYS = (
    "error message code type status detail details metadata raw reason loc msg response request_id innererror "
    "status_code retryDelay flagged_input"
).split(" ")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.integers(100, 999), st.one_of(st.binary(), JSON.map(lambda value: json.dumps(value).encode())))
def test_no_error_body_raises(status: int, body: bytes) -> None:
    info = error_from_response(status, {}, body, Redactor())

    assert info.status == status
    assert info.message.startswith(f"HTTP {status}")
    json.dumps(info.to_dict())


@given(JSON)
def test_no_error_payload_raises(payload: Any) -> None:
    info = error_from_payload(payload)

    assert info.message
    json.dumps(info.to_dict())
