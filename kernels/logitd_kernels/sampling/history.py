"""What transforms ask about the tokens of a sequence so far."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.head import Ids
from logitd_kernels.sampling.transform import Values

SCOPES = ("both", "prompt", "output")

_SHORT = 64  # copies this long are found place by place
_NOTHING = np.empty(0, np.int64)


def prompt_of(values: Values) -> Ids:
    """Return the prompt's token ids [N]; none where none were sent."""
    return values.get("prompt_ids", _NOTHING)  # type: ignore[no-any-return]


def output_of(values: Values) -> Ids:
    """Return the token ids generated so far [N]; none where none were sent."""
    return values.get("output_ids", _NOTHING)  # type: ignore[no-any-return]


def sequence_of(values: Values) -> Ids:
    """Return the whole sequence [N]: the prompt, then the output."""
    return np.concatenate([prompt_of(values), output_of(values)])


def in_scope(edits: Edits, values: Values, scope: str) -> Ids:
    """Return the ids that a penalty counts: those of its scope, in the window, without the exempt ones.

    Args:
        edits: of the row, whose vocabulary the exempt ids are in.
        values: of the row; `penalty_window` (0 is all) keeps the last so many ids, `penalty_exempt_ids` are left out.
        scope: one of SCOPES.
    Raises:
        ParameterError: an exempt id outside the vocabulary.
    """
    edits.check_ids("penalty_exempt_ids", values["penalty_exempt_ids"] or ())
    ids = {"both": sequence_of, "prompt": prompt_of, "output": output_of}[scope](values)
    window, exempt = values["penalty_window"], values["penalty_exempt_ids"]
    ids = ids[-window:] if window else ids
    return ids[~np.isin(ids, exempt)] if exempt else ids


def copies(sequence: Ids, most: int) -> Ids:
    """Return how long a copy of the sequence's end ends at each earlier place, [N − 1], counted up to `most`."""
    size = len(sequence)
    found = np.zeros(max(size - 1, 0), np.int64)
    ends = np.arange(len(found))
    for length in range(1, min(most, size) + 1):
        ends = ends[ends >= length - 1]
        ends = ends[sequence[ends - length + 1] == sequence[size - length]]
        if not len(ends):
            break
        if length > _SHORT:  # a sequence that goes round and round
            return np.minimum(_matches(sequence[::-1].tolist())[::-1][:-1], most)
        found[ends] = length
    return found


def _matches(sequence: list[int]) -> Ids:
    """Return how many ids from each place on equal the sequence's first ones: Gusfield 1997, §1.4, in linear time."""
    size = len(sequence)
    found = [size] * size
    left, right = 0, 0
    for place in range(1, size):
        length = min(right - place, found[place - left]) if place < right else 0
        while place + length < size and sequence[length] == sequence[place + length]:
            length += 1
        found[place] = length
        if place + length > right:
            left, right = place, place + length
    return np.array(found, np.int64)
