"""Long output: what is shown, what is kept in a file, and what it costs."""

import itertools
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.abort import AbortSignal
from agentcore.toolkit import BashToolOptions, Truncation, _output, create_bash_tool
from tests.toolkit.conftest import text_of_result, use_tool


def body_of(text: str) -> str:
    """Return a result's text without the notes around it."""
    text = re.sub(r"\A\[Output of [^\n]*\]\n", "", text)
    return re.sub(r"\[The command [^\n]*\]\Z", "", text)


def test_the_end_of_long_output_is_shown_and_the_rest_is_accounted_for(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path))
    result = use(tool, command="seq 49999; echo FAILED test_x; exit 1")
    text = text_of(result)
    total = len("".join(f"{number}\n" for number in range(1, 50_000)) + "FAILED test_x\n")

    assert text.startswith(
        "[Output of 50,000 lines, 282 KiB; shown: lines 48001-50000; left out before: 48,000 lines, 27"
    )
    assert body_of(text).startswith("48001\n48002\n")
    assert text.endswith("\n49999\nFAILED test_x\n[The command failed with exit code 1.]")
    assert result.details.truncation == Truncation(
        kept="tail",
        limit="lines",
        shown_lines=2000,
        shown_bytes=1999 * 6 + 14,
        total_lines=50_000,
        total_bytes=total,
    )
    assert result.details.full_output_path in text
    assert len(Path(result.details.full_output_path).read_text()) == total


def test_wide_lines_are_limited_by_bytes(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path))
    result = use(tool, command="for i in $(seq 200); do printf '%01000d\\n' $i; done")
    body = body_of(text_of(result))

    assert result.details.truncation.limit == "bytes"
    assert len(body) == result.details.truncation.shown_bytes == 51 * 1001
    assert body.startswith("0000")
    assert body.endswith("0200\n")
    assert "left out before: 149 lines" in text_of(result)


def test_of_one_endless_line_the_end_is_shown(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path))
    result = use(tool, command="head -c 200000 /dev/zero | tr '\\0' x; printf END")
    body = body_of(text_of(result))

    assert body == "x" * (50 * 1024 - 3) + "END"
    assert result.details.truncation.partial_line
    assert "shown: the last 50 KiB of the last line; left out before: a part of it, 145 KiB" in text_of(result)


def test_output_at_the_limit_is_shown_whole_and_kept_nowhere(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path))

    assert use(tool, command="seq 2000").details.truncation is None
    assert use(tool, command="head -c 51200 /dev/zero | tr '\\0' x").details.truncation is None
    assert list(tmp_path.iterdir()) == []
    assert use(tool, command="seq 2001").details.truncation is not None
    assert use(tool, command="head -c 51201 /dev/zero | tr '\\0' x").details.truncation is not None
    assert len(list(tmp_path.iterdir())) == 2


def ways_to_end(command: str, folder: Path):
    """Run a command that prints in every way that it can end."""
    tool = create_bash_tool(BashToolOptions(output_folder=folder))
    # The seconds are there for the printing; on a busy machine it takes a while to begin.
    ways = [
        lambda: use_tool(tool, command=command),
        lambda: use_tool(tool, command=f"{command}; exit 3"),
        lambda: use_tool(tool, command=f"{command}; exec sleep 300", timeout=2),
        lambda: use_tool(tool, command=f"{command}; exec sleep 300", signal=AbortSignal.timeout(2)),
        lambda: use_tool(tool, command=f"{command}; kill -9 $$"),
    ]
    with ThreadPoolExecutor(len(ways)) as pool:
        return [call.result() for call in [pool.submit(way) for way in ways]]


PRINTING = [
    "seq 30000",
    "head -c 300000 /dev/urandom",
    "head -c 300000 /dev/zero",
    "for i in 1 2 3 4 5 6 7 8; do printf '%040000d\\n' $i; done",
    "seq 3000 | sed 's/$/é漢🎙/'",
    "seq 60000 | tr '\\n' '\\r'",
]


def test_the_limits_hold_for_any_output_on_every_exit(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(PRINTING)) as pool:
        results = list(pool.map(lambda command: ways_to_end(command, tmp_path), PRINTING))
    reasons = [(each.details.timed_out, each.details.aborted, each.details.exit_code) for each in results[0]]

    assert reasons == [(False, False, 0), (False, False, 3), (True, False, -15), (False, True, -15), (False, False, -9)]
    for result in itertools.chain.from_iterable(results):
        text, truncation = text_of_result(result), result.details.truncation
        body = body_of(text)
        assert truncation is not None, text
        assert len(body.encode()) <= 50 * 1024 + 1
        assert body.count("\n") <= 2000
        assert len(text) - len(body) < 600
        assert truncation.shown_bytes >= 3000
        # A note begins on a line of its own.
        assert len(body.encode()) - truncation.shown_bytes in (0, 1)
        assert result.details.full_output_path in text
    assert len({result.details.full_output_path for result in itertools.chain.from_iterable(results)}) == 30


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 3000).map(lambda n: b"x" * n), max_size=8),
    st.integers(1, 40),
    st.integers(1, 4000),
)
@settings(max_examples=40)
def test_the_limits_hold_for_random_output_and_random_limits(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], max_lines: int, max_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("out")
    (folder / "data").write_bytes(b"".join(pieces))
    options = BashToolOptions(max_lines=max_lines, max_bytes=max_bytes, cwd=folder, output_folder=folder)
    result = use_tool(create_bash_tool(options), command="cat data")
    text, truncation = text_of_result(result), result.details.truncation
    if truncation is None:
        assert len(list(folder.iterdir())) == 1
        assert text == "(no output)" or len(text.encode()) <= max_bytes
        return
    whole = Path(result.details.full_output_path).read_bytes().decode()
    body = text.partition("\n")[2]
    if not body.strip():
        return  # nothing but white space is shown as words
    assert whole.endswith(body)
    assert len(body.encode()) == truncation.shown_bytes <= max_bytes
    assert body.count("\n") + (not body.endswith("\n")) == truncation.shown_lines <= max_lines
    assert truncation.total_bytes == len(whole.encode())
    assert truncation.total_lines == whole.count("\n") + (not whole.endswith("\n"))
    assert truncation.partial_line or whole == body or whole[-len(body) - 1] == "\n"


