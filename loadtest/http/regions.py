"""Rows in shared memory, for the Open Inference Protocol's system shared memory."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from loadtest.http.client import Address, ask, connected, post

_PLACE = Path("/dev/shm")  # what the protocol calls system shared memory


@contextlib.contextmanager
def shared(address: Address, rows: bytes, **headers: str) -> Iterator[str]:
    """Put bytes into a region and register it; yields its name. Headers are `post`'s."""
    name = f"logitd-bench-{os.getpid()}"
    path = _PLACE / name
    path.write_bytes(rows)
    path.chmod(0o600)
    try:
        with connected(address) as connection:
            body = json.dumps({"key": f"/{name}", "offset": 0, "byte_size": len(rows)}).encode()
            ask(connection, post(f"/v2/systemsharedmemory/region/{name}/register", body, "application/json", **headers))
        yield name
    finally:
        path.unlink()


def infer(region: str, vocab: int, byte_size: int, parameters: dict[str, float]) -> bytes:
    """Return the body of a request that samples the one row of a region."""
    place = {"shared_memory_region": region, "shared_memory_byte_size": byte_size}
    logits = {"name": "LOGITS", "shape": [1, vocab], "datatype": "FP32", "parameters": place}
    outputs = [{"name": "TOKEN"}, {"name": "LOGPROB"}, {"name": "STATUS"}]
    return json.dumps({"inputs": [logits], "outputs": outputs, "parameters": parameters}).encode()
