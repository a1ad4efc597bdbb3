"""no_repeat_ngram: no n tokens in a row may come twice."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.history import copies, sequence_of
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    sequence, size = sequence_of(values), values["no_repeat_ngram_size"]
    if len(sequence) < size:
        return
    repeated = copies(sequence, size - 1) >= size - 1
    following = sequence[1:][repeated] if size > 1 else sequence
    edits.forbid(np.unique(following).tolist())


NO_REPEAT_NGRAM = Edit(
    name="no_repeat_ngram",
    parameter=Number(
        "no_repeat_ngram_size", 0, "Forbid what would repeat so many tokens in a row; 0 is off.", ge=0, integer=True
    ),
    formula="x_i ← −∞ where the last n − 1 ids followed by i are in the sequence already",
    boundary="Over prompt and output; 1 forbids every id that came; shorter sequences forbid nothing.",
    source="Paulus et al. 2017, arXiv:1705.04304, §2.5; Hugging Face NoRepeatNGramLogitsProcessor",
    edit=_edit,
)
