"""Sampling, in every form in which logits come over the wire, of real rows of the demo's trigram model."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from loadtest.http.profiles.kinds import Kind, single
from loadtest.http.profiles.requests import NPY, Wire
from numpy.typing import NDArray

from logitd.client.call import sample_call, softmax_call

Rows = NDArray[np.float32]

_FEW = 64  # logits of a JSON request
_METHODS: tuple[Mapping[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 40},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.3, "min_p": 0.05},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.6, "top_p": 0.95, "logit_bias": {"17": 2.0}, "banned_ids": [3, 4]},
)
_COMMON = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
_DRAWS = 512
DEADLINE_MS = 2000


def kinds(wire: Wire, rows: Rows) -> Iterator[Kind]:
    """Yield them all.

    Args:
        wire: writes the requests.
        rows: [N, V] float32 logits.
    """
    half, few = rows.astype(np.float16), np.sort(rows, axis=1)[:, : -_FEW - 1 : -1].tolist()
    yield single("safetensors", [wire.call(sample_call(one, keywords=_seeded(at))) for at, one in _single_rows(rows)])
    yield single("float16", [wire.call(sample_call(one, keywords=_seeded(at))) for at, one in _single_rows(half)])
    yield single("batch", [wire.call(sample_call(rows, params=[_seeded(at) for at in range(len(rows))]))])
    yield single("head", [wire.call(sample_call(one, keywords=_seeded(at), size=64)) for at, one in _single_rows(rows)])
    yield single("npy", [wire.post(_QUERY, _npy(one), NPY) for _, one in _single_rows(rows)])
    yield single("json", [wire.post("/v1/sample", {"logits": few, "params": dict(one)}) for one in _METHODS])
    yield single("methods", [wire.call(sample_call(rows[:2], keywords={**one, "seed": 1})) for one in _METHODS])
    yield single("gzip", [_gzipped(wire, few)])
    yield single("reports", _reports(wire, rows, few))
    yield single(
        "masked", [wire.call(sample_call(rows[:1], keywords=_seeded(0), beside={"mask": _mask(rows.shape[1])}))]
    )
    yield single("softmax", [wire.call(softmax_call(rows[:1], 0.8, kind)) for kind in ("softmax", "logsumexp")])
    yield single("v2 binary", [_infer(wire, one) for _, one in _single_rows(rows)])
    yield single("v2 json", [_infer_json(wire, one) for one in few])
    yield single("bad rows", [wire.call(sample_call(_bad(few), keywords=_seeded(0)))])
    yield single("traced", [wire.post("/v1/sample", {"logits": few}, traceparent=_TRACEPARENT)])
    yield draws(wire)


_QUERY = "/v1/sample?temperature=0.8&top_k=50&top_p=0.9&seed=1"
_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def draws(wire: Wire) -> Kind:
    """Return small bodies of costly work, many draws from a short row: what is measured is not this client."""
    body = {"logits": [[float(place % 7) for place in range(64)]], "params": {"seed": 1, "n": _DRAWS, "top_p": 0.9}}
    return single("draws", [wire.post("/v1/sample", body, x_request_timeout_ms=str(DEADLINE_MS))])


def shared(wire: Wire, region: str, vocab_size: int) -> Kind:
    """Return requests for the row that lies in a registered region of shared memory."""
    place = {"shared_memory_region": region, "shared_memory_byte_size": 4 * vocab_size}
    entry = {"name": "LOGITS", "shape": [1, vocab_size], "datatype": "FP32", "parameters": place}
    return single("shared memory", [wire.infer("sample", [entry], parameters={**_COMMON, "seed": 1})])


def _seeded(step: int) -> dict[str, Any]:
    return {**_COMMON, "seed": 1, "step": step}


def _single_rows(rows: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    return ((place, rows[place : place + 1]) for place in range(len(rows)))


def _npy(row: Rows) -> bytes:
    stream = io.BytesIO()
    np.save(stream, row)
    return stream.getvalue()


def _gzipped(wire: Wire, few: list[list[float]]) -> bytes:
    body = gzip.compress(json.dumps({"logits": few, "params": _seeded(0)}).encode())
    return wire.post("/v1/sample", body, content_encoding="gzip")


def _reports(wire: Wire, rows: Rows, few: list[list[float]]) -> list[bytes]:
    return [
        wire.call(sample_call(rows[:1], keywords=_seeded(0), logprobs=5)),
        wire.call(sample_call(rows[:1], keywords=_seeded(0), trace=True)),
        wire.post("/v1/sample", {"logits": few, "params": {"temperature": 0.8, "n": 8}, "dialect": "vllm"}),
    ]


def _mask(vocab_size: int) -> NDArray[np.int32]:
    """Return [1, ⌈V/32⌉] of which every second token is allowed."""
    return np.full((1, -(-vocab_size // 32)), 0x55555555, np.int32)


def _infer(wire: Wire, row: Rows) -> bytes:
    entry = {
        "name": "LOGITS",
        "shape": list(row.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": row.nbytes},
    }
    outputs = [
        {"name": name, "parameters": {"binary_data": True}} for name in ("TOKEN", "LOGPROB", "ENTROPY", "STATUS")
    ]
    return wire.infer("sample", [entry], row.tobytes(), outputs=outputs, parameters={**_COMMON, "seed": 1})


def _infer_json(wire: Wire, row: list[float]) -> bytes:
    entry = {"name": "LOGITS", "shape": [1, len(row)], "datatype": "FP32", "data": row}
    return wire.infer("sample", [entry], parameters={**_COMMON, "seed": 1})


def _bad(few: list[list[float]]) -> Rows:
    """Return a good row and one of each bad kind."""
    good = few[0]
    return np.array([good, [np.nan, *good[1:]], [np.inf, *good[1:]], [-np.inf] * len(good)], np.float32)
