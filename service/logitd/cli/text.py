"""What all output is made of: aligned columns for people, JSON for programs."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any


def aligned(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align every column to the right; a row may end early."""
    lines = [titles, *rows]
    widths = [max(len(line[place]) for line in lines if place < len(line)) for place in range(len(titles))]
    for line in lines:
        yield "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False))


def json_text(value: Any) -> str:  # noqa: ANN401
    """Return a value as JSON; infinities are null, as in an answer of the service."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isinf(value) else value
