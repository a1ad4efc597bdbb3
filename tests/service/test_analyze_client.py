"""`Client.analyze` and its twin against a real service."""

import asyncio
import math

import numpy as np
import pytest
import torch

from logitd import AnalyzeResult, AsyncClient, Client, InvalidRequest, UnexpectedAnswer
from logitd.client.analyze_call import analyze_call, read_analyze
from logitd.wire import safetensors
from logitd.wire.tensor import Tensor

LOGITS = np.array([[1, 2, 3], [np.nan, 0, 0], [0, -np.inf, 0]], np.float32)
TABLES = ("log_z", "free_energy", "internal_energy", "entropy", "heat_capacity", "effective_states", "max_probability")


@pytest.fixture(scope="module")
def client(service_url):
    with Client(service_url) as client:
        yield client


def test_result(client):
    result = client.analyze(LOGITS, [0.5, 1], entropy=0.5, mass=0.9)
    assert isinstance(result, AnalyzeResult)
    assert result.temperatures.tolist() == [0.5, 1]
    for name in TABLES:
        assert getattr(result, name).shape == (3, 2)
        assert np.isnan(getattr(result, name)[1]).all()
    assert result.entropy[:, 1] == pytest.approx([0.83239558184, math.nan, math.log(2)], nan_ok=True)
    assert result.log_z[0, 1] == pytest.approx(3.4076059644444)
    assert result.free_energy == pytest.approx(
        result.internal_energy - result.temperatures * result.entropy, rel=1e-12, nan_ok=True
    )
    assert result.nucleus.tolist() == [[2, 2], [-1, -1], [2, 2]]
    assert np.isnan(result.temperature_for_entropy).tolist() == [False, True, True]
    assert [error and error.code for error in result.errors] == [None, "non_finite", None]
    assert [[warning.code for warning in row] for row in result.warnings] == [
        [],
        [],
        ["degenerate", "entropy_out_of_reach"],
    ]
    assert result.seconds.keys() >= {"decode", "compute"}


def test_defaults_a_range_and_torch(client):
    result = client.analyze(torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16))
    assert (result.entropy.shape, result.nucleus, result.temperature_for_entropy) == ((1, 1), None, None)
    result = client.analyze(LOGITS[0], {"from": 0.5, "to": 2, "step": 0.5}, params={"top_k": 1, "temperature": 0.5})
    assert result.temperatures.tolist() == [0.5, 1, 1.5, 2]
    assert [warning.code for warning in result.warnings[0]] == ["knob_masked"]


def test_asynchronous_twin(service_url, client):
    async def ask():
        async with AsyncClient(service_url) as twin:
            return await twin.analyze(LOGITS, np.array([0.5, 1]), entropy=0.5, mass=0.9, params={"top_p": 0.9})

    found = asyncio.run(ask())
    expected = client.analyze(LOGITS, (0.5, 1), entropy=0.5, mass=0.9, params={"top_p": 0.9})
    for name in (*TABLES, "nucleus", "temperature_for_entropy"):
        assert np.array_equal(getattr(found, name), getattr(expected, name), equal_nan=True)
    assert found.warnings == expected.warnings


@pytest.mark.parametrize("asked", [{"temperatures": [math.nan]}, {"entropy": math.inf}, {"mass": 2}])
def test_what_the_service_refuses(client, asked):
    with pytest.raises(InvalidRequest) as refused:
        client.analyze(LOGITS, **asked)
    assert refused.value.fields[0].path.startswith(next(iter(asked)))


def test_what_cannot_be_sent_at_all():
    with pytest.raises(TypeError):
        analyze_call(LOGITS, object(), entropy=None, mass=None, params=None)
    with pytest.raises(TypeError):
        analyze_call(np.zeros((1, 2), np.int64), [1.0], entropy=None, mass=None, params=None)


def test_an_answer_of_another_shape_is_refused():
    tensors = {name: Tensor.of(np.zeros((1, 2))) for name in TABLES}
    tensors["temperatures"] = Tensor.of(np.zeros(3))
    rest = '{"rows": [{"warnings": [], "error": null}], "seconds": {}}'
    with pytest.raises(UnexpectedAnswer, match=r"log_z has shape \[1, 2\]"):
        read_analyze(b"".join(safetensors.encode(tensors, {"response": rest})))
