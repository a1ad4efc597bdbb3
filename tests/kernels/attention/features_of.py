"""Linear attention by its definition, O(L²) in float64 with the features of a map, and calls small enough for it."""

from dataclasses import replace

import torch

from logitd_kernels.attention.call import Options, Visible
from logitd_kernels.attention.features.feature import Setting, primed
from logitd_kernels.attention.features.moments import Moments
from logitd_kernels.attention.features.registry import METHODS

PLAIN = Options()
CAUSAL = Visible(causal=True)
SMALL = {"spread": 0.5, "dim": 8}  # norms at which normalisers are positive


def normal(*shape, seed=0, spread=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


def moments_of(call):
    q = primed(call.q.double(), call.scaling, torch.float64)
    k = primed(call.k.double(), abs(call.scaling), torch.float64).repeat_interleave(call.group, 1)
    return Moments.of(q[0], k[0])


def setting_of(call, options=PLAIN):
    horizon = max(call.queries, call.keys, 1)
    return Setting(call.q.shape[3], call.scaling, options, moments_of(call), horizon)


def lifted(features):
    """φ itself."""
    return torch.exp(features.exponent) * (1 if features.factor is None else features.factor)


def fitted_to(x, y, moments=True, **options):
    measured = Moments.of(x, y) if moments else None
    return Setting(x.shape[2], 1.0, Options(**options), measured, max(x.shape[1], y.shape[1]), torch.float64)


def kernel(name, x, y, **options):
    """φ(x)·φ(y) of queries x and keys y, [H, Tx, Ty]."""
    fitted = METHODS[name].fit(fitted_to(x, y, **options))
    queries = fitted.queries(x, torch.arange(x.shape[1]))
    return lifted(queries) @ lifted(fitted.keys(y, torch.arange(y.shape[1]))).mT


def definition(call, method, options=PLAIN):
    """Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) over the keys seen, one sequence without lengths, everything at once."""
    fitted = METHODS[method].fit(replace(setting_of(call, options), dtype=torch.float64))
    rows, columns = torch.arange(call.queries), torch.arange(call.keys)
    q = primed(call.q[0], call.scaling, torch.float64)
    k, v = (x[0].double().repeat_interleave(call.group, 0) for x in (call.k, call.v))
    queries = lifted(fitted.queries(q, rows + int(call.offsets()[0])))
    keys = lifted(fitted.keys(primed(k, abs(call.scaling), torch.float64), columns))
    weights = (queries @ keys.mT).masked_fill(~call.seen(rows, columns)[0], 0)
    total = weights.sum(-1, keepdim=True)
    return (weights @ v / total).masked_fill(~(total > 0), 0)[None]


def assert_near(got, want, tolerance=1e-5):
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)
