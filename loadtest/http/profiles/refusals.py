"""What a service must refuse, with the refusals that it must answer: each counts as a success of its kind."""

from collections.abc import Iterator, Sequence

import numpy as np
from loadtest.http.profiles.attending import LONG, attend, heads
from loadtest.http.profiles.kinds import Kind, single
from loadtest.http.profiles.record import LEFT
from loadtest.http.profiles.requests import SAFETENSORS, Wire

from logitd.client.call import sample_call

_GOOD = {"logits": [[0.5, 3, 1, 2.5]], "params": {"seed": 1}}
_TOO_LARGE_BYTES = 1 << 50
_LEAVE_SECONDS = 0.01


def kinds(wire: Wire) -> Iterator[Kind]:
    """Yield them all."""
    for name, expected, requests in (
        ("malformed", {400}, [wire.post("/v1/sample", b"{"), wire.post("/v1/sample", b"\0" * 8, SAFETENSORS)]),
        ("impossible", {422}, _impossible(wire)),
        ("unknown type", {415}, [wire.post("/v1/sample", b"x", "text/plain")]),
        ("not there", {404}, [wire.get("/nowhere"), wire.get("/v1/attention/sessions/none")]),
        ("wrong method", {405}, [wire.get("/v1/sample")]),
        ("too large", {413}, [wire.post("/v1/sample", b"", content_length=str(_TOO_LARGE_BYTES))]),
        ("wrong key", {200, 401}, [Wire("wrong").post("/v1/sample", _GOOD)]),  # 200 where no keys are set
        ("unknown region", {400, 404, 501}, _unknown_region(wire)),
        ("deadline", {429, 504}, [_late(wire)]),
        ("slow body", {408}, [wire.post("/v1/sample", b"", content_length="9")]),
    ):
        yield single(name, requests, frozenset(expected))
    left = frozenset({200, LEFT})  # 200 where the answer was faster
    yield single("leaves", _left(wire), left, _LEAVE_SECONDS)


def _impossible(wire: Wire) -> Sequence[bytes]:
    flat = np.zeros((1, 1000), np.float32)
    return [
        wire.post("/v1/sample", {**_GOOD, "params": {"top_p": 2}}),
        wire.post("/v1/sample", {"logits": [[None, None]]}),
        wire.call(sample_call(flat, keywords={"seed": 1}, size=1)),  # what was not sent could have been drawn
    ]


def _unknown_region(wire: Wire) -> Sequence[bytes]:
    place = {"shared_memory_region": "nowhere", "shared_memory_byte_size": 16}
    entry = {"name": "LOGITS", "shape": [1, 4], "datatype": "FP32", "parameters": place}
    memory = {"key": "/logitd-loadtest-nowhere", "offset": 0, "byte_size": 16}
    return [wire.infer("sample", [entry]), wire.post("/v2/systemsharedmemory/region/nowhere/register", memory)]


def _late(wire: Wire) -> bytes:
    """Return work of much more than its millisecond."""
    return attend(wire, heads(LONG), {"x_request_timeout_ms": "1"}, mode="exact")


def _left(wire: Wire) -> Sequence[bytes]:
    """Return a body that stays half said, and work that takes longer than the client stays."""
    whole = wire.post("/v1/sample", b" " * 1000)
    return [whole[:-500], attend(wire, heads(LONG), mode="exact")]
