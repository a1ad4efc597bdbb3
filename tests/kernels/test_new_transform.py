"""A transform that nobody knew: one value, put into the registry, and the rest derives from it."""

from unittest import mock

import pytest
from golden import FOUR, both, one_thread  # noqa: F401  (a fixture)
from rows_of import ask, logs

import logitd_kernels as K
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling import hot, order, registry
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut


def _bottom(row, kept, values):
    return row.first(max(1, kept.count - values["drop_last"]))


DROP_LAST = Cut(
    name="drop_last",
    parameter=Number("drop_last", 0, "How many of the least likely tokens to drop; 0 is off.", ge=0, integer=True),
    options=(Number("drop_last_weight", 0.5, "Unused, but documented.", gt=0, le=1),),
    formula="keep all but the last n tokens",
    boundary="At least one is kept.",
    source="this test",
    cut=_bottom,
)
MORE = (*K.TRANSFORMS[:-1], DROP_LAST, K.TRANSFORMS[-1])
order_of = order.order_of.__wrapped__  # what others ask of the cache stays theirs


def test_its_parameters_follow_from_it():
    told = {parameter.name: parameter for parameter in registry.parameters(MORE)}
    names = list(told)
    assert set(names) - set(K.PARAMETERS) == {"drop_last", "drop_last_weight"}
    assert names.index("drop_last") + 2 == names.index("adaptive_target")
    assert told["drop_last"].schema() == {
        "type": "integer",
        "default": 0,
        "description": "How many of the least likely tokens to drop; 0 is off.",
        "minimum": 0,
    }
    assert told["drop_last"].bounds == "integer in [0, ∞)"
    assert told["drop_last_weight"].bounds == "(0, 1]"
    assert DROP_LAST.kind == "cut"


@pytest.fixture
def registered():
    """The registry with one more line: what else is made of it when it is imported is made anew."""
    parameters = {parameter.name: parameter for parameter in registry.parameters(MORE)}
    neutral = {name: parameter.neutral for name, parameter in parameters.items()}
    with (
        mock.patch.object(registry, "PARAMETERS", parameters),
        mock.patch.object(registry, "_NEUTRAL", neutral),
        mock.patch.object(order, "TRANSFORMS", MORE),
    ):
        yield


def test_its_bounds_are_checked(registered):
    assert K.check({"drop_last": 2})["drop_last"] == 2
    assert K.check({})["drop_last_weight"] == 0.5
    for name, value in (("drop_last", -1), ("drop_last", 1.5), ("drop_last_weight", 0), ("drop_lasts", 1)):
        with pytest.raises(ParameterError) as caught:
            K.check({name: value}, row=4)
        assert (caught.value.field, caught.value.row) == (name, 4)


@both
def test_it_acts_in_its_place_in_every_dialect(registered, backend):
    for dialect in order.DIALECTS:
        asked = order_of(dialect)
        assert "drop_last" in asked.names
        assert asked.names.index("drop_last") < asked.names.index("adaptive_p")
        answer = ask(logs(FOUR), {"drop_last": 2, "n": 40}, backend, order=asked)
        assert (answer.kept, set(answer.tokens)) == (2, {2, 3})
        assert answer.kept_mass == pytest.approx(0.7)
    own = order_of("vllm", ("drop_last", "top_k"))
    assert ask(logs(FOUR), {"drop_last": 1, "top_k": 3}, backend, order=own).kept == 3
    own = order_of("vllm", ("top_k", "drop_last"))
    assert ask(logs(FOUR), {"drop_last": 1, "top_k": 3}, backend, order=own).kept == 2


@both
def test_it_is_traced_and_told_in_words(registered, backend):
    answer = ask(logs(FOUR), {"drop_last": 1, "top_k": 2}, backend, trace=True, order=order_of())
    assert [(step.transform, step.kept) for step in answer.trace] == [
        ("temperature", 4),
        ("top_k", 2),
        ("drop_last", 1),
    ]
    assert answer.notes[1] == (
        "drop_last 1 decided what could be drawn: 1 token is left with 0.4 of the probability, 2 without it."
    )


def test_a_compiled_chain_does_not_take_what_it_does_not_know(registered):
    own = order_of()
    assert not hot.is_hot(K.check({"drop_last": 1}), own)
