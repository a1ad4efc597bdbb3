"""The compiled check of a head's order and ids, against the one without it; and what the compiled functions refuse."""

import math

import numpy as np
import pytest
import torch
from head_cases import DTYPES, INF

import logitd_kernels as K
from logitd_kernels import native, philox, rows
from logitd_kernels.errors import KernelError
from logitd_kernels.hot_heads import ELSEWHERE, HEAD_ANSWER, HEAD_REQUEST, HeadBatch
from logitd_kernels.sampling import draw as drawing
from logitd_kernels.select import cpu

pytestmark = pytest.mark.skipif(cpu.why_not() is not None, reason="this install has no compiled kernels")


def broken_heads(rng):
    """Yield heads with one thing that may be wrong with their order or ids: fields of HeadRows."""
    for number in range(400):
        size, vocab = int(rng.integers(1, 30)), int(rng.integers(30, 60))
        rows_ = int(rng.integers(1, 4))
        logits = np.sort(rng.integers(-3, 3, (rows_, size)).astype(float), 1)[:, ::-1].copy()
        ids = np.stack([_ordered_ids(rng, own, vocab) for own in logits])
        row, place = int(rng.integers(rows_)), int(rng.integers(size))
        match number % 6:
            case 0:
                logits[row, place] = rng.choice([math.nan, INF, -INF, 7.0])
            case 1:
                ids[row, place] = rng.choice([-1, vocab, 2**31 - 1, -(2**31), ids[row, 0]])
            case 2:
                ids[row] = rng.permutation(ids[row])
            case 3:
                logits[row, place:] = -INF
            case 4:
                logits[row] = rng.permutation(logits[row])
        yield ids, logits, vocab


def _ordered_ids(rng, logits, vocab):
    ids = rng.choice(vocab, len(logits), replace=False)
    return ids[np.lexsort((ids, -logits))]


def test_order_and_ids_are_judged_as_without_the_compiled_check(monkeypatch):
    rng = np.random.default_rng(31)
    refused = 0
    for ids, logits, vocab in broken_heads(rng):
        dtype = DTYPES[rng.integers(4)]
        fields = {
            "ids": torch.from_numpy(ids).to([torch.int32, torch.int64][rng.integers(2)]),
            "logits": torch.from_numpy(logits).to(dtype),
            "log_z": torch.zeros(len(ids)),
            "vocab_size": vocab,
        }
        said = []
        for module in (native.module, None):
            monkeypatch.setattr(rows, "_native", module)
            try:
                K.HeadRows(**fields)
                said.append("")
            except KernelError as error:
                said.append(str(error))
        assert said[0] == said[1], fields
        refused += said[0] != ""
    assert 100 < refused < 300


def test_a_vocabulary_too_large_for_a_set_of_bits_is_judged_too():
    def head(ids):
        return K.HeadRows(torch.tensor([ids]), torch.tensor([[2.0, 1.0]]), torch.tensor([2.5]), 1 << 40)

    assert len(head([1 << 39, 0])) == 1
    for ids in ([1 << 39, 1 << 39], [1 << 40, 0]):
        with pytest.raises(KernelError):
            head(ids)


# ---- What the compiled functions refuse ----


def test_compiled_uniforms_are_the_documented_ones():
    rng = np.random.default_rng(32)
    for seed in (0, 1, 2**53 - 1, 2**64 - 1, *rng.integers(0, 2**63, 200).tolist()):
        stream, step, place = rng.integers(0, 2**32, 3).tolist()
        assert drawing.uniform(seed, stream, step, place) == philox.uniform(seed, stream, step, place)


def test_arrays_that_disagree_are_refused():
    logits, ids, log_z = torch.zeros(2, 3), torch.arange(3).repeat(2, 1), torch.zeros(2, 1)
    request = np.array([(0, 0, 1.0, 0.0, 0, 1.0, 0.5, False)], HEAD_REQUEST)
    batch = HeadBatch(ids, logits, log_z, np.array([1.0]), None, 9, request, 1)
    assert cpu.sample_heads(batch)["status"].tolist() == [ELSEWHERE]  # log Z is below the head's
    for row, plane in ((2, 0), (-1, 0), (0, 1)):
        bad = request.copy()
        bad["row"], bad["plane"] = row, plane
        with pytest.raises(ValueError, match="another batch"):
            cpu.sample_heads(batch._replace(requests=bad))
    where = [rows.numbers_at(tensor) for tensor in (logits, ids, log_z)]
    temperatures, deltas, answers = np.array([1.0]), np.zeros((1, 1, 3)), np.empty(1, HEAD_ANSWER)
    for masses, out in ((np.zeros(2), answers), (np.zeros(3), np.empty(2, HEAD_ANSWER))):
        with pytest.raises(ValueError, match="disagree in length"):
            native.module.sample_heads(2, 3, 9, *where, None, temperatures, request, deltas, masses, out)
    with pytest.raises(ValueError, match="disagree in length"):
        native.module.head_deltas(2, 3, where[0], request, temperatures, np.zeros(4))
    with pytest.raises(ValueError, match="4 or 8 bytes"):
        native.module.first_suspect(2, 3, 9, rows.numbers_at(logits.half()), where[1])


def test_exponentials_do_not_depend_on_their_place():
    """The formulas take one row's, the compiled chain those of many rows at once."""
    deltas = -np.abs(np.random.default_rng(33).normal(0, 200, 999))
    together = np.exp(deltas)
    assert all(np.array_equal(np.exp(deltas[begin : begin + 7]), together[begin : begin + 7]) for begin in range(990))
