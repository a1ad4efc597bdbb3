"""Everything this package raises on purpose.

KernelError
├── ShapeError            a tensor's shape is not what the operation takes
├── DtypeError            a tensor's dtype is not what the operation takes
├── ParameterError        a parameter is outside its documented range
├── HeadError             a head form contradicts itself (unsorted, repeated ids, impossible log Z)
├── NonFiniteTensor       a tensor that must be finite is not
├── BadRow                one row cannot be answered; its neighbours can
│   └── HeadTooShort      the tail that was not sent could change the answer
└── BackendUnavailable    an explicitly requested backend cannot run here
"""


class KernelError(Exception):
    """Base of every error raised on purpose."""


class ShapeError(KernelError, ValueError):
    """A tensor's shape is not what the operation takes. `field` names the tensor."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class DtypeError(ShapeError):
    """A tensor's dtype is not what the operation takes. `field` names the tensor."""


class HeadError(ShapeError):
    """A head form contradicts itself. `field` names the tensor and the row."""


class ParameterError(KernelError, ValueError):
    """A parameter is outside its documented range. `field` names it, `row` its row when it has one."""

    def __init__(self, field: str, message: str, row: int | None = None) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
        self.row = row


class NonFiniteTensor(KernelError, ValueError):
    """A tensor that must be finite is not. `field` names it, `index` is where its first NaN or infinity stands."""

    def __init__(self, field: str, index: list[int], value: float) -> None:
        what = "NaN" if value != value else "+inf" if value > 0 else "-inf"
        self.message = f"{what} at {index}; only finite values are legal"
        super().__init__(f"{field}: {self.message}")
        self.field = field
        self.index = index


class BadRow(KernelError):
    """One row cannot be answered.

    `code` is part of the interface: `non_finite`, `all_masked` or `head_too_short`.
    `kind` is the finer closed set that metrics count: `nan`, `posinf`, `all_neginf` or `head_too_short`.
    """

    def __init__(self, code: str, kind: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.kind = kind
        self.detail = detail

    @classmethod
    def non_finite(cls, token: int, logit: float, kind: str) -> "BadRow":
        """Build the error for a row whose first NaN or +inf is the logit of `token`."""
        what = "NaN" if logit != logit else "+inf"
        return cls("non_finite", kind, f"logit {token} is {what}; only finite values and -inf are legal")

    @classmethod
    def all_masked(cls, detail: str) -> "BadRow":
        """Build the error for a row that has no token to draw."""
        return cls("all_masked", "all_neginf", detail)


class HeadTooShort(BadRow):
    """The head form leaves the answer open. `sufficient` is a head size that would settle it, when one is known."""

    def __init__(self, detail: str, sufficient: int | None = None) -> None:
        hint = f"send at least {sufficient} logits, or the whole row" if sufficient else "send more, or the whole row"
        super().__init__("head_too_short", "head_too_short", f"{detail}; {hint}")
        self.sufficient = sufficient


class BackendUnavailable(KernelError):
    """An explicitly requested backend cannot run here."""

    def __init__(self, backend: str, reason: str) -> None:
        super().__init__(f"backend {backend!r} is not available: {reason}")
        self.backend = backend
        self.reason = reason


def told(value: object) -> str:
    """Repeat a value in an error: short, whatever was sent."""
    if isinstance(value, int) and abs(value) >= 10**39:
        return "an integer of 40 digits or more"
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
    return text if len(text) <= 40 else text[:37] + "..."
