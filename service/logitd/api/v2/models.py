"""What a model is under /v2: what goes in, what comes out, and what clients are told of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from logitd.settings import Settings
from logitd.wire.oip.entries import Parameter

Json = dict[str, Any]
Operation = Literal["sample", "softmax", "attention"]

VERSION = "1"


@dataclass(frozen=True)
class Port:
    """An input or output as clients are told of it; −1 is any length, the batch is not among `dims`."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        name: in paths.
        operation: what it computes.
        inputs: declared ones.
        outputs: those that every answer can have.
        tensors: the names of inputs, and of the tensors they are in `/v1`.
        parameters: request parameters that are understood.
        columns: parameters that may also come as an input with one value for each row.
        more_outputs: those that some parameters ask for.
        preset: parameters that the model itself sets.
        batched: whether the first dimension of all declared tensors is the batch.
    """

    name: str
    operation: Operation
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: Mapping[str, str]
    parameters: frozenset[str]
    columns: tuple[str, ...] = ()
    more_outputs: tuple[str, ...] = ()
    preset: Mapping[str, Parameter] = field(default_factory=dict)
    batched: bool = True

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Every input that is understood."""
        return (*self.tensors, *(name.upper() for name in self.columns))

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Every output that there can be."""
        return (*(port.name for port in self.outputs), *self.more_outputs)

    @property
    def only_input(self) -> str | None:
        """The input of a model that has one; None where there are several."""
        required = [port.name for port in self.inputs if not port.optional]
        return required[0] if len(required) == 1 else None

    def metadata(self) -> Json:
        """Return what GET /v2/models/{name} tells."""
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "logitd",
            "inputs": [self._described(port) for port in self.inputs],
            "outputs": [self._described(port) for port in self.outputs],
        }

    def config(self, settings: Settings) -> Json:
        """Return what GET /v2/models/{name}/config tells."""
        return {
            "name": self.name,
            "platform": "",
            "backend": "logitd",
            "max_batch_size": settings.max_rows if self.batched else 0,
            "input": [{**_configured(port), "optional": port.optional} for port in self.inputs],
            "output": [_configured(port) for port in self.outputs],
            "model_transaction_policy": {"decoupled": False},
            **({"dynamic_batching": {}} if self.batched else {}),
        }

    def _described(self, port: Port) -> Json:
        batch = [-1] if self.batched else []
        return {"name": port.name, "datatype": port.datatype, "shape": [*batch, *port.dims]}

    def basic(self, suffix: str = "basic", preset: Mapping[str, Parameter] | None = None) -> "Model":
        """Return the same without optional inputs: what perf_analyzer demands before it uses shared memory."""
        inputs = tuple(port for port in self.inputs if not port.optional)
        names = {port.name for port in inputs}
        return replace(
            self,
            name=f"{self.name}.{suffix}",
            inputs=inputs,
            tensors={name: tensor for name, tensor in self.tensors.items() if name in names},
            columns=(),
            preset=preset or {},
        )


def _configured(port: Port) -> Json:
    return {"name": port.name, "data_type": f"TYPE_{_TYPES.get(port.datatype, port.datatype)}", "dims": list(port.dims)}


_TYPES = {"BYTES": "STRING"}  # the name that configurations have for it
