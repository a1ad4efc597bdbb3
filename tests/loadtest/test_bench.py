"""The benchmarks' own arithmetic, inputs and peers. Nothing here depends on how long anything takes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from loadtest.kernels import bench, claims, gate, ours, peers, plot, rows, table
from loadtest.kernels.answers import WrongAnswerError, kept_ids, right
from loadtest.kernels.cases import NAMED, Case, Work, all_cases
from loadtest.kernels.figures import Figure, figures, measure
from loadtest.kernels.only import Only
from loadtest.kernels.report import Report, to_json
from loadtest.kernels.scaling import Curve
from loadtest.kernels.timing import Budget, Contender, Spread, alternate, ratio, slope, spread

from logitd_kernels import check
from logitd_kernels.rows import unpack_mask
from logitd_kernels.sampling.min_p import MIN_P
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.registry import PARAMETERS, TRANSFORMS

BRIEF = Budget(rounds=1, least=0.0, most=0.0)


@pytest.fixture(autouse=True, scope="module")
def _threads_as_they_were():
    compiled = ours.compiled_backend()
    before = torch.get_num_threads(), compiled and compiled.threads()
    yield
    torch.set_num_threads(before[0])
    if compiled:
        compiled.set_threads(before[1])


class Clock:
    """A clock that only the work moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def worker(self, name, seconds, log, batch=1):
        def call(index):
            log.append((name, index))
            self.now += seconds

        return Contender(name, call, batch)


# Arithmetic


def test_a_spread_is_median_and_quintiles():
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(median=3, p20=pytest.approx(1.8), p80=pytest.approx(4.2))
    assert Spread.of([7.0]) == Spread(7, 7, 7)


def test_a_ratio_pairs_what_happened_in_the_same_round():
    slow_moment = 10
    over, under = {0: 2.0, 1: 2.0 * slow_moment, 2: 2.0, 5: 99.0}, {0: 1.0, 1: 1.0 * slow_moment, 2: 1.0}
    assert ratio(over, under) == Spread(2, 2, 2)


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_the_slope_is_the_exponent(power):
    sizes = [8, 64, 512, 4096]
    assert slope(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_times_are_for_one_row_and_one_call():
    clock, log = Clock(), []
    found = alternate([clock.worker("a", 1e-4, log, batch=8)], Budget(4, 0, 9), clock)
    assert list(found["a"]) == [0, 1, 2, 3]
    assert spread(found["a"]).median == pytest.approx(1e-4 / 8)


def test_contenders_take_turns_and_another_is_first_in_every_round():
    clock, log = Clock(), []
    found = alternate([clock.worker(name, 2e-3, log) for name in "abc"], Budget(3, 0, 9), clock)
    warm = 2 * 3
    assert "".join(name for name, _ in log)[warm:] == "abcbcacab"
    assert all(len(seconds) == 3 for seconds in found.values())


def test_a_fast_contender_repeats_until_a_turn_is_long_enough_and_goes_through_the_blocks():
    clock, log = Clock(), []
    alternate([clock.worker("a", 1e-4, log)], Budget(3, 0, 9), clock)
    assert [index for _, index in log] == list(range(2 + 3 * 10))


def test_a_slow_contender_sits_out_rounds_but_not_the_first():
    clock, log = Clock(), []
    found = alternate([clock.worker("slow", 1.0, log), clock.worker("fast", 2e-3, log)], Budget(20, 0, 9), clock)
    assert list(found["slow"]) == [0, 4, 8, 12, 16]
    assert len(found["fast"]) == 20


def test_a_budget_ends_at_its_rounds_or_at_its_time():
    budget = Budget(rounds=20, least=0.3, most=2.0)
    assert not budget.spent(25, 0.2)
    assert not budget.spent(19, 1.9)
    assert budget.spent(20, 0.3)
    assert budget.spent(5, 2.0)
    assert not budget.spent(2, 60)


# Inputs


@pytest.mark.parametrize("kind", list(rows.MADE_UP))
def test_made_up_rows_are_the_same_in_every_run_and_differ_from_each_other(kind):
    first = rows.pool.__wrapped__(kind, 3, 5000)
    assert first.shape == (3, 5000)
    assert first.dtype == torch.float32
    assert torch.equal(first, rows.pool.__wrapped__(kind, 3, 5000))
    assert not torch.equal(first[0], first[1])
    assert not first.isnan().any()
    assert not (first == math.inf).any()


def test_every_kind_is_what_it_says():
    def probs(kind, vocab=20_000):
        return rows.pool(kind, 1, vocab)[0].double().softmax(-1)

    assert probs("peaked").topk(20).values.sum() > 0.99
    assert probs("flat").max() < 0.01
    masked = rows.pool("masked", 1, 20_000)[0]
    assert int((masked > -math.inf).sum()) == 200
    assert len(rows.pool("ties", 1, 20_000)[0].unique()) < 100


def test_real_rows_are_the_trigram_models():
    real = rows.pool("real", 2)
    assert real.shape == (2, 126_052)
    assert real[0].double().exp().sum() == pytest.approx(1, abs=0.4)  # the rest is the sentence's end


def test_work_is_cut_into_blocks_that_share_the_pool():
    pool = torch.arange(14.0).view(7, 2)
    work = Work.of("flat", NAMED[0], pool, batch=3)
    assert [block.tolist() for block in work.blocks] == [pool[:3].tolist(), pool[3:6].tolist()]
    assert work.blocks[1].data_ptr() == pool[3].data_ptr()
    assert (work.batch, work.row_bytes) == (3, 8)
    assert Work.of("flat", Case("softmax", {}, softmax=True), pool.bfloat16()).row_bytes == 4 + 8


def test_cases_are_distinct_and_legal():
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names)
    for case in all_cases():
        check(case.params)


