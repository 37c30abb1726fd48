"""A root is not left by any path, and does not get in the way of one that stays inside."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.toolkit import (
    BashToolOptions,
    EditToolOptions,
    ReadToolOptions,
    WriteToolOptions,
    _files,
    _paths,
    coding_tools,
    create_bash_tool,
    create_edit_tool,
    create_read_tool,
    create_write_tool,
)
from agentcore.tools import AgentTool, AgentToolResult
from tests.toolkit.conftest import text_of_result, use_tool

Attempt = Callable[[Path, str], AgentToolResult]


def read(root: Path, path: str) -> AgentToolResult:
    return use_tool(create_read_tool(ReadToolOptions(root=root)), path=path)


def write(root: Path, path: str) -> AgentToolResult:
    return use_tool(create_write_tool(WriteToolOptions(root=root)), path=path, content="changed")


def edit(root: Path, path: str) -> AgentToolResult:
    return use_tool(create_edit_tool(EditToolOptions(root=root)), path=path, find="content", replacement="changed")


ATTEMPTS = [read, write, edit]


def make_root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "inner" / "deep").mkdir(parents=True)
    for folder in (root, root / "inner", tmp_path / "outside", tmp_path / "root-evil"):
        folder.mkdir(exist_ok=True)
        (folder / "file.txt").write_text("content")
    (root / "to_outside").symlink_to(tmp_path / "outside")
    (root / "file_link").symlink_to(tmp_path / "outside" / "file.txt")
    (root / "dangling").symlink_to(tmp_path / "outside" / "new.txt")
    (root / "chain").symlink_to("file_link")
    (root / "up").symlink_to("..")
    (root / "inside_link").symlink_to("inner")
    (root / "inner" / "back").symlink_to(root)
    (root / "relative_link").symlink_to("inner/../inner/file.txt")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with links that lead out of it and links that do not, and things outside that nobody may touch."""
    return make_root(tmp_path)


def beside(root: Path) -> dict[str, str]:
    """Return all files beside the root, with their content."""
    files = [path for path in root.parent.rglob("*") if root not in path.parents and path.is_file()]
    return {str(path): path.read_text() for path in files}


@pytest.fixture
def outside(root: Path) -> Callable[[], dict[str, str]]:
    """`outside()` returns all files beside the root, with their content."""

    return lambda: beside(root)


ESCAPES = [
    "../outside/file.txt",
    "../new.txt",
    "inner/../../outside/file.txt",
    "inner/deep/../../../outside/file.txt",
    "no/such/../../../outside/file.txt",
    "/etc/passwd",
    "/",
    "..",
    "to_outside/file.txt",
    "to_outside/new.txt",
    "to_outside/new/folder/file.txt",
    "to_outside",
    "file_link",
    "dangling",
    "chain",
    "up/outside/file.txt",
    "up/new.txt",
    "inside_link/../../outside/file.txt",
    "inner/back/../outside/file.txt",
    "../root-evil/file.txt",
    "~/file.txt",
    "@../outside/file.txt",
    "'../outside/file.txt'",
    "{root}/../outside/file.txt",
    "{root}-evil/file.txt",
    "{root}-evil/new.txt",
    "{tmp}/outside/file.txt",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_path_leads_outside(
    root: Path, outside, monkeypatch: pytest.MonkeyPatch, attempt: Attempt, path: str
) -> None:
    monkeypatch.setenv("HOME", str(root.parent / "outside"))
    before = outside()
    # `@` is no more than a part of a name to the write tool: that file would be inside.
    if path.startswith("@") and attempt is write:
        path = path[1:]

    result = attempt(root, path.format(root=root, tmp=root.parent))

    assert result.is_error
    assert f"outside the folder that this tool may use, {os.path.realpath(root)}." in text_of_result(result)
    assert "content" not in text_of_result(result)
    assert outside() == before


INSIDE = [
    "file.txt",
    "./file.txt",
    "inner/../file.txt",
    "inner/file.txt",
    "inside_link/file.txt",
    "inner/back/file.txt",
    "inner/back/inner/back/inner/file.txt",
    "relative_link",
    "up/root/file.txt",
    "{root}/file.txt",
    "{root}/inner/file.txt",
    "{root}/../root/file.txt",
    "'file.txt'",
]


@pytest.mark.parametrize("through_link", [False, True], ids=["root", "link to the root"])
@pytest.mark.parametrize("path", INSIDE)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_every_spelling_of_a_path_inside_works(root: Path, attempt: Attempt, path: str, through_link: bool) -> None:
    if through_link:
        link = root.parent / "link"
        link.symlink_to(root)
        given = link
    else:
        given = root
    absolute = path.startswith("{root}")

    result = attempt(given, path.format(root=given))

    assert not result.is_error, text_of_result(result)
    changed = [file.read_text() for file in (root / "file.txt", root / "inner" / "file.txt")]
    assert sorted(changed) == (["content", "content"] if attempt is read else ["changed", "content"])
    # The root may be spelled one way in the options and another way in the path.
    if absolute:
        assert not read(given, path.format(root=root)).is_error


SEGMENTS = ["", ".", "..", "inner", "deep", "file.txt", "new", "to_outside", "file_link", "dangling", "chain", "up"]
SEGMENTS += ["inside_link", "back", "relative_link", "root", "outside", "root-evil", "circle", "é", "e\u0301"]


@settings(max_examples=60)
@given(segments=st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=6), absolute=st.booleans())
def test_any_path_is_refused_or_allowed_for_where_it_really_leads(
    tmp_path_factory: pytest.TempPathFactory, segments: list[str], absolute: bool
) -> None:
    root = make_root(tmp_path_factory.mktemp("paths"))
    (root / "circle").symlink_to("circle")
    (root / "é").write_text("content")
    before = beside(root)
    path = os.path.join(root if absolute else "", *segments)
    real = Path(os.path.realpath(root / path))
    inside = real == root or root in real.parents
    found = read(root, path)
    if inside and real.is_file():
        assert text_of_result(found) == "content"
    elif real.name != "e\u0301":  # which looks the same as the other one, and so may be found
        assert found.is_error
    changed, written = edit(root, path), write(root, path)

    assert beside(root) == before
    assert written.is_error or real.read_text() == "changed"
    if not inside:
        assert changed.is_error
        assert "is outside the folder" in text_of_result(written)


