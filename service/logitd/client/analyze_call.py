"""What the clients send to analyse rows, and how they read the answer; nothing here does I/O."""

from collections.abc import Mapping, Sequence

from logitd.client.analyze_results import AnalyzeResult, RowWarning
from logitd.client.arrays import rows_of
from logitd.client.reading import decode, reading
from logitd.client.request import BINARY, Call, Parameters, body_of, plain
from logitd.client.results import RowError

Temperatures = Sequence[float] | Mapping[str, float]

_TABLES = (
    "log_z",
    "free_energy",
    "internal_energy",
    "entropy",
    "heat_capacity",
    "effective_states",
    "max_probability",
)


def analyze_call(
    logits: object,
    temperatures: Temperatures,
    *,
    entropy: float | None,
    mass: float | None,
    params: Parameters | None,
) -> Call[AnalyzeResult]:
    """Build POST /v1/analyze; the arguments are those of `Client.analyze`.

    Raises:
        TypeError, ValueError: logits or fields that cannot be sent at all; the service judges the rest.
    """
    asked = {"temperatures": temperatures, "entropy": entropy, "mass": mass, "params": params}
    fields = {name: plain(name, value) for name, value in asked.items() if value is not None}
    return Call("POST", "/v1/analyze", BINARY, body_of({"logits": rows_of(logits)}, fields), True, read_analyze)


def read_analyze(body: bytes) -> AnalyzeResult:
    """Read the safetensors answer of /v1/analyze.

    Raises:
        UnexpectedAnswer.
    """
    with reading("analyze"):
        tensors, response = decode(body)
        columns = {name: tensor.numpy() for name, tensor in tensors.items()}
        shape = (len(response["rows"]), len(columns["temperatures"]))
        for name in _TABLES:
            if columns[name].shape != shape:
                raise ValueError(f"{name} has shape {list(columns[name].shape)}, expected {list(shape)}")
        return AnalyzeResult(
            temperatures=columns["temperatures"],
            **{name: columns[name] for name in _TABLES},
            nucleus=columns.get("nucleus"),
            temperature_for_entropy=columns.get("temperature_for_entropy"),
            warnings=[tuple(RowWarning(w["code"], w["detail"]) for w in row["warnings"]) for row in response["rows"]],
            errors=[None if (e := row["error"]) is None else RowError(**e) for row in response["rows"]],
            seconds=response["seconds"],
        )
