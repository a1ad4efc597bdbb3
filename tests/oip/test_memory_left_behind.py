"""Regions of clients that are gone: given up when they have been idle for long, and no sooner."""

import time

import pytest
from infer_calls import HTTP, ROWS, header, post, refused
from memory_calls import NBYTES, from_memory, open_files, register

from logitd.errors import Malformed, NotFound
from logitd.settings import Settings
from logitd.shared_memory import SharedMemory

IDLE_SECONDS = 60


class World:
    now = 100.0

    def later(self, seconds):
        self.now += seconds


@pytest.fixture
def world():
    return World()


@pytest.fixture
def regions(world):
    kept = SharedMemory(3, 1000, IDLE_SECONDS, lambda: world.now)
    yield kept
    kept.unregister()


def names(regions):
    return [region["name"] for region in regions.status()]


def orphan(regions, memory, name):
    """Register memory of which the name is gone then, as that of our own client is."""
    made = memory(8)
    regions.register(name, made.name, 0, 8)
    made.unlink()


def test_a_region_without_a_file_is_given_up_once_it_is_idle(regions, world, memory):
    orphan(regions, memory, "left")
    kept = memory(8).name
    world.later(IDLE_SECONDS)
    regions.register("a", kept, 0, 8)
    assert names(regions) == ["left", "a"]
    world.later(1)
    files = open_files()
    regions.register("left", kept, 0, 8)  # its name is free, too
    assert (names(regions), open_files()) == (["a", "left"], files)


def test_a_region_with_a_file_stays_until_its_room_is_needed(regions, world, memory):
    key = memory(1000).name
    for name in "abc":
        regions.register(name, key, 0, 100)
        world.later(1)
    world.later(IDLE_SECONDS)
    with regions.used(["a"]):
        pass
    assert names(regions) == ["a", "b", "c"]
    regions.register("d", key, 0, 100)
    assert names(regions) == ["a", "c", "d"]  # b was the longest idle
    regions.register("e", key, 0, 800)
    assert names(regions) == ["a", "d", "e"]
    with pytest.raises(Malformed, match="at most 3 regions"):
        regions.register("f", key, 0, 8)
    with pytest.raises(NotFound), regions.used(["b"]):
        pass


def test_nobody_is_given_up_for_what_does_not_fit_anyway(regions, world, memory):
    key = memory(2000).name
    regions.register("a", key, 0, 100)
    world.later(2 * IDLE_SECONDS)
    for name, byte_size, words in (("b", 1001, "at most 1000 bytes"), ("b", 2001, "exceed"), ("a", 8, "already")):
        with pytest.raises(Malformed, match=words):
            regions.register(name, key, 0, byte_size)
    with pytest.raises(NotFound):
        regions.register("b", "logitd-test-absent", 0, 8)
    assert names(regions) == ["a"]


def test_who_is_being_used_is_not_idle(regions, world, memory):
    orphan(regions, memory, "used")
    key = memory(8).name
    with regions.used(["used"]) as used:
        world.later(10 * IDLE_SECONDS)
        regions.register("a", key, 0, 8)
        assert bytes(used["used"].read(0, memoryview(bytearray(8)))) == bytes(8)
    world.later(IDLE_SECONDS)
    regions.register("b", key, 0, 8)
    assert names(regions) == ["used", "a", "b"]


def test_clients_that_crash_again_and_again_leave_room_for_the_next(serve, memory):
    """Each fills the service with regions, uses them and is gone without a word."""
    settings = {"max_shared_regions": 3, "max_shared_bytes": 3 * NBYTES, "shared_idle_seconds": 1.5}
    with serve(Settings(shared_memory=True, **settings)) as url:
        lives, files = [[memory(NBYTES) for _ in range(3)] for _ in range(3)], []
        for life, keys in enumerate(lives):
            for number, made in enumerate(keys):
                made.buf[:] = ROWS.tobytes()
                region = f"life-{life}-{number}"
                assert register(url, region, key=made.name, byte_size=NBYTES).status_code == 200
                if number:  # one with its file, as Triton's clients leave it, and two as ours does
                    made.unlink()
                assert post(url, header(from_memory(region)), model="sample.greedy").status_code == 200
            refused(register(url, "more", key=keys[0].name, byte_size=8), 400, "at most 3 regions")
            files.append(open_files())
            time.sleep(1.7)
        assert files[1:] == files[:-1]
        assert len(HTTP.get(f"{url}/v2/systemsharedmemory/status").json()) == 3
