"""Parameters as data: name, bounds and neutral value, how a value is checked, and its JSON schema."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from logitd_kernels.errors import ParameterError, told

Json = dict[str, Any]

_BIAS_LIMIT = 1e300  # beyond it a sum could overflow to +inf


class Parameter(Protocol):
    """A named value with bounds. `neutral` is the value at which it changes nothing, and its default."""

    @property
    def name(self) -> str:
        """The request field."""

    @property
    def neutral(self) -> Any:  # noqa: ANN401
        """The value that changes nothing."""

    @property
    def doc(self) -> str:
        """One sentence for OpenAPI and the docs."""

    @property
    def bounds(self) -> str:
        """The legal values in words."""

    def check(self, value: object) -> Any:  # noqa: ANN401
        """Return the value in its own type, or raise ParameterError."""

    def schema(self) -> Json:
        """Return the JSON schema."""


@dataclass(frozen=True)
class Number:
    """A finite number in an interval; `integer` refuses fractions. Booleans and strings are not numbers."""

    name: str
    neutral: float
    doc: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    integer: bool = False

    @property
    def bounds(self) -> str:
        """The legal interval, as `[0, 1]` or `≥ 0`, with the type for integers."""
        low = f"[{self.ge:g}" if self.ge is not None else f"({self.gt:g}" if self.gt is not None else "(-∞"
        high = f"{_whole(self.le)}]" if self.le is not None else "∞)"
        return ("integer in " if self.integer else "") + f"{low}, {high}"

    def check(self, value: object) -> float:
        """Return the number, an int when `integer`.

        Raises:
            ParameterError: not a number, NaN or infinite, or out of bounds.
        """
        if isinstance(value, bool) or not isinstance(value, int if self.integer else (int, float)):
            kind = "an integer" if self.integer else "a number"
            raise ParameterError(self.name, f"must be {kind}, got {told(value)}")
        assert isinstance(value, (int, float))
        if not self._inside(value):
            raise ParameterError(self.name, f"must be in {self.bounds.removeprefix('integer in ')}, got {told(value)}")
        return value if self.integer else float(value)

    def schema(self) -> Json:
        """Return the JSON schema."""
        limits = {"minimum": self.ge, "exclusiveMinimum": self.gt, "maximum": self.le}
        kind = "integer" if self.integer else "number"
        known = {key: limit for key, limit in limits.items() if limit is not None}
        return {"type": kind, "default": self.neutral, "description": self.doc, **known}

    def _inside(self, value: float) -> bool:
        try:
            finite = math.isfinite(value)
        except OverflowError:  # an int beyond float64
            finite = self.integer
        above = (self.ge is None or value >= self.ge) and (self.gt is None or value > self.gt)
        return finite and above and (self.le is None or value <= self.le)


@dataclass(frozen=True)
class Optional:
    """A number, or None where there is none, which is neutral."""

    number: Number
    neutral: None = None

    @property
    def name(self) -> str:
        """The request field."""
        return self.number.name

    @property
    def doc(self) -> str:
        """One sentence for OpenAPI and the docs."""
        return self.number.doc

    @property
    def bounds(self) -> str:
        """The legal interval."""
        return f"{self.number.bounds}, or null"

    def check(self, value: object) -> float | None:
        """Return the number or None, or raise ParameterError."""
        return None if value is None else self.number.check(value)

    def schema(self) -> Json:
        """Return the JSON schema."""
        number = {name: one for name, one in self.number.schema().items() if name not in ("default", "description")}
        return {"anyOf": [number, {"type": "null"}], "default": None, "description": self.doc}


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    name: str
    neutral: str
    choices: tuple[str, ...]
    doc: str

    @property
    def bounds(self) -> str:
        """The words."""
        return " or ".join(f'"{choice}"' for choice in self.choices)

    def check(self, value: object) -> str:
        """Return the word, or raise ParameterError."""
        if not isinstance(value, str) or value not in self.choices:
            raise ParameterError(self.name, f"must be {self.bounds}, got {told(value)}")
        return value

    def schema(self) -> Json:
        """Return the JSON schema."""
        return {"type": "string", "enum": list(self.choices), "default": self.neutral, "description": self.doc}


@dataclass(frozen=True)
class Flag:
    """True or false."""

    name: str
    neutral: bool
    doc: str
    bounds: str = "true or false"

    def check(self, value: object) -> bool:
        """Return the boolean, or raise ParameterError."""
        if not isinstance(value, bool):
            raise ParameterError(self.name, f"must be true or false, got {told(value)}")
        return value

    def schema(self) -> Json:
        """Return the JSON schema."""
        return {"type": "boolean", "default": self.neutral, "description": self.doc}


@dataclass(frozen=True)
class Seed:
    """A 64-bit seed, as an integer or a decimal string; None and −1 leave the choice to the service."""

    name: str
    doc: str
    neutral: None = None
    bounds: str = "integer or decimal string in [0, 2^64); null or -1: drawn by the service"

    def check(self, value: object) -> int | None:
        """Return the seed in [0, 2^64), or None."""
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
            value = int(value)
        if value is None or (value == -1 and isinstance(value, int)):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
            raise ParameterError(self.name, f"must be an integer or decimal string in [0, 2^64), got {told(value)}")
        return value

    def schema(self) -> Json:
        """Return the JSON schema."""
        number = {"type": "integer", "minimum": -1, "maximum": (1 << 64) - 1}
        text = {"type": "string", "pattern": "^[0-9]{1,20}$"}
        return {"anyOf": [number, text, {"type": "null"}], "default": None, "description": self.doc}


@dataclass(frozen=True)
class TokenIds:
    """A list of token ids; None is neutral, so that an empty list can mean what it says."""

    name: str
    doc: str
    neutral: None = None
    bounds: str = "list of token ids in [0, V), or null"

    def check(self, value: object) -> tuple[int, ...] | None:
        """Return the ids, or None. Ids beyond the vocabulary are refused later, when it is known."""
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise ParameterError(self.name, f"must be a list of token ids, got {told(value)}")
        for place, token in enumerate(value):
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise ParameterError(f"{self.name}[{place}]", f"must be a token id, got {told(token)}")
        return tuple(value)

    def schema(self) -> Json:
        """Return the JSON schema."""
        ids = {"type": "array", "items": {"type": "integer", "minimum": 0}}
        return {"anyOf": [ids, {"type": "null"}], "default": None, "description": self.doc}


@dataclass(frozen=True)
class TokenSequences:
    """A list of sequences of token ids, none empty; None is neutral."""

    name: str
    doc: str
    neutral: None = None
    bounds: str = "list of non-empty lists of token ids in [0, V), or null"

    def check(self, value: object) -> tuple[tuple[int, ...], ...] | None:
        """Return the sequences, or None. Ids beyond the vocabulary are refused later, when it is known."""
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise ParameterError(self.name, f"must be a list of lists of token ids, got {told(value)}")
        found = []
        for place, one in enumerate(value):
            ids = None if one is None else TokenIds(f"{self.name}[{place}]", "").check(one)
            if not ids:
                raise ParameterError(f"{self.name}[{place}]", f"must be a non-empty list of token ids, got {told(one)}")
            found.append(ids)
        return tuple(found)

    def schema(self) -> Json:
        """Return the JSON schema."""
        one = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
        return {
            "anyOf": [{"type": "array", "items": one}, {"type": "null"}],
            "default": None,
            "description": self.doc,
        }


@dataclass(frozen=True)
class Bias:
    """A map from token id to a bias: finite, or −inf (also spelled "-inf" or null) to forbid."""

    name: str
    doc: str
    neutral: None = None
    bounds: str = 'object of token id → finite number or "-inf", or null'

    def check(self, value: object) -> dict[int, float] | None:
        """Return {id: bias}, or None. Ids may be ints or canonical decimal strings."""
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ParameterError(self.name, f"must be an object of token id to bias, got {told(value)}")
        biases = {self._token(key): self._bias(key, bias) for key, bias in value.items()}
        if len(biases) != len(value):
            raise ParameterError(self.name, "names a token id twice")
        return biases

    def schema(self) -> Json:
        """Return the JSON schema."""
        bias = {"anyOf": [{"type": "number"}, {"type": "string", "const": "-inf"}, {"type": "null"}]}
        ids = {"type": "object", "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,18})$"}, "additionalProperties": bias}
        return {"anyOf": [ids, {"type": "null"}], "default": None, "description": self.doc}

    def _token(self, key: object) -> int:
        if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= 19 and str(int(key)) == key:
            return int(key)
        if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
            return key
        raise ParameterError(f"{self.name}[{told(key)}]", "the key must be a token id in decimal")

    def _bias(self, key: object, bias: object) -> float:
        if bias is None or bias == "-inf":
            return -math.inf
        if isinstance(bias, (int, float)) and not isinstance(bias, bool) and -_BIAS_LIMIT < bias < _BIAS_LIMIT:
            return float(bias)
        if bias == -math.inf:
            return -math.inf
        raise ParameterError(
            f"{self.name}[{told(key)}]", f"must be a number below {_BIAS_LIMIT:g} or -inf, got {told(bias)}"
        )


def _whole(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"
