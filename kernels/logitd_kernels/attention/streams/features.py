"""Streams through a feature map: a state of one size however long the sequence."""

import torch

from logitd_kernels.attention.features.export import exported, restored
from logitd_kernels.attention.features.feature import Setting
from logitd_kernels.attention.features.registry import method_named
from logitd_kernels.attention.features.state import FeatureState
from logitd_kernels.attention.streams.given import Given
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
        self.setting = setting
        self._state = FeatureState(setting.method, _own(setting), setting.heads, setting.value_dim)

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

    def calibrates(self, tokens: int) -> bool:
        """See `Stream`."""
        return False

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
        stream, given = cls(setting), Given(flat)
        fresh = stream.export()
        for name in ("method", "dim", "scale", "feature_dim", "seed", "orthogonal", "horizon"):
            given.same(name, fresh[name])
        tokens = given.tokens()
        for name in ("sums", "pivot"):
            tensor = given.tensor(name, tuple(fresh[name].shape), finite=tokens > 0)
            if not tokens and not torch.equal(tensor, fresh[name]):
                raise ParameterError(name, "holds something, and no tokens are in it")
        given.finish()
        stream._state = restored(flat)
        return stream

    @classmethod
    def needs(cls, setting: StreamSetting, flat: Flat) -> int:
        """Return the bytes of a stream, empty or not."""
        fitted = method_named(setting.method).fit(_own(setting))
        return 4 * setting.heads * (fitted.size * (setting.value_dim + 1) + fitted.width)


def _own(setting: StreamSetting) -> Setting:
    return Setting(setting.dim, setting.scaling, setting.options)
