"""Philox4x32-10 and the uniform made of it: known answers, an independent implementation, and its statistics."""

import numpy as np
import pytest
from scipy import stats

import logitd_kernels as K
from logitd_kernels import philox

KNOWN = {  # Random123, kat_vectors
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
TOP = 0xFFFFFFFF


def philox_in_numpy(counter, key):
    """Philox4x32-10 as its paper writes it: multiply the even words, swap, xor the odd words and the key in."""
    counter, key = np.array(counter, np.uint64), np.array(key, np.uint64)
    word, multipliers, weyl = (
        np.array(v, np.uint64) for v in (TOP, [0xD2511F53, 0xCD9E8D57], [0x9E3779B9, 0xBB67AE85])
    )
    for _ in range(10):
        products = multipliers * counter[[0, 2]]
        high, low = products >> np.uint64(32), products & word
        counter = np.array([high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]])
        key = (key + weyl) & word
    return tuple(int(x) for x in counter)


def uniform_in_numpy(seed, stream, step, draw, purpose):
    x = philox_in_numpy((step, stream, draw, purpose), (seed % 2**32, seed // 2**32))
    return (np.float64((x[0] // 32) * 2**26 + x[1] // 64) + 0.5) / 2**53


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN.values(), ids=KNOWN)
def test_known_answers(counter, key, words):
    assert K.philox4x32(counter, key) == words
    assert philox_in_numpy(counter, key) == words


def test_words_are_those_of_an_independent_implementation():
    rng = np.random.default_rng(1)
    for words in rng.integers(0, 2**32, (300, 6)).tolist():
        assert K.philox4x32(tuple(words[:4]), tuple(words[4:])) == philox_in_numpy(words[:4], words[4:])


def test_uniforms_are_those_of_an_independent_implementation():
    rng = np.random.default_rng(2)
    for stream, step, draw, purpose, low, high in rng.integers(0, 2**32, (300, 6)).tolist():
        seed = low + (high << 32)
        assert K.uniform(seed, stream, step, draw, purpose) == uniform_in_numpy(seed, stream, step, draw, purpose)


def test_stream_step_draw_and_purpose_are_0_unless_given():
    assert K.uniform(7) == uniform_in_numpy(7, 0, 0, 0, 0)


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("word", range(6))
def test_every_bit_of_every_counter_and_key_word_matters(word, bit):
    words = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    flipped = list(words)
    flipped[word] ^= 1 << bit
    one, other = (K.philox4x32(tuple(w[:4]), tuple(w[4:])) for w in (words, flipped))
    assert all(a != b for a, b in zip(one, other, strict=True))
    assert 30 < sum((a ^ b).bit_count() for a, b in zip(one, other, strict=True)) < 98  # about half of 128


ARGUMENTS = {
    "seed": (1, 2**32, 2**63, 2**64 - 1),
    "stream": (1, TOP),
    "step": (1, TOP),
    "draw": (1, TOP),
    "purpose": (1, TOP),
}


def test_no_two_arguments_of_uniform_stand_for_the_same_word():
    told = [K.uniform(0)]
    told += [K.uniform(**{"seed": 0, name: value}) for name, values in ARGUMENTS.items() for value in values]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(("word", "told"), [(0, 2.0**-54), (TOP, 1.0)])
def test_uniform_is_above_0_and_at_most_1(monkeypatch, word, told):
    monkeypatch.setattr(philox, "philox4x32", lambda counter, key: (word,) * 4)
    assert K.uniform(0) == told


def test_uniform_uses_27_bits_of_the_first_word_and_26_of_the_second(monkeypatch):
    monkeypatch.setattr(philox, "philox4x32", lambda counter, key: (1 << 5, 1 << 6, TOP, TOP))
    assert K.uniform(0) == (2**26 + 1.5) / 2**53
    monkeypatch.setattr(philox, "philox4x32", lambda counter, key: (31, 63, TOP, TOP))
    assert K.uniform(0) == 2.0**-54


RUNS = {
    "seeds": lambda i: K.uniform(i),
    "high seeds": lambda i: K.uniform(i << 32),
    "streams": lambda i: K.uniform(1, stream=i),
    "steps": lambda i: K.uniform(1, step=i),
    "draws": lambda i: K.uniform(1, draw=i),
}


@pytest.mark.parametrize("run", RUNS)
def test_uniforms_are_uniform_and_neighbours_independent(run):
    us = np.array([RUNS[run](i) for i in range(20_000)])
    assert us.min() > 0
    assert us.max() <= 1
    leading = np.minimum((us * 256).astype(int), 255)
    trailing = ((us * 2**53).astype(np.uint64) >> np.uint64(8)) % np.uint64(256)
    pairs = leading[:-1] // 16 * 16 + leading[1:] // 16
    for bins in (leading, trailing, pairs):
        assert stats.chisquare(np.bincount(bins.astype(int), minlength=256)).pvalue > 1e-6
