"""Waiting for a client: over at the deadline, when it leaves, or with the work."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import ClientDisconnect

from logitd.errors import DeadlinePassed
from logitd.waiting import on_pool, within


async def silent():
    await asyncio.Event().wait()


async def leaving():
    return {"type": "http.disconnect"}


def run(main):
    return asyncio.run(main())


def test_a_result_and_an_error_come_through():
    async def main():
        loop = asyncio.get_running_loop()
        good, bad = loop.create_future(), loop.create_future()
        loop.call_later(0.02, good.set_result, 7)
        loop.call_later(0.02, bad.set_exception, ValueError("bad"))
        with pytest.raises(ValueError, match="bad"):
            await within(bad, silent)
        assert await within(good, silent, time.monotonic() + 60) == 7
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_at_the_deadline_the_work_is_cancelled():
    async def main():
        future = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        with pytest.raises(DeadlinePassed):
            await within(future, silent, began + 0.05)
        assert future.cancelled()
        assert time.monotonic() - began < 5

    run(main)


def test_a_deadline_that_is_over_is_over_at_once():
    async def main():
        with pytest.raises(DeadlinePassed):
            await within(asyncio.get_running_loop().create_future(), silent, time.monotonic() - 1)

    run(main)


def test_who_leaves_cancels_the_work():
    async def main():
        future = asyncio.get_running_loop().create_future()
        with pytest.raises(ClientDisconnect):
            await within(future, leaving)
        assert future.cancelled()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_a_cancelled_waiter_cancels_the_work_and_leaves_no_task():
    async def main():
        future = asyncio.get_running_loop().create_future()
        waiter = asyncio.create_task(within(future, silent))
        await asyncio.sleep(0.03)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert future.cancelled()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_what_is_cancelled_before_its_turn_on_a_pool_is_not_run():
    ran = []

    async def main():
        leave, begun = threading.Event(), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            first = on_pool(pool, lambda: (begun.set(), leave.wait(10)))
            second = on_pool(pool, lambda: ran.append("second"))
            await asyncio.to_thread(begun.wait, 10)
            with pytest.raises(ClientDisconnect):
                await within(second, leaving)
            leave.set()
            await first

    run(main)
    assert ran == []
