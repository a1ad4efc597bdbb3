"""Attention: exact, linear with a measured error, and the choice between them."""

from logitd_kernels.attention.attend import Answer, Wish, attend
from logitd_kernels.attention.call import Approximate, Attended, Call, Options, Visible
from logitd_kernels.attention.choice import WHYS, Choice
from logitd_kernels.attention.compare import Contender, Trial, contenders, trials
from logitd_kernels.attention.estimate import Estimate, estimate
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.methods import APPROXIMATE, MODES
from logitd_kernels.attention.moment.feasibility import Feasibility, feasibility
from logitd_kernels.attention.plan import LayerPlan, plan_layer, saving
from logitd_kernels.attention.recommend import Recommendation, recommend
from logitd_kernels.attention.report import HeadReport
from logitd_kernels.attention.threshold import measured_threshold

__all__ = [
    "APPROXIMATE",
    "MODES",
    "WHYS",
    "Answer",
    "Approximate",
    "Attended",
    "Call",
    "Choice",
    "Contender",
    "Estimate",
    "Feasibility",
    "HeadReport",
    "LayerPlan",
    "Options",
    "Recommendation",
    "Trial",
    "Visible",
    "Wish",
    "attend",
    "contenders",
    "estimate",
    "exact",
    "feasibility",
    "measured_threshold",
    "plan_layer",
    "recommend",
    "saving",
    "trials",
]
