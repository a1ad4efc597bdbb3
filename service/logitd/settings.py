"""Every setting of the service: environment variables with prefix LOGITD_, and a flag each of `logitd serve`."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_MIB = 1 << 20

Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Settings(BaseSettings):
    """Settings of one service process, read once and passed into `create_app`; never a module global."""

    model_config = SettingsConfigDict(env_prefix="LOGITD_", frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on. Loopback unless you say otherwise.")
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 takes a free one, which the log names.")
    uds: Path | None = Field(None, description="Unix domain socket to listen on, instead of host and port.")
    uds_mode: str = Field(
        "600", pattern="^0?[0-7]{3}$", description="Permissions of the Unix domain socket, octal: who may connect."
    )
    admin_host: str = Field("127.0.0.1", description="Address of the admin port: probes and metrics, without API keys.")
    admin_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="The admin port; 0 takes a free one; unset: port + 1, or a free one for port 0.",
    )
    api_keys: SecretStr | None = Field(
        None, exclude=True, description="API keys, `name:key` or `key`, with commas between; unset: everybody may ask."
    )
    api_keys_file: Path | None = Field(
        None, exclude=True, description="File of API keys, `name:key` or `key`, one a line; # starts a comment."
    )
    tls_certificate: Path | None = Field(
        None, exclude=True, description="Certificate chain (PEM): the main port speaks HTTPS."
    )
    tls_key: Path | None = Field(
        None, exclude=True, description="Private key (PEM), without a password; unset: it is in the certificate's file."
    )
    backend: Literal["auto", "cpu", "triton", "torch", "reference"] = Field(
        "auto", description="Where to compute. A named backend must run here or start-up fails; auto may fall back."
    )
    compute_threads: Positive = Field(
        default_factory=_cores, le=1024, description="Requests computed at the same time; default: the usable cores."
    )
    max_body_bytes: Positive = Field(
        256 * _MIB, description="Largest request body. A larger declared length is refused before reading (413)."
    )
    max_chunked_body_bytes: Positive = Field(
        16 * _MIB, description="Largest request body sent without a declared length (chunked)."
    )
    max_json_bytes: Positive = Field(
        64 * _MIB, description="Largest JSON body: its parse holds the interpreter; programs send safetensors."
    )
    max_inflight_requests: Positive = Field(
        1024, description="Most requests with a body in the house; more are told to come back (429)."
    )
    max_inflight_bytes: Positive = Field(
        1024 * _MIB, description="Most bytes of request bodies in the house; more are told to come back (429)."
    )
    max_queue_rows: Positive = Field(65_536, description="Most rows waiting to be sampled; more are refused (429).")
    batch_rows: Positive = Field(256, description="Most rows computed in one go; larger requests take turns in parts.")
    batch_bytes: Positive = Field(4 * _MIB, description="Most bytes of logits computed in one go.")
    request_timeout_seconds: Seconds = Field(
        30.0, description="Longest that a request may take (504); callers may ask for less: x-request-timeout-ms."
    )
    body_timeout_seconds: Seconds = Field(30.0, description="A body that takes longer to arrive is refused (408).")
    http_protocol: Literal["logitd", "stock"] = Field(
        "logitd", description="logitd receives large bodies in place; stock is uvicorn's own, without limits."
    )
    staged_body_bytes: int = Field(
        131_072, ge=0, description="Declared bodies larger than this are received in place, once the service asks."
    )
    staging_pool_bytes: int = Field(
        128 * _MIB, ge=0, description="Most memory kept for receiving bodies; larger ones take memory of their own."
    )
    max_header_bytes: Positive = Field(65_536, description="Most bytes of request line and headers (431).")
    max_headers: Positive = Field(100, description="Most header fields (431).")
    max_chunks: Positive = Field(65_536, description="Most chunks of one chunked body (413).")
    header_timeout_seconds: Seconds = Field(10.0, description="Headers that take longer to arrive are refused (408).")
    write_timeout_seconds: Seconds = Field(
        30.0, description="Who takes nothing of an answer for so long, while more waits to be sent, is cut off."
    )
    max_rows: Positive = Field(4096, description="Most rows in one request.")
    max_vocab_size: Positive = Field(1 << 22, description="Largest vocabulary of a row.")
    max_n: Positive = Field(1024, description="Most draws from one row (parameter n).")
    max_draws: Positive = Field(
        262_144,
        description="Most draws in one request, rows × n; and most top log-probabilities, rows × logprobs; and most "
        "temperatures, rows × temperatures.",
    )
    max_logprobs: Positive = Field(1024, description="Most top log-probabilities a row (field logprobs).")
    max_edits: Positive = Field(
        1 << 20,
        description="Most ids in the lists of a request's parameters; logit_bias and bad_words count for each row.",
    )
    max_history_ids: Positive = Field(1 << 22, description="Most ids in prompt_ids, and in output_ids, of one request.")
    attention_threads: Positive = Field(1, le=1024, description="Attention requests computed at the same time.")
    attention_queue: Positive = Field(
        8, description="Most attention requests in the house, waiting or computing; more are told to come back (503)."
    )
    attention_threshold: int | None = Field(
        None, ge=0, description="Keys up to which auto attends exactly; unset: measured at start-up, 512 to 2048."
    )
    max_attention_multiply_adds: Positive = Field(
        4 * 10**12, description="Most estimated work of one attention request, heads that may be exact included."
    )
    max_attention_memory_bytes: Positive = Field(
        1024 * _MIB, description="Most estimated memory of one attention request beyond its body and answer."
    )
    max_attention_heads: Positive = Field(
        8192, description="Most heads of one attention request, B · Hq, layers added."
    )
    max_attention_dim: Positive = Field(1024, description="Largest dim of queries, keys and values.")
    max_sessions: Positive = Field(1024, description="Most streaming sessions at once.")
    max_session_bytes: Positive = Field(256 * _MIB, description="Most that one session keeps; more is refused (409).")
    max_sessions_bytes: Positive = Field(1024 * _MIB, description="Most that all sessions keep; more is refused (503).")
    session_ttl_seconds: Seconds = Field(600.0, description="A session that nobody asks for so long is dropped (410).")
    session_id_key: SecretStr | None = Field(
        None,
        min_length=16,
        exclude=True,
        description="Secret that replicas share, so that each knows the others' session ids (410).",
    )
    live_seconds: Seconds = Field(
        30.0, description="Not live when the event loop, or a computation, gives no sign of life for so long."
    )
    self_test_seconds: Seconds = Field(
        5.0, description="After a kernel failure: time between self-tests, of which one that passes makes ready again."
    )
    drain_seconds: float = Field(
        0.0, ge=0, le=3600, description="How long to go on accepting after SIGTERM, not ready, until balancers know."
    )
    shared_memory: bool = Field(
        False,
        description="Let callers on this machine name shared memory instead of sending tensors (501 where off). "
        "Only on loopback or a Unix domain socket.",
    )
    max_shared_regions: Positive = Field(256, description="Most regions of shared memory registered at once.")
    max_shared_bytes: Positive = Field(4096 * _MIB, description="Most bytes in all registered regions.")
    shared_idle_seconds: Seconds = Field(
        600.0, description="A region unused for so long is forgotten once its file is gone, or its room is needed."
    )
    shutdown_seconds: Seconds = Field(25.0, description="How long open requests may finish after SIGTERM.")
    traces: Literal["off", "otlp"] = Field(
        "off", description="otlp sends OpenTelemetry spans, where the variables OTEL_… say; needs the extra otel."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe line that is logged; info logs one line a request."
    )
