"""The pool of buffers: nobody's memory is anybody else's, it is bounded, and it comes back."""

import gc
import threading
import weakref
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from logitd.http.staging import StagingPool

TOTAL = 1 << 20
LENGTHS = st.one_of(
    st.integers(0, 2000), st.integers(30_000, 400_000), st.sampled_from([1 << 15, (1 << 15) + 1, 3 << 16, 1 << 18])
)
STEPS = st.lists(st.one_of(LENGTHS.map(lambda length: ("lease", length)), st.just(("drop", 0))), max_size=60)


def span(array):
    begin = array.__array_interface__["data"][0]
    return begin, begin + array.nbytes


@settings(max_examples=200, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_leases_never_overlap_and_the_pool_is_bounded(steps, chance):
    pool, live, lease = StagingPool(TOTAL), {}, None
    for place, (step, length) in enumerate(steps):
        if step == "drop":
            if live:
                del live[chance.choice(list(live))]
            continue
        lease = pool.lease(length)
        assert (lease.dtype, lease.shape, lease.flags.writeable) == (np.uint8, (length,), True)
        lease[:] = place % 251
        live[place] = lease
        spans = sorted(span(array) for array in live.values() if array.nbytes)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert all((array == number % 251).all() for number, array in live.items())
        assert 0 <= pool.free_bytes <= pool.held_bytes <= TOTAL
    del live, lease
    assert pool.free_bytes == pool.held_bytes


VIEWS = {
    "memoryview": lambda array: array.data,
    "slice of a memoryview": lambda array: array.data[100:200],
    "slice": lambda array: array[5000:5001],
    "reshaped": lambda array: array.reshape(2, -1).T,
    "floats": lambda array: np.frombuffer(array.data[8:], np.float32),
    "torch": lambda array: torch.from_numpy(np.frombuffer(array.data, np.float32)),
    "torch, sliced": lambda array: torch.from_numpy(array)[10:20].view(2, 5),
}


@pytest.mark.parametrize("name", VIEWS)
def test_memory_comes_back_with_the_last_view(name):
    pool = StagingPool(TOTAL)
    lease = pool.lease(100_000)
    where, view = span(lease)[0], VIEWS[name](lease)
    del lease
    gc.collect()
    assert pool.free_bytes == 0
    assert span(pool.lease(100_000))[0] != where
    del view
    gc.collect()
    again = [pool.lease(100_000), pool.lease(100_000)]
    assert where in [span(lease)[0] for lease in again]


def test_a_lease_shows_only_its_own_length():
    pool = StagingPool(TOTAL)
    secret = pool.lease(100_000)
    secret[:] = 7
    where = span(secret)[0]
    del secret
    lease = pool.lease(98_304 + 1)  # the same block, not all of it
    assert (span(lease)[0], lease.nbytes, lease.base is not None) == (where, 98_305, True)
    assert lease.data.nbytes == 98_305


@pytest.mark.parametrize("length", [0, 1, 32_767, (1 << 18) + 1, 10 << 20])
def test_what_does_not_fit_is_ordinary_memory(length):
    pool = StagingPool(TOTAL)
    leases = [pool.lease(length) for _ in range(3)]
    assert pool.held_bytes == 0
    assert [lease.nbytes for lease in leases] == [length] * 3


def test_a_full_pool_lends_no_more_than_it_has():
    pool = StagingPool(TOTAL)
    leases = [pool.lease(1 << 18) for _ in range(6)]
    assert pool.held_bytes == TOTAL
    leases.clear()
    assert pool.free_bytes == TOTAL
    small = pool.lease(1 << 16)  # for which a free block of another size makes room
    assert small.nbytes == 1 << 16
    assert pool.held_bytes <= TOTAL
    assert pool.free_bytes == pool.held_bytes - (1 << 16)


def test_no_pool():
    pool = StagingPool(0)
    assert (pool.lease(1 << 20).nbytes, pool.held_bytes) == (1 << 20, 0)


def test_leases_end_on_other_threads():
    pool = StagingPool(TOTAL)

    def reader(lease, number):
        assert (lease == number).all()

    threads = []
    for number in range(200):
        lease = pool.lease(50_000)
        lease[:] = number
        threads.append(threading.Thread(target=reader, args=(lease, number)))
        del lease
        threads[-1].start()
        if number % 4 == 3:
            threads[-1].join()
    for thread in threads:
        thread.join()
    del thread
    gc.collect()
    assert pool.free_bytes == pool.held_bytes <= TOTAL


def test_nothing_is_kept_of_a_lease_that_ended():
    def references():
        gc.collect()
        return sum(type(one) is weakref.ref for one in gc.get_objects())

    pool = StagingPool(TOTAL)
    before = references()
    leases = [pool.lease(1 << 15) for _ in range(TOTAL >> 15)]
    assert references() > before + 16
    del leases
    assert references() < before + 16
    assert pool.free_bytes == TOTAL
