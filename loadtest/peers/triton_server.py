"""NVIDIA Triton Inference Server: model `sample` at `/v2`. `python -m loadtest.peers.triton_server PORT`.

Its dynamic batcher is on with its defaults, as its manual advises to begin with: it never waits for more requests, and
stacks those that came meanwhile.
"""

import sys
import tempfile
from typing import Any

import numpy as np
from loadtest.http.servers import free_port
from loadtest.peers.model import sample
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

_VOCAB, _MOST_ROWS = 128_256, 64
_LOOPBACK = "127.0.0.1"


@batch
def infer(LOGITS: Any) -> list[Any]:  # noqa: ANN401  (an array; it has the tensor's name)
    """Return a token a row."""
    return [sample(LOGITS)[:, None]]


def serve(port: int, workspace: str) -> None:
    """Serve until SIGTERM."""
    config = TritonConfig(
        http_address=_LOOPBACK, http_port=port, grpc_address=_LOOPBACK, grpc_port=free_port(), allow_metrics=False
    )
    with Triton(config=config, workspace=workspace) as triton:
        triton.bind(
            model_name="sample",
            infer_func=infer,
            inputs=[Tensor(name="LOGITS", dtype=np.float32, shape=(_VOCAB,))],
            outputs=[Tensor(name="TOKEN", dtype=np.int32, shape=(1,))],
            config=ModelConfig(max_batch_size=_MOST_ROWS, batcher=DynamicBatcher()),
        )
        triton.serve()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        serve(int(sys.argv[1]), f"{folder}/workspace")
