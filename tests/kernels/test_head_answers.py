"""The head form beside the draw: heads that are too short, allowed inexactness, log-probabilities, malformed heads."""

import math
import re
from collections import Counter

import numpy as np
import pytest
import torch
from head_cases import BACKENDS, FEW, INF, TOLERANCE, Case, biased, draw, normal, random_case, settled

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, HeadError, ParameterError, ShapeError

# ---- HeadTooShort, allow_inexact ----

NAMED = re.compile(r"at least (\d+) logits")


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"banned_ids": [0]},
        {"banned_ids": [1, 2]},
        {"logit_bias": {0: -9.0}},
        {"logit_bias": {7: 3.0}},
        {"allowed_ids": [1, 3, 5, 6]},
    ],
    ids=repr,
)
@pytest.mark.parametrize("top_k", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_head_size_named_settles_top_k(edits, top_k, size):
    case = Case(FEW, size, {"top_k": top_k, **edits}, 0.4)
    told = case.head()
    if settled(told):
        return
    assert told.code == "head_too_short"
    named = NAMED.search(told.detail)
    if not edits:
        assert named is not None
        assert int(named[1]) == top_k
    if named is not None:  # when a size is told, it must do
        assert size < int(named[1]) <= len(FEW)
        assert settled(case.head(int(named[1]))), (told.detail, case.head(int(named[1])))


def test_a_head_size_is_never_named_beyond_the_vocabulary():
    told = Case(FEW, 2, {}, 0.1).head(logprobs=50)
    named = None if settled(told) else NAMED.search(told.detail)
    assert named is None or int(named[1]) <= len(FEW)


@pytest.mark.parametrize("options", [{}, {"logprobs": 3}, {"logprobs": 3, "logprobs_mode": "processed"}], ids=repr)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"top_k": 5},
        {"top_k": 5, "ties": "all"},
        {"top_p": 0.999},
        {"min_p": 1e-9},
        {"logit_bias": {7: 20.0}},
        {"logit_bias": {7: 9e29}},
        {"banned_ids": [0]},
        {"n": 20},
    ],
    ids=repr,
)
def test_allow_inexact_always_answers_from_the_head_and_says_so(params, temperature, options):
    request = {**params, "temperature": temperature}
    strict = Case(FEW, 3, request).head(**options)
    lenient = Case(FEW, 3, {**request, "allow_inexact": True}).head(**options)
    assert isinstance(lenient, K.RowResult)
    assert lenient.exact == (isinstance(strict, K.RowResult) and strict.exact) or options
    assert set(lenient.tokens) <= {0, 1, 2}
    numbers = [*lenient.logprobs, lenient.entropy, lenient.entropy_kept, lenient.kept_mass]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert all(number is None or number <= 0 for number in lenient.logprobs)


def test_exact_is_false_only_where_it_was_allowed():
    rng = np.random.default_rng(8)
    told = Counter()
    for _ in range(300):
        case = random_case(rng, "normal", "none")
        strict = case.head()
        case.params["allow_inexact"] = True
        lenient = case.head()
        assert isinstance(lenient, K.RowResult)
        assert lenient.exact == settled(strict)
        if lenient.exact:
            assert lenient == strict
        told[lenient.exact] += 1
    assert min(told[True], told[False]) > 30


# ---- Log-probabilities beside the draw ----


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_top_logprobs_of_a_head_are_those_of_the_row(mode):
    rng = np.random.default_rng(9)
    settled_numbers = 0
    for _ in range(200):
        case = random_case(rng, "normal", "none")
        biased(rng, case)
        count = int(rng.integers(1, 4))
        told = case.head(logprobs=count, logprobs_mode=mode)
        if not settled(told):
            continue
        rows = K.DenseRows(case.row[None])
        truth = draw(rows, case.params, case.u, backend=BACKENDS["reference"], logprobs=count, logprobs_mode=mode)
        assert [top.token for top in told.top.top] == [top.token for top in truth.top.top]
        pairs = [*zip(told.top.top, truth.top.top, strict=True)]
        numbers = [(a.logprob, b.logprob) for a, b in pairs]
        numbers += zip(told.top.of_tokens, truth.top.of_tokens, strict=True)
        for a, b in numbers:
            assert a is None or a == pytest.approx(b, abs=TOLERANCE)
            settled_numbers += a is not None
    assert settled_numbers > 100


# ---- Malformed heads, and bad rows that fail alone ----


def make(ids=((0, 1),), logits=((2.0, 1.0),), log_z=(2.5,), vocab_size=8, **options) -> K.HeadRows:
    """A head of two tokens, well formed unless told otherwise; log Z is 2.5, of which the head itself holds 2.31."""
    tensors = {name: torch.as_tensor(value) for name, value in {"ids": ids, "logits": logits, "log_z": log_z}.items()}
    return K.HeadRows(**{**tensors, "vocab_size": vocab_size, **options})


