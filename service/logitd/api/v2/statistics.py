"""What became of the requests to each model, as clients of the protocol read it. To be used on the event loop alone."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_STEPS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
_STAGES = {"queue": "queue", "compute_input": "decode", "compute_infer": "compute", "compute_output": "encode"}


@dataclass
class Tally:
    """How often, and how long altogether."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float) -> None:
        """Count once."""
        self.count += 1
        self.ns += max(0, round(seconds * 1e9))

    def told(self) -> Json:
        """Return both as integers."""
        return {"count": self.count, "ns": self.ns}


def _tallies() -> dict[str, Tally]:
    return {step: Tally() for step in _STEPS}


@dataclass
class ModelStatistics:
    """The counts of one model; `rows` are what the protocol calls inferences."""

    rows: int = 0
    executions: int = 0
    last_ms: int = 0
    steps: dict[str, Tally] = field(default_factory=_tallies)
    batches: dict[int, dict[str, Tally]] = field(default_factory=dict)

    def succeeded(self, rows: int, seconds: float, stages: Mapping[str, float]) -> None:
        """Count a request that was answered.

        Args:
            rows: in it.
            seconds: from its headers to its answer.
            stages: how long each took, seconds.
        """
        self.rows += rows
        self.executions += 1
        self.last_ms = time.time_ns() // 1_000_000
        self.steps["success"].add(seconds)
        batch = self.batches.setdefault(rows, {step: Tally() for step in _STAGES if step != "queue"})
        for step, stage in _STAGES.items():
            self.steps[step].add(stages.get(stage, 0.0))
            if step in batch:
                batch[step].add(stages.get(stage, 0.0))

    def failed(self, seconds: float) -> None:
        """Count a request that was refused, or failed."""
        self.steps["fail"].add(seconds)


class Statistics:
    """The counts of every model."""

    def __init__(self, models: Iterable[str], version: str) -> None:
        self._version = version
        self._models = {name: ModelStatistics() for name in models}

    def of(self, model: str) -> ModelStatistics:
        """Return the counts of one model."""
        return self._models[model]

    def told(self, model: str | None = None) -> Json:
        """Return the statistics of one model, or of all."""
        names = self._models if model is None else (model,)
        return {"model_stats": [self._told(name) for name in names]}

    def _told(self, name: str) -> Json:
        counts = self._models[name]
        return {
            "name": name,
            "version": self._version,
            "last_inference": counts.last_ms,
            "inference_count": counts.rows,
            "execution_count": counts.executions,
            "inference_stats": {step: tally.told() for step, tally in counts.steps.items()},
            "response_stats": {},
            "batch_stats": [
                {"batch_size": rows, **{step: tally.told() for step, tally in steps.items()}}
                for rows, steps in sorted(counts.batches.items())
            ],
            "memory_usage": [],
        }
