"""Calls that change one file take turns, whatever path reached it; their waits end, and leave nothing behind."""

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcore.abort import AbortController
from agentcore.toolkit import _file_locks, create_edit_tool, create_write_tool
from agentcore.toolkit._file_locks import exclusive_use
from agentcore.toolkit._results import Refusal

IDLE = AbortController().signal


class Holder:
    """Holds the lock of a file on a thread of its own until it is let go."""

    def __init__(self, path: str, folder: int | None = None) -> None:
        self.held, self.let_go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._hold, args=(folder, path))

    def _hold(self, folder: int | None, path: str) -> None:
        with exclusive_use(folder, path, IDLE):
            self.held.set()
            self.let_go.wait(60)

    def __enter__(self) -> "Holder":
        self.thread.start()
        assert self.held.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self.thread.join(20)


def waiting(path: str, folder: int | None = None) -> bool:
    """Say whether the lock of a file is taken."""
    controller = AbortController()
    controller.abort()
    try:
        with exclusive_use(folder, path, controller.signal):
            return False
    except Refusal:
        return True


def test_one_file_has_one_lock_however_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    path = str(tmp_path / "folder" / "Café.txt")
    folder = os.open(tmp_path / "folder", os.O_RDONLY)
    try:
        with Holder(path):
            assert waiting(path)
            assert waiting(str(tmp_path / "link" / "Café.txt"))
            assert waiting(str(tmp_path / "folder" / "CAFÉ.TXT"))
            assert waiting(str(tmp_path / "folder" / "Cafe\u0301.txt"))
            assert waiting("Café.txt", folder)
            assert not waiting(str(tmp_path / "folder" / "other.txt"))
            assert not waiting(str(tmp_path / "Café.txt"))
        assert not waiting(path)
    finally:
        os.close(folder)


def test_write_and_edit_wait_for_each_other(use, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old\n")
    with ThreadPoolExecutor(2) as pool:
        with Holder(os.path.realpath(path)):
            written = pool.submit(use, create_write_tool(), path=str(path), content="new\n")
            edited = pool.submit(use, create_edit_tool(), path=str(path), find="\n", replacement=" edited\n")
            time.sleep(0.2)
            assert not written.done()
            assert not edited.done()
            assert path.read_text() == "old\n"
        assert not written.result(20).is_error
        assert not edited.result(20).is_error
    assert path.read_text() in ("new edited\n", "new\n")


def test_a_wait_ends_with_the_calls_signal(use, text_of, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old\n")
    controller = AbortController()
    with ThreadPoolExecutor(1) as pool, Holder(os.path.realpath(path)):
        call = pool.submit(use, create_write_tool(), path=str(path), content="new", signal=controller.signal)
        time.sleep(0.1)
        assert not call.done()
        controller.abort("enough")
        result = call.result(5)

    assert text_of(result) == (
        "The call was aborted: enough, while it waited for another one that changes the same file. Nothing was changed."
    )
    assert path.read_text() == "old\n"


def test_turns_are_passed_on_when_one_who_waits_gives_up(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    controllers = [AbortController() for _ in range(6)]
    entered = []

    def work(number: int) -> None:
        try:
            with exclusive_use(None, path, controllers[number].signal):
                entered.append(number)
        except Refusal:
            entered.append(-number)

    with ThreadPoolExecutor(6) as pool:
        with Holder(path):
            calls = [pool.submit(work, number) for number in range(1, 6)]
            time.sleep(0.1)
            controllers[2].abort()
            controllers[4].abort()
        for call in calls:
            call.result(20)

    assert sorted(entered) == [-4, -2, 1, 3, 5]


def test_only_one_is_inside_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    inside = []
    most = []

    def work() -> None:
        for _ in range(50):
            with exclusive_use(None, path, IDLE):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(most) == 400
    assert max(most) == 1


def test_locks_are_forgotten_when_nobody_needs_them(use, tmp_path: Path) -> None:
    for number in range(100):
        use(create_write_tool(), path=str(tmp_path / f"file-{number}"), content="x")
    gc.collect()

    assert len(_file_locks._locks) == 0


def test_a_lock_is_given_back_when_its_holder_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusive_use(None, str(tmp_path / "file"), IDLE):
        raise ZeroDivisionError

    assert not waiting(str(tmp_path / "file"))


def test_a_waiting_signal_keeps_no_callback(tmp_path: Path) -> None:
    controller = AbortController()
    path = str(tmp_path / "file")
    with ThreadPoolExecutor(1) as pool:
        with Holder(path):
            call = pool.submit(lambda: waits(path, controller))
            time.sleep(0.1)
            assert len(controller.signal._hooks.callbacks) == 1
        call.result(20)

    assert not controller.signal._hooks.callbacks


def waits(path: str, controller: AbortController) -> None:
    with exclusive_use(None, path, controller.signal):
        pass


CTRL_C = """
import os, signal, sys, threading, time
from agentcore.abort import AbortController
from agentcore.toolkit import create_write_tool
from agentcore.toolkit._file_locks import exclusive_use
path = sys.argv[1]
held = threading.Event()
def hold():
    with exclusive_use(None, path, AbortController().signal):
        held.set()
        time.sleep(1.5)
threading.Thread(target=hold, daemon=True).start()
held.wait()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
started = time.monotonic()
try:
    create_write_tool().execute("1", {"path": path, "content": "x"}, None, None, None)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - started < 1.2)
print(create_write_tool().execute("1", {"path": path, "content": "y"}, None, None, None).is_error)
"""


def test_ctrl_c_ends_a_wait_and_the_lock_can_be_had_afterwards(python, tmp_path: Path) -> None:
    output, errors = python(CTRL_C, os.path.realpath(tmp_path / "file")).communicate(timeout=30)

    assert (output, errors) == ("interrupted True\nFalse\n", "")
    assert (tmp_path / "file").read_text() == "y"
