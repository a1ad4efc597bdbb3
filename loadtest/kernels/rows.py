"""The kinds of rows that are measured.

`real` rows are next-word logits of the demo's trigram model; the others are made up, each hard in its own way.
"""

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Row = NDArray[np.float32]

VOCAB = 128_256  # of a made-up row; a real one has the 126,052 words of its model
_TRIGRAM = Path(__file__).parents[2] / "examples" / "trigram.py"
_CONTEXTS = (
    "", "the united", "thank you", "new york", "of the", "i do not", "one of the", "in order", "he said that",
    "going to", "a lot", "the president", "it is", "last week", "on the other", "more than",
)  # fmt: skip


def peaked(rng: np.random.Generator, vocab: int) -> Row:
    """Return N(0, 1) noise with 20 tokens far above it: they hold all the mass."""
    row = rng.standard_normal(vocab, np.float32)
    row[rng.choice(vocab, min(20, vocab), replace=False)] += rng.uniform(14, 22, min(20, vocab)).astype(np.float32)
    return row


def flat(rng: np.random.Generator, vocab: int) -> Row:
    """Return N(0, 1): top_p 0.9 keeps half of the vocabulary."""
    return rng.standard_normal(vocab, np.float32)


def masked(rng: np.random.Generator, vocab: int) -> Row:
    """Return N(0, 3) of which 99 % is −inf, as under a grammar."""
    row = 3 * rng.standard_normal(vocab, np.float32)
    row[rng.permutation(vocab)[: vocab * 99 // 100]] = -np.inf
    return row


def ties(rng: np.random.Generator, vocab: int) -> Row:
    """Return N(0, 2) rounded to quarters: about 70 distinct values."""
    return np.round(8 * rng.standard_normal(vocab, np.float32)) / np.float32(4)


MADE_UP: dict[str, Callable[[np.random.Generator, int], Row]] = {
    "peaked": peaked,
    "flat": flat,
    "masked": masked,
    "ties": ties,
}
KINDS = ("real", *MADE_UP)


@lru_cache(maxsize=2)
def pool(kind: str, count: int, vocab: int = VOCAB) -> torch.Tensor:
    """Return [count, V] float32 rows of a kind, the same in every run, to be read only; real rows repeat after 16."""
    if kind == "real":
        return torch.from_numpy(np.stack([_real(index % len(_CONTEXTS)) for index in range(count)]))
    rng = np.random.default_rng(KINDS.index(kind))
    return torch.from_numpy(np.stack([MADE_UP[kind](rng, vocab) for _ in range(count)]))


@lru_cache(maxsize=len(_CONTEXTS))
def _real(index: int) -> Row:
    logits: Row = _model().logits(_CONTEXTS[index].split())
    return logits


@lru_cache(maxsize=1)
def _model() -> Any:  # noqa: ANN401  (a class of a file in examples/, which is no package)
    spec = importlib.util.spec_from_file_location("trigram", _TRIGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TrigramModel()
