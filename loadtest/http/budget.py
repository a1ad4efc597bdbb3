"""Where the time of one request goes: `python -m loadtest.http.budget`.

One connection, one request after the other, so that nothing waits. The stages are those that the service counts (the
`seconds` of each answer); what they leave of the whole is the wire: sockets, HTTP, admission, counting, this client.
GET /health/live is that wire with nothing behind it. Rounds of all kinds alternate; every figure is a median.
"""

import argparse
import json
import socket
import sys
import time
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
    posts = {name: post("/v1/sample", body, SAFETENSORS, accept=SAFETENSORS) for name, body in bodies.items()}
    return {"GET /health/live": get("/health/live"), **posts}


def seconds_of(answer: bytes) -> dict[str, float]:
    """Return the stage seconds in a safetensors answer."""
    size = int.from_bytes(answer[:8], "little")
    told: dict[str, float] = json.loads(json.loads(answer[8 : 8 + size])["__metadata__"]["response"])["seconds"]
    return told


def measured(connection: socket.socket, request: bytes) -> dict[str, float]:
    """Ask once; return the seconds of each stage that the service told of, of the wire, and of the whole."""
    began = time.perf_counter()
    answer = ask(connection, request)
    whole = time.perf_counter() - began
    stages = seconds_of(answer) if request.startswith(b"POST") else {}
    return {**stages, "wire": whole - sum(stages.values()), "whole": whole}


def table(columns: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return the table in microseconds: a column for each request, a line for each stage, the rest, and the whole."""
    lines = [f"{'µs':16}" + "".join(f"{name:>18}" for name in columns)]
    for stage in (*STAGES, "wire", "whole"):
        cells = [1e6 * median(one.get(stage, 0.0) for one in column) for column in columns.values()]
        lines.append(f"{stage:16}" + "".join(f"{cell:18,.0f}" for cell in cells))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    options = parser.parse_args(arguments)
    asked = requests()
    columns: dict[str, list[dict[str, float]]] = {name: [] for name in asked}
    with servers.logitd() as address, connected(address) as connection:
        for turn in range(options.rounds + 1):
            for name in asked:
                found = [measured(connection, asked[name]) for _ in range(_EACH)]
                columns[name] += found if turn else []  # the first round warms up
    print(*table(columns), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
