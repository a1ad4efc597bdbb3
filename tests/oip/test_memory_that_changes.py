"""Shared memory that its owner truncates, unlinks, registers and unregisters while it is used."""

import os
import threading

import pytest
from infer_calls import HTTP, ROWS, entry, header, post, refused
from memory_calls import NBYTES, from_memory, open_files, placed, register

from logitd.errors import Malformed, NotFound
from logitd.shared_memory import SharedMemory


def test_memory_that_is_truncated_after_it_was_registered(sharing_url, filled):
    path = f"/dev/shm/{filled.name}"
    os.truncate(path, NBYTES - 1)
    refused(post(sharing_url, header(from_memory())), 400, "shorter")
    os.truncate(path, 0)
    refused(post(sharing_url, header(from_memory())), 400, "shorter")
    head = header(entry(shape=ROWS.shape), outputs=[{"name": "TOKEN", "parameters": placed("in", 40)}])
    refused(post(sharing_url, head, ROWS.tobytes()), 400, "shorter")
    assert os.stat(path).st_size == 0
    os.truncate(path, NBYTES)
    assert post(sharing_url, header(from_memory())).status_code == 200


def test_memory_that_is_truncated_all_the_time(sharing_url, filled):
    path, stop = f"/dev/shm/{filled.name}", threading.Event()

    def shake():
        while not stop.is_set():
            os.truncate(path, 3)
            os.truncate(path, NBYTES)

    shaking = threading.Thread(target=shake)
    shaking.start()
    try:
        statuses = {post(sharing_url, header(from_memory())).status_code for _ in range(150)}
    finally:
        stop.set()
        shaking.join()
    assert statuses <= {200, 400}


def test_memory_that_is_unlinked_stays_usable(sharing_url, sharing, memory):
    made = memory(NBYTES)
    made.buf[:] = ROWS.tobytes()
    sharing.register_system_shared_memory("in", made.name, NBYTES)
    os.rename(f"/dev/shm/{made.name}", f"/dev/shm/{made.name}-gone")
    try:
        tokens = post(sharing_url, header(from_memory()), model="sample.greedy").json()["outputs"][0]["data"]
        assert tokens == ROWS.argmax(1).tolist()
    finally:
        os.rename(f"/dev/shm/{made.name}-gone", f"/dev/shm/{made.name}")


def test_requests_while_regions_come_and_go(sharing_url, memory):
    made, stop, statuses = memory(NBYTES), threading.Event(), []
    made.buf[:] = ROWS.tobytes()

    def churn():
        while not stop.is_set():
            register(sharing_url, "in", key=made.name, byte_size=NBYTES)
            HTTP.post(f"{sharing_url}/v2/systemsharedmemory/unregister")

    files = open_files()
    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(200):
            answer = post(sharing_url, header(from_memory()), model="sample.greedy")
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                assert answer.json()["outputs"][0]["data"] == ROWS.argmax(1).tolist()
    finally:
        stop.set()
        churning.join()
    assert set(statuses) <= {200, 404}
    HTTP.post(f"{sharing_url}/v2/systemsharedmemory/unregister")
    assert open_files() <= files + 4  # connections that the client keeps


def test_unregistering_leaves_a_region_to_who_uses_it(memory):
    made = memory(64)
    made.buf[:] = bytes(range(64))
    regions = SharedMemory(max_regions=1, max_bytes=64, idle_seconds=60)
    regions.register("r", made.name, 0, 64)
    files = open_files()
    with regions.used(["r"]) as used:
        regions.unregister("r")
        assert bytes(used["r"].read(10, memoryview(bytearray(3)))) == bytes([10, 11, 12])
        with pytest.raises(NotFound), regions.used(["r"]):
            pass
        with pytest.raises(Malformed, match="at most 1 regions"):  # its file is open still
            regions.register("s", made.name, 0, 8)
        kept = used["r"]
    assert open_files() == files - 1
    with pytest.raises(NotFound):
        kept.read(0, memoryview(bytearray(1)))
    with pytest.raises(NotFound):
        kept.write(0, [b"x"])
    regions.register("s", made.name, 0, 8)
    regions.unregister()
    assert open_files() == files - 1


def test_what_was_read_is_a_copy(memory):
    made = memory(8)
    regions = SharedMemory(max_regions=1, max_bytes=64, idle_seconds=60)
    regions.register("r", made.name, 0, 8)
    with regions.used(["r"]) as used:
        read = used["r"].read(0, memoryview(bytearray(8)))
        made.buf[:] = b"changed!"
        assert bytes(read) == bytes(8)
    regions.unregister()


def test_memory_that_is_truncated_between_the_look_and_the_read(memory, monkeypatch):
    made = memory(64)
    regions = SharedMemory(max_regions=1, max_bytes=64, idle_seconds=60)
    regions.register("r", made.name, 0, 64)
    look = os.fstat

    def look_then_truncate(file):
        found = look(file)
        os.truncate(f"/dev/shm/{made.name}", 10)
        return found

    monkeypatch.setattr(os, "fstat", look_then_truncate)
    with regions.used(["r"]) as used, pytest.raises(Malformed, match="shorter"):
        used["r"].read(0, memoryview(bytearray(64)))
    regions.unregister()
