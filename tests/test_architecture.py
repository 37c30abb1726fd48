"""The layers, sizes and import rules of the package hold, and the checker that says so can fail."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "agentcore"


@dataclass(frozen=True)
class Layer:
    """Modules, named relative to the package, that may import from every layer of a lower rank."""

    rank: int
    name: str
    modules: tuple[str, ...]
    within: str
    """Who may import whom within the layer: `downward` (those listed before it), `freely`, or `never`."""


def layer(rank: int, name: str, modules: str, *, within: str = "downward") -> Layer:
    return Layer(rank, name, tuple(modules.split()), within)


ROOT = "__init__"

LAYERS = [
    layer(0, "values", "_logs _keys _displayed _records content errors messages models partial events"),
    layer(1, "primitives", "_interrupts _mailbox _workers _scope abort streams"),
    layer(
        2,
        "contracts",
        "_foreign _problems _argument_work _coercion _docstrings _annotations _shapes _signature _arguments tools convert tokens config",
    ),
    layer(3, "loop", "_tool_calls _tool_workers _tool_batch _run _response loop"),
    layer(4, "front", "_queues _prompts _resume _listeners _conversation _agent_settings _agent_run agent"),
    layer(
        5,
        "provider parts",
        """providers._partial_json providers._sse providers._overflow providers._retry providers._failures
        providers._connections providers._network_errors providers._payload providers._request providers._http providers._replay
        providers.dialects providers._stop_reasons providers._call_matching providers._assembler providers._exchange
        providers._chat_reading providers._anthropic_reading providers._google_reading providers._responses_reading
        providers._thinking_levels providers._tool_schema providers.catalog""",
    ),
    layer(
        6,
        "provider APIs",
        """providers.openai_completions providers.openai_responses providers.anthropic_messages
        providers.google_generative_ai""",
        within="never",
    ),
    layer(7, "provider dispatch", "providers"),
    # The package itself re-exports what is below; the batteries import from where a name is defined.
    layer(8, "the package's names", ROOT),
    layer(
        8,
        "toolkit",
        """toolkit toolkit.bash toolkit.read toolkit.write toolkit.edit toolkit._aliases toolkit._atomic toolkit._diff
        toolkit._escaped toolkit._file_locks toolkit._files toolkit._matching toolkit._output toolkit._paths toolkit._process
        toolkit._results toolkit._terminal_text toolkit._truncate""",
        within="freely",
    ),
    layer(8, "approvals", "approvals"),
    layer(
        8,
        "conversations that last",
        "sessions sessions.tree sessions._lines sessions._files sessions.jsonl compaction _summaries",
        within="freely",
    ),
    layer(
        8,
        "testing",
        """testing testing.scripted testing.gate testing.sse_server testing.proxy_server testing.demo testing._loopback
        testing.recorder testing.conformance""",
        within="freely",
    ),
    layer(
        8,
        "what a person sees",
        """display display._text display._markdown display._html display._values display._progress display._plain
        display._screen display.terminal display.notebook""",
        within="freely",
    ),
    # The command puts the batteries together.
    layer(
        9,
        "the command",
        """_cli_models _cli_settings _cli_keyboard _cli_approvals _cli_history _cli_commands _cli_session cli __main__""",
    ),
]

LAZY_SEAMS = {("loop", "providers"), ("_agent_settings", "providers.catalog"), ("_displayed", "display._values")}
"""Imports upward, inside a function: the loop looks up its default stream function at the first call, an agent the
model that it was given by name, and a value how it is shown when a notebook shows it."""

AT_MODULE_LEVEL = {"attrs"}
"""The one package that any module may import at module level; all others are imported on first use."""

ON_FIRST_USE = {
    "requests": {"providers._http"},
    "urllib3": {"providers._http", "providers._connections", "providers._network_errors"},
    "jsonschema": {"_arguments"},
    "referencing": {"_arguments"},
    "docstring_parser": {"_docstrings"},
    "filelock": {"sessions._files"},
    "markdown_it": {"display._markdown"},
    "rich": {"display._screen", "display.terminal"},
    "IPython": {"display.notebook"},
}

IMPORTING_FUNCTIONS = ("import_module", "importlib.import_module", "__import__")

FILE_LINES = 500
LOOP_LINES = 400
FUNCTION_LINES = 60


@dataclass(frozen=True)
class Import:
    """One imported module, and when it is imported."""

    target: str
    line: int
    in_function: bool
    for_types: bool
    """True: below `if TYPE_CHECKING:`, so never at run time."""


def problems(package: Path) -> list[str]:
    """Return what is wrong with the package in this folder, one line a problem; an empty list when nothing is."""
    modules = {module_name(package, path): path for path in sorted(package.rglob("*.py"))}
    found = []
    for name, path in modules.items():
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source, str(path))
        checks = [
            *size_problems(name, source, tree),
            *text_problems(path, tree),
            *import_problems(package.name, name, imports_of(package, path, tree, set(modules))),
        ]
        found += [f"{path.relative_to(package.parent)}: {check}" for check in dict.fromkeys(checks)]
    return found


def module_name(package: Path, path: Path) -> str:
    """Return the dotted name relative to the package; a package's own name for its `__init__`, `ROOT` for the top one."""
    parts = path.relative_to(package).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts) or ROOT


