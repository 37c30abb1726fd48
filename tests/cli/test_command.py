"""The command run once: what goes where, exit statuses, and one clear line for everything that can go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentcore._cli_models import choose_model
from agentcore.cli import main
from agentcore.providers.catalog import get_model
from agentcore.sessions import Session
from agentcore.testing.gate import Gate
from agentcore.testing.sse_server import Reply, Request, SseServer, Stall, json_reply
from tests.cli.cli_support import ROOT, chunk, command, run_command, says, server_of

HOSTILE = "[/bold] \x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J {0} %s \u202eevil end"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTCORE_MODEL", raising=False)


def asking(server: SseServer, *arguments: str) -> list[str]:
    return ["--model", "m", "--base-url", f"{server.url}/v1", *arguments]


def lines_of(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


# --- what goes where ------------------------------------------------------------------------------------------------


def test_text_goes_to_stdout_and_everything_else_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\nbeta\n")
    done = run_command("--model", "demo", "--yes", "list the files", cwd=tmp_path)

    assert done.returncode == 0
    text = lines_of(done.stdout)
    assert text[:2] == ["I list the files first.", "The first file is a.txt. I read it."]
    assert text[2].startswith("I see 1 file here. ")
    errors = lines_of(done.stderr)
    assert errors[0] == "Asking the built-in demo model, which follows a few rules and understands nothing."
    assert errors[1] == "→ bash ls -p"
    assert errors[2].startswith("✓ bash · ")
    assert errors[3:5] == ["  a.txt", "→ read a.txt"]
    assert errors[-1].endswith("s")
    assert " tokens in, " in errors[-1]
    assert " · 3 turns · " in errors[-1]


def test_thinking_is_left_out_of_plain_text(capfd: pytest.CaptureFixture[str]) -> None:
    with server_of(says("The answer.", thinking="Hmm.")) as server:
        assert main(asking(server, "why?")) == 0

    out, err = capfd.readouterr()
    assert out == "The answer.\n"
    assert "Hmm" not in err


def test_text_is_passed_on_exactly_when_the_output_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with server_of(says(HOSTILE)) as server:
        assert main(asking(server, "go")) == 0

    assert capfd.readouterr().out == f"{HOSTILE}\n"


def test_what_is_beside_the_text_is_harmless_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    hostile_call = ("bash", {"command": "printf '\\033[2J[/red]'", HOSTILE: HOSTILE})
    with server_of(says(calls=[hostile_call]), says("Done.")) as server:
        assert main(asking(server, "--yes", "go")) == 0

    err = capfd.readouterr().err
    assert not [char for char in err if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160 or char == "\u202e")]
    assert "[/bold] ␛[31mred␛[0m" in err


def test_an_edit_is_shown_as_a_diff(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.txt").write_text("buy milk\n")
    edit = ("edit", {"path": "plan.txt", "find": "milk", "replacement": "cheese"})
    with server_of(says(calls=[edit]), says("Done.")) as server:
        assert main(asking(server, "--yes", "go")) == 0

    err = lines_of(capfd.readouterr().err)
    at = err.index("→ edit plan.txt")
    assert err[at + 2 : at + 5] == ["  @@ -1,1 +1,1 @@", "  -buy milk", "  +buy cheese"]


def test_json_prints_every_event_as_one_line_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with server_of(says("é \x1b[31m", calls=[("bash", {"command": "true"})]), says("Done.")) as server:
        assert main(asking(server, "--json", "--yes", "go")) == 0

    out, err = capfd.readouterr()
    assert out.isascii()
    assert "\x1b" not in out
    events = [json.loads(line) for line in lines_of(out)]
    kinds = [event["type"] for event in events if event["type"] != "message_update"]
    assert kinds == [
        *["agent_start", "turn_start", "message_start", "message_end", "message_start", "message_end"],
        *["tool_execution_start", "tool_execution_end", "message_start", "message_end", "turn_end"],
        *["turn_start", "message_start", "message_end", "turn_end", "agent_end"],
    ]
    assert events[-1]["reason"] == "completed"
    assert events[-1]["messages"][1]["content"][0]["text"] == "é \x1b[31m"
    assert err == "Asking m.\n" or err == ""


def test_what_is_asked_comes_from_the_argument_and_then_from_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes").write_text("first\nsecond\n")
    with server_of(says("One."), says("Two."), says("Three.")) as server:
        for arguments in (["Summarise."], []):
            with open("notes") as piped:
                monkeypatch.setattr("sys.stdin", piped)
                assert main(asking(server, *arguments)) == 0
        monkeypatch.setattr("sys.stdin", None)
        assert main(asking(server, "Only that.")) == 0

    asked = [request.json()["messages"][-1]["content"] for request in server.requests]
    assert asked == ["Summarise.\n\nfirst\nsecond", "first\nsecond", "Only that."]


def test_a_pipe_that_stays_open_is_waited_for_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()

    def complain(text: str) -> None:
        print(text)
        os.write(writer, b"from the pipe")
        os.close(writer)

    monkeypatch.setattr("agentcore.cli._SECONDS_BEFORE_A_HINT", 0.01)
    monkeypatch.setattr("agentcore.cli._complain", complain)
    with open(reader) as piped, server_of(says("Done.")) as server:
        monkeypatch.setattr("sys.stdin", piped)
        assert main(asking(server, "hi")) == 0

    assert capfd.readouterr().out == "waiting for the end of the input (`</dev/null` gives none)\nDone.\n"
    assert server.requests[0].json()["messages"][-1]["content"] == "hi\n\nfrom the pipe"


# --- tools and folders ----------------------------------------------------------------------------------------------


def test_the_demo_takes_no_refusal_for_the_name_of_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "demo", "list the files"]) == 0

    out, err = capfd.readouterr()
    assert "I could not list the files. The tool says:\n`bash` was not run: there is no terminal" in out
    assert "read" not in err


def test_without_a_terminal_to_ask_in_nothing_that_changes_something_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = [("write", {"path": "x", "content": "x"}), ("bash", {"command": "touch y"}), ("read", {"path": "a.txt"})]
    (tmp_path / "a.txt").write_text("alpha\n")
    with server_of(says(calls=calls), says("Done.")) as server:
        assert main(asking(server, "go")) == 0

    assert sorted(os.listdir(tmp_path)) == ["a.txt"]
    results = [message["content"] for message in server.requests[1].json()["messages"] if message["role"] == "tool"]
    assert results[:2] == [
        "`write` was not run: there is no terminal to ask the user in. `--yes` allows it unasked.",
        "`bash` was not run: there is no terminal to ask the user in. `--yes` allows it unasked.",
    ]
    assert "alpha" in results[2]


def test_tools_can_be_chosen_and_left_out(tmp_path: Path) -> None:
    with server_of(says("a"), says("b"), says("c")) as server:
        assert main(asking(server, "go")) == 0
        assert main(asking(server, "--tools", "read, bash", "go")) == 0
        assert main(asking(server, "--tools", "none", "go")) == 0

    bodies = [request.json() for request in server.requests]
    names = [[tool["function"]["name"] for tool in body.get("tools", ())] for body in bodies]
    assert names == [["read", "bash", "edit", "write"], ["read", "bash"], []]
    assert str(tmp_path.resolve()) in bodies[0]["messages"][0]["content"]
    assert "folder" not in bodies[2]["messages"][0]["content"]


def test_the_tools_work_in_the_folder_and_stay_in_the_root(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inner = tmp_path / "root" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret\n")
    calls = [("bash", {"command": "pwd"}), ("read", {"path": str(tmp_path / "secret.txt")})]
    with server_of(says(calls=calls), says("Done.")) as server:
        assert main(asking(server, "--yes", "--cwd", str(inner), "--root", str(tmp_path / "root"), "go")) == 0

    results = [message["content"] for message in server.requests[1].json()["messages"] if message["role"] == "tool"]
    assert results[0].strip() == str(inner.resolve())
    assert "secret\n" not in results[1]


def test_system_prompt_and_thinking_reach_the_model() -> None:
    with server_of(says("a")) as server:
        assert main(asking(server, "--system", "Be a pirate.", "--thinking", "high", "--tools", "none", "go")) == 0

    body = server.requests[0].json()
    assert body["messages"][0]["content"] == "Be a pirate."
    assert body["reasoning_effort"] == "high"


# --- exit statuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--bogus"], "agentcore: unrecognized arguments: --bogus."),
        (["one", "two"], "agentcore: unrecognized arguments: two."),
        (["--tools", "hammer", "hi"], "agentcore: 'hammer' is no tool: use some of read,bash,edit,write, or none."),
        (["--tools", "", "hi"], "agentcore: '' is no tool: use some of read,bash,edit,write, or none."),
        (["--max-turns", "0", "hi"], "agentcore: argument --max-turns: it is a whole number from 1 on, not '0'."),
        (["--max-cost", "-1", "hi"], "agentcore: argument --max-cost: it is an amount in USD above 0, not '-1'."),
        (["--max-cost", "nan", "hi"], "agentcore: argument --max-cost: it is an amount in USD above 0, not 'nan'."),
        (["--model", "gpt-5", "hi"], "agentcore: `--model` is provider/id, as in `--model openai/gpt-5`, or `demo`."),
        (["--api", "anthropic-messages", "hi"], "agentcore: `--api` says what a server speaks: give its address with "),
        (["--base-url", "http://x/v1", "hi"], "agentcore: `--base-url` needs `--model`, the name that the server has "),
        (["--model", "demo"], "agentcore: there is no prompt: give one as an argument or through a pipe."),
        (["--model", "demo", ""], "agentcore: the prompt is empty."),
        (["--model", "demo", "--json"], "agentcore: there is no prompt: give one as an argument or through a pipe."),
        (["--model", "demo", "--cwd", "nowhere", "hi"], "agentcore: there is no folder 'nowhere'."),
        (["--model", "demo", "--session", "a.txt", "hi"], "agentcore: a.txt is no session file."),
        (
            ["--model", "x", "--base-url", "127.0.0.1:9/v1", "hi"],
            "agentcore: `--base-url` begins with http:// or https://",
        ),
        (
            ["--model", "nosuch/x", "hi"],
            "agentcore: the catalog has no provider 'nosuch'; it knows anthropic, deepseek",
        ),
        (["--model", "demo", "--max-cost", "1", "hi"], "agentcore: `--max-cost` needs a model whose prices are known"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("no session\n")

    assert main(arguments) == 2

    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_without_any_key_one_sentence_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["hi"]) == 2

    assert capfd.readouterr().err == (
        "agentcore: there is no key for a model: set one of ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, or name a "
        "model of your own server with `--base-url` and `--model`; `agentcore --model demo` works without a key.\n"
    )


def test_without_the_key_of_the_named_provider_one_sentence_names_the_variable(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--model", "openai/gpt-5-mini", "hi"]) == 2

    assert capfd.readouterr().err == (
        "agentcore: there is no key for openai: set OPENAI_API_KEY; `agentcore --model demo` works without a key.\n"
    )


def test_a_model_that_is_not_known_is_one_line_that_names_near_ones(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-anything")
    assert main(["--model", "openai/gpt-5-minni", "hi"]) == 2

    err = capfd.readouterr().err
    assert err.startswith("agentcore: the catalog has no model 'gpt-5-minni' of openai; did you mean 'gpt-5-mini'")
    assert err.count("\n") == 1
    assert err.endswith(
        "for one that is not listed add `--base-url https://api.openai.com/v1 --api openai-responses`.\n"
    )


def test_what_the_message_says_to_add_names_a_model_that_is_not_listed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-anything")
    assert main(["--model", "anthropic/brand-new", "hi"]) == 2
    said = capfd.readouterr().err.rpartition("add `")[2].rpartition("`")[0].split()

    with ExitStack() as stack:
        model = choose_model("anthropic/brand-new", stack, base_url=said[1], api=said[3])

    assert (said[0], said[2]) == ("--base-url", "--api")
    assert (model.id, model.provider, model.api) == ("brand-new", "anthropic", "anthropic-messages")
    assert model.base_url == get_model("anthropic", "claude-sonnet-5").base_url


def refusing(status: int, body: dict[str, object]) -> SseServer:
    return SseServer(lambda request: json_reply(body, status))


def error_lines(err: str) -> list[str]:
    """Return the lines that say what went wrong; the last one has the figures."""
    return lines_of(err)[:-1]


def test_a_key_that_is_refused_is_one_line_and_where_it_came_from(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-wrong-wrong")
    body = {"error": {"message": "Incorrect API key provided: sk-wrong-wrong-wrong.", "code": "invalid_api_key"}}
    with refusing(401, body) as server:
        arguments = ["--model", "openai/gpt-5-mini", "--base-url", f"{server.url}/v1", "hi"]
        assert main(arguments) == 1

    out, err = capfd.readouterr()
    assert out == ""
    assert "sk-wrong" not in err
    assert lines_of(err)[0] == "error: HTTP 401 invalid_api_key: Incorrect API key provided: ***"
    assert "The key came from OPENAI_API_KEY." in lines_of(err)
    assert "Traceback" not in err


def test_a_model_that_the_provider_does_not_have_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with refusing(404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}) as server:
        assert main(asking(server, "hi")) == 1

    assert error_lines(capfd.readouterr().err) == ["error: HTTP 404 model_not_found: The model `m` does not exist"]


def test_no_network_is_one_line_after_the_tries(capfd: pytest.CaptureFixture[str]) -> None:
    with server_of() as server:
        url = server.url
    assert main(["--model", "m", "--base-url", f"{url}/v1", "hi"]) == 1

    host = url.removeprefix("http://")
    lines = error_lines(capfd.readouterr().err)
    assert lines[-1] == f"error: no connection to {host}: Connection refused"
    assert all(line.startswith("trying again in ") for line in lines[:-1])


def test_an_error_in_json_is_in_the_events_and_a_line_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with refusing(400, {"error": {"message": "no such thing"}}) as server:
        assert main(asking(server, "--json", "hi")) == 1

    out, err = capfd.readouterr()
    assert json.loads(lines_of(out)[-1])["reason"] == "error"
    assert err == "error: HTTP 400: no such thing\n"


def test_a_limit_ends_the_run_with_status_1_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    assert main(["--model", "demo", "--yes", "--max-turns", "1", "go"]) == 1

    assert "Stopped: the most turns allowed are used up." in lines_of(capfd.readouterr().err)


def test_ctrl_c_ends_a_run_with_status_130_and_keeps_what_was_said(tmp_path: Path) -> None:
    gate = Gate()
    with gate, server_of(says("Half an ", Stall(gate), "answer.")) as server:
        process = subprocess.Popen(
            command(*asking(server, "--session", "talk.jsonl", "go")),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.read(8) == "Half an "
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert out == "\n"
    assert "Traceback" not in err
    assert "Stopped." in lines_of(err)
    said = Session.read(tmp_path / "talk.jsonl").messages()
    assert [message.role for message in said] == ["user", "assistant"]
    assert said[1].stop_reason == "aborted"


def test_a_request_to_terminate_ends_the_commands_that_run(tmp_path: Path) -> None:
    calls = [("bash", {"command": "echo $$ > pid; exec sleep 600"})]
    with server_of(says(calls=calls)) as server:
        process = subprocess.Popen(
            command(*asking(server, "--yes", "go")),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert process.stderr.readline().startswith("→ bash")
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            pass
        process.terminate()
        err = process.communicate(timeout=30)[1]

    assert process.returncode == 143
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_output_that_nobody_reads_ends_the_run_quietly(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        command("--model", "demo", "--yes", "go"),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    err = process.communicate(timeout=30)[1]

    assert process.returncode == 1
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_version_and_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out.startswith("agentcore ")
    assert main(["--help"]) == 0
    assert "exit status: 0 done, 1 the model failed or a limit ended the run" in capfd.readouterr().out


@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits_the_terminal_and_leaves_names_in_one_piece(
    columns: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["--help"]) == 0

    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    for name in ("openai-responses", "google-generative-ai", "ANTHROPIC_API_KEY", "AGENTCORE_MODEL"):
        assert name in out


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_session_goes_on_where_it_was_left(tmp_path: Path) -> None:
    with server_of(says("One."), says("Two.")) as server:
        assert main(asking(server, "--session", "talk.jsonl", "first")) == 0
        assert main(asking(server, "--session", "talk.jsonl", "second")) == 0

    second = server.requests[1].json()["messages"]
    assert [message["content"] for message in second[1:]] == ["first", "One.", "second"]


def test_calls_that_an_earlier_process_left_open_are_answered_and_the_prompt_goes_on(tmp_path: Path) -> None:
    from agentcore import AssistantMessage, ToolCall, UserMessage

    with Session.create(tmp_path / "talk.jsonl") as session:
        session.append(UserMessage("first"))
        session.append(AssistantMessage((ToolCall("c1", "bash", {"command": "touch x"}),), stop_reason="tool_use"))
    with server_of(says("Two.")) as server:
        assert main(asking(server, "--yes", "--session", "talk.jsonl", "second")) == 0

    roles = [message["role"] for message in server.requests[0].json()["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert not (tmp_path / "x").exists()


def test_a_session_that_somebody_else_writes_to_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Session.create(tmp_path / "talk.jsonl"):
        assert main(["--model", "demo", "--session", "talk.jsonl", "hi"]) == 2

    assert capfd.readouterr().err == (
        "agentcore: talk.jsonl is open for writing elsewhere; close it there, or `Session.read` it.\n"
    )


# --- models ---------------------------------------------------------------------------------------------------------


def test_the_suggested_models_are_in_the_catalog() -> None:
    from agentcore._cli_models import _DEFAULTS

    for provider, id in _DEFAULTS.items():
        assert get_model(provider, id).cost is not None


def test_the_environment_names_the_model_or_its_keys_suggest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import ExitStack

    from agentcore._cli_models import UsageError, choose_model

    with ExitStack() as stack:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-anything")
        assert choose_model(None, stack).provider == "openai"
        monkeypatch.setenv("AGENTCORE_MODEL", "openai/gpt-5-nano")
        assert choose_model(None, stack).id == "gpt-5-nano"
        assert choose_model("openai/gpt-5-mini", stack).id == "gpt-5-mini"
        monkeypatch.delenv("AGENTCORE_MODEL")
        monkeypatch.delenv("OPENAI_API_KEY")
        monkeypatch.setenv("GROQ_API_KEY", "gsk-anything")
        with pytest.raises(UsageError, match="which model\\? name one of groq"):
            choose_model(None, stack)


def test_a_server_of_ones_own_gets_a_key_only_for_a_named_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai-only")
    with server_of(says("a"), says("b")) as server:
        assert main(asking(server, "hi")) == 0
        assert main(["--model", "openai/m", "--base-url", f"{server.url}/v1", "hi"]) == 0

    keys = [request.headers.get("Authorization") for request in server.requests]
    assert keys == [None, "Bearer sk-for-openai-only"]


def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentcore", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("agentcore ")


def test_a_reply_that_is_cut_off_by_the_token_limit_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with server_of(Reply([chunk({"content": "Half"}), chunk({}, "length")])) as server:
        assert main(asking(server, "hi")) == 0

    assert "The reply was cut off: it reached the longest that the model may give." in capfd.readouterr().err


def test_a_request_is_made_for_each_turn_only(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Request] = []

    def answer(request: Request) -> Reply:
        seen.append(request)
        return says("Done.")

    with SseServer(answer) as server:
        assert main(asking(server, "hi")) == 0

    assert len(seen) == 1
