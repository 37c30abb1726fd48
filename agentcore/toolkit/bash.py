"""The bash tool: runs a command and gives its output to the model."""

from __future__ import annotations

import errno
import os
import shutil
import signal as signals
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from agentcore._keys import without_keys
from agentcore._records import Record
from agentcore.abort import AbortSignal
from agentcore.toolkit._output import CommandOutput, OutputFile
from agentcore.toolkit._paths import Place
from agentcore.toolkit._process import Ending, StartError, run_command
from agentcore.toolkit._results import (
    Refusal,
    call_hook,
    failed,
    nothing_to_report,
    os_error_text,
    reason_of,
    signal_or_idle,
)
from agentcore.toolkit._truncate import MAX_BYTES, MAX_LINES, Truncation, size_of
from agentcore.tools import AgentTool, AgentToolResult, OnUpdate

__all__ = ["BashExecution", "BashPrepare", "BashToolDetails", "BashToolOptions", "create_bash_tool"]

LONGEST_TIMEOUT: Final = 24 * 60 * 60
UPDATE_INTERVAL: Final = 0.1
MAX_FILE_BYTES: Final = 1024**3
LINE_END: Final = "\n"

_UNATTENDED: Final = {
    # Nobody is there to press a key: pagers print, editors and questions fail at once.
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "AWS_PAGER": "",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
}


def _copied(env: Mapping[str, str]) -> dict[str, str]:
    return dict(env)


@attrs.frozen(repr=False)
class BashExecution(Record):
    """A command about to run: in which folder, and with which environment (all of it)."""

    command: str
    cwd: str
    env: Mapping[str, str] = attrs.field(converter=_copied, repr=False)


@attrs.frozen
class BashPrepare:
    """A function that may change what runs, with the context it wants instead of the tool's own.

    `function(execution, context, signal)` returns a `BashExecution`, or `None` to leave it as it is.
    """

    function: Callable[[BashExecution, Any, AbortSignal], BashExecution | None]
    context: Any = None

    def __call__(self, execution: BashExecution, context: Any, signal: AbortSignal) -> BashExecution | None:
        """Call the function."""
        return self.function(execution, context if self.context is None else self.context, signal)


@attrs.frozen(repr=False)
class BashToolDetails(Record):
    """What came of a command beside its output; a negative `exit_code` is the signal that ended the shell."""

    truncation: Truncation | None = None
    full_output_path: str | None = None
    exit_code: int | None = None
    timed_out: bool = False
    aborted: bool = False


@attrs.frozen(repr=False)
class BashToolOptions(Record):
    """How the bash tool runs commands.

    `command_prefix` is put on a line before every command. `prepare(execution, context, signal)` may change command,
    folder and environment by returning another `BashExecution`; if it fails, nothing runs. Commands start in `cwd`
    (the process's working directory if unset); with a `root` they may not be told to start outside it, but the root
    does not confine what a command does: it is no sandbox.

    `inherit_env`: `"safe"` passes the environment less the variables that hold provider keys, `"all"` passes all,
    `"none"` nothing; `env` adds to it. This keeps keys from being printed by the way; a command that sets out to find
    them runs as the same user, and can. `timeout` in seconds is for commands that come without one; `None` is no limit.
    What a command has started ends with its timeout or abort. A process that has left the command's group (`setsid`) is
    found by the variable `AGENTCORE_COMMANDS`, which every command gets: on Linux only, and not if it belongs to
    somebody else (`sudo`) or was started without that variable (`env -i`).
    `shell` is the program to run instead of `bash`. Output that exceeds `max_lines` or `max_bytes` is kept in a
    private file in `output_folder` (the system's folder for temporary files if unset), up to `max_file_bytes` of it.
    """

    command_prefix: str | None = None
    prepare: Callable[[BashExecution, Any, AbortSignal], BashExecution | None] | None = None
    cwd: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    root: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    inherit_env: Literal["safe", "none", "all"] = attrs.field(
        default="safe", kw_only=True, validator=attrs.validators.in_(("safe", "none", "all"))
    )
    env: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, repr=False)
    timeout: float | None = attrs.field(default=None, kw_only=True)
    shell: str | None = attrs.field(default=None, kw_only=True)
    max_lines: int = attrs.field(default=MAX_LINES, kw_only=True, validator=attrs.validators.ge(1))
    max_bytes: int = attrs.field(default=MAX_BYTES, kw_only=True, validator=attrs.validators.ge(1))
    max_file_bytes: int = attrs.field(default=MAX_FILE_BYTES, kw_only=True, validator=attrs.validators.ge(0))
    output_folder: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    context: Any = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.timeout is not None:
            try:
                _checked_timeout(self.timeout)
            except Refusal as refusal:
                raise ValueError(str(refusal)) from None


