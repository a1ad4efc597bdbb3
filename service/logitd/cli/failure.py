"""Why a command does not run."""

from logitd.errors import LogitdError


class CannotRun(LogitdError):
    """The command cannot be run as given: exit status 2, and this message as one line on standard error."""
