"""What a token costs in a stream that has so many already: taken in, and asked for its answer."""

from collections.abc import Sequence

from loadtest.attention.curve import STATE, STEP, Curve
from loadtest.attention.work import DIM, HEADS, tensors
from loadtest.kernels.timing import Budget, Contender, Times, alternate

from logitd_kernels.attention.streams import STREAMS, Stream, StreamSetting, open_stream, restore_stream

_STEPS = {"exact": 8}  # a turn
_BLOCK = 64  # steps a turn of the others: a hybrid stream moves a block of so many into its state, once
TOKENS = tuple(1 << power for power in range(10, 16))  # 1,024 to 32,768
_EARLY = 256
METHODS = tuple(name for name in ("exact", "moment", "hybrid", "elu") if name in STREAMS)


def curves(tokens: Sequence[int], budget: Budget) -> list[Curve]:
    """Measure the step and the state of every kind of stream at each number of tokens, in the same rounds.

    A turn is 64 steps, 8 of the exact stream. Before it, outside the clock, a stream is put back to that number and
    takes one more, with which a cache makes room for half as many again: no turn has that copy, which comes too seldom
    to count.
    """
    streams = {(method, count): _filled(method, count) for method in METHODS for count in tokens}
    bytes_of = {key: stream.bytes for key, stream in streams.items()}
    times = alternate([_stepping(f"{key[0]} {key[1]}", stream) for key, stream in streams.items()], budget)
    found = []
    for method in METHODS:
        steps: dict[int, Times] = {count: times[f"{method} {count}"] for count in tokens}
        states: dict[int, Times] = {count: {0: float(bytes_of[method, count])} for count in tokens}
        found += [Curve.of(STEP, method, True, steps), Curve.of(STATE, method, True, states)]
    return found


def _filled(method: str, tokens: int) -> Stream:
    """Return a stream that has taken in so many tokens, the first of them with queries, which it may be fitted to."""
    stream = open_stream(StreamSetting(method, HEADS, HEADS, DIM, DIM))
    q, k, v = (tensor[0] for tensor in tensors(tokens))
    stream.attend(q[:, :_EARLY], k[:, :_EARLY], v[:, :_EARLY])
    stream.attend(None, k[:, _EARLY:], v[:, _EARLY:])
    return stream


def _stepping(name: str, stream: Stream) -> Contender:
    setting, flat = stream.setting, stream.export()
    count = _STEPS.get(setting.method, _BLOCK)
    tokens = [[x[0, :, place : place + 1] for x in tensors(_EARLY)] for place in range(count + 1)]
    current = [stream]

    def restore() -> None:
        current[0] = restore_stream(setting, flat)
        current[0].attend(*tokens[-1])

    def steps(index: int) -> None:
        for token in tokens[:count]:
            current[0].attend(*token)

    return Contender(name, steps, batch=count, ours=True, before=restore)
