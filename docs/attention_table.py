"""Write docs/attention-methods.md: the error of every method on real heads. `make attention-table` runs it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

from logitd_kernels.attention.audit import audit
from logitd_kernels.attention.call import Approximate, Call, Options
from logitd_kernels.attention.methods import APPROXIMATE

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "kernels"))
from attention import minilm  # noqa: E402  # it lies beside the tests, which need it most

LENGTHS = {512: (0, 40_000, 80_000), 2048: (0, 40_000)}  # and where in the documentation its texts begin
FEATURE_DIM = 256  # 8 d
HEAD = """# Attention methods on real heads

<!-- Written by `make attention-table`; edit docs/attention_table.py. -->

Relative error ‖answer − exact‖ / ‖exact‖ of a head: the median over heads, and behind it the 90th percentile. Queries,
keys and values are those of all-MiniLM-L6-v2 (6 layers of 12 heads, d = 32, not causal) on Python's documentation:
{texts}.
The model knows 512 positions; longer texts have theirs interpolated. Feature maps have {features} features, `moment`
and `hybrid` rank {rank}.

- cost: multiply-adds over those of exact attention.
- ≤ 0.10: the share of heads with no larger error.
- audit: the share of heads whose error 64 exact rows tell within 0.75 to 1.25 of the truth.
"""


def page() -> str:
    """Return the page."""
    texts = ", ".join(f"{len(starts)} texts of {length} tokens" for length, starts in LENGTHS.items())
    lines = [HEAD.format(texts=texts, features=FEATURE_DIM, rank=Options().rank)]
    for length in LENGTHS:
        lines += [f"## {length} tokens", "", _row("method", "cost", "all heads", *_layers(), "≤ 0.10", "audit")]
        lines.append("|---" * (minilm.LAYERS + 5) + "|")
        lines += [_method(name, length) for name in APPROXIMATE]
        lines.append("")
    return "\n".join(lines)


def _layers() -> list[str]:
    return [f"layer {layer}" for layer in range(minilm.LAYERS)]


def _method(name: str, length: int) -> str:
    """Return a method's line."""
    errors, close, costs = [], [], []
    for call, found in _answers(name, length):
        exact = scaled_dot_product_attention(call.q, call.k, call.v)
        wrong = (found.output - exact).flatten(2).norm(dim=2) / exact.flatten(2).norm(dim=2)
        errors.append(wrong[0])
        costs.append(found.cost)
        ratio = audit(call, found.output).error[0] / wrong[0]
        close.append((ratio > 0.75) & (ratio < 1.25))
    heads = torch.stack(errors).view(-1, minilm.LAYERS, minilm.HEADS)  # [texts, layers, heads]
    by_layer = [_quantiles(heads[:, layer]) for layer in range(minilm.LAYERS)]
    share = f"{(heads <= 0.10).float().mean():.0%}"
    told = f"{torch.stack(close).float().mean():.0%}"
    return _row(f"`{name}`", f"{sum(costs) / len(costs):.2f}", _quantiles(heads), *by_layer, share, told)


def _answers(name: str, length: int) -> Iterator[tuple[Call, Approximate]]:
    for start in LENGTHS[length]:
        for q, k, v in minilm.layers(length, start):
            call = Call(q, k, v)
            yield call, APPROXIMATE[name](call, Options(feature_dim=FEATURE_DIM))


def _quantiles(errors: torch.Tensor) -> str:
    middle, high = torch.quantile(errors.flatten(), torch.tensor([0.5, 0.9])).tolist()
    return f"{_short(middle)} · {_short(high)}"


def _short(number: float) -> str:
    return f"{number:.3f}" if number < 1 else f"{number:.3g}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    (DOCS / "attention-methods.md").write_text(page(), encoding="utf-8")
