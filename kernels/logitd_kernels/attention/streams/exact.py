"""The exact stream: a cache of keys and values, which grows with the sequence."""

import torch

from logitd_kernels.attention.call import Call, Visible
from logitd_kernels.attention.exact import exact
from logitd_kernels.attention.fused import Magnitudes, fused
from logitd_kernels.attention.parts import largest
from logitd_kernels.attention.streams.given import Given
from logitd_kernels.attention.streams.stream import Flat, StreamSetting


class ExactStream:
    """Keeps all keys and values, float32."""

    early_error = None

    def __init__(self, setting: StreamSetting) -> None:
        self.setting = setting
        self._tokens = 0
        self._k = torch.zeros(setting.kv_heads, 0, setting.dim)
        self._v = torch.zeros(setting.kv_heads, 0, setting.value_dim)
        self._magnitudes = Magnitudes(0.0, 0.0)

    @property
    def tokens(self) -> int:
        """How many it has taken in."""
        return self._tokens

    @property
    def bytes(self) -> int:
        """Of keys and values, and the room that is held for more."""
        return self._k.nbytes + self._v.nbytes

    @property
    def k(self) -> torch.Tensor:
        """[Hkv, tokens, d]."""
        return self._k[:, : self.tokens]

    @property
    def v(self) -> torch.Tensor:
        """[Hkv, tokens, dv]."""
        return self._v[:, : self.tokens]

    def growth(self, tokens: int) -> int:
        """See `Stream`."""
        return (self._room(self._tokens + tokens) - self._k.shape[1]) * token_bytes(self.setting)

    def calibrates(self, tokens: int) -> bool:
        """See `Stream`."""
        return False

    def attend(self, q: torch.Tensor | None, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
        """See `Stream`."""
        self.setting.check(q, k, v)
        self._make_room(self.tokens + k.shape[1])
        new = slice(self.tokens, self.tokens + k.shape[1])
        self._k[:, new], self._v[:, new] = k, v
        self._tokens = new.stop
        known = self._magnitudes
        self._magnitudes = Magnitudes(max(known.keys, largest(k)), max(known.values, largest(v)))
        return None if q is None else self._answer(q, causal=True)

    def read(self, q: torch.Tensor) -> torch.Tensor:
        """See `Stream`."""
        self.setting.check(q, None, None)
        return self._answer(q, causal=False)

    def export(self) -> Flat:
        """See `Stream`."""
        return {"k": self.k.clone(), "v": self.v.clone()}

    @classmethod
    def restore(cls, setting: StreamSetting, flat: Flat) -> "ExactStream":
        """Continue what `export` told of."""
        given = Given(flat)
        k = given.tensor("k", (setting.kv_heads, None, setting.dim))
        v = given.tensor("v", (setting.kv_heads, k.shape[1], setting.value_dim))
        given.finish()
        stream = cls(setting)
        stream.attend(None, k, v)
        return stream

    @classmethod
    def needs(cls, setting: StreamSetting, flat: Flat) -> int:
        """Return the bytes of an empty stream, or of what `export` told of."""
        return sum(flat[name].nbytes for name in ("k", "v") if isinstance(flat.get(name), torch.Tensor))

    def _answer(self, q: torch.Tensor, causal: bool) -> torch.Tensor:
        call = Call(q[None].float(), self.k[None], self.v[None], Visible(causal=causal), scale=self.setting.scaling)
        attended = fused(call, self._magnitudes) or exact(call, statistics=False)
        return attended.output[0]

    def _room(self, tokens: int) -> int:
        """Return how many tokens there shall be room for: half as many again, so that each costs the same."""
        held = self._k.shape[1]
        return held if tokens <= held else max(tokens, held * 3 // 2)

    def _make_room(self, tokens: int) -> None:
        more = self._room(tokens) - self._k.shape[1]
        if more:
            self._k, self._v = (torch.nn.functional.pad(held, (0, 0, 0, more)) for held in (self._k, self._v))


def token_bytes(setting: StreamSetting) -> int:
    """Return the bytes of a token's key and value, of all KV heads."""
    return 4 * setting.kv_heads * (setting.dim + setting.value_dim)
