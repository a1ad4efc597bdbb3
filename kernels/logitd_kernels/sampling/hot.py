"""Between rows with parameters and the compiled hot chain."""

import secrets
from collections.abc import Callable, Sequence

from logitd_kernels.errors import BadRow
from logitd_kernels.hot import ALL_MASKED, HOT, NAN, OK, Hot, HotResult, hot_batch
from logitd_kernels.rows import DenseRows, Edits
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.transform import Values


def is_hot(values: Values) -> bool:
    """Whether the compiled chain covers everything that these parameters make active."""
    return values["n"] == 1 and all(one.name in HOT or not one.active(values) for one in TRANSFORMS)


def sample_hot(
    hot: Hot,
    rows: DenseRows,
    indices: Sequence[int],
    values: Sequence[Values],
    edits: Callable[[int, Values], Edits],
) -> dict[int, RowResult | RowFault]:
    """Run rows through the compiled chain and return their answers by index."""
    own = [values[index] for index in indices]
    edited = [edits(index, values[index]) for index in indices]
    seeds = [one["seed"] if one["seed"] is not None else secrets.randbits(53) for one in own]
    result = hot(
        hot_batch(
            rows.logits.detach(),
            indices,
            own,
            seeds,
            [one.allowed for one in edited],
            [one.bias for one in edited],
        )
    )
    return dict(zip(indices, _answers(rows, indices, seeds, result), strict=True))


def _answers(
    rows: DenseRows, indices: Sequence[int], seeds: Sequence[int], result: HotResult
) -> list[RowResult | RowFault]:
    columns = zip(
        indices,
        seeds,
        result.status.tolist(),
        result.token.tolist(),
        result.logprob.tolist(),
        result.entropy.tolist(),
        result.entropy_kept.tolist(),
        result.kept.tolist(),
        result.kept_mass.tolist(),
        strict=True,
    )
    return [
        RowResult([token], [logprob], entropy, entropy_kept, kept, kept_mass, seed)
        if status == OK
        else fault_of(rows, index, status, int(result.place[place]))
        for place, (index, seed, status, token, logprob, entropy, entropy_kept, kept, kept_mass) in enumerate(columns)
    ]


def fault_of(rows: DenseRows, index: int, status: int, place: int) -> RowFault:
    """Return the fault of a row that a compiled kernel refused, worded as everywhere."""
    if status == ALL_MASKED:
        whole = not bool((rows.logits[index] > -float("inf")).any())
        bad = BadRow.all_masked("every logit is -inf" if whole else "the mask, bias and bans leave no token")
    else:
        kind = "nan" if status == NAN else "posinf"
        sent = float(rows.logits[index, place])
        bad = BadRow.non_finite(place, sent if sent != sent else float("inf"), kind)
    return RowFault(index, bad.code, bad.kind, bad.detail)
