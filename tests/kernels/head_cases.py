"""Heads cut out of random rows, with what was asked of them: the cases of the head form's tests."""

import math
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import pytest
import torch

import logitd_kernels as K
from logitd_kernels.errors import HeadError
from logitd_kernels.sampling.order import DEFAULT, Order

INF = math.inf
BACKENDS = {name: K.pick(name) for name in ("reference", "torch")}
TOLERANCE = 1e-3  # what `RowResult` promises of a number that the tail does not leave open
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LOG_Z_DTYPES = (torch.float64, torch.float32)
TEMPERATURES = (0.05, 0.3, 0.7, 1.0, 1.3, 5.0, 20.0)


# ---- One case: a row, what is asked of it, and how much of it is sent ----


@dataclass
class Case:
    """A row [V] and a request for it, of which the `size` largest logits are sent."""

    row: torch.Tensor
    size: int
    params: dict = field(default_factory=dict)
    u: float | None = None  # the uniform; None draws by the seed in `params`
    log_z_dtype: torch.dtype = torch.float64
    temperatures: tuple[float, ...] = (1.0,)
    tells_count: bool = False  # whether the client says how many logits are finite
    mask: torch.Tensor | None = None
    history: dict[str, torch.Tensor] = field(default_factory=dict)  # `prompt_ids` and `output_ids`, [1, L]
    order: Order = DEFAULT

    def head_rows(self, size: int | None = None) -> K.HeadRows:
        ordered, ids = torch.sort(self.row.double(), descending=True, stable=True)
        size = size or self.size
        log_z = [float(torch.logsumexp(ordered / temperature, 0)) for temperature in self.temperatures]
        return K.HeadRows(
            ids=ids[None, :size],
            logits=self.row[ids[:size]][None],
            log_z=torch.tensor([log_z], dtype=torch.float64).to(self.log_z_dtype),
            vocab_size=len(self.row),
            temperatures=self.temperatures,
            finite_count=(ordered > -INF).sum()[None] if self.tells_count else None,
            mask=self.mask,
            **self.history,
        )

    def head(self, size: int | None = None, **options):
        return draw(self.head_rows(size), self.params, self.u, order=self.order, **options)

    def dense(self, backend: str, **options):
        rows = K.DenseRows(self.row[None], self.mask, **self.history)
        return draw(rows, self.params, self.u, order=self.order, backend=BACKENDS[backend], **options)


def draw(rows, params, u, **options):
    """Sample the only row of `rows`, with u in place of the generator's uniform when one is given."""
    values = K.check({"seed": 1, **params})
    if u is None:
        return K.sample(rows, values, **options)[0]
    with mock.patch("logitd_kernels.sampling.draw.uniform", return_value=u):
        return K.sample(rows, values, **options)[0]


def settled(answer) -> bool:
    return isinstance(answer, K.RowResult) and answer.exact


def differences(told, truth) -> list[str]:
    """Name what an exact answer says that the whole row contradicts."""
    if isinstance(truth, K.RowFault):
        return [] if isinstance(told, K.RowFault) and told.code == truth.code else ["fault"]
    if isinstance(told, K.RowFault):
        return ["fault"]
    wrong = [] if told.tokens == truth.tokens else ["tokens"]
    if told.kept is not None and told.kept != truth.kept:
        wrong.append("kept")
    numbers = [("logprob", *pair) for pair in zip(told.logprobs, truth.logprobs, strict=True)]
    numbers += [(name, getattr(told, name), getattr(truth, name)) for name in ("entropy", "entropy_kept", "kept_mass")]
    states = [(told.state or {}).items(), (truth.state or {}).items()]
    numbers += [(name, a, b) for (name, a), (_, b) in zip(*states, strict=True)]
    return wrong + [name for name, a, b in numbers if a is not None and not abs(a - b) <= TOLERANCE]


def verdict(case: Case) -> tuple[str, list[str]]:
    """Return how the head was answered, and what is wrong with the answer against both backends."""
    try:
        told = case.head()
    except HeadError as error:
        return "refused", [f"an honest head was refused: {error}"]
    if isinstance(told, K.RowFault) and told.code == "head_too_short":
        return "open", []
    wrong = [f"{name}: {what}" for name in BACKENDS for what in differences(told, case.dense(name))]
    return ("exact" if settled(told) else "fault"), wrong


def hunt(cases) -> Counter:
    """Judge every case; fail with the number of wrong answers and the shortest of them."""
    seen, wrong = Counter(), []
    for case in cases:
        how, faults = verdict(case)
        seen[how] += 1
        if faults:
            wrong.append((len(case.row), faults, case))
    if wrong:
        _, faults, case = min(wrong, key=lambda item: item[0])
        pytest.fail(f"{len(wrong)} of {seen.total()} answers are wrong; the shortest row: {faults}\n{case}")
    return seen


# ---- Rows and requests ----


def normal(rng, size):
    return rng.normal(0, rng.choice([0.1, 1, 3, 10]), size)


