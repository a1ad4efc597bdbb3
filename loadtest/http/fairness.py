"""What large requests do to small ones: `python -m loadtest.http.fairness`.

Single rows are sampled in a closed loop, by turns alone and beside another client that sends requests of 256 rows of
V = 126,052 one after the other. The target: the 99th percentile of the small ones grows at most threefold.
"""

import argparse
import sys
import threading
from collections.abc import Sequence

import numpy as np
from loadtest.http import servers
from loadtest.http.cases import SAFETENSORS, head
from loadtest.http.client import Address, Load, ask, closed_loop, connected, post

ROWS, VOCAB = 256, 126_052
_MOST = 3.0


def large() -> bytes:
    """Return the request of many rows."""
    from safetensors.numpy import save

    row = 4 * np.random.default_rng(0).standard_normal(VOCAB, np.float32)
    body = save(
        {"logits": np.broadcast_to(row, (ROWS, VOCAB)).copy()}, {"request": '{"params": {"seed": 1, "top_k": 50}}'}
    )
    return post("/v1/sample", bytes(body), SAFETENSORS, accept=SAFETENSORS)


def beside(address: Address, request: bytes, small: Load, seconds: float) -> tuple[list[float], int]:
    """Return the latencies of small requests while large ones are sent, and how many of these were answered."""
    done, answered = threading.Event(), 0

    def send() -> None:
        nonlocal answered
        with connected(address) as connection:
            while not done.is_set():
                ask(connection, request)
                answered += 1

    sender = threading.Thread(target=send)
    sender.start()
    latencies = closed_loop(small, 1, seconds).latencies_seconds
    done.set()
    sender.join()
    return latencies, answered


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns 0 where the target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(arguments)
    request, alone, crowded, count = large(), list[float](), list[float](), 0
    with servers.logitd() as address:
        small = Load(address, post("/v1/sample", head(), SAFETENSORS, accept=SAFETENSORS))
        closed_loop(small, 1, 1.0)
        for _ in range(options.rounds):
            alone += closed_loop(small, 1, options.seconds).latencies_seconds
            more, answered = beside(address, request, small, options.seconds)
            crowded, count = crowded + more, count + answered
    quantiles = [np.quantile(latencies, [0.5, 0.99]) * 1e3 for latencies in (alone, crowded)]
    for name, (p50, p99), latencies in zip(("alone", "beside"), quantiles, (alone, crowded), strict=True):
        print(f"{name:8} p50 {p50:8.2f} ms   p99 {p99:8.2f} ms   of {len(latencies):,} single rows")
    ratio = quantiles[1][1] / quantiles[0][1]
    print(f"{count} requests of {ROWS} rows meanwhile; p99 grew {ratio:.1f}-fold (target ≤ {_MOST:g})")
    return 0 if ratio <= _MOST else 1


if __name__ == "__main__":
    sys.exit(main())
