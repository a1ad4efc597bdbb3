"""The client of MLServer, over gRPC with its own stubs. Runs in its environment; `loadtest.peers.askers` starts it.

    python -m loadtest.peers.mlserver_client HOST:PORT ROWS.npy CONNECTIONS SECONDS

Prints what came of it as JSON: the tokens of one answer, how many requests, their latencies and the seconds in all.
"""

import json
import struct
import sys
import threading
import time
from typing import Any

import grpc
import numpy as np
from mlserver.grpc import dataplane_pb2 as messages
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub

_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def request(rows: Any) -> Any:  # noqa: ANN401  (NumPy's and protobuf's types)
    """Return the message that samples [B, V] float32 rows, each an element of bytes."""
    logits = messages.ModelInferRequest.InferInputTensor(name="LOGITS", datatype="BYTES", shape=[len(rows)])
    packed = b"".join(struct.pack("<I", row.nbytes) + row.tobytes() for row in rows)
    return messages.ModelInferRequest(model_name="sample", inputs=[logits], raw_input_contents=[packed])


def run(address: str, asked: Any, seconds: float, latencies: list[float]) -> None:  # noqa: ANN401
    """Send over one connection for a while, each request when the last is answered."""
    with grpc.insecure_channel(address, _OPTIONS) as channel:
        infer = GRPCInferenceServiceStub(channel).ModelInfer
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            infer(asked)
            latencies.append(time.perf_counter() - began)


def main() -> None:
    """Ask once, then over and over."""
    address, path, connections, seconds = sys.argv[1:]
    asked, latencies = request(np.load(path)), list[float]()
    with grpc.insecure_channel(address, _OPTIONS) as channel:
        answer = GRPCInferenceServiceStub(channel).ModelInfer(asked)
    tokens = np.frombuffer(answer.raw_output_contents[0], np.int32).tolist()
    began = time.perf_counter()
    arguments = (address, asked, float(seconds), latencies)
    threads = [threading.Thread(target=run, args=arguments) for _ in range(int(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - began
    print(json.dumps({"tokens": tokens, "requests": len(latencies), "seconds": spent, "latencies_seconds": latencies}))


if __name__ == "__main__":
    main()
