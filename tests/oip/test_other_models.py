"""Models softmax and attention through tritonclient: the numbers of /v1."""

import json

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from infer_calls import ROWS, ask, tensor
from tritonclient.utils import InferenceServerException
from wire import post_tensors, unpacked

SOFTMAX = ["PROBABILITIES", "LOG_Z", "ENTROPY", "STATUS"]
BINARY = {"accept": "application/vnd.safetensors"}
Q, K, V = (np.random.default_rng(k).normal(0, 1, (2, 2, 12, 8)).astype(np.float32) for k in range(3))


def by_v1(url, path, tensors, request):
    answer = post_tensors(url, path, tensors, request, **BINARY)
    assert answer.status_code == 200, answer.text
    return unpacked(answer)


@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_gives_the_bits_of_v1(client, service_url, kind, binary, dtype):
    rows = ROWS.astype(dtype)
    expected, _ = by_v1(service_url, "/v1/softmax", {"logits": rows}, {"temperature": 0.7, "kind": kind})
    result = ask(client, "softmax", {"LOGITS": rows}, SOFTMAX, binary, temperature=0.7, kind=kind)
    assert result.as_numpy("PROBABILITIES").tobytes() == expected["values"].tobytes()
    assert result.as_numpy("LOG_Z").tobytes() == expected["log_z"].tobytes()
    assert result.as_numpy("ENTROPY").shape == result.as_numpy("STATUS").shape == (len(ROWS), 1)


def test_softmax_at_a_temperature_for_each_row(client, service_url):
    each = np.array([0.5, 1, 1.5, 2, 4], np.float32)
    expected, _ = by_v1(service_url, "/v1/softmax", {"logits": ROWS}, {"temperature": each.tolist()})
    result = ask(client, "softmax", {"LOGITS": ROWS, "TEMPERATURE": each[:, None]})
    assert result.as_numpy("PROBABILITIES").tobytes() == expected["values"].tobytes()


@pytest.mark.parametrize("kind", ["sparsemax", "entmax15"])
def test_sparse_maps_are_those_of_v1(client, service_url, kind):
    expected, _ = by_v1(service_url, "/v1/softmax", {"logits": ROWS}, {"kind": kind})
    result = ask(client, "softmax", {"LOGITS": ROWS}, SOFTMAX, kind=kind)
    assert result.as_numpy("PROBABILITIES").tobytes() == expected["values"].tobytes()
    assert np.isnan(result.as_numpy("LOG_Z")).all()


def test_noise_is_replayed_by_the_seed_that_is_told(client, service_url):
    drawn = ask(client, "softmax", {"LOGITS": ROWS}, kind="gumbel_softmax", step=3)
    seeds = drawn.as_numpy("SEED")
    assert (seeds.shape, seeds.dtype) == ((len(ROWS), 1), np.uint64)
    request = {"kind": "gumbel_softmax", "seed": seeds[:, 0].tolist(), "step": 3}
    expected, _ = by_v1(service_url, "/v1/softmax", {"logits": ROWS}, request)
    assert drawn.as_numpy("PROBABILITIES").tobytes() == expected["values"].tobytes()
    again = ask(client, "softmax", {"LOGITS": ROWS, "SEED": seeds}, kind="gumbel_softmax", step=3)
    assert again.as_numpy("PROBABILITIES").tobytes() == drawn.as_numpy("PROBABILITIES").tobytes()


def test_masked_tokens_as_json_are_the_smallest_number(client):
    rows = np.array([[0, -np.inf, 0], [np.nan, 0, 0]], np.float32)
    result = ask(client, "softmax", {"LOGITS": rows}, SOFTMAX, False, kind="log_softmax")
    smallest = float(np.finfo(np.float32).min)
    assert result.as_numpy("PROBABILITIES")[0].tolist() == pytest.approx([-np.log(2), smallest, -np.log(2)])
    assert (result.as_numpy("PROBABILITIES")[1] == smallest).all()
    assert result.as_numpy("STATUS").tolist() == [[0], [1]]


def test_log_sum_exp_has_no_values(client):
    result = ask(client, "softmax", {"LOGITS": ROWS}, kind="logsumexp")
    assert result.as_numpy("PROBABILITIES") is None
    with pytest.raises(InferenceServerException, match="PROBABILITIES"):
        ask(client, "softmax", {"LOGITS": ROWS}, ["PROBABILITIES"], kind="logsumexp")


