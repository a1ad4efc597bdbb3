"""Where the time of one request goes: `python -m loadtest.http.budget`.

One connection, one request after the other, so that nothing waits. The stages are those that the service counts (the
`seconds` of each answer); what they leave of the whole is the wire: sockets, HTTP, admission, counting, this client.
GET /health/live is that wire with nothing behind it. Rounds of all kinds alternate; every figure is a median.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from loadtest.http import servers
from loadtest.http.cases import SAFETENSORS, dense, head
from loadtest.http.client import ask, connected, get, post

STAGES = ("read", "decode", "queue", "compute", "encode")
_ROUNDS, _EACH = 30, 20


def requests() -> dict[str, bytes]:
    """Return what is asked, by what it is called."""
    bodies = {"head form": head(), "1 row, 513 kB": dense(1), "8 rows, 4.1 MB": dense(8)}
    return {name: post("/v1/sample", body, SAFETENSORS, accept=SAFETENSORS) for name, body in bodies.items()}


def seconds_of(answer: bytes) -> dict[str, float]:
    """Return the stage seconds in a safetensors answer."""
    size = int.from_bytes(answer[:8], "little")
    told: dict[str, float] = json.loads(json.loads(answer[8 : 8 + size])["__metadata__"]["response"])["seconds"]
    return told


def table(columns: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the table in microseconds: a column for each request, a line for each stage, the rest, and the whole."""
    lines = [f"{'µs':16}" + "".join(f"{name:>18}" for name in columns)]
    for stage in (*STAGES, "wire", "whole"):
        cells = [1e6 * median(column[stage]) if column[stage] else 0.0 for column in columns.values()]
        lines.append(f"{stage:16}" + "".join(f"{cell:18,.0f}" for cell in cells))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    options = parser.parse_args(arguments)
    columns: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with servers.logitd() as address, connected(address) as connection:
        for turn in range(options.rounds + 1):
            for name, request in {"GET /health/live": get("/health/live"), **requests()}.items():
                for _ in range(_EACH):
                    began = time.perf_counter()
                    answer = ask(connection, request)
                    whole = time.perf_counter() - began
                    stages = seconds_of(answer) if request.startswith(b"POST") else {}
                    if turn:  # the first warms up
                        column = columns[name]
                        for stage, seconds in stages.items():
                            column[stage].append(seconds)
                        column["wire"].append(whole - sum(stages.values()))
                        column["whole"].append(whole)
    print(*table(columns), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
