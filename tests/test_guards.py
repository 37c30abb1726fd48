"""The guards of conftest.py can fail: each is shown a test that breaks it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
Outcome = subprocess.CompletedProcess[str]
RunTest = Callable[..., Outcome]


@pytest.fixture
def run_guarded_test(tmp_path: Path) -> RunTest:
    """Return a function that runs a test's source under a copy of the real conftest.py, in a process of its own."""

    def run(
        source: str,
        env: dict[str, str] | None = None,
        seconds_per_test: int = 120,
        before: Callable[[], object] | None = None,
    ) -> Outcome:
        conftest = CONFTEST.read_text(encoding="utf-8")
        limit = "SECONDS_PER_TEST = 120\n"
        assert limit in conftest
        (tmp_path / "conftest.py").write_text(
            conftest.replace(limit, f"SECONDS_PER_TEST = {seconds_per_test}\n"), encoding="utf-8"
        )
        (tmp_path / "test_it.py").write_text(textwrap.dedent(source), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:llmock", str(tmp_path)]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            preexec_fn=before,
        )

    return run


def test_tests_that_run_in_the_background_of_a_shell_can_be_interrupted_all_the_same(run_guarded_test: RunTest) -> None:
    outcome = run_guarded_test(
        """
        import signal
        import subprocess
        import sys

        import pytest

        def test_here():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

        def test_in_a_child():
            code = "import signal; signal.raise_signal(signal.SIGINT)"
            assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode
        """,
        before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert outcome.returncode == 0, outcome.stdout


def test_a_thread_left_behind_fails_the_test_that_left_it_and_is_named(run_guarded_test: RunTest) -> None:
    outcome = run_guarded_test(
        """
        import threading
        release = threading.Event()

        def test_leaks():
            threading.Thread(target=release.wait, name="agentcore-tool-stuck-1", daemon=True).start()

        def test_is_not_blamed_for_the_thread_before_it():
            pass

        def test_may_leave_foreign_threads():
            threading.Thread(target=release.wait, name="somebody-else", daemon=True).start()

        def test_ends_its_thread_shortly_after():
            threading.Thread(target=release.wait, args=(0.1,), name="agentcore-stream-1", daemon=True).start()
        """
    )

    assert outcome.returncode == 1
    assert "4 passed, 1 error" in outcome.stdout
    assert "threads still running after the test: agentcore-tool-stuck-1" in outcome.stdout
    assert "ERROR at teardown of test_leaks" in outcome.stdout


def test_a_thread_that_is_being_started_is_waited_for(run_guarded_test: RunTest) -> None:
    outcome = run_guarded_test(
        """
        import threading

        def test_ends_while_a_thread_is_being_started():
            starting = threading.Thread(target=len, args=("",), name="agentcore-tool-1", daemon=True)
            threading._limbo[starting] = starting  # listed already, not to be joined yet
            begun = threading.Event()

            def start():
                begun.wait(0.1)
                starting.start()

            threading.Thread(target=start, daemon=True).start()
        """
    )

    assert outcome.returncode == 0, outcome.stdout


def test_an_address_off_the_loopback_fails_the_test_even_when_the_error_is_swallowed(run_guarded_test: RunTest) -> None:
    outcome = run_guarded_test(
        """
        import socket
        import pytest

        def connect(sock):
            sock.connect(("192.0.2.7", 80))

        def connect_ex(sock):
            sock.connect_ex(("192.0.2.7", 80))

        def send_a_datagram(sock):
            sock.sendto(b"x", ("192.0.2.7", 53))

        def create_connection(sock):
            socket.create_connection(("192.0.2.7", 80), timeout=1)

        def connect_by_name(sock):
            sock.connect(("192.0.2.7.example", 80))

        @pytest.mark.parametrize("reach", [connect, connect_ex, send_a_datagram, create_connection, connect_by_name])
        def test_reaches_out(reach):
            with socket.socket(type=socket.SOCK_DGRAM) as sock:
                try:
                    reach(sock)
                except BaseException as error:
                    assert "192.0.2.7" in str(error)
        """
    )

    assert outcome.returncode == 1, outcome.stdout
    assert "5 passed, 5 errors" in outcome.stdout
    assert outcome.stdout.count("\ntests stay on the loopback interface; this one tried ('192.0.2.7") == 5


def test_loopback_and_unix_sockets_are_allowed(run_guarded_test: RunTest) -> None:
    outcome = run_guarded_test(
        """
        import socket

        def test_connects(tmp_path):
            with socket.create_server(("127.0.0.1", 0)) as server:
                for host in ("127.0.0.1", "localhost"):
                    with socket.socket() as client:
                        client.connect((host, server.getsockname()[1]))
            with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
                server.bind(str(tmp_path / "s"))
                server.listen()
                client.connect(str(tmp_path / "s"))
        """
    )

    assert outcome.returncode == 0, outcome.stdout


def test_keys_proxies_and_certificates_from_outside_do_not_reach_the_tests(run_guarded_test: RunTest) -> None:
    names = [
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "SOME_OTHER_API_KEY",
        "HTTP_PROXY",
        "https_proxy",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
    ]
    outcome = run_guarded_test(
        f"""
        import os

        def test_sees_none():
            assert [name for name in {names} if name in os.environ] == []
            assert "PATH" in os.environ
        """,
        env=dict.fromkeys(names, "from outside"),
    )

    assert outcome.returncode == 0, outcome.stdout


def test_a_test_that_hangs_ends_the_run_with_a_dump_of_every_thread(run_guarded_test: RunTest) -> None:
    outcome = run_guarded_test(
        """
        import threading

        def test_hangs():
            threading.Event().wait()
        """,
        seconds_per_test=1,
    )

    assert outcome.returncode == 1
    assert "Timeout (0:00:01)!" in outcome.stderr
    assert "in test_hangs" in outcome.stderr
