"""Parameters: what is refused, by which name, on its own and against rows; what is taken as it is."""

import math

import pytest
import torch
from rows_of import BACKENDS, INF, threads

import logitd_kernels as K
from logitd_kernels.errors import DtypeError, KernelError, ParameterError, ShapeError
from logitd_kernels.sampling.parameters import Bias, Choice, Flag, Number, Optional, Seed, TokenIds, TokenSequences

both = pytest.mark.parametrize("backend", BACKENDS)
NAN = math.nan
HUGE, HUGER = 10**400, 10**5000  # beyond float64; beyond the digits that Python prints


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threads(1):
        yield


# ---- Parameters: bad values of each kind, for every parameter that the registry has ----

ANYTHING = {"a list": [1], "an object": {"1": 1}, "bytes": b"1", "a tensor": torch.zeros(1), "a complex": 1j}
NOT_NUMBERS = {"nan": NAN, "inf": INF, "-inf": -INF, "true": True, "false": False, "a string": "1", "null": None}


def bad_numbers(number: Number):
    yield from (NOT_NUMBERS | ANYTHING).items()
    yield "-10**400", -HUGE
    yield "-10**5000", -HUGER
    if number.ge is not None:
        below = int(number.ge) - 1 if number.integer else math.nextafter(number.ge, -INF)
        yield "just below", below
    if number.gt is not None:
        yield "the open end", type(number.neutral)(number.gt)
    if number.le is not None:
        yield "just above", int(number.le) + 1 if number.integer else math.nextafter(number.le, INF)
    if number.le is not None or not number.integer:
        yield "10**400", HUGE
        yield "10**5000", HUGER
    if number.integer:
        yield "a fraction", 1.5
        yield "a whole float", 1.0


