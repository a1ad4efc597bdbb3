"""What /v2 tells of the service and its models, through tritonclient and plain HTTP."""

import asyncio
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
from infer_calls import HTTP, ROWS, ask, entry, header, post, refused
from tritonclient.utils import InferenceServerException

from logitd.api.v2.catalogue import MODELS
from logitd.api.v2.statistics import Statistics
from logitd.app import create_app
from logitd.settings import Settings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "open-inference-protocol.md"
NAMES = ["sample", "sample.basic", "sample.greedy", "softmax", "softmax.basic", "attention", "attention.basic"]


def test_health(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sample")
    assert client.is_model_ready("sample", "1")
    assert not client.is_model_ready("sample", "2")
    assert not client.is_model_ready("nothing")


def test_server_metadata(client, sharing):
    assert set(client.get_server_metadata()) == {"name", "version", "extensions"}
    assert "statistics" in client.get_server_metadata()["extensions"]
    assert "system_shared_memory" not in client.get_server_metadata()["extensions"]
    assert "system_shared_memory" in sharing.get_server_metadata()["extensions"]


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("version", ["", "1"])
def test_metadata_and_configuration_agree(client, model, version):
    metadata, config = client.get_model_metadata(model, version), client.get_model_config(model, version)
    assert metadata["name"] == config["name"] == model
    assert metadata["versions"] == ["1"]
    batch = [-1] if config["max_batch_size"] else []
    for ports, configured in (("inputs", "input"), ("outputs", "output")):
        assert [port["name"] for port in metadata[ports]] == [port["name"] for port in config[configured]]
        for port, other in zip(metadata[ports], config[configured], strict=True):
            assert port["shape"] == batch + other["dims"]
            assert other["data_type"] == f"TYPE_{port['datatype'].replace('BYTES', 'STRING')}"
    assert config["model_transaction_policy"] == {"decoupled": False}
    optional = [port["name"] for port in config["input"] if port["optional"]]
    assert bool(optional) == ("." not in model)


@pytest.mark.parametrize("model", NAMES)
def test_answers_are_what_the_metadata_says(client, model):
    metadata = client.get_model_metadata(model)
    if model.startswith("attention"):
        arrays = dict.fromkeys("QKV", np.ones((1, 1, 4, 2), np.float32))
    else:
        arrays = {"LOGITS": ROWS}
    outputs = ask(client, model, arrays).get_response()["outputs"]
    assert [output["name"] for output in outputs] == [port["name"] for port in metadata["outputs"]]
    for output, port in zip(outputs, metadata["outputs"], strict=True):
        assert output["datatype"] == port["datatype"]
        assert len(output["shape"]) == len(port["shape"])
        assert all(told in (-1, length) for told, length in zip(port["shape"], output["shape"], strict=True))


def test_repository(client):
    index = client.get_model_repository_index()
    assert [model["name"] for model in index] == NAMES
    assert {model["state"] for model in index} == {"READY"}
    client.load_model("softmax")
    with pytest.raises(InferenceServerException) as refusal:
        client.unload_model("softmax")
    assert refusal.value.status() == "501"
    with pytest.raises(InferenceServerException) as refusal:
        client.load_model("nothing")
    assert refusal.value.status() == "404"


def test_log_and_trace_settings(client):
    assert client.get_log_settings()["log_info"] is True
    assert client.get_trace_settings()["trace_level"] == ["OFF"]
    assert client.get_trace_settings("sample")["trace_level"] == ["OFF"]
    for change in (
        lambda: client.update_log_settings({"log_verbose_level": 1}),
        lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
        lambda: client.update_trace_settings("sample", {"trace_level": ["TIMESTAMPS"]}),
    ):
        with pytest.raises(InferenceServerException) as refusal:
            change()
        assert refusal.value.status() == "501"


def numbers_of(told):
    """Return every number in statistics, with what kind it is."""
    if isinstance(told, dict):
        return [number for item in told.values() for number in numbers_of(item)]
    return [number for item in told for number in numbers_of(item)] if isinstance(told, list) else [told]


def test_statistics(client):
    def told():
        [of_model] = client.get_inference_statistics("sample.greedy")["model_stats"]
        return of_model

    before = told()
    for _ in range(3):
        ask(client, "sample.greedy", {"LOGITS": ROWS})
    ask(client, "sample.greedy", {"LOGITS": ROWS[:2]})
    with pytest.raises(InferenceServerException):
        ask(client, "sample.greedy", {"LOGITS": ROWS}, ["NOTHING"])
    after = told()
    assert after["version"] == "1"
    assert after["inference_count"] - before["inference_count"] == 3 * len(ROWS) + 2
    assert after["execution_count"] - before["execution_count"] == 4
    steps = {
        name: step["count"] - before["inference_stats"][name]["count"]
        for name, step in after["inference_stats"].items()
    }
    answered = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    assert steps == {**dict.fromkeys(answered, 4), "fail": 1, "cache_hit": 0, "cache_miss": 0}
    assert {batch["batch_size"] for batch in after["batch_stats"]} >= {2, len(ROWS)}
    success = after["inference_stats"]["success"]["ns"]
    assert success >= sum(after["inference_stats"][name]["ns"] for name in answered[1:])
    assert {type(number) for number in numbers_of(after)} == {int, str}
    everything = client.get_inference_statistics()["model_stats"]
    assert [one["name"] for one in everything] == NAMES


def test_statistics_count_in_nanoseconds():
    statistics = Statistics(["m"], "1")
    statistics.of("m").succeeded(4, 0.5, {"queue": 0.125, "decode": 0.25, "compute": 0.0625})
    statistics.of("m").failed(1e-9)
    [told] = statistics.told("m")["model_stats"]
    assert told["inference_stats"]["success"] == {"count": 1, "ns": 500_000_000}
    assert told["inference_stats"]["queue"] == {"count": 1, "ns": 125_000_000}
    assert told["inference_stats"]["fail"] == {"count": 1, "ns": 1}
    assert told["batch_stats"][0]["compute_infer"] == {"count": 1, "ns": 62_500_000}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/nothing", 404),
        ("GET", "/v2/models/nothing/config", 404),
        ("GET", "/v2/models/sample/versions/2", 404),
        ("GET", "/v2/models/sample/versions/v1/config", 404),
        ("GET", "/v2/models/nothing/stats", 404),
        ("GET", "/v2/models/sample%2Fconfig", 404),
        ("GET", "/v2/models/sample%2fready", 404),
        ("POST", "/v2/repository/models/sample%2Fx/load", 404),
        ("POST", "/v2/models/nothing/infer", 404),
        ("POST", "/v2/models/sample/versions/9/infer", 404),
        ("GET", "/v2/models/sample/infer", 405),
        ("POST", "/v2/models/sample", 405),
        ("POST", "/v2", 405),
        ("DELETE", "/v2/models/sample/config", 405),
    ],
)
def test_what_is_not_there_is_a_problem_with_an_error(service_url, method, path, status):
    refused(HTTP.request(method, service_url + path), status)


