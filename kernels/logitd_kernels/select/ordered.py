"""What a backend must answer about one row: queries along the total order."""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from logitd_kernels.head import Floats, Head, Ids, Prefix, RowStats, Token


class OrderedRow(Protocol):
    """One processed row at one temperature, seen along the total order (logit descending, id ascending).

    Every truncation of the sampling chain is a handful of these queries, so each formula is written once for all
    backends. No query may sort the whole row (the reference excepted), and none may depend on other rows.
    """

    temperature: float

    @property
    def max(self) -> float:
        """The largest logit."""

    @property
    def stats(self) -> RowStats:
        """Whole-row statistics at this temperature."""

    @property
    def finite_count(self) -> int:
        """How many logits are not −inf."""

    def head(self, count: int) -> Head:
        """Return at least the `count` largest logits, or all finite ones."""

    def first(self, count: int) -> Prefix:
        """Return the `count` largest logits, or all finite ones."""

    def above(self, floor: float) -> Prefix:
        """Return every token with logit ≥ floor."""

    def reaching(self, mass: float) -> Prefix:
        """Return the smallest prefix whose mass is at least `mass`: its crossing token is in."""

    def tokens_at(self, masses: Sequence[float]) -> list[Token]:
        """Return, for each mass, the first token whose cumulative mass exceeds it."""

    def logit_of(self, token: int) -> float:
        """Return the logit of a token id."""

    def logits_of(self, kept: Prefix) -> Floats:
        """Return the logits of a prefix's tokens, [count] float64, in whatever order is at hand."""

    def ids_of(self, kept: Prefix) -> Ids:
        """Return the ids of a prefix's tokens, [count] int64, in the order of `logits_of`."""

    def entropy(self, kept: Prefix) -> float:
        """Return the entropy in nats of a renormalised prefix."""

    def at(self, temperature: float) -> Self:
        """Return the same row at another temperature > 0."""

    def without(self, count: int) -> Self:
        """Return the row without its first `count` tokens; some token is left."""

    def remapped(self, function: Callable[[Floats], Floats]) -> Self:
        """Return a row whose logits are `function` of (x − M)/T, at temperature 1.

        `function` takes and gives [N] float64, acts on each number alone, and never turns the order of two round.
        """