BAD_SEEDS = {
    "-2": -2,
    "2^64": 2**64,
    "10**400": HUGE,
    "10**5000": HUGER,
    "-10**5000": -HUGER,
    "1.0": 1.0,
    "-1.0": -1.0,
    "nan": NAN,
    "inf": INF,
    "true": True,
    "false": False,
    "'-1'": "-1",
    "'-2'": "-2",
    "'+1'": "+1",
    "'1.0'": "1.0",
    "'1e3'": "1e3",
    "'0x1'": "0x1",
    "'1_0'": "1_0",
    "' 1'": " 1",
    "''": "",
    "'2^64'": "18446744073709551616",
    "Arabic digits": "١٢",
    "a superscript": "²",
    "9999 digits": "9" * 9999,
}
BAD_IDS = {
    "a number": 3,
    "a string": "12",
    "bytes": b"12",
    "an object": {1: 2},
    "a set": {1},
    "true": True,
    "of -1": [-1],
    "of true": [True],
    "of a float": [1.0],
    "of nan": [NAN],
    "of a string": ["1"],
    "of null": [None],
    "of a list": [[1]],
    "of -10**5000": [-HUGER],
    "of a good and a bad id": [1, -1],
}
BAD_SEQUENCES = {name: one for name, one in BAD_IDS.items() if not name.startswith("of")} | {
    "ids, not lists of them": [1, 2],
    "an empty list": [[1], []],
    "of null": [None],
    "of a string": ["12"],
    "of bytes": [b"12"],
    "of a set": [{1}],
    "deeper": [[[1]]],
    "of -1": [[1, -1]],
    "of true": [[True]],
    "of a float": [[1.0]],
    "of -10**5000": [[-HUGER]],
}
BAD_BIASES = {
    "a list": [1],
    "a string": "1",
    "a number": 1,
    "true": True,
    "key 01": {"01": 1},
    "key +1": {"+1": 1},
    "key -1": {"-1": 1},
    "key 1.0": {"1.0": 1},
    "key of an Arabic digit": {"١": 1},
    "key of 9999 digits": {"9" * 9999: 1},
    "key ''": {"": 1},
    "key -1 (int)": {-1: 1},
    "key -10**5000": {-HUGER: 1},
    "key 1.0 (float)": {1.0: 1},
    "key true": {True: 1},
    "key null": {None: 1},
    "one id twice": {"1": 1, 1: 2},
    "nan": {1: NAN},
    "inf": {1: INF},
    "'inf'": {1: "inf"},
    "'1'": {1: "1"},
    "true for a bias": {1: True},
    "a list for a bias": {1: [1]},
    "1e300": {1: 1e300},
    "-1e300": {1: -1e300},
    "10**400": {1: HUGE},
    "-10**400": {1: -HUGE},
    "10**5000": {1: HUGER},
    "-10**5000": {1: -HUGER},
    "a good and a bad bias": {1: 1.0, 2: NAN},
}
BAD_WORDS = {"null": None, "''": "", "capitals": "EXACT", "a number": 1, "true": True, "nan": NAN} | ANYTHING
BAD_FLAGS = {"null": None, "0": 0, "1": 1, "a string": "true", "nan": NAN} | ANYTHING
BAD = {
    Number: bad_numbers,
    Optional: lambda one: ((what, value) for what, value in bad_numbers(one.number) if value is not None),
    Choice: lambda _: BAD_WORDS.items(),
    Flag: lambda _: BAD_FLAGS.items(),
    Seed: lambda _: (BAD_SEEDS | ANYTHING).items(),
    TokenIds: lambda _: BAD_IDS.items(),
    TokenSequences: lambda _: BAD_SEQUENCES.items(),
    Bias: lambda _: BAD_BIASES.items(),
}
REFUSED = [
    pytest.param(name, value, id=f"{name}: {what}")
    for name, parameter in K.PARAMETERS.items()
    for what, value in BAD[type(parameter)](parameter)
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_bad_value_is_refused_by_name_and_row_and_not_repeated_at_length(name, value):
    with pytest.raises(ParameterError) as caught:
        K.check({"seed": 1, name: value}, row=17)
    assert caught.value.field.split("[")[0] == name
    assert caught.value.row == 17
    assert len(str(caught.value)) < 200


def good_numbers(number: Number):
    convert = int if number.integer else float
    if number.ge is not None:
        yield convert(number.ge)
        yield int(number.ge)
    if number.gt is not None:
        yield math.nextafter(number.gt, INF)
    if number.le is not None:
        yield convert(number.le)
        yield int(number.le)
    elif number.integer:
        yield HUGER
    else:
        yield from (1e308, 5e-324, 1)


NUMBERS = [name for name, parameter in K.PARAMETERS.items() if isinstance(parameter, Number)]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_taken_up_to_their_bounds_as_they_are(name):
    number = K.PARAMETERS[name]
    for value in good_numbers(number):
        taken = K.check({name: value})[name]
        assert taken == value
        assert type(taken) is (int if number.integer else float)


@pytest.mark.parametrize("name", [name for name in NUMBERS if K.PARAMETERS[name].le is not None])
def test_a_refusal_names_the_exact_bound(name):
    bound = K.PARAMETERS[name].le
    with pytest.raises(ParameterError) as caught:
        K.check({name: int(bound) + 1})
    exact = int(bound) if bound == int(bound) else bound
    assert f" {exact}]" in str(caught.value)
    assert f" {exact}]" in K.PARAMETERS[name].bounds


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("seed", 0, 0),
        ("seed", 2**64 - 1, 2**64 - 1),
        ("seed", "0", 0),
        ("seed", "42", 42),
        ("seed", "9007199254740993", 9007199254740993),  # what JSON's doubles would lose
        ("seed", "18446744073709551615", 2**64 - 1),
        ("seed", "00000000000000000042", 42),
        ("seed", -1, None),
        ("seed", None, None),
        ("ties", "all", "all"),
        ("allow_inexact", True, True),
        ("banned_ids", [3, 1, 3], (3, 1, 3)),
        ("banned_ids", (), ()),
        ("allowed_ids", None, None),
        ("logit_bias", {"3": 1, 4: -2.5, "0": None, "7": "-inf", 8: -INF}, {3: 1, 4: -2.5, 0: -INF, 7: -INF, 8: -INF}),
        ("logit_bias", {1: 9.9e299, 2: -9.9e299}, {1: 9.9e299, 2: -9.9e299}),
        ("logit_bias", None, None),
        ("bad_words", [[3], (1, 3)], ((3,), (1, 3))),
        ("bad_words", [], ()),
        ("bad_words", None, None),
        ("mirostat_mu", None, None),
        ("mirostat_mu", -3, -3.0),
        ("adaptive_target", None, None),
        ("adaptive_target", 0, 0.0),
        ("repetition_scope", "output", "output"),
    ],
)
def test_other_values_are_taken(name, value, taken):
    assert K.check({name: value})[name] == taken