MALFORMED = {
    "unsorted": ({"logits": [[1.0, 2.0]]}, HeadError, "head_logits[0][1]"),
    "ties by falling id": ({"ids": [[1, 0]], "logits": [[2.0, 2.0]], "log_z": [2.8]}, HeadError, "head_logits[0][1]"),
    "repeated id": ({"ids": [[3, 3]]}, HeadError, "head_ids[0]"),
    "id V": ({"ids": [[0, 8]]}, HeadError, "head_ids[0][1]"),
    "id -1": ({"ids": [[-1, 1]]}, HeadError, "head_ids[0][0]"),
    "log Z below the head": ({"log_z": [2.3]}, HeadError, "log_z[0]"),
    "log Z impossibly high": ({"log_z": [3.3]}, HeadError, "log_z[0]"),  # with six more at 1.0 it would be 3.27
    "log Z NaN": ({"log_z": [math.nan]}, HeadError, "log_z[0]"),
    "log Z infinite": ({"log_z": [INF]}, HeadError, "log_z[0]"),
    "log Z of a complete head, wrong": ({"vocab_size": 2}, HeadError, "log_z[0]"),
    "log Z of two columns": ({"log_z": [[2.5, 2.5]]}, ShapeError, "log_z"),
    "log Z of two rows": ({"log_z": [2.5, 2.5]}, ShapeError, "log_z"),
    "log Z of integers": ({"log_z": [3]}, DtypeError, "log_z"),
    "temperatures without log Z": ({"temperatures": (1.0, 0.5)}, ShapeError, "log_z"),
    "temperature 0": ({"temperatures": (0.0,)}, ParameterError, "log_z_temperatures[0]"),
    "temperature NaN": ({"temperatures": (math.nan,)}, ParameterError, "log_z_temperatures[0]"),
    "temperature infinite": ({"temperatures": (INF,)}, ParameterError, "log_z_temperatures[0]"),
    "more ids than logits": ({"ids": [[0, 1, 2]]}, ShapeError, "head_ids"),
    "flat ids": ({"ids": [0, 1]}, ShapeError, "head_ids"),
    "flat logits": ({"logits": [2.0, 1.0]}, ShapeError, "head_logits"),
    "float ids": ({"ids": [[0.0, 1.0]]}, DtypeError, "head_ids"),
    "integer logits": ({"logits": [[2, 1]]}, DtypeError, "head_logits"),
    "empty head": ({"ids": torch.zeros(1, 0).long(), "logits": torch.zeros(1, 0)}, ShapeError, "head_logits"),
    "V below N": ({"vocab_size": 1}, ParameterError, "vocab_size"),
    "count above V": ({"finite_count": torch.tensor([9])}, HeadError, "head_finite_count[0]"),
    "count below N": ({"finite_count": torch.tensor([1])}, HeadError, "head_finite_count[0]"),
    "count of floats": ({"finite_count": torch.tensor([8.0])}, DtypeError, "head_finite_count"),
    "mask too short": ({"vocab_size": 33, "mask": torch.zeros(1, 1, dtype=torch.int32)}, ShapeError, "mask"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_head_is_refused(name):
    fields, error, where = MALFORMED[name]
    with pytest.raises(error) as raised:
        K.sample(make(**fields))
    assert raised.value.field == where


def test_the_well_formed_head_is_answered():
    assert settled(K.sample(make(), K.check({"top_k": 2}))[0])


@pytest.mark.parametrize(
    ("logits", "code", "kind"),
    [
        ([math.nan, 1.0], "non_finite", "nan"),
        ([2.0, math.nan], "non_finite", "nan"),
        ([INF, 1.0], "non_finite", "posinf"),
        ([-INF, -INF], "all_masked", "all_neginf"),
    ],
)
def test_a_bad_head_fails_alone(logits, code, kind):
    rows = make(
        ids=[[0, 1]] * 3, logits=[[2.0, 1.0], logits, [2.0, 1.0]], log_z=[2.5, math.nan, 2.5]
    )  # the client's log Z of such a row is NaN too
    first, bad, last = K.sample(rows, K.check({"top_k": 2, "seed": 5}))
    assert first == last == K.sample(make(), K.check({"top_k": 2, "seed": 5}))[0]
    assert (bad.row, bad.code, bad.kind) == (1, code, kind)


def test_a_head_is_answered_the_same_in_any_batch_and_dtype():
    rng = np.random.default_rng(10)
    row = torch.from_numpy(normal(rng, 40)).float()
    one = Case(row, 10, {"top_p": 0.5}, None).head_rows()
    many = K.HeadRows(one.ids.repeat(9, 1).int(), one.logits.double().repeat(9, 1), one.log_z.repeat(9, 1), 40)
    values = K.check({"top_p": 0.5, "seed": 3})
    assert K.sample(many, values) == K.sample(one, values) * 9


@pytest.mark.parametrize("name", ["mirostat", "typical_p", "top_h", "top_n_sigma", "eta_cutoff", "adaptive_target"])
def test_a_best_guess_of_a_short_head_knows_no_more_than_was_sent(name):
    value = {"mirostat": 1}.get(name, 0.5)
    told = Case(FEW, size=3, params={name: value, "allow_inexact": True}).head()
    assert not told.exact
    assert told.tokens[0] in (0, 1, 2)
