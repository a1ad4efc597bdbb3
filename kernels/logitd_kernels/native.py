"""The compiled module, where this install has it."""

import importlib
from typing import Any

module: Any = None
missing: str | None = None  # why there is none
try:
    module = importlib.import_module("logitd_kernels._native")
except ImportError as error:  # a build without a compiler, or for another Python
    missing = f"no compiled kernels in this install ({error})"
