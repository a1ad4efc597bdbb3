"""MLServer: model `sample` over gRPC. `python -m loadtest.peers.mlserver_server PORT`.

The rows come as a tensor of BYTES, an element a row: out of any other datatype MLServer makes a list of Python numbers.
It computes in its own process: workers of MLServer 1.7.1 do not start here (no current event loop).
"""

import asyncio
import sys

import numpy as np
from loadtest.http.servers import free_port
from loadtest.peers.model import sample
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

_MOST_BYTES = 1 << 27


class Sampler(MLModel):  # type: ignore[misc]
    """Rows in, tokens out."""

    async def load(self) -> bool:
        """Load nothing."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Return a token a row."""
        rows = np.stack([np.frombuffer(row, np.float32) for row in payload.inputs[0].data])
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("TOKEN", sample(rows)[:, None])]
        )


async def serve(port: int) -> None:
    """Serve until SIGTERM."""
    settings = Settings(
        host="127.0.0.1",
        http_port=free_port(),
        grpc_port=port,
        grpc_max_message_length=_MOST_BYTES,
        metrics_endpoint=None,
        parallel_workers=0,
        debug=False,
    )
    await MLServer(settings).start([ModelSettings(name="sample", implementation=Sampler)])


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
