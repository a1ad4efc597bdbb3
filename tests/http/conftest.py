"""The service on both protocols."""

import subprocess

import pytest
from probe import Served


@pytest.fixture(scope="module", params=["logitd", "stock"])
def served(request):
    """A running service, its protocol ours and then uvicorn's."""
    with Served(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def ours():
    """A running service on our protocol."""
    with Served("logitd") as running:
        yield running


@pytest.fixture
def wire(served):
    """A connection to it."""
    with served.connected() as connection:
        yield connection


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for this machine and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-subj", "/CN=localhost", "-days", "2", "-keyout", "-", "-out", "-"]
    path.write_bytes(subprocess.run(made, capture_output=True, check=True).stdout)
    return str(path)
