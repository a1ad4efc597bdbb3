"""What a run found, as JSON and pictures."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.kernels import plot
from loadtest.kernels.claims import Verdict
from loadtest.kernels.figures import Figure
from loadtest.kernels.machine import ROOT
from loadtest.kernels.scaling import Curve

BASELINES = ROOT / "loadtest" / "baselines"


@dataclass
class Report:
    """The machine, and what was measured on it."""

    machine: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    claims: list[Verdict] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def keep(self, json_path: str | None, whole: bool) -> list[Path]:
        """Write what was asked for: a whole run becomes the baseline; returns the files written.

        Args:
            json_path: where the JSON goes besides; pictures lie beside it.
            whole: whether nothing was left out of the run.
        """
        targets = ([BASELINES / "kernels.json"] if whole else []) + ([Path(json_path)] if json_path else [])
        return [written for target in targets for written in self._write(target)]

    def _write(self, target: Path) -> list[Path]:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(to_json(self))
        pictures: list[Path] = []
        if self.figures and plot.available():
            pictures.append(target.with_suffix(".png"))
            plot.draw_figures(self.figures, pictures[-1])
        if self.curves and plot.available():
            pictures.append(target.with_name(f"{target.stem}-scaling.png"))
            plot.draw_curves(self.curves, pictures[-1])
        return [target, *pictures]


def to_json(report: Any) -> str:  # noqa: ANN401  (a dataclass with `machine` and any lists)
    """Return the report as JSON, one figure a line and floats to four digits, so that a change of one is one line."""
    whole = _rounded(asdict(report))
    parts = [f'"machine": {json.dumps(whole.pop("machine"), indent=1, ensure_ascii=False)}']
    for name, found in whole.items():
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
        parts.append(f'"{name}": [\n{lines}\n]' if lines else f'"{name}": []')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rounded(value: Any) -> Any:  # noqa: ANN401  (anything JSON has)
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
