"""Sampling through shared memory: large logits are written to a region, and only their place is sent.

Conversations are generators, without any network I/O of their own: they yield calls and are sent the answers, so that
both clients can hold them. What shared memory cannot say, and whatever does not come back clean, goes in the
body of a request, as without it; so results and errors are the same.
"""

import json
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from logitd.client.call import SampleRequest, info_call
from logitd.client.placed import infer_call, is_expressible, places_of
from logitd.client.region import Pool, Region, room_for
from logitd.client.request import Call
from logitd.client.results import SampleResult
from logitd.errors import ApiError, ClientError, InvalidRequest

Result = TypeVar("Result")
Talk = Generator[Call[Any], Any, Result]

_JSON = {"content-type": "application/json"}
_REGION = "/v2/systemsharedmemory/region"
_LEAST_BYTES = 1 << 16  # fewer are as fast in a body


@dataclass
class Sharing:
    """The shared memory of one client.

    Attributes:
        refused: the service does not want any, or cannot see ours: not tried again.
        about: the service's info, once asked for.
    """

    refused: bool = False
    about: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._pool = Pool()
        self._owed: list[str] = []  # names of regions that the service should forget

    def suits(self, request: SampleRequest) -> bool:
        """Return whether shared memory is worth it for a request, and can say all of it."""
        byte_size = sum(tensor.data.nbytes for tensor in request.tensors.values())
        return not self.refused and byte_size >= _LEAST_BYTES and is_expressible(request)

    def sampled(self, request: SampleRequest) -> Talk[SampleResult]:
        """Converse until a request is answered."""
        result = yield from self._placed(request)
        if result is None:
            result = yield request.call()
        return result

    def closed(self) -> Talk[None]:
        """Converse until the service has forgotten all regions."""
        for region in self._pool.empty():
            self._abandon(region)
        yield from self._settled()

    def _placed(self, request: SampleRequest) -> Talk[SampleResult | None]:
        """Have a request answered through shared memory, None where it has to be sent whole."""
        places, byte_size = places_of(request.tensors)
        for _ in range(2):  # a service that was started anew does not know the first region
            region = self._pool.take(byte_size) or (yield from self._made(byte_size))
            if region is None or self.about is None:
                return None
            try:
                for name, offset in places.items():
                    region.put(offset, request.tensors[name].data)
                result: SampleResult | None = yield infer_call(request, region.name, places, self.about)
            except BaseException as error:
                self._abandon(region)  # somebody may still be reading it
                if not isinstance(error, InvalidRequest):
                    raise
                if error.status != HTTPStatus.NOT_FOUND:
                    return None
            else:
                for one in self._pool.give(region):
                    self._abandon(one)
                return result
        return None

    def _made(self, byte_size: int) -> Talk[Region | None]:
        """Make a region and have it registered, None where that is not to be."""
        yield from self._settled()
        try:
            region = Region(room_for(byte_size))
        except OSError:  # no such memory here, or it is full
            return None
        place = {"key": f"/{region.name}", "offset": 0, "byte_size": region.byte_size}
        body = json.dumps(place).encode()
        try:
            if self.about is None:
                self.about = yield info_call()
            yield Call("POST", f"{_REGION}/{region.name}/register", _JSON, body, False, _nothing)
        except ApiError as error:
            region.close()
            if isinstance(error, InvalidRequest) or error.status == HTTPStatus.NOT_IMPLEMENTED:
                self.refused = True
                return None
            raise
        except BaseException:
            region.close()
            raise
        region.unlink()
        return region

    def _abandon(self, region: Region) -> None:
        region.close()
        self._owed.append(region.name)

    def _settled(self) -> Talk[None]:
        """Have the service forget abandoned regions."""
        owed, self._owed = self._owed, []
        with suppress(ClientError):  # whoever is not there has forgotten them already
            for name in owed:
                yield Call("POST", f"{_REGION}/{name}/unregister", _JSON, b"", True, _nothing)


@dataclass(frozen=True)
class Done(Generic[Result]):
    """What a conversation came to."""

    result: Result


def step(talk: Talk[Result], answer: object = None, error: BaseException | None = None) -> Call[Any] | Done[Result]:
    """Hand the last answer, or the last error, to a conversation; returns its next call, or what it came to."""
    try:
        return talk.send(answer) if error is None else talk.throw(error)
    except StopIteration as done:
        return Done(done.value)


def _nothing(body: bytes) -> None:
    """Read an answer that says nothing."""
