"""System shared memory: tensors in and out of it through tritonclient, and what attackers would try."""

import os
import uuid

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.utils.shared_memory as triton_memory
from infer_calls import HTTP, ROWS, ask, entry, header, post, refused
from memory_calls import NBYTES, from_memory, open_files, placed, register
from tritonclient.utils import InferenceServerException

from logitd.api.v2.sharing import is_local
from logitd.settings import Settings


def test_tensors_in_and_out_as_the_client_library_does_it(sharing):
    size = len(ROWS) * 8
    region_in = triton_memory.create_shared_memory_region("in", f"/logitd-{uuid.uuid4().hex}", NBYTES)
    region_out = triton_memory.create_shared_memory_region("out", f"logitd-{uuid.uuid4().hex}", 2 * size)
    try:
        triton_memory.set_shared_memory_region(region_in, [ROWS])
        sharing.register_system_shared_memory("in", region_in._shm_key, NBYTES)
        sharing.register_system_shared_memory("out", region_out._shm_key, 2 * size)
        logits = triton.InferInput("LOGITS", ROWS.shape, "FP32")
        logits.set_shared_memory("in", NBYTES)
        wanted = [triton.InferRequestedOutput(name, binary_data=True) for name in ("TOKEN", "SEED", "LOGPROB")]
        wanted[0].set_shared_memory("out", size)
        wanted[1].set_shared_memory("out", size, offset=size)
        result = sharing.infer("sample", [logits], outputs=wanted, parameters={"seed": 77})
        expected = ask(sharing, "sample", {"LOGITS": ROWS}, ["TOKEN", "LOGPROB"], seed=77)
        tokens = triton_memory.get_contents_as_numpy(region_out, np.int64, (len(ROWS), 1))
        assert tokens.tolist() == expected.as_numpy("TOKEN").tolist()
        seeds = triton_memory.get_contents_as_numpy(region_out, np.uint64, (len(ROWS),), size)
        assert seeds.tolist() == [77] * len(ROWS)
        assert result.as_numpy("LOGPROB").tobytes() == expected.as_numpy("LOGPROB").tobytes()
        assert set(result.get_output("TOKEN")) == {"name", "datatype", "shape"}
    finally:
        triton_memory.destroy_shared_memory_region(region_in)
        triton_memory.destroy_shared_memory_region(region_out)


def test_status_register_unregister(sharing, memory):
    made = memory(4096)
    assert sharing.get_system_shared_memory_status() == []
    sharing.register_system_shared_memory("a", "/" + made.name, 100)
    sharing.register_system_shared_memory("b", made.name, 96, offset=4000)
    a = {"name": "a", "key": "/" + made.name, "offset": 0, "byte_size": 100}
    assert sharing.get_system_shared_memory_status("a") == [a]
    assert sharing.get_system_shared_memory_status() == [
        a,
        {**a, "name": "b", "key": made.name, "offset": 4000, "byte_size": 96},
    ]
    with pytest.raises(InferenceServerException, match="already in manager"):
        sharing.register_system_shared_memory("a", made.name, 100)
    sharing.unregister_system_shared_memory("a")
    sharing.unregister_system_shared_memory("a")
    with pytest.raises(InferenceServerException) as unknown:
        sharing.get_system_shared_memory_status("a")
    assert unknown.value.status() == "404"
    sharing.unregister_system_shared_memory()
    assert sharing.get_system_shared_memory_status() == []


def test_a_part_of_a_region(sharing_url, sharing, memory):
    made = memory(NBYTES + 1000)
    made.buf[700 : 700 + NBYTES] = ROWS.tobytes()
    sharing.register_system_shared_memory("in", made.name, NBYTES + 800, offset=200)
    head = header(from_memory(offset=500), outputs=[{"name": "TOKEN"}])
    tokens = post(sharing_url, head, model="sample.greedy").json()["outputs"][0]["data"]
    assert tokens == ROWS.argmax(1).tolist()


