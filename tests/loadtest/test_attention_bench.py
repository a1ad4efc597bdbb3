"""The attention benchmark's own arithmetic, calls and answers. Nothing here depends on how long anything takes."""

import json
from pathlib import Path

import pytest
import torch
from loadtest.attention import answers, bench, claims, decode, memory, methods, table, work
from loadtest.attention.crossover import Crossover, crossing, crossovers
from loadtest.attention.curve import MEMORY, STEP, TIME, Curve, found
from loadtest.attention.figures import Figure, measure
from loadtest.attention.methods import METHODS, NAMED, Method, able
from loadtest.attention.report import Report
from loadtest.attention.work import Work
from loadtest.kernels import plot
from loadtest.kernels.answers import WrongAnswerError
from loadtest.kernels.gate import ROOT
from loadtest.kernels.timing import Budget, Spread

from logitd_kernels.attention import exact

BRIEF = Budget(rounds=1, least=0.0, most=0.0)
SMALL = (256, 320)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def even(value):
    return Spread(value, value, value)


def figure(method, length, faster, causal=False, seconds=1.0):
    return Figure(method, causal, length, even(seconds), {name: even(ratio) for name, ratio in faster.items()}, 0.0, 3)


def curve(what, method, power, causal=False):
    return Curve.of(what, method, causal, {size: {0: float(size) ** power} for size in (4096, 8192, 32768)})


# Calls and answers


def test_calls_are_the_same_in_every_run_and_both_masks_share_them():
    first = [tensor.clone() for tensor in work.tensors(300)]
    work.tensors.cache_clear()
    again = Work(300, True).call
    assert [tensor.shape for tensor in first] == [(1, work.HEADS, 300, work.DIM)] * 3
    assert all(map(torch.equal, first, (again.q, again.k, again.v)))
    assert Work(300, False).call.q is again.q
    assert again.visible.causal


@pytest.mark.parametrize("causal", [False, True])
def test_the_last_queries_are_answered_as_in_the_whole_call(causal):
    small = Work(300, causal)
    part, whole = exact(small.ending(37)).output, exact(small.ending(300)).output
    torch.testing.assert_close(part, whole[:, :, -37:])


def test_everyone_is_right_within_his_bound_and_the_bound_is_near():
    found = answers.check([Work(512, causal) for causal in (False, True)], full=False)
    assert {name for name, _ in found} == {method.name for method in METHODS} - set(methods.absent())
    for (name, _), error in found.items():
        assert error > NAMED[name].bound / 100


@pytest.mark.parametrize("fault", [lambda o: 1.3 * o, lambda o: o.roll(1, 2), lambda o: o * torch.nan])
def test_a_wrong_answer_is_named(fault):
    for method in METHODS:
        if method.name not in methods.absent():
            wrong = Method(method.name, lambda call, right=method: fault(right.attend(call)), True, method.bound)
            with pytest.raises(WrongAnswerError, match=method.name):
                answers.errors(Work(256, True), [wrong])


def test_beyond_8192_keys_the_linear_methods_are_alone_unless_asked():
    short, long = Work(8192, False), Work(16384, False)
    assert set(able(long)) == {method for method in METHODS if method.linear}
    assert able(long, full=True) == able(short)
    assert {"exact", "sdpa", "moment", "hybrid"} <= {method.name for method in able(short)}


# Figures and curves


@pytest.fixture(scope="module")
def measured():
    works = [Work(length, False) for length in SMALL]
    return measure(works, BRIEF, answers.check(works, False), False)


def test_every_method_has_a_figure_at_every_length(measured):
    figures, curves = measured
    names = [method.name for method in able(Work(SMALL[0], False))]
    assert [(one.method, one.length) for one in figures] == [(name, length) for length in SMALL for name in names]
    assert all(one.faster["exact"] == even(1) for one in figures if one.method == "exact")
    assert all(one.seconds.p20 <= one.seconds.median <= one.seconds.p80 for one in figures)
    assert curves == []  # of lengths from 4096 on


@pytest.mark.parametrize("power", [0, 1, 2])
def test_a_curve_has_its_exponent_as_slope(power):
    made = curve(TIME, "hybrid", power)
    assert made.slope.median == pytest.approx(power, abs=1e-9)
    assert made.sizes == (4096, 8192, 32768)
    assert found([made], TIME, "hybrid", False) is made
    assert found([made], TIME, "hybrid", True) is None


