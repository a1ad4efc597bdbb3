"""Mirostat and adaptive_p over sequences: llama.cpp draws, and its state has to be ours after every token."""

import ctypes

import numpy as np
import pytest
import torch
from comparing import Row, ours, real
from differences import LLAMA, allowed
from llama_chain import ABSENT, NO_SEED, Chain, make
from rows_of import row_of
from test_llama_truncation import without_the_impossible

import logitd_kernels as K
from logitd_kernels.sampling.order import order_of
from logitd_kernels.sampling.registry import TRANSFORMS

pytestmark = pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
ORDER = order_of("llama.cpp")
UPDATE = {transform.name: transform.update for transform in TRANSFORMS}

# The contexts of its samplers, as src/llama-sampler.cpp of this version has them; what was set shows that they fit.
_UINT, _INT, _REAL = ctypes.c_uint32, ctypes.c_int32, ctypes.c_float


class _Sampler(ctypes.Structure):
    _fields_ = (("iface", ctypes.c_void_p), ("ctx", ctypes.c_void_p))


class _Mirostat1(ctypes.Structure):
    _fields_ = (("vocab", _INT), ("seeds", _UINT * 2), ("tau", _REAL), ("eta", _REAL), ("m", _INT), ("mu", _REAL))


class _Mirostat2(ctypes.Structure):
    _fields_ = (("seeds", _UINT * 2), ("tau", _REAL), ("eta", _REAL), ("mu", _REAL))


class _AdaptiveP(ctypes.Structure):
    _fields_ = (
        ("target", _REAL),
        ("decay", _REAL),
        ("seeds", _UINT * 2),
        ("mersenne_twister", ctypes.c_uint64 * 625),
        ("sum", _REAL),
        ("weight", _REAL),
    )


def _context(sampler, kind):
    return kind.from_address(_Sampler.from_address(sampler).ctx)


def _sequence(kind, size, steps):
    return [row_of(kind, size, seed=seed) for seed in range(steps)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [5, 33, 1000])
@pytest.mark.parametrize("tau", [1.0, 2.0, 3.0])
def test_mirostat(version, size, tau):
    _follow_mirostat(version, _sequence("normal", size, 20), tau, temperature=0.8)


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_on_ties_and_real_rows(version):
    _follow_mirostat(version, _sequence("ties", 33, 20), 3.0)
    _follow_mirostat(version, [without_the_impossible(real()).logits] * 8, 2.0)


def test_a_count_beyond_their_integers():
    row = row_of("flat", 33)
    assert _their_count(row.double().numpy(), 30.0) > 2.0**31
    with Chain([make("init_mirostat", 33, NO_SEED, 15.0, 0.1, 100)]) as chain:
        theirs, _ = chain.apply(row.numpy())
    assert np.count_nonzero(theirs) in (1, 33)  # C leaves it open; on x86-64 one
    assert np.count_nonzero(ours(Row(row), {"mirostat": 1, "mirostat_tau": 15.0}, ORDER)) == 33
    assert "overflow" in allowed(LLAMA, "mirostat")


def test_the_vocabulary_of_version_1():
    row = torch.where(torch.arange(1000) < 40, row_of("normal", 1000), -torch.inf)
    of_all, of_40 = (int(_their_count(row.double().numpy(), 6.0, vocab)) for vocab in (1000, 40))
    assert of_all != of_40
    mirostat = make("init_mirostat", 1000, NO_SEED, 3.0, 0.1, 100)
    with Chain([mirostat]) as chain:
        assert np.count_nonzero(chain.apply(row.numpy())[0]) == of_all
    params = {"mirostat": 1, "mirostat_tau": 3.0}
    assert np.count_nonzero(ours(Row(row), params, ORDER)) == of_40
    assert "vocabulary" in allowed(LLAMA, "mirostat")


