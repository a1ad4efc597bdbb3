"""The moment stream: exact for its first tokens, which its coordinates are fitted to, then a state of one size."""

from itertools import pairwise

import torch

from logitd_kernels.attention.moment.calibrate import check_rank
from logitd_kernels.attention.moment.chunk import attend_chunk
from logitd_kernels.attention.moment.read import quotient
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.streams.early import COUNT, EarlyQueries, early_bytes, second_order_bytes
from logitd_kernels.attention.streams.exact import ExactStream, token_bytes
from logitd_kernels.attention.streams.given import Given
from logitd_kernels.attention.streams.stream import Flat, StreamSetting
from logitd_kernels.attention.streams.whole import whole
from logitd_kernels.errors import ParameterError, ShapeError


class MomentStream:
    """Keeps keys and values of its first 256 tokens, afterwards a `MomentState`."""

    def __init__(self, setting: StreamSetting) -> None:
        check_rank(setting.options.rank)
        self.setting = setting
        self._early = EarlyQueries(setting)
        self._exact: ExactStream | None = ExactStream(setting)
        self._state: MomentState | None = None
        self.early_error: torch.Tensor | None = None

    @property
    def tokens(self) -> int:
        """How many it has taken in."""
        return self._state.tokens if self._state else self._cache.tokens

    @property
    def bytes(self) -> int:
        """Of the state or of all first tokens, whichever is more."""
        return self.needs(self.setting, {})

    def growth(self, tokens: int) -> int:
        """See `Stream`."""
        return 0

    def calibrates(self, tokens: int) -> bool:
        """See `Stream`."""
        return self._state is None and self._cache.tokens + tokens >= COUNT

    def attend(self, q: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
        """See `Stream`."""
        self.setting.check(q, k, v)
        asked = torch.zeros(self.setting.heads, 0, self.setting.dim) if q is None else q
        silent = k.shape[1] - asked.shape[1]
        answers = []
        with whole(self, k.shape[1]):
            for start, stop in self._pieces(k.shape[1]):
                queries = asked[:, max(0, start - silent) : max(0, stop - silent)]
                answers.append(self._piece(queries, k[:, start:stop], v[:, start:stop]))
        if q is None:
            return None
        return torch.cat([*answers, torch.zeros(self.setting.heads, 0, self.setting.value_dim)], 1)

    def read(self, q: torch.Tensor) -> torch.Tensor:
        """See `Stream`."""
        self.setting.check(q, None, None)
        if self._state is None:
            return self._cache.read(q)
        output = torch.empty(*q.shape[:2], self.setting.value_dim)
        self._state.answer(q.float(), self.setting.scaling, output)
        return output

    def export(self) -> Flat:
        """See `Stream`."""
        if self._state is None:
            return {"early": self._early.held.clone(), **self._cache.export()}
        measured = {} if self.early_error is None else {"early_error": self.early_error.clone()}
        return measured | {f"state.{name}": tensor for name, tensor in self._state.export().items()}

    @classmethod
    def restore(cls, setting: StreamSetting, flat: Flat) -> "MomentStream":
        """Continue what `export` told of."""
        stream, given = cls(setting), Given(flat)
        if "early" in given:
            exact = ExactStream.restore(setting, {name: part for name, part in flat.items() if name != "early"})
            if exact.tokens >= COUNT:
                raise ShapeError("k", f"expected fewer than {COUNT} tokens, got {exact.tokens}")
            stream._early = EarlyQueries(setting, given.early(setting, exact.tokens))
            stream._exact = exact
            return stream
        state = given.moment_state(setting)
        if state.tokens < COUNT:
            raise ParameterError("state.tokens", f"must be at least {COUNT}, got {state.tokens}")
        stream.early_error = given.early_error(setting.heads)
        given.finish()
        stream._exact, stream._state = None, state
        return stream

    @classmethod
    def needs(cls, setting: StreamSetting, flat: Flat) -> int:
        """Return the bytes of a stream, empty or not."""
        first = COUNT * 3 // 2 * token_bytes(setting) + early_bytes(setting)  # a cache has room for half as many again
        return max(first, second_order_bytes(setting))

    @property
    def _cache(self) -> ExactStream:
        assert self._exact is not None
        return self._exact

    def _pieces(self, tokens: int) -> list[tuple[int, int]]:
        """Cut new tokens where the first ones end, and into chunks after that."""
        warm = min(tokens, max(0, COUNT - self.tokens)) if self._state is None else 0
        chunk = self.setting.options.chunk
        edges = [*([0] if warm else []), *range(warm, tokens, chunk), tokens]
        return [(start, stop) for start, stop in pairwise(edges) if start < stop]

    def _piece(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self._state is None:
            return self._first_tokens(q, k, v)
        k, v = (self.setting.per_query_head(x).float() for x in (k, v))
        output = torch.zeros(self.setting.heads, q.shape[1], self.setting.value_dim)
        if q.shape[1]:
            parts = attend_chunk(self._state, q.float() * self.setting.scaling, k, v, k.shape[1] - q.shape[1])
            output = _divided(*parts)
        self._state.append(k, v)
        return output

    def _first_tokens(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        cache = self._cache
        self._early.add(q, cache.tokens + k.shape[1] - q.shape[1])
        output = cache.attend(q, k, v)
        assert output is not None
        if cache.tokens == COUNT:
            keys, values = self.setting.per_query_head(cache.k), self.setting.per_query_head(cache.v)
            basis = self._early.basis(keys)
            self.early_error = self._early.error(basis, keys, values)
            self._state = MomentState(basis, self.setting.value_dim)
            self._state.append(keys, values)
            self._exact = None
        return output


def _divided(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    output = torch.empty_like(numerator)
    quotient(numerator, denominator, output)
    return output