def test_the_slope_is_taken_in_rounds_that_all_sizes_share():
    slow_moment = 7
    made = Curve.of(TIME, "m", False, {8: {0: 8.0, 1: 8.0 * slow_moment}, 64: {0: 64.0, 1: 64.0 * slow_moment, 2: 1.0}})
    assert made.slope.p20 == pytest.approx(1)
    assert made.slope.p80 == pytest.approx(1)


# Crossovers


@pytest.mark.parametrize(
    ("faster", "length", "about"),
    [
        ({256: 0.5, 512: 2.0}, 512, 256 * 2**0.5),
        ({256: 1.2, 512: 0.5, 1024: 2.0, 2048: 1.5}, 1024, 512 * 2**0.5),
        ({256: 1.1, 512: 2.0}, 256, None),
        ({256: 2.0, 512: 0.9}, None, None),
        ({256: 0.5, 512: 1.0, 1024: 2.0}, 1024, 512),
    ],
)
def test_a_crossover_is_where_a_method_is_faster_from_then_on(faster, length, about):
    first, near = crossing(faster)
    assert first == length
    assert near == (about if about is None else pytest.approx(about))


def test_crossovers_are_told_against_both_and_for_each_mask():
    made = [
        figure("exact", 256, {"exact": 1, "exact_bf16": 0.4}),
        figure("sdpa", 256, {"exact": 1.1, "exact_bf16": 0.4}),
        figure("elu", 256, {"exact": 2, "exact_bf16": 0.5}),
        figure("elu", 256, {"exact": 0.5}, causal=True),
        figure("elu", 16384, {}),
    ]
    assert crossovers(made) == [
        Crossover("elu", "exact", False, 256, None),
        Crossover("elu", "exact_bf16", False, None, None),
        Crossover("elu", "exact", True, None, None),
    ]


# Claims


def test_claims_are_met_missed_or_open():
    figures = [
        figure("moment", 512, {"exact": 0.1}),
        figure("moment", 1024, {"exact": 1.5}),
        figure("moment", 2048, {"exact": 1.1}),
        figure("hybrid", 4096, {"exact": 1.9}),
        figure("hybrid", 4096, {"exact": 0.5}, causal=True),
    ]
    curves = [curve(TIME, "hybrid", 1.1), curve(TIME, "hybrid", 1.2, causal=True), curve(MEMORY, "moment", 1.2)]
    judged = {one.text: (one.ratio and round(one.ratio.median, 3), one.met) for one in claims.judge(figures, curves)}
    assert judged == {
        "fp32 exact over moment, not causal, L = 1024 … 8192, the least": (1.1, True),
        "fp32 exact over hybrid, not causal, L = 4096": (1.9, False),
        "fp32 exact over hybrid, not causal, L = 8192": (None, None),
        "slope of time over L, hybrid, not causal, L = 4096 … 32768": (1.1, True),
        "slope of memory over L, hybrid, not causal": (None, None),
        "slope of memory over L, moment, not causal, L = 4096 … 32768": (1.2, False),
        "fp32 exact over moment, causal, L = 1024 … 8192, the least": (None, None),
        "fp32 exact over hybrid, causal, L = 4096": (0.5, None),
        "fp32 exact over hybrid, causal, L = 8192": (None, None),
        "slope of time over L, hybrid, causal, L = 4096 … 32768": (1.2, False),
        "slope of memory over L, hybrid, causal": (None, None),
        "slope of memory over L, moment, causal": (None, None),
    }


# Memory and decoding


@pytest.mark.skipif(bool(memory.absent()), reason="the system does not tell the resident peak")
def test_memory_is_that_of_the_output_and_a_little():
    cases = [("exact", True, 4096), ("mean_v", False, 4096), ("mean_v", False, 8192)]
    output = {length: work.HEADS * length * work.DIM * 4 for length in (4096, 8192)}
    held = memory.peaks(cases)
    assert output[4096] <= held[cases[0]] <= 2 * output[4096]
    doubles = 2  # running sums in float64 and their mean, 2 · 2 outputs
    for case in cases[1:]:
        assert (1 + doubles) * output[case[2]] <= held[case] <= 8 * output[case[2]]
    assert held[cases[2]] == pytest.approx(2 * held[cases[1]], rel=0.15)


def test_a_state_does_not_grow_and_a_cache_does(monkeypatch):
    monkeypatch.setattr(decode, "_BLOCK", 4)
    steps = decode.curves((512, 1024), BRIEF)
    assert {one.method for one in steps} == set(decode.METHODS) >= {"exact", "elu"}
    slopes = {one.method: one.slope.median for one in steps if one.what == "decode state"}
    assert slopes["exact"] == pytest.approx(1)
    assert slopes["elu"] == pytest.approx(0, abs=1e-9)
    assert all(len(one.points) == 2 for one in steps if one.what == STEP)


