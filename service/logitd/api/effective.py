"""Parameters as they are echoed: in JSON types, one object or one for each row."""

from collections.abc import Sequence
from math import inf
from typing import Any

from logitd_kernels.sampling.transform import Values

Json = dict[str, Any]


def effective(each: Sequence[Values], shared: Values | None) -> Json | list[Json]:
    """Return the parameters in force.

    Args:
        each: of every row.
        shared: of all rows, where one object was sent for them.
    """
    return [_object(values) for values in each] if shared is None else _object(shared)


def _object(values: Values) -> Json:
    return {name: _biases(value) if isinstance(value, dict) else value for name, value in values.items()}


def _biases(value: dict[int, float]) -> Json:
    return {str(token): "-inf" if bias == -inf else bias for token, bias in value.items()}