def test_new_files_and_folders_are_made_inside(root: Path) -> None:
    for path in ("new.txt", "a/b/c/new.txt", "inside_link/new/new.txt", f"{root}/d/new.txt"):
        assert not write(root, path).is_error

    made = {str(path.relative_to(root)) for path in root.rglob("new.txt")}
    assert made == {"new.txt", "a/b/c/new.txt", "inner/new/new.txt", "d/new.txt"}


def test_near_names_and_listings_come_from_inside_only(root: Path) -> None:
    missing = read(root, "fille.txt")
    folder = read(root, "inner")
    whole = read(root, ".")

    assert "Near names: file.txt." in text_of_result(missing) or "file.txt" in text_of_result(missing)
    assert text_of_result(folder) == "inner is a folder, not a file. It holds: back/, deep/, file.txt."
    assert "inside_link/" in text_of_result(whole)


@pytest.mark.parametrize("folder", ["..", "/", "to_outside", "../root-evil", "inner/../../outside"])
def test_a_command_is_not_started_outside(root: Path, folder: str) -> None:
    tool = create_bash_tool(BashToolOptions(root=root))

    result = use_tool(tool, command="touch ran", cwd=folder)

    assert result.is_error
    assert "outside the folder" in text_of_result(result)
    assert not list(root.parent.rglob("ran"))


def test_commands_start_in_the_root_or_in_what_they_name_inside(root: Path) -> None:
    tool = create_bash_tool(BashToolOptions(root=root))
    real = os.path.realpath(root)

    assert text_of_result(use_tool(tool, command="pwd -P")) == f"{real}\n"
    assert text_of_result(use_tool(tool, command="pwd -P", cwd="inside_link")) == f"{real}/inner\n"
    assert text_of_result(use_tool(tool, command="pwd -P", cwd=f"{root}/inner")) == f"{real}/inner\n"


