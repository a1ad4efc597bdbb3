"""Which heads of which layers may be linear: measured on samples of a model's own queries, keys and values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logitd_kernels.attention.call import Call, Options
from logitd_kernels.attention.compare import contenders, trials
from logitd_kernels.attention.recommend import Recommendation, recommend
from logitd_kernels.attention.sampling import ROWS

METHODS = ("moment", "hybrid")


@dataclass(frozen=True)
class LayerPlan:
    """What to use in one layer.

    Attributes:
        heads: [Hq] for each query head.
        cost: multiply-adds over those of exact attention, the mean of the heads.
        state_bytes: of all heads, exact ones by their keys and values.
        kv_bytes: of all heads, were all exact.
    """

    heads: list[Recommendation]
    cost: float
    state_bytes: int
    kv_bytes: int

    @property
    def modes(self) -> tuple[str, ...]:
        """The mode of each head: `Wish.heads`."""
        return tuple(head.mode for head in self.heads)


def plan_layer(
    call: Call,
    tolerance: float,
    options: Options,
    methods: Sequence[str] = METHODS,
    rows: int = ROWS,
) -> LayerPlan:
    """Plan one layer: for each head the cheapest method within the tolerance in every batch row.

    Args:
        call: a sample of the layer, as long as what the plan is meant for.
        tolerance: relative error that a head may have.
        options: of the methods.
        methods: what may be used beside `exact`.
        rows: audited rows.
    Raises:
        NonFiniteTensor, ParameterError: as `compare.trials`.
    """
    found = list(trials(call, contenders(call, methods, None)[1:], options, rows, ranks=False))
    heads = [recommend(found, range(call.batch), head, tolerance) for head in range(call.heads)]
    own = (call.k.shape[3] + call.v.shape[3]) * call.k.element_size() * call.keys
    state = {trial.method: trial.state_bytes or own for trial in found}
    return LayerPlan(
        heads,
        sum(head.cost for head in heads) / len(heads),
        sum(state.get(head.mode, own) for head in heads),
        own * len(heads),
    )


def saving(plans: Mapping[int, LayerPlan]) -> tuple[float, float]:
    """Return the multiply-adds and the bytes of a plan over those of exact attention, over all layers; 1 for none."""
    if not plans:
        return 1.0, 1.0
    cost = sum(plan.cost for plan in plans.values()) / len(plans)
    return cost, sum(plan.state_bytes for plan in plans.values()) / max(
        1, sum(plan.kv_bytes for plan in plans.values())
    )
