"""A function's parameters and docstring become a schema, and the function is called with what a model gave."""

# ruff: noqa: UP045

import functools
import importlib
import pathlib
import subprocess
import sys
import textwrap
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest

from agentcore._annotations import names_around
from agentcore._signature import signature_of
from agentcore.tools import tool
from tests.loop.signature_support import INTEGER, STRING, called, taking

# --- parameters ---


def test_positional_only_and_keyword_only_parameters_arrive() -> None:
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int, e: int = 5) -> Any:
        return a, b, c, d, e

    assert signature_of(f).schema["required"] == ["a", "d"]
    assert called(f, a=1, d=4) == (1, 2, 3, 4, 5)
    assert called(f, a="1", b=20, c=30, d=40, e=50) == (1, 20, 30, 40, 50)

    def g(a: int = 1, b: int = 2, /) -> Any:
        return a, b

    assert called(g, b=20) == (1, 20)


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        return "now"

    assert signature_of(now).schema == {"type": "object", "properties": {}}
    assert called(now) == "now"
    assert called(now, more=1) == "now"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(*args: int): ...", "parameter `args` of `f` takes any number of arguments, which a schema cannot say"),
        ("def f(a: int, **rest: int): ...", "parameter `rest` of `f` takes any number of arguments"),
        ("def f(a: int, b): ...", "parameter `b` of `f` has no annotation"),
        ("def f(a: int, b=5): ...", "parameter `b` of `f` has no annotation"),
        ("f = lambda x: x", "parameter `x` of `<lambda>` has no annotation"),
        ("def f(self, a: int): ...", "parameter `self` of `f` is given by an object: make the tool of its method"),
        ("async def f(a: int): ...", "`f` is `async`; tools run on threads: write it with `def`"),
        ("async def f(a: int): yield 1", "`f` is `async`"),
        ("class F:\n  async def __call__(self, a: int): ...\nf = F()", "`F` is `async`"),
        ("import functools\nasync def g(a: int): ...\nf = functools.partial(g, 1)", "`g` is `async`"),
        ("f = print", "of `print` "),
        ("f = dict.pop", "the parameters of `pop` cannot be read"),
        (
            "def f(a: 'Missing'): ...",
            "parameter `a` of `f`: the annotation 'Missing' cannot be resolved: name 'Missing' is not",
        ),
        ("def f(a: list['Missing']): ...", "parameter `a` of `f`: "),
        ("def f(a: 'list[Missing]'): ...", "parameter `a` of `f`: the annotation 'list[Missing]' cannot be resolved"),
        ("def f(a: 'int +'): ...", "parameter `a` of `f`: the annotation 'int +' cannot be resolved"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason(source: str, said: str) -> None:
    names: dict[str, Any] = {}
    exec(source, names)

    with pytest.raises(TypeError) as caught:
        signature_of(names["f"])

    assert said in str(caught.value)


def test_what_the_function_returns_may_be_annotated_with_anything() -> None:
    def f(a: int) -> "Missing":  # type: ignore[name-defined]  # noqa: F821
        return a

    assert called(f, a=1) == 1


# --- string annotations ---

SOURCE = '''
import dataclasses, enum, typing
from typing import *
import attrs
import typing_extensions
from agentcore import AbortSignal, OnUpdate, ToolCallContext

class Color(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Item:
    name: str
    date: Optional[int] = None
    children: List["Item"] = dataclasses.field(default_factory=list)
    seen: ClassVar[int] = 0
    seed: dataclasses.InitVar[int] = 1
    color: Color = Color.RED

@dataclasses.dataclass
class Derived(Item):
    more: int = 0

@attrs.define
class Record:
    _x: int
    items: list[Item] = attrs.field(factory=list)

class Keys(typing_extensions.TypedDict):
    must: int
    may: typing_extensions.NotRequired[Item]

class Loose(typing_extensions.TypedDict, total=False):
    must: typing_extensions.Required[int]
    may: str

class Both(Keys, Loose):
    other: int

class Pair(NamedTuple):
    a: int
    b: Color = Color.RED

class Outer:
    class Inner(enum.Enum):
        A = "a"
    @dataclasses.dataclass
    class Holder:
        it: int
    @dataclasses.dataclass
    class Nested:
        holder: "list[Outer.Holder]"

def f(
    item: Item, derived: Derived, record: Record, keys: Keys, loose: Loose, both: Both, pair: Pair, nested: Outer.Nested,
    mode: Literal["a", "b"], inner: Outer.Inner,
    signal: AbortSignal, call: Optional[ToolCallContext] = None, update: "OnUpdate | None" = None,
    limit: Optional[int] = None, plain: int = None, text: Annotated[str, "some text"] = "x",
    listed: list["Item"] | None = None, optional: "Optional[List[Item]]" = None,
) -> "Whatever":
    """Do."""
'''


def module_of(source: str, name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module(name)


@pytest.mark.parametrize("local", [False, True], ids=["module", "function"])
def test_a_module_with_string_annotations_gives_the_same_schema(
    local: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports, rest = SOURCE.split("class Color", 1)
    rest = "class Color" + rest
    if local:
        # `Outer.Holder` in a string is no name of the module; in a function the decorator sees the names around it.
        body = textwrap.indent(rest, "    ")
        rest = f"def make(tool):\n{body}\n    return tool(f)\n"
    else:
        rest += "\ndef make(tool):\n    return tool(f)\n"
    tools = []
    for name, opening in (("as_types", ""), ("as_strings", "from __future__ import annotations\n")):
        module = module_of(opening + imports + rest, f"{name}_{local}", tmp_path, monkeypatch)
        tools.append(module.make(tool))
    as_types, as_strings = tools

    assert as_strings.parameters == as_types.parameters
    assert list(as_types.parameters["properties"]) == [
        *"item derived record keys loose both pair nested mode inner limit plain text listed optional".split()
    ]
    assert as_types.parameters["$defs"]["Both"]["required"] == ["must", "other"]
    assert as_types.parameters["$defs"]["Keys"]["required"] == ["must"]
    assert as_types.parameters["properties"]["plain"] == INTEGER


def test_a_local_name_goes_before_a_global_one() -> None:
    @dataclass
    class Point:
        other: str

    def f(point: "Point") -> Any:
        return point

    assert called(f, point={"other": "a"}) == Point("a")


def test_local_names_are_found_from_a_function_in_a_function() -> None:
    Inner = Literal["inner"]  # noqa: N806

    def outer() -> Any:
        Other = Literal["other"]  # noqa: N806

        def f(a: "Inner", b: "Other") -> Any:
            return a, b

        return signature_of(f).schema

    assert outer()["properties"] == {
        "a": {"type": "string", "enum": ["inner"]},
        "b": {"type": "string", "enum": ["other"]},
    }


def test_after_the_function_around_it_has_ended_only_what_the_body_uses_is_known() -> None:
    def make(uses: bool) -> Any:
        Word = Literal["word"]  # noqa: N806

        def used(a: "Word") -> Any:
            return a, Word

        def unused(a: "Word") -> Any:
            return a

        return used if uses else unused

    assert signature_of(make(True)).schema["properties"]["a"]["enum"] == ["word"]
    with pytest.raises(TypeError, match="parameter `a` of `unused`: the annotation 'Word' cannot be resolved: name"):
        signature_of(make(False))


def test_a_name_that_the_body_uses_may_come_later() -> None:
    def f(a: int) -> Any:
        return a, later

    assert names_around(f)["f"] is f
    assert signature_of(f).schema["required"] == ["a"]
    later = 1
    assert called(f, a=0) == (0, later)


def test_a_name_that_is_only_imported_for_types_is_refused_with_a_hint() -> None:
    source = """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from agentcore import AbortSignal
        def f(a: int, signal: AbortSignal): ...
    """
    names: dict[str, Any] = {}
    exec(textwrap.dedent(source), names)

    with pytest.raises(TypeError) as caught:
        signature_of(names["f"])

    assert str(caught.value) == (
        "parameter `signal` of `f`: the annotation 'AbortSignal' cannot be resolved: name 'AbortSignal' is not defined; "
        "a name imported below `if TYPE_CHECKING:` does not exist at run time"
    )


def test_a_field_that_cannot_be_resolved_is_named() -> None:
    @dataclass
    class Item:
        it: "Missing"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="parameter `value` of `f`, field `it`: the annotation 'Missing' cannot be res"):
        signature_of(taking(Item))


def test_a_type_that_holds_itself_without_a_name_is_refused() -> None:
    names: dict[str, Any] = {"typing": typing}
    exec("Loop = typing.List['Loop']\ndef f(a: Loop): ...", names)

    with pytest.raises(TypeError, match="parameter `a` of `f`"):
        signature_of(names["f"])


# --- callables that are no plain functions ---


class Searcher:
    """Finds things.

    Args:
        query: What to find.
    """

    kind = "searcher"

    def __call__(self, query: str) -> str:
        return f"called {query}"

    def method(self, query: str, limit: "int" = 3) -> str:
        """Search with a method."""
        return f"{self.kind} {query} {limit}"

    @classmethod
    def made(cls, query: str) -> str:
        return f"{cls.kind} {query}"

    @staticmethod
    def fixed(query: str) -> str:
        return f"fixed {query}"


class Documented:
    """What it is."""

    def __call__(self) -> str:
        """What calling it does."""
        return ""


class Silent:
    def __call__(self) -> str:
        return ""


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return "logged", function(*args, **kwargs)

    return wrapper


@logged
def wrapped(query: "str", limit: int = 3) -> str:
    """Search, logged."""
    return f"{query} {limit}"


def with_limit(query: str, limit: "int", where: Literal["web", "disk"] = "web") -> str:
    """Search some."""
    return f"{query} {limit} {where}"


class Sub(Searcher):
    def method(self, query: str, limit: int = 3) -> str:
        return super().method(query, limit)


@pytest.mark.parametrize(
    ("function", "name", "description", "properties", "returned"),
    [
        (Searcher().method, "method", "Search with a method.", ["query", "limit"], "searcher a 3"),
        (Sub().method, "method", "Search with a method.", ["query", "limit"], "searcher a 3"),
        (Searcher.made, "made", "", ["query"], "searcher a"),
        (Searcher.fixed, "fixed", "", ["query"], "fixed a"),
        (Searcher.__dict__["fixed"], "fixed", "", ["query"], "fixed a"),
        (Searcher(), "Searcher", "Finds things.", ["query"], "called a"),
        (functools.partial(Searcher().__call__), "__call__", "", ["query"], "called a"),
        (wrapped, "wrapped", "Search, logged.", ["query", "limit"], ("logged", "a 3")),
        (functools.lru_cache(with_limit), "with_limit", "Search some.", ["query", "limit", "where"], None),
        (functools.partial(with_limit, limit=5), "with_limit", "Search some.", ["query", "limit", "where"], "a 5 web"),
        (functools.partial(with_limit, "b", 5), "with_limit", "Search some.", ["where"], "b 5 web"),
        (
            functools.partial(Searcher().method, limit=5),
            "method",
            "Search with a method.",
            ["query", "limit"],
            "searcher a 5",
        ),
        (
            functools.partial(functools.partial(Searcher()), query="x"),
            "Searcher",
            "Finds things.",
            ["query"],
            "called a",
        ),
        (
            logged(functools.partial(with_limit, limit=1)),
            "wrapper",
            "Search some.",
            ["query", "limit", "where"],
            ("logged", "a 1 web"),
        ),
    ],
)
def test_any_callable_can_be_looked_at(
    function: Any, name: str, description: str, properties: list[str], returned: Any
) -> None:
    signature = signature_of(function)

    assert (signature.name, signature.description) == (name, description)
    assert list(signature.schema["properties"]) == properties
    if returned is not None:
        arguments = {"query": "a"} if "query" in properties else {}
        assert called(function, **arguments) == returned


def test_what_a_callable_object_says_of_the_call_goes_before_what_its_class_says() -> None:
    assert signature_of(Documented()).description == "What calling it does."
    assert signature_of(Silent()).description == ""
    assert signature_of(Searcher()).schema["properties"]["query"]["description"] == "What to find."


def test_a_wrapper_keeps_its_say_over_defaults() -> None:
    def f(n: int = 1) -> int:
        return n

    @functools.wraps(f)
    def wrapper(**kwargs: int) -> int:
        return f(**{"n": 10, **kwargs})

    assert called(wrapper) == 10
    assert called(wrapper, n=2) == 2


# --- docstrings ---

GOOGLE = """Search the
web.

Slow, but thorough.

Args:
    query (str): What to
        look for.
    limit: How many: at most.
    signal: Says stop.

Returns:
    list: What was found.

Raises:
    ValueError: Never.
"""
NUMPY = """Search the
web.

Slow, but thorough.

Parameters
----------
query, other : str
    What to
    look for.
limit : int, optional
    How many: at most.
signal : AbortSignal
    Says stop.

Returns
-------
list
    What was found.
"""
SPHINX = """Search the
web.

Slow, but thorough.

:param query: What to
    look for.
:param int limit: How many: at most.
:param signal: Says stop.
:returns: What was found.
"""


class Injected:
    pass


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_a_docstring_in_each_style_describes_the_function_and_its_parameters(text: str) -> None:
    def f(query: str, signal: Injected, other: int = 1, limit: Annotated[int, "nearest wins"] = 5) -> None: ...

    f.__doc__ = text
    signature = signature_of(f, (Injected,))

    assert signature.description == "Search the\nweb.\n\nSlow, but thorough."
    properties = signature.schema["properties"]
    assert properties["query"] == {"type": "string", "description": "What to look for."}
    assert properties["limit"]["description"] == "nearest wins"
    assert properties["other"].get("description") == ("What to look for." if text is NUMPY else None)
    assert list(properties) == ["query", "other", "limit"]


@pytest.mark.parametrize(
    ("text", "description", "of_query"),
    [
        (None, "", None),
        ("", "", None),
        ("Only this: text.", "Only this: text.", None),
        ("  Indented.\n\n    More.\n    ", "Indented.\n\nMore.", None),
        ("\n    Args:\n        query: What.\n    ", "", "What."),
        ("Do.\n\nArgs:\n    query: (no end", "Do.", "(no end"),
        (":param", ":param", None),
        ("Do.\n\n:param query", "Do.\n\n:param query", None),
        ("Do.\n\nArgs:\n    query:\n", "Do.", None),
        ("Do.\n\n@param query: What.", "Do.", "What."),
        (": :paramoptional\nReturns:", ": :paramoptional\nReturns:", None),
    ],
)
def test_a_docstring_of_no_style_is_told_as_it_is(text: str | None, description: str, of_query: str | None) -> None:
    def f(query: str) -> None: ...

    f.__doc__ = text
    signature = signature_of(f)

    assert signature.description == description
    assert signature.schema["properties"]["query"].get("description") == of_query


def test_a_description_of_a_parameter_replaces_what_its_type_says() -> None:
    def f(where: pathlib.Path) -> None:
        """Look.

        Args:
            where: The folder.
        """

    assert signature_of(f).schema["properties"]["where"] == {"type": "string", "description": "The folder."}


# --- injected parameters ---


@pytest.mark.parametrize(
    "hint",
    [Injected, Injected | None, Optional[Injected], Annotated[Injected, "text"], "Injected", "Injected | None"],
    ids=str,
)
def test_an_injected_parameter_is_filled_in_and_not_shown(hint: Any) -> None:
    def f(query: str, it: Any = None) -> Any:
        return query, it

    f.__annotations__["it"] = hint

    assert signature_of(f, (Injected,)).schema == {
        "type": "object",
        "properties": {"query": STRING},
        "required": ["query"],
    }
    value = Injected()
    assert called(f, {Injected: value}, query="a", it="from the model") == ("a", value)


def test_an_injected_parameter_may_be_positional_only() -> None:
    def f(it: Injected, query: str, /) -> Any:
        return it, query

    value = Injected()
    assert called(f, {Injected: value}, query="a") == (value, "a")


# --- cost ---


def test_a_function_without_a_docstring_is_looked_at_without_the_parser() -> None:
    program = (
        "import sys\nfrom agentcore import tool\n"
        "@tool\ndef f(a: int): return a\n"
        "assert 'docstring_parser' not in sys.modules\n"
        "@tool\ndef g(a: int):\n    'Say.'\n"
        "assert 'docstring_parser' in sys.modules and 'jsonschema' not in sys.modules\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (outcome.returncode, outcome.stderr) == (0, "")
