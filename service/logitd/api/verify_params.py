"""The parameters of a verification: one object or a list, of the target and of the draft."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from logitd.errors import Invalid
from logitd.wire.message import Message
from logitd_kernels import check
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.registry import DRAW_PARAMETERS
from logitd_kernels.sampling.transform import Values

_DRAW = {parameter.name for parameter in DRAW_PARAMETERS}


@dataclass(frozen=True)
class RowParams:
    """The checked parameters of every row.

    Attributes:
        name: the field they came in.
        each: one mapping a row.
        shared: those of all rows, where one object was sent for them.
    """

    name: str
    each: list[Values]
    shared: Values | None

    def path(self, row: int | None, field: str) -> str:
        """Return where the caller wrote a parameter of a row."""
        return f"{self.name}.{field}" if self.shared is not None else f"{self.name}[{row}].{field}"

    @property
    def edits(self) -> int:
        """How many entries of lists and maps are looked at, at every position of all rows."""
        if self.shared is not None:
            return len(self.each) * _entries_of(self.shared)
        return sum(map(_entries_of, self.each))


def row_params(message: Message, name: str, sent: object, rows: int) -> RowParams:
    """Check parameters against the registry.

    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    if not isinstance(sent, list):
        shared = _checked(message, sent, name)
        return RowParams(name, [shared] * rows, shared)
    if len(sent) != rows:
        raise Invalid.at(message.path(name), f"expected one object, or one for each of {rows} rows, got {len(sent)}")
    return RowParams(name, [_checked(message, item, f"{name}[{row}]") for row, item in enumerate(sent)], None)


def refuse_draw(message: Message, name: str, sent: object) -> None:
    """Refuse what belongs to the draw, which there is one of.

    Raises:
        Invalid: naming the first such parameter.
    """
    for place, item in enumerate(sent if isinstance(sent, list) else [sent]):
        given: Iterable[Any] = item if isinstance(item, dict) else ()
        for parameter in _DRAW.intersection(given):
            path = f"{name}[{place}].{parameter}" if isinstance(sent, list) else f"{name}.{parameter}"
            raise Invalid.at(message.path(path), "is of the draw, which is the target's: it belongs into params")


def _checked(message: Message, sent: object, path: str) -> Values:
    if not isinstance(sent, dict):
        raise Invalid.at(message.path(path), f"expected an object of parameters, got {type(sent).__name__}")
    try:
        return check(sent)
    except ParameterError as error:
        raise Invalid.at(message.path(f"{path}.{error.field[:60]}"), error.message) from None


def _entries_of(values: Values) -> int:
    return sum(map(_entries, values.values()))


def _entries(value: object) -> int:
    if isinstance(value, tuple):
        return sum(len(item) if isinstance(item, tuple) else 1 for item in value)
    return len(value) if isinstance(value, dict) else 0
