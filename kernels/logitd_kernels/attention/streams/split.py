"""A stream whose heads have methods of their own, as a plan has them."""

from collections.abc import Callable
from dataclasses import replace

import torch

from logitd_kernels.attention.streams.stream import Flat, Stream, StreamSetting, unprefixed
from logitd_kernels.attention.streams.whole import whole
from logitd_kernels.errors import NonFiniteTensor, ParameterError, ShapeError

Open = Callable[[StreamSetting], Stream]
Restore = Callable[[StreamSetting, Flat], Stream]


class SplitStream:
    """One stream for each method, of the heads that have it.

    Args:
        setting: with `modes`.
        open_part: builds the stream of one method.
    """

    def __init__(self, setting: StreamSetting, open_part: Open) -> None:
        assert setting.modes is not None
        self.setting = setting
        self._heads = {
            method: torch.tensor([head for head, own in enumerate(setting.modes) if own == method])
            for method in dict.fromkeys(setting.modes)
        }
        self._parts = {method: open_part(part_of(setting, method)) for method in self._heads}

    @property
    def tokens(self) -> int:
        """How many it has taken in."""
        return next(iter(self._parts.values())).tokens

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(part.bytes for part in self._parts.values())

    @property
    def early_error(self) -> torch.Tensor | None:
        """See `Stream`; NaN for heads that are not of second order."""
        known = {method: part.early_error for method, part in self._parts.items() if part.early_error is not None}
        if not known:
            return None
        found = torch.full((self.setting.heads,), torch.nan, dtype=torch.float64)
        for method, error in known.items():
            found[self._heads[method]] = error
        return found

    def growth(self, tokens: int) -> int:
        """See `Stream`."""
        return sum(part.growth(tokens) for part in self._parts.values())

    def calibrates(self, tokens: int) -> bool:
        """See `Stream`."""
        return any(part.calibrates(tokens) for part in self._parts.values())

    def attend(self, q: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
        """See `Stream`."""
        self.setting.check(q, k, v)
        k, v = self.setting.per_query_head(k), self.setting.per_query_head(v)
        with whole(self, k.shape[1]):
            answers = {
                method: part.attend(None if q is None else q[heads], k[heads], v[heads])
                for (method, heads), part in zip(self._heads.items(), self._parts.values(), strict=True)
            }
        return None if q is None else self._together({name: one for name, one in answers.items() if one is not None})

    def read(self, q: torch.Tensor) -> torch.Tensor:
        """See `Stream`."""
        self.setting.check(q, None, None)
        return self._together({method: part.read(q[self._heads[method]]) for method, part in self._parts.items()})

    def export(self) -> Flat:
        """See `Stream`."""
        return {
            f"{method}.{name}": value for method, part in self._parts.items() for name, value in part.export().items()
        }

    @classmethod
    def restore(
        cls, setting: StreamSetting, flat: Flat, restore_part: Callable[[StreamSetting, Flat], Stream]
    ) -> "SplitStream":
        """Continue what `export` told of."""
        assert setting.modes is not None
        for name in flat:
            if name.partition(".")[0] not in setting.modes:
                raise ParameterError(name[:60], "is no part of such a state")

        def restored(part: StreamSetting) -> Stream:
            try:
                return restore_part(part, unprefixed(f"{part.method}.", flat))
            except (ShapeError, ParameterError, NonFiniteTensor) as error:
                error.field = f"{part.method}.{error.field}"
                raise

        stream = cls(setting, restored)
        for method, part in stream._parts.items():
            if part.tokens != stream.tokens:
                raise ParameterError(f"{method}.tokens", f"must be {stream.tokens} as of the others, got {part.tokens}")
        return stream

    def _together(self, answers: dict[str, torch.Tensor]) -> torch.Tensor:
        queries = next(iter(answers.values())).shape[1]
        output = torch.empty(self.setting.heads, queries, self.setting.value_dim)
        for method, answer in answers.items():
            output[self._heads[method]] = answer
        return output


def part_of(setting: StreamSetting, method: str) -> StreamSetting:
    """Return the setting of the heads that have a method, each with keys and values of its own."""
    assert setting.modes is not None
    heads = setting.modes.count(method)
    return replace(setting, method=method, modes=None, heads=heads, kv_heads=heads)
