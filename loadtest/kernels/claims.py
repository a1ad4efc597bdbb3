"""The ratios that the design sets as targets, each measured in one run, by turns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from loadtest.kernels import ours, peers
from loadtest.kernels.answers import right
from loadtest.kernels.cases import PENALTIES, Case, Work
from loadtest.kernels.floor import floor
from loadtest.kernels.rows import pool
from loadtest.kernels.timing import CPU, WALL, Budget, Contender, Spread, Times, alternate, ratio

_ROWS = 8
_FOCUS = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
_TOP_P = {"top_p": 0.9}


@dataclass(frozen=True)
class Claim:
    """The ratio of two times, and what it must be.

    Attributes:
        text: what is claimed.
        over, under: the contenders of the ratio: `ours` (our fastest backend), `bfloat16`, `one thread`, `two threads`
            (ours too), `penalties` (ours, over 4,096 ids of history), `floor`, or a peer's name in the table.
        less: a contender whose time is taken off that of `over`, "" for none.
        kind: of rows.
        params: sampling parameters.
        batch: rows a call.
        most: the target is a ratio of at most this.
        least: the target is a ratio of at least this.
    """

    text: str
    over: str
    under: str
    less: str = ""
    kind: str = "real"
    params: Mapping[str, Any] = field(default_factory=lambda: _FOCUS)
    batch: int = 1
    most: float | None = None
    least: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What came of a claim.

    Attributes:
        text: the claim's.
        subject: which backend it was measured on.
        target: in words, "" where there is none.
        ratio: None where a contender is absent.
        met: None where there is no target or no ratio.
    """

    text: str
    subject: str
    target: str
    ratio: Spread | None
    met: bool | None


CLAIMS = (
    Claim("real rows, T 0.8 + top_k 50 + top_p 0.9: times the floor", "ours", "floor", most=1.5),
    Claim("N(0, 1) rows, top_p 0.99: times the floor", "ours", "floor", "", "flat", {"top_p": 0.99}, most=40),
    Claim("real rows: what penalties over 4,096 ids add, in floors", "penalties", "floor", "ours", most=0.2),
    Claim("real rows: bfloat16 over float32", "bfloat16", "ours", most=1),
    Claim("64 real rows: one thread over two", "one thread", "two threads", batch=64, least=1.7),
    Claim("real rows: torch.topk + softmax + multinomial over ours", "torch.topk", "ours", least=5),
    Claim("real rows, top_p 0.9: transformers over ours", "transformers", "ours", params=_TOP_P, least=500),
    Claim("peaked rows, top_p 0.9: transformers over ours", "transformers", "ours", "", "peaked", _TOP_P, least=500),
    Claim("peaked rows, top_p 0.9: transformers over the floor", "transformers", "floor", "", "peaked", _TOP_P),
    Claim("real rows: llama.cpp's chain over ours", "llama.cpp", "ours", least=3),
    Claim("real rows, top_k + top_p: vLLM's CPU sampler over ours", "vllm", "ours"),
)


def judge(claim: Claim, budget: Budget) -> Verdict:
    """Measure a claim on our fastest backend, on one thread unless it names threads.

    Raises:
        WrongAnswerError: ours answers wrongly.
    """
    ours.set_threads(1)
    work = Work.of(claim.kind, Case("claim", claim.params), pool(claim.kind, max(_ROWS, claim.batch)), claim.batch)
    mine = subject(work)
    found = [_contender(name, work) for name in (claim.over, claim.under, claim.less) if name]
    present = [one for one in found if one is not None]
    if len(present) < len(found):
        return verdict(claim.text, mine.name, None, claim.most, claim.least)
    right(work, [one for one in present if one.name not in ("floor", "penalties")])
    over, under, *less = alternate(present, budget, WALL if "thread" in claim.over else CPU).values()
    ours.set_threads(1)
    taken = difference(over, less[0]) if less else over
    return verdict(claim.text, mine.name, ratio(taken, under), claim.most, claim.least)


def difference(over: Times, less: Times) -> Times:
    """Return one time less another, of the rounds that both took part in."""
    return {moment: over[moment] - less[moment] for moment in over if moment in less}


def verdict(text: str, mine: str, found: Spread | None, most: float | None, least: float | None = None) -> Verdict:
    """Compare a ratio with its target."""
    target = f"≤ {most:g}" if most is not None else f"≥ {least:g}" if least is not None else ""
    met = None
    if found and target:
        met = found.median <= most if most is not None else least is not None and found.median >= least
    return Verdict(text, mine, target, found, met)


def subject(work: Work) -> Contender:
    """Return our fastest backend on the CPU, its native call where it has one."""
    here, _ = ours.backends()
    backend = next((one for one in here if one.name == "cpu"), None) or next(one for one in here if one.name == "torch")
    return ours.native(work, backend) or ours.python(work, backend)


def _contender(name: str, work: Work) -> Contender | None:
    if name == "floor":
        return floor(work)
    if name == "ours":
        return subject(work)
    if name == "bfloat16":
        halves = replace(work, blocks=tuple(block.to(torch.bfloat16) for block in work.blocks))
        return replace(subject(halves), name=name)
    if name == "penalties":
        counted = Case(name, {**work.case.params, **PENALTIES}, history=True)
        return replace(subject(replace(work, case=counted)), name=name)
    if name in ("one thread", "two threads"):
        threads = 1 if name == "one thread" else 2
        return replace(subject(work), name=name, before=partial(ours.set_threads, threads))
    return next((peer for peer in peers.contenders(work) if peer.name == name), None)
