"""Warnings: each code where it belongs, and only there."""

import numpy as np
import pytest
import torch
from rows_of import INF, row_of

from logitd_kernels import DenseRows, check
from logitd_kernels.errors import ParameterError
from logitd_kernels.thermo import CODES, analyze


def warned(row, temperatures=(1.0,), dtype=torch.float64, **asked):
    row = row if isinstance(row, torch.Tensor) else torch.tensor(row, dtype=dtype)
    [answer] = analyze(DenseRows(row[None]), temperatures, **asked)
    assert {warning.code for warning in answer.warnings} <= set(CODES)
    return [(warning.code, warning.detail) for warning in answer.warnings]


def codes(*args, **asked):
    return [code for code, _ in warned(*args, **asked)]


def test_nothing_to_say():
    assert warned(row_of("normal", 500), [0.7, 1.0, 1.5]) == []


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([5, -INF], ["single"]),
        ([5, -INF, -INF], ["single", "masked"]),
        ([2, 2, 2], ["degenerate"]),
        ([0, -INF, 0], ["degenerate"]),
        ([0, 1, -INF, -INF], []),  # half is not most
        ([0, 1, -INF, -INF, -INF], ["masked"]),
        ([0, 21], ["saturated"]),
        ([0, 20], []),
        ([0, 0.01], ["flat"]),
        ([0, 0.5], []),
    ],
)
def test_codes(row, expected):
    assert codes(row) == expected


def test_which_temperatures():
    details = dict(warned([0.0, 1.0], [0.01, 0.02, 1.0, 100.0]))
    assert details["saturated"].endswith("at temperatures 0.01 to 0.02 (2 of 4)")
    assert details["flat"].endswith("over 2 tokens at temperature 100 (1 of 4)")


@pytest.mark.parametrize(
    ("dtype", "offset", "expected"),
    [
        (torch.float32, 8000.0, []),
        (torch.float32, 9000.0, ["large_offset"]),
        (torch.float32, -9000.0, ["large_offset"]),
        (torch.float64, 1e5, []),
        (torch.float64, 1e14, ["large_offset"]),
        (torch.bfloat16, 40.0, []),
        (torch.bfloat16, 512.0, ["large_offset"]),
        (torch.float16, 2048.0, ["large_offset"]),
    ],
)
def test_large_offset_depends_on_the_dtype(dtype, offset, expected):
    spacing = float(np.spacing(np.float32(abs(offset)))) if dtype == torch.float32 else 0
    found = warned(torch.tensor([offset, offset - 64.0 * np.sign(offset), -3e9], dtype=dtype).clamp(min=-6e4))
    assert [code for code, _ in found if code != "saturated"] == expected
    if expected and spacing:
        assert f"{spacing:.2g} apart" in found[0][1]


@pytest.mark.parametrize(
    ("params", "masked"),
    [
        ({}, []),
        ({"temperature": 0.7, "top_p": 0.9}, []),
        ({"temperature": 0.7, "top_k": 1}, ["temperature 0.7"]),
        ({"temperature": 0, "top_p": 0.9}, ["top_p 0.9"]),
        ({"top_k": 50}, ["top_k 50"]),
        ({"top_k": 2, "min_p": 0.001}, ["min_p 0.001"]),
    ],
)
def test_knobs_that_have_no_effect(params, masked):
    found = warned([1.0, 2.0, 3.0, 4.0], params=check(params))
    assert [code for code, _ in found] == ["knob_masked"] * len(masked)
    for (_, detail), knob in zip(found, masked, strict=True):
        assert f"{knob} had no effect" in detail


def test_parameters_that_leave_nothing():
    assert codes([1.0, 2.0], params=check({"allowed_ids": []})) == ["nothing_left"]


def test_parameters_must_fit_the_row():
    with pytest.raises(ParameterError) as refused:
        warned([1.0, 2.0], params=check({"banned_ids": [2]}))
    assert refused.value.field == "banned_ids"


def test_parameters_change_no_number():
    rows = DenseRows(row_of("normal", 400)[None])
    [plain], [asked] = analyze(rows, [0.5]), analyze(rows, [0.5], params=check({"temperature": 2, "top_k": 3}))
    assert plain.sweep.entropy == asked.sweep.entropy
