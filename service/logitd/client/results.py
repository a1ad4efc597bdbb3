"""What the client returns: one `Row` for each row of logits, and the same as arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logitd.errors import RowFailed


@dataclass(frozen=True, slots=True)
class RowError:
    """Why one row has no answer: a code for programs, the row's index, and words for people."""

    code: str
    row: int
    detail: str


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the likeliest tokens and its natural log-probability, None when a head form leaves it open."""

    token: int
    logprob: float | None


@dataclass(frozen=True, slots=True)
class TraceStep:
    """The distribution after one transform: entropy in nats, tokens kept, the mass they had, largest probability."""

    transform: str
    entropy: float
    kept: int
    kept_mass: float
    max_probability: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """The answer for one row. What was not asked for, is not known, or failed is None.

    Attributes:
        token: the drawn token id; the first of `tokens`.
        tokens: all n drawn token ids.
        logprob: natural log of the probability with which `token` was drawn, after everything.
        tokens_logprob: the same for each of `tokens`.
        entropy: nats, of softmax(processed logits / T) before truncation.
        entropy_kept: nats, of the distribution drawn from.
        kept: its token count.
        kept_mass: the mass it held before renormalising.
        seed, stream, step: what replays the draw; a seed was drawn by the service where none was given.
        exact: whether nothing that the client left out could have changed the answer; True for whole rows.
        error: why the row failed.
        logprob_raw: log-probability of `token` in the mode asked for (raw: untouched row, T = 1).
        top: the likeliest tokens in that mode, most likely first.
        trace: the distribution after each active transform.
        notes: with a trace: which parameter decided what, and which had no effect.
        state: what a stateful transform wants to find among the parameters of the sequence's next step.
    """

    token: int | None
    tokens: tuple[int, ...] | None
    logprob: float | None
    tokens_logprob: tuple[float | None, ...] | None
    entropy: float | None
    entropy_kept: float | None
    kept: int | None
    kept_mass: float | None
    seed: int | None
    stream: int | None
    step: int | None
    exact: bool | None
    error: RowError | None
    logprob_raw: float | None = None
    top: tuple[TopLogprob, ...] | None = None
    trace: tuple[TraceStep, ...] | None = None
    notes: tuple[str, ...] | None = None
    state: dict[str, float] | None = None


@dataclass(frozen=True)
class SampleResult:
    """The answer to one sample request.

    Attributes:
        rows: one for each row of logits, in order.
        backend: what computed it.
        effective: the parameters as the service understood them, one object or one for each row.
        seconds: where the service spent its time, by stage.
    """

    rows: list[Row]
    backend: str
    effective: dict[str, Any] | list[dict[str, Any]]
    seconds: dict[str, float]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The drawn token of each row, [B] int64, −1 where it failed."""
        return np.array([-1 if row.token is None else row.token for row in self.rows], np.int64)

    @property
    def logprob(self) -> NDArray[np.float32]:
        """[B] float32, NaN where unknown."""
        return self._floats(lambda row: row.logprob)

    @property
    def entropy(self) -> NDArray[np.float32]:
        """Before truncation, [B] float32, NaN where unknown."""
        return self._floats(lambda row: row.entropy)

    @property
    def entropy_kept(self) -> NDArray[np.float32]:
        """After truncation, [B] float32, NaN where unknown."""
        return self._floats(lambda row: row.entropy_kept)

    @property
    def kept(self) -> NDArray[np.int64]:
        """How many tokens were drawn from, [B] int64, −1 where unknown."""
        return np.array([-1 if row.kept is None else row.kept for row in self.rows], np.int64)

    @property
    def kept_mass(self) -> NDArray[np.float32]:
        """The mass they held, [B] float32, NaN where unknown."""
        return self._floats(lambda row: row.kept_mass)

    @property
    def logprob_raw(self) -> NDArray[np.float32]:
        """[B] float32, NaN where unknown or not asked for."""
        return self._floats(lambda row: row.logprob_raw)

    @property
    def seed(self) -> NDArray[np.uint64]:
        """[B] uint64, 0 where the row failed."""
        return np.array([row.seed or 0 for row in self.rows], np.uint64)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Which rows failed, [B] bool."""
        return np.array([row.error is not None for row in self.rows], np.bool_)

    def raise_for_rows(self) -> Self:
        """Return the result itself if every row has an answer.

        Raises:
            RowFailed: for the first row that has none.
        """
        for row in self.rows:
            if row.error is not None:
                raise RowFailed(row.error.row, row.error.code, row.error.detail)
        return self

    def _floats(self, of: Callable[[Row], float | None]) -> NDArray[np.float32]:
        return np.array([of(row) for row in self.rows], np.float32)  # numpy reads None as NaN


@dataclass(frozen=True, eq=False)
class SoftmaxResult:
    """The answer to one softmax request.

    Attributes:
        values: [B, V] float64 for float64 logits, else float32; None for logsumexp. A failed row's have no meaning.
        log_z: [B] float64, log Σ e^(x/T), of the noisy logits for gumbel_softmax; NaN where the row failed, and for
            sparsemax and entmax15, which have none.
        entropy: [B] float64, nats; NaN where the row failed.
        errors: why each row failed, None for one that did not.
        seconds: where the service spent its time, by stage.
        seed: [B] uint64, what replays the noise of gumbel_softmax; None for other kinds.
    """

    values: NDArray[np.floating[Any]] | None
    log_z: NDArray[np.float64]
    entropy: NDArray[np.float64]
    errors: list[RowError | None]
    seconds: dict[str, float]
    seed: NDArray[np.uint64] | None = None