def test_long_output_is_kept_where_bash_can_look_into_it(root: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    result = use_tool(create_bash_tool(BashToolOptions(root=root, output_folder=kept)), command="seq 3000")

    assert f"Full output: {result.details.full_output_path}; look into it with bash]" in text_of_result(result)


def test_the_options_are_checked_when_the_tool_is_made(root: Path) -> None:
    makers = [
        lambda **folders: create_bash_tool(BashToolOptions(**folders)),
        lambda **folders: create_read_tool(ReadToolOptions(**folders)),
        lambda **folders: create_write_tool(WriteToolOptions(**folders)),
        lambda **folders: create_edit_tool(EditToolOptions(**folders)),
        lambda **folders: coding_tools(folders.get("cwd", "."), folders.get("root")),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="is not an existing folder"):
            make(cwd=root, root=root / "none")
        with pytest.raises(ValueError, match="is not an existing folder"):
            make(cwd=root, root=root / "file.txt")
        with pytest.raises(ValueError, match="is outside `root`"):
            make(cwd=root.parent, root=root)
        with pytest.raises(ValueError, match="is outside `root`"):
            make(cwd=root / "to_outside", root=root)
        make(cwd=root / "inside_link", root=root)


def test_paths_start_in_the_folder_and_may_go_up_to_the_root(root: Path) -> None:
    tool = create_read_tool(ReadToolOptions(cwd=root / "inner", root=root))

    assert text_of_result(use_tool(tool, path="file.txt")) == "content"
    assert text_of_result(use_tool(tool, path="../file.txt")) == "content"
    assert use_tool(tool, path="../../outside/file.txt").is_error


def test_without_a_root_no_path_is_refused_for_where_it_is(root: Path) -> None:
    for tool, params in (
        (create_read_tool(ReadToolOptions(cwd=root)), {}),
        (create_edit_tool(EditToolOptions(cwd=root)), {"find": "content", "replacement": "changed"}),
        (create_write_tool(WriteToolOptions(cwd=root)), {"content": "changed"}),
    ):
        assert not use_tool(tool, path="../outside/file.txt", **params).is_error
    assert (root.parent / "outside" / "file.txt").read_text() == "changed"


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="no folder descriptors here")
@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_link_that_is_put_in_the_way_after_the_check_leads_nowhere(
    root: Path, outside, monkeypatch: pytest.MonkeyPatch, attempt: Attempt, part: str
) -> None:
    # What was a folder, or a file, when the path was checked is a link to the outside when it is opened.
    before = outside()
    resolved = _paths.Place._resolved

    def resolve_and_swap(self, given: str, spelling: str):
        target = resolved(self, given, spelling)
        if part == "folder" and not (root / "inner").is_symlink():
            (root / "inner").rename(root / "moved")
            (root / "inner").symlink_to(root.parent / "outside")
        if part == "file" and not (root / "inner" / "file.txt").is_symlink():
            (root / "inner" / "file.txt").unlink()
            (root / "inner" / "file.txt").symlink_to(root.parent / "outside" / "file.txt")
        return target

    monkeypatch.setattr(_paths.Place, "_resolved", resolve_and_swap)
    result = attempt(root, "inner/file.txt")

    assert result.is_error
    assert outside() == before


@pytest.mark.parametrize("attempt", [read, edit])
def test_a_link_that_takes_the_place_of_a_file_at_the_last_moment_leads_nowhere(
    root: Path, outside, monkeypatch: pytest.MonkeyPatch, attempt: Attempt
) -> None:
    before = outside()
    check = _files.refuse_special

    def check_and_swap(found: os.stat_result, *rest: object) -> None:
        check(found, *rest)
        if not (root / "file.txt").is_symlink():
            (root / "file.txt").unlink()
            (root / "file.txt").symlink_to(root.parent / "outside" / "file.txt")

    monkeypatch.setattr(_files, "refuse_special", check_and_swap)
    result = attempt(root, "file.txt")

    assert result.is_error
    assert "symbolic link" in text_of_result(result)
    assert outside() == before


def test_links_that_come_and_go_never_let_a_write_out(root: Path) -> None:
    stop = threading.Event()
    target = root / "inner" / "deep"

    aside = root / "aside"
    steps = [
        lambda: target.rename(aside),
        lambda: target.symlink_to(root.parent / "outside"),
        target.unlink,
        lambda: aside.rename(target),
    ]

    def swap() -> None:
        while not stop.is_set():
            shutil.rmtree(aside, ignore_errors=True)
            for step in steps:
                try:
                    step()
                except OSError:
                    pass  # the tool has made the folder that it missed

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        results = [write(root, "inner/deep/victim.txt") for _ in range(300)]
    finally:
        stop.set()
        thread.join(20)

    assert sorted(os.listdir(root.parent / "outside")) == ["file.txt"]
    assert {result.is_error for result in results} == {True, False}
    assert list(root.rglob("*.tmp")) == []


def test_the_four_tools_come_together(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("content")
    tools: list[AgentTool] = coding_tools(tmp_path)
    confined = coding_tools(tmp_path, root=tmp_path)

    assert [tool.name for tool in tools] == [tool.name for tool in confined] == ["bash", "read", "write", "edit"]
    assert text_of_result(use_tool(tools[0], command="ls")) == "file.txt\n"
    assert text_of_result(use_tool(tools[1], path="file.txt")) == "content"
    assert not use_tool(tools[2], path="../elsewhere.txt", content="x").is_error
    assert use_tool(confined[2], path="../elsewhere.txt", content="x").is_error
    assert not use_tool(tools[3], path="file.txt", find="content", replacement="c").is_error