def test_a_new_truncation_is_measured_without_being_listed():
    def cut(name, **bounds):
        return replace(MIN_P, name=name, parameter=Number(name, doc="", **bounds))

    new = [
        cut("typical", neutral=1, gt=0, le=1),
        cut("sigma", neutral=0, ge=0),
        cut("first", neutral=0, ge=0, integer=True),
    ]
    assert [case.params for case in all_cases((*TRANSFORMS, *new))[len(all_cases()) :]] == [
        {"temperature": 0.8, "typical": 0.5},
        {"temperature": 0.8, "sigma": 1},
        {"temperature": 0.8, "first": 1},
    ]


def test_every_step_of_the_registry_after_the_edits_is_measured():
    measured = {name for case in all_cases() for name in case.params}
    steps = [one for one in TRANSFORMS if one.kind in ("scale", "remap", "cut", "band", "reweigh")]
    assert {one.parameter.name for one in steps} <= measured
    for case in all_cases():
        assert all(value != PARAMETERS[name].neutral for name, value in case.params.items())


def test_what_a_case_adds_is_measured_beside_the_same_without():
    known = {case.name: case for case in all_cases()}
    for case in all_cases():
        if case.over:
            assert known[case.over].params.items() <= case.params.items()


def test_a_history_repeats_as_a_text_does():
    logits = rows.pool("flat", 2)
    prompt, output = rows.history(logits)
    assert prompt.shape == output.shape == (2, 2048)
    ids = torch.cat([prompt, output], 1)
    assert torch.equal(prompt, rows.history(logits)[0])
    assert all(500 < len(row.unique()) < 1000 for row in ids)
    assert torch.equal(ids.mode().values, logits.argmax(-1).int())


def test_a_mask_allows_half_and_the_largest_logit():
    logits = rows.pool("masked", 3, 5001)
    mask = rows.half_allowed(logits)
    allowed = torch.stack([torch.from_numpy(unpack_mask(words, 5001)) for words in mask])
    assert allowed.float().mean() == pytest.approx(0.5, abs=0.05)
    assert allowed.gather(1, logits.argmax(-1, keepdim=True)).all()


def test_values_carry_what_the_case_biases():
    work = Work.of("flat", Case("bias", biased=50), rows.pool("flat", 4, 2000), batch=2)
    values = [one for place in (0, 1) for one in work.values(place)]
    assert [one["step"] for one in values] == [0, 1, 2, 3]
    assert all(len(one["logit_bias"]) == 50 and max(one["logit_bias"]) == 49 * 40 for one in values)


# What is asked for


