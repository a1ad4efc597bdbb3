"""Softmax, log-softmax, log-sum-exp and entropy beside scipy's, on made-up rows and on a real model's."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from loadtest.http.profiles import real
from rows_of import row_of
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import entropy

import logitd_kernels as K

MADE_UP = ["normal", "ties", "peaked", "flat", "mostly_masked", "equal", "low"]
CASES = [(name, size) for name in MADE_UP for size in (5, 300, 32_000)]
CASES += [(f"real {place}", 126_052) for place in range(8)]

backends = pytest.mark.parametrize("backend", ["auto", "torch"])
cases = pytest.mark.parametrize(("name", "size"), CASES, ids=[f"{name}, {size}" for name, size in CASES])


@lru_cache(1)
def row(name, size):
    """A row [V] float64."""
    if name.startswith("real"):
        return real.rows()[int(name.split()[1])].astype(np.float64)
    return row_of(name, size, torch.float64).numpy()


def ask(logits, temperature, kind, backend):
    return K.softmax(K.DenseRows(torch.from_numpy(logits)[None]), [temperature], kind, K.pick(backend))


@backends
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@cases
def test_scipy_says_the_same(name, size, temperature, backend):
    logits = row(name, size)
    scaled = logits / temperature
    told = ask(logits, temperature, "softmax", backend)
    expected = softmax(scaled)
    assert len(logits) == size
    assert np.allclose(told.values[0].numpy(), expected, rtol=1e-9, atol=1e-300)
    assert told.log_z[0].item() == pytest.approx(logsumexp(scaled), rel=1e-12, abs=1e-12)
    assert told.entropy[0].item() == pytest.approx(entropy(expected), rel=1e-9, abs=1e-9)
    logarithms = ask(logits, temperature, "log_softmax", backend).values[0].numpy()
    assert np.allclose(logarithms, log_softmax(scaled), rtol=1e-11, atol=1e-9)
