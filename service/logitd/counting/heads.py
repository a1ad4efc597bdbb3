"""What came of the heads of an attention call."""

from collections import Counter
from collections.abc import Sequence

from logitd.counting.cells import Cells
from logitd.counting.series import ATTENTION, ERROR, HEADS, LENGTH

_REASON_OF = {"requested": "forced", "short": "threshold", "long": "threshold"}  # all others: it would not have done
_OUTWEIGHING = ("fallback", "threshold", "forced")  # the first of them that there is


def count_heads(cells: Cells, heads: Sequence[tuple[str, str, float]], keys: int) -> None:
    """Count heads by how they were computed and why, their errors, and the call by what outweighs the rest.

    Args:
        cells: of the calling thread.
        heads: mode, why and measured relative error of each.
        keys: how many the call has.
    """
    if not heads:  # an empty batch
        return
    for (mode, why), count in Counter((mode, why) for mode, why, _ in heads).items():
        cells.count(HEADS, mode, why, by=count)
    for mode, _, error in heads:
        cells.observe(ERROR, error, mode)
    algorithm = _algorithm({mode for mode, _, _ in heads})
    reasons = {_REASON_OF.get(why, "fallback") for _, why, _ in heads}
    cells.count(ATTENTION, algorithm, next(reason for reason in _OUTWEIGHING if reason in reasons))
    cells.observe(LENGTH, keys, algorithm)


def _algorithm(modes: set[str]) -> str:
    exact = {mode for mode in modes if mode.startswith("exact")}
    return "exact" if exact == modes else "mixed" if exact else "linear"
