"""What the clients receive for streaming sessions: answers into data, without any I/O."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitd.client.arrays import own_array
from logitd.client.reading import Json, decode, reading
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

Output = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Standing:
    """Where a session stands: steps taken, tokens taken in, bytes kept."""

    step: int
    tokens: int
    state_bytes: int

    @classmethod
    def of(cls, told: Json) -> "Standing":
        """Take it out of an answer, which may say more."""
        return cls(int(told["step"]), int(told["tokens"]), int(told["state_bytes"]))


@dataclass(frozen=True)
class Opened:
    """A session that was opened: its id, and where it stands."""

    id: str
    standing: Standing


@dataclass(frozen=True, eq=False)
class Step:
    """The answer to tokens: what their queries found, None without queries; and where the session stands now."""

    output: Output | None
    standing: Standing


def read_opened(body: bytes) -> Opened:
    """Read the JSON answer of /v1/attention/sessions, or of its import.

    Raises:
        UnexpectedAnswer.
    """
    with reading("session"):
        told = json.loads(body)
        return Opened(str(told["id"]), Standing.of(told))


def read_shown(body: bytes) -> Json:
    """Read the JSON that tells of a session, and leave it as it is.

    Raises:
        UnexpectedAnswer.
    """
    with reading("session"):
        return dict(json.loads(body))


def read_step(body: bytes, *, several: bool) -> Step:
    """Read the safetensors answer to an append.

    Args:
        body: of the answer.
        several: whether the tensors sent had a dimension for tokens; where not, the output has none.
    Raises:
        UnexpectedAnswer.
    """
    with reading("append"):
        tensors, response = decode(body)
        output = _output(tensors["output"], several) if "output" in tensors else None
        return Step(output, Standing.of(response))


def read_query(body: bytes, *, several: bool) -> Output:
    """Read the safetensors answer to a query; the arguments are those of `read_step`.

    Raises:
        UnexpectedAnswer.
    """
    with reading("query"):
        tensors, _ = decode(body)
        return _output(tensors["output"], several)


def read_export(body: bytes) -> bytes:
    """Return an export, which is a file; that nothing of it is missing is looked at, and what it says is not.

    Raises:
        UnexpectedAnswer.
    """
    with reading("export"):
        safetensors.decode(body)
        return body


def read_nothing(body: bytes) -> None:
    """Read the answer to a deletion, which is empty."""


def _output(tensor: Tensor, several: bool) -> Output:
    output = own_array(tensor)
    if output.ndim != 3 or not (several or output.shape[1] == 1):
        raise ValueError(f"output has shape {list(output.shape)}")
    return output if several else output[:, 0]
