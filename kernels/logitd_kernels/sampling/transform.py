"""What a sampling transform is: one value that names, bounds, documents and computes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logitd_kernels.head import Prefix
from logitd_kernels.rows import Edits
from logitd_kernels.sampling.parameters import Parameter
from logitd_kernels.select.ordered import OrderedRow

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A step of the sampling chain.

    Attributes:
        name: the request field, metric label, test id and docs heading.
        parameter: its bounds and neutral value; None for a step whose value is a tensor of the same name.
        options: further parameters that only qualify this step.
        off: values beside the neutral one that switch it off.
        formula: what it does, in symbols.
        boundary: what happens to ties, boundary values and extremes.
        source: the paper or system whose definition this is.
    """

    name: str
    parameter: Parameter | None
    formula: str
    boundary: str
    source: str
    options: tuple[Parameter, ...] = ()
    off: tuple[Any, ...] = ()

    @property
    def kind(self) -> str:
        """`edit`, `scale` or `cut`."""
        return type(self).__name__.lower()

    def active(self, values: Values) -> bool:
        """Whether the values make this step do anything."""
        value = values.get(self.name)
        return value is not None and (self.parameter is None or value not in (self.parameter.neutral, *self.off))


@dataclass(frozen=True, kw_only=True)
class Edit(Transform):
    """A step that changes single logits before anything is ranked: `edit(edits, values)`."""

    edit: Callable[[Edits, Values], None]


@dataclass(frozen=True, kw_only=True)
class Scale(Transform):
    """A step that sets the temperature of the row: `temperature(values)`, 0 for greedy."""

    temperature: Callable[[Values], float]


@dataclass(frozen=True, kw_only=True)
class Cut(Transform):
    """A step that shortens the kept prefix of the total order: `cut(row, kept, values)`."""

    cut: Callable[[OrderedRow, Prefix, Values], Prefix]
