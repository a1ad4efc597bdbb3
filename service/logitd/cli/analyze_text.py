"""An analysis as text: a table and the entropy curve of each row for people, JSON for programs."""

from collections.abc import Iterator, Sequence

import numpy as np

from logitd.cli.text import aligned, json_text
from logitd.client import AnalyzeResult

_COLUMNS = {
    "log Z": "log_z",
    "F": "free_energy",
    "U": "internal_energy",
    "S": "entropy",
    "C": "heat_capacity",
    "e^S": "effective_states",
    "max p": "max_probability",
}
_WIDTH, _HEIGHT = 64, 12  # of the curve, in characters


def as_json(result: AnalyzeResult, first: int) -> str:
    """Return the rows as a JSON array, the first of them numbered `first`; what passes float64 is null."""
    return json_text([_as_object(result, row, first) for row in range(len(result.errors))])


def as_text(result: AnalyzeResult, first: int, *, asked_entropy: float | None) -> str:
    """Return for each row, the first numbered `first`, a table, the curve of its entropy and its warnings.

    `asked_entropy` is the entropy whose temperature was asked for.
    """
    lines: list[str] = []
    for row in range(len(result.errors)):
        lines += ["", *_told(result, row, first, asked_entropy)]
    return "\n".join(lines[1:])


def curve(temperatures: Sequence[float], entropies: Sequence[float]) -> Iterator[str]:
    """Draw S over T, both from the least to the most, linear between the points; at most 80 columns wide."""
    hot, cold = max(temperatures), min(temperatures)
    most, least = max(entropies), min(entropies)
    order = np.argsort(temperatures, kind="stable")
    places = np.linspace(cold, hot, _WIDTH)
    heights = np.interp(places, np.array(temperatures)[order], np.array(entropies)[order])
    levels = np.rint((heights - least) / ((most - least) or 1.0) * (_HEIGHT - 1)).astype(int)
    for level in range(_HEIGHT - 1, -1, -1):
        value = least + (most - least) * level / (_HEIGHT - 1)
        marks = "".join("*" if one == level else " " for one in levels).rstrip()
        yield f"{value:10.4g} |{marks}"
    yield " " * 10 + " +" + "-" * _WIDTH
    right = f"T = {hot:.6g}"
    yield " " * 12 + f"T = {cold:.6g}".ljust(_WIDTH - len(right)) + right


def _told(result: AnalyzeResult, row: int, first: int, asked_entropy: float | None) -> Iterator[str]:
    error = result.errors[row]
    if error is not None:
        yield f"row {first + row}  {error.code}: {error.detail}"
        return
    yield f"row {first + row}: energies E = -z, entropy S in nats"
    nucleus = [] if result.nucleus is None else ["nucleus"]
    yield from aligned(["T", *_COLUMNS, *nucleus], [_cells(result, row, k) for k in range(len(result.temperatures))])
    if len(set(result.temperatures.tolist())) > 1:
        yield from ("", "         S", *curve(result.temperatures.tolist(), result.entropy[row].tolist()))
    if asked_entropy is not None and result.temperature_for_entropy is not None:
        wanted = float(result.temperature_for_entropy[row])
        told = "no temperature" if np.isnan(wanted) else f"T = {wanted:.10g}"
        yield from ("", f"S = {asked_entropy:g} at {told}")
    if result.warnings[row]:
        yield from ("", *(f"{warning.code}: {warning.detail}" for warning in result.warnings[row]))


def _cells(result: AnalyzeResult, row: int, place: int) -> list[str]:
    numbers = [f"{getattr(result, name)[row, place]:#.5g}" for name in _COLUMNS.values()]
    nucleus = [] if result.nucleus is None else [str(result.nucleus[row, place])]
    return [f"{result.temperatures[place]:.6g}", *numbers, *nucleus]


def _as_object(result: AnalyzeResult, row: int, first: int) -> dict[str, object]:
    error = result.errors[row]
    if error is not None:
        return {"row": first + row, "error": {"code": error.code, "detail": error.detail}}
    wanted = None if result.temperature_for_entropy is None else float(result.temperature_for_entropy[row])
    return {
        "row": first + row,
        "temperature": result.temperatures.tolist(),
        **{name: getattr(result, name)[row].tolist() for name in _COLUMNS.values()},
        "nucleus": None if result.nucleus is None else result.nucleus[row].tolist(),
        "temperature_for_entropy": None if wanted is None or np.isnan(wanted) else wanted,
        "warnings": [{"code": warning.code, "detail": warning.detail} for warning in result.warnings[row]],
        "error": None,
    }
