"""The laws of theory.py hold on any row, and each of them fails where what is claimed is wrong."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from rows_of import INF, row_of

from logitd_kernels import pick
from logitd_kernels.errors import BadRow
from logitd_kernels.thermo.theory import LAWS, Computed, verify

NAMES = ["boltzmann", "entropy rises", "T -> 0: argmax", "T -> inf: uniform", "gradient is p - y", "F = U - T S"]
ROWS = {kind: row_of(kind, 300) for kind in ("normal", "ties", "equal", "mostly_masked", "high", "huge", "flat")}
ROWS |= {"one": torch.tensor([4.0]), "half": torch.tensor([0.0, -INF, 1.0]).half()}


@pytest.mark.parametrize("kind", ROWS)
def test_every_law_holds(kind):
    checks = verify(ROWS[kind])
    assert [check.name for check in checks] == NAMES
    assert all(check.passed for check in checks), checks


@pytest.mark.parametrize("row", [[1.0, np.nan], [1.0, INF], [-INF, -INF]])
def test_a_bad_row_is_refused(row):
    with pytest.raises(BadRow):
        verify(torch.tensor(row))


@dataclass(frozen=True)
class Wrong:
    """Claims of the kernels, one of them changed."""

    true: Computed
    change: str

    def probabilities(self, temperature):
        p = self.true.probabilities(temperature)
        if self.change == "other temperature":
            return self.true.probabilities(1.001 * temperature)
        if self.change == "positive energy":
            return replace(self.true, row=-self.true.row).probabilities(temperature)
        if self.change == "too hot to be uniform":
            return p * (1 + 1e-6 * np.cos(np.arange(len(p))))
        return p

    def sweep(self, temperatures):
        sweep = self.true.sweep(temperatures)
        if self.change == "entropy of a part":
            return replace(sweep, entropy=sweep.entropy * (1 - 1e-6))
        if self.change == "entropy that falls":
            return replace(sweep, entropy=np.where(sweep.temperature > 50, sweep.entropy - 0.1, sweep.entropy))
        if self.change == "not a number":
            return replace(sweep, entropy=np.full_like(sweep.entropy, np.nan))
        return sweep

    def coldest_token(self):
        return self.true.coldest_token() + (self.change == "another token")

    def gradient(self, target):
        slope = self.true.gradient(target)
        if self.change == "p without y":
            slope[target] += 1
        if self.change == "p of another temperature":
            slope = slope * 1.01
        return slope


CHANGES = [
    ("nothing", []),
    ("other temperature", ["boltzmann"]),
    ("positive energy", ["boltzmann", "T -> 0: argmax"]),
    ("too hot to be uniform", ["boltzmann", "T -> 0: argmax", "T -> inf: uniform"]),
    ("entropy of a part", ["F = U - T S"]),
    ("entropy that falls", ["entropy rises", "F = U - T S"]),
    ("not a number", ["entropy rises", "F = U - T S"]),
    ("another token", ["T -> 0: argmax"]),
    ("p without y", ["gradient is p - y"]),
    ("p of another temperature", ["gradient is p - y"]),
]


@pytest.mark.parametrize(("change", "broken"), CHANGES, ids=[change for change, _ in CHANGES])
def test_wrong_claims_are_found(change, broken):
    row = ROWS["normal"].double()
    checks = verify(row, Wrong(Computed(row, pick("torch")), change))
    assert [check.name for check in checks if not check.passed] == broken


def test_every_law_is_seen_to_fail():
    assert {name for _, broken in CHANGES for name in broken} == set(NAMES)
    assert len(LAWS) == len(NAMES)
