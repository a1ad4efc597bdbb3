"""Turn logits into tokens over HTTP. The service is an extra; this is its client.

Usage:
    from logitd import Client

    with Client("http://127.0.0.1:8000") as client:
        token = client.sample(logits, temperature=0.7, top_p=0.9).rows[0].token
"""

from logitd.client import (
    AnalyzeResult,
    AsyncClient,
    AsyncSession,
    AttentionResult,
    Client,
    Comparison,
    Head,
    HeadAdvice,
    HeadReport,
    Recommendation,
    Row,
    RowError,
    RowWarning,
    SampleResult,
    ScoreResult,
    Session,
    SoftmaxResult,
    TopLogprob,
    TraceStep,
    Trial,
    TrialHead,
    VerifyResult,
)
from logitd.errors import (
    ApiError,
    ClientError,
    ConnectionFailed,
    FieldError,
    InvalidRequest,
    LogitdError,
    Overloaded,
    RowFailed,
    ServerFault,
    SessionGone,
    TimedOut,
    UnexpectedAnswer,
)
from logitd.version import __version__

__all__ = [
    "AnalyzeResult",
    "ApiError",
    "AsyncClient",
    "AsyncSession",
    "AttentionResult",
    "Client",
    "ClientError",
    "Comparison",
    "ConnectionFailed",
    "FieldError",
    "Head",
    "HeadAdvice",
    "HeadReport",
    "InvalidRequest",
    "LogitdError",
    "Overloaded",
    "Recommendation",
    "Row",
    "RowError",
    "RowFailed",
    "RowWarning",
    "SampleResult",
    "ScoreResult",
    "ServerFault",
    "Session",
    "SessionGone",
    "SoftmaxResult",
    "TimedOut",
    "TopLogprob",
    "TraceStep",
    "Trial",
    "TrialHead",
    "UnexpectedAnswer",
    "VerifyResult",
    "__version__",
]
