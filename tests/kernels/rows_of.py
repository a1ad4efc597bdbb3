"""Rows of every awkward kind, and short ways to ask about them."""

import contextlib
import math
from unittest import mock

import numpy as np
import torch
from hypothesis import settings

import logitd_kernels as K

INF = math.inf
BACKENDS = {name: K.pick(name) for name in ("reference", "torch")}
FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}

law = settings(derandomize=True, deadline=None, database=None, max_examples=40)


# ---- Rows ----


def normal(rng, size, dtype):
    return rng.normal(0, 2, size)


def flat(rng, size, dtype):
    return rng.uniform(0, 0.01, size)


def peaked(rng, size, dtype):
    return np.where(np.arange(size) == rng.integers(size), 12.0, rng.normal(0, 1, size))


def ties(rng, size, dtype):
    return rng.choice([-2.0, -0.0, 0.0, 0.5, 1.0], size)


def equal(rng, size, dtype):
    return np.full(size, 1.5)


def mostly_masked(rng, size, dtype):
    row = np.where(rng.random(size) < 0.99, -INF, rng.normal(0, 2, size))
    row[rng.integers(size)] = 1.0
    return row


def high(rng, size, dtype):
    return min(1e5, 0.9 * torch.finfo(dtype).max) + rng.normal(0, 2, size)


def low(rng, size, dtype):
    return -high(rng, size, dtype)


def huge(rng, size, dtype):
    return torch.finfo(dtype).max * rng.choice([1.0, 0.75, 0.0, -1.0], size)


def denormal(rng, size, dtype):
    return torch.finfo(dtype).tiny * (rng.integers(-8, 9, size) / 16)


def masked_in_front(rng, size, dtype):
    return np.where(np.arange(size) < size // 2, -INF, rng.normal(0, 2, size))


def strided(rng, size, dtype):
    return rng.normal(0, 2, (size, 3))


KINDS = {
    kind.__name__: kind
    for kind in (normal, flat, peaked, ties, equal, mostly_masked, high, low, huge, denormal, masked_in_front, strided)
}


def row_of(kind: str, size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return a row [size] of that kind; `strided` is a view of every third number."""
    rng = np.random.default_rng([list(KINDS).index(kind), size, seed])
    values = torch.from_numpy(KINDS[kind](rng, size, dtype)).to(dtype)
    return values[:, 1] if values.ndim == 2 else values


def logs(probabilities, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return the logits [V] of a distribution; 0 is −inf."""
    return torch.tensor([math.log(p) if p else -INF for p in probabilities], dtype=torch.float64).to(dtype)


# ---- Questions ----


@contextlib.contextmanager
def threads(count: int):
    """Let torch use that many threads; one is the fastest for rows as short as most here."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def uniforms(values):
    """Let the draws of a row use these uniforms, in order, whatever its seed."""
    return mock.patch("logitd_kernels.sampling.draw.uniform", lambda seed, stream, step, draw: values[draw])


def ask(row, params=None, backend="torch", mask=None, prompt=None, output=None, guide=None, **options):
    """Answer one row [V]; `prompt` and `output` are lists of token ids, `guide` is a row [V]."""
    row = row if isinstance(row, torch.Tensor) else torch.tensor(row, dtype=torch.float64)
    prompt, output = (None if ids is None else torch.tensor([ids], dtype=torch.int32) for ids in (prompt, output))
    guide = None if guide is None else torch.as_tensor(guide, dtype=row.dtype)[None]
    rows = K.DenseRows(row[None], mask, prompt, output, guide)
    return K.sample(rows, K.check({"seed": 1, **(params or {})}), backend=BACKENDS[backend], **options)[0]


def draw_at(row, us, params=None, backend="torch", mask=None, **options):
    """Answer one row [V] with one draw for each uniform in `us`."""
    with uniforms(us):
        return ask(row, {**(params or {}), "n": len(us)}, backend, mask, **options)


def distribution(row, params=None, backend="torch", mask=None, **options) -> dict[int, float]:
    """Return {token: probability} of every token above 1e-9 that a row can draw, in the order of its quantiles.

    Walks the inverse CDF: each draw tells the token and its probability, so the next uniform lies just past its end.
    """
    found: dict[int, float] = {}
    end = 0.0
    while end < 1 - 1e-9:
        answer = draw_at(row, [end + 1e-10], params, backend, mask, **options)
        token = answer.tokens[0]
        assert token not in found, f"token {token} has two places in the order"
        found[token] = math.exp(answer.logprobs[0])
        end += found[token]
    return found


def left_of(probabilities, params=None, backend="torch", **options) -> list[float]:
    """Return what a distribution [V] becomes, by token id, 0 for what cannot be drawn."""
    found = distribution(logs(probabilities), params, backend, **options)
    return [found.get(token, 0.0) for token in range(len(probabilities))]


def bitmask(allowed, vocab_size: int) -> torch.Tensor:
    """Return the packed mask [1, ⌈V/32⌉] that allows these ids."""
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[list(allowed)] = 1
    return torch.from_numpy(np.packbits(bits, bitorder="little").view("<i4").astype(np.int32))[None]


def softmax64(row, temperature: float = 1.0) -> np.ndarray:
    """Return softmax(row / temperature) of [V] logits in float64."""
    logits = np.asarray(row.double() if isinstance(row, torch.Tensor) else row, dtype=np.float64)
    masses = np.exp((logits - logits.max()) / temperature)
    return masses / masses.sum()
