"""Between heads with parameters and the compiled hot chain on heads."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from logitd_kernels.errors import HeadTooShort
from logitd_kernels.hot_heads import (
    BARE,
    HEAD_REQUEST,
    KEPT,
    NEEDS_DRAW,
    NEEDS_FIRST,
    NEEDS_FLOOR,
    NEEDS_HEAD,
    NEEDS_MASS,
    OK,
    TOKEN,
    HeadBatch,
    Heads,
)
from logitd_kernels.rows import HeadRows
from logitd_kernels.sampling import draw
from logitd_kernels.sampling.order import DEFAULT, Order
from logitd_kernels.sampling.registry import TRANSFORMS
from logitd_kernels.sampling.result import RowFault, RowResult
from logitd_kernels.sampling.transform import Values
from logitd_kernels.select import openings

_MORE = [transform for transform in TRANSFORMS if transform.name not in BARE]
_LONGEST = 1 << 18  # exponentials of one head, at all its temperatures
_MOST_TEMPERATURES = 64
_LARGEST_VOCAB = (1 << 31) - 1
_OPEN = {
    NEEDS_MASS: openings.MASS_OPEN,
    NEEDS_DRAW: openings.DRAW_OPEN,
    TOKEN: openings.TOKEN_OPEN,
    KEPT: openings.KEPT_OPEN,
}


def sample_heads(
    heads: Heads, rows: HeadRows, values: Sequence[Values], order: Order
) -> dict[int, RowResult | RowFault]:
    """Run what the compiled chain covers through it, and return by index the answers that it decides."""
    temperatures = len(rows.temperatures)
    size = rows.logits.shape[1] * (temperatures + 1)
    if order is not DEFAULT or rows.mask is not None or not 0 < temperatures <= _MOST_TEMPERATURES or size > _LONGEST:
        return {}
    records, own = _records(rows, values) if rows.vocab_size <= _LARGEST_VOCAB else ([], [])
    if not records:
        return {}
    batch = HeadBatch(
        ids=rows.ids,
        logits=rows.logits,
        log_z=rows.log_z_of_each,
        temperatures=np.array(rows.temperatures),
        finite_count=rows.finite_count,
        vocab_size=rows.vocab_size,
        requests=np.array(records, HEAD_REQUEST),
        planes=temperatures + any(plane == temperatures for _, plane, *_ in records),
    )
    return dict(_decided(rows.vocab_size, zip(own, heads(batch).tolist(), strict=True)))


def _records(rows: HeadRows, values: Sequence[Values]) -> tuple[list[tuple[Any, ...]], list[tuple[int, int, bool]]]:
    """Return a HEAD_REQUEST for each row that the chain covers, and beside it (row, seed, `allow_inexact`)."""
    places = {temperature: place for place, temperature in enumerate(rows.temperatures)}
    places[0.0] = 0  # greedy asks for none
    shared: dict[int, tuple[Any, ...] | None] = {}  # of parameters that several rows share; `values` outlive it
    records, own = [], []
    for row, one in enumerate(values):
        if id(one) not in shared:
            shared[id(one)] = _request(one, places, len(rows.temperatures), rows.vocab_size)
        request = shared[id(one)]
        if request is None:
            continue
        seed = one["seed"] if one["seed"] is not None else secrets.randbits(53)
        uniform = draw.uniform(seed, one["stream"], one["step"], 0)
        records.append((row, *request, uniform, one["ties"] == "all"))
        own.append((row, seed, one["allow_inexact"]))
    return records, own


def _request(values: Values, places: dict[float, int], own_plane: int, vocab_size: int) -> tuple[Any, ...] | None:
    """Return the fields of HEAD_REQUEST that parameters decide, None for what the chain does not cover."""
    if values["n"] != 1 or any(transform.asked(values) for transform in _MORE):
        return None
    temperature = values["temperature"]
    top_k = max(0, min(values["top_k"], vocab_size))
    return places.get(temperature, own_plane), temperature, values["min_p"], top_k, values["top_p"]


def _decided(
    vocab_size: int, answers: Iterable[tuple[tuple[int, int, bool], tuple[Any, ...]]]
) -> Iterable[tuple[int, RowResult | RowFault]]:
    for (row, seed, allow_inexact), answer in answers:
        status, token, logprob, entropy, entropy_kept, kept, kept_mass, *about = answer
        if status == OK:
            yield (
                row,
                RowResult(
                    [token],
                    [_told(logprob)],
                    _told(entropy),
                    _told(entropy_kept),
                    kept if kept >= 0 else None,
                    _told(kept_mass),
                    seed,
                ),
            )
        elif not allow_inexact and (open_ := _open(status, vocab_size, *about)):
            yield row, RowFault(row, open_.code, open_.kind, open_.detail)


def _open(status: int, vocab_size: int, asked: int, certain: int, floor: float) -> HeadTooShort | None:
    """Return the error of a head that is too short, worded as everywhere; None where the formulas decide."""
    if status in (NEEDS_FIRST, NEEDS_HEAD):
        said = openings.first_open if status == NEEDS_FIRST else openings.head_open
        return HeadTooShort(said(asked, certain), min(vocab_size, asked))
    if status == NEEDS_FLOOR:
        return HeadTooShort(openings.floor_open(floor))
    return HeadTooShort(_OPEN[status]) if status in _OPEN else None


def _told(number: float) -> float | None:
    return number if number == number else None
