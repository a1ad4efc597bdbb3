"""From a decoded message to checked distributions to compute: rows, temperatures, noise."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logitd.api.requests import logits_of, named, only
from logitd.api.schemas import SoftmaxFields, check
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.softmax_work import SoftmaxWork
from logitd.wire.message import Message
from logitd_kernels import PARAMETERS, DenseRows
from logitd_kernels.errors import ParameterError
from logitd_kernels.gumbel import Noise
from logitd_kernels.sampling.parameters import Parameter
from logitd_kernels.softmax import HOT, NOISY

_KEYS = ("seed", "stream", "step")


@dataclass(frozen=True)
class SoftmaxJob:
    """A checked softmax request; `noise` has one entry a row for `gumbel_softmax`, none for other kinds."""

    rows: DenseRows
    temperatures: list[float]
    kind: str
    noise: Sequence[Noise] = ()

    @property
    def values(self) -> int:
        """How many numbers the answer holds beside a few for each row."""
        return 0 if self.kind == "logsumexp" else self.rows.logits.numel()

    @property
    def work(self) -> SoftmaxWork:
        """What the engine is to compute."""
        return SoftmaxWork(self.rows, self.temperatures, self.kind, self.noise)


def softmax_job(message: Message, settings: Settings) -> SoftmaxJob:
    """Check a softmax request.

    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    fields = check(SoftmaxFields, message.fields, message.path)
    only(message, ("logits",))
    rows = named(message, lambda: DenseRows(logits_of(message, settings)))
    temperatures = _each(message, HOT, fields.temperature, len(rows))
    return SoftmaxJob(rows, temperatures, fields.kind, _noise(message, fields, len(rows)))


def _noise(message: Message, fields: SoftmaxFields, rows: int) -> list[Noise]:
    if fields.kind != NOISY:
        for name in _KEYS:
            if name in fields.model_fields_set:
                raise Invalid.at(message.path(name), f"goes with the kind {NOISY}, got {fields.kind}")
        return []
    seeds, streams, steps = (_each(message, PARAMETERS[name], getattr(fields, name), rows) for name in _KEYS)
    seeds = [secrets.randbits(53) if seed is None else seed for seed in seeds]
    return [Noise(*key) for key in zip(seeds, streams, steps, strict=True)]


def _each(message: Message, parameter: Parameter, sent: object, rows: int) -> list[Any]:
    """Return a value for each row, out of one for all or a list."""
    path = message.path(parameter.name)
    if isinstance(sent, list) and len(sent) != rows:
        raise Invalid.at(path, f"expected one value, or one for each of {rows} rows, got {len(sent)}")
    if not isinstance(sent, list):
        return [_checked(parameter, sent, path)] * rows
    return [_checked(parameter, one, f"{path}[{row}]") for row, one in enumerate(sent)]


def _checked(parameter: Parameter, sent: object, path: str) -> Any:  # noqa: ANN401
    try:
        return parameter.check(sent)
    except ParameterError as error:
        raise Invalid.at(path, error.message) from None
