"""The whole way on real logits: the demo's pipeline twice, head form against dense, every transport's token."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logitd import Client

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONTEXTS = ["in new", "of the", "the united", "he said that", "", "i am", "going to"]
PARAMETERS = [
    {"temperature": 0},
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 1000},
    {"top_k": 2000},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.99},
    {"top_p": 1e-9},
    {"min_p": 0.05},
    {"min_p": 1e-6},
    {"temperature": 0.7},
    {"temperature": 1.0},
    {"temperature": 1.3},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "top_p": 0.9},
    {"temperature": 0.2, "top_k": 40, "min_p": 0.01},
    {"temperature": 1.5, "top_k": 40, "top_p": 0.95},
    {"temperature": 5.0, "top_p": 0.5},
    {"temperature": 0.05},
]


@pytest.fixture(scope="module")
def rows():
    spec = importlib.util.spec_from_file_location("trigram", EXAMPLES / "trigram.py")
    trigram = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trigram)
    model = trigram.TrigramModel()
    return [model.logits(context.split()) for context in CONTEXTS]


def texts(output):
    """The generated text, without the lines that hold milliseconds."""
    return [line for line in output.splitlines() if not re.search(r"\d ms$|^logitd ", line)]


def test_same_seeds_print_the_same_text(service_url):
    def run():
        command = [sys.executable, EXAMPLES / "generate.py", "--url", service_url, "--words", "4"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    first = run()
    assert texts(first) == texts(run())
    for temperature in ("0", "0.7", "1", "1.3"):
        assert f"temperature {temperature}\n" in first
    assert re.search(
        r"entropy [\d.]+ nats, [\d.,]+ words kept; per word: model [\d.]+, client [\d.]+, service [\d.]+ ms", first
    )


def test_without_a_service_the_pipeline_says_so():
    command = [sys.executable, EXAMPLES / "generate.py", "--url", "http://127.0.0.1:9"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert len(ran.stderr.strip().splitlines()[-1:]) == 1
    assert "Traceback" not in ran.stderr


def test_the_demo_starts_and_stops_its_own_service():
    ran = subprocess.run([sys.executable, EXAMPLES / "demo.py"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "logitd stopped with status 0" in ran.stdout


def test_compact_is_the_dense_answer_or_says_it_cannot_tell(service_url, rows):
    settled = open_ = 0
    with Client(service_url) as client:
        for place, row in enumerate(rows):
            for parameters in PARAMETERS:
                asked = {**parameters, "seed": 1000 + place, "step": place}
                [dense] = client.sample(row, **asked).rows
                # A second row keeps one that is too short from refusing the request.
                thin = client.sample([row, row], params=[asked, {"temperature": 0}], compact=1024).rows[0]
                if thin.exact and thin.error is None:
                    settled += 1
                    assert (thin.token, thin.kept) == (dense.token, dense.kept), (place, parameters)
                    assert thin.logprob == pytest.approx(dense.logprob, abs=1e-3)
                    assert thin.kept_mass == pytest.approx(dense.kept_mass, abs=1e-3)
                else:
                    open_ += 1
                    assert thin.exact is False
                    assert thin.error.code == "head_too_short"
    assert settled > 0.7 * len(rows) * len(PARAMETERS), (settled, open_)
    assert open_ > 0
