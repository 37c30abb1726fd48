"""One batch of tool calls: what is checked before a call runs, what a tool may do, and what becomes of it."""

import json
import logging
import threading
from typing import Any

import pytest

from agentcore.content import ImageContent, TextContent, ToolCall
from agentcore.errors import AbortRequested
from agentcore.events import (
    MessageEndEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from agentcore.messages import Usage
from agentcore.testing import call, reply
from agentcore.tools import AgentToolResult
from tests.loop.loop_support import Played, answer, returns, tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

MODES = pytest.mark.parametrize("mode", ["parallel", "sequential"])


def one_call(asked: Any, *tools: Any, **config: Any) -> Played:
    """Run one call and let the model finish."""
    return answer(reply(asked), "Done.", tools=tools, **config)


def result_of(played: Played) -> Any:
    (result,) = played.results
    return result


# --- preparing ------------------------------------------------------------------------------------------------------


@MODES
def test_an_invented_name_is_answered_with_the_names_there_are_and_the_run_goes_on(mode: str):
    played = one_call(
        call("serch_web", id="c1"), tool("search_web"), tool("read"), tool_execution=mode, before_tool_call=None
    )
    assert result_of(played).is_error
    assert result_of(played).text == "There is no tool `serch_web`. The tools are: `search_web`, `read`."
    assert played.reason == "completed"


def test_without_any_tool_the_answer_says_so():
    assert result_of(one_call(call("read"))).text == "There is no tool `read`. The tools are: none."


@pytest.mark.parametrize("name", ["Search_web", "search-web", "search_web "])
def test_a_name_is_not_matched_loosely(name: str):
    assert result_of(one_call(call(name), tool("search_web"))).is_error


def test_arguments_are_mended_by_the_tool_before_they_are_checked():
    given: list[Any] = []

    def mend(arguments: dict[str, Any]) -> dict[str, Any]:
        given.append(dict(arguments))
        arguments["n"] = arguments.pop("num")
        return arguments

    played = one_call(call("add", num="5"), tool("add", schema=NUMBER, prepare_arguments=mend))
    assert given == [{"num": "5"}]
    assert result_of(played).text == "ran 5"
    assert played.of(ToolExecutionStartEvent)[0].args == {"num": "5"}
    assert played.messages[1].tool_calls[0].arguments == {"num": "5"}


def test_a_mending_that_fails_is_the_answer_of_that_call(caplog: pytest.LogCaptureFixture):
    def mend(arguments: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("secret key")

    with caplog.at_level(logging.INFO):
        played = one_call(call("add", id="c1"), tool("add", prepare_arguments=mend))
    assert "preparing the call failed" in result_of(played).text
    assert [record.getMessage() for record in caplog.records] == ["preparing failed for tool call c1: KeyError"]


async def mends_later(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


def test_a_coroutine_function_that_mends_is_named():
    text = result_of(one_call(call("add"), tool("add", prepare_arguments=mends_later))).text
    assert "`prepare_arguments` is a coroutine function" in text


@pytest.mark.parametrize("mended", [None, "text", 7, ["n"]])
def test_a_mending_that_gives_no_object_is_answered_as_such(mended: Any):
    played = one_call(call("add"), tool("add", prepare_arguments=lambda arguments: mended))
    assert "must be a JSON object" in result_of(played).text


def test_arguments_that_do_not_fit_are_answered_with_every_problem_and_what_was_received():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "path": {"type": "string"}},
        "required": ["n", "path"],
    }
    text = result_of(one_call(call("add", n="five"), tool("add", schema=schema))).text
    assert "n: " in text
    assert "path" in text
    assert '{"n": "five"}' in text


def test_arguments_of_the_wrong_type_are_coerced_where_that_is_plain():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "f": {"type": "number"}, "flag": {"type": "boolean"}},
    }
    played = one_call(call("add", n="5", f=3, flag="true"), tool("add", schema=schema))
    assert result_of(played).text == "ran 5 3 True"


