"""LitServe: POST `/predict?vocab=V`, the raw rows as body. `python -m loadtest.peers.litserve_server PORT`.

Its faster queue is on (`fast_queue`), and a worker a core, each on one thread.
"""

import os
import sys
from typing import Annotated, Any

import litserve
import numpy as np
import torch
from fastapi import Depends, Request, Response
from loadtest.peers.model import sample


async def raw(request: Request) -> tuple[bytes, int]:
    """Return the body and the vocabulary size."""
    return await request.body(), int(request.query_params["vocab"])


class Sampler(litserve.LitAPI):  # type: ignore[misc]
    """Rows in, tokens out."""

    def setup(self, device: str) -> None:
        """Run in each worker, once."""
        torch.set_num_threads(1)

    # By itself LitServe reads JSON and multipart alone; a dependency of FastAPI hands it the body as it came.
    def decode_request(self, request: Annotated[tuple[bytes, int], Depends(raw)]) -> Any:  # noqa: ANN401
        """Return the [B, V] rows of a body."""
        body, vocab = request
        return np.frombuffer(bytearray(body), np.float32).reshape(-1, vocab)

    def predict(self, x: Any) -> Any:  # noqa: ANN401
        """Return a token a row."""
        return sample(x)

    def encode_response(self, output: Any) -> Response:  # noqa: ANN401
        """Return the tokens as they lie in memory."""
        return Response(output.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    server = litserve.LitServer(Sampler(), accelerator="cpu", workers_per_device=os.cpu_count() or 1, fast_queue=True)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
