"""What a run found, as JSON and a picture."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.attention.crossover import Crossover
from loadtest.attention.curve import Curve
from loadtest.attention.figures import Figure
from loadtest.attention.plot import draw
from loadtest.kernels import plot
from loadtest.kernels.claims import Verdict
from loadtest.kernels.report import to_json


@dataclass
class Report:
    """The machine, and what was measured on it."""

    machine: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    crossovers: list[Crossover] = field(default_factory=list)
    claims: list[Verdict] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def keep(self, target: Path) -> list[Path]:
        """Write the JSON, and the picture beside it where matplotlib is; returns the files written."""
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(to_json(self))
        if not plot.available():
            return [target]
        picture = target.with_suffix(".png")
        draw(self.figures, self.crossovers, self.curves, picture)
        return [target, picture]