@pytest.mark.parametrize("name", ["min_q", "", "temperature ", "Temperature", "mask", "x" * 50])
def test_an_unknown_parameter_is_refused_and_the_known_are_named(name):  # 68
    with pytest.raises(ParameterError, match="temperature") as caught:
        K.check({"temperature": 1.0, name: 1}, row=3)
    assert (caught.value.field, caught.value.row) == (name, 3)


def test_checked_values_cannot_be_changed():
    values = K.check({"temperature": 0.5})
    with pytest.raises(TypeError):
        values["temperature"] = NAN
    assert values["temperature"] == 0.5


def test_every_error_is_a_kernel_error_and_a_value_error():
    for kind in (ParameterError, ShapeError, DtypeError):
        assert issubclass(kind, KernelError)
        assert issubclass(kind, ValueError)


# ---- Parameters against rows ----

OUTSIDE = {"V": 40, "V + 1": 41, "2^31": 2**31, "2^63": 2**63, "2^64": 2**64, "10**400": HUGE, "10**5000": HUGER}


@both
@pytest.mark.parametrize("token", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize("name", ["logit_bias", "banned_ids", "allowed_ids"])
def test_a_token_outside_the_vocabulary_is_refused_with_its_row(name, token, backend):  # 59
    bad = {token: 1.0} if name == "logit_bias" else [0, token]
    params = [
        K.check({}),
        K.check({name: {0: 1.0, 39: 1.0} if name == "logit_bias" else [0, 39]}),
        K.check({name: bad}),
    ]
    with pytest.raises(ParameterError, match="vocabulary") as caught:
        K.sample(K.DenseRows(torch.zeros(3, 40)), params, backend=BACKENDS[backend])
    assert (caught.value.field, caught.value.row) == (name, 2)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_as_many_parameters_as_rows(count):
    with pytest.raises(ParameterError, match="3 rows") as caught:
        K.sample(K.DenseRows(torch.zeros(3, 5)), [K.check({})] * count)
    assert caught.value.field == "params"


def test_one_mapping_is_for_all_rows():
    value = K.check({"temperature": 0, "seed": 1})
    rows = K.DenseRows(torch.eye(3))
    assert K.sample(rows, value) == K.sample(rows, [value] * 3)
    assert [answer.tokens for answer in K.sample(rows, value)] == [[0], [1], [2]]


def test_rows_without_parameters_are_sampled_as_they_are():
    (answer,) = K.sample(K.DenseRows(torch.zeros(1, 5)))
    assert (answer.kept, len(answer.tokens)) == (5, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("logprobs", -1), ("logprobs_mode", "both"), ("logprobs_mode", ""), ("logprobs_mode", None)],
)
def test_options_of_the_answer_are_checked(field, value):
    with pytest.raises(ParameterError) as caught:
        K.sample(K.DenseRows(torch.zeros(1, 5)), **{field: value})
    assert caught.value.field == field
