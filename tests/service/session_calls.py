"""Sessions over HTTP, as tests use them."""

import numpy as np
from wire import SAFETENSORS, post, post_tensors, unpacked

PATH = "/v1/attention/sessions"
BINARY = {"accept": SAFETENSORS}
H, D = 2, 8


def sequence(tokens, heads=H, dim=D, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((heads, tokens, dim)).astype(np.float32) for _ in range(3))


def opened(url, **fields):
    response = post(url, PATH, {"heads": H, "dim": D, "method": "exact", **fields})
    assert response.status_code == 201, response.text
    return response.json()["id"]


def appended(url, session, k, v, q=None, **fields):
    tensors = {"k": k, "v": v} | ({} if q is None else {"q": q})
    response = post_tensors(url, f"{PATH}/{session}/append", tensors, fields, **BINARY)
    assert response.status_code == 200, response.text
    found, state = unpacked(response)
    return found.get("output"), state


def asked(url, session, q):
    response = post_tensors(url, f"{PATH}/{session}/query", {"q": q}, **BINARY)
    assert response.status_code == 200, response.text
    return unpacked(response)[0]["output"]