def test_memory_and_binary_data_in_one_request(sharing_url, sharing, memory):
    each = np.array([5, 6, 7, 8, 9], np.uint64)
    made = memory(each.nbytes)
    made.buf[:] = each.tobytes()
    sharing.register_system_shared_memory("seeds", made.name, each.nbytes)
    seeds = entry("SEED", each.shape, "UINT64", parameters=placed("seeds", each.nbytes))
    head = header(seeds, entry(shape=ROWS.shape), outputs=[{"name": "SEED"}])
    assert post(sharing_url, head, ROWS.tobytes()).json()["outputs"][0]["data"] == each.tolist()


def test_no_rows_in_memory(sharing_url, filled):
    head = header(from_memory(size=0, shape=(0, 97)), outputs=[{"name": "TOKEN", "parameters": placed("in", 0)}])
    assert post(sharing_url, head).json()["outputs"] == [{"name": "TOKEN", "datatype": "INT64", "shape": [0, 1]}]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "..",
        ".",
        "a..b",
        ".hidden",
        "../etc/passwd",
        "/../etc/passwd",
        "//double",
        "a/b",
        "a\\b",
        "with space",
        "nul\0",
        "ünicode",
        "line\n",
        "x" * 201,
        "sem.anything",
        "logitd_internal_queue",
        7,
        None,
        ["a"],
    ],
)
def test_a_key_that_is_no_name(sharing_url, key):
    refused(register(sharing_url, "r", key=key, byte_size=8), 400, "key")


@pytest.mark.parametrize("region", ["..%2e", ".x", "a b", "sem.x", "x" * 201, "%00", "a;b", "%C3%BC"])
def test_a_region_that_is_no_name(sharing_url, memory, region):
    refused(register(sharing_url, region, key=memory(64).name, byte_size=8), 400, "name")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"byte_size": 65}, ("exceed",)),
        ({"byte_size": 1, "offset": 64}, ("exceed",)),
        ({"byte_size": 2**63, "offset": 2**63}, ("byte_size",)),
        ({"byte_size": 2**61, "offset": 2**61}, ()),
        ({"byte_size": 2**64}, ("byte_size",)),
        ({"byte_size": 0}, ("byte_size",)),
        ({"byte_size": -1}, ("byte_size",)),
        ({"byte_size": 1, "offset": -1}, ("offset",)),
        ({"byte_size": "8"}, ("byte_size",)),
        ({"byte_size": 8.0}, ("byte_size",)),
        ({}, ("byte_size",)),
        ({"byte_size": 8, "path": "x"}, ("path",)),
    ],
)
def test_a_region_that_does_not_fit(sharing_url, memory, body, words):
    refused(register(sharing_url, "r", key=memory(64).name, **body), 400, *words)
    assert HTTP.get(f"{sharing_url}/v2/systemsharedmemory/status").json() == []


def test_a_registration_that_is_no_json(sharing_url):
    path = f"{sharing_url}/v2/systemsharedmemory/region/r/register"
    for body, status in ((b"", 400), (b"{", 400), (b"[]", 400), (b" " * 5000, 413)):
        refused(HTTP.post(path, content=body), status)


