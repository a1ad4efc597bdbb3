"""What else turns logits into tokens, called in process: torch's operators, transformers, llama.cpp and vLLM.

A peer that is not installed is absent, with the reason. A peer makes a contender of a piece of work, or None where it
has no such operation. What it draws is checked to lie in the kept set (`answers.py`).
"""

import ctypes
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loadtest.kernels.cases import Case, Work
from loadtest.kernels.timing import Contender
from loadtest.peers.environments import cache

_LLAMA = "llama-0.3.36"  # what loadtest/peers/llama.sh fills


@dataclass(frozen=True)
class Peer:
    """Someone else's sampler.

    Attributes:
        name: as in the table.
        absent: why it cannot run here, None when it can.
        contender: makes a contender of some work, None where the peer has no such operation.
    """

    name: str
    absent: Callable[[], str | None]
    contender: Callable[[Work], Contender | None]


def contenders(work: Work) -> list[Contender]:
    """Return the peers that are here and can do the work; none takes what comes beside the logits."""
    if work.case.history or work.case.mask or work.case.biased:
        return []
    made = [peer.contender(work) for peer in PEERS if peer.absent() is None]
    return [contender for contender in made if contender]


def absent() -> dict[str, str]:
    """Return the peers that cannot run here, with the reason."""
    return {peer.name: reason for peer in PEERS if (reason := peer.absent()) is not None}


def _over_blocks(name: str, work: Work, one: Callable[[torch.Tensor], Any]) -> Contender:
    """Return a contender that does a whole block in one call."""
    blocks = work.blocks

    @torch.inference_mode()
    def call(index: int) -> Any:  # noqa: ANN401  ([B] or [B, 1] tokens)
        return one(blocks[index % len(blocks)])

    return Contender(name, call, work.batch)


# torch


def _torch(work: Work) -> Contender | None:
    """Return the shortest way in torch's own operators; none for top_p or min_p over the whole vocabulary."""
    case = work.case
    if case.softmax:
        return _over_blocks("torch.softmax", work, lambda x: torch.softmax(x / case.temperature, -1))
    if not set(case.params) <= {"temperature", "top_k", "top_p", "min_p"}:
        return None
    if case.temperature == 0:
        return _over_blocks("torch.argmax", work, lambda x: torch.argmax(x, -1))
    if case.get("top_k", 0):
        return _over_blocks("torch.topk", work, lambda x: _topk(x, case))
    if set(case.params) <= {"temperature"}:
        return _over_blocks("torch.multinomial", work, lambda x: _drawn(torch.softmax(_scaled(x, case), -1)))
    return None


def _scaled(x: torch.Tensor, case: Case) -> torch.Tensor:
    return x if case.temperature == 1 else x / case.temperature


