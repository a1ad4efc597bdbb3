"""The service on both protocols."""

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
