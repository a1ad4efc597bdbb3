"""Verifications in short, and the same from their formulas, a loop at a time."""

import math

import numpy as np
import torch

import logitd_kernels as K
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.verify import verify

P, Q = [0.7, 0.2, 0.1], [0.1, 0.6, 0.3]  # worked numbers of the field
BASE = K.check({"seed": 1})


def logits_of(probabilities) -> torch.Tensor:
    """Return the logits of distributions, [..., V] float64; 0 is −inf."""
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(np.asarray(probabilities, np.float64)))


def speculation(target, ids, probs=None, logits=None, lengths=None) -> Speculation:
    """Return rows whose target distributions [B, n + 1, V] are given as probabilities."""
    floats = [None if x is None else torch.as_tensor(np.asarray(x), dtype=torch.float64) for x in (probs, logits)]
    lengths = None if lengths is None else torch.tensor(lengths)
    return Speculation(logits_of(target), torch.as_tensor(ids, dtype=torch.int64), *floats, lengths)


def one(target, ids, probs=None, method="standard", backend=None, **params):
    """Verify one row: target [n + 1, V], ids [n], probs [n, V]."""
    rows = speculation([target], [ids], None if probs is None else [probs])
    return verify(rows, [K.check({"seed": 1, **params})], method=method, backend=backend)[0]


def each_seed(count: int, **params) -> list:
    """Return checked values that differ in their streams."""
    base = {**K.check({"seed": 1, **params})}
    return [{**base, "stream": stream} for stream in range(count)]


def replayed(target, draft, ids, method, seed, stream=0, step=0):
    """Return tokens and accepted of one row, in the words of the documentation."""
    u = [min(K.uniform(seed, stream, step, place, 1), 1 - 2**-53) for place in range(len(ids))]
    scale, accepted = 1.0, 0
    if method == "standard":
        while accepted < len(ids) and u[accepted] * draft[accepted][ids[accepted]] < target[accepted][ids[accepted]]:
            accepted += 1
    else:
        reach = [1.0]
        for place, x in enumerate(ids):
            p, q = target[place][x], draft[place][x]
            reach.append(min(reach[-1] * (p / q if q else math.inf * p if p else 0.0), 1.0) if reach[-1] else 0.0)
        for place in range(1, len(ids) + 1):
            held = reach[place]
            if place < len(ids):
                m = sum(max(reach[place] * p - q, 0.0) for p, q in zip(target[place], draft[place], strict=True))
                held = m / (m + (1 - reach[place])) if m + (1 - reach[place]) else 1.0
            if u[place - 1] <= held:
                accepted = place
        scale = reach[accepted]
    weights = target[accepted]
    if accepted < len(ids):
        rest = [max(scale * p - q, 0.0) for p, q in zip(target[accepted], draft[accepted], strict=True)]
        weights = rest if any(rest) else weights
    order = sorted(range(len(weights)), key=lambda token: (-target[accepted][token], token))
    last = min(K.uniform(seed, stream, step, accepted, 2 if accepted < len(ids) else 3), 1 - 2**-53)
    running = np.cumsum([weights[token] for token in order])
    token = order[int(np.searchsorted(running, last * running[-1], side="right"))]
    return [*ids[:accepted], token], accepted
