"""What each operation does with an infer request; the checks and the computation are those of /v1."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from logitd.api.attention import attend_to
from logitd.api.attention_job import attention_job
from logitd.api.exchange import HEAVY_ROWS, Exchange
from logitd.api.quick import MESSAGE
from logitd.api.requests import SampleJob, named, rows_of, sample_job
from logitd.api.rows import refuse_bad
from logitd.api.sample import sampled
from logitd.api.softmax import softmaxed
from logitd.api.softmax_job import SoftmaxJob, softmax_job
from logitd.api.v2.message import InferMessage, check_names, message_of
from logitd.api.v2.models import Model
from logitd.api.v2.outputs import attention_outputs, sample_outputs, softmax_outputs
from logitd.api.v2.plain import quick_job
from logitd.attending import Attending
from logitd.shared_region import Region
from logitd.wire.message import Message
from logitd.wire.oip.answer import Output
from logitd.wire.oip.entries import SharedPlace
from logitd.wire.oip.request import InferRequest
from logitd_kernels import RowFault

_HEAVY_READ_BYTES = 1 << 20  # of shared memory: copying it would hold the event loop for a tenth of a millisecond


@dataclass(frozen=True)
class Asked:
    """A model, what it is asked, the shared memory it may use and how that is read, and whether its JSON is large."""

    model: Model
    request: InferRequest
    regions: Mapping[str, Region]
    read: Callable[[SharedPlace], memoryview]
    has_large_header: bool

    def message(self) -> InferMessage:
        """Return the request as /v1 checks it."""
        return message_of(self.request, self.model, self.read)

    @property
    def is_heavy(self) -> bool:
        """Whether reading and checking it would hold the event loop."""
        rows = max((one.shape[0] for one in self.request.inputs.values() if one.shape), default=0)
        read = sum(place.byte_size for place in self.request.places)
        return self.has_large_header or rows > HEAVY_ROWS or read > _HEAVY_READ_BYTES


@dataclass(frozen=True)
class Computed:
    """What came of it.

    Attributes:
        rows: B.
        numbers: how many the outputs hold, about.
        outputs: returns them.
    """

    rows: int
    numbers: int
    outputs: Callable[[], list[Output]]


async def _sample(exchange: Exchange, asked: Asked) -> Computed:
    def checked() -> tuple[Message, SampleJob]:
        if exchange.backend.plain is not None:
            check_names(asked.request, asked.model)
            job = quick_job(asked.request, asked.model, asked.read, exchange.settings)
            if job is not None:
                return MESSAGE, job
        message = asked.message()
        return message, sample_job(message, exchange.settings)

    message, job = await exchange.off_loop("decode", checked, heavy=asked.is_heavy)
    answers = await sampled(exchange, message, job)
    if job.fields.strict:
        faults = [answer for answer in answers if isinstance(answer, RowFault)]
        refuse_bad(message, faults, len(answers), strict=True)
    listed = asked.request.outputs
    wanted = None if listed is None else [output.name for output in listed]
    numbers = sum(values["n"] + 2 * job.fields.logprobs for values in job.values)
    return Computed(len(answers), numbers, lambda: sample_outputs(job, answers, wanted))


async def _softmax(exchange: Exchange, asked: Asked) -> Computed:
    def checked() -> tuple[InferMessage, SoftmaxJob]:
        message = asked.message()
        return message, softmax_job(message, exchange.settings)

    message, job = await exchange.off_loop("decode", checked, heavy=asked.is_heavy)
    rows = await softmaxed(exchange, message, job)
    return Computed(len(job.rows), job.values, lambda: softmax_outputs(job, rows))


async def _attention(exchange: Exchange, asked: Asked) -> Computed:
    attending: Attending = exchange.request.app.state.attending

    def run() -> Computed:
        with exchange.stages("decode"):
            message = asked.message()
            job = attention_job(message, exchange.settings, attending.threshold, binary=True)
        with exchange.stages("compute"):
            answer = named(message, lambda: attend_to(attending, job))
        return Computed(rows_of(message), answer.output.numel(), lambda: attention_outputs(job, answer))

    return await exchange.attended(run)


OPERATIONS: Mapping[str, Callable[[Exchange, Asked], Awaitable[Computed]]] = {
    "sample": _sample,
    "softmax": _softmax,
    "attention": _attention,
}
