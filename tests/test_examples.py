"""Every code block of the README and the docs runs, and so does every example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return the line a block begins at, and its code."""
    text = page.read_text("utf-8")
    return [(text.count("\n", 0, match.start()) + 2, match.group(1)) for match in _BLOCK.finditer(text)]


CASES = [pytest.param(page, line, code, id=f"{page.name}:{line}") for page in PAGES for line, code in blocks(page)]


def test_the_readme_has_examples_to_run():
    assert len(blocks(ROOT / "README.md")) >= 4


@pytest.mark.parametrize(("page", "line", "code"), CASES)
def test_code_block_runs(page: Path, line: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "notes.txt").write_text("first line\nsecond line\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    # The lines before are blank, so that a traceback points at the page's own line.
    exec(compile("\n" * (line - 1) + code, str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("folder", ["README.md", "docs", "agentcore"])
def test_the_extras_that_texts_name_exist(folder: str):
    extras = ConfigParser()
    extras.read(ROOT / "setup.cfg", "utf-8")
    path = ROOT / folder
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in (".md", ".py")]
    text = "".join(file.read_text("utf-8") for file in files)
    named = set(re.findall(r"pip install (?:-q )?'(?:agentcore-loop|\.)\[(\w+)\]'", text))
    named |= set(re.findall(r"extra `(\w+)`", text))
    assert named
    assert named <= set(extras["options.extras_require"])


def run_example(name: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_to_its_end(example: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("alpha\nbeta\n", "utf-8")
    done = run_example(example.name, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short_enough_to_read(example: Path):
    assert len(example.read_text("utf-8").splitlines()) < 80


def test_quickstart_lists_a_real_directory_and_reads_a_real_file(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "plan.txt").write_text("\nbuy milk\nbuy bread\n", "utf-8")
    (tmp_path / "zoo.txt").write_text("not this one\n", "utf-8")
    out = run_example("quickstart.py", tmp_path).stdout
    assert "→ bash {'command': 'ls -p'}" in out
    assert "| folder/" in out
    assert "→ read {'path': 'plan.txt'}" in out
    assert "I see 2 files here. I read the first one, plan.txt" in out
    assert "buy milk" in out
    assert "Answered by built-in demo model (demo/demo)." in out


def test_quickstart_asks_the_server_that_the_environment_names(tmp_path: Path):
    from agentcore.testing import DemoServer

    (tmp_path / "a.txt").write_text("alpha\n", "utf-8")
    with DemoServer() as server:
        done = run_example(
            "quickstart.py", tmp_path, OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_API_KEY="sk-test", OPENAI_MODEL="demo"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Answered by demo (openai/demo)." in done.stdout
    assert server.requests[0].headers["Authorization"] == "Bearer sk-test"
    assert "sk-test" not in done.stdout + done.stderr


def test_quickstart_says_in_one_line_what_went_wrong(tmp_path: Path):
    done = run_example("quickstart.py", tmp_path, OPENAI_BASE_URL="http://127.0.0.1:9/v1", OPENAI_API_KEY="sk-test")
    assert done.returncode == 1
    assert "The model failed: " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
