"""The distribution that a row is drawn from, as probabilities: what `sample` does, but for the draw."""

import secrets
from collections.abc import Sequence

import numpy as np

from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.head import Floats
from logitd_kernels.rows import DenseRows
from logitd_kernels.sampling.chain import draw_greedily, truncated
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.prepared import Preparation
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sampling.transform import Values


def distribution(
    rows: DenseRows, values: Sequence[Values], backend: Backend | None = None, order: Order = DEFAULT
) -> list[Floats | RowFault]:
    """Return the probabilities with which `sample` would draw each token, after edits, temperature and truncation.

        p_i = e^((x_i − M)/T) / Σ_kept e^((x_j − M)/T) for kept tokens, 0 for all others

    Args:
        rows: the logits.
        values: checked parameters, one mapping a row.
        backend: where the row is ranked; None picks one.
        order: in which transforms act.
    Returns:
        [V] float64 for each row, or its `RowFault`: a bad row never touches its neighbours. At T = 0 a point on the
        largest processed logit, lowest id on ties. A row's bits do not depend on the others.
    Raises:
        ParameterError: a token id outside the vocabulary, or not one mapping a row.
    """
    if len(values) != len(rows):
        raise ParameterError("params", f"expected one object for each of {len(rows)} rows, got {len(values)}")
    prepared = Preparation(rows, backend or pick("auto"), order)
    return [_of_row(prepared, index, own, order) for index, own in enumerate(values)]


def _of_row(prepared: Preparation, index: int, values: Values, order: Order) -> Floats | RowFault:
    seed = values["seed"] if values["seed"] is not None else secrets.randbits(53)
    own = {**prepared.known(index, values), "seed": seed}
    try:
        row = prepared.row(index, values, own)
    except BadRow as bad:
        return RowFault(index, bad.code, bad.kind, bad.detail)
    kept = draw_greedily(row, own).kept if order.is_greedy(own) else truncated(row, own, order.steps)
    ids, shares = kept.shares()
    probabilities = np.zeros(prepared.vocab_size)
    probabilities[ids] = shares
    return probabilities
