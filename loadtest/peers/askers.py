"""How each server is asked for a token a row of the same float32 rows, and how its answer is read."""

import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from loadtest.http.cases import SAFETENSORS, VOCAB, Rows, packed
from loadtest.http.client import Load, NotAnsweredError, Result, ask, closed_loop, connected, post
from loadtest.peers.environments import Environment

Address = tuple[str, int]


class Asker(Protocol):
    """Asks one server for the tokens of some rows."""

    def tokens(self) -> list[int]:
        """Ask once.

        Raises:
            NotAnsweredError, OSError: the server did not answer.
        """

    def run(self, connections: int, seconds: float) -> Result:
        """Ask over and over, from some connections, each as soon as it is answered."""


@dataclass(frozen=True)
class Http:
    """Over HTTP, by the client that everyone has.

    Attributes:
        load: the request.
        read: takes the tokens out of an answer.
    """

    load: Load
    read: Callable[[bytes], list[int]]

    def tokens(self) -> list[int]:
        """Ask once."""
        with connected(self.load.address) as connection:
            return self.read(ask(connection, self.load.request))

    def run(self, connections: int, seconds: float) -> Result:
        """Ask over and over."""
        return closed_loop(self.load, connections, seconds)


class Grpc:
    """Over gRPC, by a client in the peer's environment."""

    def __init__(self, environment: Environment, address: Address, rows: Rows) -> None:
        self._command = [str(environment.python), "-m", f"loadtest.peers.{environment.name}_client"]
        self._address = f"{address[0]}:{address[1]}"
        self._rows = rows

    def tokens(self) -> list[int]:
        """Ask once."""
        return list(self._ran(1, 0)["tokens"])

    def run(self, connections: int, seconds: float) -> Result:
        """Ask over and over."""
        found = self._ran(connections, seconds)
        return Result(found["requests"], found["seconds"], found["latencies_seconds"])

    def _ran(self, connections: int, seconds: float) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npy"
            np.save(path, self._rows)
            words = [self._address, str(path), str(connections), str(seconds)]
            done = subprocess.run([*self._command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotAnsweredError(done.stderr[-300:])
        return dict(json.loads(done.stdout))


def logitd(address: Address, rows: Rows) -> Asker:
    """Return who asks logitd at `/v1/sample`."""
    from safetensors.numpy import load

    request = post("/v1/sample", packed(rows), SAFETENSORS, accept=SAFETENSORS)
    return Http(Load(address, request), lambda answer: load(answer)["token"].ravel().tolist())


def triton(address: Address, rows: Rows) -> Asker:
    """Return who asks a Triton Inference Server, in its protocol's binary form both ways."""
    size = {"binary_data_size": rows.nbytes}
    logits = {"name": "LOGITS", "shape": list(rows.shape), "datatype": "FP32", "parameters": size}
    wanted = {"name": "TOKEN", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [logits], "outputs": [wanted]}).encode()
    headers = {"inference_header_content_length": str(len(head))}
    request = post("/v2/models/sample/infer", head + rows.tobytes(), "application/octet-stream", **headers)
    return Http(Load(address, request), lambda answer: _last(answer, len(rows)))


def litserve(address: Address, rows: Rows) -> Asker:
    """Return who asks LitServe, with nothing but numbers in the bodies."""
    request = post(f"/predict?vocab={VOCAB}", rows.tobytes(), "application/octet-stream")
    return Http(Load(address, request), lambda answer: _last(answer, len(rows)))


def mlserver(address: Address, rows: Rows) -> Asker:
    """Return who asks MLServer: its REST API reads numbers as text alone."""
    return Grpc(Environment("mlserver"), address, rows)


def _last(answer: bytes, count: int) -> list[int]:
    tokens: list[int] = np.frombuffer(answer[-4 * count :], np.int32).tolist()
    return tokens