# --- the file ---


def test_the_file_holds_what_was_printed_as_harmless_text(use, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path))
    result = use(tool, command="printf '\\033[31mred\\033[0m caf\\xe9\\n'; seq 3000")

    assert Path(result.details.full_output_path).read_text().startswith("red caf\ufffd\n1\n2\n")


def test_files_are_private_with_unpredictable_names(use, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path))
    old = os.umask(0)
    try:
        paths = [Path(use(tool, command="seq 3000").details.full_output_path) for _ in range(20)]
    finally:
        os.umask(old)

    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert len({path.name for path in paths}) == 20
    assert all(re.fullmatch(r"agentcore-bash-[0-9a-f]{16}\.log", path.name) for path in paths)


def test_a_link_that_was_planted_at_the_files_name_is_not_followed(use, tmp_path: Path, monkeypatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    names = iter(["planted", "planted", "free"])
    monkeypatch.setattr("secrets.token_hex", lambda _length: next(names))
    (tmp_path / "agentcore-bash-planted.log").symlink_to(victim)

    result = use(create_bash_tool(BashToolOptions(output_folder=tmp_path)), command="seq 3000")

    assert victim.read_text() == "precious"
    assert result.details.full_output_path == str(tmp_path / "agentcore-bash-free.log")


def test_the_file_does_not_grow_beyond_its_limit(use, text_of, tmp_path: Path) -> None:
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path, max_file_bytes=100_000))
    result = use(tool, command="seq 100000")

    assert Path(result.details.full_output_path).stat().st_size == 100_000
    assert "(only its first part: there is more than the tool keeps)" in text_of(result)
    assert text_of(result).endswith("\n100000\n")


def test_a_file_that_just_fits_is_whole(use, text_of, tmp_path: Path) -> None:
    size = len("".join(f"{number}\n" for number in range(1, 3001)))
    tool = create_bash_tool(BashToolOptions(output_folder=tmp_path, max_file_bytes=size))

    assert "only its first part" not in text_of(use(tool, command="seq 3000"))


def test_a_folder_that_cannot_take_the_file_does_not_cost_the_output(use, text_of, tmp_path: Path) -> None:
    result = use(create_bash_tool(BashToolOptions(output_folder=tmp_path / "none")), command="seq 3000")

    assert not result.is_error
    assert result.details.full_output_path is None
    assert "The rest is lost (not all of it could be kept: no such file or folder)" in text_of(result)
    assert text_of(result).endswith("\n3000\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_cost_the_output(use, text_of, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(_output, "open_into", lambda held, *_: held.append(os.open("/dev/full", os.O_WRONLY)))

    result = use(create_bash_tool(BashToolOptions(output_folder=tmp_path)), command="seq 3000")

    assert ".log (not all of it could be kept: no space left on the disk)" in text_of(result)
    assert text_of(result).endswith("\n3000\n")


# --- what it costs ---

MEASURED = r"""
import os, pathlib, re, resource, sys
from agentcore.abort import AbortSignal
from agentcore.toolkit import BashToolOptions, create_bash_tool
command, folder, timeout, abort = sys.argv[1:]
def peak():
    # What `getrusage` tells of a process on Linux includes what its parent had used before it was replaced.
    if os.path.exists("/proc/self/status"):
        return int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
tool = create_bash_tool(BashToolOptions(output_folder=folder))
tool.execute("0", {"command": "seq 3000"}, None, None, None)
before = peak()
updates = []
params = {"command": command, **({"timeout": float(timeout)} if timeout else {})}
signal = AbortSignal.timeout(float(abort)) if abort else None
result = tool.execute("1", params, signal, lambda update: updates.append(len(update.content[0].text)), None)
print(peak() - before, max(updates, default=0), len(result.content[0].text), result.details.truncation.total_bytes)
"""

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("command", "timeout", "abort", "at_least"),
    [
        ("yes | head -c 500000000", "", "", 500_000_000),
        ("yes", "1", "", 20_000_000),
        ("yes", "", "1", 20_000_000),
        ("head -c 150000000 /dev/zero | tr '\\0' x", "", "", 150_000_000),
        ("head -c 10000000 /dev/urandom", "", "", 10_000_000),
    ],
    ids=["half a gigabyte", "timeout", "abort", "one line", "random bytes"],
)
def test_memory_stays_bounded(python, tmp_path: Path, command: str, timeout: str, abort: str, at_least: int) -> None:
    output, errors = python(MEASURED, command, tmp_path, timeout, abort).communicate(timeout=100)
    grown, longest_update, length, total = map(int, output.split()) if output else pytest.fail(errors)
    for path in tmp_path.iterdir():
        path.unlink()

    assert grown < 60 * MEBIBYTE
    assert longest_update <= 50 * 1024
    assert length < 51 * 1024
    assert total >= at_least
