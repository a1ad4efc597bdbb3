"""An append is done wholly or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

from logitd_kernels.attention.streams.stream import Stream


@contextmanager
def whole(stream: Stream, tokens: int) -> Iterator[None]:
    """Put a stream back to what it was, if taking in so many tokens fails.

    Only fitting coordinates depends on more than shapes, so only an append that comes to it is worth a copy: one in the
    life of a stream.
    """
    before = deepcopy(vars(stream)) if stream.calibrates(tokens) else None
    try:
        yield
    except Exception:
        if before is not None:
            vars(stream).update(before)
        raise
