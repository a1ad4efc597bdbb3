"""When bad rows refuse the whole request."""

from collections.abc import Sequence

from logitd.errors import FieldError, Invalid
from logitd.wire.message import Message
from logitd_kernels import RowFault

_SHOWN = 64


def refuse_bad(message: Message, faults: Sequence[RowFault], rows: int, *, strict: bool) -> None:
    """Refuse the request if every row is bad, or if any is and `strict` is set.

    Raises:
        Invalid: with the path and reason of each bad row (the first 64).
    """
    if not faults or (len(faults) < rows and not strict):
        return
    name = message.path("logits" if "logits" in message.tensors else "head_logits")
    fields = [FieldError(f"{name}[{fault.row}]", f"{fault.code}: {fault.detail}") for fault in faults[:_SHOWN]]
    what = f"{len(faults)} of {rows} rows are bad and strict is set" if len(faults) < rows else "every row is bad"
    raise Invalid(f"{what}; {fields[0].path}: {fields[0].message}", fields)
