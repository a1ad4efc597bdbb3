"""Requests as they go over the wire."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.http.client import request

from logitd.client.request import Call

JSON = "application/json"
SAFETENSORS = "application/vnd.safetensors"
NPY = "application/x-npy"


@dataclass(frozen=True)
class Wire:
    """Writes requests to one service.

    Attributes:
        api_key: that every request brings; None for a service that asks for none.
    """

    api_key: str | None = None

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        """Return a request with the key; a POST declares its length unless the headers do."""
        keyed = headers if self.api_key is None else {**headers, "x-api-key": self.api_key}
        return request(method, path, keyed, body)

    def call(self, call: Call[Any], **headers: str) -> bytes:
        """Return what a client of ours would send; `_` in names of headers stands for `-`."""
        return self.request(call.method, call.path, {**call.headers, **headers}, bytes(call.body))

    def get(self, path: str) -> bytes:
        """Return a GET."""
        return self.request("GET", path, {})

    def post(self, path: str, body: object, content_type: str = JSON, **headers: str) -> bytes:
        """Return a POST of bytes, or of an object as JSON."""
        content = bytes(body) if isinstance(body, (bytes, bytearray)) else json.dumps(body).encode()
        return self.request("POST", path, {"content-type": content_type, **headers}, content)

    def infer(self, model: str, entries: list[dict[str, Any]], data: bytes = b"", **fields: Any) -> bytes:  # noqa: ANN401
        """Return an infer request of Open Inference Protocol: binary where there are data behind the JSON."""
        head = json.dumps({"inputs": entries, **fields}).encode()
        headers = {"inference-header-content-length": str(len(head))} if data else {}
        return self.request("POST", f"/v2/models/{model}/infer", headers, head + data)
