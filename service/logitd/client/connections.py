"""A call as tries on one httpx client, blocking and, line for line, asynchronous: send, wait as `retry` says, read."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, closing
from typing import TypeVar

import httpx

from logitd.client.request import Call
from logitd.client.retry import Retry
from logitd.client.sharing import Done, Talk, step
from logitd.client.transport import Service, finish, translated
from logitd.errors import ClientError

Answer = TypeVar("Answer")


class Connection:
    """Runs calls. The arguments are those of `Client`."""

    def __init__(
        self,
        service: Service,
        retries: int,
        transport: httpx.BaseTransport | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._retry = Retry(retries)
        self._sleep = sleep
        if transport is None and service.socket is not None:
            transport = httpx.HTTPTransport(uds=service.socket)
        self._http = httpx.Client(transport=transport, **service.options())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, call: Call[Answer]) -> Answer:
        """Return the answer to a call.

        Raises:
            ClientError: what the last try ended in.
        """
        failed = 0
        while True:
            try:
                return self._try(call)
            except ClientError as error:
                failed += 1
                delay = self._retry.delay_seconds(failed, error, repeatable=call.repeatable)
                if delay is None:
                    raise
            self._sleep(delay)

    def converse(self, talk: Talk[Answer]) -> Answer:
        """Return what a conversation comes to.

        Raises:
            ClientError: what it ended in.
        """
        next_call = step(talk)
        while not isinstance(next_call, Done):
            try:
                answer = self.run(next_call)
            except ClientError as error:
                next_call = step(talk, error=error)
            else:
                next_call = step(talk, answer)
        return next_call.result

    def _try(self, call: Call[Answer]) -> Answer:
        request = self._http.build_request(call.method, call.path, headers=call.headers, content=call.body)
        with translated():
            response = self._http.send(request, stream=True)
        with closing(response):
            if call.listen is None or not response.is_success:
                with translated():
                    response.read()
                return finish(call, response)
            listener = call.listen()
            for chunk in _chunks(response):
                listener.feed(chunk)
            return call.read(listener.result())


class AsyncConnection:
    """`Connection` for asyncio."""

    def __init__(
        self,
        service: Service,
        retries: int,
        transport: httpx.AsyncBaseTransport | None,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._retry = Retry(retries)
        self._sleep = sleep
        if transport is None and service.socket is not None:
            transport = httpx.AsyncHTTPTransport(uds=service.socket)
        self._http = httpx.AsyncClient(transport=transport, **service.options())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, call: Call[Answer]) -> Answer:
        """Return the answer to a call: see `Connection.run`."""
        failed = 0
        while True:
            try:
                return await self._try(call)
            except ClientError as error:
                failed += 1
                delay = self._retry.delay_seconds(failed, error, repeatable=call.repeatable)
                if delay is None:
                    raise
            await self._sleep(delay)

    async def converse(self, talk: Talk[Answer]) -> Answer:
        """Return what a conversation comes to: see `Connection.converse`."""
        next_call = await asyncio.to_thread(step, talk)  # megabytes are written
        while not isinstance(next_call, Done):
            try:
                answer = await self.run(next_call)
            except ClientError as error:
                next_call = await asyncio.to_thread(step, talk, error=error)
            else:
                next_call = await asyncio.to_thread(step, talk, answer)
        return next_call.result

    async def _try(self, call: Call[Answer]) -> Answer:
        request = self._http.build_request(call.method, call.path, headers=call.headers, content=call.body)
        with translated():
            response = await self._http.send(request, stream=True)
        try:
            if call.listen is None or not response.is_success:
                with translated():
                    await response.aread()
                return finish(call, response)
            listener = call.listen()
            async with aclosing(_async_chunks(response)) as chunks:
                async for chunk in chunks:
                    listener.feed(chunk)
            return call.read(listener.result())
        finally:
            await response.aclose()


def _chunks(response: httpx.Response) -> Iterator[bytes]:
    """Yield what arrives; httpx's errors are translated here, and not those of whoever reads."""
    with translated():
        yield from response.iter_bytes()


async def _async_chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield what arrives: see `_chunks`."""
    with translated():
        async for chunk in response.aiter_bytes():
            yield chunk
