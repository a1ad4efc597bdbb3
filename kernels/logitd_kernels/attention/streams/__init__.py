"""Attention over a sequence that comes in pieces: what is kept of it, and how it is asked."""

from logitd_kernels.attention.streams.registry import STREAMS, needed_bytes, open_stream, restore_stream
from logitd_kernels.attention.streams.stream import Stream, StreamSetting

__all__ = ["STREAMS", "Stream", "StreamSetting", "needed_bytes", "open_stream", "restore_stream"]
