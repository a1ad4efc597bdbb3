"""The `torch` backend against the float64 `reference`, over dtypes, lengths, kinds of row and parameters."""

import math

import pytest
import torch
from rows_of import BACKENDS, FLOATS, INF, KINDS, row_of, threads

import logitd_kernels as K
from logitd_kernels.errors import BackendUnavailable


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


DRAWS = 12
PARAMS = [
    {},
    {"temperature": 0},
    {"temperature": 0.3},
    {"temperature": 20},
    {"temperature": 1e-38},
    {"temperature": 1e300},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 40, "ties": "all"},
    {"top_k": 1500},
    {"top_p": 1e-12},
    {"top_p": 0.3},
    {"top_p": 0.95},
    {"top_p": 0.9999999},
    {"min_p": 0.01},
    {"min_p": 1},
    {"temperature": 0.7, "min_p": 0.001, "top_k": 2000, "top_p": 0.9},
    {"logit_bias": {0: 1.25}, "top_p": 0.5},
    {"logit_bias": {0: -INF}, "min_p": 0.1},
    {"banned_ids": [0], "top_k": 2},
]
SIZES = [1, 7, 255, 256, 257, 4096, 4097]
# All dtypes and kinds at the lengths where a code path begins or ends; the longest rows at fewer of them.
CASES = [(kind, dtype, size) for kind in KINDS for dtype in FLOATS for size in SIZES]
CASES += [(kind, "float32", 32000) for kind in KINDS]
CASES += [(kind, dtype, 32000) for kind in ("normal", "huge", "denormal") for dtype in ("bfloat16", "float64")]
CASES += [(kind, "float32", 126052) for kind in ("normal", "flat", "ties", "mostly_masked")]


def answers(backend, row, params, **options):
    """Answer one row [V] once for each set of parameters."""
    rows = K.DenseRows(row.expand(len(params), -1))
    checked = [K.check({"seed": seed, "n": DRAWS, **values}) for seed, values in enumerate(params)]
    return K.sample(rows, checked, backend=BACKENDS[backend], trace=True, **options)


def numbers(answer):
    """Return every real number of an answer, those beside the draw last."""
    steps = [number for step in answer.trace for number in (step.entropy, step.kept_mass)]
    beside = [*answer.top.of_tokens, *(top.logprob for top in answer.top.top)] if answer.top else []
    return [*answer.logprobs, answer.entropy, answer.entropy_kept, answer.kept_mass, *steps, *beside]


def choices(answer):
    """Return everything of an answer that is not a real number."""
    tops = [top.token for top in answer.top.top] if answer.top else []
    return answer.tokens, answer.kept, answer.seed, answer.exact, [(s.transform, s.kept) for s in answer.trace], tops


def assert_alike(one, other, params):
    if isinstance(other, K.RowFault):
        assert one == other, params
        return
    assert choices(one) == choices(other), params
    assert numbers(one) == pytest.approx(numbers(other), rel=1e-9, abs=1e-12), params


@pytest.mark.parametrize(("kind", "dtype", "size"), CASES)
def test_torch_answers_as_the_reference(kind, dtype, size):
    row = row_of(kind, size, FLOATS[dtype])
    pairs = zip(answers("torch", row, PARAMS), answers("reference", row, PARAMS), PARAMS, strict=True)
    for told, truth, params in pairs:
        assert_alike(told, truth, params)


@pytest.mark.parametrize("mode", ["raw", "processed"])
@pytest.mark.parametrize("size", [7, 4097, 32000])
@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_beside_the_draw_are_the_same(kind, size, mode):
    row = row_of(kind, size)
    params = [{"temperature": 0.7}, {"top_k": 3}, {"temperature": 0}, {"banned_ids": [0]}]
    for count in (1, 100, 1025):
        both = [answers(name, row, params, logprobs=count, logprobs_mode=mode) for name in ("torch", "reference")]
        for told, truth, values in zip(*both, params, strict=True):
            assert_alike(told, truth, (values, count))


@pytest.mark.parametrize("top_k", [64, 65, 1024, 1025, 2500, 4999])
@pytest.mark.parametrize("kind", KINDS)
def test_every_head_size_is_cut_at_the_same_token(kind, top_k):
    """Where a narrow head ends, where a wide one does, and where the radix selection takes over."""
    row = row_of(kind, 5000)
    finite = int((row > -INF).sum())
    share = min(top_k, finite) / finite
    params = [{"top_k": top_k}, {"top_k": top_k, "ties": "all"}, {"temperature": 1e300, "top_p": share * 0.99999}]
    for told, truth, values in zip(
        answers("torch", row, params), answers("reference", row, params), params, strict=True
    ):
        assert_alike(told, truth, values)
        assert told.kept >= min(top_k, finite)


@pytest.mark.parametrize("size", [5000, 140_000])
def test_a_block_of_the_largest_logits_among_many_ties(size):
    """Floors of heads are taken over blocks of the row: all of the head may lie in one of them."""
    row = torch.zeros(size)
    row[64:192] = torch.linspace(5, 6, 128)
    row[-3:] = 7
    params = [{"top_k": k} for k in (2, 3, 4, 64, 131, 132, 1024, 1025)] + [{"top_p": 0.02}, {"min_p": 0.2}, {}]
    for told, truth, values in zip(
        answers("torch", row, params), answers("reference", row, params), params, strict=True
    ):
        assert_alike(told, truth, values)


@pytest.mark.parametrize("name", ["nonsense", "", "TORCH"])
def test_a_backend_that_is_not_there_raises(name):
    with pytest.raises(BackendUnavailable) as caught:
        K.pick(name)
    assert caught.value.backend == name
    assert caught.value.reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_gpu_backend_without_a_gpu_says_so():
    with pytest.raises(BackendUnavailable, match=r"CUDA device|triton is not installed"):
        K.pick("triton")


def test_auto_runs_and_tells_why():
    backend = K.pick("auto")
    assert K.available()[backend.name] is None
    assert backend.reason.startswith("auto: ")


def test_what_is_available_can_be_picked_and_what_is_not_says_why():
    available = K.available()
    assert available["torch"] is available["reference"] is None
    for name, why_not in available.items():
        if why_not is None:
            assert K.pick(name).name == name
        else:
            with pytest.raises(BackendUnavailable) as caught:
                K.pick(name)
            assert caught.value.reason == why_not


def test_the_tolerance_would_show_a_float32_sum():
    """1e-9 is well below what float32 masses would leave."""
    row = row_of("normal", 4096)
    coarse = float(torch.exp((row - row.max()).float()).sum())
    assert abs(coarse / float(torch.exp((row - row.max()).double()).sum()) - 1) > 1e-9
    assert math.isfinite(coarse)
