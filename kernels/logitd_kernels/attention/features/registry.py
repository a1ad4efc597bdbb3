"""The registry of feature maps. A new map is one file beside this one and one line here; docs and tests derive from it.

None of them is ever chosen automatically: on real heads they are no better than the mean of V.
"""

from collections.abc import Mapping
from types import MappingProxyType

from logitd_kernels.attention.features.cosformer import COSFORMER
from logitd_kernels.attention.features.derf import DERF
from logitd_kernels.attention.features.elu import ELU
from logitd_kernels.attention.features.favor_plus import FAVOR_PLUS
from logitd_kernels.attention.features.favor_plus_plus import FAVOR_PLUS_PLUS
from logitd_kernels.attention.features.favor_sharp import FAVOR_SHARP
from logitd_kernels.attention.features.feature import Method
from logitd_kernels.attention.features.hyperbolic import HYPERBOLIC
from logitd_kernels.attention.features.taylor2 import TAYLOR2
from logitd_kernels.attention.features.trig import TRIG
from logitd_kernels.errors import ParameterError

_ALL = (FAVOR_PLUS, FAVOR_PLUS_PLUS, FAVOR_SHARP, DERF, HYPERBOLIC, TRIG, ELU, TAYLOR2, COSFORMER)
METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})


def method_named(name: str) -> Method:
    """Return a method by its name.

    Raises:
        ParameterError: there is none of this name.
    """
    if name not in METHODS:
        raise ParameterError("method", f"must be one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
