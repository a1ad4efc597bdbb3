"""What the laws of the registry share: any row, any values, any history."""

import pytest
import torch
from hypothesis import strategies as st
from rows_of import BACKENDS, INF, KINDS, row_of

import logitd_kernels as K
from logitd_kernels.sampling.parameters import Bias, Choice, Flag, Number, Optional, Seed, TokenIds, TokenSequences

both = pytest.mark.parametrize("backend", BACKENDS)
OF_KIND = {kind: [one for one in K.TRANSFORMS if one.kind == kind] for kind in ("edit", "cut", "band", "reweigh")}

SMALL = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, -INF]), st.floats(-100, 100, width=32))


@st.composite
def rows(draw, sizes=(1, 2, 9, 300, 4500)):
    """A row [V] with something to draw: a few chosen logits, or a seeded row of some kind."""
    if draw(st.booleans()):
        logits = draw(st.lists(SMALL, min_size=1, max_size=12).filter(lambda row: max(row) > -INF))
        return torch.tensor(logits, dtype=torch.float32)
    return row_of(draw(st.sampled_from(sorted(KINDS))), draw(st.sampled_from(sizes)), seed=draw(st.integers(0, 99)))


@st.composite
def histories(draw, vocab_size: int):
    """Token ids of a prompt and an output, few enough to come again; or none."""
    ids = st.lists(st.integers(-1, min(vocab_size, 4) - 1), max_size=12)
    return {name: draw(ids) for name in ("prompt", "output") if draw(st.booleans())}


def values_of(parameter) -> st.SearchStrategy:
    """Every kind of legal value of a parameter, small ids and counts more often."""
    match parameter:
        case Number(integer=True):
            return st.integers(int(parameter.ge), 40 if parameter.le is None else min(40, int(parameter.le)))
        case Number():
            upper = 3.0 if parameter.le is None else min(3.0, float(parameter.le))
            lower = max(-3.0, *(float(one) for one in (parameter.ge, parameter.gt) if one is not None), -3.0)
            return st.floats(lower, upper, exclude_min=parameter.gt is not None)
        case Optional():
            return st.none() | values_of(parameter.number)
        case Choice():
            return st.sampled_from(parameter.choices)
        case TokenIds():
            return st.none() | st.lists(st.integers(0, 0), max_size=2)
        case TokenSequences():
            return st.none() | st.lists(st.lists(st.integers(0, 0), min_size=1, max_size=3), max_size=2)
        case Bias():
            return st.none() | st.dictionaries(st.just(0), st.floats(-9, 9) | st.just(-INF), max_size=1)
        case Seed():
            return st.integers(0, 2**64 - 1)
        case Flag():
            return st.booleans()
    raise AssertionError(f"no values for {parameter!r}: a new kind of parameter needs a line here")


def all_values(but=(), only=None) -> st.SearchStrategy:
    """Values for any of the parameters, always with a seed, so that two answers can be compared."""
    names = set(K.PARAMETERS if only is None else only) - {"seed", *but}
    optional = {name: values_of(parameter) for name, parameter in K.PARAMETERS.items() if name in names}
    return st.fixed_dictionaries({"seed": values_of(K.PARAMETERS["seed"])}, optional=optional)


def names_of(*kinds: str) -> set[str]:
    """The parameters of all transforms of some kinds."""
    return {one.name for transform in K.TRANSFORMS if transform.kind in kinds for one in transform.parameters}


def same(one, other):
    """Whether two answers are the same to the last bit."""
    return repr(one) == repr(other) and one == other


def argmax(row) -> int:
    return int((row == row.max()).nonzero()[0])
