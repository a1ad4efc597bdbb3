"""Exact parts and a moment state under one softmax: heavy keys and a window exactly, the rest to second order."""

from logitd_kernels.attention.hybrid.attend import Hybrid, hybrid
from logitd_kernels.attention.hybrid.head import Parts

__all__ = ["Hybrid", "Parts", "hybrid"]
