"""Exact attention as its definition reads: all scores at once, in float64. The yardstick of every other method."""

import torch

from logitd_kernels.attention.call import Attended, Call


@torch.no_grad()
def reference(call: Call) -> Attended:
    """Attend with every score at hand: O(Lq · Lk) memory.

        s = scale · q·k, then cap · tanh(s / cap), then + bias; −inf where not seen
        w = e^s / (Σ e^s + e^sink),  output = Σ w v,  LSE = log Σ e^s,  entropy = −Σ w log w

    The sums run over keys: a sink takes its share of the weights and is in neither LSE nor entropy. A key that is not
    finite makes NaN of the queries that see it, a value that is not finite of its dim of their output.

    Returns:
        Everything in float64, the output too. Without a visible key: output 0, LSE −inf, entropy 0, max_prob 0.
    """
    rows, columns = torch.arange(call.queries), torch.arange(call.keys)
    q = call.q.double()
    k, v = (each.double().repeat_interleave(call.group, 1) for each in (call.k, call.v))
    scores = call.scaling * (q @ k.mT)  # [B, Hq, Lq, Lk]
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    seen = call.seen(rows, columns).expand(scores.shape)
    bias = call.bias(rows, columns)
    if bias is not None:
        seen = seen & (bias != -torch.inf)
        scores = scores + bias
    bad_keys = ~torch.isfinite(k).all(-1)[:, :, None]  # q·k could be −inf, as if it were not seen
    scores = scores.masked_fill(bad_keys, torch.nan).masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(-1)
    total = lse
    if call.sink_logits is not None:
        total = torch.logaddexp(lse, call.sink_logits.double()[None, :, None].expand(lse.shape))
    weights = torch.exp(scores - total[..., None]).masked_fill(~seen, 0)  # −inf − −inf where nothing is seen
    return Attended(
        output=_weighed(weights, seen, v),
        lse=lse,
        entropy=torch.special.entr(weights).sum(-1),
        max_prob=torch.nn.functional.pad(weights, (0, 1)).amax(-1),
    )


def _weighed(weights: torch.Tensor, seen: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return weights @ v, where 0 · NaN is 0 for what is not seen."""
    bad = ~torch.isfinite(v)
    output = weights @ v.masked_fill(bad, 0)
    return output.masked_fill(seen.double() @ bad.double() > 0, torch.nan)
