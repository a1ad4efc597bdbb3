"""What the GPU kernels cost, beside one read of the batch on the same device, in the same run.

    python -m loadtest.kernels.gpu [--quick] [--json PATH]

The answers are checked against the reference first: where one is wrong there is no figure, and the exit status is 1.
Without a device it says why and exits with 2. A whole run takes a few minutes and becomes a file in `baselines/`.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loadtest.kernels.machine import ROOT, commit
from loadtest.kernels.table import duration, times
from loadtest.kernels.timing import Spread

from logitd_kernels import DenseRows, check, pick, sample
from logitd_kernels.hot import HotBatch, hot_batch
from logitd_kernels.select import triton as gpu

BATCHES = (1, 8, 64, 256, 1024)
VOCABS = (32_000, 128_256, 262_144)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KINDS = ("normal", "peaked", "flat", "ties", "masked", "equal")
MEASURED = ("peaked", "flat")
CASES: dict[str, dict[str, Any]] = {
    "top_k 50, top_p 0.9": {"top_k": 50, "top_p": 0.9, "temperature": 0.8},
    "top_p 0.9": {"top_p": 0.9},
    "plain": {},
    "greedy": {"temperature": 0},
}
CHECKED = (*CASES.values(), {"min_p": 0.02, "top_k": 3000}, {"top_k": 7, "ties": "all"}, {"logit_bias": {0: 3.5}})
ROUNDS, WARM = 25, 3


@dataclass(frozen=True)
class Figure:
    """One measurement.

    Attributes:
        what: `launch`, four kernels from Python on rows that are there; `graph`, the same replayed; `statistics`, the
            first of them; `call`, the whole `sample_hot` from pageable memory by the wall clock.
        seconds: for the batch.
        gb_per_s: the bytes of the batch, once, over the median.
        over_read: how many times one read of the batch (`torch.amax`), by medians; None for `call`.
    """

    what: str
    rows: str
    case: str
    dtype: str
    vocab: int
    batch: int
    seconds: Spread
    gb_per_s: float
    over_read: float | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then measure; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="float32, V = 128,256, B = 1, 64 and 1024 only")
    parser.add_argument("--json", metavar="PATH", type=Path, help="where to write the figures")
    options = parser.parse_args(arguments)
    reason = absence()
    if reason:
        print(f"not measured: {reason}")
        return 2
    print(f"{torch.cuda.get_device_name()}: checking against the reference …", flush=True)
    wrong = faults((1, 1000, 32_000, 128_256), 8)
    if wrong:
        print("\n".join(wrong), "\nRed: no figures.", sep="\n")
        return 1
    found = []
    sizes = ((128_256,), (1, 64, 1024), ("float32",)) if options.quick else (VOCABS, BATCHES, tuple(DTYPES))
    for figure in figures(*sizes):
        print(line(figure), flush=True)
        found.append(figure)
    name = re.sub(r"\W+", "-", torch.cuda.get_device_name().lower())
    target = options.json or (None if options.quick else ROOT / "loadtest" / "baselines" / f"gpu-{name}.json")
    if target:
        target.write_text(report(found))
        print(f"wrote {target}")
    return 0


def absence() -> str | None:
    """Return why nothing can be measured here."""
    return gpu.why_not() or (None if torch.cuda.is_available() else "the kernels are interpreted, on the CPU")


# ---- Rows ----


def rows_of(kind: str, batch: int, vocab: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Return [batch, vocab] logits of a kind, the same in every run on one kind of device."""
    x = torch.randn(batch, vocab, generator=torch.Generator(device).manual_seed(vocab), device=device)
    if kind == "normal":
        x *= 3
    elif kind == "peaked":
        x[:, : 20 * (vocab // 20) : max(1, vocab // 20)] += 17
    elif kind == "ties":
        x = torch.round(8 * x) / 4
    elif kind == "masked":
        x[:, torch.arange(vocab, device=device) % 100 != 1 % vocab] = -torch.inf
    elif kind == "equal":
        x.fill_(1.5)
    return x.to(dtype)


def batch_of(logits: torch.Tensor, params: dict[str, Any]) -> HotBatch:
    """Return a hot batch of every row, each with a draw of its own."""
    rows = len(logits)
    values = [check({**params, "step": step}) for step in range(rows)]
    return hot_batch(logits, range(rows), values, [1] * rows, [None] * rows, [{}] * rows)


# ---- Right ----


def faults(vocabs: Sequence[int], batch: int) -> list[str]:
    """Return a line for every token, kept count or number of the kernels that is not the reference's."""
    reference = pick("reference")
    ours = replace(reference, name="triton", hot=gpu.sample_hot)
    wrong = []
    for kind, vocab, dtype, params in product(KINDS, vocabs, DTYPES.values(), CHECKED):
        rows = DenseRows(rows_of(kind, batch, vocab, dtype))
        values = [check({**params, "seed": 5, "step": step}) for step in range(batch)]
        answers = (sample(rows, values, backend=backend) for backend in (ours, reference))
        for got, want in zip(*answers, strict=True):
            if not _alike(got, want):
                wrong.append(f"{kind} rows, V = {vocab:,}, {dtype}, {params}: {got}, expected {want}")
    return wrong


def _alike(got: Any, want: Any) -> bool:  # noqa: ANN401  (what `sample` answers)
    def numbers(one: Any) -> list[float]:  # noqa: ANN401
        return [*one.logprobs, one.entropy, one.entropy_kept, one.kept_mass]

    if type(got) is not type(want) or not hasattr(got, "tokens"):
        return bool(got == want)
    same = (got.tokens, got.kept) == (want.tokens, want.kept)
    return same and np.allclose(numbers(got), numbers(want), rtol=1e-5, atol=1e-6)


# ---- Fast ----


def figures(vocabs: Sequence[int], batches: Sequence[int], dtypes: Sequence[str]) -> Iterator[Figure]:
    """Measure everything, size by size."""
    for vocab, batch, dtype, kind in product(vocabs, batches, dtypes, MEASURED):
        logits = rows_of(kind, batch, vocab, DTYPES[dtype], "cuda")
        for case, params in CASES.items():
            blank = Figure("", kind, case, dtype, vocab, batch, Spread(0, 0, 0), 0, None)
            yield from _on_device(logits, params, blank)
            if (kind, case) == ("peaked", "top_p 0.9"):
                yield _whole(logits.cpu(), params, blank)


def _on_device(logits: torch.Tensor, params: dict[str, Any], blank: Figure) -> Iterator[Figure]:
    """Time the kernels, their replay and the statistics alone, by turns with one read of the batch."""
    from logitd_kernels.select.triton.launch import device_here

    prepared = device_here().prepare(batch_of(logits, params), np.arange(len(logits)), wide=False)
    prepared.launch()
    first = prepared.answers.clone()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        prepared.launch()
    prepared.answers.fill_(torch.nan)
    graph.replay()
    if not torch.equal(prepared.answers[:, :3], first[:, :3]):
        raise SystemExit(f"a replayed graph answers otherwise: {blank}")
    read = lambda: torch.amax(logits, 1)  # noqa: E731
    calls = {"read": read, "launch": prepared.launch, "graph": graph.replay, "statistics": prepared.launch_statistics}
    spans = by_turns(calls)
    for what in ("launch", "graph", "statistics"):
        yield _figure(blank, what, spans[what], logits, spans["read"])


def _whole(logits: torch.Tensor, params: dict[str, Any], blank: Figure) -> Figure:
    """Time the whole call by the wall clock: rows up from pageable memory, results down."""
    batch = batch_of(logits, params)
    seconds = []
    for _ in range(WARM + ROUNDS):
        start = time.perf_counter()
        gpu.sample_hot(batch)
        seconds.append(time.perf_counter() - start)
    return _figure(blank, "call", Spread.of(seconds[WARM:]), logits, None)


def by_turns(calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, Spread]:
    """Time calls on the device by events, one after the other, `rounds` times each after warming up."""
    spans: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM + rounds):
        for name, call in calls.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            stop.synchronize()
            if turn >= WARM:
                spans[name].append(start.elapsed_time(stop) / 1e3)
    return {name: Spread.of(seconds) for name, seconds in spans.items()}


def _figure(blank: Figure, what: str, seconds: Spread, logits: torch.Tensor, read: Spread | None) -> Figure:
    size = logits.numel() * logits.element_size()
    over = None if read is None else seconds.median / read.median
    return replace(blank, what=what, seconds=seconds, gb_per_s=size / seconds.median / 1e9, over_read=over)


# ---- Told ----


def line(figure: Figure) -> str:
    """Return a figure as a line of text."""
    one, over = figure, "" if figure.over_read is None else f"{times(figure.over_read)} × read"
    spent = f"{duration(one.seconds.median)} ({duration(one.seconds.p20)} to {duration(one.seconds.p80)})"
    sizes = f"V = {one.vocab:>7,}  B = {one.batch:>4}  {one.dtype:<8}"
    return f"{sizes}  {one.rows:<6} {one.case:<20} {one.what:<10} {spent:<32} {one.gb_per_s:>7.1f} GB/s  {over}"


def report(found: Sequence[Figure]) -> str:
    """Return figures, device, versions and commit as JSON, one figure a line."""
    import triton

    device = torch.cuda.get_device_properties() if torch.cuda.is_available() else None
    machine = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": device.name if device else None,
        "capability": f"{device.major}.{device.minor}" if device else None,
        "versions": {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda},
    }
    lines = ",\n".join(json.dumps(asdict(figure)) for figure in found)
    return f'{{\n"machine": {json.dumps(machine, indent=1)},\n"figures": [\n{lines}\n]\n}}\n'


if __name__ == "__main__":
    sys.exit(main())