@pytest.mark.parametrize(
    ("pattern", "wanted", "unwanted"),
    [
        ("cpu", ("cpu native", "top_k", "real"), ("torch python", "top_k", "real")),
        ("torch/top_p", ("torch python", "top_p", "flat"), ("torch python", "top_k", "flat")),
        ("*native/*/real", ("cpu native", "greedy", "real"), ("cpu python", "greedy", "real")),
        ("/greedy/real", ("vllm", "greedy", "real"), ("vllm", "greedy", "flat")),
    ],
)
def test_only_takes_prefixes_and_globs(pattern, wanted, unwanted):
    only = Only((pattern,))
    assert only.contender(*wanted)
    assert not only.contender(*unwanted)
    assert only.case(*wanted[1:])


def test_only_names_sections_too():
    assert Only(()).section("claims")
    assert Only(("claims",)).section("claims")
    assert not Only(("claims",)).section("scaling")
    assert not Only(("claims",)).case("greedy", "real")
    assert not Only(("cpu",)).section("claims")
    assert Only(("cpu/top_k", "scaling")).case("top_k", "real")


# Answers


@pytest.mark.parametrize("kind", list(rows.MADE_UP))
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_everyone_who_is_here_draws_from_the_kept_set(kind, case):
    torch.manual_seed(1)  # peers draw by it; one that cuts in another order may, rarely, draw what is not kept here
    work = Work.of(kind, case, rows.pool(kind, 8, 2000), batch=2)
    contenders = ours.contenders(work) + peers.contenders(work)
    kept, wrong = right(work, contenders)
    assert kept == contenders
    assert not wrong


def test_a_kept_set_is_what_the_reference_leaves_after_edits():
    pool = torch.tensor([[5.0, 4.0, 3.0, 2.0]])
    bans = Case("bans", {"temperature": 0.8, "banned_ids": [0], "top_k": 2})
    assert kept_ids(Work.of("flat", bans, pool), 0) == [{1, 2}]
    assert kept_ids(Work.of("flat", Case("greedy", {"temperature": 0}), pool), 0) == [{0}]
    xtc = Case("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.2})
    assert kept_ids(Work.of("flat", xtc, pool), 0) == [{1, 2, 3}]


def test_a_wrong_answer_has_no_speed():
    work = Work.of("flat", Case("top_k", {"top_k": 5}), rows.pool("flat", 2, 1000))
    worst = [int(block[0].argmin()) for block in work.blocks]
    best = [int(block[0].argmax()) for block in work.blocks]
    good = Contender("good", lambda index: [best[index]])
    kept, (line,) = right(work, [good, Contender("bad", lambda index: [worst[index]])])
    assert kept == [good]
    assert "bad left out" in line
    with pytest.raises(WrongAnswerError, match="mine"):
        right(work, [Contender("mine", lambda index: [worst[index]], ours=True)])
    assert len(right(work, [Contender("wild", lambda index: [-1])])[1]) == 1


def test_the_floor_is_measured_beside_the_others_and_is_one():
    work = Work.of("flat", NAMED[1], rows.pool("flat", 2, 2000))
    found, wrong = measure(work, BRIEF, Only(("torch python",)))
    assert sorted(figure.contender for figure in found) == ["floor", "torch python"]
    assert not wrong
    assert next(figure for figure in found if figure.contender == "floor").over_floor == Spread(1, 1, 1)
    assert measure(work, BRIEF, Only(("nobody",))) == ([], [])


def test_a_claim_is_met_missed_or_open():
    def met(median, most=None, least=None):
        return claims.verdict("", "", Spread(median, median, median), most, least).met

    assert (met(1.5, most=1.5), met(1.6, most=1.5)) == (True, False)
    assert (met(5.0, least=5), met(4.9, least=5)) == (True, False)
    assert met(3.0) is None
    assert claims.verdict("", "", None, 1.5).met is None


def test_a_claim_may_take_one_time_off_another():
    assert claims.difference({0: 5.0, 1: 7.0, 2: 9.0}, {0: 4.0, 2: 6.0}) == {0: 1.0, 2: 3.0}


def test_every_claim_can_be_judged_or_says_who_is_absent(monkeypatch):
    monkeypatch.setattr(claims, "pool", lambda kind, count: rows.pool("flat", count, 2000))
    for claim in claims.CLAIMS:
        judged = claims.judge(claim, BRIEF)
        present = {"torch.topk", *(peer.name for peer in peers.PEERS if peer.absent() is None)}
        assert (judged.ratio is not None) == ({claim.over, claim.under} & _PEERS <= present)


_PEERS = {"torch.topk", "transformers", "llama.cpp", "vllm"}


# What is shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(2, "2.00 s"), (0.0123, "12.3 ms"), (412e-6, "412 µs"), (9.87e-6, "9.87 µs"), (5e-9, "5.00 ns")],
)
def test_a_duration_has_three_digits(seconds, shown):
    assert table.duration(seconds) == shown


