"""What the bash tool runs: commands as a shell would, unattended, in the right folder, with the right environment."""

import itertools
import json
import math
import os
import re
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest

from agentcore._keys import KEY_VARIABLES
from agentcore.abort import AbortController
from agentcore.toolkit import BashExecution, BashPrepare, BashToolDetails, BashToolOptions, create_bash_tool

# --- results ---


def test_output_comes_back_as_it_was_printed(use, text_of) -> None:
    result = use(create_bash_tool(), command="echo one; echo two")

    assert text_of(result) == "one\ntwo\n"
    assert not result.is_error
    assert result.details == BashToolDetails(exit_code=0)


def test_stdout_and_stderr_come_together_in_order(use, text_of) -> None:
    result = use(create_bash_tool(), command="for i in 1 2 3; do echo out $i; echo err $i >&2; done")

    assert text_of(result) == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"


@pytest.mark.parametrize("command", ["true", "echo", "printf ' \\n\\t\\n'"])
def test_no_output_and_only_white_space_become_words(use, text_of, command: str) -> None:
    assert text_of(use(create_bash_tool(), command=command)) == "(no output)"


def test_a_failing_command_is_an_error_result_with_output_and_exit_code(use, text_of) -> None:
    result = use(create_bash_tool(), command="echo before; exit 3")

    assert result.is_error
    assert text_of(result) == "before\n[The command failed with exit code 3.]"
    assert result.details.exit_code == 3


def test_a_failing_command_without_output_says_only_that(use, text_of) -> None:
    assert text_of(use(create_bash_tool(), command="exit 1")) == "[The command failed with exit code 1.]"


def test_output_without_a_line_end_does_not_run_into_the_note(use, text_of) -> None:
    assert text_of(use(create_bash_tool(), command="printf x; exit 1")) == "x\n[The command failed with exit code 1.]"


def test_a_signal_that_ended_the_command_is_named(use, text_of) -> None:
    shell_itself = use(create_bash_tool(), command="kill -9 $$")
    child = use(create_bash_tool(), command="sh -c 'kill -SEGV $$'; exit $?")

    assert shell_itself.is_error
    assert text_of(shell_itself) == "[The command was killed by SIGKILL.]"
    assert shell_itself.details.exit_code == -9
    assert "exit code 139, killed by SIGSEGV" in text_of(child)


def test_commands_may_span_lines_and_use_what_bash_has(use, text_of) -> None:
    result = use(create_bash_tool(), command="cat <<'EOF'\na 'quoted' $text\nEOF\n[[ ab == a* ]] && echo {1..3}")

    assert text_of(result) == "a 'quoted' $text\n1 2 3\n"


@pytest.mark.parametrize("command", [None, "", "  \n", 7])
def test_a_missing_command_is_refused(use, text_of, command: object) -> None:
    result = use(create_bash_tool(), command=command)

    assert result.is_error
    assert "`command` is missing or empty" in text_of(result)


# --- bytes that are no text ---


def test_bytes_that_are_not_utf8_are_replaced_and_do_not_stop_the_command(use, text_of) -> None:
    result = use(create_bash_tool(), command="printf 'caf\\xe9\\n'")

    assert (text_of(result), result.is_error) == ("caf\ufffd\n", False)


def test_random_bytes_end_normally(use, text_of) -> None:
    result = use(create_bash_tool(), command="head -c 200000 /dev/urandom")

    assert (result.is_error, result.details.exit_code) == (False, 0)
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text_of(result)) is None


def test_escape_sequences_are_left_out_and_control_characters_made_visible(use, text_of) -> None:
    command = r"printf '\033[1;31mred\033[0m \033]0;title\007\a a\0b\r\nc\rd\n'"

    assert text_of(use(create_bash_tool(), command=command)) == "red ␇ a␀b\nc\nd\n"


# --- nobody is there to answer ---


