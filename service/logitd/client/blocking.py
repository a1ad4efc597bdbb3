"""The client for ordinary code. `asynchronous.py` is its twin; all that they do is in the modules that both use."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx

from logitd.client.call import Call, Parameters, info_call, sample_call, softmax_call
from logitd.client.results import SampleResult, SoftmaxResult
from logitd.client.retry import Retry
from logitd.client.transport import finish, http_options, translated
from logitd.errors import ClientError

Answer = TypeVar("Answer")


class Client:
    """A connection to one logitd service. Threads may share it; close it, or use it as a context manager.

        with Client("http://127.0.0.1:8000") as client:
            result = client.sample(logits, temperature=0.7, top_p=0.9, seed=1, step=position)

    Args:
        url: where the service listens; a path in front of its routes is kept.
        timeout_seconds: how long to wait for a connection, and for each part of an answer.
        retries: how many tries may follow the first when it is safe to repeat a call: a GET, a softmax, or a sample
            whose every row has a seed. Connection failures, 429, 502, 503 and 504 are tried again, after what
            Retry-After asks for or an exponential backoff.
        headers: sent with every request.
        transport: how httpx reaches the service, e.g. `httpx.HTTPTransport(uds=…)` for a Unix socket.
        sleep: how to wait between tries.
    Raises:
        ValueError: arguments that cannot be used.

    Every method raises `ClientError`: `ConnectionFailed`, `TimedOut`, `InvalidRequest`, `Overloaded`, `ServerFault` or
    `UnexpectedAnswer`; and TypeError or ValueError for what cannot be put on the wire at all.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        timeout_seconds: float = 30.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retry = Retry(retries)
        self._sleep = sleep
        self._http = httpx.Client(transport=transport, **http_options(url, timeout_seconds, headers))

    def sample(
        self,
        logits: object,
        *,
        params: Parameters | Sequence[Parameters] | None = None,
        mask: object = None,
        logprobs: int = 0,
        logprobs_mode: str = "raw",
        trace: bool = False,
        strict: bool = False,
        compact: int | None = None,
        **parameters: Any,  # noqa: ANN401
    ) -> SampleResult:
        """Draw tokens from every row of logits. A bad row has an error of its own in the result.

        Args:
            logits: [B, V], or [V] for one row; float32, float16, bfloat16 or float64, numpy's or torch's (copied to the
                CPU). −inf forbids a token. Or a `Head`, already in head form.
            params: sampling parameters, one mapping for all rows or one for each.
            mask: [B, ⌈V/32⌉] int32, least significant bit first, 1 = allowed.
            logprobs: how many top log-probabilities to report for each row.
            logprobs_mode: `raw`, of the untouched row at T = 1, or `processed`, after edits and temperature.
            trace: report the distribution after each active transform.
            strict: refuse the request if any row is bad.
            compact: send only this many of each row's largest logits, with log Z of the whole row. A row whose answer
                would then depend on the rest fails with `head_too_short`, unless `allow_inexact` is set.
            parameters: sampling parameters for every row, under what `params` says: `temperature=0.7, seed=1`.
        """
        return self._run(
            sample_call(
                logits,
                params=params,
                keywords=parameters,
                mask=mask,
                logprobs=logprobs,
                logprobs_mode=logprobs_mode,
                trace=trace,
                strict=strict,
                size=compact,
            )
        )

    def softmax(
        self, logits: object, temperature: float | Sequence[float] = 1.0, kind: str = "softmax"
    ) -> SoftmaxResult:
        """Return softmax, log-softmax or log-sum-exp of every row, with log Z and entropy.

        Args:
            logits: as for `sample`, whole rows.
            temperature: T > 0, for all rows or one for each.
            kind: `softmax`, `log_softmax`, or `logsumexp`, which leaves `values` out.
        """
        return self._run(softmax_call(logits, temperature, kind))

    def info(self) -> dict[str, Any]:
        """Return the service's versions, backends, limits and effective settings."""
        return self._run(info_call())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, call: Call[Answer]) -> Answer:
        failed = 0
        while True:
            try:
                with translated():
                    response = self._http.request(call.method, call.path, headers=call.headers, content=call.body)
                return finish(call, response)
            except ClientError as error:
                failed += 1
                delay = self._retry.delay_seconds(failed, error, repeatable=call.repeatable)
                if delay is None:
                    raise
            self._sleep(delay)
