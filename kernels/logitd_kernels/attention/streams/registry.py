"""The streams by their methods' names."""

from logitd_kernels.attention.features.registry import METHODS as FEATURE_MAPS
from logitd_kernels.attention.streams.exact import ExactStream
from logitd_kernels.attention.streams.features import FeatureStream
from logitd_kernels.attention.streams.stream import Flat, Stream, StreamSetting
from logitd_kernels.errors import ParameterError

STREAMS: dict[str, type[ExactStream] | type[FeatureStream]] = {
    "exact": ExactStream,
    **{name: FeatureStream for name, method in FEATURE_MAPS.items() if not method.adapts},
}


def open_stream(setting: StreamSetting) -> Stream:
    """Return an empty stream.

    Raises:
        ParameterError: an unknown method, or options that are none of its.
    """
    return _kind(setting.method)(setting)


def restore_stream(setting: StreamSetting, flat: Flat) -> Stream:
    """Return the stream that `Stream.export` told of, continuing on the same bits.

    Raises:
        ParameterError, ShapeError, NonFiniteTensor: naming what is missing or does not fit.
    """
    return _kind(setting.method).restore(setting, flat)


def _kind(method: str) -> type[ExactStream] | type[FeatureStream]:
    if method not in STREAMS:
        raise ParameterError("method", f"must be one of {', '.join(STREAMS)}, got {method[:40]!r}")
    return STREAMS[method]
