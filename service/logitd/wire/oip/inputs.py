"""One input of an infer request: its shape and datatype, and where its elements are."""

from collections.abc import Callable
from dataclasses import dataclass

from logitd.errors import Malformed
from logitd.wire.oip.datatypes import DTYPES, from_json
from logitd.wire.oip.entries import Json, Parameter, SharedPlace, natural, parameters_of, place_of
from logitd.wire.tensor import ITEM_BYTES, Tensor

_MAX_RANK = 8
_MAX_SPAN = 1 << 60


@dataclass(frozen=True)
class Input:
    """An input: its elements in the body, or a place in shared memory that holds them."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: Tensor | SharedPlace

    def tensor(self, read: Callable[[SharedPlace], memoryview]) -> Tensor:
        """Return the tensor; `read` returns what is at a place in shared memory."""
        if isinstance(self.content, Tensor):
            return self.content
        return Tensor(DTYPES[self.datatype], self.shape, read(self.content))


def input_of(name: str, entry: Json, path: str, data: memoryview) -> tuple[Input, int]:
    """Read an entry of `inputs`.

    Args:
        name: of the input.
        entry: from the header.
        path: of the entry.
        data: what of the body no earlier input has taken.
    Returns:
        The input, and how many bytes of `data` are its own.
    Raises:
        Malformed: naming what is missing, contradictory or impossible.
    """
    datatype = entry.get("datatype")
    if not isinstance(datatype, str) or datatype not in DTYPES:
        raise Malformed.at(f"{path}.datatype", f"expected one of {', '.join(DTYPES)}")
    shape, needed = _shape(entry.get("shape"), path, ITEM_BYTES[DTYPES[datatype]])
    parameters = parameters_of(entry.get("parameters"), f"{path}.parameters")
    _one_source(entry, parameters, path)
    if "data" in entry:
        return Input(name, datatype, shape, from_json(entry["data"], datatype, shape, f"{path}.data")), 0
    if (place := place_of(parameters, path)) is not None:
        _check_size(needed, place.byte_size, datatype, shape, f"{path}.parameters.shared_memory_byte_size")
        return Input(name, datatype, shape, place), 0
    size = natural(parameters["binary_data_size"], f"{path}.parameters.binary_data_size")
    _check_size(needed, size, datatype, shape, f"{path}.parameters.binary_data_size")
    if size > len(data):
        raise Malformed.at(
            path, f"unexpected size for input '{name}', expecting {size - len(data)} additional bytes of binary data"
        )
    return Input(name, datatype, shape, Tensor(DTYPES[datatype], shape, data[:size])), size


def _shape(value: object, path: str, item_bytes: int) -> tuple[tuple[int, ...], int]:
    """Return the shape, and how many bytes a tensor of it has."""
    if not isinstance(value, list) or len(value) > _MAX_RANK:
        raise Malformed.at(f"{path}.shape", f"expected a list of at most {_MAX_RANK} dimensions")
    needed, span = item_bytes, item_bytes
    for dimension in value:
        if type(dimension) is not int or not 0 <= dimension < 1 << 63:
            raise Malformed.at(f"{path}.shape", "contains one or more invalid dimensions")
        needed *= dimension
        span *= max(dimension, 1)
        if span >= _MAX_SPAN:  # that nothing is in it does not help: strides are still computed
            raise Malformed.at(f"{path}.shape", "causes total element count to exceed maximum")
    return tuple(value), needed


def _one_source(entry: Json, parameters: dict[str, Parameter], path: str) -> None:
    sources = [f"{path}.data"] if "data" in entry else []
    sources += [
        f"{path}.parameters.{name}" for name in ("binary_data_size", "shared_memory_region") if name in parameters
    ]
    if len(sources) > 1:
        raise Malformed.at(sources[1], f"contradicts {sources[0]}: set only one of them")
    if not sources and not any(name.startswith("shared_memory") for name in parameters):
        raise Malformed.at(
            path, "has no elements: set data, parameters.binary_data_size or parameters.shared_memory_region"
        )


def _check_size(needed: int, size: int, datatype: str, shape: tuple[int, ...], path: str) -> None:
    if size != needed:
        raise Malformed.at(path, f"{datatype} of shape {list(shape)} takes {needed} bytes, got {size}")
