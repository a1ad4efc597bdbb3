"""The pretrained US-English trigram model of the pocketsphinx wheel: a source of real logits.

    logits[i] = ln P(words[i] | the last two words of the context)

Vocabulary: the 126,052 words of the wheel's dictionary, in its order. The model knows 72,544 of them; the others have
probability 0, for which it holds a finite logarithm (-53,684.4 nats), so that every logit is finite, in float16 too.
Many logits are exactly equal: a row holds 30,000 to 45,000 distinct values.

Sentence ends: a context starts a sentence ("<s>"). "</s>" is no word of the dictionary and has no logit, so exp(logits)
sums to 1 - P(</s> | context), within 0.001. The softmax of a row, which is what a sampler draws from, is therefore the
distribution of the next word *given that the sentence goes on*: a text ends where its caller stops.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from pocketsphinx import Config, LogMath, NGramModel, get_model_path

CACHED_CONTEXTS = 64  # 0.5 MB each
ORDER = 3


class TrigramModel:
    """Next-word logits over a fixed vocabulary.

    Attributes:
        words: the vocabulary; a word's place is its token id, the same for every copy of the wheel.
        vocab_size: how many words there are, 126,052.
    """

    def __init__(self) -> None:
        model = Path(get_model_path("en-us"))
        self.words: list[str] = _dictionary_words(model / "cmudict-en-us.dict")
        self.vocab_size = len(self.words)
        self._log_math = LogMath()
        self._ngrams = NGramModel(Config(), self._log_math, str(model / "en-us.lm.bin"))
        # A word without a unigram has no longer n-gram either: never asking for those saves 4 calls in 10.
        self._known_ids = np.flatnonzero(self._log_probs(self.words, ()) > self._log_math.get_zero())
        self._known_words = [self.words[i] for i in self._known_ids]
        self._cached_logits = lru_cache(maxsize=CACHED_CONTEXTS)(self._compute_logits)

    def logits(self, context: Sequence[str]) -> np.ndarray:
        """Score every word of the vocabulary as the one that follows the context; about 0.1 s when not cached.

        Args:
            context: the words so far, lower case, oldest first; only the last two count. One that the model does not
                know hides those before it: the model backs off to the words after it.
        Returns:
            [vocab_size] float32, natural logarithms, all finite; read-only, since the cache shares it.
        """
        return self._cached_logits(_history(context))

    def end_probability(self, context: Sequence[str]) -> float:
        """Return P(</s> | context): the mass that the logits of this context leave out."""
        return float(self._log_math.exp(self._log_probs(["</s>"], _history(context))[0]))

    def _compute_logits(self, history: tuple[str, ...]) -> np.ndarray:
        log_probs = np.full(self.vocab_size, self._log_math.get_zero(), np.int64)
        log_probs[self._known_ids] = self._log_probs(self._known_words, history)
        # log_to_ln multiplies by a constant, so one call converts the whole row exactly as one call a word would.
        logits = (log_probs * self._log_math.log_to_ln(1)).astype(np.float32)
        logits.setflags(write=False)
        return logits

    def _log_probs(self, words: Sequence[str], history: tuple[str, ...]) -> np.ndarray:
        """Return [len(words)] int64, log P(word | history) in LogMath's base, 1.0001; history is newest first."""
        prob = self._ngrams.prob
        return np.fromiter([prob([word, *history]) for word in words], np.int64, len(words))


def _history(context: Sequence[str]) -> tuple[str, ...]:
    """Return what NGramModel.prob wants after the word itself: the previous word, then the one before it."""
    return tuple(reversed(("<s>", *context)[1 - ORDER :]))


def _dictionary_words(path: Path) -> list[str]:
    """Return the distinct words of a dictionary in file order, without alternative pronunciations: "read(2)"."""
    entries = (line.split(maxsplit=1)[0] for line in path.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(entry for entry in entries if not entry.endswith(")")))
