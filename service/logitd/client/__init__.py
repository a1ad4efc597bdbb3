"""The client: numpy and httpx, nothing of the service.

`call` and `answer` build requests and read answers without I/O, `retry` decides on another try, `transport` translates
httpx; `blocking` and `asynchronous` are thin loops over them.
"""

from logitd.client.asynchronous import AsyncClient
from logitd.client.blocking import Client
from logitd.client.compact import Head
from logitd.client.results import Row, RowError, SampleResult, SoftmaxResult, TopLogprob, TraceStep

__all__ = [
    "AsyncClient",
    "Client",
    "Head",
    "Row",
    "RowError",
    "SampleResult",
    "SoftmaxResult",
    "TopLogprob",
    "TraceStep",
]
