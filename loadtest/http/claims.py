"""The ratios of rates that the design sets as targets, each taken round by round."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.http.report import Figure
from loadtest.kernels.claims import Verdict, verdict
from loadtest.kernels.timing import Spread

Wanted = tuple[str, str, int]


@dataclass(frozen=True)
class Claim:
    """One rate over another.

    Attributes:
        text: what is claimed.
        over, under: the two, by the beginning of the case's name, the server and the rows.
        least: the target; None where there is none.
    """

    text: str
    over: Wanted
    under: Wanted
    least: float | None = None


def _beside(peer: str, rows: int) -> tuple[Wanted, Wanted]:
    return (f"beside {peer}", "logitd", rows), (f"beside {peer}", peer, rows)


CLAIMS = (
    Claim("our protocol drains, over stock uvicorn, 513 kB", ("drain", "protocol", 1), ("drain", "stock", 1), 1.6),
    Claim("our protocol drains, over stock uvicorn, 4.1 MB", ("drain", "protocol", 8), ("drain", "stock", 8), 3.0),
    Claim("sampling, over stock uvicorn's bare drain, 513 kB", ("sample", "logitd", 1), ("drain", "stock", 1), 1.3),
    Claim("sampling, over stock uvicorn's bare drain, 4.1 MB", ("sample", "logitd", 8), ("drain", "stock", 8), 2.5),
    Claim("shared memory, over GET /health/live", ("shared", "logitd", 1), ("GET", "logitd", 1), 0.4),
    Claim("head form, over GET /health/live", ("head", "logitd", 1), ("GET", "logitd", 1), 0.4),
    Claim("sampling one row, over Triton Inference Server", *_beside("triton", 1), 20.0),
    Claim("sampling eight rows, over Triton Inference Server", *_beside("triton", 8), 10.0),
    Claim("sampling one row, over LitServe", *_beside("litserve", 1)),
    Claim("sampling eight rows, over LitServe", *_beside("litserve", 8)),
    Claim("sampling one row, over MLServer", *_beside("mlserver", 1)),
    Claim("sampling eight rows, over MLServer", *_beside("mlserver", 8)),
)


def judge(figures: Sequence[Figure]) -> list[Verdict]:
    """Judge every claim; the ratio is None where nothing was measured."""
    return [_judged(claim, figures) for claim in CLAIMS]


def _judged(claim: Claim, figures: Sequence[Figure]) -> Verdict:
    over, under = (_found(figures, *wanted) for wanted in (claim.over, claim.under))
    ratios = [one / other for one, other in zip(over.rates, under.rates, strict=True)] if over and under else []
    return verdict(claim.text, "logitd", Spread.of(ratios) if ratios else None, None, claim.least)


def _found(figures: Sequence[Figure], name: str, server: str, rows: int) -> Figure | None:
    return next(
        (one for one in figures if one.name.startswith(name) and (one.server, one.rows) == (server, rows)), None
    )
