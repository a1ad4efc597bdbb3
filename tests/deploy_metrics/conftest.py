"""A service, and a Prometheus that can be told to watch it."""

import pytest
from prometheus_server import prometheus
from running import running


@pytest.fixture(scope="module")
def service():
    with running() as service:
        yield service


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    with prometheus(tmp_path_factory.mktemp("prometheus")) as watching:
        yield watching
