"""Attention of made-up heads, sessions, comparisons and plans."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from loadtest.http.profiles.kinds import Ask, Kind, single
from loadtest.http.profiles.requests import SAFETENSORS, Wire
from numpy.typing import NDArray

from logitd.client.attention_call import attention_call, compare_call, plan_call
from logitd.client.session_call import append_call, delete_call, export_call, import_call, open_call, query_call

Heads = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]

LONG = 2304  # keys; the threshold of `auto` is at most 2,048
_HEADS, _DIM, _SHORT = 2, 32, 128
_LINEAR = ("hybrid", "moment", "favor_plus", "mean_v")
_CREATED = frozenset({201})


def kinds(wire: Wire) -> Iterator[Kind]:
    """Yield them all."""
    short, long = heads(_SHORT), heads(LONG)
    yield single("attention", [attend(wire, short, causal=causal) for causal in (False, True)])
    yield single("long attention", [attend(wire, long, causal=causal) for causal in (False, True)])
    forced = [attend(wire, heads(512), mode=mode, policy="best_effort") for mode in _LINEAR]
    yield single("linear attention", forced)
    yield single("v2 attention", [_infer(wire, short)])
    comparison = compare_call(*short, extras={}, fields={"methods": ["moment", "mean_v"]}, progress=None)
    plan = plan_call({0: short}, {"methods": ["moment"]})
    yield single(
        "comparison", [wire.call(comparison), wire.call(comparison, accept="application/json"), wire.call(plan)]
    )
    yield session(wire)


def session(wire: Wire) -> Kind:
    """Return a decoder's conversation: a prompt, some tokens, a question, a move to a session of its own, the end."""
    q, k, v = (one[0] for one in heads(_SHORT))
    fields = {"heads": _HEADS, "dim": _DIM, "method": "hybrid"}
    opening = wire.call(open_call(fields))

    async def talk(ask: Ask) -> None:
        opened = await ask(opening, _CREATED)
        if opened.status not in _CREATED:
            return
        name = json.loads(opened.body)["id"]
        await ask(wire.call(append_call(name, 0, k, v, q[:, -1:])))
        for step in (1, 2):
            await ask(wire.call(append_call(name, step, k[:, :1], v[:, :1], q[:, :1])))
        await ask(wire.call(query_call(name, q[:, :1])))
        await ask(wire.call(append_call(name, 7, k[:, :1], v[:, :1], None)), frozenset({409}))
        exported = await ask(wire.call(export_call(name)))
        if exported.status == 200:
            moved = await ask(wire.call(import_call(exported.body)), _CREATED)
            if moved.status in _CREATED:
                await ask(wire.call(delete_call(json.loads(moved.body)["id"])), frozenset({200, 204}))
        await ask(wire.call(delete_call(name)), frozenset({200, 204}))
        await ask(wire.get(f"/v1/attention/sessions/{name}"), frozenset({404, 410}))

    return Kind("session", talk)


def heads(length: int) -> Heads:
    """Return q, k and v, [1, H, L, d] each, the same in every run."""
    q, k, v = np.random.default_rng(length).standard_normal((3, 1, _HEADS, length, _DIM), np.float32)
    return q, k, v


def attend(wire: Wire, of: Heads, headers: Mapping[str, str] = {}, **fields: Any) -> bytes:  # noqa: ANN401
    """Return a request for the attention of some heads."""
    q, k, v = of
    return wire.call(attention_call(q, k, v, extras={}, fields=fields), accept=SAFETENSORS, **headers)


def _infer(wire: Wire, of: Heads) -> bytes:
    entries = [
        {"name": name, "shape": list(one.shape), "datatype": "FP32", "parameters": {"binary_data_size": one.nbytes}}
        for name, one in zip("QKV", of, strict=True)
    ]
    return wire.infer("attention", entries, b"".join(one.tobytes() for one in of))
