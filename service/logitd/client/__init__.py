"""The client: numpy and httpx, nothing of the service.

`call` and `answer`, `attention_call` and `attention_answer`, `session_call` and `session_answer` build requests and
read answers without I/O, `events` reads those that come as events, `retry` decides on another try, `transport`
translates httpx; `connections` are thin loops over them, once blocking and once asynchronous; `sessions` use those.
`sharing` holds conversations about shared memory, of which `region` is a piece and `placed` a request.
"""

from logitd.client.analyze_results import AnalyzeResult, RowWarning
from logitd.client.asynchronous import AsyncClient
from logitd.client.attention_results import (
    AttentionResult,
    Comparison,
    HeadAdvice,
    HeadReport,
    Recommendation,
    Trial,
    TrialHead,
)
from logitd.client.blocking import Client
from logitd.client.compact import Head
from logitd.client.results import Row, RowError, SampleResult, SoftmaxResult, TopLogprob, TraceStep
from logitd.client.score_results import ScoreResult
from logitd.client.sessions import AsyncSession, Session
from logitd.client.verify_results import VerifyResult

__all__ = [
    "AnalyzeResult",
    "AsyncClient",
    "AsyncSession",
    "AttentionResult",
    "Client",
    "Comparison",
    "Head",
    "HeadAdvice",
    "HeadReport",
    "Recommendation",
    "Row",
    "RowError",
    "RowWarning",
    "SampleResult",
    "ScoreResult",
    "Session",
    "SoftmaxResult",
    "TopLogprob",
    "TraceStep",
    "Trial",
    "TrialHead",
    "VerifyResult",
]
