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

HISTORY = 2048  # ids of a prompt, and of an output
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


def history(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the prompt and the output of rows [N, V]: [N, 2048] int32 each, the same in every run.

    Ids come as words do in a text: the r-th likeliest with a frequency of 1/(r + 10)^1.6 (Zipf, Mandelbrot). That makes
    some 700 of 4,096 distinct, as in a few pages of prose.
    """
    rng = np.random.default_rng(len(KINDS))
    count, vocab = logits.shape
    shares = 1 / (np.arange(vocab) + 10) ** 1.6
    ranks = rng.choice(vocab, (count, 2 * HISTORY), p=shares / shares.sum())
    likeliest = torch.sort(logits.float(), descending=True, stable=True).indices
    ids = likeliest.gather(1, torch.from_numpy(ranks)).int()
    return ids[:, :HISTORY].contiguous(), ids[:, HISTORY:].contiguous()


def half_allowed(logits: torch.Tensor) -> torch.Tensor:
    """Return a bitmask for rows [N, V]: [N, ⌈V/32⌉] int32 of random bits, the largest logit allowed."""
    rng = np.random.default_rng(len(KINDS) + 1)
    count, vocab = logits.shape
    words = rng.integers(0, 1 << 32, (count, -(-vocab // 32)), np.uint32)
    best = logits.argmax(-1).numpy()
    words[np.arange(count), best // 32] |= np.left_shift(1, best % 32).astype(np.uint32)
    return torch.from_numpy(words.view(np.int32))


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
