"""The head form under every step of the registry and under penalties: what is `exact` is the whole row's answer."""

import numpy as np
import pytest
import torch
from golden import one_thread  # noqa: F401  (a fixture)
from head_cases import CUTS, FEW, INF, ROWS, Case, hunt, random_case, settled, verdict
from head_steps import STEPS, penalised

import logitd_kernels as K
from logitd_kernels.sampling.order import DIALECTS, order_of

ORDERS = [order_of(dialect) for dialect in DIALECTS]
CLOSED = ("top_k", "top_p", "min_p")  # cuts after which the tail is out
OF = {"mirostat 1": "mirostat", "mirostat 2": "mirostat"}
HOT = {"temperature", "min_p", "top_k", "top_p"}  # test_head_form.py


def case_of(rng, kind: str, step: str) -> Case:
    """A head of which a step is asked, alone or after a cut, in one of the dialects."""
    case = random_case(rng, kind, rng.choice(CLOSED) if rng.random() < 0.7 else "none")
    case.params |= STEPS[step](rng, len(case.row)) | {"seed": int(rng.integers(99))}
    case.order = ORDERS[rng.integers(len(ORDERS))]
    return case


def test_every_step_is_tried():
    steps = {one.name for one in K.TRANSFORMS if one.kind not in ("mix", "edit")}
    assert {OF.get(name, name) for name in STEPS} == steps - HOT


@pytest.mark.parametrize("step", STEPS)
def test_exact_means_that_the_whole_row_answers_the_same(step):
    rng = np.random.default_rng([list(STEPS).index(step), 21])
    seen = hunt(case_of(rng, kind, step) for kind in ROWS for _ in range(14))
    assert seen["exact"] >= 20  # an implementation that never answers would pass everything else
    assert seen["open"] >= 10


@pytest.mark.parametrize("step", STEPS)
def test_exact_holds_with_several_steps_and_edits(step):
    rng = np.random.default_rng([list(STEPS).index(step), 22])
    cases = []
    for kind in ROWS:
        for _ in range(12):
            case = case_of(rng, kind, step)
            case.params |= STEPS[list(STEPS)[rng.integers(len(STEPS))]](rng, len(case.row))
            if rng.random() < 0.7:
                penalised(rng, case)
            cases.append(case)
    assert hunt(cases)["exact"] >= 10


@pytest.mark.parametrize("cut", ["none", "top_k", "top_p", "min_p"])
def test_exact_holds_under_penalties_of_sent_and_unsent_tokens(cut):
    rng = np.random.default_rng([list(CUTS).index(cut), 23])
    cases = [random_case(rng, kind, cut) for kind in ROWS for _ in range(25)]
    for case in cases:
        penalised(rng, case)
        case.params["temperature"] *= float(rng.random() > 0.1)  # some greedy
        case.order = ORDERS[rng.integers(len(ORDERS))]
    seen = hunt(cases)
    assert seen["exact"] >= 30
    assert seen["open"] >= 10


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_logprobs_beside_an_exact_answer_are_those_of_the_whole_row(mode, step):
    rng = np.random.default_rng([list(STEPS).index(step), 24])
    compared = 0
    for _ in range(24):
        case = case_of(rng, list(ROWS)[rng.integers(len(ROWS))], step)
        asked = {"logprobs": 3, "logprobs_mode": mode}
        told, truth = case.head(**asked), case.dense("torch", **asked)
        if not settled(told):
            continue
        of = [pair for pair in zip(told.top.of_tokens, truth.top.of_tokens, strict=True) if pair[0] is not None]
        assert [one for one, _ in of] == pytest.approx([other for _, other in of], abs=1e-3)
        tops = [{one.token: one.logprob for one in answer.top.top} for answer in (told, truth)]
        assert tops[0].keys() == tops[1].keys()
        assert all(one is None or one == pytest.approx(tops[1][token], abs=1e-3) for token, one in tops[0].items())
        compared += 1
    assert compared >= 5


# ---- Single rows on which a bound is easily wrong ----

XTC = {"xtc_probability": 1.0}
MASKED_TAIL = torch.tensor([0.0, 0.0, -1, -2, -3, -INF, -INF])
LONG = torch.tensor([0.0, -0.5, -1, -2, -3] + [-8.0] * 20)
HARD = {
    # What XTC leaves out outweighs the rest: a rounding of the whole is more than all that is left.
    "all of a head whose first is left out": Case(torch.tensor([0.0, -40, -41, -80]), 4, {**XTC, "xtc_threshold": 0.0}),
    "a head whose first is left out": Case(torch.tensor([0.0, -40, -41, -42]), 3, {**XTC, "xtc_threshold": 1e-18}),
    "an offset tail below what is left out": Case(
        torch.tensor([0.0, -700, -701, -702.0]), 3, {**XTC, "xtc_threshold": 1e-304, "temperature": 1.0}, 0.9
    ),
    # The tail is kept, and how much of it is finite is not known.
    "a masked tail that is kept": Case(MASKED_TAIL, 4, {**XTC, "xtc_threshold": 0.2}, 0.5),
    "a masked tail that is counted": Case(MASKED_TAIL, 4, {**XTC, "xtc_threshold": 0.2}, 0.5, tells_count=True),
    # Version 1 of mirostat asks for the number of finite logits.
    "mirostat 1 of a masked tail": Case(
        torch.tensor([0.0, -0.05, -0.1, -0.15, -0.2] + [-INF] * 90),
        5,
        {"mirostat": 1, "mirostat_mu": 2.2, "top_k": 4},
        0.5,
    ),
    "mirostat 1 that keeps all": Case(LONG, 25, {"mirostat": 1, "mirostat_mu": 90.0}, 0.5),
    # The weights are not the masses.
    "adaptive_p of a whole head": Case(FEW, 8, {"adaptive_target": 0.1}, 0.5),
    # Rounding makes equals of what was in order.
    "smoothing that rounds to ties": Case(
        torch.tensor([1e-200, 0.0, -1e-200, 5e-324], dtype=torch.float64), 4, {"smoothing_factor": 1.0}, 0.3
    ),
    "dynatemp after a cut": Case(LONG, 8, {"top_k": 4, "dynatemp_range": 0.5}, 0.7, order=order_of("llama.cpp")),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_row(name):
    how, wrong = verdict(HARD[name])
    assert not wrong, (how, wrong, HARD[name].head())


def test_a_kept_tail_is_counted_where_the_client_counted_it():
    assert HARD["a masked tail that is counted"].head().kept == 4
    assert HARD["a masked tail that is kept"].head().kept is None


@pytest.mark.parametrize("name", ["typical_p", "top_n_sigma", "top_h", "eta_cutoff", "dynatemp", "smoothing"])
def test_what_needs_the_whole_shape_says_so(name):
    params = STEPS[name](np.random.default_rng(1), 25) | {"seed": 1}
    told = Case(LONG, 8, params, 0.01).head()
    assert (told.code, told.kind) == ("head_too_short", "head_too_short")
    assert "send" in told.detail
    inexact = Case(LONG, 8, {**params, "allow_inexact": True}, 0.01).head()
    assert (inexact.exact, len(inexact.tokens)) == (False, 1)