@pytest.mark.parametrize("raw", ['"ls"', '["ls"]', "7", "ls", '{"command": "ls"'])
def test_final_arguments_that_are_no_object_are_answered_with_what_was_wrong(raw: str):
    played = one_call(ToolCall("c1", "bash", {}, partial_json=raw), tool("bash"))
    result = result_of(played)
    assert result.is_error
    assert "must be a JSON object" in result.text
    assert raw in result.text
    assert played.of(ToolExecutionStartEvent)[0].args == {}
    assert played.reason == "completed"


def test_arguments_of_another_kind_from_a_stream_function_are_answered_too():
    played = one_call(ToolCall("c1", "bash", ["ls"]), tool("bash"))  # type: ignore[arg-type]
    assert "must be a JSON object" in result_of(played).text


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_a_tool_without_parameters_runs_with_an_empty_object(schema: dict[str, Any]):
    assert result_of(one_call(call("now"), tool("now", schema=schema))).text == "ran"


def nested(depth: int) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for _ in range(depth):
        arguments = {"n": [arguments]}
    return arguments


@MODES
@pytest.mark.parametrize("depth", [200, 20_000])
def test_arguments_nested_too_deeply_are_the_answer_of_that_call_only(mode: str, depth: int):
    deep = ToolCall("c1", "add", nested(depth), None)
    asked: list[str] = []

    def before(context: Any, signal: Any) -> None:
        asked.append(context.tool_call.id)

    played = answer(
        reply(deep, call("add", id="c2", n=2), deltas={0: ["{}"]}),
        "Done.",
        tools=[tool("add", schema=NUMBER)],
        tool_execution=mode,
        before_tool_call=before,
        after_tool_call=before,
    )
    assert [result.is_error for result in played.results] == [True, False]
    assert played.results[1].text == "ran 2"
    assert asked == ["c2", "c2"]
    shown = played.of(ToolExecutionStartEvent)[0].args
    assert shown["n"] is not deep.arguments["n"]
    assert shown["n"][0]["n"] is not deep.arguments["n"][0]["n"]
    if depth > 1000:
        assert "nested too deeply" in played.results[0].text


def test_arguments_that_cannot_be_copied_are_shared_rather_than_fatal():
    lock = threading.Lock()
    seen: list[Any] = []

    def execute(call_id: str, params: Any, *rest: Any) -> str:
        seen.append(params["lock"])
        return "ok"

    prepared = tool("lock", execute, prepare_arguments=lambda arguments: {"lock": lock})
    assert result_of(one_call(call("lock"), prepared)).text == "ok"
    assert seen == [lock]


def test_arguments_that_hold_themselves_do_not_hang_the_run():
    circular: dict[str, Any] = {}
    circular["self"] = [circular]
    played = answer(
        reply(ToolCall("c1", "add", circular), deltas={0: ["{}"]}), "Done.", tools=[tool("add", schema=NUMBER)]
    )
    assert result_of(played).is_error


# --- what runs is what was seen -------------------------------------------------------------------------------------


@MODES
def test_changing_arguments_in_place_changes_nothing_for_anybody_else(mode: str):
    seen: dict[str, Any] = {}

    def spoil(where: str, arguments: Any) -> None:
        seen[where] = json.loads(json.dumps(arguments))
        arguments["path"] = f"spoilt by {where}"
        arguments["list"].append(where)

    def before(context: Any, signal: Any) -> None:
        spoil("before", context.args)
        spoil("before's call", context.tool_call.arguments)
        spoil("before's message", context.assistant_message.tool_calls[0].arguments)

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        on_update("half")
        spoil("tool", params)
        return "ok"

    def after(context: Any, signal: Any) -> None:
        spoil("after", context.args)
        spoil("after's call", context.tool_call.arguments)
        spoil("after's message", context.assistant_message.tool_calls[0].arguments)

    def emit(event: Any) -> None:
        if isinstance(event, (ToolExecutionStartEvent, ToolExecutionUpdateEvent)):
            spoil(event.type, event.args)

    original = {"path": "a.txt", "list": [1]}
    played = answer(
        reply(ToolCall("c1", "write", json.loads(json.dumps(original)))),
        "Done.",
        tools=[tool("write", execute)],
        tool_execution=mode,
        before_tool_call=before,
        after_tool_call=after,
        emit=emit,
    )
    assert result_of(played).text == "ok"
    assert seen == dict.fromkeys(
        [
            "tool_execution_start",
            "before",
            "before's call",
            "before's message",
            "tool",
            "tool_execution_update",
            "after",
            "after's call",
            "after's message",
        ],
        original,
    )
    assert played.messages[1].tool_calls[0].arguments == original
    assert played.model.requests[1].messages[1].tool_calls[0].arguments == original


