"""top_k: keep the k largest logits."""

from logitd_kernels.head import Prefix
from logitd_kernels.sampling.parameters import Choice, Number
from logitd_kernels.sampling.transform import Cut, Values
from logitd_kernels.select.ordered import OrderedRow


def _cut(row: OrderedRow, kept: Prefix, values: Values) -> Prefix:
    count = values["top_k"]
    if count >= kept.count:
        return kept
    if values["ties"] == "all":
        return row.above(float(row.head(count).logits[:count][-1]))
    return row.first(count)


TOP_K = Cut(
    name="top_k",
    parameter=Number("top_k", 0, "Keep the k largest logits; 0 and -1 are off.", ge=-1, integer=True),
    options=(
        Choice("ties", "exact", ("exact", "all"), "Whether top_k keeps all tokens equal to the k-th, or exactly k."),
    ),
    off=(-1,),
    formula="keep the first k tokens by (logit descending, token id ascending)",
    boundary='Exactly k under ties, unless `ties` is "all"; above V keeps all; 0 and −1 are off; 1 is the argmax.',
    source="Fan, Lewis and Dauphin 2018, arXiv:1805.04833, §3",
    cut=_cut,
    differs={
        "vllm": "Some of its kernels keep all ties, some exactly k.",
        "hf": 'Keeps all ties: ties="all".',
        "llama.cpp": "Which of several ties is kept is not said.",
        "sglang": "0 is refused; its kernels keep all ties.",
        "exllama": 'Version 3 keeps all ties: ties="all".',
    },
)
