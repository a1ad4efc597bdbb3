"""The hybrid stream: the first keys and the recent ones exactly, what has left the window in a moment state."""

import math

import torch

from logitd_kernels.attention.hybrid.head import BLOCK, Parts
from logitd_kernels.attention.moment.calibrate import check_rank
from logitd_kernels.attention.moment.read import quotient
from logitd_kernels.attention.moment.state import MomentState
from logitd_kernels.attention.streams.early import COUNT, EarlyQueries, early_bytes, second_order_bytes
from logitd_kernels.attention.streams.given import Given
from logitd_kernels.attention.streams.stream import Flat, StreamSetting
from logitd_kernels.attention.streams.whole import whole
from logitd_kernels.errors import ParameterError

_PARTS = Parts()
_ROOM = (_PARTS.recent + 1) * BLOCK  # tokens of a window


class HybridStream:
    """Causal `hybrid` attention, block by block: a token has the answer that it has in one call.

    A block of 64 tokens leaves the window when the fourth after it is full; until the first one leaves, all is exact.
    """

    def __init__(self, setting: StreamSetting) -> None:
        check_rank(setting.options.rank)
        self.setting = setting
        self._tokens = 0
        self._early = EarlyQueries(setting)
        self._k = torch.zeros(setting.heads, _ROOM, setting.dim)
        self._v = torch.zeros(setting.heads, _ROOM, setting.value_dim)
        self._sinks_k = torch.zeros(setting.heads, _PARTS.sinks, setting.dim)
        self._sinks_v = torch.zeros(setting.heads, _PARTS.sinks, setting.value_dim)
        self._start = 0  # the position of the window's first token
        self._state: MomentState | None = None
        self.early_error: torch.Tensor | None = None

    @property
    def tokens(self) -> int:
        """How many it has taken in."""
        return self._tokens

    @property
    def bytes(self) -> int:
        """Of window, first keys, and early queries or state, whichever is more."""
        return self.needs(self.setting, {})

    def growth(self, tokens: int) -> int:
        """See `Stream`."""
        return 0

    def calibrates(self, tokens: int) -> bool:
        """See `Stream`."""
        return self._state is None and self._tokens + tokens >= _ROOM

    def attend(self, q: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
        """See `Stream`."""
        self.setting.check(q, k, v)
        k, v = (self.setting.per_query_head(x).float() for x in (k, v))
        asked = torch.zeros(self.setting.heads, 0, self.setting.dim) if q is None else q.float()
        with whole(self, k.shape[1]):
            answers = self._attend(asked, k, v)
        return None if q is None else torch.cat(answers, 1)

    def _attend(self, asked: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        silent, start = k.shape[1] - asked.shape[1], 0
        answers = [torch.zeros(self.setting.heads, 0, self.setting.value_dim)]
        while start < k.shape[1]:
            stop = min(k.shape[1], start + BLOCK - self._tokens % BLOCK)
            queries = asked[:, max(0, start - silent) : max(0, stop - silent)]
            self._take_in(k[:, start:stop], v[:, start:stop])
            self._early.add(queries, self._tokens - queries.shape[1])
            answers.append(self._answer(queries, self._tokens - queries.shape[1]))
            if self._tokens % BLOCK == 0:
                self._move_on()
            start = stop
        return answers

    def read(self, q: torch.Tensor) -> torch.Tensor:
        """See `Stream`."""
        self.setting.check(q, None, None)
        return self._answer(q.float(), None)

    def export(self) -> Flat:
        """See `Stream`."""
        held = slice(0, self._tokens - self._start)
        flat: Flat = {
            "tokens": self._tokens,
            "start": self._start,
            "early": self._early.held.clone(),
            "k": self._k[:, held].clone(),
            "v": self._v[:, held].clone(),
            "sinks_k": self._sinks_k.clone(),
            "sinks_v": self._sinks_v.clone(),
        }
        state = self._state.export() if self._state else {}
        if self.early_error is not None:
            flat["early_error"] = self.early_error.clone()
        return flat | {f"state.{name}": tensor for name, tensor in state.items()}

    @classmethod
    def restore(cls, setting: StreamSetting, flat: Flat) -> "HybridStream":
        """Continue what `export` told of."""
        stream, given = cls(setting), Given(flat)
        tokens = given.tokens()
        start = max(0, tokens // BLOCK - _PARTS.recent) * BLOCK
        given.same("start", start)
        stream._tokens, stream._start = tokens, start
        stream._early = EarlyQueries(setting, given.early(setting, 0 if start else min(tokens, COUNT)))
        for held, name in ((stream._k, "k"), (stream._v, "v")):
            dim, count = held.shape[2], tokens - start
            held[:, :count] = given.tensor(name, (setting.heads, count, dim))
        for held, name in ((stream._sinks_k, "sinks_k"), (stream._sinks_v, "sinks_v")):
            held.copy_(given.tensor(name, tuple(held.shape)))
        if start:
            stream._state = given.moment_state(setting)
            if stream._state.tokens != start - _PARTS.sinks:
                raise ParameterError("state.tokens", f"must be {start - _PARTS.sinks}, got {stream._state.tokens}")
            stream.early_error = given.early_error(setting.heads)
        given.finish()
        return stream

    @classmethod
    def needs(cls, setting: StreamSetting, flat: Flat) -> int:
        """Return the bytes of a stream, empty or not."""
        kept = 4 * setting.heads * (_ROOM + _PARTS.sinks) * (setting.dim + setting.value_dim)
        return kept + max(early_bytes(setting), second_order_bytes(setting))

    def _take_in(self, k: torch.Tensor, v: torch.Tensor) -> None:
        """Put tokens of one block into the window."""
        place = slice(self._tokens - self._start, self._tokens - self._start + k.shape[1])
        self._k[:, place], self._v[:, place] = k, v
        first = slice(self._tokens, min(_PARTS.sinks, self._tokens + k.shape[1]))
        if first.start < first.stop:
            count = first.stop - first.start
            self._sinks_k[:, first], self._sinks_v[:, first] = k[:, :count], v[:, :count]
        self._tokens += k.shape[1]

    def _move_on(self) -> None:
        """A block is full: the one that a new block does not see any more leaves the window for the state."""
        if self._tokens - self._start < _ROOM:
            return
        if self._state is None:
            basis = self._early.basis(self._k)
            self.early_error = self._early.error(basis, self._k, self._v)
            self._state = MomentState(basis, self.setting.value_dim)
            self._early = EarlyQueries(self.setting)
        known = max(0, _PARTS.sinks - self._start)  # the first keys are exact for ever
        self._state.append(self._k[:, known:BLOCK], self._v[:, known:BLOCK])
        for held in (self._k, self._v):
            held[:, :-BLOCK] = held[:, BLOCK:].clone()
        self._start += BLOCK

    def _answer(self, q: torch.Tensor, position: int | None) -> torch.Tensor:
        """Answer queries [Hq, n, d], the first at `position`; None: all see everything."""
        output = torch.zeros(*q.shape[:2], self.setting.value_dim)
        if not q.shape[1] or not self._tokens:
            return output
        x = q * self.setting.scaling
        keys, values, places = self._exact_part()
        scores = x @ keys.mT
        if position is not None:
            own = torch.arange(position, position + q.shape[1])
            scores = scores.masked_fill_(places[None, :] > own[:, None], -math.inf)
        scale = scores.amax(2)
        reading = self._state.read(x) if self._state else None
        if reading is not None:
            scale = torch.maximum(scale, reading.log_mass)
        weights = scores.sub_(scale[..., None]).exp_()
        numerator, denominator = weights @ values, weights.sum(2)
        if reading is not None:
            far = torch.exp(reading.log_mass - scale)
            numerator += far[..., None] * reading.numerator
            denominator += far * reading.denominator
        quotient(numerator, denominator, output)
        return output

    def _exact_part(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return keys, less their centre once that is known, values and positions of what is exact."""
        sinks = slice(0, min(_PARTS.sinks, self._tokens))
        held = slice(max(0, sinks.stop - self._start), self._tokens - self._start)
        keys = torch.cat([self._sinks_k[:, sinks], self._k[:, held]], 1)
        values = torch.cat([self._sinks_v[:, sinks], self._v[:, held]], 1)
        places = torch.cat([torch.arange(sinks.stop), torch.arange(self._start + held.start, self._tokens)])
        return (keys - self._state.basis.key_centre[:, None] if self._state else keys), values, places
