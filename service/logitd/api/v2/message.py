"""From an infer request to the message that `/v1` checks: tensors by their names there, parameters in their places."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logitd.api.v2.models import Model
from logitd.errors import Invalid, Malformed
from logitd.wire.known import ATTENTION, ROWS
from logitd.wire.message import Message
from logitd.wire.oip.entries import Parameter, SharedPlace
from logitd.wire.oip.inputs import Input
from logitd.wire.oip.request import InferRequest
from logitd.wire.tensor import Tensor
from logitd_kernels import PARAMETERS

# Lists and objects, which the protocol's parameters cannot be, come as JSON in a string.
_STRUCTURED = frozenset({"banned_ids", "allowed_ids", "logit_bias", "heads", "exact_layers", "plan"})
_OF_ROW = re.compile(r"params(?:\[([0-9]+)\])?(?:\.(\w+))?(.*)", re.DOTALL)


@dataclass(frozen=True)
class InferMessage(Message):
    """A message that came as an infer request; its paths are those of inputs and parameters.

    Attributes:
        names: the inputs' own names, by those of the tensors.
        columns: parameters that came as inputs.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def path(self, field: str) -> str:
        """Return where the caller wrote a field: `LOGITS[3]`, `TOP_P[3]`, `parameters.top_p`."""
        name, bracket, rest = field.partition("[")
        if name in self.names:
            return self.names[name] + bracket + rest
        if name in self.columns:
            return name.upper() + bracket + rest
        of_row = _OF_ROW.fullmatch(field)
        if of_row is None:
            return f"parameters.{field}"
        row, parameter, rest = of_row.groups()
        if parameter in self.columns:
            return parameter.upper() + (f"[{row}]" if row else "") + rest
        return f"parameters.{parameter}{rest}" if parameter else "parameters"


def message_of(request: InferRequest, model: Model, read: Callable[[SharedPlace], memoryview]) -> InferMessage:
    """Return the message that an infer request is.

    Args:
        request: the request.
        model: whom it asks.
        read: returns what is at a place in shared memory.
    Raises:
        Malformed: an input or output that the model does not have.
        Invalid: a parameter that it does not have, or an input of another shape.
    """
    check_names(request, model)
    tensors = {name: one.tensor(read) for name, one in request.inputs.items()}
    columns = {name: request.inputs[name.upper()] for name in model.columns if name.upper() in tensors}
    parameters = {name: _value(name, value) for name, value in _checked(request.parameters, model).items()}
    for name in columns:
        if name in parameters:
            raise Invalid.at(f"parameters.{name}", f"comes as input {name.upper()} already")
    own = {model.tensors[name]: _as_v1(tensor, name) for name, tensor in tensors.items() if name in model.tensors}
    rows = _rows(own)
    values = {name: _column(column, tensors[column.name], rows) for name, column in columns.items()}
    return InferMessage(
        fields=_sample_fields(parameters, values, rows) if model.operation == "sample" else {**parameters, **values},
        tensors=own,
        form="oip",
        known=ATTENTION if model.operation == "attention" else ROWS,
        names={tensor: name for name, tensor in model.tensors.items()},
        columns=tuple(columns),
    )


def check_names(request: InferRequest, model: Model) -> None:
    """Refuse inputs and outputs that a model does not have.

    Raises:
        Malformed: naming the first.
    """
    for name in request.inputs:
        if name not in model.input_names:
            raise Malformed.at(
                "inputs", f"unexpected inference input '{name}' for model {model.name}: {', '.join(model.input_names)}"
            )
    for output in request.outputs or ():
        if output.name not in model.output_names:
            raise Malformed.at(
                output.path,
                f"unexpected inference output '{output.name}' for model {model.name}: {', '.join(model.output_names)}",
            )


def _checked(sent: dict[str, Parameter], model: Model) -> dict[str, Parameter]:
    for name in sent:
        if name in model.preset:
            raise Invalid.at(f"parameters.{name}", f"is what model {model.name} sets itself")
        if name not in model.parameters:
            raise Invalid.at(
                f"parameters.{name[:60]}", f"unknown parameter; known are {', '.join(sorted(model.parameters))}"
            )
    return {**sent, **model.preset}


def _value(name: str, value: Parameter) -> Any:  # noqa: ANN401
    if name not in _STRUCTURED or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Invalid.at(f"parameters.{name}", "must be JSON in a string") from None


def _as_v1(tensor: Tensor, name: str) -> Tensor:
    """Return a tensor as `/v1` takes it: words of a mask are signed, one number a row may stand in a column."""
    if name == "MASK" and tensor.dtype == "U32":
        return Tensor("I32", tensor.shape, tensor.data)
    flat = name in ("LENGTHS", "HEAD_FINITE_COUNT") and len(tensor.shape) == 2 and tensor.shape[1] == 1
    return Tensor(tensor.dtype, tensor.shape[:1], tensor.data) if flat else tensor


def _rows(tensors: dict[str, Tensor]) -> int:
    """Return the number of rows, 0 where there are none to tell."""
    shapes = [tensors[name].shape for name in ("logits", "head_logits") if name in tensors]
    return shapes[0][0] if shapes and shapes[0] else 0


def _column(column: Input, tensor: Tensor, rows: int) -> list[Any]:
    if tensor.shape not in ((rows,), (rows, 1)):
        raise Invalid.at(column.name, f"expected shape [{rows}] or [{rows}, 1], got {list(tensor.shape)}")
    if tensor.dtype in ("BF16", "BOOL"):
        raise Invalid.at(column.name, f"expected numbers, FP32 or integers, got {column.datatype}")
    return tensor.numpy().reshape(-1).tolist()


def _sample_fields(parameters: dict[str, Any], columns: dict[str, list[Any]], rows: int) -> dict[str, Any]:
    fields = {name: value for name, value in parameters.items() if name not in PARAMETERS}
    shared = {name: value for name, value in parameters.items() if name in PARAMETERS}
    if not columns:
        return {**fields, "params": shared}
    each = [{**shared, **{name: values[row] for name, values in columns.items()}} for row in range(rows)]
    return {**fields, "params": each}
