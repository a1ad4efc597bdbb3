"""The GPU kernels, interpreted on the CPU where there is no device: equal to the reference, and the same bits anywhere.

The interpreter takes long for every operation, whatever the size of its block, so rows are short and windows narrow:
that sends them down every path that long rows take.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():  # the variable is read when kernels are defined, triton's own among them, and run
    assert "triton" not in sys.modules, "something imported triton before its kernels could be interpreted"
    os.environ["TRITON_INTERPRET"] = "1"

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from loadtest.kernels import gpu as bench  # noqa: E402
from loadtest.kernels.timing import Spread  # noqa: E402

from logitd_kernels import DenseRows, RowFault, RowResult, check, pick, sample, uniform  # noqa: E402
from logitd_kernels.hot import Answers, hot_batch  # noqa: E402
from logitd_kernels.select import triton as gpu  # noqa: E402
from logitd_kernels.select.triton import draw, launch, row, search, staging, window  # noqa: E402
from logitd_kernels.select.triton.crossing import crossing, key_value, order_key  # noqa: E402

pytestmark = [
    pytest.mark.skipif(gpu.why_not() is not None, reason=str(gpu.why_not())),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),  # (x − m)/T → −inf, in numpy's arithmetic
]

REFERENCE = pick("reference")
GPU = replace(REFERENCE, name="triton", hot=gpu.sample_hot)
HERE = launch.device_here().device
INF = float("inf")


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    if HERE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


KINDS = {
    "normal": lambda x: x * 3,
    "flat": lambda x: x,
    "peaked": lambda x: x * 20,
    "ties": lambda x: torch.round(x * 2),
    "equal": lambda x: torch.full_like(x, 1.5),
    "zeros": lambda x: torch.where(x > 0, 0.0, -0.0),
    "masked": lambda x: torch.where(torch.arange(len(x)) % 7 == 0, x * 3, -INF),
    "leading": lambda x: torch.where(torch.arange(len(x)) >= len(x) // 2, x, -INF),
    "clustered": lambda x: torch.where(torch.arange(len(x)) < len(x) // 3, x + 5, x),
    "offset": lambda x: x + 1e5,
    "huge": lambda x: x.sign() * 3e38,
    "denormal": lambda x: x * 1e-40,
    "outliers": lambda x: torch.where(torch.arange(len(x)) % 3 == 0, x * 4, torch.tensor(-1e9)),
}
PARAMS = [
    {},
    {"temperature": 0},
    {"temperature": 1.7, "top_p": 0.5},
    {"top_k": 40, "top_p": 0.9, "temperature": 0.8},
    {"top_k": 150},
    {"top_k": 3, "ties": "all"},
    {"top_p": 0.99},
    {"min_p": 0.05},
    {"min_p": 1e-4, "top_k": 90, "ties": "all", "top_p": 0.95},
    {"temperature": 1e-38},
    {"temperature": 1e300, "top_p": 0.3},
]


def row_of(kind, vocab, seed=0):
    return KINDS[kind](torch.randn(vocab, generator=torch.Generator().manual_seed(vocab + seed)))


@pytest.fixture
def narrow(monkeypatch):
    """Windows of 32 logits: cuts fall beyond the top of a row, and ties overflow a window."""
    monkeypatch.setattr(launch, "WINDOW", 32)


@pytest.fixture
def large_tiles(monkeypatch):
    for module in (row, window, search, draw):
        monkeypatch.setattr(module, "TILE", tl.constexpr(8192))


def assert_alike(got, want, parameters):
    if isinstance(want, RowFault):
        assert got == want, parameters
        return
    assert isinstance(got, RowResult), (got, parameters)
    assert (got.tokens, got.kept, got.seed) == (want.tokens, want.kept, want.seed), parameters
    numbers = ("entropy", "entropy_kept", "kept_mass")
    assert [getattr(got, name) for name in numbers] == pytest.approx(
        [getattr(want, name) for name in numbers], rel=1e-5, abs=1e-6
    ), parameters
    assert got.logprobs == pytest.approx(want.logprobs, rel=1e-5, abs=1e-6), parameters


def assert_as_reference(rows, params):
    values = [check({"seed": seed, **one}) for seed, one in enumerate(params)]
    for pair in zip(sample(rows, values, backend=GPU), sample(rows, values, backend=REFERENCE), params, strict=True):
        assert_alike(*pair)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_reference_in_narrow_windows(kind, narrow):
    params = PARAMS if kind in ("normal", "flat", "ties", "clustered", "outliers") else PARAMS[1::2]
    assert_as_reference(DenseRows(row_of(kind, 300).expand(len(params), -1)), params)


@pytest.mark.parametrize("vocab", [1, 2, 129])
def test_short_rows_are_their_own_window(vocab):
    params = [PARAMS[place] for place in (0, 1, 3, 8, 10)]
    kinds = ("normal", "ties", "flat", "offset", "huge")
    assert_as_reference(DenseRows(torch.stack([row_of(kind, vocab) for kind in kinds])), params)


@pytest.mark.parametrize("kind", ["normal", "flat", "ties"])
def test_rows_of_several_segments(kind):
    """Two segments, many tiles, and cuts at the top and deep down in windows of full size."""
    params = [{}, {"top_p": 0.9}, {"top_k": 2500, "top_p": 0.99}, {"min_p": 0.02, "temperature": 2.0}]
    assert_as_reference(DenseRows(row_of(kind, 4999).expand(len(params), -1)), params)


@pytest.mark.parametrize("dead", [slice(0, 4200), slice(4000, None)])
def test_a_segment_with_nothing_in_it(dead):
    logits = row_of("normal", 4999)
    logits[dead] = -INF
    assert_as_reference(DenseRows(logits[None]), [{"top_p": 0.9}])


def test_a_bracket_that_ends_at_a_token(narrow):
    """The first pivots of this row are −30, −20 and −10: what equals −10 belongs to what lies above."""
    logits = torch.tensor([0.0] + [-10.0] * 40 + [-12.0] * 20)
    masses = torch.exp(logits.double())
    share = float(masses[:50].sum() / masses.sum()) - 1e-9
    assert_as_reference(DenseRows(logits[None]), [{"top_p": share}])


@pytest.mark.parametrize(("kind", "parameters"), [("flat", {"top_p": 0.95}), ("peaked", {"top_k": 50, "top_p": 0.9})])
def test_a_vocabulary_of_32_000(kind, parameters, large_tiles):
    assert_as_reference(DenseRows(row_of(kind, 32_000)[None]), [parameters])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_dtype(dtype, narrow):
    params = [PARAMS[place] for place in (0, 1, 3, 6, 7)]
    assert_as_reference(DenseRows(row_of("normal", 200).to(dtype).expand(len(params), -1)), params)


def test_float64_that_float32_cannot_hold(narrow):
    logits = torch.randn(200, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits[17] = logits[150] = logits.max() + 1e-12
    logits[17] -= 1e-13
    assert_as_reference(DenseRows(logits.expand(3, -1)), [{"temperature": 0}, {"top_k": 1}, {"top_k": 2}])


@pytest.mark.parametrize("row", [torch.zeros(10), torch.full((100,), 3.25)])
def test_a_target_on_a_boundary_of_equal_tokens(row, narrow):
    params = [{"top_p": 0.9}, {"top_p": 0.5}, {"top_k": 4}, {"top_p": 0.300001}]
    assert_as_reference(DenseRows(row.expand(len(params), -1)), params)


@pytest.mark.parametrize("off", [-1e-13, 1e-13])
def test_a_target_near_a_boundary_is_decided_in_float64(off):
    """The mass of a row comes from float32 sums: where their rounding could decide, it is summed anew."""
    logits = row_of("normal", 300)
    through = torch.exp((logits.double() - logits.max()).sort(descending=True).values).cumsum(0)
    places = (0, 3, 10, 40, 100, 200)
    params = [{"top_p": float(through[place] / through[-1]) * (1 + off)} for place in places]
    kept = [place + (2 if off > 0 else 1) for place in places]
    answers = sample(DenseRows(logits.expand(len(params), -1)), [check(one) for one in params], backend=GPU)
    assert [answer.kept for answer in answers] == kept


def test_many_draws_of_one_row(narrow):
    """Peaked and flat parts: draws at the top, in the deep and among ties."""
    logits = torch.cat([torch.tensor([4.0, 4.0, 3.0]), row_of("flat", 150), torch.full((60,), -0.5)])
    params = [{"seed": 7, "step": step, "stream": 2**32 - 1 - step} for step in range(25)]
    assert_as_reference(DenseRows(logits.expand(len(params), -1)), params)


@pytest.mark.parametrize("parameters", [{"top_k": 5}, {"top_k": 150}, {"top_p": 0.97}, {"min_p": 0.01}])
def test_masses_that_decide_are_float64(parameters, narrow):
    """At the top, deep down, above a floor: 1e-12 is far below what float32 masses or coarse units leave."""
    rows, values = DenseRows(row_of("flat", 300)[None]), check({"seed": 3, **parameters})
    [got], [want] = (sample(rows, values, backend=backend) for backend in (GPU, REFERENCE))
    assert [*got.logprobs, got.entropy_kept] == pytest.approx([*want.logprobs, want.entropy_kept], rel=1e-12)


EDITED = [
    {"logit_bias": {0: 5.0, 1: -3.0, 150: 0.25}},
    {"logit_bias": {7: 1e30}, "top_p": 0.9},
    {"logit_bias": {token: 0.1 * token for token in range(0, 200, 3)}, "top_k": 20},
    {"banned_ids": [0, 1, 2, 199], "top_p": 0.8},
    {"allowed_ids": [5, 6, 7, 199], "logit_bias": {6: 2.0, 8: 9.0}},
    {"temperature": 0, "logit_bias": {3: 100.0}},
    {"banned_ids": list(range(200))},
    {},
]


@pytest.mark.parametrize("masked", [False, True])
def test_edits_and_masks(masked, narrow):
    """Rows that need float64 and rows that do not, in one batch."""
    logits = row_of("normal", 200)[None].expand(len(EDITED), -1)
    words = torch.randint(-(2**31), 2**31, (len(EDITED), 7), generator=torch.Generator().manual_seed(2))
    words[-1] = 0
    assert_as_reference(DenseRows(logits, (words | (1 << 7)).to(torch.int32) if masked else None), EDITED)
    none = torch.zeros(1, 7, dtype=torch.int32)
    assert_as_reference(DenseRows(logits[:1], none), [{}])


def test_a_bias_is_added_in_float64():
    assert_as_reference(DenseRows(torch.ones(1, 9)), [{"logit_bias": {5: 1e-9}, "temperature": 0}])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bad_rows_fail_alone(dtype):
    logits = torch.zeros(10, 260, dtype=dtype)
    for place, bad in enumerate([torch.nan, -torch.nan, INF]):
        logits[place, 259 - place] = bad
    logits[3, [5, 200]] = torch.tensor([INF, torch.nan]).to(dtype)  # both: NaN, at the first
    logits[4] = -INF
    logits[5, 130] = torch.nan
    logits[[6, 9], 130] = INF
    mask = torch.full((10, 9), -1, dtype=torch.int32)
    mask[6] = 0  # even where nothing is allowed
    mask[7] = 0
    params = [{}, {}, {"temperature": 0}, {}, {}, {"banned_ids": [130]}, {}, {}, {}, {"banned_ids": [130]}]
    assert_as_reference(DenseRows(logits, mask), params)


def columns(result: Answers):
    names = ("status", "token", "logprob", "entropy", "entropy_kept", "kept", "kept_mass")
    return np.stack([result[name].astype(np.float64) for name in names])


def test_a_row_has_the_same_bits_alone_and_in_any_batch(narrow, monkeypatch):
    """Memory of the batch before, and of nobody, is poisoned: what a kernel leaves unwritten shows."""

    def poisoned(*size, _empty=torch.empty, **options):
        return _empty(*size, **options).fill_(255)

    monkeypatch.setattr(torch, "empty", poisoned)
    device = launch.Device(HERE)
    kinds = ["normal", "flat", "ties", "masked", "outliers", "offset"]
    logits = torch.stack([row_of(kind, 300) for kind in kinds])
    values = [check(PARAMS[place]) for place in (0, 2, 3, 6, 8, 10)]
    bias = [{3: 1.5} if place == 2 else {} for place in range(6)]

    def run(rows):
        pick_of = [[one[row] for row in rows] for one in (values, bias)]
        return columns(device.sample(hot_batch(logits, rows, pick_of[0], rows, [None] * len(rows), pick_of[1])))

    whole = run(range(6))
    assert np.isfinite(whole).all()
    for rows in ([5, 3, 1], [2], [4]):
        assert run(rows).tobytes() == whole[:, rows].tobytes()


@pytest.mark.parametrize(
    "view", [lambda x: x[:, ::2], lambda x: x.T.contiguous().T, lambda x: x[:, 3:], lambda x: x[::2]]
)
def test_strides_and_nothing_is_written_to(view):
    logits = torch.randn(4, 203, generator=torch.Generator().manual_seed(4)) * 3
    before = logits.clone()
    strided = view(logits)
    params = [{"seed": 5, "top_p": 0.9, "banned_ids": [1]}, {"seed": 6}] * (len(strided) // 2)
    assert_as_reference(DenseRows(strided), params)
    assert torch.equal(before, logits)


def test_offsets_pass_2_to_the_31():
    far = torch.empty(2**31 + 500, dtype=torch.float16, device=HERE).as_strided((2, 300), (2**31, 1))
    far[:] = row_of("normal", 300).half()
    result = gpu.sample_hot(hot_batch(far, [1, 0], [check({})] * 2, [3, 3], [None] * 2, [{}] * 2))
    assert result["status"].tolist() == [0, 0]
    assert result["token"][0] == result["token"][1] >= 0


def test_a_search_that_came_to_no_end_is_no_answer(monkeypatch, narrow):
    """As when logits change under the kernels: nothing may hang, nothing may be made up."""

    def launch_without_search(self, kernel, *arguments, run=launch.Prepared._run):
        if kernel is not launch.search_kernel:
            run(self, kernel, *arguments)

    monkeypatch.setattr(launch.Prepared, "_run", launch_without_search)
    batch = hot_batch(row_of("flat", 300)[None], [0], [check({"top_k": 200})], [1], [None], [{}])
    with pytest.raises(RuntimeError, match="row 0 changed"):
        gpu.sample_hot(batch)


def test_zero_rows():
    assert sample(DenseRows(torch.zeros(0, 5)), check({}), backend=GPU) == []


# ---- Parts ----


@triton.jit
def _uniform_kernel(tokens_ptr, out_ptr):
    place = tl.program_id(0)
    tl.store(out_ptr + place, draw.uniform(tokens_ptr, place))


def test_the_uniform_is_the_hosts():
    keys = [(0, 0, 0), (1, 2, 3), (2**64 - 1, 2**32 - 1, 2**32 - 1), (0x299F31D0A4093822, 2**31, 7)]
    tokens = np.array([[0, *key] for key in keys], np.uint64).view(np.int64)
    out = torch.empty(len(keys), dtype=torch.float64, device=HERE)
    _uniform_kernel[(len(keys),)](torch.from_numpy(tokens).to(HERE), out)
    assert out.tolist() == [uniform(*key) for key in keys]


@triton.jit
def _crossing_kernel(values_ptr, weights_ptr, needs_ptr, out_ptr, SIZE: tl.constexpr):
    place = tl.program_id(0)
    slot = tl.arange(0, SIZE)
    keys = order_key(tl.load(values_ptr + slot))
    tl.store(out_ptr + place, key_value(crossing(keys, tl.load(weights_ptr + slot), tl.load(needs_ptr + place))))


@pytest.mark.parametrize(
    "values",
    [
        [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1.7e308, -1.7e308],
        [2.0**-exponent for exponent in range(0, 1024, 128)],
        [-1e300, -1e200, -1e100, -1e9, 3.0, 3.0, np.nextafter(3.0, 4.0), 4.0],
        [7.0] * 8,
    ],
)
def test_a_crossing_is_found_whatever_the_values(values):
    weights = torch.tensor([5, 1, 0, 7, 2, 2, 1, 4], dtype=torch.int64)
    values = torch.tensor(values, dtype=torch.float64)
    needs = torch.arange(1, 23, 3)
    out = torch.empty(len(needs), dtype=torch.float64, device=HERE)
    _crossing_kernel[(len(needs),)](values.to(HERE), weights.to(HERE), needs.to(HERE), out, SIZE=8)
    reaching = [[float(v) for v in values if int(weights[values >= v].sum()) >= need] for need in needs]
    assert out.tolist() == [max(some) for some in reaching]


@pytest.mark.parametrize("half_bytes", [1, 80, 10_000])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [4, 1, 1, 0], [2]])
def test_staging_brings_the_rows_in_order(rows, half_bytes):
    """A half holds part of a row, two rows, or all."""
    logits = torch.randn(5, 20)[:, ::2]
    out = torch.empty(len(rows), 10, device=HERE)
    stage = staging.Staging(HERE, half_bytes)
    for _ in range(2):
        stage.send(logits, np.array(rows), out.fill_(0))
        assert torch.equal(out.cpu(), logits[rows])


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_float32_sums_stay_within_their_bound(scale, large_tiles):
    """Half of what a cut allows for is never reached."""
    logits = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(3)) * scale
    batch = hot_batch(logits, [0], [check({"temperature": 0.9})], [1], [None], [{}])
    prepared = launch.Device(HERE).prepare(batch, np.array([0]), wide=False)
    prepared.launch_statistics()
    m, d, _ = prepared.sums[0].cpu().double()
    whole = float((d * torch.exp((m - m.max()) / 0.9)).sum())
    exact = float(torch.exp((logits[0].double() - logits.max().double()) / 0.9).sum())
    assert abs(whole / exact - 1) < 2.0**-18


# ---- The benchmark ----


def test_the_benchmark_checks_answers_first(monkeypatch):
    monkeypatch.setattr(bench, "KINDS", ("peaked", "ties"))
    monkeypatch.setattr(bench, "CHECKED", bench.CHECKED[:2])
    assert bench.faults((7,), 1) == []

    def wrong(batch, sample_hot=gpu.sample_hot):
        answers = sample_hot(batch)
        answers["kept"] += 1
        return answers

    monkeypatch.setattr(gpu, "sample_hot", wrong)
    assert len(bench.faults((7,), 1)) == 2 * 2 * 2


def test_the_benchmark_reports_what_it_found():
    figure = bench.Figure("graph", "flat", "plain", "float32", 32_000, 8, Spread(2e-5, 1e-5, 3e-5), 51.2, 1.75)
    assert json.loads(bench.report([figure]))["figures"][0]["seconds"]["median"] == 2e-5
    assert "51.2 GB/s  1.75 × read" in bench.line(figure)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_the_benchmark_says_why_it_measures_nothing(capsys):
    assert bench.main([]) == 2
    assert "not measured" in capsys.readouterr().out


# ---- Being there ----


def run(code, **environment):
    cleared = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=cleared | environment, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_kernels_imports_no_triton():
    assert run("import sys, logitd_kernels, logitd_kernels.select.triton; print('triton' in sys.modules)") == "False"


def test_it_says_why_it_cannot_run():
    ask = "from logitd_kernels.select.triton import why_not; print(why_not())"
    assert "not installed" in run(f"import sys; sys.modules['triton'] = None\n{ask}")
    assert run(ask, TRITON_INTERPRET="1") == "None"
    assert run(ask, CUDA_VISIBLE_DEVICES="") == "torch finds no CUDA device"


os.environ.pop("TRITON_INTERPRET", None)  # all kernels are defined; nothing else of this process is meant
