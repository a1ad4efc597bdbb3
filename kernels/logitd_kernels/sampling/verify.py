"""`verify`: draft tokens in, those that the target model accepts out, and one more of its own."""

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from logitd_kernels import native, philox
from logitd_kernels.backends import Backend, pick
from logitd_kernels.errors import BadRow, ParameterError
from logitd_kernels.head import Floats
from logitd_kernels.philox import PURPOSE_ACCEPT, PURPOSE_BONUS, PURPOSE_RESIDUAL
from logitd_kernels.sampling.acceptance import METHODS, Method
from logitd_kernels.sampling.distribution import distribution
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.proposal import proposals
from logitd_kernels.sampling.result import RowFault
from logitd_kernels.sampling.speculation import Speculation
from logitd_kernels.sampling.transform import Values

_uniform: Callable[[int, int, int, int, int], float]
_uniform = philox.uniform if native.module is None else native.module.uniform

_WORDS = 1 << 32  # of a counter word
_BELOW_ONE = math.nextafter(1.0, 0.0)  # u rounds to 1 once in 2^53 draws


class Verified(NamedTuple):
    """The answer for one row.

    Attributes:
        tokens: the accepted draft tokens and one more, padded with −1 to n + 1.
        accepted: how many draft tokens were accepted.
        acceptance: of each draft token up to the row's length, what its uniform was held against: min(1, p/q), or h of
            block verification.
        seed: the seed that was used.
    """

    tokens: list[int]
    accepted: int
    acceptance: list[float]
    seed: int


def verify(
    speculation: Speculation,
    params: Sequence[Values],
    draft_params: Sequence[Values] | None = None,
    *,
    method: str = "standard",
    backend: Backend | None = None,
    order: Order = DEFAULT,
) -> list[Verified | RowFault]:
    """Accept draft tokens so that what comes out is distributed as if the target model had sampled it.

    p at place i is what `sample` would draw from at step + i, after edits, temperature and truncation, with the draft
    tokens before it behind `output_ids`, if a sequence was sent; q is what `proposals` says. The formulas, in float64,
    are those of `acceptance`.

    A −1, or the row's length, ends its draft: the next token is drawn from p there. So does a draft position from which
    nothing could be drawn (NaN in `draft_probs`; NaN, +inf or nothing finite in `draft_logits`): its token is rejected.
    What lies behind is not looked at. At T = 0 a draft token is accepted iff it is the argmax.

    Uniforms are `philox.uniform(seed, stream, step, place, purpose)`, place being that of the draft token from 0, kept
    below 1: purpose 1 decides on acceptance, 2 draws in place of a rejected token, 3 draws from p where the draft ends.
    A draw is the inverse CDF along descending p, equal ones by ascending id. The next verification of a sequence takes
    a greater step (step + accepted + 1, if steps are positions): its uniforms are then new at every place.

    Args:
        speculation: the rows.
        params: checked values, one mapping a row; `n` is 1.
        draft_params: of `draft_logits`; None takes `params`: the same knobs on both sides.
        method: `standard` or `block`.
        backend: where rows are ranked; None picks one.
        order: in which transforms act, on both sides.
    Returns:
        For each row `Verified`, or `RowFault`: a position of the target cannot be sampled, or `draft_probs` are no
        probabilities (`bad_draft`). A row's bits do not depend on others.
    Raises:
        ParameterError: an unknown method, not one mapping a row, a token id outside the vocabulary, `n` other than 1,
            or a transform that keeps a state from token to token.
    """
    if method not in METHODS:
        raise ParameterError("method", f"must be one of {', '.join(METHODS)}, got {method!r}")
    for name, each in (("params", params), ("draft_params", draft_params)):
        if each is not None and len(each) != len(speculation):
            raise ParameterError(name, f"expected one object for each of {len(speculation)} rows, got {len(each)}")
    one = _RowVerifier(speculation, METHODS[method], backend or pick("auto"), order)
    drafts = [None] * len(params) if draft_params is None else draft_params
    return [one.answer(row, own, draft) for row, (own, draft) in enumerate(zip(params, drafts, strict=True))]


class _RowVerifier:
    def __init__(self, speculation: Speculation, decide: Method, backend: Backend, order: Order) -> None:
        self._speculation = speculation
        self._decide = decide
        self._backend = backend
        self._order = order
        self._stateful = [transform for transform in order.steps if transform.update is not None]

    def answer(self, row: int, values: Values, draft_values: Values | None) -> Verified | RowFault:
        seed = values["seed"] if values["seed"] is not None else secrets.randbits(53)
        stream, step = values["stream"], values["step"]
        draw = {"seed": seed, "stream": stream, "step": step, "n": values["n"]}
        ids = self._speculation.ids(row)
        try:
            with _naming(row, "" if draft_values is None else "draft_params."):
                each = self._of_each({**(draft_values or values), **draw}, len(ids))
                draft = proposals(self._speculation, row, ids, each, self._backend, self._order)
            ids = ids[: len(draft)]
            with _naming(row):
                target = self._target(row, ids, {**values, **draw})
        except BadRow as bad:
            return RowFault(row, bad.code, bad.kind, bad.detail)

        def uniform(place: int, purpose: int = PURPOSE_ACCEPT) -> float:
            return min(_uniform(seed, stream, step, place, purpose), _BELOW_ONE)

        accepted, acceptance, weights = self._decide(target, draft, ids, uniform)
        purpose = PURPOSE_RESIDUAL if accepted < len(ids) else PURPOSE_BONUS
        token = _drawn(weights, target[accepted], uniform(accepted, purpose))
        padding = [-1] * (self._speculation.drafts - accepted)
        return Verified([*ids[:accepted], token, *padding], accepted, acceptance, seed)

    def _target(self, row: int, ids: Sequence[int], values: Values) -> list[Floats]:
        """Return p before each draft token, and after the last.

        Raises:
            BadRow: one that cannot be sampled, named.
        """
        count = len(ids) + 1
        rows = self._speculation.positions(self._speculation.target_logits, row, ids, count)
        target: list[Floats] = []
        for place, p in enumerate(distribution(rows, self._of_each(values, count), self._backend, self._order)):
            if isinstance(p, RowFault):
                raise BadRow(p.code, p.kind, f"position {place}: {p.detail}")
            target.append(p)
        return target

    def _of_each(self, values: Values, count: int) -> list[Values]:
        """Return the values of each position; the step counts on."""
        if values["n"] != 1:
            raise ParameterError("n", f"must be 1: a verification draws once, got {values['n']}")
        for transform in self._stateful:
            if transform.active(values):
                name = transform.parameters[0].name
                raise ParameterError(name, f"{transform.name} keeps a state from token to token; a draft has none")
        return [{**values, "step": (values["step"] + place) % _WORDS} for place in range(count)]


@contextmanager
def _naming(row: int, prefix: str = "") -> Iterator[None]:
    """Tell whose parameter was refused."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(prefix + error.field, error.message, row) from None


def _drawn(weights: Floats, target: Floats, u: float) -> int:
    """Return the first token, along descending p, at which the running sum of weights exceeds u of the whole."""
    ids = np.flatnonzero(weights)
    ids = ids[np.argsort(-target[ids], kind="stable")]
    sums = np.cumsum(weights[ids])
    below = math.nextafter(float(sums[-1]), 0.0)
    return int(ids[np.searchsorted(sums, min(u * sums[-1], below), side="right")])
