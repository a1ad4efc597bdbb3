"""The client for asyncio: the twin of `blocking.py`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import httpx

from logitd.client.analyze_call import Temperatures, analyze_call
from logitd.client.analyze_results import AnalyzeResult
from logitd.client.attention_call import Layer, attention_call, compare_call, plan_call
from logitd.client.attention_results import AttentionResult, Comparison
from logitd.client.call import info_call, sample_request, softmax_call
from logitd.client.connections import AsyncConnection
from logitd.client.events import Progress
from logitd.client.request import Parameters
from logitd.client.results import SampleResult, SoftmaxResult
from logitd.client.score_call import score_call
from logitd.client.score_results import ScoreResult
from logitd.client.session_call import import_call, open_call
from logitd.client.sessions import AsyncSession
from logitd.client.sharing import Sharing
from logitd.client.transport import PathLike, Service
from logitd.client.verify_call import verify_call
from logitd.client.verify_results import VerifyResult


class AsyncClient:
    """`Client` for asyncio: same arguments, methods and errors. Close it with `aclose`, or use `async with`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        uds: PathLike | None = None,
        api_key: str | None = None,
        shared_memory: bool = False,
        timeout_seconds: float = 30.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        service = Service(url, timeout_seconds, headers, uds, api_key)
        self._connection = AsyncConnection(service, retries, transport, sleep)
        self._sharing = Sharing(refused=not shared_memory)

    async def sample(
        self,
        logits: object,
        *,
        params: Parameters | Sequence[Parameters] | None = None,
        mask: object = None,
        prompt_ids: object = None,
        output_ids: object = None,
        guidance_logits: object = None,
        logprobs: int = 0,
        logprobs_mode: str = "raw",
        trace: bool = False,
        strict: bool = False,
        dialect: str = "vllm",
        order: Sequence[str] | None = None,
        vocab_size: int | None = None,
        compact: int | None = None,
        **parameters: Any,  # noqa: ANN401
    ) -> SampleResult:
        """Draw tokens from every row of logits: see `Client.sample`."""
        request = await asyncio.to_thread(  # selecting heads takes about a millisecond a row: not on the event loop
            sample_request,
            logits,
            params=params,
            keywords=parameters,
            beside={
                "mask": mask,
                "prompt_ids": prompt_ids,
                "output_ids": output_ids,
                "guidance_logits": guidance_logits,
            },
            logprobs=logprobs,
            logprobs_mode=logprobs_mode,
            trace=trace,
            strict=strict,
            dialect=dialect,
            order=order,
            vocab_size=vocab_size,
            size=compact,
        )
        if self._sharing.suits(request):
            return await self._connection.converse(self._sharing.sampled(request))
        return await self._connection.run(await asyncio.to_thread(request.call))

    async def verify(
        self,
        target_logits: object,
        draft_ids: object,
        *,
        draft_probs: object = None,
        draft_logits: object = None,
        draft_lengths: object = None,
        prompt_ids: object = None,
        output_ids: object = None,
        params: Parameters | Sequence[Parameters] | None = None,
        draft_params: Parameters | Sequence[Parameters] | None = None,
        method: str = "standard",
        strict: bool = False,
        dialect: str = "vllm",
        order: Sequence[str] | None = None,
        vocab_size: int | None = None,
        **parameters: Any,  # noqa: ANN401
    ) -> VerifyResult:
        """Accept draft tokens of speculative decoding: see `Client.verify`."""
        call = verify_call(
            target_logits,
            draft_ids,
            beside={
                "draft_probs": draft_probs,
                "draft_logits": draft_logits,
                "draft_lengths": draft_lengths,
                "prompt_ids": prompt_ids,
                "output_ids": output_ids,
            },
            params=params,
            draft_params=draft_params,
            method=method,
            strict=strict,
            dialect=dialect,
            order=order,
            vocab_size=vocab_size,
            keywords=parameters,
        )
        return await self._connection.run(call)

    async def softmax(
        self,
        logits: object,
        temperature: float | Sequence[float] = 1.0,
        kind: str = "softmax",
        *,
        seed: int | str | Sequence[int | str | None] | None = None,
        stream: int | Sequence[int] | None = None,
        step: int | Sequence[int] | None = None,
    ) -> SoftmaxResult:
        """Return a distribution of every row: see `Client.softmax`."""
        noise = {"seed": seed, "stream": stream, "step": step}
        return await self._connection.run(softmax_call(logits, temperature, kind, noise))

    async def score(
        self,
        logits: object,
        targets: object,
        *,
        params: Parameters | Sequence[Parameters] | None = None,
        mask: object = None,
        prompt_ids: object = None,
        output_ids: object = None,
        guidance_logits: object = None,
        gradient: bool = False,
        dialect: str = "vllm",
        order: Sequence[str] | None = None,
        vocab_size: int | None = None,
        **parameters: Any,  # noqa: ANN401
    ) -> ScoreResult:
        """Return log-probability, rank, cross-entropy and perplexity of given tokens: see `Client.score`."""
        beside = {
            "mask": mask,
            "prompt_ids": prompt_ids,
            "output_ids": output_ids,
            "guidance_logits": guidance_logits,
        }
        call = score_call(
            logits,
            targets,
            gradient=gradient,
            params=params,
            keywords=parameters,
            beside=beside,
            dialect=dialect,
            order=order,
            vocab_size=vocab_size,
        )
        return await self._connection.run(call)

    async def analyze(
        self,
        logits: object,
        temperatures: Temperatures = (1.0,),
        *,
        entropy: float | None = None,
        mass: float | None = None,
        params: Parameters | None = None,
    ) -> AnalyzeResult:
        """See every row as a Boltzmann distribution over temperatures: see `Client.analyze`."""
        call = analyze_call(logits, temperatures, entropy=entropy, mass=mass, params=params)
        return await self._connection.run(call)

    async def attention(
        self,
        q: object,
        k: object,
        v: object,
        *,
        mask: object = None,
        lengths: object = None,
        sink_logits: object = None,
        **fields: Any,  # noqa: ANN401
    ) -> AttentionResult:
        """Attend, exactly or linearly, with the measured error of every head: see `Client.attention`."""
        extras = {"mask": mask, "lengths": lengths, "sink_logits": sink_logits}
        call = await asyncio.to_thread(attention_call, q, k, v, extras=extras, fields=fields)  # megabytes are copied
        return await self._connection.run(call)

    async def attention_compare(
        self,
        q: object,
        k: object,
        v: object,
        *,
        mask: object = None,
        lengths: object = None,
        sink_logits: object = None,
        progress: Progress | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> Comparison:
        """Try every method, and say for each head what to use: see `Client.attention_compare`."""
        extras = {"mask": mask, "lengths": lengths, "sink_logits": sink_logits}
        call = await asyncio.to_thread(compare_call, q, k, v, extras=extras, fields=fields, progress=progress)
        return await self._connection.run(call)

    async def attention_plan(self, layers: Mapping[int, Layer], **fields: Any) -> dict[str, Any]:  # noqa: ANN401
        """Say which heads of which layers may be linear within a tolerance: see `Client.attention_plan`."""
        return await self._connection.run(await asyncio.to_thread(plan_call, layers, fields))

    async def attention_session(self, *, heads: int, dim: int, **fields: Any) -> AsyncSession:  # noqa: ANN401
        """Open a session, attention over one sequence that comes in pieces: see `Client.attention_session`."""
        call = open_call({"heads": heads, "dim": dim, **fields})
        return AsyncSession(self._connection, await self._connection.run(call))

    async def import_session(self, data: bytes) -> AsyncSession:
        """Open a session that continues what `AsyncSession.export` returned."""
        return AsyncSession(self._connection, await self._connection.run(import_call(data)))

    async def info(self) -> dict[str, Any]:
        """Return the service's versions, backends, limits and effective settings."""
        return await self._connection.run(info_call())

    async def aclose(self) -> None:
        """Close the connections, and give back what memory was shared."""
        await self._connection.converse(self._sharing.closed())
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
