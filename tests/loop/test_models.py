"""A model says where it is and what it costs, and keeps its secrets out of its repr."""

import copy
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.messages import Usage
from agentcore.models import Model, ThinkingLevel, has_prices, usage_cost

PRICES = {"input": 2.0, "output": 10.0, "cache_read": 0.5, "cache_write": 4.0}


def test_a_model_needs_only_an_id() -> None:
    model = Model("gpt")

    assert attrs.asdict(model) == {
        "id": "gpt",
        "api": "openai-completions",
        "provider": "",
        "base_url": "",
        "name": "gpt",
        "reasoning": False,
        "input": ("text",),
        "cost": None,
        "context_window": None,
        "max_tokens": None,
        "headers": {},
        "compat": {},
    }
    assert Model("gpt", name="The Model").name == "The Model"


def test_all_but_the_id_is_given_by_name() -> None:
    with pytest.raises(TypeError):
        Model("gpt", "openai-completions")  # type: ignore[call-arg]


@pytest.mark.parametrize(("bad", "error"), [("", ValueError), (None, TypeError), (5, TypeError)])
def test_a_model_without_an_id_is_refused(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="id"):
        Model(bad)


def test_a_model_is_a_value() -> None:
    model = Model("gpt", input=["text", "image"], cost=PRICES, headers={"a": "b"}, compat={"c": [1]})

    assert model == Model("gpt", input=("text", "image"), cost=PRICES, headers={"a": "b"}, compat={"c": [1]})
    assert pickle.loads(pickle.dumps(model)) == model
    assert copy.deepcopy(model) == model
    assert model != attrs.evolve(model, id="other")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        model.id = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        hash(model)


def test_what_the_caller_gave_is_copied() -> None:
    headers, prices, kinds = {"a": "b"}, dict(PRICES), ["text"]
    model = Model("gpt", headers=headers, cost=prices, input=kinds)
    headers["c"] = "d"
    prices.clear()
    kinds.append("image")

    assert (model.headers, model.cost, model.input) == ({"a": "b"}, PRICES, ("text",))


def test_one_kind_of_input_may_be_given_as_text() -> None:
    assert Model("gpt", input="image").input == ("image",)


def test_an_address_that_is_not_set_is_none_at_all() -> None:
    assert Model("gpt", base_url=None).base_url == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/v1", "'https://host/v1'"),
        ("https://user:SECRET@host/v1", "'https://host/v1'"),
        ("https://user:SEC/RET@host/v1", "'https://host/v1'"),
        ("user:SECRET@host/v1", "'host/v1'"),
        ("https://host/v1?key=SECRET", "'https://host/v1?…'"),
    ],
)
def test_the_repr_of_a_model_shows_no_secrets(url: str, shown: str) -> None:
    model = Model("gpt", base_url=url, headers={"Authorization": "Bearer SECRET", "x-team": "SECRET"})

    assert "SECRET" not in repr(model)
    assert f"base_url={shown}" in repr(model)
    assert "headers={Authorization: …, x-team: …}" in repr(model)
    assert model.base_url == url


# --- prices ---


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match="the price of 'output' is"):
        Model("gpt", cost={"input": 1.0, "output": price})


def test_an_unknown_kind_of_price_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`cost` has unknown kinds \['images'\]; it takes input, output"):
        Model("gpt", cost={"images": 1.0})


def test_a_kind_without_a_price_is_left_out() -> None:
    assert Model("gpt", cost={"input": 1, "output": None}).cost == {"input": 1.0}  # type: ignore[dict-item]


def test_a_usage_costs_what_its_tokens_cost() -> None:
    cost = usage_cost(Model("gpt", cost=PRICES), Usage(1_000_000, 500_000, 2_000_000, 250_000))

    assert cost == {"input": 2.0, "output": 5.0, "cache_read": 1.0, "cache_write": 1.0, "total": 9.0}


def test_reasoning_is_paid_as_a_part_of_the_output() -> None:
    model = Model("gpt", cost=PRICES)

    assert usage_cost(model, Usage(0, 100, reasoning=80)) == usage_cost(model, Usage(0, 100))


def test_the_cost_is_unknown_when_a_price_that_is_needed_is() -> None:
    partly = Model("gpt", cost={"input": 2.0, "output": 10.0})

    assert usage_cost(Model("local/foo"), Usage(1, 1)) is None
    assert usage_cost(Model("local/foo"), Usage()) is None
    assert usage_cost(partly, Usage(1, 1, cache_read=1)) is None
    assert usage_cost(partly, Usage(1_000_000)) == {
        "input": 2.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0, "total": 2.0
    }  # fmt: skip


def test_a_model_that_is_free_costs_nothing_rather_than_unknown() -> None:
    free = Model("gpt", cost=dict.fromkeys(PRICES, 0.0))

    assert usage_cost(free, Usage(5, 5)) == {**dict.fromkeys(PRICES, 0.0), "total": 0.0}
    assert has_prices(free)


def test_a_model_has_prices_when_reading_and_writing_have_one() -> None:
    assert has_prices(Model("gpt", cost={"input": 1.0, "output": 1.0}))
    assert not has_prices(Model("gpt"))
    assert not has_prices(Model("gpt", cost={"input": 1.0}))
    assert not has_prices(Model("gpt", cost={"output": 1.0}))


COUNTS = st.integers(0, 10**7)


@given(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), st.tuples(COUNTS, COUNTS, COUNTS, COUNTS))
def test_the_cost_of_a_sum_is_the_sum_of_the_costs(left: Any, right: Any) -> None:
    model = Model("gpt", cost=PRICES)
    usages = [attrs.evolve(usage, cost=usage_cost(model, usage)) for usage in (Usage(*left), Usage(*right))]
    total = usages[0] + usages[1]

    assert total.cost == pytest.approx(usage_cost(model, attrs.evolve(total, cost=None)))


# --- thinking levels ---


def test_thinking_levels_are_strings() -> None:
    assert [level.value for level in ThinkingLevel] == ["off", "minimal", "low", "medium", "high", "xhigh", "max"]
    assert ThinkingLevel("high") is ThinkingLevel.HIGH
    assert ThinkingLevel.HIGH == "high"  # type: ignore[comparison-overlap]
    assert str(ThinkingLevel.HIGH) == f"{ThinkingLevel.HIGH}" == "high"
    assert pickle.loads(pickle.dumps(ThinkingLevel.MAX)) is ThinkingLevel.MAX
    with pytest.raises(ValueError, match="enormous"):
        ThinkingLevel("enormous")


@pytest.mark.parametrize("field", ["context_window", "max_tokens"])
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        ("a", TypeError, "is a number of tokens or None, not str"),
        (True, TypeError, "is a number of tokens or None, not bool"),
        (0, ValueError, r"is 0; it must be above 0 \(None is unknown\)"),
        (-1, ValueError, "is -1; it must be above 0"),
    ],
)
def test_numbers_of_tokens_that_cannot_be_right_are_refused(
    field: str, value: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=f"`Model.{field}` {said}"):
        Model("m", **{field: value})
    assert getattr(Model("m", **{field: 1}), field) == 1


@pytest.mark.parametrize("field", ["api", "provider"])
def test_names_that_are_no_text_are_refused(field: str) -> None:
    with pytest.raises(TypeError, match=f"`{field}` is a `str`, not NoneType"):
        Model("m", **{field: None})  # type: ignore[arg-type]
