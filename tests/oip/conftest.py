"""Clients of the protocol, and shared memory that is gone afterwards."""

import os
import uuid
from multiprocessing import shared_memory

import pytest
import tritonclient.http as triton
from infer_calls import ROWS
from memory_calls import NBYTES

from logitd.settings import Settings


@pytest.fixture(scope="session")
def sharing_url(serve):
    """The URL of a service that takes shared memory."""
    with serve(Settings(shared_memory=True, max_shared_regions=8, max_shared_bytes=1 << 20)) as url:
        yield url


@pytest.fixture
def client(service_url):
    """tritonclient against a service with default settings."""
    with triton.InferenceServerClient(service_url.removeprefix("http://")) as client:
        yield client


@pytest.fixture
def sharing(sharing_url):
    """tritonclient against a service that takes shared memory, nothing registered."""
    with triton.InferenceServerClient(sharing_url.removeprefix("http://")) as client:
        client.unregister_system_shared_memory()
        yield client
        client.unregister_system_shared_memory()


@pytest.fixture
def memory():
    """`memory(byte_size)` makes shared memory."""
    made = []

    def make(byte_size):
        made.append(shared_memory.SharedMemory(f"logitd-test-{uuid.uuid4().hex}", create=True, size=byte_size))
        return made[-1]

    yield make
    for one in made:
        one.close()
        if os.path.exists(f"/dev/shm/{one.name}"):
            one.unlink()


@pytest.fixture
def filled(memory, sharing):
    """Shared memory with ROWS in it, registered as `in`."""
    made = memory(NBYTES)
    made.buf[:] = ROWS.tobytes()
    sharing.register_system_shared_memory("in", made.name, NBYTES)
    return made
