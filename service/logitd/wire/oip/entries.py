"""What the JSON header of an infer request consists of: named entries, parameters, places in shared memory."""

from dataclasses import dataclass
from typing import Any

from logitd.errors import Malformed

Json = dict[str, Any]
Parameter = str | int | float | bool

MAX_ENTRIES = 32  # inputs, and outputs, of one request
_MAX_PARAMETERS = 64
_MAX_NAME = 200
_UINT64 = 1 << 64
_SHARED = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")


@dataclass(frozen=True)
class SharedPlace:
    """Bytes in a registered region."""

    region: str
    offset: int
    byte_size: int
    path: str  # of the entry that names it


@dataclass(frozen=True)
class WantedOutput:
    """An output that the caller lists, and how it is to come.

    Attributes:
        name: of the output.
        path: of its entry in the header.
        binary: whether as binary data; None leaves it to the request's default.
        place: where in shared memory to put it; None is the answer's body.
    """

    name: str
    path: str
    binary: bool | None = None
    place: SharedPlace | None = None

    @classmethod
    def of(cls, name: str, entry: Json, path: str) -> "WantedOutput":
        """Read an entry of `outputs`.

        Raises:
            Malformed: contradictory parameters, or classification, which no output here has.
        """
        parameters = parameters_of(entry.get("parameters"), f"{path}.parameters")
        if parameters.get("classification"):
            raise Malformed.at(f"{path}.parameters.classification", "is not supported: outputs are no class scores")
        binary = parameters.get("binary_data")
        if binary is not None and not isinstance(binary, bool):
            raise Malformed.at(f"{path}.parameters.binary_data", "must be true or false")
        place = place_of(parameters, path)
        if place is not None and binary:
            raise Malformed.at(f"{path}.parameters", "set either binary_data or shared_memory_region, not both")
        return cls(name, path, binary, place)


def entries_of(value: object, path: str) -> list[tuple[str, Json, str]]:
    """Return the entries of `inputs` or `outputs`: name, entry and path of each.

    Raises:
        Malformed: not a list of named objects, too many, or a name twice.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed.at(path, "must be a list of objects")
    if len(value) > MAX_ENTRIES:
        raise Malformed.at(path, f"at most {MAX_ENTRIES}, got {len(value)}")
    entries: dict[str, tuple[str, Json, str]] = {}
    for place, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise Malformed.at(f"{path}[{place}]", "must be an object")
        name = text_of(entry.get("name"), f"{path}[{place}].name")
        if not name:
            raise Malformed.at(f"{path}[{place}].name", "is required")
        if name in entries:
            raise Malformed.at(f"{path}[{place}].name", f"{name} is there twice")
        entries[name] = (name, entry, f"{path}[{place}]")
    return list(entries.values())


def parameters_of(value: object, path: str) -> dict[str, Parameter]:
    """Return the parameters of a request, an input or an output.

    Raises:
        Malformed: not an object of strings, numbers and booleans, too many, or a reserved name.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed.at(path, "must be an object")
    if len(value) > _MAX_PARAMETERS:
        raise Malformed.at(path, f"at most {_MAX_PARAMETERS}, got {len(value)}")
    for name, item in value.items():
        if name.startswith("triton_"):
            raise Malformed.at(f"{path}.{name[:60]}", "names that begin with triton_ are reserved")
        if not isinstance(item, (str, int, float, bool)):
            raise Malformed.at(f"{path}.{name[:60]}", "must be a string, a number, true or false")
    return value


def place_of(parameters: dict[str, Parameter], path: str) -> SharedPlace | None:
    """Return the place in shared memory that an entry's parameters name; None where they name none.

    Raises:
        Malformed: naming the parameter that is missing or impossible.
    """
    named = [name for name in _SHARED if name in parameters]
    if not named:
        return None
    for name in _SHARED[:2]:
        if name not in parameters:
            raise Malformed.at(f"{path}.parameters.{name}", f"is required with {named[0]}")
    region = text_of(parameters["shared_memory_region"], f"{path}.parameters.shared_memory_region")
    size, offset = (
        natural(parameters.get(name, 0), f"{path}.parameters.{name}")
        for name in ("shared_memory_byte_size", "shared_memory_offset")
    )
    return SharedPlace(region, offset, size, path)


def natural(value: object, path: str) -> int:
    """Return an unsigned 64-bit integer.

    Raises:
        Malformed: anything else.
    """
    if type(value) is not int or not 0 <= value < _UINT64:
        raise Malformed.at(path, "must be an integer in [0, 2^64)")
    return value


def text_of(value: object, path: str) -> str:
    """Return a string of at most 200 characters; empty where there is none.

    Raises:
        Malformed: anything else.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _MAX_NAME:
        raise Malformed.at(path, f"must be a string of at most {_MAX_NAME} characters")
    return value
