"""A row's answer is its own: the same bits alone and anywhere, and nothing that was sent is written to."""

import math

import pytest
import torch
from golden import one_thread  # noqa: F401  (a fixture)
from laws import both, same
from rows_of import BACKENDS, FLOATS, KINDS, row_of, threads

import logitd_kernels as K

PARAMS = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 40},
    {"top_k": 1500},
    {"top_k": 5, "ties": "all"},
    {"min_p": 0.05, "top_p": 0.5},
    {"top_p": 0.9999},
    {"banned_ids": [0, 1]},
    {"logit_bias": {3: 2.5}},
    {"allowed_ids": list(range(0, 300, 3))},
    {"typical_p": 0.7},
    {"epsilon_cutoff": 0.001, "temperature": 1.5},
    {"eta_cutoff": 0.01},
    {"top_n_sigma": 1.5},
    {"top_h": 0.6},
    {"top_a": 0.3},
    {"xtc_probability": 0.5, "xtc_threshold": 0.01},
    {"dynatemp_range": 0.5},
    {"smoothing_factor": 0.4, "smoothing_curve": 1.7},
    {"mirostat": 1},
    {"mirostat": 2, "mirostat_mu": 5.0},
    {"adaptive_target": 0.3, "top_k": 20},
    {"repetition_penalty": 1.3, "penalty_window": 8},
    {"frequency_penalty": 0.5, "presence_penalty": 0.25, "frequency_scope": "both"},
    {"no_repeat_ngram_size": 2},
    {"dry_multiplier": 0.8, "dry_breaker_ids": [3]},
    {"bad_words": [[1], [2, 5]], "min_tokens": 30, "stop_ids": [4]},
    {"guidance_scale": 1.7},
]


def test_every_transform_is_among_them():
    given = [K.check(one) for one in PARAMS]
    beside = {"mask": 1, "guidance_logits": 1}
    assert all(any(step.active({**one, **beside}) for one in given) for step in K.TRANSFORMS)