def layer_of(module: str) -> Layer | None:
    return next((layer for layer in LAYERS if module in layer.modules), None)


def imports_of(package: Path, path: Path, tree: ast.Module, modules: set[str]) -> list[Import]:
    """Return every import of a module, those inside functions and by `import_module("...")` too, with absolute names."""
    found: list[Import] = []
    folder = [package.name, *path.relative_to(package).parent.parts]

    def visit(node: ast.AST, in_function: bool, for_types: bool) -> None:
        line = getattr(node, "lineno", 0)
        found.extend(Import(target, line, in_function, for_types) for target in targets(node))
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in node.body:
                visit(statement, in_function, True)
            for statement in node.orelse:
                visit(statement, in_function, for_types)
            return
        inner = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inner, for_types)

    def targets(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                # `from package import module` imports the module, `from package import name` the package.
                submodule = f"{origin}.{alias.name}"
                yield submodule if submodule.removeprefix(f"{package.name}.") in modules else origin
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTING_FUNCTIONS:
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield ".".join([*folder, name.lstrip(".")]) if name.startswith(".") else name

    visit(tree, False, False)
    return found


def import_problems(package: str, name: str, imports: list[Import]) -> Iterator[str]:
    own = layer_of(name)
    if own is None:
        yield f"unknown module `{name}`: give it a layer in LAYERS of tests/test_architecture.py"
        return
    for item in imports:
        top = item.target.partition(".")[0]
        if top == package:
            target = item.target.removeprefix(package).removeprefix(".") or ROOT
            problem = layer_problem(name, own, target, item)
        elif top == "asyncio":
            problem = "imports asyncio: the library is synchronous"
        elif top in sys.stdlib_module_names or top in AT_MODULE_LEVEL:
            problem = None
        else:
            problem = package_problem(name, top, item)
        if problem:
            yield f"line {item.line}: {problem}"


def layer_problem(name: str, own: Layer, target: str, item: Import) -> str | None:
    other = layer_of(target)
    if other is None:
        return f"imports `{target}`, which has no layer: give it one in LAYERS of tests/test_architecture.py"
    allowed = (
        other.rank < own.rank
        or (other is own and may_import_within(own, name, target, item))
        or (item.in_function and (name, target) in LAZY_SEAMS)
    )
    if allowed:
        return None
    return f"`{name}` ({own.rank} {own.name}) imports `{target}` ({other.rank} {other.name})"


def may_import_within(own: Layer, name: str, target: str, item: Import) -> bool:
    if own.within == "downward":
        # Two neighbours may name each other's types: at run time the import goes one way.
        return item.for_types or own.modules.index(target) < own.modules.index(name)
    return own.within == "freely"


def package_problem(name: str, top: str, item: Import) -> str | None:
    if top not in ON_FIRST_USE:
        return f"imports {top}, which is not a known dependency: name its importers in ON_FIRST_USE"
    if name not in ON_FIRST_USE[top]:
        return f"imports {top}; only {', '.join(sorted(ON_FIRST_USE[top]))} may"
    if not item.in_function and not item.for_types:
        return f"imports {top} at module level; it is imported on first use"
    return None


def size_problems(name: str, source: str, tree: ast.Module) -> Iterator[str]:
    limit = LOOP_LINES if name == "loop" else FILE_LINES
    lines = len(source.splitlines())
    if lines > limit:
        yield f"{lines} lines, at most {limit}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"line {node.lineno}: function `{node.name}` has {length} lines, at most {FUNCTION_LINES}"
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"line {node.lineno}: asynchronous code: the library is synchronous"


def text_problems(path: Path, tree: ast.Module) -> Iterator[str]:
    docstring = ast.get_docstring(tree) or ""
    first_paragraph = docstring.partition("\n\n")[0]
    if not docstring:
        yield "no docstring that says its responsibility"
    elif not any(mark in first_paragraph for mark in ".:;"):
        yield "the docstring does not open with a sentence"
    exported = declared_all(tree)
    if exported is not None and exported != sorted(set(exported)):
        yield "`__all__` is not sorted, or names something twice"
    if exported is None and path.name == "__init__.py" and re_exports(tree):
        yield "re-exports names without an `__all__`"


def declared_all(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value: list[str] = list(ast.literal_eval(node.value))  # type: ignore[attr-defined]
            return value
    return None


def re_exports(tree: ast.Module) -> bool:
    """Say whether a module binds names of its own package at module level."""
    return any(
        isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] == PACKAGE.name)
        for node in tree.body
    )