@pytest.mark.parametrize(
    ("command", "expected", "fails"),
    [
        ("cat", "(no output)", False),
        ('read x; echo "[$x]"', "[]\n", False),
        ("python3 -c 'input()'", "EOFError", True),
        ("echo question > /dev/tty", "/dev/tty", True),
        ("git commit", "editor", True),
        ("git log | head -1; git log --oneline", "first", False),
        ("git clone https://127.0.0.1:1/x", "", True),
    ],
)
def test_a_command_that_wants_an_answer_ends_at_once(
    use, text_of, tmp_path: Path, command: str, expected: str, fails: bool
) -> None:
    tool = create_bash_tool(BashToolOptions(cwd=tmp_path))
    setup = (
        "git init -q . && git config user.email a@example.com && git config user.name a && "
        "echo 1 > f && git add f && git commit -qm first && echo 2 > f && git add f"
    )
    if command.startswith("git"):
        assert not use(tool, command=setup).is_error

    # The timeout is only there so that a command that waits makes the test fail.
    result = use(tool, command=command, timeout=20)

    assert expected in text_of(result)
    assert (result.is_error, result.details.timed_out) == (fails, False)


def test_a_command_does_not_get_the_input_of_the_process(tmp_path: Path) -> None:
    script = """
from agentcore.toolkit import create_bash_tool
print(create_bash_tool().execute("1", {"command": "cat; echo end", "timeout": 20}, None, None, None).content[0].text)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        process.stdin.write("typed by a person\n")
        process.stdin.flush()
        assert process.stdout.readline() == "end\n"
    finally:
        process.communicate()


def test_pagers_and_editors_are_disabled_and_can_be_set_again(use, text_of) -> None:
    show = "echo $PAGER $GIT_PAGER $EDITOR $VISUAL $GIT_EDITOR $GIT_TERMINAL_PROMPT $TERM"
    own = create_bash_tool(BashToolOptions(env={"PAGER": "mine"}))

    assert text_of(use(create_bash_tool(), command=show)) == "cat cat false false false 0 dumb\n"
    assert text_of(use(own, command="echo $PAGER")) == "mine\n"
    assert text_of(use(own, command="echo $PAGER", env={"PAGER": "the call's"})) == "the call's\n"


def test_a_command_has_a_session_of_its_own(use, text_of) -> None:
    pid, session = text_of(use(create_bash_tool(), command="echo $$ $(ps -o sess= -p $$)")).split()

    assert int(session) in (int(pid), 0)  # 0: a ps that does not know
    assert int(session) != os.getsid(0)


# --- environment ---

SECRETS = {name: f"secret-{name}" for names in KEY_VARIABLES.values() for name in names}
OTHERS = {"GH_TOKEN": "token", "MY_SECRET": "mine"}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **OTHERS}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("secrets")
def test_provider_keys_are_not_inherited_and_the_rest_is(use, text_of) -> None:
    output = text_of(use(create_bash_tool(), command="env; env | base64"))

    assert "secret-" not in output
    assert not [name for name in SECRETS if name in output]
    assert "GH_TOKEN=token" in output
    assert "MY_SECRET=mine" in output
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} <= set(SECRETS)


@pytest.mark.usefixtures("secrets")
def test_everything_is_inherited_when_asked_for(use, text_of) -> None:
    output = text_of(use(create_bash_tool(BashToolOptions(inherit_env="all")), command="env"))

    assert {f"{name}={value}" for name, value in {**SECRETS, **OTHERS}.items()} <= set(output.splitlines())


@pytest.mark.usefixtures("secrets")
def test_nothing_is_inherited_when_asked_for(use, text_of) -> None:
    tool = create_bash_tool(BashToolOptions(inherit_env="none", env={"MINE": "1"}))
    output = text_of(use(tool, command="env"))

    assert not [name for name in {**SECRETS, **OTHERS, "HOME": "", "USER": ""} if f"{name}=" in output]
    assert "MINE=1" in output
    assert "PAGER=cat" in output


@pytest.mark.usefixtures("secrets")
def test_a_key_can_be_passed_on_deliberately(use, text_of) -> None:
    tool = create_bash_tool(BashToolOptions(env={"OPENAI_API_KEY": "chosen"}))

    assert text_of(use(tool, command="echo $OPENAI_API_KEY")) == "chosen\n"


def test_a_call_can_set_variables_for_itself(use, text_of) -> None:
    assert text_of(use(create_bash_tool(), command='echo "$GREETING"', env={"GREETING": "hé 'llo'"})) == "hé 'llo'\n"


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}, {"A": 5}, ["A"], "A=1"])
def test_an_environment_that_cannot_be_set_is_refused(use, text_of, tmp_path: Path, env: object) -> None:
    result = use(create_bash_tool(BashToolOptions(cwd=tmp_path)), command="touch ran", env=env)

    assert result.is_error
    assert "env" in text_of(result)
    assert "was not run" in text_of(result)
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("secrets")
def test_neither_options_nor_execution_show_the_environment_in_their_repr() -> None:
    options = BashToolOptions(env={"OPENAI_API_KEY": "sk-123"})

    assert "sk-123" not in repr(options)
    assert "sk-123" not in repr(BashExecution("ls", "/", {"OPENAI_API_KEY": "sk-123"}))


# --- folders ---


def test_two_tools_work_in_their_own_folders_at_the_same_time(use, text_of, tmp_path: Path) -> None:
    before = Path.cwd()
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    together = threading.Barrier(2)

    def work(folder: Path) -> str:
        tool = create_bash_tool(BashToolOptions(cwd=folder))
        together.wait(10)
        return text_of(use(tool, command="pwd -P; echo $PWD > x; sleep 0.1; pwd -P"))

    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(work, folders))

    real = [os.path.realpath(folder) for folder in folders]
    assert outputs == [f"{folder}\n{folder}\n" for folder in real]
    assert [os.path.realpath((folder / "x").read_text().strip()) for folder in folders] == real
    assert Path.cwd() == before


def test_a_call_can_name_its_folder_relative_to_the_tools(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    tool = create_bash_tool(BashToolOptions(cwd=tmp_path))

    assert text_of(use(tool, command="pwd -P", cwd="inner")) == f"{os.path.realpath(tmp_path / 'inner')}\n"
    assert text_of(use(tool, command="pwd -P", cwd="/")) == "/\n"


def test_a_relative_folder_of_the_options_is_fixed_when_the_tool_is_made(
    use, text_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)
    fixed, current = create_bash_tool(BashToolOptions(cwd="inner")), create_bash_tool()
    monkeypatch.chdir("/")

    assert text_of(use(fixed, command="pwd -P")) == f"{os.path.realpath(tmp_path / 'inner')}\n"
    assert text_of(use(current, command="pwd -P")) == "/\n"


def test_a_folder_that_was_removed_is_an_error_that_names_it(use, text_of, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    tool = create_bash_tool(BashToolOptions(cwd=folder))
    folder.rmdir()

    result = use(tool, command="echo hi")

    assert result.is_error
    assert str(folder) in text_of(result)
    assert "does not exist" in text_of(result)


def test_a_removed_working_directory_of_the_process_is_an_error(python) -> None:
    script = """
