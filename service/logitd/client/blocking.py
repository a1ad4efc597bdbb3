"""The client for ordinary code. `asynchronous.py` is its twin; all that they do is in the modules that both use."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import httpx

from logitd.client.analyze_call import Temperatures, analyze_call
from logitd.client.analyze_results import AnalyzeResult
from logitd.client.attention_call import Layer, attention_call, compare_call, plan_call
from logitd.client.attention_results import AttentionResult, Comparison
from logitd.client.call import info_call, sample_request, softmax_call
from logitd.client.connections import Connection
from logitd.client.events import Progress
from logitd.client.request import Parameters
from logitd.client.results import SampleResult, SoftmaxResult
from logitd.client.score_call import score_call
from logitd.client.score_results import ScoreResult
from logitd.client.session_call import import_call, open_call
from logitd.client.sessions import Session
from logitd.client.sharing import Sharing
from logitd.client.transport import PathLike, Service
from logitd.client.verify_call import verify_call
from logitd.client.verify_results import VerifyResult


class Client:
    """A connection to one logitd service. Threads may share it; close it, or use it as a context manager.

        with Client("http://127.0.0.1:8000") as client:
            result = client.sample(logits, temperature=0.7, top_p=0.9, seed=1, step=position)

    Args:
        url: where the service listens: http://…, https://… or unix:///PATH; a path in front of its routes is kept.
        uds: the path of the Unix domain socket that it listens on, instead of a URL.
        api_key: for a service that asks for one; by default that of LOGITD_API_KEY, if it is set.
        shared_memory: write large logits into memory that a service on this machine reads, where it does (its setting
            `shared_memory`), instead of sending them; `seconds` of such a result is empty.
        timeout_seconds: how long to wait for a connection, and for each part of an answer.
        retries: how many tries may follow the first when it is safe to repeat a call: all but a sample of which some
            row has no seed. Connection failures, 429, 502, 503 and 504 are tried again, after what Retry-After asks for
            or an exponential backoff.
        headers: sent with every request.
        transport: how httpx reaches the service, for what the arguments above cannot say.
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
        uds: PathLike | None = None,
        api_key: str | None = None,
        shared_memory: bool = False,
        timeout_seconds: float = 30.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        service = Service(url, timeout_seconds, headers, uds, api_key)
        self._connection = Connection(service, retries, transport, sleep)
        self._sharing = Sharing(refused=not shared_memory)

    def sample(
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
        """Draw tokens from every row of logits. A bad row has an error of its own in the result.

        Args:
            logits: [B, V], or [V] for one row; float32, float16, bfloat16 or float64, numpy's or torch's (copied to the
                CPU). −inf forbids a token. Or a `Head`, already in head form.
            params: sampling parameters, one mapping for all rows or one for each.
            mask: [B, ⌈V/32⌉] int32, least significant bit first, 1 = allowed.
            prompt_ids, output_ids: [B, L] int32 or int64, the tokens of each sequence so far, padded with −1: what
                penalties, `dry`, `bad_words` and others look at.
            guidance_logits: [B, V], for `guidance_scale`.
            logprobs: how many top log-probabilities to report for each row.
            logprobs_mode: `raw`, of the untouched row at T = 1, or `processed`, after edits and temperature.
            trace: report the distribution after each active transform, and which parameter decided.
            strict: refuse the request if any row is bad.
            dialect: the system whose order the transforms act in: vllm, hf, llama.cpp, sglang or exllama.
            order: names of transforms in an order of your own.
            vocab_size: V of rows that are padded beyond it.
            compact: send only this many of each row's largest logits, with log Z of the whole row. A row whose answer
                would then depend on the rest fails with `head_too_short`, unless `allow_inexact` is set.
            parameters: sampling parameters for every row, under what `params` says: `temperature=0.7, seed=1`.
        """
        request = sample_request(
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
            return self._connection.converse(self._sharing.sampled(request))
        return self._connection.run(request.call())

    def verify(
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
        """Accept draft tokens so that the sequence is distributed as if the target model alone had sampled it.

        Args:
            target_logits: [B, n + 1, V], of the target model before each draft token, and after the last; dtypes as for
                `sample`.
            draft_ids: [B, n] int32 or int64; −1 is no token, and ends the draft of its row.
            draft_probs: [B, n, V], the distributions that the tokens were drawn from; or
            draft_logits: [B, n, V], the logits behind them; or neither, for drafts that were not drawn (n-grams).
            draft_lengths: [B] how many draft tokens each row has; by default up to its first −1.
            prompt_ids, output_ids: [B, L], the tokens of each sequence before the draft, padded with −1: what penalties
                count, together with the draft.
            params: sampling parameters of the target, one mapping for all rows or one for each.
            draft_params: those of `draft_logits`; by default the same.
            method: `standard`, or `block`, which accepts no fewer tokens on average.
            strict: refuse the request if any row is bad.
            dialect, order, vocab_size: as for `sample`, of target and draft.
            parameters: sampling parameters for every row, under what `params` says: `temperature=0.7, seed=1`.
        """
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
        return self._connection.run(call)

    def softmax(
        self,
        logits: object,
        temperature: float | Sequence[float] = 1.0,
        kind: str = "softmax",
        *,
        seed: int | str | Sequence[int | str | None] | None = None,
        stream: int | Sequence[int] | None = None,
        step: int | Sequence[int] | None = None,
    ) -> SoftmaxResult:
        """Return a distribution of every row, with log Z and entropy.

        Args:
            logits: as for `sample`, whole rows.
            temperature: T > 0, for all rows or one for each.
            kind: `softmax`, `log_softmax`, `logsumexp`, which leaves `values` out, `sparsemax`, `entmax15`, or
                `gumbel_softmax`.
            seed: what the noise of `gumbel_softmax` is drawn from, for all rows or for each; None has the service draw
                one for each row, which the result tells.
            stream, step: which noise of a seed, for all rows or for each; 0 by default.
        """
        noise = {"seed": seed, "stream": stream, "step": step}
        return self._connection.run(softmax_call(logits, temperature, kind, noise))

    def score(
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
        """Return log-probability, rank, cross-entropy and perplexity of a token that is given for each row.

        Args:
            logits: as for `sample`, whole rows.
            targets: [B] int32 or int64, or an int for one row; −1 leaves a row out.
            params, parameters: of `logprob`, as for `sample`; `logprob_raw` is of the untouched row.
            mask, prompt_ids, output_ids, guidance_logits, dialect, order, vocab_size: as for `sample`.
            gradient: return p − y, the gradient of −logprob_raw by the logits.
        """
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
        return self._connection.run(call)

    def analyze(
        self,
        logits: object,
        temperatures: Temperatures = (1.0,),
        *,
        entropy: float | None = None,
        mass: float | None = None,
        params: Parameters | None = None,
    ) -> AnalyzeResult:
        """See every row as a Boltzmann distribution, E = −z, over temperatures: energies, entropy, heat capacity.

        Args:
            logits: as for `sample`, whole rows.
            temperatures: T > 0, a list, or a range with both ends: `{"from": 0.2, "to": 2, "step": 0.1}`.
            entropy: nats; find the temperature at which each row has it.
            mass: find how many of the likeliest tokens hold this probability.
            params: sampling parameters, to be warned where one masks another; they change no number here.
        """
        call = analyze_call(logits, temperatures, entropy=entropy, mass=mass, params=params)
        return self._connection.run(call)

    def attention(
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
        """Attend, exactly or linearly, with the measured error of every head.

        Args:
            q: [B, Hq, Lq, d] queries; float32, float16, bfloat16 or float64, numpy's or torch's (copied to the CPU).
                All of q, k and v may lack the batch; the output then lacks it too.
            k: [B, Hkv, Lk, d] keys of the same dtype; query head h reads KV head h // (Hq / Hkv).
            v: [B, Hkv, Lk, dv] values.
            mask: broadcastable to [B, Hq, Lq, Lk]: bool, True is seen; or a float bias.
            lengths: [B] keys that are not padding.
            sink_logits: [Hq] logits that count in the normaliser alone.
            fields: of /v1/attention: `mode="auto", causal=True, tolerance=0.1, policy="strict", plan=plan, layer=3`.
        """
        extras = {"mask": mask, "lengths": lengths, "sink_logits": sink_logits}
        return self._connection.run(attention_call(q, k, v, extras=extras, fields=fields))

    def attention_compare(
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
        """Try every method on some tensors, and say for each head what to use.

        Args:
            q, k, v, mask, lengths, sink_logits: as for `attention`.
            progress: is told after each trial `done`, `total`, `method`, `feature_dim`, `median_error` and the costs.
                What it raises ends the comparison. It starts anew where the call is tried again.
            fields: of /v1/attention/compare: `methods=["moment", "hybrid"], feature_dims=[128], tolerance=0.1`.
        """
        extras = {"mask": mask, "lengths": lengths, "sink_logits": sink_logits}
        return self._connection.run(compare_call(q, k, v, extras=extras, fields=fields, progress=progress))

    def attention_plan(self, layers: Mapping[int, Layer], **fields: Any) -> dict[str, Any]:  # noqa: ANN401
        """Say which heads of which layers may be linear within a tolerance; `attention` takes the answer as `plan`.

        Args:
            layers: q, k and v of each layer by its number, as three tensors or by their names.
            fields: of /v1/attention/plan: `tolerance=0.1, methods=["moment", "hybrid"], causal=True`.
        """
        return self._connection.run(plan_call(layers, fields))

    def attention_session(self, *, heads: int, dim: int, **fields: Any) -> Session:  # noqa: ANN401
        """Open a session: attention over one sequence that comes in pieces, of which the service keeps the state.

        Args:
            heads, dim: Hq and d.
            fields: of /v1/attention/sessions: `method="hybrid", kv_heads=2, value_dim=128, scale=0.1, seed=1`.
        """
        call = open_call({"heads": heads, "dim": dim, **fields})
        return Session(self._connection, self._connection.run(call))

    def import_session(self, data: bytes) -> Session:
        """Open a session that continues what `Session.export` returned."""
        return Session(self._connection, self._connection.run(import_call(data)))

    def info(self) -> dict[str, Any]:
        """Return the service's versions, backends, limits and effective settings."""
        return self._connection.run(info_call())

    def close(self) -> None:
        """Close the connections, and give back what memory was shared."""
        self._connection.converse(self._sharing.closed())
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
