"""llama.cpp's own samplers, called through ctypes on rows of logits.

The library is what loadtest/peers/llama.sh builds; `make test-peers` does.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from comparing import Row, Step
from loadtest.peers.environments import cache

FOLDER = cache() / "llama-0.3.36"
ABSENT = None if (FOLDER / "libllama.so").exists() else "llama.cpp is not built: make test-peers builds it"

CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data
NO_SEED = 1

_REAL, _INT, _SIZE, _POINTER = ctypes.c_float, ctypes.c_int32, ctypes.c_size_t, ctypes.c_void_p
# Not of llama.h: takes token ids where `init_dry` takes text, for the tests of llama.cpp.
_DRY_OF_IDS = "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"
_ARGUMENTS = {
    "init_logit_bias": [_INT, _INT, _POINTER],
    "init_penalties": [_INT, _INT, _REAL, _REAL, _REAL],
    "init_dry": [_POINTER, _REAL, _REAL, _INT, _INT, _POINTER, _SIZE],
    "init_top_n_sigma": [_REAL],
    "init_top_k": [_INT],
    "init_typical": [_REAL, _SIZE],
    "init_top_p": [_REAL, _SIZE],
    "init_min_p": [_REAL, _SIZE],
    "init_xtc": [_REAL, _REAL, _SIZE, ctypes.c_uint32],
    "init_temp_ext": [_REAL, _REAL, _REAL],
    "init_mirostat": [_INT, ctypes.c_uint32, _REAL, _REAL, _INT],
    "init_mirostat_v2": [ctypes.c_uint32, _REAL, _REAL],
    "init_adaptive_p": [_REAL, _REAL, ctypes.c_uint32],
}


class _Candidates(ctypes.Structure):
    """llama_token_data_array."""

    _fields_ = (("data", _POINTER), ("size", _SIZE), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool))


class _ChainParams(ctypes.Structure):
    """llama_sampler_chain_params."""

    _fields_ = (("no_perf", ctypes.c_bool),)


class _Bias(ctypes.Structure):
    """llama_logit_bias."""

    _fields_ = (("token", _INT), ("bias", _REAL))


class _Vector(ctypes.Structure):
    """std::vector, as libstdc++ lays it out."""

    _fields_ = (("begin", _POINTER), ("end", _POINTER), ("room", _POINTER))


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(FOLDER / "libllama.so"))
    for name, arguments in _ARGUMENTS.items():
        make = getattr(library, f"llama_sampler_{name}")
        make.restype, make.argtypes = _POINTER, arguments
    dry = getattr(library, _DRY_OF_IDS)
    dry.restype = _POINTER
    dry.argtypes = [_REAL, _REAL, _INT, _INT, ctypes.POINTER(_Vector)]
    library.llama_sampler_chain_init.restype = _POINTER
    library.llama_sampler_chain_init.argtypes = [_ChainParams]
    library.llama_sampler_chain_add.argtypes = [_POINTER, _POINTER]
    library.llama_sampler_apply.argtypes = [_POINTER, ctypes.POINTER(_Candidates)]
    library.llama_sampler_accept.argtypes = [_POINTER, _INT]
    library.llama_sampler_free.argtypes = [_POINTER]
    return library


LIBRARY = None if ABSENT else _load()


def make(name: str, *arguments: Any) -> int:
    """Return a sampler of llama.h."""
    return getattr(LIBRARY, f"llama_sampler_{name}")(*arguments)


def _logit_bias(params: Mapping[str, Any], row: Row) -> int:
    biases = (_Bias * len(params["logit_bias"]))(*params["logit_bias"].items())
    return make("init_logit_bias", len(row.logits), len(biases), ctypes.cast(biases, _POINTER))


def _penalties(params: Mapping[str, Any], row: Row) -> int:
    strengths = (params[f"{one}_penalty"] for one in ("repetition", "frequency", "presence"))
    return make("init_penalties", len(row.logits), params["penalty_window"], *strengths)


def _dry(params: Mapping[str, Any], row: Row) -> int:
    window = params.get("dry_window") or len(row.prompt + row.output)
    strengths = (params["dry_multiplier"], params["dry_base"], params["dry_allowed_length"], window)
    if not params.get("dry_breaker_ids"):
        return make("init_dry", None, *strengths, None, 0)
    ids = [(_INT * 1)(token) for token in params["dry_breaker_ids"]]
    breakers = _vector((_Vector * len(ids))(*(_vector(one) for one in ids)))
    return getattr(LIBRARY, _DRY_OF_IDS)(*strengths, breakers)


def _vector(array: ctypes.Array) -> _Vector:
    begin = ctypes.addressof(array)
    vector = _Vector(begin, begin + ctypes.sizeof(array), begin + ctypes.sizeof(array))
    vector.keeps = array
    return vector


def _temperature(params: Mapping[str, Any], row: Row) -> int:
    spread, exponent = params.get("dynatemp_range", 0.0), params.get("dynatemp_exponent", 1.0)
    return make("init_temp_ext", params["temperature"], spread, exponent)


MAKE: Mapping[str, Callable[[Mapping[str, Any], Row], int]] = {
    "logit_bias": _logit_bias,
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": lambda params, _: make("init_top_n_sigma", params["top_n_sigma"]),
    "top_k": lambda params, _: make("init_top_k", params["top_k"]),
    "typical_p": lambda params, _: make("init_typical", params["typical_p"], 0),
    "top_p": lambda params, _: make("init_top_p", params["top_p"], 0),
    "min_p": lambda params, _: make("init_min_p", params["min_p"], 0),
    "xtc": lambda params, _: make("init_xtc", params["xtc_probability"], params["xtc_threshold"], 0, NO_SEED),
    "temperature": _temperature,
}


class Chain:
    """A sampler chain; `close` frees it.

    Args:
        samplers: whose owner it becomes.
        history: token ids that it has seen.
    """

    def __init__(self, samplers: Sequence[int], history: Sequence[int] = ()) -> None:
        self._chain = LIBRARY.llama_sampler_chain_init(_ChainParams(True))
        for sampler in samplers:
            LIBRARY.llama_sampler_chain_add(self._chain, sampler)
        for token in history:
            self.accept(token)

    def __enter__(self) -> "Chain":
        return self

    def __exit__(self, *_: object) -> None:
        LIBRARY.llama_sampler_free(self._chain)

    def accept(self, token: int) -> None:
        """Tell the samplers what was drawn."""
        LIBRARY.llama_sampler_accept(self._chain, token)

    def apply(self, logits: np.ndarray, masked: bool = False) -> tuple[np.ndarray, int]:
        """Return the probabilities [V] float64 of what is left of a row, and the token drawn, −1 where none is.

        Args:
            logits: [V] float32.
            masked: hand over masked tokens too, as candidates at −inf.
        """
        ids = np.arange(len(logits)) if masked else np.flatnonzero(logits > -np.inf)
        candidates = np.zeros(len(ids), CANDIDATE)
        candidates["id"], candidates["logit"] = ids, logits[ids]
        begin = candidates.ctypes.data
        array = _Candidates(begin, len(ids), -1, False)
        LIBRARY.llama_sampler_apply(self._chain, array)
        left = candidates[(array.data - begin) // CANDIDATE.itemsize :][: array.size]  # XTC moves the beginning
        weights = np.exp(left["logit"].astype(np.float64) - left["logit"].max())
        probabilities = np.zeros(len(logits))
        probabilities[left["id"]] = weights / weights.sum()
        return probabilities, int(left["id"][array.selected]) if array.selected >= 0 else -1


def processed(row: Row, steps: Sequence[Step], masked: bool = False) -> np.ndarray:
    """Return the probabilities [V] after some steps."""
    samplers = [MAKE[step.name](step.params, row) for step in steps]
    with Chain(samplers, row.prompt + row.output) as chain:
        return chain.apply(row.logits.numpy(), masked)[0]
