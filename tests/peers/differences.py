"""Where an original does something else than its namesake here: the table of docs/peers.md.

The tests allow these differences and no others, and look for an example of each. Rounding decides of single tokens at
any cut; which ones depends on the machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass

ROUNDING = "rounding"
OF_SETS = ("ties kept", "ties cut", "tie order", "first 100")


@dataclass(frozen=True)
class Difference:
    """One kind of difference.

    Attributes:
        peer: the original.
        transform: its name here; "any cut" for all.
        kind: as the tests find it.
        original: what the original does.
        here: what is done here.
    """

    peer: str
    transform: str
    kind: str
    original: str
    here: str


HF, LLAMA, GRAMMAR = "transformers", "llama.cpp", "xgrammar"
_LEFT = "of equal tokens at the cut, those that its sort left first"
DIFFERENCES = (
    Difference(HF, "top_k", "ties kept", "keeps all equal to the k-th", 'exactly k; `ties: "all"` keeps them'),
    Difference(HF, "top_p", "tie order", "of equal tokens at the cut, the highest ids", "the lowest ids"),
    Difference(HF, "epsilon_cutoff", "ties kept", "where none reaches ε, all equal to the likeliest", "the lowest id"),
    Difference(HF, "top_h", "tie order", "of equal tokens at the cut, those that `topk` gives first", "the lowest ids"),
    Difference(HF, "top_h", "first 100", "looks at the 100 likeliest tokens, renormalised", "at all tokens"),
    Difference(HF, "guidance", "not a number", "NaN where the guide has −∞", "the row's own log-probability"),
    Difference(LLAMA, "top_k", "tie order", _LEFT, "the lowest ids"),
    Difference(LLAMA, "top_p", "tie order", _LEFT, "the lowest ids"),
    Difference(LLAMA, "xtc", "tie order", _LEFT, "of those at the threshold, the highest id"),
    Difference(LLAMA, "typical_p", "ties cut", "stops among equally typical tokens", "keeps all of them"),
    Difference(LLAMA, "typical_p", "not a number", "a candidate of probability 0 spoils the entropy", "it adds 0"),
    Difference(LLAMA, "temperature", "greedy last", "at T = 0 the largest that other steps left", "the largest of all"),
    Difference(LLAMA, "dynatemp", "count", "n counts what top_n_sigma dropped, and masked tokens", "what is left"),
    Difference(LLAMA, "mirostat", "overflow", "1: a k beyond 32-bit integers may keep one token", "keeps all"),
    Difference(LLAMA, "mirostat", "vocabulary", "1: N is the vocabulary", "the tokens that are not masked"),
    Difference(GRAMMAR, "mask", "too narrow", "leaves open what a narrow mask does not cover", "refuses the mask"),
)


def allowed(peer: str, transform: str) -> set[str]:
    """Return the kinds of difference that may be between a transform and its original."""
    return {one.kind for one in DIFFERENCES if (one.peer, one.transform) == (peer, transform)}


def hold(peer: str, transform: str, found: Iterable[str]) -> None:
    """Assert that those kinds are in the table that the comparison of sets finds, equal ones and rounding aside."""
    assert set(found) - {"equal", ROUNDING} == allowed(peer, transform) & set(OF_SETS)
