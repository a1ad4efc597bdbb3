"""Temperature: scale every logit by 1/T; 0 is greedy."""

from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Scale, Values


def _temperature(values: Values) -> float:
    return float(values["temperature"])


TEMPERATURE = Scale(
    name="temperature",
    parameter=Number("temperature", 1.0, "Softmax temperature; 0 takes the largest logit, lowest id on ties.", ge=0),
    formula="p_i ∝ e^((x_i − M)/T)",
    boundary="M is subtracted before dividing, so tiny T cannot overflow; T = 0 is the argmax of the processed logits.",
    source="Ackley, Hinton and Sejnowski 1985, eq. 5",
    temperature=_temperature,
)
