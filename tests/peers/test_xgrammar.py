"""`mask` against xgrammar: its packing, its application on the CPU, and a bitmask of a real grammar."""

import numpy as np
import pytest
import torch
import xgrammar
from comparing import KINDS, Row, ours, real
from differences import GRAMMAR, allowed
from rows_of import bitmask, row_of
from xgrammar.testing import bitmask_to_bool_mask, bool_mask_to_bitmask

import logitd_kernels as K
from logitd_kernels.errors import ShapeError
from logitd_kernels.rows import unpack_mask
from logitd_kernels.sampling.order import DEFAULT

SIZES = (1, 5, 31, 32, 33, 63, 64, 1000, 1025)


def random_mask(size, seed=0, share=0.3):
    """Return [1, V] booleans of which one at least is true."""
    allowed = torch.rand((1, size), generator=torch.Generator().manual_seed(seed)) < share
    allowed[0, seed % size] = True
    return allowed


def masked_by_xgrammar(logits, words, **options):
    """Return softmax [V] float64 of a row after its masking in place."""
    logits = logits[None].clone()
    xgrammar.apply_token_bitmask_inplace(logits, words, **options)
    return torch.softmax(logits[0].double(), -1).numpy()


@pytest.mark.parametrize("size", SIZES)
def test_the_words_are_the_same(size):
    allowed = random_mask(size)
    words = bool_mask_to_bitmask(allowed)
    assert words.shape == xgrammar.get_bitmask_shape(1, size)
    assert (unpack_mask(words[0], size) == allowed[0].numpy()).all()
    mine = bitmask(np.flatnonzero(allowed[0]), size)
    assert (bitmask_to_bool_mask(mine, size) == allowed).all()


@pytest.mark.parametrize("size", SIZES)
def test_a_fresh_bitmask_allows_everything(size):
    row = row_of("normal", size)
    words = xgrammar.allocate_token_bitmask(1, size)
    assert (ours(Row(row, mask=words), {}, DEFAULT) == ours(Row(row), {}, DEFAULT)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mostly_masked"])
def test_the_same_tokens_are_left(kind, dtype):
    for size in SIZES:
        row, words = row_of(kind, size, dtype), bool_mask_to_bitmask(random_mask(size, seed=size))
        mine, theirs = ours(Row(row, mask=words), {}, DEFAULT), masked_by_xgrammar(row, words)
        assert ((mine > 0) == (theirs > 0)).all()
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_a_real_row():
    row, words = real().logits, bool_mask_to_bitmask(random_mask(126_052))
    np.testing.assert_allclose(ours(Row(row, mask=words), {}, DEFAULT), masked_by_xgrammar(row, words), atol=1e-9)


def test_rows_of_a_batch_each_have_their_own():
    rows = torch.stack([row_of("normal", 100, seed=seed) for seed in range(4)])
    words = torch.cat([bool_mask_to_bitmask(random_mask(100, seed)) for seed in range(4)])
    theirs = rows.clone()
    xgrammar.apply_token_bitmask_inplace(theirs, words)
    answers = K.sample(K.DenseRows(rows, words), K.check({"seed": 1}))
    assert [one.kept for one in answers] == (theirs > -torch.inf).sum(-1).tolist()


# ---- Vocabularies padded to a wider row of logits ----


def test_a_mask_of_the_wide_row_forbids_the_padding():
    row, allowed = row_of("normal", 1024), random_mask(1000)
    padded = torch.cat([allowed, torch.zeros((1, 24), dtype=torch.bool)], 1)
    mine = ours(Row(row, mask=bool_mask_to_bitmask(padded)), {}, DEFAULT)
    assert (np.flatnonzero(mine) == np.flatnonzero(allowed[0])).all()


def test_a_mask_too_narrow_leaves_the_padding_open_there_and_is_refused_here():
    row, words = row_of("normal", 1056), bool_mask_to_bitmask(random_mask(1000))
    with pytest.warns(UserWarning, match="left unmasked"):
        theirs = masked_by_xgrammar(row, words)
    assert (theirs[1024:] > 0).all()
    with pytest.raises(ShapeError, match=r"expected shape \[1, 33\]"):
        ours(Row(row, mask=words), {}, DEFAULT)
    assert "too narrow" in allowed(GRAMMAR, "mask")


def test_a_real_grammar_over_a_padded_vocabulary():
    words = ["<stop>", "yes", "no", "may", "be", " ", "1", "12", "a", "y"]
    tokenizer = xgrammar.TokenizerInfo(words, vocab_size=40, stop_token_ids=[0])
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(tokenizer).compile_regex("(yes|no|maybe) [0-9]+"))
    bits = xgrammar.allocate_token_bitmask(1, tokenizer.vocab_size)
    row = torch.zeros(40)

    def allowed():
        matcher.fill_next_token_bitmask(bits)
        return {words[token] for token in np.flatnonzero(ours(Row(row, mask=bits), {}, DEFAULT))}

    steps = [allowed()]
    for word in ("may", "be", " ", "12"):
        assert matcher.accept_token(words.index(word))
        steps.append(allowed())
    assert steps == [{"yes", "no", "may", "y"}, {"be"}, {" "}, {"1", "12"}, {"1", "12", "<stop>"}]
