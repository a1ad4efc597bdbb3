"""What is asked of the servers: bodies of two sizes, a head form, and nothing at all."""

import json
from dataclasses import dataclass

import numpy as np
from loadtest.http.client import Load, get, post
from loadtest.http.regions import infer
from loadtest.kernels.rows import pool
from numpy.typing import NDArray

Rows = NDArray[np.float32]  # [B, V]

VOCAB = 128_256
HEAD = 64
PARAMS = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "seed": 1}
SAFETENSORS = "application/vnd.safetensors"
ROWS = (1, 8)
_MANY = 64  # rows that an engine decodes in step


@dataclass(frozen=True)
class Case:
    """One kind of request.

    Attributes:
        name: as in the table.
        server: who is asked, by its name in the bench.
        path: of the route.
        body: None for a GET.
        content_type: of the body.
        rows: in the body.
    """

    name: str
    server: str
    path: str
    body: bytes | None = None
    content_type: str = SAFETENSORS
    rows: int = 1

    def load(self, address: tuple[str, int]) -> Load:
        """Return it for a server at an address."""
        if self.body is None:
            return Load(address, get(self.path))
        return Load(address, post(self.path, self.body, self.content_type, accept=SAFETENSORS))


def peaked(rows: int) -> Rows:
    """Return [rows, V] logits, the same in every run, to be read only."""
    logits: Rows = pool("peaked", rows, VOCAB)[:rows].numpy()
    return np.ascontiguousarray(logits)


def packed(logits: Rows) -> bytes:
    """Return the safetensors body that samples some rows."""
    from safetensors.numpy import save

    return bytes(save({"logits": logits}, {"request": json.dumps({"params": PARAMS})}))


def dense(rows: int) -> bytes:
    """Return the safetensors body of some peaked float32 rows."""
    return packed(peaked(rows))


def head(rows: int = 1) -> bytes:
    """Return the head form of some peaked rows."""
    from safetensors.numpy import save

    logits = peaked(rows)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :HEAD]
    log_z = np.log(np.exp(logits.astype(np.float64)).sum(1))
    scaled = np.log(np.exp(logits.astype(np.float64) / PARAMS["temperature"]).sum(1))
    tensors = {
        "head_ids": order.astype(np.int32),
        "head_logits": np.take_along_axis(logits, order, 1),
        "log_z": np.stack([log_z, scaled], 1),
        "log_z_temperatures": np.array([1.0, PARAMS["temperature"]]),
    }
    return bytes(save(tensors, {"request": json.dumps({"params": PARAMS, "vocab_size": VOCAB})}))


def row() -> bytes:
    """Return the one row that lies in shared memory."""
    return peaked(1).tobytes()


def in_memory(region: str) -> Case:
    """Return the case whose row lies in a registered region: nothing but its name goes over the wire."""
    body = infer(region, VOCAB, 4 * VOCAB, PARAMS)
    return Case("shared memory", "logitd", "/v2/models/sample/infer", body, "application/json")


def cases() -> list[Case]:
    """Return everything that is measured on this machine's own code."""
    found = [Case("GET /health/live", "logitd", "/health/live"), Case("head form", "logitd", "/v1/sample", head())]
    found.append(Case(f"head form, {_MANY} rows", "logitd", "/v1/sample", head(_MANY), rows=_MANY))
    for rows in ROWS:
        body = dense(rows)
        size = f"{len(body) / 1e3:,.0f} kB"
        found += [
            Case(f"drain {size}", "stock", "/", body, rows=rows),
            Case(f"drain {size}", "protocol", "/", body, rows=rows),
            Case(f"sample {size}", "logitd", "/v1/sample", body, rows=rows),
        ]
    return found
