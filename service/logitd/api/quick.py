"""The shortest way to the job asked for most: rows of logits with one set of plain parameters, as savers write it.

What is not exactly that, and whatever is wrong with it, is left to the general way, which says so: `wire.message`, then
`requests`. Tests hold one against the other.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from logitd.api.requests import SampleJob
from logitd.api.schemas import SampleFields
from logitd.api.tensors import TORCH
from logitd.settings import Settings
from logitd.wire.json import canonical
from logitd.wire.message import Message
from logitd.wire.safetensors import ENTRY
from logitd_kernels import check
from logitd_kernels.errors import ParameterError
from logitd_kernels.hot import PlainRows
from logitd_kernels.rows import DTYPES
from logitd_kernels.sampling.plain import PLAIN
from logitd_kernels.sampling.transform import Values

MESSAGE = Message({}, {}, "safetensors")  # in whose words such a job is refused
FLOATS = {name: dtype for name, dtype in TORCH.items() if dtype in DTYPES}  # what logits may be

_LONGEST_HEADER_BYTES = 4096
_HEADER, _METADATA, _REQUEST = {"__metadata__", "logits"}, {"request"}, {"params"}
_INTEGERS = {int}
_FIELDS = SampleFields()


def quick_job(body: memoryview, settings: Settings) -> SampleJob | None:
    """Return the job in a safetensors body; None where it takes the general way.

    Args:
        body: all of it; the job keeps it.
        settings: for the limits.
    """
    size = int.from_bytes(body[:8], "little")
    header = canonical(bytes(body[8 : 8 + size])) if size <= _LONGEST_HEADER_BYTES else None
    if header is None or header.keys() != _HEADER:
        return None
    rows = _rows(header["logits"], body, 8 + size)
    params = _params(header["__metadata__"])
    if rows is None or params is None or not fits(rows.rows, rows.vocab_size, settings):
        return None
    values = plain_values(params)
    return None if values is None else plain_job(rows, values)


def fits(rows: int, vocab_size: int, settings: Settings) -> bool:
    """Whether there are rows, and no more than may be."""
    return 0 < rows <= min(settings.max_rows, settings.max_draws) and 0 < vocab_size <= settings.max_vocab_size


def plain_values(params: Mapping[str, Any]) -> Values | None:
    """Return checked parameters; None where one is wrong, or not plain."""
    try:
        return check(params) if params.keys() <= PLAIN else None
    except ParameterError:
        return None


def plain_job(rows: PlainRows, values: Values) -> SampleJob:
    """Return the job of some rows that all have the same parameters."""
    return SampleJob(rows, [values] * rows.rows, values, _FIELDS)


def _rows(entry: Any, body: memoryview, begin: int) -> PlainRows | None:  # noqa: ANN401
    try:
        (rows, vocab_size), offsets = entry["shape"], entry["data_offsets"]
        dtype = FLOATS[entry["dtype"]]
        types = {type(rows), type(vocab_size), *map(type, offsets)}
    except (KeyError, TypeError, ValueError):
        return None
    if types != _INTEGERS or entry.keys() != ENTRY:  # True is 1, and no number here
        return None
    item_bytes, end = dtype.itemsize, len(body) - begin
    whole = offsets == [0, end] and rows * vocab_size * item_bytes == end
    return PlainRows(body, begin, dtype, rows, vocab_size) if whole and begin % item_bytes == 0 else None


def _params(metadata: Any) -> Mapping[str, Any] | None:  # noqa: ANN401
    try:
        request = orjson.loads(metadata["request"])
        params = request["params"]
        if metadata.keys() == _METADATA and request.keys() == _REQUEST and isinstance(params, dict):
            return params
    except (AttributeError, KeyError, TypeError, ValueError):
        pass  # the general way says what is wrong
    return None
