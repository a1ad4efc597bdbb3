"""What the clients send to score tokens, and how they read the answer; nothing here does I/O."""

import math
from typing import Any

import numpy as np

from logitd.client.arrays import rows_of, tensor_of
from logitd.client.call import sample_request
from logitd.client.reading import decode, reading
from logitd.client.request import BINARY, Call, body_of
from logitd.client.results import RowError
from logitd.client.score_results import ScoreResult
from logitd.wire.tensor import Tensor

_COLUMNS = ("target", "logprob_raw", "logprob", "rank", "entropy")
_LOSSES = ("cross_entropy", "perplexity", "cross_entropy_raw", "perplexity_raw")
_FIELDS = ("params", "dialect", "order", "vocab_size")


def score_call(logits: object, targets: object, *, gradient: bool, **asked: Any) -> Call[ScoreResult]:  # noqa: ANN401
    """Build POST /v1/score; the arguments are those of `Client.score`, `asked` for `sample_request`.

    Raises:
        TypeError, ValueError: tensors or parameters that cannot be sent at all; the service judges the rest.
    """
    sample = sample_request(rows_of(logits), **asked)
    fields = {name: value for name, value in sample.fields.items() if name in _FIELDS}
    tensors = {**sample.tensors, "targets": _ids(targets)}
    return Call("POST", "/v1/score", BINARY, body_of(tensors, {**fields, "gradient": gradient}), True, read_score)


def read_score(body: bytes) -> ScoreResult:
    """Read the safetensors answer of /v1/score.

    Raises:
        UnexpectedAnswer.
    """
    with reading("score"):
        tensors, response = decode(body)
        columns: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
        if {len(column) for column in columns.values()} != {len(response["rows"])}:
            raise ValueError(f"the tensors do not have {len(response['rows'])} rows")
        unknown = math.inf if response["tokens"] else math.nan  # JSON has neither
        losses: dict[str, Any] = {name: unknown if response[name] is None else response[name] for name in _LOSSES}
        return ScoreResult(
            **{name: columns[name] for name in _COLUMNS},
            gradient=columns.get("gradient"),
            **losses,
            tokens=response["tokens"],
            errors=[None if (e := row["error"]) is None else RowError(**e) for row in response["rows"]],
            backend=response["backend"],
            effective=response["effective"],
            seconds=response["seconds"],
        )


def _ids(targets: object) -> Tensor:
    """View target ids as [B]; a number is one row, and nested lists, empty ones too, are I64."""
    ids = tensor_of(np.asarray(targets, dtype=np.int64) if isinstance(targets, (int, list, tuple)) else targets)
    return Tensor(ids.dtype, (1,), ids.data) if ids.shape == () else ids
