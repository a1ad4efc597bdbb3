"""From a decoded message to a checked analysis: rows, temperatures, limits, parameters."""

import math

from logitd.analyze_work import AnalyzeWork
from logitd.api.analyze_schemas import MAX_TEMPERATURES, RANGE_ENDS, AnalyzeFields
from logitd.api.requests import logits_of, named, only
from logitd.api.schemas import check
from logitd.errors import Invalid
from logitd.settings import Settings
from logitd.wire.message import Message
from logitd_kernels import DenseRows
from logitd_kernels import check as check_params
from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.transform import Values
from logitd_kernels.thermo.analyze import TEMPERATURE

_WHOLE = 1e-9  # of a step: what rounding may take from a range's last temperature


def analyze_job(message: Message, settings: Settings) -> AnalyzeWork:
    """Check a request to analyse against the limits.

    Raises:
        Invalid: naming the field, by the path at which the caller wrote it.
    """
    fields = check(AnalyzeFields, message.fields, message.path)
    only(message, ("logits",))
    logits = logits_of(message, settings)
    temperatures = _temperatures(message, fields.temperatures)
    rows = named(message, lambda: DenseRows(logits))
    points = len(rows) * len(temperatures)
    if points > settings.max_draws:
        raise Invalid.at(
            message.path("temperatures"), f"at most {settings.max_draws} rows × temperatures, got {points}"
        )
    params = None if fields.params is None else _params(message, fields.params, len(rows), settings)
    return AnalyzeWork(rows, temperatures, fields.entropy, fields.mass, params)


def _temperatures(message: Message, sent: object) -> list[float]:
    """Return the temperatures of a list, or of a range with both its ends."""
    path = message.path("temperatures")
    if isinstance(sent, dict):
        return _range(path, sent)
    if not isinstance(sent, list) or not sent:
        raise Invalid.at(path, "expected a list of temperatures, or an object with from, to and step")
    _check_count(path, len(sent))
    return [_positive(f"{path}[{place}]", item) for place, item in enumerate(sent)]


def _range(path: str, sent: dict[str, object]) -> list[float]:
    for name in sent:
        if name not in RANGE_ENDS:
            raise Invalid.at(f"{path}.{name[:60]}", "unknown; a range has from, to and step")
    for name in RANGE_ENDS:
        if name not in sent:
            raise Invalid.at(f"{path}.{name}", "is required in a range")
    start, stop, step = (_positive(f"{path}.{name}", sent[name]) for name in RANGE_ENDS)
    if stop < start:
        raise Invalid.at(f"{path}.to", f"must be at least from, {start:.12g}, got {stop:.12g}")
    steps = (stop - start) / step + _WHOLE
    _check_count(path, steps + 1)
    return [float(f"{start + place * step:.12g}") for place in range(math.floor(steps) + 1)]


def _check_count(path: str, count: float) -> None:
    if count >= MAX_TEMPERATURES + 1:
        raise Invalid.at(path, f"at most {MAX_TEMPERATURES} temperatures, got {count:.6g}")


def _positive(path: str, value: object) -> float:
    try:
        return TEMPERATURE.check(value)
    except ParameterError as error:
        raise Invalid.at(path, error.message) from None


def _params(message: Message, sent: object, rows: int, settings: Settings) -> Values:
    if not isinstance(sent, dict):
        raise Invalid.at(message.path("params"), f"expected an object of parameters, got {type(sent).__name__}")
    try:
        values = check_params(sent)
    except ParameterError as error:
        raise Invalid.at(message.path(f"params.{error.field[:60]}"), error.message) from None
    edits = rows * sum(len(value) for value in values.values() if isinstance(value, (tuple, dict)))
    if edits > settings.max_edits:
        raise Invalid.at(message.path("params"), f"at most {settings.max_edits} edits a request, got {edits}")
    return values
