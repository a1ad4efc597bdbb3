"""`make overload`: three times what the service can do, for a minute; what comes through, and how long it takes.

    python -m loadtest.http.overload [--seconds 60] [--times 3]

Requests arrive at a constant rate whatever becomes of those before them, and latency counts from when each was due.
Small bodies of costly work, 512 draws from a short row by the general path: the client is not what is measured.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from loadtest.http import servers
from loadtest.http.client import Load, closed_loop, get, post

DEADLINE_MS = 2000
_PROBE_SECONDS = 0.1  # between two probes, and the longest that one may take
_CAPACITY_SECONDS = 5.0
_SETTLING = 0.1  # of the run: the queue fills up before anything is counted


@dataclass
class Outcome:
    """What came of the requests that were due after the queue had filled.

    Attributes:
        codes: answers by status, 0 for none.
        accepted_seconds: latencies of those answered with 200.
        probe_seconds: latencies of probes and metrics on the admin port.
        seconds: over which it was counted.
    """

    codes: Counter[int] = field(default_factory=Counter)
    accepted_seconds: list[float] = field(default_factory=list)
    probe_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0


def request() -> bytes:
    """Return the request that is sent."""
    body = {"logits": [[float(place % 7) for place in range(64)]], "params": {"seed": 1, "n": 512, "top_p": 0.9}}
    headers = {"x_request_timeout_ms": str(DEADLINE_MS)}
    return post("/v1/sample", json.dumps(body).encode(), "application/json", **headers)


async def offered(address: tuple[str, int], admin: tuple[str, int], rate: float, seconds: float) -> Outcome:
    """Send at a rate for a while."""
    outcome, free = Outcome(seconds=seconds * (1 - _SETTLING)), asyncio.Queue[_Connection]()
    began, tasks, sent = time.perf_counter(), set[asyncio.Task[None]](), request()
    counted_from = began + seconds * _SETTLING
    probing = asyncio.create_task(_probe(admin, began + seconds, outcome))
    for number in range(int(rate * seconds)):
        due = began + number / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.add(task := asyncio.create_task(_one(address, sent, due, free, outcome if due > counted_from else None)))
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks, probing)
    while not free.empty():
        (await free.get()).close()
    return outcome


class _Connection:
    """A connection that is asked one thing at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> "_Connection":
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, sent: bytes) -> int:
        self._writer.write(sent)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await self._reader.readexactly(length)
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        self._writer.close()


async def _one(
    address: tuple[str, int], sent: bytes, due: float, free: "asyncio.Queue[_Connection]", outcome: Outcome | None
) -> None:
    code = 0
    try:
        connection = free.get_nowait() if not free.empty() else await _Connection.open(address)
        code = await connection.ask(sent)
        free.put_nowait(connection)
    except (OSError, asyncio.IncompleteReadError):
        pass
    if outcome is not None:
        outcome.codes[code] += 1
        if code == 200:
            outcome.accepted_seconds.append(time.perf_counter() - due)


async def _probe(admin: tuple[str, int], ends: float, outcome: Outcome) -> None:
    connection = await _Connection.open(admin)
    paths = ("/health/live", "/health/ready", "/metrics")
    number = 0
    while (began := time.perf_counter()) < ends:
        await connection.ask(get(paths[number % 3]))
        outcome.probe_seconds.append(time.perf_counter() - began)
        number += 1
        await asyncio.sleep(_PROBE_SECONDS)
    connection.close()


def told(capacity: float, rate: float, outcome: Outcome) -> list[str]:
    """Return the lines of the report."""
    goodput = outcome.codes[200] / outcome.seconds
    p99 = float(np.quantile(outcome.accepted_seconds, 0.99)) if outcome.accepted_seconds else float("nan")
    return [
        f"capacity   {capacity:8,.0f} requests/s (closed loop, 16 connections)",
        f"offered    {rate:8,.0f} requests/s for {outcome.seconds:.0f} s",
        f"goodput    {goodput:8,.0f} requests/s, {goodput / capacity:.0%} of capacity",
        f"accepted   p99 {p99 * 1e3:,.0f} ms, deadline {DEADLINE_MS:,} ms",
        f"answers    {', '.join(f'{code}: {count:,}' for code, count in sorted(outcome.codes.items()))}",
        f"probes     slowest {max(outcome.probe_seconds) * 1e3:,.0f} ms of {len(outcome.probe_seconds)} (admin port)",
    ]


def holds(capacity: float, outcome: Outcome) -> bool:
    """Whether the service kept what the design promises of it under overload."""
    good = outcome.codes[200] / outcome.seconds >= 0.9 * capacity
    in_time = bool(outcome.accepted_seconds) and np.quantile(outcome.accepted_seconds, 0.99) <= DEADLINE_MS / 1e3
    others = sum(count for code, count in outcome.codes.items() if code not in (200, 429))
    rest = others <= 0.01 * sum(outcome.codes.values())
    return bool(good and in_time and rest and max(outcome.probe_seconds) <= _PROBE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns 0 where the service held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--times", type=float, default=3)
    options = parser.parse_args(arguments)
    admin_port = servers.free_port()
    with servers.logitd("--admin-port", str(admin_port)) as address:
        closed_loop(Load(address, request()), 16, 1.0)
        capacity = closed_loop(Load(address, request()), 16, _CAPACITY_SECONDS).rate
        rate = options.times * capacity
        outcome = asyncio.run(offered(address, ("127.0.0.1", admin_port), rate, options.seconds))
    print(*told(capacity, rate, outcome), sep="\n")
    return 0 if holds(capacity, outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
