"""The models there are under /v2."""

from collections.abc import Iterable, Mapping

from logitd.api.attention_schemas import AttentionFields
from logitd.api.schemas import SoftmaxFields
from logitd.api.v2.models import VERSION, Model, Port
from logitd.errors import NotFound
from logitd_kernels import PARAMETERS

# A parameter that has one value for each row, as an input of the same name in capitals.
ROW_PARAMETERS = {
    "temperature": "FP32",
    "top_k": "INT32",
    "top_p": "FP32",
    "min_p": "FP32",
    "seed": "UINT64",
    "stream": "UINT32",
    "step": "UINT32",
}


def _optional(ports: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[Port, ...]:
    return tuple(Port(*port, optional=True) for port in ports)


_SAMPLE = Model(
    name="sample",
    operation="sample",
    inputs=(
        Port("LOGITS", "FP32", (-1,)),
        *_optional(
            [
                ("MASK", "INT32", (-1,)),
                ("PROMPT_IDS", "INT32", (-1,)),
                ("OUTPUT_IDS", "INT32", (-1,)),
                ("GUIDANCE_LOGITS", "FP32", (-1,)),
            ]
        ),
        *_optional((name.upper(), datatype, (1,)) for name, datatype in ROW_PARAMETERS.items()),
        *_optional(
            [
                ("HEAD_IDS", "INT64", (-1,)),
                ("HEAD_LOGITS", "FP32", (-1,)),
                ("LOG_Z", "FP64", (-1,)),
                ("HEAD_FINITE_COUNT", "INT64", (1,)),
            ]
        ),
    ),
    outputs=(
        Port("TOKEN", "INT64", (1,)),
        Port("LOGPROB", "FP32", (1,)),
        Port("ENTROPY", "FP32", (1,)),
        Port("ENTROPY_KEPT", "FP32", (1,)),
        Port("KEPT_MASS", "FP32", (1,)),
        Port("KEPT", "INT32", (1,)),
        Port("SEED", "UINT64", (1,)),
        Port("STATUS", "INT32", (1,)),
    ),
    tensors={
        name.upper(): name
        for name in (
            "logits",
            "mask",
            "prompt_ids",
            "output_ids",
            "guidance_logits",
            "head_ids",
            "head_logits",
            "log_z",
            "log_z_temperatures",
            "head_finite_count",
        )
    },
    parameters=frozenset(PARAMETERS) | {"logprobs", "logprobs_mode", "strict", "dialect", "vocab_size"},
    columns=tuple(ROW_PARAMETERS),
    more_outputs=("TOKENS", "TOKENS_LOGPROB", "LOGPROB_RAW", "TOP_TOKENS", "TOP_LOGPROBS"),
)
_OF_A_SOFTMAX = ("temperature", "seed", "stream", "step")
_SOFTMAX = Model(
    name="softmax",
    operation="softmax",
    inputs=(
        Port("LOGITS", "FP32", (-1,)),
        *_optional((name.upper(), ROW_PARAMETERS[name], (1,)) for name in _OF_A_SOFTMAX),
    ),
    outputs=(
        Port("PROBABILITIES", "FP32", (-1,)),
        Port("LOG_Z", "FP64", (1,)),
        Port("ENTROPY", "FP64", (1,)),
        Port("STATUS", "INT32", (1,)),
    ),
    tensors={"LOGITS": "logits"},
    parameters=frozenset(SoftmaxFields.model_fields),
    columns=_OF_A_SOFTMAX,
    more_outputs=("SEED",),
)
_ATTENTION = Model(
    name="attention",
    operation="attention",
    inputs=(
        *(Port(name, "FP32", (-1, -1, -1, -1)) for name in ("Q", "K", "V")),
        *_optional([("MASK", "BOOL", (-1, -1, -1, -1)), ("LENGTHS", "INT64", (-1,)), ("SINK_LOGITS", "FP32", (-1,))]),
    ),
    outputs=(Port("OUTPUT", "FP32", (-1, -1, -1, -1)), Port("REPORT", "BYTES", (1,))),
    tensors={name.upper(): name for name in ("q", "k", "v", "mask", "lengths", "sink_logits")},
    parameters=frozenset(AttentionFields.model_fields),
    batched=False,
)

MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        _SAMPLE,
        _SAMPLE.basic(),
        _SAMPLE.basic("greedy", {"temperature": 0.0}),
        _SOFTMAX,
        _SOFTMAX.basic(),
        _ATTENTION,
        _ATTENTION.basic(),
    )
}


def find(name: str, version: str | None) -> Model:
    """Return a model.

    Raises:
        NotFound: there is none of that name, or not in that version.
    """
    model = MODELS.get(name)
    if model is None:
        raise NotFound(f"unknown model; known are {', '.join(MODELS)}")
    if version not in (None, VERSION):
        raise NotFound(f"model {name} has version {VERSION} only")
    return model