def ties(rng, size):
    return rng.integers(-3, 2, size).astype(float)


def equal(rng, size):
    return np.full(size, rng.normal())


def peaked(rng, size):
    return np.where(np.arange(size) == rng.integers(size), rng.uniform(2, 30), rng.normal(0, 1, size))


def heavy_tail(rng, size):
    """A few tokens a little above a broad, nearly flat tail that outweighs them."""
    return np.where(np.arange(size) < 3, rng.uniform(0, 2, size), rng.uniform(-0.3, 0, size))


def masked(rng, size):
    row = np.where(rng.random(size) < 0.6, -INF, rng.normal(0, 2, size))
    row[rng.integers(size)] = 1.0
    return row


def cliff(rng, size):
    """One token so far above the others that their mass underflows at T = 1, and matters at a high one."""
    return np.where(np.arange(size) == rng.integers(size), 0.0, -rng.choice([30.0, 300.0, 1000.0]))


ROWS = {kind.__name__: kind for kind in (normal, ties, equal, peaked, heavy_tail, masked, cliff)}
CUTS = {
    "none": lambda rng, size: {},
    "top_k": lambda rng, size: {"top_k": int(rng.integers(1, size + 2))},
    "top_k ties": lambda rng, size: {"top_k": int(rng.integers(1, size + 1)), "ties": "all"},
    "top_p": lambda rng, size: {"top_p": float(rng.choice([1e-12, 0.1, 0.5, 0.9, 0.99, rng.uniform(0.01, 1)]))},
    "min_p": lambda rng, size: {"min_p": float(rng.choice([1.0, 0.5, 0.1, 0.01, 1e-4]))},
    "all": lambda rng, size: {"top_k": int(rng.integers(1, size + 1)), "top_p": 0.8, "min_p": 0.02},
}


def uniform_of(rng, row: torch.Tensor, params: dict) -> float:
    """Return a uniform: half of them anywhere, half close to where one token ends and the next begins."""
    if rng.random() < 0.5:
        return float(rng.uniform(2**-53, 1))
    temperature = params.get("temperature", 1.0) or 1.0
    masses = np.exp((np.sort(row.double().numpy())[::-1] - float(row.max())) / temperature)
    ends = np.cumsum(masses) / masses.sum()
    near = ends[rng.integers(min(len(ends), 8))] * (1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-5, -1))
    return float(min(max(near, 2**-53), 1.0))


def sizes_of(rng, vocab: int) -> int:
    """Return a head size: 1, V, or anything between, small ones more often."""
    return int(rng.choice([1, vocab, rng.integers(1, vocab + 1), rng.integers(1, min(vocab, 8) + 1)]))


def random_case(rng, kind: str, cut: str) -> Case:
    vocab = int(rng.choice([1, 2, 5, 20, 60, 300]))
    row = torch.from_numpy(ROWS[kind](rng, vocab)).to(DTYPES[rng.choice(4, p=[0.55, 0.15, 0.15, 0.15])])
    temperature = float(rng.choice([1.0, rng.choice(TEMPERATURES), math.exp(rng.uniform(-3, 3))]))
    params = {"temperature": temperature, **CUTS[cut](rng, vocab)}
    sent = [(1.0,), (1.0,), (temperature,), (1.0, temperature * 1.5), (0.05, 20.0), (0.3, 1.0, 4.0)][rng.integers(6)]
    return Case(
        row=row,
        size=sizes_of(rng, vocab),
        params=params,
        u=uniform_of(rng, row, params),
        log_z_dtype=LOG_Z_DTYPES[rng.integers(2)],
        temperatures=sent,
        tells_count=bool(rng.random() < 0.5),
    )


# ---- Edits: biases, bans, allowed ids and masks, on sent and unsent ids ----


def random_ids(rng, vocab: int, most: int) -> list[int]:
    return [int(token) for token in rng.choice(vocab, int(rng.integers(1, min(most, vocab) + 1)), replace=False)]


def biased(rng, case: Case) -> None:
    ids = random_ids(rng, len(case.row), 3)
    case.params["logit_bias"] = {token: float(rng.choice([-INF, -5, -0.1, 0.1, 2, 10])) for token in ids}


def banned(rng, case: Case) -> None:
    case.params["banned_ids"] = random_ids(rng, len(case.row), 4)


def allowed(rng, case: Case) -> None:
    case.params["allowed_ids"] = random_ids(rng, len(case.row), len(case.row))


def grammar(rng, case: Case) -> None:
    words = -(-len(case.row) // 32)
    case.mask = torch.from_numpy(rng.integers(-(2**31), 2**31, (1, words)).astype(np.int32))


def everything(rng, case: Case) -> None:
    for edit in (biased, banned, grammar):
        edit(rng, case)


EDITS = {edit.__name__: edit for edit in (biased, banned, allowed, grammar, everything)}


FEW = torch.tensor([5.0, 4, 3, 2, 1, 0, -1, -2])
