"""A row of logits to check laws on, where none is given."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_WORDS = 126_052  # as many as the model's dictionary has
_HISTORY = ("is", "this")  # newest first


def real_row() -> tuple[NDArray[np.float32], str]:
    """Return [V] logits and what they are: a language model's, where the extra `demo` is installed, else Zipf's law.

    The model is the US-English trigram model of the pocketsphinx wheel: ln P(word | "this is") of every word of its
    dictionary, those it does not know at its finite zero.
    """
    try:
        from pocketsphinx import Config, LogMath, NGramModel, get_model_path
    except ModuleNotFoundError:
        logits = -np.log(np.arange(1, _WORDS + 1))
        return logits.astype(np.float32), f"generated: ln p = -ln rank over {_WORDS:,} tokens (Zipf's law)"
    folder = Path(get_model_path("en-us"))
    log_math = LogMath()
    model = NGramModel(Config(), log_math, str(folder / "en-us.lm.bin"))
    entries = (line.split(maxsplit=1)[0] for line in (folder / "cmudict-en-us.dict").read_text("utf-8").splitlines())
    words = list(dict.fromkeys(entry for entry in entries if not entry.endswith(")")))  # "read(2)" is "read" again
    logits = np.array([model.prob([word, *_HISTORY]) for word in words], np.float64) * log_math.log_to_ln(1)
    return logits.astype(np.float32), f'real: the words after "this is", {len(words):,} of a trigram model'
