"""Fixtures over the real service: uvicorn in a thread, on a free loopback port."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read once, when numpy is imported; processes started inherit it

import torch
import uvicorn

from logitd.app import create_app
from logitd.server import http_protocol
from logitd.settings import Settings

torch.set_num_threads(1)  # as the service does; threads that wait for each other make a busy machine slow


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("LOGITD_")]:
        monkeypatch.delenv(name)


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """Run the application until the block ends; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(settings)
    http = http_protocol(settings, app.metrics)
    config = uvicorn.Config(app, http=http, ws="none", loop="uvloop", access_log=False, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            thread.join(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the service did not stop"


@pytest.fixture(scope="session")
def service_url() -> Iterator[str]:
    """The URL of a running service with default settings."""
    with serving(Settings()) as url:
        yield url


@pytest.fixture(scope="session")
def serve():
    """`with serve(Settings(...)) as url:` for a service with other settings."""
    return serving