@MODES
def test_a_listener_that_changes_the_message_cannot_change_what_was_approved(mode: str):
    approved: list[Any] = []
    ran: list[Any] = []

    def emit(event: Any) -> None:
        if isinstance(event, MessageEndEvent) and event.message.role == "assistant":
            for asked in event.message.tool_calls:
                asked.arguments["path"] = "/etc/passwd"

    def before(context: Any, signal: Any) -> None:
        approved.append(dict(context.args))

    def execute(call_id: str, params: Any, *rest: Any) -> str:
        ran.append(params)
        return "ok"

    one_call(
        call("write", path="a.txt"), tool("write", execute), tool_execution=mode, before_tool_call=before, emit=emit
    )
    assert approved == ran == [{"path": "a.txt"}]


# --- executing ------------------------------------------------------------------------------------------------------


@MODES
def test_a_tool_gets_five_arguments_by_position(mode: str):
    given: list[Any] = []

    def execute(*arguments: Any) -> str:
        given.extend(arguments)
        arguments[3]("half")
        return "ok"

    played = one_call(call("f", id="c1", x=1), tool("f", execute, context={"db": 7}), tool_execution=mode)
    call_id, params, signal, on_update, context = given
    assert (call_id, params, context) == ("c1", {"x": 1}, {"db": 7})
    assert not signal.aborted
    assert callable(on_update)
    assert played.lines[6:9] == ["call c1 f {'x': 1}", "progress c1: half", "done c1: ok"]


@MODES
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (TextContent("text"),)),
        (TextContent("a block"), (TextContent("a block"),)),
        ([TextContent("a"), ImageContent("AAAA", "image/png")], (TextContent("a"), ImageContent("AAAA", "image/png"))),
        ((TextContent("a"),), (TextContent("a"),)),
        (AgentToolResult("a result"), (TextContent("a result"),)),
        (None, (TextContent("(no output)"),)),
        ("", (TextContent("(no output)"),)),
        ([], (TextContent("(no output)"),)),
        (AgentToolResult([]), (TextContent("(no output)"),)),
    ],
)
def test_what_a_tool_returns_is_made_a_result(mode: str, value: Any, content: Any):
    result = result_of(one_call(call("f"), tool("f", returns(value)), tool_execution=mode))
    assert (result.content, result.is_error) == (content, False)


@MODES
@pytest.mark.parametrize("value", [7, {"a": 1}, b"bytes", ["text"], object(), [1], iter(())])
def test_a_return_value_of_another_kind_is_an_error_that_says_so(mode: str, value: Any):
    result = result_of(one_call(call("f"), tool("f", returns(value)), tool_execution=mode))
    assert result.is_error
    assert f"a tool returned {type(value).__name__}" in result.text


async def runs_later(*args: Any) -> str:
    return "late"


@MODES
def test_a_coroutine_function_as_a_tool_is_an_error_that_says_so(mode: str):
    # The coroutine would warn that it was never awaited, and warnings are errors here.
    result = result_of(one_call(call("f"), tool("f", runs_later), tool_execution=mode))
    assert result.text == "`f` is a coroutine function; tools here are plain functions"


