"""Every way to attend by its name: the modes of a request."""

from collections.abc import Callable
from functools import partial

from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.features.registry import METHODS as FEATURE_MAPS
from logitd_kernels.attention.hybrid.attend import hybrid
from logitd_kernels.attention.linear import linear
from logitd_kernels.attention.mean import mean_v
from logitd_kernels.attention.moment.attend import moment
from logitd_kernels.attention.nystrom import nystrom

Method = Callable[[Call, Options], Approximate]


def _mean_v(call: Call, options: Options) -> Approximate:
    return mean_v(call)


def _with_map(call: Call, options: Options, name: str) -> Approximate:
    return linear(call, name, options)


APPROXIMATE: dict[str, Method] = {
    "moment": moment,
    "hybrid": hybrid,
    **{name: partial(_with_map, name=name) for name in FEATURE_MAPS},
    "nystrom": nystrom,
    "mean_v": _mean_v,
}
MODES = ("auto", "exact", "exact_bf16", "linear", *APPROXIMATE)
