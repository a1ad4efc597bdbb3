"""The knee of a ramp: the last step that holds before the first one that does not, even when it is repeated."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.http.profiles.slo import Slo

STEP_METRICS = frozenset({"p50", "p90", "p95", "p99", "p99.9", "max", "mean", "errors", "shed", "goodput"})


@dataclass(frozen=True)
class Step:
    """One step of a ramp.

    Attributes:
        rate: requests due each second.
        values: what the SLOs are about, by metric.
    """

    rate: float
    values: dict[str, float | None]

    def broken(self, slos: Sequence[Slo]) -> list[Slo]:
        """Return the demands that it does not keep."""
        return [slo for slo in slos if not slo.met(self.values[slo.metric])]


def of_steps(slos: Sequence[Slo]) -> list[Slo]:
    """Return the demands that each step of a ramp has to keep: those on the whole run that make sense for a step."""
    return [slo for slo in slos if slo.scope is None and slo.metric in STEP_METRICS]


def knee(steps: Sequence[Step], slos: Sequence[Slo]) -> float | None:
    """Return the rate of the last step before the first that breaks a demand; None where the first one does."""
    held: float | None = None
    for step in steps:
        if step.broken(slos):
            return held
        held = step.rate
    return held