# What is shown


@pytest.fixture
def report():
    figures = [
        figure(method, length, {"exact": length / 512}, causal, seconds=length / 1e6)
        for causal in (False, True)
        for method in ("exact", "hybrid")
        for length in (256, 1024)
    ]
    curves = [curve(TIME, "hybrid", 1), curve(STEP, "exact", 1, causal=True), curve("decode state", "exact", 1, True)]
    return Report({"commit": "abc"}, figures, crossovers(figures), claims.judge(figures, curves), curves)


def test_a_report_is_json_with_a_line_a_figure(report, tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "available", lambda: False)
    (written,) = report.keep(tmp_path / "here" / "mine.json")
    text = written.read_text()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert list(read) == ["machine", "figures", "crossovers", "claims", "curves"]
    assert read["figures"][3]["faster"]["exact"]["median"] == 2
    assert sum(line.startswith('{"method": "hybrid", "causal"') for line in text.splitlines()) == 4


def test_a_picture_is_drawn_where_matplotlib_is(report, tmp_path):
    pytest.importorskip("matplotlib")
    written = report.keep(tmp_path / "mine.json")
    assert [path.name for path in written] == ["mine.json", "mine.png"]
    assert written[1].read_bytes().startswith(b"\x89PNG")


def test_tables_show_what_was_measured_and_a_dash_for_what_was_not(report):
    lone = [*(one for one in report.figures if not one.causal), figure("elu", 1024, {}, seconds=0.5)]
    lines = table.figures(lone).splitlines()
    assert lines[2].split() == ["L", "exact", "hybrid", "elu"]
    assert lines[3].split() == ["256", "256", "µs", "0.50", "256", "µs", "0.50", "–"]
    assert lines[4].split()[-2:] == ["500", "ms"]
    assert "1,024 (about 512)" in table.crossovers(report.crossovers)
    assert "1.00   4,096: 4096" in table.growth(report.curves)
    assert table.decode(report.curves[1:]).splitlines()[3].split() == ["4,096", "4096", "s", "4", "KiB"]


@pytest.mark.parametrize(("count", "shown"), [(145_000, "142 KiB"), (2**21, "2 MiB"), (41.25 * 2**20, "41.2 MiB")])
def test_a_size_has_three_digits(count, shown):
    assert table.size(count) == shown


# The command


def test_red_tests_leave_no_figures(capsys, monkeypatch):
    monkeypatch.setattr(bench, "red", lambda tests: f"FAILED {tests[0]}")
    assert bench.main(["--quick"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED tests/kernels/attention" in printed
    assert "not causal" not in printed


def test_what_the_gate_runs_is_there():
    assert all((ROOT / test).exists() for test in bench.TESTS)


def test_a_wrong_answer_leaves_no_figures(capsys, monkeypatch):
    monkeypatch.setattr(bench, "red", lambda tests: None)
    monkeypatch.setattr(bench, "LENGTHS", (256,))
    monkeypatch.setattr(methods, "METHODS", (NAMED["exact"], Method("bad", lambda call: call.q, True, 0.1)))
    assert bench.main(["--quick"]) == 1
    printed = capsys.readouterr().out
    assert "bad: error" in printed
    assert "A wrong answer has no speed" in printed
    assert "not causal:" not in printed


def test_a_quick_run_tells_everything_and_writes_no_baseline(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "red", lambda tests: None)
    monkeypatch.setattr(bench, "BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(bench, "LENGTHS", SMALL)
    monkeypatch.setattr(bench, "_QUICK", BRIEF)
    monkeypatch.setattr(decode, "TOKENS", SMALL)
    monkeypatch.setattr(decode, "_BLOCK", 1)
    monkeypatch.setattr(plot, "available", lambda: False)
    monkeypatch.setattr(memory, "absent", lambda: {MEMORY: "not asked"})
    assert bench.main(["--quick", "--json", str(tmp_path / "mine.json")]) == 0
    printed = capsys.readouterr().out
    for part in ("not causal:", "\ncausal:", "one token more", "faster than this", "claims, on one thread"):
        assert part in printed
    assert not Path(tmp_path / "baselines").exists()
    assert json.loads((tmp_path / "mine.json").read_text())["claims"]
