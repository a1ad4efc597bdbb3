"""A sample result as text: aligned tables for people, JSON for programs."""

from collections.abc import Sequence
from dataclasses import asdict

from logitd.cli.text import aligned, json_text
from logitd.client import Row, SampleResult


def as_json(result: SampleResult) -> str:
    """Return the rows as a JSON array; −inf is null, as in an answer of the service."""
    return json_text([asdict(row) for row in result.rows])


def as_tables(result: SampleResult) -> str:
    """Return one line for each row, and below what was asked for beside it: top log-probabilities and traces."""
    asked = any(row.top is not None for row in result.rows)
    titles = ["row", "token", "logprob", "entropy", "entropy kept", "kept", "mass", "seed"]
    lines = list(
        aligned(titles + (["logprob raw"] if asked else []), [_cells(*pair, asked) for pair in enumerate(result.rows)])
    )
    for index, row in enumerate(result.rows):
        if row.error is not None:
            lines[index + 1] += f"  {row.error.code}: {row.error.detail}"
        elif not row.exact:
            lines[index + 1] += "  not exact"
    lines += _section(["row", "top token", "logprob"], _tops(result.rows))
    lines += _section(["row", "transform", "entropy", "kept", "mass", "largest p"], _traces(result.rows))
    notes = [f"row {i}: {note}" for i, row in enumerate(result.rows) for note in row.notes or ()]
    lines += ["", *notes] if notes else []
    return "\n".join(lines)


def _cells(index: int, row: Row, asked: bool) -> list[str]:
    if row.error is not None:
        return [str(index)]
    cells = [
        str(index),
        ",".join(map(str, row.tokens or ())),
        _number(row.logprob),
        _number(row.entropy),
        _number(row.entropy_kept),
        _number(row.kept),
        _number(row.kept_mass),
        _number(row.seed),
    ]
    return cells + ([_number(row.logprob_raw)] if asked else [])


def _tops(rows: Sequence[Row]) -> list[list[str]]:
    return [[str(i), str(top.token), _number(top.logprob)] for i, row in enumerate(rows) for top in row.top or ()]


def _traces(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [str(i), step.transform, *map(_number, (step.entropy, step.kept, step.kept_mass, step.max_probability))]
        for i, row in enumerate(rows)
        for step in row.trace or ()
    ]


def _section(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", *aligned(titles, rows)] if rows else []


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4f}"
