"""What came of the rows of a batch: the one place where counting is done by row."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter

import numpy as np

from logitd.counting.cells import Buckets, Cells
from logitd.counting.series import CUTS, ENTROPY, MASS, ROWS, SUPPORT, TOKENS
from logitd_kernels import RowFault, RowResult
from logitd_kernels.sampling.transform import Values

_FEW = 24  # rows that are counted one by one sooner than as an array
_OK = ("ok",)
_ENTROPY, _KEPT, _MASS = ENTROPY.bounds, tuple(map(int, SUPPORT.bounds)), MASS.bounds
_SUPPORT = tuple(tokens * (1 + 1e-6) for tokens in SUPPORT.bounds)  # e^H of 1024 equal tokens is 1024.0000000000009
_COLUMNS = [np.array(bounds) for bounds in (_ENTROPY, _SUPPORT, _ENTROPY, _KEPT, _MASS)]  # as in Cells.of_rows
_STRIDE = max(map(len, _COLUMNS)) + 1
_OFFSETS = np.arange(0, len(_COLUMNS) * _STRIDE, _STRIDE)[:, None]

_NAMES = [cut.parameter.name for cut in CUTS if cut.parameter]
_asked = itemgetter("temperature", "dynatemp_range", *_NAMES)
_numbers = attrgetter("entropy", "entropy_kept", "kept", "kept_mass")


def count_rows(cells: Cells, answers: Sequence[RowResult | RowFault], values: Sequence[Values]) -> None:
    """Count rows, tokens, entropies, support and mass.

    Args:
        cells: of the calling thread.
        answers: one a row.
        values: the parameters of each row.
    """
    rows, tokens = cells.counts[ROWS], cells.counts[TOKENS]
    drawn: list[RowResult] = []
    last, method = None, _OK
    for answer, own in zip(answers, values, strict=True):
        if isinstance(answer, RowFault):
            rows[(answer.kind,)] += 1
            continue
        drawn.append(answer)
        if own is not last:  # most requests have one set of parameters for all their rows
            last, method = own, _method(*_asked(own))
        tokens[method] += len(answer.tokens)
    rows[_OK] += len(drawn)
    if len(drawn) <= _FEW:
        for answer in drawn:
            _count_one(cells.of_rows, answer)
    else:
        _count_all(cells.of_rows, drawn)


@lru_cache(1024)  # traffic has few settings
def _method(temperature: float, dynatemp_range: float, *cuts: float | None) -> tuple[str]:
    """Return what truncates a row, one of `METHODS`, as a label."""
    if temperature == 0 and not dynatemp_range:
        return ("greedy",)
    values = dict(zip(_NAMES, cuts, strict=True))
    active = [cut.name for cut in CUTS if cut.active(values)]
    if not active:
        return ("untruncated",)
    return (active[0],) if len(active) == 1 else ("combined",)


def _count_one(of_rows: Sequence[Buckets], answer: RowResult) -> None:
    before, support, after, keeping, truncated = of_rows
    entropy, entropy_kept, kept, mass = _numbers(answer)
    if entropy is not None:
        before[bisect_left(_ENTROPY, entropy)] += 1
        before[-1] += entropy
        tokens = math.exp(entropy)
        support[bisect_left(_SUPPORT, tokens)] += 1
        support[-1] += tokens
    if entropy_kept is not None:
        after[bisect_left(_ENTROPY, entropy_kept)] += 1
        after[-1] += entropy_kept
    if kept is not None:
        keeping[bisect_left(_KEPT, kept)] += 1
        keeping[-1] += kept
    if mass is not None:
        taken = 1.0 - mass if mass < 1.0 else 0.0
        truncated[bisect_left(_MASS, taken)] += 1
        truncated[-1] += taken


def _count_all(of_rows: Sequence[Buckets], drawn: Sequence[RowResult]) -> None:
    """Count many rows: where the numbers fall is found by column, what fell where is counted once for all."""
    numbers = np.array(list(chain.from_iterable(map(_numbers, drawn))), np.float64)  # None becomes NaN
    columns = np.empty((len(_COLUMNS), len(drawn)))
    columns[0], columns[2], columns[3], mass = numbers.reshape(-1, 4).T
    np.exp(columns[0], out=columns[1])
    np.maximum(0.0, 1.0 - mass, out=columns[4])
    places = np.empty(columns.shape, np.int64)
    for found, bounds, column in zip(places, _COLUMNS, columns, strict=True):
        found[:] = bounds.searchsorted(column)
    places += _OFFSETS
    unknown = np.isnan(columns)
    if unknown.any():
        places, columns[unknown] = places[~unknown], 0.0
    counts = np.bincount(places.ravel())
    for place in counts.nonzero()[0].tolist():
        of_rows[place // _STRIDE][place % _STRIDE] += int(counts[place])
    for buckets, total in zip(of_rows, columns.sum(1).tolist(), strict=True):
        buckets[-1] += total