import os, tempfile
from agentcore.toolkit import create_bash_tool
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())
result = create_bash_tool().execute("1", {"command": "echo hi"}, None, None, None)
print(result.is_error, result.content[0].text)
"""
    output, errors = python(script).communicate(timeout=30)

    assert output.startswith("True The current folder does not exist any more"), errors


# --- what cannot start ---


def test_a_shell_that_does_not_exist_is_an_error_that_names_it(use, text_of) -> None:
    result = use(create_bash_tool(BashToolOptions(shell="/no/such/shell")), command="echo hi")

    assert result.is_error
    assert "/no/such/shell" in text_of(result)


def test_a_shell_that_is_no_program_is_an_error_that_says_why(use, text_of, tmp_path: Path) -> None:
    (tmp_path / "shell").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "shell").chmod(0o755)

    result = use(create_bash_tool(BashToolOptions(shell=str(tmp_path / "shell"))), command="echo hi")

    assert result.is_error
    assert text_of(result).startswith(f"The command could not be started ({tmp_path}/shell in ")


def test_bash_is_looked_for_on_the_path_and_sh_takes_its_place(
    use, text_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bash").write_text("#!/bin/sh\necho this bash: $2\n")
    (tmp_path / "bash").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert text_of(use(create_bash_tool(), command="hi")) == "this bash: hi\n"

    found = {"sh": "/bin/sh"}
    monkeypatch.setattr("shutil.which", found.get)
    assert text_of(use(create_bash_tool(), command="echo $0")) == "/bin/sh\n"

    found.clear()
    result = use(create_bash_tool(), command="echo hi")
    assert result.is_error
    assert "neither `bash` nor `sh`" in text_of(result)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo " + "x" * 3_000_000, "too long for the system (2.86 MiB)"),
        ("echo \0", "null byte"),
        ("echo \ud800", "lone surrogate"),
    ],
    ids=["too long", "nul", "surrogate"],
)
def test_a_command_that_no_system_takes_is_an_error_that_says_why(use, text_of, command: str, expected: str) -> None:
    result = use(create_bash_tool(), command=command)

    assert result.is_error
    assert expected in text_of(result)


# --- timeouts that make no sense ---

SCHEMA = create_bash_tool().parameters
NONSENSE = [0, -5, 1e12, 10**400, math.inf, -math.inf, math.nan, True, "soon", [5]]


@pytest.mark.parametrize("timeout", NONSENSE)
def test_a_nonsense_timeout_is_refused_before_anything_runs(use, text_of, tmp_path: Path, timeout: object) -> None:
    result = use(create_bash_tool(BashToolOptions(cwd=tmp_path)), command="touch ran", timeout=timeout)

    assert result.is_error
    assert "`timeout`" in text_of(result)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("timeout", [0, -5, 1e12, True, "soon"])
def test_the_schema_refuses_nonsense_timeouts(timeout: object) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)

    assert validator.is_valid({"command": "ls", "timeout": 30})
    assert validator.is_valid({"command": "ls", "timeout": 0.5})
    assert not validator.is_valid({"command": "ls", "timeout": timeout})


@pytest.mark.parametrize("timeout", NONSENSE)
def test_the_options_refuse_nonsense_timeouts_too(timeout: object) -> None:
    with pytest.raises(ValueError, match="timeout"):
        BashToolOptions(timeout=timeout)


def test_an_explicit_null_means_the_default(use, text_of) -> None:
    assert text_of(use(create_bash_tool(), command="echo hi", timeout=None, cwd=None, env=None)) == "hi\n"


# --- prefix and prepare ---


def test_the_prefix_comes_on_a_line_before_every_command(use, text_of) -> None:
    tool = create_bash_tool(BashToolOptions(command_prefix="set -o pipefail # always"))

    assert use(tool, command="false | cat").details.exit_code == 1


def test_prepare_may_change_command_folder_and_environment(use, text_of, tmp_path: Path) -> None:
    seen = []

    def prepare(execution, context, signal):
        seen.append((execution.command, execution.cwd, execution.env["A"], context, signal))
        return BashExecution("echo changed $A; pwd -P", "/", {**execution.env, "A": "2"})

    tool = create_bash_tool(
        BashToolOptions(command_prefix=":", prepare=prepare, cwd=tmp_path, env={"A": "1"}, context="mine")
    )
    signal = AbortController().signal

    assert text_of(use(tool, command="echo hi", signal=signal)) == "changed 2\n/\n"
    assert seen == [(":\necho hi", str(tmp_path), "1", "mine", signal)]


def test_prepare_may_leave_the_command_alone_and_see_a_context_of_its_own(use, text_of) -> None:
    seen = []
    prepare = BashPrepare(lambda execution, context, signal: seen.append(context), context="its own")
    tool = create_bash_tool(BashToolOptions(prepare=prepare, context="the tool's"))

    assert text_of(use(tool, command="echo hi")) == "hi\n"
    assert seen == ["its own"]


async def a_coroutine(*_args: object) -> None:
    """What somebody may take for a hook."""


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: "echo other", "returned str"),
        (lambda *_: False, "returned bool"),
        (a_coroutine, "not coroutines"),
    ],
    ids=["raises", "text", "false", "coroutine"],
)
def test_nothing_runs_when_prepare_fails(use, text_of, tmp_path: Path, prepare, expected: str) -> None:
    result = use(create_bash_tool(BashToolOptions(prepare=prepare, cwd=tmp_path)), command="touch ran")

    assert result.is_error
    assert expected in text_of(result)
    assert not (tmp_path / "ran").exists()


# --- updates ---


def test_output_is_reported_while_the_command_runs_from_the_calling_thread_and_not_too_often(use, text_of) -> None:
    updates = []

    def on_update(update) -> None:
        updates.append((time.monotonic(), threading.get_ident(), text_of(update)))

    result = use(create_bash_tool(), command="for i in 1 2 3; do echo $i; sleep 0.3; done", on_update=on_update)
    ended = time.monotonic()

    assert text_of(result) == "1\n2\n3\n"
    texts = [text for _, _, text in updates]
    assert len(texts) >= 2  # three, unless the machine was busy
    assert texts == [text for text in ("1\n", "1\n2\n", "1\n2\n3\n") if text in texts]
    assert {thread for _, thread, _ in updates} == {threading.get_ident()}
    times = [moment for moment, _, _ in updates]
    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(times))
    assert times[-1] < ended


def test_updates_of_endless_output_are_few_and_bounded(use, text_of) -> None:
    updates = []
    tool = create_bash_tool(BashToolOptions(max_file_bytes=1000))
    use(tool, command="yes", timeout=0.55, on_update=lambda update: updates.append(text_of(update)))

    assert 1 <= len(updates) <= 7
    assert all(len(update) <= 50 * 1024 and update.count("\n") <= 2000 for update in updates)


def test_a_quick_command_reports_nothing_before_its_result(use) -> None:
    updates = []
    use(create_bash_tool(), command="echo hi", on_update=updates.append)

    assert updates == []


# --- the tool itself ---


def test_the_tool_describes_itself_to_a_model() -> None:
    tool = create_bash_tool(BashToolOptions(max_lines=100, max_bytes=2048))

    assert (tool.name, tool.label) == ("bash", "bash")
    assert "last 100 lines or 2 KiB" in tool.description
    assert set(tool.parameters["properties"]) == {"command", "timeout", "cwd", "env"}
    assert all(prop["description"] for prop in tool.parameters["properties"].values())
    assert tool.parameters["required"] == ["command"]
    json.dumps(tool.parameters)


def test_options_that_cannot_be_right_are_refused(tmp_path: Path) -> None:
    for wrong in ({"inherit_env": "most"}, {"max_lines": 0}, {"max_bytes": 0}, {"max_file_bytes": -1}):
        with pytest.raises(ValueError):
            BashToolOptions(**wrong)
    with pytest.raises(ValueError, match="not an existing folder"):
        create_bash_tool(BashToolOptions(root=tmp_path / "none"))
    with pytest.raises(ValueError, match="outside"):
        create_bash_tool(BashToolOptions(root=tmp_path, cwd="/"))


def test_a_program_keeps_its_default_signal_handling(use, text_of) -> None:
    # Python ignores SIGPIPE; a child that inherited that would report an error here instead of ending silently.
    assert text_of(use(create_bash_tool(), command="yes | head -1")) == "y\n"


def test_the_private_file_is_private(use, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        result = use(create_bash_tool(BashToolOptions(output_folder=tmp_path)), command="seq 5000")
    finally:
        os.umask(old)
    path = Path(result.details.full_output_path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "".join(f"{number}\n" for number in range(1, 5001))