_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "description": "The command line, run by bash. May span several lines.",
        },
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": LONGEST_TIMEOUT,
            "description": "Seconds after which the command, with everything it has started, is stopped. "
            "Give one for anything that might not end by itself.",
        },
        "cwd": {
            "type": "string",
            "description": "The folder to run in, relative to the current one. Each command starts afresh: "
            "a `cd` does not last.",
        },
        "env": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Environment variables to set for this command.",
        },
    },
    "required": ["command"],
}


def create_bash_tool(options: BashToolOptions | None = None) -> AgentTool:
    """Return a tool that runs shell commands.

    Raises `ValueError` if the options' folders cannot be used, `OSError` on Windows.
    """
    if sys.platform == "win32":
        raise OSError("the bash tool needs a POSIX shell, process groups and signals; Windows has none of them")
    options = options or BashToolOptions()
    runner = _Bash(options, Place.make(options.cwd, options.root))
    return AgentTool(
        name="bash",
        label="bash",
        description=(
            "Run a bash command and get what it prints (stdout and stderr together). There is no input and no "
            "terminal: a command that asks a question fails. "
            f"At most the last {options.max_lines:,} lines or {size_of(options.max_bytes)} are shown; longer output is "
            "kept in a file that the result names. A program that should go on in the background needs its output "
            "sent elsewhere: `server > server.log 2>&1 &`."
        ),
        parameters=_PARAMETERS,
        execute=runner.execute,
        context=options.context,
    )


class _Bash:
    def __init__(self, options: BashToolOptions, place: Place) -> None:
        self.options = options
        self.place = place

    def execute(
        self,
        tool_call_id: str,
        params: dict[str, Any],
        signal: AbortSignal | None,
        on_update: OnUpdate | None,
        context: Any,
    ) -> AgentToolResult:
        signal = signal_or_idle(signal)
        try:
            timeout = _checked_timeout(params.get("timeout"))
            timeout = self.options.timeout if timeout is None else timeout
            execution = self._prepared(params, context, signal)
            shell = self._shell()
        except Refusal as refusal:
            return failed(str(refusal), BashToolDetails())
        run = _Run(self.options, nothing_to_report(on_update))
        try:
            ending = run_command(
                [shell, "-c", _encoded(execution.command)],
                cwd=execution.cwd,
                env=execution.env,
                timeout=timeout,
                signal=signal,
                on_output=run.output.feed,
                on_look=run.report,
            )
            return run.result(ending, timeout, signal)
        except Refusal as refusal:
            return failed(str(refusal), BashToolDetails())
        except StartError as error:
            return failed(_start_failure(error.reason, execution, shell), BashToolDetails())
        finally:
            try:
                run.output.file.close()
            finally:
                run.output.file.close()  # for an interrupt just before; otherwise there is nothing left to close

    def _prepared(self, params: dict[str, Any], context: Any, signal: AbortSignal) -> BashExecution:
        command = params.get("command")
        if not isinstance(command, str) or not command.strip():
            raise Refusal("`command` is missing or empty. Give the command line to run.")
        if self.options.command_prefix:
            command = f"{self.options.command_prefix}\n{command}"
        folder = params.get("cwd")
        cwd = self.place.folder(folder) if folder else self.place.current()
        execution = BashExecution(command, cwd, {**self._environment(), **_checked_env(params.get("env"))})
        if self.options.prepare is not None:
            changed = call_hook("prepare", self.options.prepare, BashExecution, execution, context, signal)
            execution = changed or execution
        if not os.path.isdir(execution.cwd):
            raise Refusal(f"The folder {execution.cwd} does not exist, so the command was not run.")
        return execution

    def _environment(self) -> dict[str, str]:
        inherited: dict[str, str] = {}
        if self.options.inherit_env == "all":
            inherited = dict(os.environ)
        elif self.options.inherit_env == "safe":
            inherited = without_keys(os.environ)
        return {**inherited, **_UNATTENDED, **(self.options.env or {})}

    def _shell(self) -> str:
        if self.options.shell is not None:
            found = shutil.which(self.options.shell)
            if found is None:
                raise Refusal(f"The shell {self.options.shell!r} was not found, so the command was not run.")
            return found
        for name in ("bash", "/bin/bash", "sh", "/bin/sh"):
            found = shutil.which(name)
            if found is not None:
                return found
        raise Refusal("There is neither `bash` nor `sh` on the PATH, so the command was not run.")


