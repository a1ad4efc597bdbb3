"""Whether callers may name shared memory, and the regions that a request names."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache

from fastapi import Request

from logitd.admission import Admission
from logitd.errors import Disabled, Malformed, NotFound, PayloadTooLarge, ServiceError
from logitd.http.staging import StagingPool
from logitd.metrics import Metrics
from logitd.settings import Settings
from logitd.shared_memory import SharedMemory
from logitd.shared_region import Region
from logitd.wire.oip.entries import SharedPlace
from logitd.wire.oip.request import InferRequest

_REASONS: dict[type[ServiceError], str] = {
    Malformed: "malformed",
    NotFound: "not_found",
    Disabled: "disabled",
    PayloadTooLarge: "too_large",
}


def shared_memory(request: Request) -> SharedMemory:
    """Return the registered regions.

    Raises:
        Disabled: shared memory is off, or callers of other machines could ask for it.
    """
    settings: Settings = request.app.state.settings
    if not settings.shared_memory:
        raise Disabled("shared memory is off; the setting shared_memory turns it on")
    if not is_local(settings):
        raise Disabled("shared memory is only for services that listen on loopback or a Unix domain socket")
    regions: SharedMemory = request.app.state.shared_memory
    return regions


def is_local(settings: Settings) -> bool:
    """Whether only callers on this machine reach the service."""
    return settings.uds is not None or _is_loopback(settings.host)


@cache
def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def regions_of(request: Request, asked: InferRequest, body_bytes: int) -> Iterator[Mapping[str, Region]]:
    """Keep the regions that a request names usable, and account for what will be read of them, until the block ends.

    Raises:
        Disabled: it names some, and shared memory is off.
        NotFound: nobody has registered one of them.
        PayloadTooLarge, Shed: with what it reads the request is too large, or there is no room for it now.
    """
    if not asked.places:
        yield {}
        return
    with refusals_counted(request):
        regions = shared_memory(request)
        settings: Settings = request.app.state.settings
        admission: Admission = request.app.state.admission
        size = sum(one.content.byte_size for one in asked.inputs.values() if isinstance(one.content, SharedPlace))
        most = settings.max_body_bytes
        if size + body_bytes > most:
            raise PayloadTooLarge.at("inputs", f"at most {most} bytes, {size + body_bytes} are named")
        counted = admission.entered(size) if size else nullcontext()
        with counted, regions.used({place.region for place in asked.places}) as used:
            yield used


@contextmanager
def refusals_counted(request: Request) -> Iterator[None]:
    """Count why a use of shared memory is refused."""
    metrics: Metrics = request.app.state.metrics
    try:
        yield
    except ServiceError as error:
        if type(error) in _REASONS:
            metrics.shared_memory_error(_REASONS[type(error)])
        raise


def reader(regions: Mapping[str, Region], pool: StagingPool) -> Callable[[SharedPlace], memoryview]:
    """Return what reads the bytes at a place, into memory that the pool lends."""
    return lambda place: regions[place.region].read(place.offset, pool.lease(place.byte_size).data)
