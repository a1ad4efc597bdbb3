"""Real logits: next-word scores of the demo's trigram model. Without torch, which would be slow to start."""

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_TRIGRAM = Path(__file__).parents[3] / "examples" / "trigram.py"
_CONTEXTS = (
    "the united", "thank you", "new york", "of the", "i do not", "he said that", "a lot", "the president",
)  # fmt: skip


@lru_cache(maxsize=1)
def rows() -> NDArray[np.float32]:
    """Return [8, 126,052] logits, of contexts from nearly certain to wide open.

    Raises:
        ImportError: pocketsphinx, which has the model, is not installed: `pip install 'logitd[demo]'`.
    """
    spec = importlib.util.spec_from_file_location("trigram", _TRIGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TrigramModel()
    return np.stack([model.logits(context.split()) for context in _CONTEXTS])
