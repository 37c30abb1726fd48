"""The public types say what they should to a user who runs mypy --strict."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
USER_CODE = Path(__file__).with_name("user_code.py")

needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
    )


@needs_mypy
def test_a_users_program_type_checks_and_its_marked_mistakes_are_found() -> None:
    outcome = mypy(USER_CODE)

    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")


@needs_mypy
def test_a_mistake_that_the_types_do_not_find_would_be_reported(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from agentcore import Limits\n\nLimits(turns=1)  # type: ignore[arg-type]\n", encoding="utf-8")

    outcome = mypy(program)

    assert outcome.returncode == 1
    assert 'Unused "type: ignore" comment' in outcome.stdout


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "agentcore" / "py.typed").is_file()