def test_costs_are_what_a_case_adds_in_floors():
    def figure(case, contender, over):
        return Figure("flat", case, contender, 9, 1, 1, Spread(1, 1, 1), 1.0, Spread(over, over, over), 3)

    shown = [figure("top_k", "cpu python", 2.0), figure("penalties", "cpu python", 2.25), figure("dry", "torch", 9.0)]
    assert table.costs(shown) == ["  cpu python, floors over the same without: penalties 0.25"]
    assert table.costs(shown[1:]) == []


@pytest.fixture
def report():
    work = Work.of("flat", NAMED[0], rows.pool("flat", 2, 1000))
    shown = figures(work, [Contender("floor", lambda index: None), Contender("someone", lambda index: None)], BRIEF)
    spreads = (Spread(1e-6, 1e-6, 1e-6), Spread(2e-6, 2e-6, 2e-6))
    curve = Curve("V", "rows", "someone", (1000, 2000), spreads, 1.0)
    return Report({"commit": "abc"}, shown, [claims.verdict("text", "someone", None, 1.5)], [curve])


def test_a_report_is_json_with_a_line_a_figure(report):
    text = to_json(report)
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [figure["contender"] for figure in read["figures"]] == [figure.contender for figure in report.figures]
    assert read["claims"] == [{"text": "text", "subject": "someone", "target": "≤ 1.5", "ratio": None, "met": None}]
    assert sum(line.startswith('{"rows"') for line in text.splitlines()) == 2


def test_only_a_whole_run_becomes_the_baseline(report, tmp_path, monkeypatch):
    monkeypatch.setattr("loadtest.kernels.report.BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(plot, "available", lambda: False)
    assert report.keep(None, whole=False) == []
    assert report.keep(str(tmp_path / "mine.json"), whole=False) == [tmp_path / "mine.json"]
    assert report.keep(None, whole=True) == [tmp_path / "baselines" / "kernels.json"]


def test_pictures_are_drawn_where_matplotlib_is(report, tmp_path):
    pytest.importorskip("matplotlib")
    written = report.keep(str(tmp_path / "mine.json"), whole=False)
    assert [path.name for path in written] == ["mine.json", "mine.png", "mine-scaling.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])


# The gate


def test_red_tests_leave_no_figures(capsys, monkeypatch):
    monkeypatch.setattr(bench, "red", lambda: "FAILED test_this")
    assert bench.main(["--quick"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED test_this" in printed
    assert "floor" not in printed


def test_a_wrong_answer_of_ours_ends_the_run(capsys, monkeypatch):
    monkeypatch.setattr(bench, "red", lambda: None)
    small = rows.pool("flat", 8, 500)
    monkeypatch.setattr(rows, "pool", lambda kind, count: small)
    wrong = Contender("mine", lambda index: np.array([-1]), ours=True)
    monkeypatch.setattr(ours, "contenders", lambda work: [wrong])
    assert bench.main(["--quick", "--only", "mine/greedy/flat"]) == 1
    assert "A wrong answer has no speed" in capsys.readouterr().out


def test_the_gate_names_what_is_missing_or_red(tmp_path, monkeypatch):
    assert "tests/none.py" in gate.red(("tests/none.py",))
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    (tmp_path / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert 0\n")
    assert "test_it.py::test_bad" in gate.red(("test_it.py",))
    (tmp_path / "test_it.py").write_text("def test_good(): pass\n")
    assert gate.red(("test_it.py",)) is None


def test_what_the_gate_runs_is_there():
    assert all((gate.ROOT / test).exists() for test in gate.TESTS)
