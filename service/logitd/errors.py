"""Everything this package raises on purpose, in service and client.

LogitdError
├── ServiceError             the service refuses; `status`, `slug` and `title` become the problem document
│   ├── Malformed            400  the body is not what its content type says
│   ├── PayloadTooLarge      413  the body exceeds a limit, refused before it is read
│   ├── UnsupportedMedia     415  no decoder for the content type or encoding
│   ├── Unauthorized         401  no API key, or an unknown one
│   ├── NotFound             404  there is no such thing
│   ├── Conflict             409  not now: another step is next, or a session is full
│   ├── Gone                 410  it was there
│   ├── Invalid              422  understood, but a field has an impossible value
│   ├── Disabled             501  a part that is switched off, or that this service does not have
│   ├── SlowBody             408  the body did not arrive in time
│   ├── SlowHeaders          408  the headers did not
│   ├── HeadersTooLarge      431  too many headers, or too many bytes of them
│   ├── Shed                 429  more work is here than can be done soon
│   ├── Unavailable          503  not ready, or draining
│   └── DeadlinePassed       504  the time that the caller gave is over
├── CannotServe              the service cannot start as it is configured
└── ClientError              raised by `logitd.Client`
    ├── ConnectionFailed     nothing answers at that address
    ├── TimedOut             no answer within the client's timeout
    ├── ApiError             the service answered with a problem document
    │   ├── InvalidRequest   400, 401, 404, 405, 408, 409, 413, 415, 422: the request is at fault, retrying cannot help
    │   │   └── SessionGone  404, 410: the service does not have that session, or no longer
    │   ├── Overloaded       429, 503: try again after `retry_after_seconds`
    │   └── ServerFault      any other 5xx
    ├── UnexpectedAnswer     the answer is not what this client can read
    └── RowFailed            one row failed; raised only by `raise_for_rows()`
"""

from collections.abc import Sequence
from dataclasses import dataclass


class LogitdError(Exception):
    """Base of every error raised on purpose."""


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field: its path in the request, and why, in the caller's words."""

    path: str
    message: str


class ServiceError(LogitdError):
    """The service refuses a request."""

    status = 500
    slug = "internal"
    title = "Internal error"

    def __init__(self, detail: str, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = tuple(fields)

    @classmethod
    def at(cls, path: str, message: str) -> "ServiceError":
        """Build the error for one field."""
        return cls(f"{path}: {message}", [FieldError(path, message)])


class Malformed(ServiceError):
    """The body is not what its content type says."""

    status, slug, title = 400, "malformed", "Malformed request"


class PayloadTooLarge(ServiceError):
    """The body exceeds a limit."""

    status, slug, title = 413, "too-large", "Request body too large"


class UnsupportedMedia(ServiceError):
    """No decoder for the content type or content encoding."""

    status, slug, title = 415, "unsupported-media-type", "Unsupported media type"


class Unauthorized(ServiceError):
    """No API key, or an unknown one."""

    status, slug, title = 401, "unauthorized", "Unauthorized"


class Invalid(ServiceError):
    """A field has an impossible value."""

    status, slug, title = 422, "invalid", "Invalid request"


class NotFound(ServiceError):
    """There is no such thing."""

    status, slug, title = 404, "not-found", "Not found"


class Conflict(ServiceError):
    """What is asked does not fit what has happened so far."""

    status, slug, title = 409, "conflict", "Conflict"


class Gone(ServiceError):
    """It was there."""

    status, slug, title = 410, "gone", "Gone"


class Disabled(ServiceError):
    """A part of the service that is switched off, or that it does not have."""

    status, slug, title = 501, "disabled", "Not enabled"


class SlowBody(ServiceError):
    """The body did not arrive in time."""

    status, slug, title = 408, "slow-body", "Request body too slow"


class SlowHeaders(ServiceError):
    """The headers did not arrive in time."""

    status, slug, title = 408, "slow-headers", "Request headers too slow"


class HeadersTooLarge(ServiceError):
    """Too many header fields, or too many bytes of request line and headers."""

    status, slug, title = 431, "headers-too-large", "Request header fields too large"


class Unavailable(ServiceError):
    """The service is starting or draining."""

    status, slug, title = 503, "unavailable", "Not ready"


class Shed(ServiceError):
    """More work is here than can be done soon; `retry_after_seconds` is when there should be room.

    `reason` is for metrics: of what there is too much.
    """

    status, slug, title = 429, "overloaded", "Too many requests"

    def __init__(self, detail: str, retry_after_seconds: int, reason: str) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds
        self.reason = reason


class DeadlinePassed(ServiceError):
    """The time that the caller gave, or that any request may take, is over."""

    status, slug, title = 504, "deadline", "Deadline passed"


class CannotServe(LogitdError):
    """The service cannot start as it is configured: one line for whoever started it, without secrets.

    Attributes:
        status: the process's exit status; 2 when the settings are at fault, 1 when the machine is.
    """

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class ClientError(LogitdError):
    """Base of what `logitd.Client` raises."""


class ConnectionFailed(ClientError):
    """Nothing answers at that address."""


class TimedOut(ClientError):
    """No answer within the client's timeout."""


class ApiError(ClientError):
    """The service answered with a problem document."""

    def __init__(
        self, status: int, detail: str, fields: Sequence[FieldError] = (), retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.fields = tuple(fields)
        self.retry_after_seconds = retry_after_seconds


class InvalidRequest(ApiError):
    """The request is at fault; retrying cannot help."""


class SessionGone(InvalidRequest):
    """The session expired, was deleted, or went with the process that kept it; another can be opened or imported."""


class Overloaded(ApiError):
    """The service is overloaded or not ready; try again after `retry_after_seconds`."""


class ServerFault(ApiError):
    """The service failed."""


class UnexpectedAnswer(ClientError):
    """The answer is not what this client can read."""


class RowFailed(ClientError):
    """One row failed: its index, its code and why."""

    def __init__(self, row: int, code: str, detail: str) -> None:
        super().__init__(f"row {row}: {code}: {detail}")
        self.row = row
        self.code = code
        self.detail = detail
