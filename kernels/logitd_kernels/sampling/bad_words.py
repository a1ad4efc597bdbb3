"""Bad words: sequences of tokens that must not be completed."""

import numpy as np

from logitd_kernels.edits import Edits
from logitd_kernels.sampling.history import sequence_of
from logitd_kernels.sampling.parameters import TokenSequences
from logitd_kernels.sampling.transform import Edit, Values


def _edit(edits: Edits, values: Values) -> None:
    sequence, banned = sequence_of(values), set()
    for place, word in enumerate(values["bad_words"]):
        edits.check_ids(f"bad_words[{place}]", word)
        start = word[:-1]
        if len(start) <= len(sequence) and np.array_equal(sequence[len(sequence) - len(start) :], start):
            banned.add(word[-1])
    edits.forbid(sorted(banned))


BAD_WORDS = Edit(
    name="bad_words",
    parameter=TokenSequences("bad_words", "Sequences of token ids that must not be completed."),
    formula="x_i ← −∞ where the sequence ends with w_1 … w_(n−1) and i = w_n, for each word w",
    boundary="Over prompt and output; a word of one token is always forbidden; ids outside the vocabulary are refused.",
    source="Hugging Face NoBadWordsLogitsProcessor",
    edit=_edit,
    differs={"vllm": "Looks for the beginning of a word in the output only."},
)