def _drawn(probs: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(probs, 1)


def _topk(x: torch.Tensor, case: Case) -> torch.Tensor:
    logits, ids = torch.topk(x, int(case.get("top_k", 0)))  # [B, k], sorted
    probs = torch.softmax(_scaled(logits, case), -1)
    if case.get("min_p", 0):
        probs = probs.masked_fill(probs < case.get("min_p", 0) * probs[:, :1], 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    if case.get("top_p", 1) < 1:
        probs = probs.masked_fill(probs.cumsum(-1) - probs >= case.get("top_p", 1), 0.0)
    return ids.gather(1, _drawn(probs))


# transformers


def _transformers_absent() -> str | None:
    return None if importlib.util.find_spec("transformers") else "not installed (extra bench)"


def _transformers(work: Work) -> Contender | None:
    """Return the warpers of `generate` in logitd's order (min_p first), then softmax and multinomial."""
    from transformers.generation import logits_process as warpers

    case = work.case
    known = {
        "temperature": warpers.TemperatureLogitsWarper,
        "min_p": warpers.MinPLogitsWarper,
        "top_k": warpers.TopKLogitsWarper,
        "top_p": warpers.TopPLogitsWarper,
    }
    if case.softmax or case.temperature == 0 or not set(case.params) <= set(known):
        return None
    active = [known[name](case.params[name]) for name in known if name in case.params]

    def one(x: torch.Tensor) -> torch.Tensor:
        for warper in active:
            x = warper(None, x)
        return _drawn(torch.softmax(x, -1))

    return _over_blocks("transformers", work, one)


# llama.cpp


def _llama_folder() -> Path:
    return cache() / _LLAMA


def _llama_absent() -> str | None:
    return None if (_llama_folder() / "librow.so").exists() else "not built (loadtest/peers/llama.sh builds it)"


class _Chain:
    """A sampler chain of llama.cpp and the candidate array of one row."""

    def __init__(self, library: ctypes.CDLL, case: Case, vocab: int) -> None:
        self._sample = library.row_sample
        self._vocab = vocab
        self._candidates = np.empty((vocab, 3), np.int32)  # llama_token_data: id, logit, p
        self._place = self._candidates.ctypes.data
        self._chain = library.row_chain(
            int(case.get("top_k", 0)), case.temperature, case.get("min_p", 0), case.get("top_p", 1), 1
        )

    def sample(self, logits: int) -> int:
        """Return the token drawn from a row at an address."""
        return int(self._sample(self._chain, logits, self._vocab, self._place))


def _llama_library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_llama_folder() / "librow.so"))
    real, integer, pointer = ctypes.c_float, ctypes.c_int32, ctypes.c_void_p
    library.row_chain.restype, library.row_chain.argtypes = pointer, [integer, real, real, real, ctypes.c_uint32]
    library.row_sample.restype, library.row_sample.argtypes = integer, [pointer, pointer, integer, pointer]
    return library


def _llama(work: Work) -> Contender | None:
    """Return a chain a row of the block; more than one thread takes rows side by side."""
    if work.case.softmax or not set(work.case.params) <= {"temperature", "top_k", "top_p", "min_p"}:
        return None
    library = _llama_library()
    chains = [_Chain(library, work.case, work.blocks[0].shape[1]) for _ in range(work.batch)]
    blocks = [block.float().contiguous() for block in work.blocks]
    rows = [[row.data_ptr() for row in block] for block in blocks]
    threads = ThreadPoolExecutor(work.threads) if work.threads > 1 else None

    def call(index: int, _alive: Sequence[torch.Tensor] = blocks) -> list[int]:
        block = rows[index % len(rows)]
        if threads:
            return list(threads.map(_Chain.sample, chains, block))
        return [chain.sample(row) for chain, row in zip(chains, block, strict=True)]

    return Contender("llama.cpp", call, work.batch)


# vLLM


def _vllm_absent() -> str | None:
    return None if importlib.util.find_spec("vllm") else "not installed"


def _vllm(work: Work) -> Contender | None:
    """Return vLLM's v1 sampler operation; its min_p is another one."""
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    case = work.case
    if case.softmax or case.temperature == 0 or not set(case.params) <= {"temperature", "top_k", "top_p"}:
        return None
    sampler = TopKTopPSampler()
    top_k = torch.full((work.batch,), int(case.params["top_k"]), dtype=torch.int32) if "top_k" in case.params else None
    top_p = torch.full((work.batch,), case.params["top_p"]) if "top_p" in case.params else None

    def one(x: torch.Tensor) -> Any:  # noqa: ANN401  ([B] tokens)
        drawn = sampler(x / case.temperature, {}, top_k, top_p)  # works in place: the division is its copy
        return drawn[0] if isinstance(drawn, tuple) else drawn

    return _over_blocks("vllm", work, one)


PEERS = (
    Peer("torch", lambda: None, _torch),
    Peer("transformers", _transformers_absent, _transformers),
    Peer("llama.cpp", _llama_absent, _llama),
    Peer("vllm", _vllm_absent, _vllm),
)
