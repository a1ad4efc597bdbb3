"""What must come of a run: `p99=50ms`, `errors=0.1%`, `goodput=90%`, `head:p99=20ms`, `after:shed=0%`."""

import math
import re
from dataclasses import dataclass

# What is demanded, in which unit, and whether the limit is the most or the least of it.
METRICS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("p50", "p90", "p95", "p99", "p99.9", "max", "mean", "probes", "lag"), ("s", "most")),
    **dict.fromkeys(("errors", "shed", "growth"), ("%", "most")),
    "goodput": ("%", "least"),
    **dict.fromkeys(("rate", "knee"), ("/s", "least")),
}
UNSCOPED = frozenset({"probes", "knee"})
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "%": 0.01, "/s": 1.0}
_FORM = re.compile(r"(?:(?P<scope>[^:=]+):)?(?P<metric>[^:=]+)=(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|µs|ms|s|%|/s)?")


@dataclass(frozen=True)
class Slo:
    """One demand.

    Attributes:
        metric: one of METRICS.
        limit: seconds, a share, or requests a second.
        scope: the kind of request or the phase that it is about; None for the whole run.
    """

    metric: str
    limit: float
    scope: str | None = None

    @property
    def name(self) -> str:
        """What it is about."""
        return self.metric if self.scope is None else f"{self.scope}:{self.metric}"

    def met(self, value: float | None) -> bool:
        """Whether a value keeps it; what was not measured does not."""
        if value is None:
            return False
        return value <= self.limit if METRICS[self.metric][1] == "most" else value >= self.limit

    @property
    def text(self) -> str:
        """The demand in words."""
        sign = "≤" if METRICS[self.metric][1] == "most" else "≥"
        return f"{self.name} {sign} {shown(self.metric, self.limit)}"


def parsed(text: str) -> Slo:
    """Read a demand.

    Raises:
        ValueError: it is none.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or found["metric"] not in METRICS:
        raise ValueError(f"expected [KIND:|PHASE:]METRIC=LIMIT with a metric of {', '.join(METRICS)}, got {text!r}")
    unit = METRICS[found["metric"]][0]
    given = found["unit"] or ("/s" if unit == "/s" else "")
    family = "s" if given in ("us", "µs", "ms") else given
    if family != unit:
        raise ValueError(f"{text}: {found['metric']} is given in {'µs, ms or s' if unit == 's' else unit}")
    if found["scope"] and found["metric"] in UNSCOPED:
        raise ValueError(f"{text}: {found['metric']} is of the whole run")
    return Slo(found["metric"], float(found["number"]) * _UNITS[given], found["scope"])


def shown(metric: str, value: float | None) -> str:
    """Return a value as people read it."""
    if value is None:
        return "not measured"
    if math.isinf(value):
        return "no answer"
    unit = METRICS[metric][0]
    if unit == "s":
        return f"{value:,.2f} s" if value >= 1 else f"{value * 1e3:,.3g} ms"
    return f"{value * 100:.3g} %" if unit == "%" else f"{value:,.0f}/s"
