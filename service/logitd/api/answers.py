"""From what the kernels return to bytes: JSON rows for people, safetensors for programs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from fastapi import Response

from logitd.api.columns import Answer, columns, more_tensors
from logitd.api.effective import effective
from logitd.api.requests import SampleJob
from logitd.wire import json as wire_json
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor
from logitd_kernels.sampling.result import RowFault, RowResult

Json = dict[str, Any]
_SAFETENSORS, _JSON = safetensors.MEDIA_TYPE.encode(), wire_json.MEDIA_TYPE.encode()
_REFUSED = re.compile(r"q\s*=\s*0(\.0*)?")


def wants_safetensors(accept: str) -> bool:
    """Whether an Accept header asks for safetensors; anything else is answered as JSON."""
    return accepts(accept, safetensors.MEDIA_TYPE)


def accepts(accept: str, wanted: str) -> bool:
    """Whether an Accept header names a media type, and not with q=0; `*/*` names none."""
    for offer in accept.lower().split(","):
        name, *parameters = (part.strip() for part in offer.split(";"))
        if name == wanted and not any(_REFUSED.fullmatch(parameter) for parameter in parameters):
            return True
    return False


class _Encoded(Response):
    """A body that is ready, and its two headers."""

    def __init__(self, body: bytes, content_type: bytes) -> None:
        self.body, self.status_code, self.background = body, 200, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", content_type)]


def answer_of(body: bytes, binary: bool) -> Response:
    """Return an answer: safetensors, or JSON."""
    return _Encoded(body, _SAFETENSORS if binary else _JSON)


def sample_answer(job: SampleJob, answers: Sequence[Answer], backend: str, binary: bool) -> Callable[[Json], bytes]:
    """Encode a sample answer; call the result with the stage seconds, which are known last."""
    rest = {"backend": backend, "effective": effective(job.values, job.shared)}
    if binary:
        more = {name: Tensor.of(array) for name, array in more_tensors(job, answers).items()}
        rows = [_rest_of_row(row, job, answer) for row, answer in enumerate(answers)]
        return encode_safetensors(more, {"rows": rows, **rest}, columns(answers))
    return _json([_row(row, job, answer) for row, answer in enumerate(answers)], rest)


def error_of(fault: RowFault) -> Json:
    """Return a row's error as it is sent."""
    return {"code": fault.code, "row": fault.row, "detail": fault.detail}


def _row(row: int, job: SampleJob, answer: Answer) -> Json:
    values = job.values[row]
    drawn = {"stream": values["stream"], "step": values["step"]}
    if isinstance(answer, RowFault):
        empty = dict.fromkeys(("logprob", "entropy", "entropy_kept", "kept", "kept_mass", "seed"))
        return {"token": None, **empty, **drawn, "exact": _exact(answer), "error": error_of(answer)}
    sent: Json = {
        "token": answer.tokens[0],
        "logprob": answer.logprobs[0],
        "entropy": answer.entropy,
        "entropy_kept": answer.entropy_kept,
        "kept": answer.kept,
        "kept_mass": answer.kept_mass,
        "seed": answer.seed,
        **drawn,
        "exact": answer.exact,
        "error": None,
    }
    if values["n"] > 1:
        sent |= {"tokens": answer.tokens, "tokens_logprob": answer.logprobs}
    if answer.top is not None:
        sent |= {"logprob_raw": answer.top.of_tokens[0], "top": [asdict(top) for top in answer.top.top]}
    if answer.state is not None:
        sent["state"] = answer.state
    return sent | _traced(job, answer)


def _rest_of_row(row: int, job: SampleJob, answer: Answer) -> Json:
    values = job.values[row]
    rest: Json = {"stream": values["stream"], "step": values["step"]}
    rest |= {"exact": _exact(answer), "error": error_of(answer) if isinstance(answer, RowFault) else None}
    if isinstance(answer, RowResult) and answer.state is not None:
        rest["state"] = answer.state
    return rest | _traced(job, answer)


def _exact(answer: Answer) -> bool:
    return answer.exact if isinstance(answer, RowResult) else answer.code != "head_too_short"


def _traced(job: SampleJob, answer: Answer) -> Json:
    """Return the trace and its notes, if they were asked for; null where a row has none."""
    if not job.fields.trace:
        return {}
    if isinstance(answer, RowFault) or answer.trace is None:
        return {"trace": None, "notes": None}
    return {"trace": [asdict(step) for step in answer.trace], "notes": answer.notes}


def _json(rows: list[Json], rest: Json) -> Callable[[Json], bytes]:
    text = orjson.Fragment(orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY))  # NaN and infinities become null
    return encode_json({"rows": text, **rest})


def encode_json(response: Json) -> Callable[[Json], bytes]:
    """Return what encodes a response once the stage seconds are known."""

    def finish(seconds: Json) -> bytes:
        return orjson.dumps({**response, "seconds": seconds})

    return finish


def encode_safetensors(
    tensors: Mapping[str, Tensor], response: Json, packed: safetensors.Packed = ((), b"")
) -> Callable[[Json], bytes]:
    """Return what encodes tensors, with the rest of a response as metadata, once the stage seconds are known."""

    def finish(seconds: Json) -> bytes:
        text = orjson.dumps({**response, "seconds": seconds}).decode()
        return b"".join(safetensors.encode(tensors, {"response": text}, packed))

    return finish
