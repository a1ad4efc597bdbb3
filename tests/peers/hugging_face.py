"""transformers' own processors of logits, one for each step here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from comparing import Row, Step
from transformers.generation import logits_process as hf


class _Model:
    """Gives the same unconditional logits [V] whatever it is asked."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits[None, None]

    def __call__(self, *_: object, **__: object) -> "_Model":
        return self

    def get(self, *_: object) -> None:
        return None


def _guidance(params: Mapping[str, Any], row: Row, dtype: torch.dtype) -> hf.LogitsProcessor:
    model = _Model(row.guidance.to(dtype))
    return hf.UnbatchedClassifierFreeGuidanceLogitsProcessor(params["guidance_scale"], model)


MAKE: Mapping[str, Callable[[Mapping[str, Any], Row, torch.dtype], hf.LogitsProcessor]] = {
    "guidance": _guidance,
    "logit_bias": lambda params, *_: hf.SequenceBiasLogitsProcessor(
        [[[token], bias] for token, bias in params["logit_bias"].items()]
    ),
    "repetition_penalty": lambda params, *_: hf.RepetitionPenaltyLogitsProcessor(params["repetition_penalty"]),
    "no_repeat_ngram": lambda params, *_: hf.NoRepeatNGramLogitsProcessor(params["no_repeat_ngram_size"]),
    "bad_words": lambda params, *_: hf.NoBadWordsLogitsProcessor([list(word) for word in params["bad_words"]]),
    "min_tokens": lambda params, row, _: hf.MinNewTokensLengthLogitsProcessor(
        len(row.prompt), params["min_tokens"], list(params["stop_ids"])
    ),
    "banned_ids": lambda params, *_: hf.SuppressTokensLogitsProcessor(params["banned_ids"]),
    "temperature": lambda params, *_: hf.TemperatureLogitsWarper(params["temperature"]),
    "top_h": lambda params, *_: hf.TopHLogitsWarper(params["top_h"]),
    "top_k": lambda params, *_: hf.TopKLogitsWarper(params["top_k"]),
    "top_p": lambda params, *_: hf.TopPLogitsWarper(params["top_p"]),
    "min_p": lambda params, *_: hf.MinPLogitsWarper(params["min_p"]),
    "typical_p": lambda params, *_: hf.TypicalLogitsWarper(params["typical_p"]),
    "epsilon_cutoff": lambda params, *_: hf.EpsilonLogitsWarper(params["epsilon_cutoff"]),
    "eta_cutoff": lambda params, *_: hf.EtaLogitsWarper(params["eta_cutoff"]),
}


def processed(row: Row, steps: Sequence[Step], dtype: torch.dtype) -> np.ndarray:
    """Return the probabilities [V] after some steps, computed in a dtype."""
    scores = row.logits.to(dtype)[None]
    ids = torch.tensor([row.prompt + row.output], dtype=torch.int64)
    for step in steps:
        scores = MAKE[step.name](step.params, row, dtype)(ids, scores)
    return torch.softmax(scores[0].double(), -1).numpy()
