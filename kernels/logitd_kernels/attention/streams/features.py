"""Streams through a feature map: a state of one size however long the sequence."""

from dataclasses import replace

import torch

from logitd_kernels.attention.features.export import exported, restored
from logitd_kernels.attention.features.feature import Setting
from logitd_kernels.attention.features.registry import method_named
from logitd_kernels.attention.features.state import FeatureState
from logitd_kernels.attention.streams.stream import Flat, StreamSetting
from logitd_kernels.errors import ParameterError


class FeatureStream:
    """Keeps Σ φ(k)[v, 1]; a map that adapts to the moments of a whole sequence cannot: it would have to see it first.

    Raises:
        ParameterError: such a map.
    """

    early_error = None

    def __init__(self, setting: StreamSetting) -> None:
        if method_named(setting.method).adapts:
            raise ParameterError("method", f"{setting.method} is fitted to a whole sequence and cannot stream")
        own = Setting(setting.dim, setting.scaling, setting.options)
        self.setting = setting
        self._state = FeatureState(setting.method, own, setting.heads, setting.value_dim)

    @property
    def tokens(self) -> int:
        """How many it has taken in."""
        return self._state.tokens

    @property
    def bytes(self) -> int:
        """Of the state."""
        return self._state.bytes

    def growth(self, tokens: int) -> int:
        """See `Stream`."""
        return 0

    def attend(self, q: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
        """See `Stream`."""
        self.setting.check(q, k, v)
        k, v = self.setting.per_query_head(k), self.setting.per_query_head(v)
        if q is None:
            self._state.append(k, v)
            return None
        return self._state.attend(q, k, v, k.shape[1] - q.shape[1], self.setting.options.chunk)[0]

    def read(self, q: torch.Tensor) -> torch.Tensor:
        """See `Stream`."""
        self.setting.check(q, None, None)
        return self._state.read(q)[0]

    def export(self) -> Flat:
        """See `Stream`."""
        return exported(self._state)

    @classmethod
    def restore(cls, setting: StreamSetting, flat: Flat) -> "FeatureStream":
        """Continue what `export` told of."""
        stream = cls(replace(setting, options=replace(setting.options, feature_dim=flat["feature_dim"])))
        stream._state = restored(flat)
        return stream
