"""Requests whose tensors lie in shared memory."""

import os

from infer_calls import HTTP, ROWS, entry

NBYTES = ROWS.nbytes


def register(url, region, **body):
    return HTTP.post(f"{url}/v2/systemsharedmemory/region/{region}/register", json=body)


def placed(region, size=NBYTES, offset=0):
    return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def from_memory(region="in", size=NBYTES, offset=0, shape=ROWS.shape):
    return entry(shape=shape, parameters=placed(region, size, offset))


def open_files():
    return len(os.listdir("/proc/self/fd"))
