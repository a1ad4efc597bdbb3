"""Linear attention on the GPU: φ(Q)(φ(K)ᵀ[V, 1]) from features that exist already, causal or not.

`linear` has the kernels, `launch` drives them. Importing this package imports no triton.
"""

import torch

from logitd_kernels.select.triton import why_not

__all__ = ["linear_attention", "why_not"]


def linear_attention(
    phi_q: torch.Tensor, phi_k: torch.Tensor, v: torch.Tensor, *, causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum values and ones by the weights φ(q)·φ(k), without holding a weight for every pair.

        numerator_i = Σ_j (φ(q_i)·φ(k_j)) v_j,  denominator_i = Σ_j φ(q_i)·φ(k_j);  j ≤ i where causal

    Sums are float32, products three of TF32 each. Keys are summed in segments; a
    causal query reads the sum of the segments before its own, and its own segment in chunks of 64 by φ(q)·φ(k).

    Args:
        phi_q: [N, Lq, m] float32, N heads of all sequences, any strides.
        phi_k: [N, Lk, m] float32; with `causal`, Lk = Lq.
        v: [N, Lk, dv] float32, float16 or bfloat16.
        causal: query i sees keys up to i.
    Returns:
        Numerators [N, Lq, dv] and denominators [N, Lq], float32; 0 where there is no key.
    Raises:
        ShapeError, DtypeError: naming the tensor.
    Source: Katharopoulos et al. 2020, arXiv:2006.16236; Hua et al. 2022, arXiv:2202.10447 (chunks).
    """
    from logitd_kernels.attention.triton.launch import launch

    return launch(phi_q, phi_k, v, causal)
