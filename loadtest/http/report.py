"""What one run found, and where it is kept."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from loadtest.kernels.claims import Verdict


@dataclass
class Figure:
    """One kind of request to one server.

    Attributes:
        name: of the case.
        server: who answered.
        rows: in a request.
        connections: from which it was asked.
        rates: requests a second, a value for each round.
        latencies_seconds: of all requests.
    """

    name: str
    server: str
    rows: int
    connections: int
    rates: list[float] = field(default_factory=list)
    latencies_seconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return medians."""
        p50, p99 = np.quantile(self.latencies_seconds, [0.5, 0.99]) * 1e3
        return {
            "name": self.name,
            "server": self.server,
            "rows": self.rows,
            "connections": self.connections,
            "requests_per_second": round(float(np.median(self.rates)), 1),
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
        }

    def line(self) -> str:
        """Return a line of the table."""
        one = self.summary()
        rate = f"{one['requests_per_second']:>9,.0f} requests/s from {self.connections:2}"
        return f"{self.name:22} {self.server:10} {rate}   p50 {one['p50_ms']:8.2f} ms   p99 {one['p99_ms']:8.2f} ms"


@dataclass
class Report:
    """Figures and claims of one run on one machine, and its peers by name: what was measured, or why it was not."""

    machine: dict[str, Any]
    peers: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    claims: list[Verdict] = field(default_factory=list)

    def keep(self, path: Path) -> Path:
        """Write it as JSON."""
        content = {
            "machine": self.machine,
            "peers": self.peers,
            "figures": [figure.summary() for figure in self.figures],
            "claims": [asdict(claim) for claim in self.claims],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        return path
