"""Every kind of request by its name, for the mix of a profile."""

from collections.abc import Iterable, Iterator

import numpy as np
from loadtest.http.profiles import attending, judging, refusals, sampling
from loadtest.http.profiles.kinds import Kind, single
from loadtest.http.profiles.requests import Wire


def kinds(wire: Wire, rows: sampling.Rows, region: str | None) -> dict[str, Kind]:
    """Return the kinds by name.

    Args:
        wire: writes the requests.
        rows: [N, V] float32 logits.
        region: of shared memory that holds the first row; None where the service has none.
    """
    found = [*sampling.kinds(wire, rows), *judging.kinds(wire, rows), *attending.kinds(wire), *refusals.kinds(wire)]
    found += _reading(wire)
    if region is not None:
        found.append(sampling.shared(wire, region, rows.shape[1]))
    return {kind.name: kind for kind in found}


def chosen(found: dict[str, Kind], names: Iterable[str]) -> list[Kind]:
    """Return the kinds of these names.

    Raises:
        ValueError: a name that is none.
    """
    names = list(names)
    if unknown := sorted(set(names) - set(found)):
        raise ValueError(f"no such kind of request: {', '.join(unknown)}; there are {', '.join(sorted(found))}")
    return [found[name] for name in names]


def in_memory(rows: sampling.Rows) -> bytes:
    """Return the bytes of the row that lies in shared memory."""
    return np.ascontiguousarray(rows[0]).tobytes()


def _reading(wire: Wire) -> Iterator[Kind]:
    paths = ("/v1/info", "/health/ready", "/v2", "/v2/models/sample", "/v2/models/sample/config", "/v2/models/stats")
    yield single("reading", [wire.get(path) for path in paths])
