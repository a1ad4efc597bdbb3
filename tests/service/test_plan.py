"""POST /v1/attention/plan, and plans in /v1/attention."""

import numpy as np
import pytest
from test_attention import attended, relative_error, softmax_attention, tensors
from wire import post, post_tensors

PATH = "/v1/attention/plan"


@pytest.fixture(scope="module")
def layers():
    """A layer with a head that second order fits and one that it does not, and a layer that it fits altogether."""
    smooth, rough = tensors(2500, heads=1, dim=32, spread=0.5), tensors(2500, heads=1, dim=32, spread=3, seed=1)
    return {
        0: {name: np.concatenate([smooth[name], rough[name]], 1) for name in smooth},
        3: tensors(2500, heads=2, dim=32, spread=0.5, seed=2),
    }


def planned(url, layers, **fields):
    sent = {f"{layer}.{name}": tensor for layer, own in layers.items() for name, tensor in own.items()}
    response = post_tensors(url, PATH, sent, fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_plan_keeps_the_tolerance_where_it_is_used(service_url, layers):
    plan = planned(service_url, layers, tolerance=0.1)
    first, last = plan["layers"]["0"], plan["layers"]["3"]
    assert first["modes"][1] == "exact"
    assert "exact" not in [first["modes"][0], *last["modes"]]
    assert plan["cost"] == pytest.approx((first["cost"] + last["cost"]) / 2)
    assert 0 < last["cost"] < first["cost"] < 1
    assert last["state_bytes"] < last["kv_bytes"] == 2 * 2500 * 64 * 4
    assert last["state_bytes"] / last["kv_bytes"] < plan["memory"] < 1
    for layer, sent in layers.items():
        output, report = attended(service_url, sent, plan=plan, layer=layer, policy="best_effort")
        heads, want = report["heads"][0], softmax_attention(**sent)
        assert [head["mode"] for head in heads] == plan["layers"][str(layer)]["modes"]
        for place, expected in enumerate(plan["layers"][str(layer)]["heads"]):
            true = relative_error(output[0, place], want[0, place])
            assert true < 0.12
            assert expected["expected_error"] == pytest.approx(true, rel=0.3, abs=1e-5)


def test_a_plan_in_json(service_url):
    own = {name: array.tolist() for name, array in tensors(20, dim=4).items()}
    response = post(service_url, PATH, {"layers": {"7": own}, "methods": ["mean_v"], "tolerance": 100})
    assert response.status_code == 200, response.text
    assert response.json()["layers"]["7"]["modes"] == ["mean_v", "mean_v"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "layers"),
        ({"layers": []}, "layers"),
        ({"layers": {"0": [1]}}, "layers.0"),
        ({"layers": {"x": {"q": [[[[1]]]]}}}, "layers.x.q"),
        ({"layers": {"0": {"q": [[[[1]]]], "k": [[[[1]]]]}}}, "layers.0.v"),
        ({"layers": {"0": {"q": 3, "k": [[[[1]]]]}}}, "layers.0.q"),
        ({"layers": {"0": {"w": 3}}}, "layers.0.w"),
        ({"layers": {"0": {"q": [[[[1]]]], "k": [[[[1]]]], "v": [[[[1]]]]}}, "methods": ["magic"]}, "methods[0]"),
        ({"layers": {"0": {"q": [[[[None]]]], "k": [[[[1]]]], "v": [[[[1]]]]}}}, "layers.0.q"),
        ({"layers": {"0": {"q": [[[[1]]]], "k": [[[[1, 2]]]], "v": [[[[1]]]]}}}, "layers.0.k"),
    ],
)
def test_what_is_wrong_is_named(service_url, body, path):
    response = post(service_url, PATH, body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == path


def test_unknown_tensors_are_refused(service_url):
    sent = {f"0.{name}": array for name, array in tensors(3).items()}
    for name in ("q", "0.w", "mask", "99999.q"):
        response = post_tensors(service_url, PATH, {**sent, name: sent["0.q"]})
        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == name


PLAN = {"version": 1, "layers": {"0": {"modes": ["exact", "mean_v"]}}}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"plan": PLAN}, "layer"),
        ({"plan": PLAN, "layer": 1}, "layer"),
        ({"plan": PLAN, "layer": 0, "heads": ["exact", "exact"]}, "heads"),
        ({"plan": {"version": 2, "layers": {}}, "layer": 0}, "plan.version"),
        ({"plan": {"version": 1, "layers": {"0": {"modes": ["magic"]}}}, "layer": 0}, "plan.layers.0.modes[0]"),
        ({"plan": {"version": 1, "layers": {"0": {"modes": ["exact"]}}}, "layer": 0}, "heads"),
    ],
)
def test_plans_are_checked(service_url, fields, path):
    response = post_tensors(service_url, "/v1/attention", tensors(3), fields)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["path"] == path
