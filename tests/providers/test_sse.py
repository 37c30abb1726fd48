"""Server-sent events come out the same however the bytes were cut, and as the standard says."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentcore.providers._sse import SseDecoder, SseEvent, read_events


def reference(stream: bytes) -> list[SseEvent]:
    """Read a whole stream the slow way, one step of the standard's algorithm after another.

    The standard drops an event that has no blank line after it; this keeps it, as the decoder promises.
    """
    text = stream.decode("utf-8", "replace")
    if text.startswith("\ufeff"):
        text = text[1:]
    lines, line, position = [], "", 0
    while position < len(text):
        if text[position] in "\r\n":
            lines.append(line)
            line = ""
            if text[position : position + 2] == "\r\n":
                position += 1
        else:
            line += text[position]
        position += 1
    if line:
        lines.append(line)

    events = []
    data_buffer, event_type = "", ""
    for line in [*lines, ""]:
        if line == "":
            if data_buffer != "":
                events.append((event_type or "message", data_buffer.removesuffix("\n")))
            data_buffer, event_type = "", ""
        elif line.startswith(":"):
            continue
        else:
            field, value = line, ""
            if ":" in line:
                field, value = line[: line.index(":")], line[line.index(":") + 1 :]
                if value.startswith(" "):
                    value = value[1:]
            if field == "event":
                event_type = value
            elif field == "data":
                data_buffer += value + "\n"
    return events


def decoded(pieces: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def cut(stream: bytes, positions: list[int]) -> list[bytes]:
    return [stream[start:end] for start, end in pairwise([0, *sorted(positions), len(stream)])]


LINE_ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])
VALUES = st.sampled_from(
    ["", " ", "x", '{"a": 1}', "naïve ✅ 你好 🎙️", "a\u2028b\u2029c\x85d\x0be", "a:b", " y", "\x00", "\ufeff"]
)
LINES = st.one_of(
    st.just(""),
    st.just(""),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["data", "data", "data", "event", "id", "retry", "", "dat", "data ", "other", "\ufeffdata"]),
        st.sampled_from(["", ":", ": ", ":  "]),
        VALUES,
    ),
)
STREAMS = st.builds(
    lambda mark, lines: (mark + "".join(line + end for line, end in lines)).encode(),
    st.sampled_from(["", "", "\ufeff"]),
    st.lists(st.tuples(LINES, LINE_ENDS), max_size=30),
)
ANY_BYTES = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.sampled_from(
            [b"data:", b"data: ", b"event: ", b"\n", b"\n\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\xf0\x9f", b":"]
        ),
    ),
    max_size=40,
).map(b"".join)


@given(st.one_of(STREAMS, ANY_BYTES), st.data())
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", None)
@example(b"\xef\xbb\xbfdata: a\n\n", None)
@example(b"data: a\n\n\ndata: b\n\n\n\n", None)
def test_any_stream_cut_anywhere_gives_the_events_of_the_standard(stream: bytes, draw: st.DataObject | None) -> None:
    expected = reference(stream)

    assert decoded([stream]) == expected
    assert decoded([stream[i : i + 1] for i in range(len(stream))]) == expected
    if draw is not None:
        positions = draw.draw(st.lists(st.integers(0, len(stream)), max_size=10), label="cuts")
        assert decoded(cut(stream, positions)) == expected


def test_text_that_is_not_ascii_arrives_intact_when_cut_inside_its_characters() -> None:
    text = "✅ naïve 你好 🎙️ 漢字"
    stream = f"data: {json.dumps({'text': text}, ensure_ascii=False)}\n\n".encode()

    for size in range(1, 8):
        events = decoded([stream[i : i + size] for i in range(0, len(stream), size)])
        assert [json.loads(data)["text"] for _, data in events] == [text]


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    assert decoded([b"data: a\xff\xc3\n\n"]) == [("message", "a\ufffd\ufffd")]


def test_lines_do_not_end_at_other_characters_that_python_calls_line_ends() -> None:
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"

    assert decoded([f"data: {odd}\n\n".encode()]) == [("message", odd)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_line_end_closes_lines_and_events(end: str) -> None:
    stream = f"event: a{end}data: 1{end}{end}data: 2{end}data: 3{end}{end}".encode()

    assert decoded([stream]) == [("a", "1"), ("message", "2\n3")]


def test_carriage_return_and_line_feed_in_two_reads_are_one_line_end() -> None:
    decoder = SseDecoder()

    assert decoder.feed(b"data: 1\r") == []
    assert decoder.feed(b"\ndata: 2\r\n\r") == [("message", "1\n2")]
    assert decoder.feed(b"\n") == []
    assert decoder.close() == []


def test_an_event_is_given_with_the_byte_that_completes_it() -> None:
    decoder = SseDecoder()

    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\n") == [("message", "1")]
    assert decoder.feed(b"data: 2\n\ndata: 3") == [("message", "2")]
    assert decoder.feed(b"\n\n") == [("message", "3")]
    assert decoder.feed(b"data: 4\n") == []
    assert decoder.feed(b"\ndata: 5") == [("message", "4")]


def test_an_event_whose_name_is_empty_has_none() -> None:
    assert list(read_events([b"event: \ndata: 1\n\nevent:\ndata: 2\n\n"])) == [("message", "1"), ("message", "2")]


def test_pings_comments_and_foreign_fields_change_nothing() -> None:
    stream = (
        b"\xef\xbb\xbf: OPENROUTER PROCESSING\n\n:\n\n: \n\nid: 7\nretry: 10\nretry: soon\ndata:1\n\n"
        b"event: ping\n\nnonsense\n\nevent: done\ndata: [DONE]\n\nevent: lost\nid\n\ndata: 2\n\n"
    )

    assert decoded([stream]) == [("message", "1"), ("done", "[DONE]"), ("message", "2")]


def test_the_field_error_of_older_local_servers_is_an_event_of_that_name() -> None:
    body = b'data: a\n\nerror: {"code":500}\n\nid: 1\nerror:x\n\ndata: [DONE]\n\n'

    assert list(read_events([body])) == [
        ("message", "a"),
        ("error", '{"code":500}'),
        ("error", "x"),
        ("message", "[DONE]"),
    ]


def test_the_bare_json_of_an_error_is_an_event_of_that_name() -> None:
    body = b'data: a\n\n{"error":{"message":"stopped"}}\n\n{"other": 1}\n\ndata: [DONE]\n\n'

    assert list(read_events([body])) == [
        ("message", "a"),
        ("error", '{"error":{"message":"stopped"}}'),
        ("message", "[DONE]"),
    ]


def test_only_one_space_after_the_colon_is_left_out() -> None:
    assert decoded([b"data:  x\ndata: \ndata:\ndata\n\n"]) == [("message", " x\n\n\n")]


def test_data_that_is_empty_is_an_event_and_a_missing_one_is_none() -> None:
    assert decoded([b"data:\n\nevent: a\n\ndata\n\n"]) == [("message", ""), ("message", "")]


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    assert decoded(["\ufeffdata: 1\n\n\ufeffdata: 2\n\n".encode()]) == [("message", "1")]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_event_without_its_blank_line_is_given_at_the_end(end: bytes) -> None:
    decoder = SseDecoder()

    assert decoder.feed(b'data: 1\n\nevent: end\ndata: {"a":1}' + end) == [("message", "1")]
    assert decoder.close() == [("end", '{"a":1}')]
    assert decoder.close() == []


def test_a_cut_through_the_last_data_leaves_json_that_does_not_parse() -> None:
    [(_, data)] = decoded([b'data: {"choices": [{"finish_rea'])

    with pytest.raises(json.JSONDecodeError):
        json.loads(data)


def test_a_cut_before_the_data_gives_nothing() -> None:
    assert decoded([b"event: message_stop\n"]) == []
    assert decoded([b"event: message_stop\ndat"]) == []
    assert decoded([b"\xef\xbb"]) == []


def test_events_are_read_from_blocks_as_they_arrive() -> None:
    taken = []

    def blocks():
        for number in range(3):
            taken.append(number)
            yield b"data: %d\n\n" % number

    events = read_events(blocks())

    assert next(events) == ("message", "0")
    assert taken == [0]
    assert list(events) == [("message", "1"), ("message", "2")]


def test_a_long_event_in_small_pieces_costs_no_square() -> None:
    decoder = SseDecoder()
    piece = b"data: 16 bytes.\n"
    start = time.process_time()
    for _ in range(250_000):
        decoder.feed(piece)

    [(_, data)] = decoder.feed(b"\n")

    assert data.count("\n") == 249_999
    # About a fifth of a second; joining at each piece would copy 500 GB.
    assert time.process_time() - start < 10