def test_files_that_are_not_the_callers_own_shared_memory(sharing_url, memory, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 64)
    link, pipe, folder = (f"/dev/shm/logitd-test-{uuid.uuid4().hex}" for _ in range(3))
    os.symlink(secret, link)
    os.mkfifo(pipe)
    os.mkdir(folder)
    files = open_files()
    try:
        for path in (link, pipe, folder, "/dev/shm/logitd-test-absent"):
            refused(register(sharing_url, "r", key=path.removeprefix("/dev/shm"), byte_size=8), 404, "no shared memory")
        assert open_files() == files
    finally:
        os.unlink(link)
        os.unlink(pipe)
        os.rmdir(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_memory_of_another_user(sharing_url, memory):
    made = memory(64)
    os.chown(f"/dev/shm/{made.name}", 12345, 12345)
    refused(register(sharing_url, "r", key=made.name, byte_size=8), 404)


def test_caps(sharing_url, memory):
    made = memory(1 << 20)
    for number in range(8):
        assert register(sharing_url, f"r{number}", key=made.name, byte_size=8).status_code == 200
    refused(register(sharing_url, "r8", key=made.name, byte_size=8), 400, "at most 8 regions")
    HTTP.post(f"{sharing_url}/v2/systemsharedmemory/unregister")
    assert register(sharing_url, "r0", key=made.name, byte_size=1 << 20).status_code == 200
    refused(register(sharing_url, "r1", key=made.name, byte_size=1), 400, "bytes in all regions")
    HTTP.post(f"{sharing_url}/v2/systemsharedmemory/unregister")


@pytest.mark.parametrize(
    ("size", "offset", "shape"),
    [
        (NBYTES, 1, ROWS.shape),
        (NBYTES, 2**62, ROWS.shape),
        (NBYTES, 2**64 - 1, ROWS.shape),
        (NBYTES + 388, 0, (6, 97)),
    ],
)
def test_a_place_outside_its_region(sharing_url, filled, size, offset, shape):
    refused(post(sharing_url, header(from_memory("in", size, offset, shape))), 400, "in:")
    refused(post(sharing_url, header(from_memory("out"))), 404, "Unable to find shared memory region")


def test_an_output_that_does_not_fit_its_place(sharing_url, filled):
    def wanted(size, offset=0):
        return [{"name": "TOKEN", "parameters": placed("in", size, offset)}]

    head = header(entry(shape=ROWS.shape), outputs=wanted(39))
    refused(post(sharing_url, head, ROWS.tobytes()), 400, "takes 40 bytes, got 39")
    head = header(entry(shape=ROWS.shape), outputs=wanted(40, NBYTES - 39))
    refused(post(sharing_url, head, ROWS.tobytes()), 400, "exceed")
    assert bytes(filled.buf) == ROWS.tobytes()


def test_shared_memory_counts_as_a_body(serve, memory):
    with serve(Settings(shared_memory=True, max_body_bytes=1000)) as url:
        register(url, "in", key=memory(NBYTES).name, byte_size=NBYTES)
        refused(post(url, header(from_memory())), 413, "1000")


def test_shared_memory_that_is_off(service_url, client, memory):
    refused(register(service_url, "r", key=memory(64).name, byte_size=8), 501, "shared_memory")
    refused(HTTP.get(f"{service_url}/v2/systemsharedmemory/status"), 501)
    refused(HTTP.get(f"{service_url}/v2/systemsharedmemory/region/r/status"), 501)
    refused(HTTP.post(f"{service_url}/v2/systemsharedmemory/unregister"), 501)
    refused(post(service_url, header(from_memory())), 501)
    wanted = [{"name": "TOKEN", "parameters": placed("in", 40)}]
    refused(post(service_url, header(entry(shape=ROWS.shape), outputs=wanted), ROWS.tobytes()), 501)
    with pytest.raises(InferenceServerException) as refusal:
        client.get_system_shared_memory_status()
    assert refusal.value.status() == "501"


@pytest.mark.parametrize(
    ("settings", "local"),
    [
        ({}, True),
        ({"host": "127.8.9.1"}, True),
        ({"host": "::1"}, True),
        ({"host": "localhost"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "::"}, False),
        ({"host": "10.0.0.1"}, False),
        ({"host": "example.org"}, False),
        ({"host": "0.0.0.0", "uds": "/run/logitd.sock"}, True),
    ],
)
def test_only_where_callers_are_on_this_machine(settings, local):
    assert is_local(Settings(**settings)) == local


def test_a_service_that_others_reach_has_no_shared_memory(serve):
    with serve(Settings(shared_memory=True, host="0.0.0.0")) as url:  # what it says it listens on
        refused(HTTP.get(f"{url}/v2/systemsharedmemory/status"), 501, "loopback")


def test_gpu_memory_is_not_shared(client):
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException) as refusal:
        client.register_cuda_shared_memory("r", b"handle", 0, 8)
    assert refusal.value.status() == "501"