class NoMessage(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


@MODES
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("boom"), "boom"),
        (ValueError(), "ValueError"),
        (KeyError("name"), "KeyError: 'name'"),
        (SystemExit(3), "3"),
        (GeneratorExit(), "GeneratorExit"),
        (AbortRequested("not now"), "not now"),
        (RecursionError("too deep"), "too deep"),
        (NoMessage(), "NoMessage()"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_whatever_a_tool_raises_is_its_answer_and_the_run_goes_on(mode: str, error: BaseException, text: str):
    played = one_call(call("f"), tool("f", returns(error)), tool_execution=mode)
    assert (result_of(played).is_error, result_of(played).text) == (True, text)
    assert played.reason == "completed"


def test_a_keyboard_interrupt_that_a_tool_raises_on_a_worker_is_its_answer():
    played = one_call(call("f"), tool("f", returns(KeyboardInterrupt())))
    assert result_of(played).text == "KeyboardInterrupt"


@MODES
def test_an_error_result_of_a_tool_keeps_its_details(mode: str):
    value = AgentToolResult("exit 1", details={"code": 1}, usage=Usage(1, 2), is_error=True)
    result = result_of(one_call(call("f"), tool("f", returns(value)), tool_execution=mode))
    assert (result.is_error, result.text, result.details, result.usage) == (True, "exit 1", {"code": 1}, Usage(1, 2))


def test_the_parts_of_a_result_go_into_the_message():
    value = AgentToolResult("ok", details={"a": 1}, usage=Usage(3), added_tool_names=["more"])
    played = one_call(call("f", id="c1"), tool("f", returns(value)))
    result = result_of(played)
    assert (result.tool_call_id, result.tool_name) == ("c1", "f")
    assert (result.details, result.usage, result.added_tool_names) == ({"a": 1}, Usage(3), ("more",))
    (end,) = played.of(ToolExecutionEndEvent)
    assert end.result == value
    assert end.is_error is False


def test_a_failing_call_leaves_its_siblings_alone():
    played = answer(
        reply(call("good", id="c1"), call("bad", id="c2"), call("good", id="c3")),
        "Done.",
        tools=[tool("good"), tool("bad", returns(ValueError("boom")))],
    )
    assert [(result.tool_call_id, result.is_error) for result in played.results] == [
        ("c1", False),
        ("c2", True),
        ("c3", False),
    ]


@MODES
def test_calls_that_share_an_id_are_answered_one_by_one(mode: str):
    played = answer(
        reply(call("f", id="call_0", n=1), call("f", id="call_0", n=2), call("g", id="call_0", n=3)),
        "Done.",
        tools=[tool("f"), tool("g")],
        tool_execution=mode,
    )
    assert [(result.tool_call_id, result.text) for result in played.results] == [
        ("call_0", "ran 1"),
        ("call_0", "ran 2"),
        ("call_0", "ran 3"),
    ]
    assert [event.args for event in played.of(ToolExecutionStartEvent)] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert len(played.of(ToolExecutionEndEvent)) == 3
    assert len(played.turn_ends[0].tool_results) == 3


def test_equal_calls_are_two_calls():
    asked = ToolCall("same", "f", {"n": 1})
    played = answer(reply(asked, asked), "Done.", tools=[tool("f")])
    assert [result.text for result in played.results] == ["ran 1", "ran 1"]


# --- one after the other --------------------------------------------------------------------------------------------


def test_in_a_sequential_batch_each_call_goes_through_everything_before_the_next_begins():
    order: list[str] = []

    def note(what: str) -> Any:
        def hook(context: Any, signal: Any) -> None:
            order.append(f"{what} {context.tool_call.id}")

        return hook

    def execute(call_id: str, *rest: Any) -> str:
        order.append(f"run {call_id}")
        return "ok"

    played = answer(
        reply(call("f", id="c1"), call("f", id="c2")),
        "Done.",
        tools=[tool("f", execute)],
        tool_execution="sequential",
        before_tool_call=note("before"),
        after_tool_call=note("after"),
    )
    assert order == ["before c1", "run c1", "after c1", "before c2", "run c2", "after c2"]
    assert played.lines[6:14] == [
        row
        for name in ("c1", "c2")
        for row in (f"call {name} f {{}}", f"done {name}: ok", f"start result {name}: ok", f"end result {name}: ok")
    ]


def test_one_tool_that_asks_for_it_makes_the_whole_batch_sequential():
    files: list[str] = []

    def write(call_id: str, params: Any, *rest: Any) -> str:
        files.append(params["path"])
        return "written"

    def listing(*args: Any) -> str:
        return " ".join(files)

    played = answer(
        reply(call("write", path="a.txt"), call("list"), call("write", path="b.txt")),
        "Done.",
        tools=[tool("write", write), tool("list", listing, execution_mode="sequential")],
    )
    assert played.results[1].text == "a.txt"


def test_a_sequential_tool_that_is_not_called_changes_nothing():
    played = answer(
        reply(call("f", id="c1"), call("f", id="c2")),
        "Done.",
        tools=[tool("f"), tool("g", execution_mode="sequential")],
    )
    assert [line.split()[0] for line in played.lines[6:8]] == ["call", "call"]


def test_a_tool_that_says_parallel_does_not_undo_the_config():
    threads: list[Any] = []

    def execute(*args: Any) -> str:
        threads.append(threading.current_thread())
        return "ok"

    one_call(call("f"), tool("f", execute, execution_mode="parallel"), tool_execution="sequential")
    assert threads == [threading.current_thread()]


# --- progress -------------------------------------------------------------------------------------------------------


@MODES
def test_progress_is_text_a_block_blocks_or_a_result(mode: str):
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        on_update("text")
        on_update(TextContent("block"))
        on_update([TextContent("two"), TextContent("blocks")])
        on_update(AgentToolResult("result", details={"part": 1}))
        return "ok"

    played = one_call(call("f", id="c1", x=1), tool("f", execute), tool_execution=mode)
    assert played.lines[7:12] == [
        "progress c1: text",
        "progress c1: block",
        "progress c1: two blocks",
        "progress c1: result",
        "done c1: ok",
    ]
    updates = played.of(ToolExecutionUpdateEvent)
    assert [update.args for update in updates] == [{"x": 1}] * 4
    assert updates[3].partial_result == AgentToolResult("result", details={"part": 1})


@MODES
@pytest.mark.parametrize("wrong", [7, {"a": 1}, b"x", ["text"]])
def test_progress_of_another_kind_is_logged_and_never_raises_into_the_tool(
    mode: str, wrong: Any, caplog: pytest.LogCaptureFixture
):
    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        assert on_update(wrong) is None
        return "ok"

    with caplog.at_level(logging.INFO):
        played = one_call(call("f", id="c1"), tool("f", execute), tool_execution=mode)
    assert result_of(played).text == "ok"
    assert played.of(ToolExecutionUpdateEvent) == []
    assert [record.getMessage() for record in caplog.records] == [
        "an update of tool `f` failed for tool call c1: TypeError"
    ]


@MODES
def test_progress_after_the_end_of_a_call_is_ignored(mode: str):
    kept: list[Any] = []

    def execute(call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> str:
        kept.append(on_update)
        return "ok"

    def emit(event: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent):
            kept[0]("too late")

    played = one_call(call("f"), tool("f", execute), tool_execution=mode, emit=emit)
    kept[0]("far too late")
    assert played.of(ToolExecutionUpdateEvent) == []
    assert result_of(played).text == "ok"


# --- logging --------------------------------------------------------------------------------------------------------


@MODES
def test_a_failing_tool_is_logged_with_its_name_the_call_and_the_type_and_no_more(
    mode: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        one_call(call("f", id="c1", password="hunter2"), tool("f", returns(ValueError("hunter3"))), tool_execution=mode)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "tool `f` failed for tool call c1: ValueError")
    ]
    assert "hunter" not in caplog.text


def test_at_debug_a_failing_tool_is_logged_with_its_message_and_traceback(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        one_call(call("f", id="c1"), tool("f", returns(ValueError("hunter3"))))
    assert "hunter3" in caplog.text
    assert "Traceback" in caplog.text


def test_an_invented_name_and_arguments_that_do_not_fit_are_the_models_business_and_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.INFO):
        answer(reply(call("nothing"), call("add", n="five")), "Done.", tools=[tool("add", schema=NUMBER)])
    assert caplog.records == []
