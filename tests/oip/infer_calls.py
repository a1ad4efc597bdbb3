"""Infer requests, as tritonclient makes them and as bytes."""

import json

import httpx
import numpy as np
import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype

ROWS = np.random.default_rng(5).normal(0, 3, (5, 97)).astype(np.float32)
HTTP = httpx.Client(timeout=60)
LENGTH = "inference-header-content-length"


def tensor(name, array, binary=True, datatype=None):
    """Return an input with an array's elements."""
    one = triton.InferInput(name, list(array.shape), datatype or np_to_triton_dtype(array.dtype))
    one.set_data_from_numpy(array, binary_data=binary)
    return one


def ask(client, model, arrays, outputs=None, binary=True, **parameters):
    """Infer; arrays by the names of inputs."""
    inputs = [tensor(name, array, binary) for name, array in arrays.items()]
    assert binary or outputs, "without outputs the client asks for binary ones"
    wanted = outputs and [triton.InferRequestedOutput(name, binary_data=binary) for name in outputs]
    return client.infer(model, inputs, outputs=wanted, parameters=parameters or None)


def header(*inputs, outputs=None, **fields):
    """Return the JSON header of a request."""
    return {"inputs": list(inputs), **({} if outputs is None else {"outputs": outputs}), **fields}


def entry(name="LOGITS", shape=(1, 3), datatype="FP32", **fields):
    """Return an entry of `inputs`; its parameters are given, or the size of its binary data."""
    if "data" not in fields and "parameters" not in fields:
        fields["parameters"] = {"binary_data_size": int(np.prod(shape)) * 4}
    return {"name": name, "shape": list(shape), "datatype": datatype, **fields}


def post(url, head, data=b"", model="sample", length=None, **headers):
    """POST a request as bytes; `length` is what its header field says, False for none."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    if length is not False:
        headers[LENGTH] = str(len(text) if length is None else length)
    return HTTP.post(f"{url}/v2/models/{model}/infer", content=text + data, headers=headers)


def refused(response, status, *words):
    """Check that a problem document refuses a request, and says these words."""
    assert response.status_code == status, response.text
    problem = response.json()
    assert problem["status"] == status
    assert isinstance(problem["error"], str)
    for word in words:
        assert word in problem["error"], problem["error"]
