"""Temperature: scale every logit by 1/T; 0 is greedy."""

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Scale, Values
from logitd_kernels.select.ordered import OrderedRow


def _temperature(row: OrderedRow, kept: Prefix, values: Values) -> float:
    return float(values["temperature"]) or row.temperature  # at 0 dynatemp goes on from here, or nobody asks


TEMPERATURE = Scale(
    name="temperature",
    parameter=Number("temperature", 1.0, "Softmax temperature; 0 takes the largest logit, lowest id on ties.", ge=0),
    formula="p_i ∝ e^((x_i − M)/T)",
    boundary="M is subtracted before dividing, so tiny T cannot overflow; T = 0 is the argmax of the processed logits.",
    source="Ackley, Hinton and Sejnowski 1985, eq. 5",
    temperature=_temperature,
    differs={
        "vllm": "Below 1e-5 it is greedy, and 0 < T < 0.01 is raised to 0.01.",
        "hf": "0 is refused; greedy is another mode.",
        "llama.cpp": "Comes last; T ≤ 0 keeps the first largest logit after the other steps.",
        "sglang": "Below 1e-6 it is greedy.",
        "exllama": "Below 0.01 it is greedy.",
    },
)