def test_softmax_of_no_rows(client):
    result = ask(client, "softmax.basic", {"LOGITS": np.empty((0, 7), np.float32)})
    assert result.as_numpy("PROBABILITIES").shape == (0, 7)
    assert result.as_numpy("LOG_Z").shape == (0, 1)


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"temperature": 0.0}, "parameters.temperature"),
        ({"kind": "max"}, "parameters.kind"),
        ({"top_k": 3}, "parameters.top_k"),
    ],
)
def test_softmax_names_the_parameter(client, parameters, path):
    with pytest.raises(InferenceServerException, match=path) as refusal:
        ask(client, "softmax", {"LOGITS": ROWS}, **parameters)
    assert refusal.value.status() == "422"


@pytest.mark.parametrize("request_fields", [{"mode": "exact", "causal": True}, {"mode": "linear", "method": "moment"}])
def test_attention_gives_the_bits_of_v1(client, service_url, request_fields):
    expected, rest = by_v1(service_url, "/v1/attention", {"q": Q, "k": K, "v": V}, request_fields)
    result = ask(client, "attention", {"Q": Q, "K": K, "V": V}, **request_fields)
    assert result.as_numpy("OUTPUT").tobytes() == expected["output"].tobytes()
    report = json.loads(result.as_numpy("REPORT")[0])
    assert report["heads"] == rest["heads"]
    assert report["effective"] == rest["effective"]


def test_attention_as_json(client, service_url):
    expected, _ = by_v1(service_url, "/v1/attention", {"q": Q, "k": K, "v": V}, {"mode": "exact"})
    result = ask(client, "attention.basic", {"Q": Q, "K": K, "V": V}, ["REPORT", "OUTPUT"], False, mode="exact")
    assert result.as_numpy("OUTPUT").tobytes() == expected["output"].tobytes()
    assert set(json.loads(result.as_numpy("REPORT")[0])) >= {"heads", "threshold", "cost"}


def test_attention_with_mask_lengths_layout_and_a_mode_for_each_head(client, service_url):
    tensors = {"q": Q, "k": K, "v": V, "lengths": np.array([12, 7])}
    tensors = {name: array.swapaxes(1, 2) if array.ndim == 4 else array for name, array in tensors.items()}
    fields = {"layout": "BLHD", "heads": ["exact", "moment"]}
    expected, _ = by_v1(service_url, "/v1/attention", tensors, fields)
    arrays = {name.upper(): np.ascontiguousarray(array) for name, array in tensors.items()}
    result = ask(client, "attention", arrays, layout="BLHD", heads='["exact", "moment"]')
    assert result.as_numpy("OUTPUT").tobytes() == expected["output"].tobytes()
    mask = np.tril(np.ones((1, 1, 12, 12), np.bool_))
    masked = ask(client, "attention", {"Q": Q, "K": K, "V": V, "MASK": mask}, mode="exact")
    causal = ask(client, "attention", {"Q": Q, "K": K, "V": V}, mode="exact", causal=True)
    assert masked.as_numpy("OUTPUT") == pytest.approx(causal.as_numpy("OUTPUT"), abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_an_output_has_no_json_form(client, dtype):
    arrays = {name: array.astype(dtype) for name, array in (("Q", Q), ("K", K), ("V", V))}
    result = ask(client, "attention", arrays, mode="exact")
    assert result.as_numpy("OUTPUT").dtype == dtype
    inputs = [tensor(name, array) for name, array in arrays.items()]
    with pytest.raises(InferenceServerException, match="no JSON form: ask for binary_data"):
        client.infer("attention", inputs, outputs=[triton.InferRequestedOutput("OUTPUT", binary_data=False)])


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"mode": "best"}, "parameters.mode"),
        ({"plan": "{"}, "parameters.plan"),
        ({"plan": '{"version": 1, "layers": {}}'}, "layer"),
        ({"temperature": 1.0}, "parameters.temperature"),
    ],
)
def test_attention_names_the_parameter(client, parameters, path):
    with pytest.raises(InferenceServerException, match=path) as refusal:
        ask(client, "attention", {"Q": Q, "K": K, "V": V}, **parameters)
    assert refusal.value.status() == "422"


def test_attention_names_the_tensor(client):
    with pytest.raises(InferenceServerException, match="V"):
        ask(client, "attention", {"Q": Q, "K": K})
    with pytest.raises(InferenceServerException, match="K"):
        ask(client, "attention", {"Q": Q, "K": K[..., :4].copy(), "V": V})