def _checked_timeout(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refusal(f"`timeout` is a number of seconds, not {value!r}. The command was not run.")
    if not 0 < value <= LONGEST_TIMEOUT:  # NaN is neither
        raise Refusal(
            f"`timeout` must be above 0 and at most {LONGEST_TIMEOUT} seconds, not {value!r}. The command was not run."
        )
    return float(value)


def _checked_env(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise Refusal("`env` is an object of names and text values. The command was not run.")
    for name in value:
        if not name or "=" in name or "\0" in name or "\0" in value[name]:
            raise Refusal(f"`env` has a name or value that cannot be set: {name!r}. The command was not run.")
    return dict(value)


def _encoded(command: str) -> bytes:
    try:
        return command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Refusal("The command holds a lone surrogate, which is no character. It was not run.") from None


def _start_failure(reason: Exception, execution: BashExecution, shell: str) -> str:
    if not isinstance(reason, OSError):
        return f"The command could not be started: {reason}."
    if reason.errno == errno.E2BIG:
        return (
            f"The command could not be started: it is too long for the system ({size_of(len(execution.command))}). "
            "Write it to a file and run that."
        )
    return f"The command could not be started ({shell} in {execution.cwd}): {os_error_text(reason)}."


class _Run:
    """One run of a command, as far as the model and the watchers see it."""

    def __init__(self, options: BashToolOptions, on_update: OnUpdate) -> None:
        file = OutputFile(options.output_folder, options.max_file_bytes)
        # The read tool, with the same root, would refuse that file.
        advice = "" if options.root is None else "; look into it with bash"
        self.output = CommandOutput(file, options.max_lines, options.max_bytes, advice)
        self.on_update = on_update
        self.reported_at = time.monotonic()
        self.reported_size = 0

    def report(self) -> None:
        """Send an update, if there is something new and the last one is old enough."""
        now = time.monotonic()
        if self.output.size != self.reported_size and now - self.reported_at >= UPDATE_INTERVAL:
            self.reported_at, self.reported_size = now, self.output.size
            text, truncation = self.output.shown()
            self.on_update(AgentToolResult(text, BashToolDetails(truncation, self.output.file.path)))

    def result(self, ending: Ending, timeout: float | None, signal: AbortSignal) -> AgentToolResult:
        self.output.finish()
        text, truncation = self.output.shown()
        details = BashToolDetails(
            truncation,
            self.output.file.path,
            ending.exit_code,
            timed_out=ending.reason == "timed_out",
            aborted=ending.reason == "aborted",
        )
        if truncation is not None:
            text = f"[{self.output.missing(truncation)}]\n{text}"
        note = _ending_note(ending, timeout, signal)
        if not text.strip():
            text = note or "(no output)"
        elif note:
            text = f"{text}{'' if text.endswith(LINE_END) else LINE_END}{note}"
        result = AgentToolResult(text, details, is_error=note is not None)
        self.output.file.keep()
        return result


def _ending_note(ending: Ending, timeout: float | None, signal: AbortSignal) -> str | None:
    if ending.reason == "timed_out":
        return (
            f"[The command was stopped, with everything it had started, because it took longer than {timeout:g} s. "
            "Give a larger `timeout`, or run it in the background.]"
        )
    if ending.reason == "aborted":
        return f"[The command was aborted{reason_of(signal)}.]"
    code = ending.exit_code
    if code == 0:
        return None
    if code is None:
        return "[How the command ended is not known.]"
    if code < 0:
        return f"[The command was killed by {_signal_name(-code)}.]"
    killed = f", killed by {_signal_name(code - 128)}" if code - 128 in set(signals.Signals) else ""
    return f"[The command failed with exit code {code}{killed}.]"


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
