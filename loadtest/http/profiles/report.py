"""What a run found, as plain data: the JSON file, and what the table and the page are made of."""

import json
import math
from pathlib import Path
from typing import Any

from loadtest.http.profiles import watch
from loadtest.http.profiles.figures import Figures, timeline
from loadtest.http.profiles.knee import of_steps
from loadtest.http.profiles.record import code_name
from loadtest.http.profiles.run import Outcome
from loadtest.http.profiles.slo import shown


def content(outcome: Outcome, about: dict[str, Any]) -> dict[str, Any]:
    """Return the report.

    Args:
        outcome: of the run.
        about: what it ran on, and when.
    """
    verdicts = [
        {"text": slo.text, "value": value, "shown": shown(slo.metric, value), "met": slo.met(value)}
        for slo, value in outcome.judged()
    ]
    return {
        "profile": outcome.profile.name,
        "text": outcome.profile.text,
        "about": about,
        "held": all(verdict["met"] for verdict in verdicts),
        "slos": verdicts,
        "capacity_per_second": outcome.capacity,
        "knee_per_second": outcome.knee,
        "knee_rule": _rule(outcome) if outcome.profile.stepwise else None,
        "steps": [{"rate_per_second": step.rate, **step.values} for step in outcome.steps],
        "all": _told(outcome.of(None)),
        "phases": {span.name: _told(outcome.of(span.name)) for span in outcome.spans},
        "kinds": {name: _told(outcome.of(name)) for name in sorted(outcome.record.kinds)},
        "probes": {"asked": len(outcome.seen.probe_seconds), "failures": outcome.seen.probe_seconds.count(math.inf),
                   "slowest_seconds": max(outcome.seen.probe_seconds, default=None)},
        "timeline": vars(timeline(outcome.columns)),
        "server": _server(outcome.seen),
    }  # fmt: skip


def written(report: dict[str, Any], path: Path) -> None:
    """Write it as JSON; what is no number there is null."""
    path.write_text(json.dumps(_finite(report), indent=1, ensure_ascii=False) + "\n")


def _server(seen: watch.Watch) -> dict[str, list[float]]:
    at, rows = seen.gauge(watch.QUEUE_ROWS)
    gauges = {"queue_rows": rows, "queue_oldest_seconds": seen.gauge(watch.QUEUE_OLDEST)[1]}
    return {"at": at, **gauges, "memory_bytes": seen.gauge(watch.MEMORY, kind="used")[1]}


def _rule(outcome: Outcome) -> str:
    demands = ", ".join(slo.text for slo in of_steps(outcome.profile.slos))
    return f"the last step before the first that twice breaks one of: {demands}"


def _told(found: Figures) -> dict[str, Any]:
    return {
        "requests": found.requests,
        "expected": found.expected,
        "shed": found.shed,
        "errors": found.errors,
        "goodput": found.value("goodput"),
        "expected_per_second": found.value("rate"),
        "answers": {code_name(code): count for code, count in found.codes.items()},
        "latency_seconds": found.latency_seconds,
        "lag_p99_seconds": found.lag_seconds,
    }


def _finite(value: Any) -> Any:  # noqa: ANN401  (anything JSON has)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value
