"""Rows with the tokens before them, as penalties and bans read them."""

from dataclasses import replace

import numpy as np
from comparing import KINDS, SIZES, Row
from rows_of import row_of


def random_row(rng: np.random.Generator, kinds: tuple[str, ...] = KINDS, sizes: tuple[int, ...] = SIZES) -> Row:
    """Return a row after a prompt and an output of up to 20 tokens each, few distinct ones, so that they repeat."""
    size = int(rng.choice(sizes))
    row = Row(row_of(str(rng.choice(kinds)), size, seed=int(rng.integers(1 << 20))))
    few = rng.integers(0, size, 4)
    prompt, output = (tuple(rng.choice(few, rng.integers(0, 21)).tolist()) for _ in range(2))
    return replace(row, prompt=prompt, output=output)


def some_ids(rng: np.random.Generator, row: Row, count: int) -> tuple[int, ...]:
    """Return distinct ids, of which some were seen; fewer than the row has finite logits."""
    finite = int((row.logits > -np.inf).sum())
    size = len(row.logits)
    ids = {*row.output[-2:], *rng.integers(0, size, count).tolist()}
    return tuple(sorted(ids))[: max(1, finite - 1)]
