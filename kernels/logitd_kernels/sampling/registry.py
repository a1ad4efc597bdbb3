"""The ordered registry: every transform there is, in the order in which it acts (dialect `vllm`).

A new transform is one file beside this one and one line here. Request schema, docs table, metric labels and the generic
tests derive from it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from logitd_kernels.errors import ParameterError
from logitd_kernels.sampling.adaptive_p import ADAPTIVE_P
from logitd_kernels.sampling.allowed_ids import ALLOWED_IDS
from logitd_kernels.sampling.bad_words import BAD_WORDS
from logitd_kernels.sampling.banned_ids import BANNED_IDS
from logitd_kernels.sampling.dry import DRY
from logitd_kernels.sampling.dynatemp import DYNATEMP
from logitd_kernels.sampling.epsilon_cutoff import EPSILON_CUTOFF
from logitd_kernels.sampling.eta_cutoff import ETA_CUTOFF
from logitd_kernels.sampling.frequency_penalty import FREQUENCY_PENALTY
from logitd_kernels.sampling.guidance import GUIDANCE
from logitd_kernels.sampling.logit_bias import LOGIT_BIAS
from logitd_kernels.sampling.mask import MASK
from logitd_kernels.sampling.min_p import MIN_P
from logitd_kernels.sampling.min_tokens import MIN_TOKENS
from logitd_kernels.sampling.mirostat import MIROSTAT
from logitd_kernels.sampling.no_repeat_ngram import NO_REPEAT_NGRAM
from logitd_kernels.sampling.parameters import Flag, Number, Parameter, Seed
from logitd_kernels.sampling.presence_penalty import PRESENCE_PENALTY
from logitd_kernels.sampling.repetition_penalty import REPETITION_PENALTY
from logitd_kernels.sampling.smoothing import SMOOTHING
from logitd_kernels.sampling.temperature import TEMPERATURE
from logitd_kernels.sampling.top_a import TOP_A
from logitd_kernels.sampling.top_h import TOP_H
from logitd_kernels.sampling.top_k import TOP_K
from logitd_kernels.sampling.top_n_sigma import TOP_N_SIGMA
from logitd_kernels.sampling.top_p import TOP_P
from logitd_kernels.sampling.transform import Transform, Values
from logitd_kernels.sampling.typical_p import TYPICAL_P
from logitd_kernels.sampling.xtc import XTC

TRANSFORMS: tuple[Transform, ...] = (
    GUIDANCE,
    MASK,
    LOGIT_BIAS,
    BANNED_IDS,
    ALLOWED_IDS,
    MIN_TOKENS,
    BAD_WORDS,
    NO_REPEAT_NGRAM,
    REPETITION_PENALTY,
    FREQUENCY_PENALTY,
    PRESENCE_PENALTY,
    DRY,
    TEMPERATURE,
    DYNATEMP,
    SMOOTHING,
    MIN_P,
    TOP_N_SIGMA,
    TOP_K,
    TYPICAL_P,
    TOP_P,
    TOP_H,
    TOP_A,
    EPSILON_CUTOFF,
    ETA_CUTOFF,
    MIROSTAT,
    XTC,
    ADAPTIVE_P,
)

_WORD = (1 << 32) - 1
DRAW_PARAMETERS: tuple[Parameter, ...] = (
    Seed("seed", "Key of the draw; the service draws one below 2^53 for a row that has none, and returns it."),
    Number("stream", 0, "Counter word: which of several independent draws of a seed.", ge=0, le=_WORD, integer=True),
    Number("step", 0, "Counter word: position in the generated sequence.", ge=0, le=_WORD, integer=True),
    Number("n", 1, "How many independent draws to make from the row.", ge=1, le=1 << 20, integer=True),
    Flag("allow_inexact", False, "Answer a head form's best guess where its tail leaves the answer open."),
)


def parameters(transforms: tuple[Transform, ...] = TRANSFORMS) -> tuple[Parameter, ...]:
    """Return every parameter a row may carry, in the registry's order, the draw's own last."""
    own = {parameter.name: parameter for transform in transforms for parameter in transform.parameters}
    return (*own.values(), *DRAW_PARAMETERS)


PARAMETERS: Mapping[str, Parameter] = MappingProxyType({parameter.name: parameter for parameter in parameters()})
_NEUTRAL = {name: parameter.neutral for name, parameter in PARAMETERS.items()}


def check(values: Mapping[str, Any], row: int | None = None) -> Values:
    """Return every parameter of one row, checked, the neutral value where none is given.

    Raises:
        ParameterError: an unknown name or a value out of bounds; nothing is clamped.
    """
    checked = dict(_NEUTRAL)
    for name, value in values.items():
        parameter = PARAMETERS.get(name)
        if parameter is None:
            raise ParameterError(name, f"unknown parameter; known are {', '.join(PARAMETERS)}", row)
        try:
            checked[name] = parameter.check(value)
        except ParameterError as error:
            raise ParameterError(error.field, error.message, row) from None
    return MappingProxyType(checked)