def test_a_versioned_path_infers(service_url):
    head = header(entry(shape=(1, 3), data=[1.0, 3.0, 2.0]), outputs=[{"name": "TOKEN"}])
    answer = HTTP.post(f"{service_url}/v2/models/sample.greedy/versions/1/infer", json=head).json()
    assert answer["outputs"] == [{"name": "TOKEN", "datatype": "INT64", "shape": [1, 1], "data": [1]}]
    assert answer["model_version"] == "1"


def test_a_service_that_has_not_started_is_live_but_not_ready():
    async def statuses():
        transport = httpx.ASGITransport(create_app(Settings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://logitd") as client:
            paths = ("/v2/health/live", "/v2/health/ready", "/v2/models/sample/ready")
            return [(await client.get(path)).status_code for path in paths], (
                await client.post("/v2/repository/index")
            ).json()

    answered, index = asyncio.run(statuses())
    assert answered == [200, 503, 503]
    assert {model["state"] for model in index} == {"UNAVAILABLE"}


def test_metrics_name_the_route_and_nothing_that_a_caller_made_up(service_url):
    post(service_url, header(entry(data=[1.0, 2.0, 3.0])), length=False)
    post(service_url, header(entry(data=[1.0, 2.0, 3.0])), model="nothing-of-that-name", length=False)
    HTTP.get(f"{service_url}/v2/models/nothing-of-that-name")
    text = HTTP.get(f"{service_url}/metrics").text
    assert 'endpoint="/v2/models/sample/infer",' in text
    assert 'endpoint="/v2/models/{model}/infer",' in text
    assert "nothing-of-that-name" not in text


def test_the_code_of_the_documentation_runs(service_url):
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names = {}
    exec(compile(code.replace("127.0.0.1:8000", service_url.removeprefix("http://")), DOCUMENT.name, "exec"), names)
    assert names["result"].as_numpy("STATUS").tolist() == [[0]]
    names["client"].close()


def test_the_documentation_names_every_model_and_tensor():
    text = DOCUMENT.read_text()
    for model in MODELS.values():
        for name in (model.name, *model.input_names, *model.output_names):
            assert f"`{name}`" in text, name
