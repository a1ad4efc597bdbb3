"""What a row reports."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens and its natural log-probability, None when a head form leaves it open."""

    token: int
    logprob: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a trace: the distribution after a transform.

    Attributes:
        transform: its name.
        entropy: nats, of what is left, renormalised.
        kept: how many tokens are left.
        kept_mass: the mass that they had before truncation.
        max_probability: of the likeliest token left.
        seconds: what the step took.
    """

    transform: str
    entropy: float
    kept: int
    kept_mass: float
    max_probability: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log-probabilities asked for beside the draw: of each drawn token, and the N largest."""

    of_tokens: list[float | None]
    top: list[TopLogprob]


class RowResult(NamedTuple):
    """The answer for one row.

    Attributes:
        tokens: the n drawn token ids.
        logprobs: natural log of the probability with which each was drawn, after everything.
        entropy: nats, of softmax(processed/T) before truncation; 0 at T = 0.
        entropy_kept: nats, of the distribution drawn from.
        kept: its token count.
        kept_mass: the mass it held before renormalising.
        seed: the seed that was used.
        exact: whether no tail that fits a head form could change tokens, kept set or top; always True for dense rows.
        top: log-probabilities beside the draw, when asked for.
        trace: the distribution after each active transform, when asked for and the whole row was sent.
        notes: with a trace: which parameter decided what, and which had no effect, in words.
        state: the parameters that a stateful transform wants with the next step of the sequence; None without one.

    A number is None when a head form leaves it open by more than 1e-3.
    """

    tokens: list[int]
    logprobs: list[float | None]
    entropy: float | None
    entropy_kept: float | None
    kept: int | None
    kept_mass: float | None
    seed: int
    exact: bool = True
    top: RowLogprobs | None = None
    trace: list[Step] | None = None
    notes: list[str] | None = None
    state: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why one row has no answer: `code` for programs, `kind` for metrics, `detail` for people."""

    row: int
    code: str
    kind: str
    detail: str
