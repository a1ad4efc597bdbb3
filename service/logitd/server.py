"""`logitd serve`: flags from the settings, a socket or two, one uvicorn process and its admin thread."""

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import ExitStack
from functools import partial
from typing import Literal, cast

import uvicorn
from pydantic import ValidationError

from logitd.admin import Admin
from logitd.api import problems
from logitd.app import create_app
from logitd.errors import CannotServe, ServiceError
from logitd.http.limits import Limits
from logitd.http.protocol import BodyProtocol
from logitd.http.readers import SCRATCH_BYTES
from logitd.log import configure
from logitd.metrics import Metrics
from logitd.observe import Observed
from logitd.serving.drain import DrainingServer
from logitd.serving.listen import BACKLOG, Listener, listen, listen_unix
from logitd.serving.tls import tls_files
from logitd.settings import Settings
from logitd.version import __version__
from logitd_kernels.errors import BackendUnavailable

_log = logging.getLogger("logitd.server")
_KEEP_ALIVE_SECONDS = 75
_SWITCH_SECONDS = 0.0005  # what a compute thread's Python may keep the event loop waiting; ten times that by default
_LAST_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each setting; a flag wins over its environment variable."""
    for name, field in Settings.model_fields.items():
        default = "" if field.default_factory or field.description is None else f" Default: {field.default}."
        help_text = f"{field.description}{default} [LOGITD_{name.upper()}]"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=help_text.replace("%", "%%"))


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        0 after a clean stop; 2 for bad settings; 1 if the port or the socket cannot be had.
    Raises:
        SystemExit: 3, the backend does not start.
    """
    given = {
        name: value for name, value in vars(arguments).items() if name in Settings.model_fields and value is not None
    }
    try:
        settings = Settings(**given)
        configure(settings.log_level)
        app = create_app(settings)
        config = _config(app, settings)
        with ExitStack() as closing:
            _serve(app, settings, config, closing)
    except ValidationError as error:
        for fault in error.errors():
            name = str(fault["loc"][0])
            _complain(f"LOGITD_{name.upper()} / --{name.replace('_', '-')}: {fault['msg']}")
        return 2
    except BackendUnavailable as error:
        _complain(str(error))
        return 2
    except CannotServe as error:
        _complain(str(error))
        return error.status
    return 0


def _complain(line: str) -> None:
    sys.stderr.write(f"logitd: {line}\n")


def http_protocol(settings: Settings, metrics: Metrics | None = None) -> type[asyncio.Protocol] | Literal["httptools"]:
    """Return what uvicorn is to speak HTTP with, on one event loop: our protocol, or its own.

    Args:
        settings: of the service.
        metrics: where to count clients that do not read their answers, and what is refused before it is a request.
    """

    def left() -> None:
        if metrics is not None:
            metrics.cancelled("writing")

    def uncounted(error: ServiceError) -> None:
        if metrics is not None:
            metrics.unread(error.status)

    if settings.http_protocol == "stock" or sys.platform == "win32":  # whose loop asks for buffers ahead of time
        return "httptools"
    scratch = bytearray(SCRATCH_BYTES)
    ours = partial(
        BodyProtocol,
        left,
        limits=Limits.of(settings),
        render=lambda error: problems.encode(problems.document(error)),
        uncounted=uncounted,
        scratch=scratch,
    )
    return cast(type[asyncio.Protocol], ours)  # uvicorn only calls it


def _config(app: Observed, settings: Settings) -> uvicorn.Config:
    certificate, key = tls_files(settings) or (None, None)
    return uvicorn.Config(
        app,
        http=http_protocol(settings, app.metrics),
        ws="none",
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        proxy_headers=False,  # nothing asks who a client says it is
        server_header=False,
        access_log=False,
        log_config=None,
    )


def _serve(app: Observed, settings: Settings, config: uvicorn.Config, closing: ExitStack) -> None:
    """Listen, tell where, and serve until a signal has come and the service is drained.

    Raises:
        CannotServe: somebody else has the port, or it is not for us.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    main = _main_listener(settings)
    closing.callback(main.close)
    port = settings.admin_port
    if port is None:
        port = settings.port + 1 if 0 < settings.port < _LAST_PORT else 0
    beside = listen(settings.admin_host, port)
    closing.callback(beside.close)
    _tell(app, settings, main, beside)
    for stop in (signal.SIGTERM, signal.SIGINT):  # until the server has taken over: there is nothing to drain
        signal.signal(stop, lambda *_: sys.exit(0))
    admin = Admin(settings, app.lifecycle, app.metrics, beside)
    admin.start()
    closing.callback(admin.stop)
    server = DrainingServer(config, app.lifecycle, settings.drain_seconds, settings.shutdown_seconds, main.close)
    server.run(sockets=[main.socket])


def _main_listener(settings: Settings) -> Listener:
    if settings.uds is not None:
        return listen_unix(settings.uds, int(settings.uds_mode, 8))
    return listen(settings.host, settings.port)


def _tell(app: Observed, settings: Settings, main: Listener, admin: Listener) -> None:
    backend = app.engine.backend
    _log.info(
        "listening",
        extra={
            "url": main.url(tls=settings.tls_certificate is not None),
            "admin_url": admin.url(tls=False),
            "version": __version__,
            "backend": backend.name,
            "reason": backend.reason,
            "isa": backend.describe().get("isa"),
            "compute_threads": settings.compute_threads,
        },
    )
