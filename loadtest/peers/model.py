"""What every peer serves, in its own environment: top_k, temperature, top_p and a draw, in torch's operators."""

from typing import Any

import numpy as np
import torch

TEMPERATURE, TOP_K, TOP_P = 0.8, 50, 0.9


@torch.inference_mode()
def sample(logits: Any) -> Any:  # noqa: ANN401  (arrays, under whichever NumPy the peer has)
    """Return [B] int32 tokens of [B, V] float32 logits.

    The temperature comes after top_k, which it does not change: that way it is divided out of 50 logits and not of V.
    """
    values, ids = torch.topk(torch.from_numpy(logits), TOP_K)  # [B, k], sorted
    probs = torch.softmax(values / TEMPERATURE, -1)
    probs = probs.masked_fill(probs.cumsum(-1) - probs >= TOP_P, 0.0)
    return ids.gather(1, torch.multinomial(probs, 1))[:, 0].numpy().astype(np.int32)
