"""A sample result as text: aligned tables for people, JSON for programs."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from logitd.client import Row, SampleResult


def as_json(result: SampleResult) -> str:
    """Return the rows as a JSON array; −inf is null, as in an answer of the service."""
    return json.dumps([_plain(asdict(row)) for row in result.rows], indent=2, allow_nan=False)


def as_tables(result: SampleResult) -> str:
    """Return one line for each row, and below what was asked for beside it: top log-probabilities and traces."""
    asked = any(row.top is not None for row in result.rows)
    titles = ["row", "token", "logprob", "entropy", "entropy kept", "kept", "mass", "seed"]
    lines = list(
        _table(titles + (["logprob raw"] if asked else []), [_cells(*pair, asked) for pair in enumerate(result.rows)])
    )
    for index, row in enumerate(result.rows):
        if row.error is not None:
            lines[index + 1] += f"  {row.error.code}: {row.error.detail}"
        elif not row.exact:
            lines[index + 1] += "  not exact"
    lines += _section(["row", "top token", "logprob"], _tops(result.rows))
    lines += _section(["row", "transform", "entropy", "kept", "mass"], _traces(result.rows))
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
        [str(i), step.transform, _number(step.entropy), _number(step.kept), _number(step.kept_mass)]
        for i, row in enumerate(rows)
        for step in row.trace or ()
    ]


def _section(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", *_table(titles, rows)] if rows else []


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align every column to the right; a row may end early."""
    lines = [titles, *rows]
    widths = [max(len(line[place]) for line in lines if place < len(line)) for place in range(len(titles))]
    for line in lines:
        yield "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isinf(value) else value
