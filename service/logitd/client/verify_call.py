"""What the clients send to verify draft tokens, and how they read the answer; nothing here does I/O."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from logitd.client.arrays import floats_of, tensor_of
from logitd.client.reading import decode, reading
from logitd.client.request import BINARY, Call, Parameters, body_of, plain
from logitd.client.results import RowError
from logitd.client.verify_results import VerifyResult
from logitd.wire.tensor import Tensor

_FLOATS = ("draft_probs", "draft_logits")
_Params = Parameters | Sequence[Parameters] | None


def verify_call(
    target_logits: object,
    draft_ids: object,
    *,
    beside: Mapping[str, object] = MappingProxyType({}),
    params: _Params = None,
    draft_params: _Params = None,
    method: str = "standard",
    strict: bool = False,
    dialect: str = "vllm",
    order: Sequence[str] | None = None,
    vocab_size: int | None = None,
    keywords: Parameters = MappingProxyType({}),
) -> Call[VerifyResult]:
    """Build POST /v1/verify; the arguments are those of `Client.verify`.

    `beside` are its other tensors by name, `keywords` its parameters.

    Raises:
        TypeError, ValueError: tensors or parameters that cannot be sent at all; the service judges the rest.
    """
    tensors = {"target_logits": floats_of("target_logits", target_logits), "draft_ids": _integers(draft_ids)}
    for name, tensor in beside.items():
        if tensor is not None:
            tensors[name] = floats_of(name, tensor) if name in _FLOATS else _integers(tensor)
    merged = _merged("params", params, keywords)
    fields: dict[str, Any] = {"params": merged, "method": method, "strict": strict, "dialect": dialect}
    own = {"order": order and list(order), "vocab_size": vocab_size}
    fields |= {name: value for name, value in own.items() if value is not None}
    if draft_params is not None:
        fields["draft_params"] = _merged("draft_params", draft_params, {})
    seeded = all(row.get("seed", -1) not in (None, -1) for row in (merged if isinstance(merged, list) else [merged]))
    return Call("POST", "/v1/verify", BINARY, body_of(tensors, fields), seeded, read_verify)


def read_verify(body: bytes) -> VerifyResult:
    """Read the safetensors answer of /v1/verify.

    Raises:
        UnexpectedAnswer.
    """
    with reading("verify"):
        tensors, response = decode(body)
        columns = {name: tensor.numpy() for name, tensor in tensors.items()}
        if {len(column) for column in columns.values()} != {len(response["rows"])}:
            raise ValueError(f"the tensors do not have {len(response['rows'])} rows")
        errors = [row["error"] for row in response["rows"]]
        return VerifyResult(
            tokens=columns["tokens"],
            accepted=columns["accepted"],
            acceptance=columns["acceptance"],
            seed=columns["seed"],
            errors=[e and RowError(e["code"], e["row"], e["detail"]) for e in errors],
            backend=response["backend"],
            effective=response["effective"],
            effective_draft=response["effective_draft"],
            seconds=response["seconds"],
        )


def _integers(ids: object) -> Tensor:
    """View ids; nested lists, empty ones too, are I64."""
    return tensor_of(np.asarray(ids, dtype=np.int64) if isinstance(ids, (list, tuple)) else ids)


def _merged(name: str, own: _Params, keywords: Parameters) -> Any:  # noqa: ANN401
    """Return parameters in JSON types, one object or one for each row; a row's own win over the keywords."""
    if own is None or isinstance(own, Mapping):
        return plain(name, {**keywords, **(own or {})})
    return [plain(f"{name}[{index}]", {**keywords, **row}) for index, row in enumerate(own)]