def batch_of(size: int, count: int, dtype=torch.float32) -> tuple[K.DenseRows, list]:
    """Return rows [count, size] of every kind with all that can be sent, a bad one among them, and their parameters."""
    kinds = sorted(KINDS)
    logits = torch.stack([row_of(kinds[place % len(kinds)], size, dtype, place) for place in range(count)])
    logits[count // 3, size // 2] = math.nan
    random = torch.Generator().manual_seed(size)
    ids = torch.randint(-1, 9, (2, count, 20), generator=random, dtype=torch.int32)
    mask = torch.randint(-(2**31), 2**31, (count, -(-size // 32)), generator=random).to(torch.int32)
    guide = torch.randn(count, size, generator=random).to(dtype)
    rows = K.DenseRows(logits, mask | 0x155, ids[0], ids[1], guide)
    return rows, [K.check({"seed": place, "n": 5, **PARAMS[place % len(PARAMS)]}) for place in range(count)]


def some(rows, chosen):
    """Return chosen rows, in that order, with all that was sent of them."""
    tensors = (rows.logits, rows.mask, rows.prompt_ids, rows.output_ids, rows.guidance_logits)
    return K.DenseRows(*(tensor[chosen] for tensor in tensors))


def told(answers):
    """Return answers without the row number that a fault carries."""
    return [repr(answer).split("RowFault(row=")[-1].split(", ", 1)[-1] for answer in answers]


@both
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [300, 5000])
def test_a_row_has_the_same_bits_alone_and_anywhere_in_a_batch(size, dtype, backend):
    count = 58
    rows, params = batch_of(size, count, FLOATS[dtype])
    chosen = BACKENDS[backend]
    together = told(K.sample(rows, params, backend=chosen))
    alone = [K.sample(some(rows, [i]), [params[i]], backend=chosen)[0] for i in range(count)]
    assert told(alone) == together
    backwards = K.sample(some(rows, list(range(count))[::-1]), params[::-1], backend=chosen)
    assert told(backwards) == together[::-1]
    halves = [K.sample(rows.part(i, i + 29), params[i : i + 29], backend=chosen) for i in (0, 29)]
    assert told(halves[0] + halves[1]) == together


@both
@pytest.mark.parametrize("params", PARAMS)
def test_one_row_gives_the_same_bits_at_every_place(params, backend):
    ids, guide = torch.tensor([[1, 2, 5, 1, 2]]).expand(24, -1), row_of("normal", 5000, seed=1).expand(24, -1)
    rows = K.DenseRows(row_of("normal", 5000).expand(24, -1), None, ids, ids, guide)
    answers = K.sample(rows, K.check({"seed": 3, "n": 3, **params}), backend=BACKENDS[backend])
    assert len(answers) == 24
    assert all(same(answer, answers[0]) for answer in answers)


@both
@pytest.mark.parametrize("size", [1500, 70_000])
def test_a_row_has_the_same_bits_on_any_number_of_threads(size, backend):
    rows, params = batch_of(size, len(PARAMS) if size < 5000 else 10)
    answers = {}
    for count in (1, 2, 8):
        with threads(count):
            answers[count] = told(K.sample(rows, params, backend=BACKENDS[backend]))
    assert answers[1] == answers[2] == answers[8]


@pytest.mark.parametrize("kind", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_has_the_same_bits_alone_in_a_batch_and_on_any_number_of_threads(kind):
    logits = torch.stack([row_of(name, 70_001, torch.float64) for name in KINDS])
    temperatures = [0.5 + place for place in range(len(logits))]
    whole = K.softmax(K.DenseRows(logits), temperatures, kind)
    for count in (1, 2, 8):
        with threads(count):
            alone = [K.softmax(K.DenseRows(r[None]), [t], kind) for r, t in zip(logits, temperatures, strict=True)]
        assert torch.equal(torch.cat([one.log_z for one in alone]), whole.log_z)
        assert torch.equal(torch.cat([one.entropy for one in alone]), whole.entropy)
        if kind != "logsumexp":
            assert torch.equal(torch.cat([one.values for one in alone]), whole.values)


# ---- Inputs ----


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_inputs_are_never_written_to(dtype, backend):
    rows, params = batch_of(300, len(PARAMS), FLOATS[dtype])
    tensors = (rows.logits, rows.mask, rows.prompt_ids, rows.output_ids, rows.guidance_logits)
    before = [tensor.clone() for tensor in tensors], repr(params)
    K.sample(rows, params, backend=BACKENDS[backend], logprobs=3, trace=True)
    K.softmax(K.DenseRows(rows.logits, rows.mask), [0.5] * len(PARAMS))
    for tensor, copy in zip(tensors, before[0], strict=True):
        assert torch.equal(tensor.contiguous().view(torch.uint8), copy.view(torch.uint8))
    assert repr(params) == before[1]


@both
@pytest.mark.parametrize("size", [7, 300, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wider_dtype_with_the_same_numbers_gives_the_same_bits(kind, dtype, size, backend):
    row, turn = row_of(kind, size, FLOATS[dtype]), list(KINDS).index(kind) % 3  # each third with some of the kinds
    asked = [one for one in PARAMS[turn::3] if size >= 300 or "allowed_ids" not in one]
    params = [K.check({"seed": 9, "n": 5, **one}) for one in asked]
    batches = [K.DenseRows(row.to(wide).expand(len(params), -1)) for wide in (row.dtype, torch.float32, torch.float64)]
    narrow, *wider = (told(K.sample(batch, params, backend=BACKENDS[backend], logprobs=3)) for batch in batches)
    assert all(answers == narrow for answers in wider)


@both
@pytest.mark.parametrize("layout", ["transposed", "every other", "reversed rows", "expanded"])
def test_strides_change_nothing(layout, backend):
    plain = torch.stack([row_of("normal", 500, seed=seed) for seed in range(6)])
    views = {
        "transposed": plain.T.contiguous().T,
        "every other": torch.stack([plain, plain + 1], 2).view(6, 1000)[:, ::2],
        "reversed rows": plain.flip(0).contiguous().flip(0),
        "expanded": plain,
    }
    view = plain[:1].expand(6, -1) if layout == "expanded" else views[layout]
    params = [K.check({"seed": seed, "n": 5, "top_p": 0.9}) for seed in range(6)]
    answers = K.sample(K.DenseRows(view), params, backend=BACKENDS[backend])
    assert answers == K.sample(K.DenseRows(view.clone().contiguous()), params, backend=BACKENDS[backend])


# ---- Extremes ----


@both
@pytest.mark.parametrize("temperature", [5e-324, 1.0, 1.7e308])
@pytest.mark.parametrize("kind", ["huge", "denormal", "mostly_masked"])
def test_no_step_makes_nan_of_an_extreme_row(kind, temperature, backend):
    """Nor a warning, which fails the test."""
    count = len(PARAMS)
    logits = row_of(kind, 300, torch.float64).expand(count, -1)
    ids = torch.tensor([[1, 2, 5, 1, 2]]).expand(count, -1)
    rows = K.DenseRows(logits, None, ids, ids, row_of("normal", 300, torch.float64).expand(count, -1))
    params = [K.check({"seed": 1, "n": 3, **one, "temperature": temperature}) for one in PARAMS]
    for answer in K.sample(rows, params, backend=BACKENDS[backend]):
        assert 1 <= answer.kept <= 300
        assert all(math.isfinite(one) for one in (*answer.logprobs, answer.entropy, answer.entropy_kept))
        assert 0 <= answer.kept_mass <= 1
