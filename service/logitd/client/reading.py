"""What every answer is read with: the safetensors form, and any fault in an answer as one error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logitd.errors import Malformed, UnexpectedAnswer
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

Json = dict[str, Any]


def decode(body: bytes) -> tuple[dict[str, Tensor], Json]:
    """Return the tensors of a safetensors answer, as views into it, and the rest; use it within `reading`."""
    tensors, metadata = safetensors.decode(body)
    return tensors, dict(json.loads(metadata["response"]))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever a malformed answer makes Python raise into one error that says which answer it was.

    Raises:
        UnexpectedAnswer.
    """
    try:
        yield
    except (Malformed, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UnexpectedAnswer(f"the {what} answer cannot be read: {reason}") from error
