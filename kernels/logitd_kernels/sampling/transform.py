"""What a sampling transform is: one value that names, bounds, documents and computes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from logitd_kernels.edits import Edits
from logitd_kernels.head import Floats, Prefix
from logitd_kernels.sampling.parameters import Parameter
from logitd_kernels.select.ordered import OrderedRow

# The checked parameters of one row by name. A step also finds there what else is known of the row, by the names of the
# tensors (`rows.beside`), and the seed that is used.
Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A step of the sampling chain.

    Attributes:
        name: the metric label, test id and docs heading; of its parameter too, but where that says more.
        parameter: its bounds and neutral value; None for a step whose value is a tensor of the same name.
        options: further parameters that only qualify this step.
        off: values beside the neutral one that switch it off.
        formula: what it does, in symbols.
        boundary: what happens to ties, boundary values and extremes.
        source: the paper or system whose definition this is.
        needs: the tensor without which it does nothing, if there is one.
        differs: how the system that a dialect is named after differs from this definition.
        update: for a step that keeps a state: gives the parameters of the next step of a sequence, out of the values
            and the probability that the drawn token had among the tokens kept.
    """

    name: str
    parameter: Parameter | None
    formula: str
    boundary: str
    source: str
    options: tuple[Parameter, ...] = ()
    off: tuple[Any, ...] = ()
    needs: str | None = None
    differs: Mapping[str, str] = field(default_factory=dict)
    update: Callable[[Values, float], dict[str, float]] | None = None

    @property
    def kind(self) -> str:
        """`mix`, `edit`, `scale`, `remap`, `cut`, `band` or `reweigh`."""
        return type(self).__name__.lower()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameter, if it has one, and its options."""
        return self.options if self.parameter is None else (self.parameter, *self.options)

    def asked(self, values: Values) -> bool:
        """Whether its parameter is set."""
        if self.parameter is None:
            return values.get(self.name) is not None
        value = values.get(self.parameter.name, self.parameter.neutral)
        return value is not None and value != self.parameter.neutral and value not in self.off

    def active(self, values: Values) -> bool:
        """Whether the values make this step do anything."""
        return self.asked(values) and (self.needs is None or values.get(self.needs) is not None)


@dataclass(frozen=True, kw_only=True)
class Mix(Transform):
    """A step that makes one row out of two: `mix(logits, values)`, both [V] float64."""

    mix: Callable[[torch.Tensor, Values], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Edit(Transform):
    """A step that changes single logits before anything is ranked: `edit(edits, values)`."""

    edit: Callable[[Edits, Values], None]


@dataclass(frozen=True, kw_only=True)
class Scale(Transform):
    """A step that sets the temperature: `temperature(row, kept, values)`, 0 for greedy."""

    temperature: Callable[[OrderedRow, Prefix, Values], float]


@dataclass(frozen=True, kw_only=True)
class Remap(Transform):
    """A step that moves every logit and keeps their order: `remap(values)` gives a function of (x − M)/T ≤ 0."""

    remap: Callable[[Values], Callable[[Floats], Floats]]


@dataclass(frozen=True, kw_only=True)
class Cut(Transform):
    """A step that shortens the kept prefix of the total order: `cut(row, kept, values)`."""

    cut: Callable[[OrderedRow, Prefix, Values], Prefix]


@dataclass(frozen=True, kw_only=True)
class Band(Transform):
    """A step that may drop the first tokens too: `band(row, kept, values)` gives the first rank kept and the end."""

    band: Callable[[OrderedRow, Prefix, Values], tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Reweigh(Transform):
    """A last step that weighs the kept tokens anew: `weigh(probabilities, values)` gives as many weights ≥ 0."""

    weigh: Callable[[Floats, Values], Floats]


TRUNCATING = (Cut, Band, Reweigh)
