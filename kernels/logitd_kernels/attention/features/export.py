"""A feature state as plain tensors and numbers, and back: what continues, continues on the same bits."""

from dataclasses import fields
from typing import Any

import torch

from logitd_kernels.attention.call import Options
from logitd_kernels.attention.features.feature import Setting
from logitd_kernels.attention.features.moments import Moments
from logitd_kernels.attention.features.state import FeatureState
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError

Flat = dict[str, Any]
_MOMENTS = [field.name for field in fields(Moments)]


def exported(state: FeatureState) -> Flat:
    """Return all that a state is: tensors in its dtype (moments in float32), integers, floats and the method's name.

    Projections are not part of it: their seed is.
    """
    setting = state.setting
    flat: Flat = {
        "method": state.method,
        "dim": setting.dim,
        "scale": setting.scale,
        "feature_dim": state.map.size,
        "seed": setting.options.seed,
        "orthogonal": int(setting.options.orthogonal),
        "horizon": setting.horizon,
        "tokens": state.tokens,
        "pivot": state.pivot.clone(),
        "sums": state.sums.clone(),
    }
    if setting.moments is not None:
        flat |= {name: getattr(setting.moments, name).clone() for name in _MOMENTS}
    return flat


def restored(flat: Flat) -> FeatureState:
    """Return the state that `exported` told of.

    Raises:
        ParameterError: something is missing, or no state has it.
        ShapeError: a tensor that does not fit the rest.
        NonFiniteTensor: NaN or infinity in the state.
    """
    sums = _part(flat, "sums")
    if sums.ndim != 3 or sums.shape[2] < 2 or sums.dtype not in (torch.float32, torch.float64):
        raise ShapeError("sums", f"expected float32 or float64 [heads, m, dv + 1], got {list(sums.shape)} {sums.dtype}")
    options = Options(
        feature_dim=_part(flat, "feature_dim"), seed=_part(flat, "seed"), orthogonal=bool(_part(flat, "orthogonal"))
    )
    dim = _part(flat, "dim")
    setting = Setting(
        dim, _part(flat, "scale"), options, _moments(flat, len(sums), dim), _part(flat, "horizon"), sums.dtype
    )
    state = FeatureState(_part(flat, "method"), setting, len(sums), sums.shape[2] - 1)
    state.tokens = _part(flat, "tokens")
    if isinstance(state.tokens, bool) or not isinstance(state.tokens, int) or state.tokens < 0:
        raise ParameterError("tokens", f"must be an integer of at least 0, got {state.tokens!r}")
    for name in ("sums", "pivot") if state.tokens else ():
        held, own = _part(flat, name), getattr(state, name)
        if held.shape != own.shape or held.dtype != own.dtype:
            raise ShapeError(name, f"expected {list(own.shape)} {own.dtype}, got {list(held.shape)} {held.dtype}")
        setattr(state, name, _finite(name, held).clone())
    return state


def _moments(flat: Flat, heads: int, dim: int) -> Moments | None:
    if not any(name in flat for name in _MOMENTS):
        return None
    for name in _MOMENTS:
        shape = (heads, dim) if name.endswith("mean") else (heads, dim, dim)
        if _part(flat, name).shape != shape:
            raise ShapeError(name, f"expected {list(shape)}, got {list(flat[name].shape)}")
    return Moments(**{name: _finite(name, flat[name]).clone() for name in _MOMENTS})


def _part(flat: Flat, name: str) -> Any:  # noqa: ANN401  (tensors and numbers alike)
    if name not in flat:
        raise ParameterError(name, "missing from the exported state")
    return flat[name]


def _finite(name: str, tensor: torch.Tensor) -> torch.Tensor:
    bad = (~torch.isfinite(tensor)).nonzero()
    if len(bad):
        index = [int(one) for one in bad[0]]
        raise NonFiniteTensor(name, index, float(tensor[tuple(index)]))
    return tensor
