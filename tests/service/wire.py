"""Requests as bytes, for tests that speak HTTP themselves."""

import json

import httpx
import numpy as np
from safetensors.numpy import load, save

SAFETENSORS = "application/vnd.safetensors"


def post(url, path, body, content_type="application/json", **headers):
    """POST raw bytes, or an object as JSON."""
    content = body if isinstance(body, (bytes, bytearray)) else json.dumps(body).encode()
    return httpx.post(f"{url}{path}", content=content, headers={"content-type": content_type, **headers}, timeout=60)


def post_tensors(url, path, tensors, request=None, **headers):
    """POST tensors as the safetensors library writes them."""
    return post(url, path, packed(tensors, request), SAFETENSORS, **headers)


def packed(tensors, request=None):
    """Return a safetensors body, metadata in `request`."""
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return save(arrays, {"request": json.dumps(request or {})})


def unpacked(response):
    """Return the tensors and the JSON rest of a safetensors answer, read by the safetensors library."""
    size = int.from_bytes(response.content[:8], "little")
    header = json.loads(response.content[8 : 8 + size])
    return load(response.content), json.loads(header["__metadata__"]["response"])


def sampled(url, logits, params=None, **fields):
    """Sample nested lists over JSON and return the rows."""
    response = post(url, "/v1/sample", {"logits": logits, "params": params or {}, **fields})
    assert response.status_code == 200, response.text
    return response.json()["rows"]


def head_of(logits, count, temperatures=(1.0,)):
    """Return the head form of rows [B, V] as tensors: the `count` largest in the total order, and log Z."""
    wide = np.asarray(logits, np.float64)
    order = np.array([np.lexsort((np.arange(len(row)), -row))[:count] for row in wide])
    log_z = np.stack([np.logaddexp.reduce(wide / t, axis=1) for t in temperatures], axis=1)
    return {
        "head_ids": order.astype(np.int64),
        "head_logits": np.take_along_axis(np.asarray(logits), order, 1),
        "log_z": log_z,
        "log_z_temperatures": np.array(temperatures),
        "head_finite_count": (wide > -np.inf).sum(1),
    }