def _their_count(logits, mu, vocab=None):
    """Return k of version 1, as their apply computes it, in float64."""
    falling = np.sort(logits[logits > -np.inf])[::-1]
    places = np.arange(1, min(len(falling), 100))
    steps, falls = np.log((places + 1) / places), -np.diff(falling[:100])
    slope = np.sum(steps * falls) / np.sum(steps**2)
    with np.errstate(over="ignore"):
        return ((slope - 1) * 2**mu / (1 - (vocab or len(falling)) ** (1 - slope))) ** (1 / slope)


def _follow_mirostat(version, rows, tau, temperature=1.0, eta=0.3):
    vocab = int((rows[0] > -np.inf).sum())
    if version == 1:
        mirostat = make("init_mirostat", vocab, NO_SEED, tau, eta, 100)
    else:
        mirostat = make("init_mirostat_v2", NO_SEED, tau, eta)
    context = _context(mirostat, _Mirostat1 if version == 1 else _Mirostat2)
    assert (context.tau, context.eta, context.mu) == pytest.approx((tau, eta, 2 * tau))
    params = {"temperature": temperature, "mirostat": version, "mirostat_tau": tau, "mirostat_eta": eta}
    cut = 0
    with Chain([make("init_temp_ext", temperature, 0.0, 1.0), mirostat]) as chain:
        for row in rows:
            if version == 1 and _their_count(row.double().numpy() / temperature, context.mu) > 2.0**31:
                context.mu = tau  # see above
            params["mirostat_mu"] = context.mu  # so that no difference of rounding adds up
            theirs, token = chain.apply(row.numpy())
            mine = ours(Row(row), params, ORDER)
            _check_kept(row.numpy(), mine, theirs)
            cut += np.count_nonzero(mine) < vocab
            probability = mine[row.numpy() == row[token].item()].max()  # of a token that is equal, if not the same
            mu = UPDATE["mirostat"](K.check(params), probability)["mirostat_mu"]
            assert context.mu == pytest.approx(mu, abs=2e-3)
    assert cut


def _check_kept(row, mine, theirs):
    """Assert that the same tokens are kept, or equal ones, but for a hundredth: float32 powers decide of the last."""
    count, other = np.count_nonzero(mine), np.count_nonzero(theirs)
    assert abs(count - other) <= 0.01 * count
    if count == other:
        assert (np.sort(row[mine > 0]) == np.sort(row[theirs > 0])).all()
        np.testing.assert_allclose(np.sort(theirs), np.sort(mine), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [5, 33, 1000])
@pytest.mark.parametrize("target", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_adaptive_p(size, target, decay):
    _follow_adaptive(_sequence("normal", size, 15), target, decay)


def test_adaptive_p_on_ties_and_real_rows():
    _follow_adaptive(_sequence("ties", 33, 15), 0.3, 0.5)
    _follow_adaptive([without_the_impossible(real()).logits] * 6, 0.3, 0.5)


def _follow_adaptive(rows, target, decay):
    adaptive = make("init_adaptive_p", target, decay, NO_SEED)
    context = _context(adaptive, _AdaptiveP)
    assert (context.target, context.decay) == pytest.approx((target, decay))
    assert (context.sum, context.weight) == pytest.approx((target / (1 - decay), 1 / (1 - decay)))
    before = {"min_p": 0.01, "temperature": 0.9}
    params = {**before, "adaptive_target": target, "adaptive_decay": decay}
    samplers = [make("init_min_p", 0.01, 0), make("init_temp_ext", 0.9, 0.0, 1.0), adaptive]
    with Chain(samplers) as chain:
        for row in rows:
            theirs, token = chain.apply(row.numpy())
            np.testing.assert_allclose(theirs, ours(Row(row), params, ORDER), rtol=0, atol=2e-6)
            chain.accept(token)
            state = UPDATE["adaptive_p"](K.check(params), ours(Row(row), before, ORDER)[token])
            assert (context.sum, context.weight) == pytest.approx(tuple(state.values()), abs=1e-4)
            params |= state
