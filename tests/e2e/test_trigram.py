"""The demo's language model: the facts that the pipeline and the benchmarks lean on."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

TRIGRAM = Path(__file__).parents[2] / "examples" / "trigram.py"
CONTEXTS = ["", "new", "in new", "the united", "thank you", "of the day", "xyzzy plugh"]


@pytest.fixture(scope="module")
def trigram():
    spec = importlib.util.spec_from_file_location("trigram", TRIGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(trigram):
    return trigram.TrigramModel()


def test_vocabulary_is_the_dictionary_without_alternatives(model):
    assert model.vocab_size == len(model.words) == len(set(model.words)) == 126_052
    assert not any(word.endswith(")") for word in model.words)
    assert "</s>" not in model.words


@pytest.mark.parametrize(("token", "word"), [(0, "'bout"), (112_947, "the"), (124_983, "york"), (126_051, "zywicki")])
def test_ids_are_stable(model, token, word):
    assert model.words[token] == word


@pytest.mark.parametrize("context", CONTEXTS)
def test_logits_are_log_probabilities_that_leave_out_the_sentence_end(model, context):
    logits = model.logits(context.split())
    assert logits.shape == (126_052,)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    mass = np.exp(logits, dtype=np.float64).sum()
    assert 0.5 < mass <= 1.0001
    assert mass + model.end_probability(context.split()) == pytest.approx(1, abs=1e-3)  # the model is quantised


@pytest.mark.parametrize(
    ("context", "word", "probability"), [("in new", "york", 0.626), ("the united", "states", 0.886), ("", "i", 0.087)]
)
def test_most_likely_word(model, context, word, probability):
    logits = model.logits(context.split())
    assert model.words[logits.argmax()] == word
    assert np.exp(logits.max()) == pytest.approx(probability, abs=1e-3)


def test_only_the_last_two_words_count(model):
    assert np.array_equal(model.logits(["york", "in", "new"]), model.logits(["in", "new"]))
    assert not np.array_equal(model.logits(["new"]), model.logits(["in", "new"]))


def test_exact_ties_among_possible_words(model):
    logits = model.logits(["in", "new"])
    possible = logits[logits > logits.min()]
    assert possible.size == 72_544
    assert np.unique(possible).size < 45_000


def test_cached_logits_are_equal_and_cannot_be_changed(trigram, model):
    first = model.logits(["in", "new"])
    assert model.logits(["in", "new"]) is first
    assert np.array_equal(trigram.TrigramModel().logits(["in", "new"]), first)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0
