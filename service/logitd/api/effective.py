"""Parameters as they are echoed: in JSON types, one object or one for each row."""

from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import Any

from logitd_kernels import PARAMETERS
from logitd_kernels.sampling.plain import PLAIN
from logitd_kernels.sampling.registry import DRAW_PARAMETERS
from logitd_kernels.sampling.transform import Values

Json = dict[str, Any]

ALWAYS = tuple(name for name in PARAMETERS if name in PLAIN | {one.name for one in DRAW_PARAMETERS})
_OTHERS = tuple(name for name in PARAMETERS if name not in ALWAYS)
_always, _others = itemgetter(*ALWAYS), itemgetter(*_OTHERS)
_AT_REST = tuple(PARAMETERS[name].neutral for name in _OTHERS)


def effective(each: Sequence[Values], shared: Values | None) -> Json | list[Json]:
    """Return the parameters in force: those asked for most, and every other that is not at its neutral value.

    Args:
        each: of every row.
        shared: of all rows, where one object was sent for them.
    """
    return [_object(values) for values in each] if shared is None else _object(shared)


def _object(values: Values) -> Json:
    told = dict(zip(ALWAYS, _always(values), strict=True))
    others = _others(values)
    if others != _AT_REST:
        told |= {
            name: _biases(value) if isinstance(value, dict) else value
            for name, value, neutral in zip(_OTHERS, others, _AT_REST, strict=True)
            if value != neutral
        }
    return told


def _biases(value: dict[int, float]) -> Json:
    return {str(token): "-inf" if bias == -inf else bias for token, bias in value.items()}
