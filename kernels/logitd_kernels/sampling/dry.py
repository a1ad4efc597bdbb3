"""DRY: tokens that would continue a repetition become less likely with its length."""

import math

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.head import Ids
from logitd_kernels.sampling.history import copies, sequence_of
from logitd_kernels.sampling.parameters import Number, TokenIds
from logitd_kernels.sampling.transform import Edit, Values

_LARGEST_LOG = 88.7228391  # of what a float32 holds: where llama.cpp stops growing the penalty


def _edit(edits: Edits, values: Values) -> None:
    breakers = values["dry_breaker_ids"] or ()
    edits.check_ids("dry_breaker_ids", breakers)
    sequence = sequence_of(values)
    window = values["dry_window"]
    lengths = repeats(sequence[-window:] if window else sequence, breakers)
    base, multiplier, allowed = values["dry_base"], values["dry_multiplier"], values["dry_allowed_length"]
    most = _LARGEST_LOG / math.log(base) if base > 1.000001 else math.inf
    edits.add(
        {
            token: -multiplier * base ** min(length - allowed, most)
            for token, length in lengths.items()
            if length >= allowed
        }
    )


def repeats(sequence: Ids, breakers: tuple[int, ...] = ()) -> dict[int, int]:
    """Return, for each token that followed an earlier copy of the sequence's end, the length of the longest such copy.

    Args:
        sequence: [N] token ids.
        breakers: ids over which no copy reaches, and which are no continuation.
    """
    stops = np.flatnonzero(np.isin(sequence, breakers))
    limit = len(sequence) - 1 - int(stops[-1]) if len(stops) else len(sequence)
    lengths = copies(sequence, limit)
    continued = (lengths > 0) & ~np.isin(sequence[1:], breakers)
    found: dict[int, int] = {}
    for token, length in zip(sequence[1:][continued].tolist(), lengths[continued].tolist(), strict=True):
        found[token] = max(found.get(token, 0), length)
    return found


DRY = Edit(
    name="dry",
    parameter=Number("dry_multiplier", 0.0, "How much to subtract from what would repeat; 0 is off.", ge=0, le=1e6),
    options=(
        Number("dry_base", 1.75, "By how much the penalty grows with each further token repeated.", ge=1, le=100),
        Number("dry_allowed_length", 2, "The shortest repetition that is penalised.", ge=1, integer=True),
        Number("dry_window", 0, "How many of the last ids are looked at; 0 is all.", ge=0, integer=True),
        TokenIds("dry_breaker_ids", "Token ids over which no repetition reaches."),
    ),
    formula="x_i ← x_i − multiplier·base^(L − allowed), L ≥ allowed the longest ending that i followed before",
    boundary="Over prompt and output; a repetition of exactly `allowed` costs `multiplier`; the power stops at e^88.7.",
    source="p-e-w 2024, text-generation-webui pull request 5677; llama.cpp",
    edit=_edit,
    differs={
        "llama.cpp": "Breakers are strings; multi-token ones have no counterpart here.",
        "exllama": "Looks at a range of the last tokens: set dry_window.",
    },
)
