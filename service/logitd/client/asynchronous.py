"""The client for asyncio: the twin of `blocking.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx

from logitd.client.call import Call, Parameters, info_call, sample_call, softmax_call
from logitd.client.results import SampleResult, SoftmaxResult
from logitd.client.retry import Retry
from logitd.client.transport import finish, http_options, translated
from logitd.errors import ClientError

Answer = TypeVar("Answer")


class AsyncClient:
    """`Client` for asyncio: same arguments, methods and errors. Close it with `aclose`, or use `async with`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        timeout_seconds: float = 30.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._retry = Retry(retries)
        self._sleep = sleep
        self._http = httpx.AsyncClient(transport=transport, **http_options(url, timeout_seconds, headers))

    async def sample(
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
        """Draw tokens from every row of logits: see `Client.sample`."""
        call = await asyncio.to_thread(  # selecting heads takes about a millisecond a row: not on the event loop
            sample_call,
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
        return await self._run(call)

    async def softmax(
        self, logits: object, temperature: float | Sequence[float] = 1.0, kind: str = "softmax"
    ) -> SoftmaxResult:
        """Return softmax, log-softmax or log-sum-exp of every row: see `Client.softmax`."""
        return await self._run(softmax_call(logits, temperature, kind))

    async def info(self) -> dict[str, Any]:
        """Return the service's versions, backends, limits and effective settings."""
        return await self._run(info_call())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def _run(self, call: Call[Answer]) -> Answer:
        failed = 0
        while True:
            try:
                with translated():
                    response = await self._http.request(call.method, call.path, headers=call.headers, content=call.body)
                return finish(call, response)
            except ClientError as error:
                failed += 1
                delay = self._retry.delay_seconds(failed, error, repeatable=call.repeatable)
                if delay is None:
                    raise
            await self._sleep(delay)
