"""`logitd serve`: flags from the settings, one socket, one uvicorn process."""

import argparse
import logging
import os
import signal
import socket
import sys

import uvicorn
from pydantic import ValidationError

from logitd.app import create_app
from logitd.log import configure
from logitd.observe import Observed
from logitd.settings import Settings
from logitd.version import __version__
from logitd_kernels.errors import BackendUnavailable

_log = logging.getLogger("logitd.server")
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each setting; a flag wins over its environment variable."""
    for name, field in Settings.model_fields.items():
        default = "" if field.default_factory or field.description is None else f" Default: {field.default}."
        help_text = f"{field.description}{default} [LOGITD_{name.upper()}]"
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=help_text.replace("%", "%%"))


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; 0 after a clean stop, 2 for bad settings, 1 if the port cannot be had."""
    given = {
        name: value for name, value in vars(arguments).items() if name in Settings.model_fields and value is not None
    }
    try:
        settings = Settings(**given)
        configure(settings.log_level)
        app = create_app(settings)
    except ValidationError as error:
        for fault in error.errors():
            name = str(fault["loc"][0])
            _complain(f"LOGITD_{name.upper()} / --{name.replace('_', '-')}: {fault['msg']}")
        return 2
    except BackendUnavailable as error:
        _complain(str(error))
        return 2
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        _complain(f"cannot listen on {settings.host}:{settings.port}: {os.strerror(error.errno or 0)}")
        return 1
    _serve(app, settings, listener)
    return 0


def _complain(line: str) -> None:
    sys.stderr.write(f"logitd: {line}\n")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _serve(app: Observed, settings: Settings, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.shutdown_seconds) or 1,
        server_header=False,
        access_log=False,
        log_config=None,
    )
    host, port = listener.getsockname()[:2]
    backend = app.engine.backend
    _log.info(
        "listening",
        extra={
            "url": f"http://{host}:{port}",
            "version": __version__,
            "backend": backend.name,
            "reason": backend.reason,
            "isa": backend.describe().get("isa"),
            "compute_threads": settings.compute_threads,
        },
    )
    # uvicorn drains on a signal, then raises it again for whoever ran it: end with 0, as a clean stop should.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: sys.exit(0))
    uvicorn.Server(config).run(sockets=[listener])
