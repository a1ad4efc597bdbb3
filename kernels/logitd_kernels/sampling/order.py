"""The order in which transforms act: that of a dialect, or the caller's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

from logitd_kernels.errors import ParameterError, told
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.transform import Edit, Mix, Reweigh, Transform, Values

# What each system does first and last, as far as it has the transform: see docs/sampling-parameters.md.
DIALECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "vllm": (),  # the registry's order
        "hf": (
            "guidance",
            "logit_bias",
            "repetition_penalty",
            "no_repeat_ngram",
            "bad_words",
            "min_tokens",
            "allowed_ids",
            "banned_ids",
            "temperature",
            "top_h",
            "top_k",
            "top_p",
            "min_p",
            "typical_p",
            "epsilon_cutoff",
            "eta_cutoff",
        ),
        "llama.cpp": (
            "logit_bias",
            "repetition_penalty",
            "frequency_penalty",
            "presence_penalty",
            "dry",
            "top_n_sigma",
            "top_k",
            "typical_p",
            "top_p",
            "min_p",
            "xtc",
            "temperature",
            "dynatemp",
            "mirostat",
            "adaptive_p",
        ),
        "sglang": (
            "frequency_penalty",
            "presence_penalty",
            "min_tokens",
            "repetition_penalty",
            "mask",
            "logit_bias",
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "mirostat",  # these two not its own
            "xtc",
        ),
        "exllama": (
            "repetition_penalty",
            "frequency_penalty",
            "presence_penalty",
            "banned_ids",
            "logit_bias",
            "dry",
            "mask",
            "temperature",
            "dynatemp",
            "smoothing",
            "top_k",
            "top_p",
            "top_a",
            "min_p",
            "typical_p",
            "mirostat",
            "xtc",
            "adaptive_p",
        ),
    }
)


@dataclass(frozen=True)
class Order:
    """All transforms, as they act.

    Attributes:
        mixes, edits: what acts before anything is ranked.
        steps: temperature, truncations and what else acts on the ranked row.
    """

    mixes: tuple[Mix, ...]
    edits: tuple[Edit, ...]
    steps: tuple[Transform, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The transforms' names, in order."""
        return tuple(transform.name for transform in (*self.mixes, *self.edits, *self.steps))

    def active(self, values: Values) -> list[Transform]:
        """Return what the values make active, in order."""
        return [one for one in (*self.mixes, *self.edits, *self.steps) if one.active(values)]

    def is_greedy(self, values: Values) -> bool:
        """Whether the temperature is 0 and no step makes another of it."""
        return values["temperature"] == 0 and not values["dynatemp_range"]


@lru_cache(256)
def order_of(dialect: str = "vllm", own: tuple[str, ...] = ()) -> Order:
    """Return the order of a dialect, or the caller's.

    Args:
        dialect: one of DIALECTS.
        own: names of transforms; those that it leaves out keep their place behind the same neighbour of their kind.
    Raises:
        ParameterError: `dialect` or `order` names something unknown, a name comes twice, or an order cannot be:
            guidance comes first, then edits of single logits, and what weighs the tokens left anew comes last.
    """
    if dialect not in DIALECTS:
        raise ParameterError("dialect", f"must be one of {', '.join(DIALECTS)}, got {told(dialect)}")
    known = {transform.name: transform for transform in TRANSFORMS}
    for place, name in enumerate(own):
        if name not in known:
            raise ParameterError(f"order[{place}]", f"unknown transform {told(name)}; known are {', '.join(known)}")
        if name in own[:place]:
            raise ParameterError(f"order[{place}]", f"names {name} a second time")
    _check([known[name] for name in own])
    names = _merged(own, _merged(DIALECTS[dialect], tuple(known)))
    ordered = sorted((known[name] for name in names), key=_stage)
    return Order(
        mixes=tuple(one for one in ordered if isinstance(one, Mix)),
        edits=tuple(one for one in ordered if isinstance(one, Edit)),
        steps=tuple(one for one in ordered if not isinstance(one, (Mix, Edit))),
    )


def _merged(first: Sequence[str], rest: Sequence[str]) -> tuple[str, ...]:
    """Put the names of `first` in its order, and each of the others behind the neighbour that it has in `rest`."""
    merged = list(first)
    before = None
    for name in rest:
        if name not in merged:
            merged.insert(0 if before is None else merged.index(before) + 1, name)
        before = name
    return tuple(merged)


def _stage(transform: Transform) -> int:
    match transform:
        case Mix():
            return 0
        case Edit():
            return 1
        case Reweigh():
            return 3
    return 2


_STAGES = ("mixes two rows", "changes single logits", "acts on the ranked row", "weighs what is left")


def _check(ordered: Sequence[Transform]) -> None:
    for one, other in pairwise(ordered):
        early, late = _stage(other), _stage(one)
        if early < late:
            why = f"one {_STAGES[early]}, the other {_STAGES[late]}"
            raise ParameterError("order", f"{other.name} has to come before {one.name}: {why}")


DEFAULT = order_of("vllm")
