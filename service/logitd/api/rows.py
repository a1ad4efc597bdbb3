"""When bad rows refuse the whole request."""

from collections.abc import Sequence

from logitd.errors import FieldError, Invalid
from logitd.wire.message import Message
from logitd_kernels import RowFault

_SHOWN = 64
_OF_CODES = {"bad_draft": "draft_probs"}
_OF_ROWS = ("logits", "target_logits", "head_logits")


def refuse_bad(message: Message, faults: Sequence[RowFault], rows: int, *, strict: bool) -> None:
    """Refuse the request if every row is bad, or if any is and `strict` is set.

    Raises:
        Invalid: with the path and reason of each bad row (the first 64).
    """
    if not faults or (len(faults) < rows and not strict):
        return
    name = next(name for name in _OF_ROWS if name in message.tensors)
    fields = [
        FieldError(f"{message.path(_OF_CODES.get(fault.code, name))}[{fault.row}]", f"{fault.code}: {fault.detail}")
        for fault in faults[:_SHOWN]
    ]
    what = f"{len(faults)} of {rows} rows are bad and strict is set" if len(faults) < rows else "every row is bad"
    raise Invalid(f"{what}; {fields[0].path}: {fields[0].message}", fields)
