"""The streams by their methods' names."""

from logitd_kernels.attention.features.registry import METHODS as FEATURE_MAPS
from logitd_kernels.attention.streams.exact import ExactStream
from logitd_kernels.attention.streams.features import FeatureStream
from logitd_kernels.attention.streams.hybrid import HybridStream
from logitd_kernels.attention.streams.moment import MomentStream
from logitd_kernels.attention.streams.split import SplitStream, part_of
from logitd_kernels.attention.streams.stream import Flat, Stream, StreamSetting, unprefixed
from logitd_kernels.errors import ParameterError

_WHOLE = ("cosformer",)  # weighs by distance over the length of the sequence, which a stream does not know

Kind = type[ExactStream] | type[MomentStream] | type[HybridStream] | type[FeatureStream]

STREAMS: dict[str, Kind] = {
    "hybrid": HybridStream,
    "moment": MomentStream,
    "exact": ExactStream,
    **{name: FeatureStream for name, method in FEATURE_MAPS.items() if not method.adapts and name not in _WHOLE},
}


def open_stream(setting: StreamSetting) -> Stream:
    """Return an empty stream.

    Raises:
        ParameterError: an unknown method, or options that are none of its.
    """
    if setting.modes is not None:
        return SplitStream(setting, open_stream)
    return _kind(setting.method)(setting)


def restore_stream(setting: StreamSetting, flat: Flat) -> Stream:
    """Return the stream that `Stream.export` told of, continuing on the same bits.

    Raises:
        ParameterError, ShapeError, NonFiniteTensor: naming what is missing or does not fit.
    """
    if setting.modes is not None:
        return SplitStream.restore(setting, flat, restore_stream)
    return _kind(setting.method).restore(setting, flat)


def needed_bytes(setting: StreamSetting, flat: Flat | None = None) -> int:
    """Return the bytes that a stream will keep, before it is opened or, given an export, restored.

    Raises:
        ParameterError: as `open_stream`.
    """
    flat = flat or {}
    if setting.modes is None:
        return _kind(setting.method).needs(setting, flat)
    parts = (part_of(setting, method) for method in dict.fromkeys(setting.modes))
    return sum(needed_bytes(part, unprefixed(f"{part.method}.", flat)) for part in parts)


def _kind(method: str) -> Kind:
    if method not in STREAMS:
        raise ParameterError("method", f"must be one of {', '.join(STREAMS)}, got {method[:40]!r}")
    return STREAMS[method]
