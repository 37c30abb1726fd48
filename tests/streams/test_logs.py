"""What is logged: who said it, what it leaves out, and that it neither costs nor breaks anything."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentcore import _logs


class Broken(logging.Handler):
    """Fails at every record."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("reentrant call")


@pytest.fixture
def broken_handler() -> Iterator[None]:
    """Have a handler fail at all that the package logs."""
    handler = Broken()
    logging.getLogger("agentcore").addHandler(handler)
    yield
    logging.getLogger("agentcore").removeHandler(handler)


def test_a_failure_is_logged_by_its_class_and_in_full_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "agentcore")
    _logs.log_failure("agent", ValueError("the details"), "a listener failed at `%s`", "agent_start")
    error, debug = caplog.records
    assert (error.name, error.levelname) == ("agentcore.agent", "ERROR")
    assert error.getMessage() == "a listener failed at `agent_start`: ValueError"
    assert error.exc_info is None
    assert (debug.levelname, debug.getMessage()) == ("DEBUG", "a listener failed at `agent_start`")
    assert debug.exc_info is not None
    assert "the details" in caplog.text


def test_what_is_told_elsewhere_is_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agentcore")
    _logs.log_details("loop", ValueError("the details"), "a stream function failed")
    assert caplog.records == []


def test_a_record_names_the_place_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "agentcore")
    _logs.log_failure("loop", ValueError("x"), "it failed")
    _logs.log_details("loop", ValueError("x"), "it failed")
    _logs.log_warning("loop", "%d calls were given up", 2)
    assert {record.filename for record in caplog.records} == {"test_logs.py"}
    assert len(caplog.records) == 4


@pytest.mark.usefixtures("broken_handler")
def test_a_handler_that_fails_stops_nothing() -> None:
    _logs.log_failure("loop", ValueError("x"), "it failed")
    _logs.log_details("loop", ValueError("x"), "it failed")
    _logs.log_warning("loop", "it failed")


SAYS_SOMETHING = """
from agentcore import AbortController
controller = AbortController()
controller.signal.add_callback(lambda: 1 / 0)
controller.abort()
"""


def test_a_program_that_has_set_up_no_logging_sees_nothing_on_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS_SOMETHING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_has_set_up_logging_before_or_after_the_import_sees_it() -> None:
    set_up = "import logging; logging.basicConfig(format='%(name)s %(levelname)s')\n"
    for code in (set_up + SAYS_SOMETHING, f"import agentcore; {set_up}{SAYS_SOMETHING}"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "agentcore.abort ERROR\n")
