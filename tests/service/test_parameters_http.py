"""Every bad value of every sampling parameter is a 422 that names it, over JSON."""

import json

import httpx
import orjson
import pytest
from test_parameters import BAD

from logitd_kernels import PARAMETERS


def sendable(value):
    """The value as JSON has it; None where it has no such thing: NaN, a set, one key twice, a number beyond float64."""
    try:
        text = json.dumps(value, allow_nan=False)
        orjson.loads(text)
    except (TypeError, ValueError):
        return None
    return None if isinstance(value, dict) and len(json.loads(text)) < len(value) else text


@pytest.fixture(scope="module")
def client(service_url):
    with httpx.Client(base_url=service_url) as one:
        yield one


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_bad_value_is_refused_by_its_path(client, name):
    parameter = PARAMETERS[name]
    texts = {text for _, value in BAD[type(parameter)](parameter) if (text := sendable(value)) is not None}
    assert len(texts) >= 4
    for text in texts:
        body = f'{{"logits": [[1, 2], [1, 2]], "params": [{{}}, {{"{name}": {text}}}]}}'
        answer = client.post("/v1/sample", content=body.encode(), headers={"content-type": "application/json"})
        assert answer.status_code == 422, (text[:60], answer.text[:300])
        [fault] = answer.json()["errors"]
        assert fault["path"].startswith(f"params[1].{name}"), (text[:60], fault)
        assert len(fault["message"]) < 200
