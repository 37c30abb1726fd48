"""The command `agentcore`: asks a model once, or holds a conversation, with tools that work in a folder."""

from __future__ import annotations

import argparse
import os
import select
import signal
import stat
import sys
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

from agentcore._cli_models import UsageError, choose_model
from agentcore._cli_session import CommandLine
from agentcore._cli_settings import Settings, make_agent, tool_names
from agentcore.models import ThinkingLevel

__all__ = ["main"]

_DONE, _FAILED, _USAGE, _INTERRUPTED = 0, 1, 2, 130
_SECONDS_BEFORE_A_HINT: Final = 3.0

_EPILOG: Final = """\
A prompt may also come from a pipe, alone or after the one that is given. Without any, and in a terminal, a conversation
begins; /help lists its commands. Before bash, write and edit run you are asked, unless --yes is given.

exit status: 0 done, 1 the model failed or a limit ended the run, 2 wrong usage, 130 interrupted

keys come from the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY and so on; AGENTCORE_MODEL names the
model when --model does not. `agentcore --model demo "list the files"` works without a key.
"""


class _Paragraphs(argparse.HelpFormatter):
    """Fits texts to the terminal, a paragraph at a time, and leaves names in one piece."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join("\n".join(self._split_lines(paragraph, width)) for paragraph in text.split("\n\n"))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agentcore",
        description="Ask a model that can use tools.",
        epilog=_EPILOG,
        formatter_class=_Paragraphs,
    )
    add = parser.add_argument
    add("prompt", nargs="?", help="what to do; left out: it is read from a pipe, or a conversation begins")
    add("--model", metavar="PROVIDER/ID", help="the model to ask, or `demo`")
    add(
        "--base-url",
        metavar="URL",
        help="where the model is served; a server of your own gets a key only if the model is named as of its provider",
    )
    add(
        "--api",
        choices=_APIS,
        metavar="NAME",
        help=f"what that server speaks: {', '.join(_APIS)} (left out: {_APIS[0]})",
    )
    add("--tools", default="read,bash,edit,write", metavar="NAMES", help="of read, bash, edit, write; or `none`")
    add("--cwd", metavar="FOLDER", help="the folder that the tools work in (left out: this one)")
    add("--root", metavar="FOLDER", help="a folder that the paths of the tools may not leave (commands of bash may)")
    add("--session", metavar="FILE", help="keep the conversation in this file, and go on with what is in it")
    add("--system", metavar="TEXT", help="the system prompt")
    levels = [str(level) for level in ThinkingLevel]
    add("--thinking", choices=levels, metavar="LEVEL", help=f"how much the model may think: {', '.join(levels)}")
    add("--yes", action="store_true", help="run bash, write and edit without asking")
    add("--json", action="store_true", help="print the events of the run, one JSON object a line")
    add("--max-turns", type=_whole, metavar="N", help="end a run after so many turns")
    add("--max-cost", type=_amount, metavar="USD", help="end a run when it has cost so much")
    add("--version", action="store_true", help="print the version")
    return parser


_APIS: Final = ("openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it is a whole number from 1 on, not {text!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"it is an amount in USD above 0, not {text!r}")
    return amount


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with arguments (left out: those of the process); return its exit status."""
    try:
        return _run(_parser().parse_args(argv))
    except UsageError as error:
        _complain(f"{error}.")
        return _USAGE
    except SystemExit as leave:  # --help
        return leave.code if isinstance(leave.code, int) else _DONE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _let_go_of_output()
        return _FAILED


def _complain(text: str) -> None:
    print(f"agentcore: {' '.join(text.split())}", file=sys.stderr)


def _let_go_of_output() -> None:
    """Keep the interpreter from complaining at its end about an output that nobody reads any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _run(args: argparse.Namespace) -> int:
    if args.version:
        print(f"agentcore {_version()}")
        return _DONE
    prompt = _prompt(args.prompt)
    if prompt is None and (args.json or sys.stdin is None or not sys.stdin.isatty()):
        raise UsageError("there is no prompt: give one as an argument or through a pipe")
    with ExitStack() as stack:
        settings = _settings(args, stack)
        agent, session = make_agent(settings, stack)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # not if it is to be ignored
                stack.callback(signal.signal, number, signal.signal(number, _terminated))
        command_line = CommandLine(agent, session, settings, stack, as_json=args.json, once=prompt is not None)
        return command_line.converse() if prompt is None else command_line.ask(prompt)


def _terminated(number: int, frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def _version() -> str:
    from importlib import metadata  # slow to load, and for nothing else

    try:
        return metadata.version("agentcore-loop")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _settings(args: argparse.Namespace, stack: ExitStack) -> Settings:
    cwd = Path(args.cwd or args.root or ".")
    tools = tool_names(args.tools)
    return Settings(
        model=choose_model(
            args.model, stack, base_url=args.base_url, api=args.api, reasoning=args.thinking not in (None, "off")
        ),
        model_is_named=args.model is not None,
        base_url=args.base_url,
        api=args.api,
        tools=tools,
        cwd=cwd,
        root=Path(args.root) if args.root else None,
        session_file=Path(args.session) if args.session else None,
        system_prompt=args.system,
        thinking=args.thinking,
        ask_first=not args.yes,
        max_turns=args.max_turns,
        max_cost=args.max_cost,
    )


# --- the prompt -----------------------------------------------------------------------------------------------------


def _prompt(given: str | None) -> str | None:
    """Return what to ask: what was given, and after it what comes through a pipe; `None` for a conversation."""
    piped = _piped_text()
    parts = [part.rstrip("\n") for part in (given, piped) if part is not None and part.strip()]
    if parts:
        return "\n\n".join(parts)
    if given is not None:
        raise UsageError("the prompt is empty")
    return None


def _piped_text() -> str | None:
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # there is no input, or it is no file
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        return None
    data = b""
    hinted = False
    while True:
        if not hinted and not select.select([sys.stdin], [], [], _SECONDS_BEFORE_A_HINT)[0]:
            _complain("waiting for the end of the input (`</dev/null` gives none)")
            hinted = True
        piece = os.read(sys.stdin.fileno(), 65536)
        if not piece:
            return data.decode("utf-8", "replace")
        data += piece
