"""The documentation is generated where it can be, complete, and true; `test_docs_blocks.py` executes what it shows."""

import importlib.util
import re

import httpx
import numpy as np
import pytest
from docs_blocks import PAGES, ROOT, blocks
from wire import post, sampled

from logitd import Client
from logitd.client.sessions import Session
from logitd.counting.series import SERIES
from logitd.settings import Settings
from logitd_kernels import PARAMETERS, TRANSFORMS, philox4x32, uniform

DOCS = ROOT / "docs"
GUIDE = DOCS / "api-guide.md"


def code(page, language):
    return "".join(block.code for block in blocks(page) if block.language == language)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh():
    for path, text in load(DOCS / "tables.py").pages().items():
        assert path.read_text() == text, f"{path.name} is stale: run `make docs`"


def test_every_parameter_and_setting_is_documented():
    parameters = (DOCS / "sampling-parameters.md").read_text()
    settings = (DOCS / "settings.md").read_text()
    for transform in TRANSFORMS:
        assert f"## {transform.name}\n" in parameters
    for name in PARAMETERS:
        assert f"| `{name}` |" in parameters
    for name in Settings.model_fields:
        assert f"`LOGITD_{name.upper()}`" in settings


@pytest.fixture
def replay_page():
    names = {}
    exec(compile(code(DOCS / "replay.md", "python"), "replay.md", "exec"), names)
    return (DOCS / "replay.md").read_text(), names


def test_the_replay_page_replays(service_url, replay_page):
    text, names = replay_page
    assert f"u = {uniform(1)}" in text
    assert f"`{' '.join(f'{word:08x}' for word in philox4x32((0, 0, 0, 0), (0, 0)))}`" in text
    logits = np.random.default_rng(3).normal(size=(20, 500)).astype(np.float32)
    params = [{"seed": 2**40 + row, "stream": row, "step": 3, "temperature": 0.8, "top_p": 0.9} for row in range(20)]
    for place, row in enumerate(sampled(service_url, logits.tolist(), params)):
        wide = logits[place].astype(np.float64)
        assert names["replay"](wide, 0.8, row["kept"], row["seed"], row["stream"], row["step"]) == row["token"]
    body = {
        "logits": logits[:1].astype(float).tolist(),
        "kind": "gumbel_softmax",
        "temperature": 0.8,
        "seed": 9,
        "stream": 2,
    }
    [row] = post(service_url, "/v1/softmax", body).json()["rows"]
    assert names["replay_gumbel_softmax"](logits[0], 0.8, 9, 2).tolist() == pytest.approx(row["values"], rel=1e-9)


def test_local_links_lead_somewhere():
    for page in PAGES:
        for target, _, heading in re.findall(r"\]\(([^)#]*)(#([^)]+))?\)", page.read_text()):
            if not target.startswith("http"):
                aim = (page.parent / target) if target else page
                assert aim.exists(), f"{page.name}: {target}"
                assert not heading or heading in anchors(aim), f"{page.name}: {target}#{heading}"


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_leads_to_every_page():
    linked = set(re.findall(r"\]\(([^)#]+)", (DOCS / "index.md").read_text()))
    assert linked >= {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}


def asked(shell):
    """The method and the path of every `curl` of some shell code."""
    for command in shell.replace("\\\n", " ").split("curl ")[1:]:
        path = re.search(r"http://127\.0\.0\.1:8000([^\s'?)]*)", command)[1]
        told = re.search(r"-X (\w+)", command)
        yield told[1] if told else "POST" if re.search(r" (-d|--data-binary) ", command) else "GET", path


def test_the_guide_calls_every_route(service_url):
    calls = list(asked(code(GUIDE, "sh")))
    for path, methods in httpx.get(f"{service_url}/openapi.json").json()["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", r"[^/]+", path))
        found = {method.lower() for method, called in calls if pattern.fullmatch(called)}
        assert set(methods) <= found, path


@pytest.mark.parametrize(("subject", "kind"), [("client", Client), ("session", Session)])
def test_the_guide_calls_every_method(subject, kind):
    python = code(GUIDE, "python")
    for name in (name for name in vars(kind) if not name.startswith("_") and callable(vars(kind)[name])):
        assert re.search(rf"\b({subject}|continued)\.{name}\(", python), name


def test_series_and_variables_that_pages_name_exist():
    series = {one.name for one in SERIES}
    variables = {f"LOGITD_{name.upper()}" for name in Settings.model_fields}
    variables |= {"LOGITD_URL", "LOGITD_API_KEY", "LOGITD_PEERS", "LOGITD_KERNELS_ISA", "LOGITD_KERNELS_THREADS"}
    for page in PAGES:
        text = page.read_text()
        named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"`(logitd_\w+?)[`{]", text)}
        assert named <= series | {"logitd_kernels"}, page.name
        assert set(re.findall(r"`(LOGITD_\w+)[`=]", text)) <= variables, page.name


def test_what_the_tuning_page_turns_exists():
    rows = re.findall(r"^\|.*\|.*\|(.*)\|$", (DOCS / "tuning.md").read_text(), re.MULTILINE)
    turned = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", "".join(rows)))
    assert len(turned) > 20
    labels = {value for one in SERIES for values in one.labels.values() for value in values or ()}
    assert turned <= {*Settings.model_fields, *PARAMETERS, *labels}