def test_the_package_keeps_its_rules() -> None:
    found = problems(PACKAGE)
    assert not found, "\n".join(["", *found])


def test_every_module_has_one_place() -> None:
    listed = [module for layer in LAYERS for module in layer.modules]

    assert len(listed) == len(set(listed))


def test_the_coverage_settings_list_every_module_of_the_core() -> None:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    settings = toml.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    core = {module for layer in LAYERS if layer.rank <= 4 for module in layer.modules}

    assert settings["tool"]["coverage"]["report"]["include"] == sorted(f"agentcore/{name}.py" for name in core)


# --- the checker itself: each rule is shown a package that breaks it ---


def package_with(folder: Path, **sources: str) -> Path:
    """Write a package of these sources; `__` in a name is a dot, a missing docstring line is added."""
    package = folder / PACKAGE.name
    for name, source in {"init": "", **sources}.items():
        path = package.joinpath(*name.replace("init", "__init__").split("___")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Does one thing."""\n{source}', encoding="utf-8")
    return package


def test_a_package_within_the_rules_has_no_problems(tmp_path: Path) -> None:
    package = package_with(
        tmp_path,
        init='from agentcore.errors import AgentCoreError\n__all__ = ["AgentCoreError"]\n',
        errors="import threading\n",
        messages="import attrs\nfrom agentcore import errors\nfrom .errors import AgentCoreError\n",
        _arguments="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jsonschema\n"
        "def check():\n    import jsonschema\n    from referencing import Registry\n",
        loop="import importlib\nfrom agentcore._tool_batch import run\n"
        "def stream():\n    return importlib.import_module('agentcore.providers').stream_response\n",
        _tool_batch="from agentcore import _workers\nif TYPE_CHECKING:\n    from agentcore._run import Run\n",
        _run="from agentcore._tool_batch import ToolBatch\n",
        _workers="",
        providers___init="",
        toolkit___bash="from agentcore.toolkit._truncate import tail\n",
        toolkit____truncate="",
    )

    assert problems(package) == []


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("errors", "from agentcore.loop import run", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "import agentcore.loop", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "from . import loop", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "from .loop import run", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "def late():\n    from agentcore import loop", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "class A:\n    from agentcore import loop", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "if TYPE_CHECKING:\n    from agentcore.loop import run", "`errors` (0 values) imports `loop`"),
        ("errors", "try:\n    pass\nfinally:\n    import agentcore.loop", "`errors` (0 values) imports `loop`"),
        ("errors", "x = importlib.import_module('agentcore.loop')", "`errors` (0 values) imports `loop` (3 loop)"),
        ("errors", "from agentcore import run", "imports `__init__` (8 the package's names)"),
        ("errors", "from agentcore.messages import Usage", "`errors` (0 values) imports `messages` (0 values)"),
        ("_tool_batch", "from agentcore.loop import run", "`_tool_batch` (3 loop) imports `loop` (3 loop)"),
        ("loop", "from agentcore.providers import stream_response", "`loop` (3 loop) imports `providers`"),
        ("loop", "def f():\n    import agentcore.providers._http", "`loop` (3 loop) imports `providers._http`"),
        ("agent", "def f():\n    from agentcore.providers import x", "`agent` (4 front) imports `providers`"),
        ("approvals", "from agentcore.toolkit.bash import create_bash_tool", "imports `toolkit.bash` (8 toolkit)"),
        ("approvals", "from agentcore import Agent", "imports `__init__` (8 the package's names)"),
        ("providers___google_generative_ai", "from . import openai_completions", "imports `providers.openai_comp"),
        ("surprise", "", "unknown module `surprise`: give it a layer"),
        ("toolkit___surprise", "", "unknown module `toolkit.surprise`: give it a layer"),
        ("loop", "from agentcore.surprise import x", "imports `surprise`, which has no layer: give it one"),
        ("loop", "import asyncio", "imports asyncio"),
        ("loop", "def f():\n    from asyncio import run", "imports asyncio"),
        ("loop", "import asyncio.events", "imports asyncio"),
        ("loop", "async def f():\n    pass", "asynchronous code"),
        ("loop", "def f():\n    import requests", "imports requests; only providers._http may"),
        ("config", "if TYPE_CHECKING:\n    import requests", "imports requests; only providers._http may"),
        ("providers____http", "import requests.adapters", "imports requests at module level"),
        ("providers____http", "from urllib3 import PoolManager", "imports urllib3 at module level"),
        ("_arguments", "import jsonschema", "imports jsonschema at module level"),
        ("_arguments", "from referencing import Registry", "imports referencing at module level"),
        ("tools", "def f():\n    import jsonschema", "imports jsonschema; only _arguments may"),
        ("tools", "def f():\n    import numpy", "imports numpy, which is not a known dependency"),
        ("errors", '__all__ = ["b", "a"]', "`__all__` is not sorted"),
        ("errors", '__all__: list[str] = ["a", "a"]', "`__all__` is not sorted, or names something twice"),
        ("toolkit___init", "from agentcore.toolkit.bash import x", "re-exports names without an `__all__`"),
        ("toolkit___init", "from .bash import x", "re-exports names without an `__all__`"),
        ("errors", "x = 1\n" * 500, "501 lines, at most 500"),
        ("loop", "x = 1\n" * 400, "401 lines, at most 400"),
        ("errors", "def long():\n" + "    x = 1\n" * 60, "function `long` has 61 lines, at most 60"),
        ("errors", "class A:\n  def long(self):\n" + "    x = 1\n" * 60, "function `long` has 61 lines, at most 60"),
    ],
)
def test_the_checker_finds(tmp_path: Path, module: str, source: str, expected: str) -> None:
    others = dict.fromkeys(["loop", "messages", "toolkit___bash", "providers___openai_completions"], "")
    package = package_with(tmp_path, **{**others, module: source})

    found = problems(package)

    assert len(found) == 1, found
    assert expected in found[0]
    assert found[0].startswith(f"agentcore/{module.replace('init', '__init__').replace('___', '/', 1)}.py: ")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n", "no docstring that says its responsibility"),
        ('""""""\n', "no docstring that says its responsibility"),
        ('"""errors"""\n', "the docstring does not open with a sentence"),
        ("", "no docstring that says its responsibility"),
    ],
)
def test_the_checker_finds_a_module_that_does_not_say_what_it_is_for(
    tmp_path: Path, source: str, expected: str
) -> None:
    package = package_with(tmp_path)
    (package / "errors.py").write_text(source, encoding="utf-8")

    assert problems(package) == [f"agentcore/errors.py: {expected}"]


# --- what importing does ---

WATCH_AN_IMPORT = """
import importlib, pkgutil, signal, sys, threading

before = set(sys.modules)
handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
actions = []
watched = {"socket.__new__", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.fork", "os.system"}
sys.addaudithook(lambda event, args: actions.append(event) if event in watched else None)

import agentcore
if "--everything" in sys.argv:
    for module in pkgutil.walk_packages(agentcore.__path__, "agentcore."):
        if module.name.split(".")[1] not in ("display", "cli", "__main__"):
            importlib.import_module(module.name)

heavy = {"asyncio", "requests", "urllib3", "jsonschema", "referencing", "cattrs", "docstring_parser", "rich",
         "filelock", "IPython", "ssl", "http"}
if "--everything" in sys.argv:
    heavy -= {"ssl", "http"}
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print("heavy:", sorted(loaded & heavy))
print("threads:", [thread.name for thread in threading.enumerate()])
print("handlers:", [n for n in signal.valid_signals() if signal.getsignal(n) != handlers[n]])
print("actions:", actions)
"""


@pytest.mark.parametrize("arguments", [[], ["--everything"]], ids=["the package", "every module"])
def test_importing_loads_nothing_heavy_and_has_no_side_effects(arguments: list[str]) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", WATCH_AN_IMPORT, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert outcome.stderr == ""
    assert outcome.stdout.splitlines() == ["heavy: []", "threads: ['MainThread']", "handlers: []", "actions: []"]


@pytest.mark.parametrize(
    ("side_effect", "reported"),
    [
        ("import requests", "'requests'"),
        ("import asyncio", "'asyncio'"),
        ("import socket; socket.socket().close()", "actions: ['socket.__new__']"),
        ("import signal; signal.signal(signal.SIGUSR1, print)", "handlers: [<Signals.SIGUSR1"),
        (
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "threads: ['MainThread', 'Thread",
        ),
    ],
)
def test_the_watched_import_reports(side_effect: str, reported: str) -> None:
    script = WATCH_AN_IMPORT.replace("import agentcore\n", f"import agentcore\n{side_effect}\n", 1)
    outcome = subprocess.run(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, capture_output=True, text=True, timeout=60
    )

    assert reported in outcome.stdout, outcome.stderr
