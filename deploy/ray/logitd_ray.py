"""logitd under Ray Serve: `build` is the application that serve.yaml names."""

import logging
import sys

import ray
from ray import serve
from ray.serve import Application

from logitd.admin import Admin
from logitd.app import create_app
from logitd.errors import CannotServe
from logitd.log import JsonFormatter
from logitd.observe import Observed
from logitd.serving.listen import Listener, listen
from logitd.settings import Settings

_ADMIN_PORTS = 64


def build(arguments: dict[str, dict[str, object]]) -> Application:
    """Return the application that serve.yaml names.

    Args:
        arguments: `args` of serve.yaml: `settings`, by name; the environment of the nodes has the others.
    Raises:
        ValueError: something else in `args`, or settings that cannot be.
    """
    settings = arguments.pop("settings", {})
    if arguments:
        raise ValueError(f"args: expected settings, got {', '.join(arguments)}")
    _checked(settings)
    return serve.deployment(name="logitd")(serve.ingress()(Replica)).bind(settings)


class Replica:
    """One replica: an application of its own in a process of its own.

    Args:
        given: settings by name.
    """

    def __init__(self, given: dict[str, object]) -> None:
        if "compute_threads" not in given:  # not as many as the machine has: others share it
            cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
            given = {**given, "compute_threads": max(1, int(cpus))}
        settings = _checked(given)
        _log_lines(settings.log_level)
        self._observed = create_app(settings)
        self._admin: Admin | None = None
        if settings.admin_port is not None:
            beside = _first_free(settings.admin_host, settings.admin_port)
            self._admin = Admin(settings, self._observed.lifecycle, self._observed.metrics, beside)
            self._admin.start()

    def __serve_build_asgi_app__(self) -> Observed:
        """Return the application; Ray runs its lifespan."""
        return self._observed

    def check_health(self) -> None:
        """Raise where /health/ready says 503; Ray replaces a replica that did so three times in a row."""
        if not self._observed.lifecycle.ready:
            raise RuntimeError(f"not ready: {self._observed.lifecycle.state}")

    def __del__(self) -> None:
        """Close the admin port; Ray calls this once all requests are answered."""
        if self._admin is not None:
            self._admin.stop()


def _checked(given: dict[str, object]) -> Settings:
    settings = Settings(**given)  # type: ignore[arg-type]  # that is what it checks
    if settings.shared_memory:
        raise ValueError("shared_memory: a region is known to one replica, and a request goes to any")
    return settings


def _first_free(host: str, port: int) -> Listener:
    for one in range(port, port + _ADMIN_PORTS if port else 1):
        try:
            return listen(host, one)
        except CannotServe as error:
            taken = error
    raise taken


def _log_lines(level: str) -> None:
    """Write our own lines as `logitd serve` does, and leave Ray's alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    ours = logging.getLogger("logitd")
    ours.setLevel(level.upper())
    ours.handlers, ours.propagate = [handler], False
