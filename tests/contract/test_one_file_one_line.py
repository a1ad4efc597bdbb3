"""A new sampling transform is one file and one line: the service, its document and its pages follow."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import logitd_kernels

ROOT = Path(__file__).resolve().parents[2]

FILE = '''"""drop_last: keep all but the last few tokens."""

from logitd_kernels.sampling.parameters import Number
from logitd_kernels.sampling.transform import Cut


def _cut(row, kept, values):
    return row.first(max(1, kept.count - values["drop_last"]))


DROP_LAST = Cut(
    name="drop_last",
    parameter=Number("drop_last", 0, "How many of the least likely tokens to drop.", ge=0, integer=True),
    formula="keep all but the last n tokens",
    boundary="At least one is kept.",
    source="a test",
    cut=_cut,
)
'''

ASKED = """
import json, sys
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in type(one).__module__.lower()]
sys.path[:0] = sys.argv[1:]
import logitd_kernels
from fastapi.testclient import TestClient
from logitd.app import create_app
from logitd.counting.series import METHODS
from tables import sampling_page

app = create_app()
with TestClient(app) as client:
    def ask(params):
        body = {"logits": [[3, 2, 1, 0]], "params": {"seed": 1, **params}, "trace": True}
        return client.post("/v1/sample", json=body)

    good, bad = ask({"drop_last": 3}), ask({"drop_last": -1})
    schema = client.get("/openapi.json").json()["paths"]["/v1/sample"]["post"]["requestBody"]["content"]
    body = schema["application/json"]["schema"]["properties"]
    print(json.dumps({
        "from": logitd_kernels.__file__,
        "row": good.json()["rows"][0],
        "effective": good.json()["effective"],
        "refused": [bad.status_code, bad.json()["errors"][0]["path"]],
        "schema": body["params"]["anyOf"][0]["properties"]["drop_last"],
        "ordered": "drop_last" in body["order"]["anyOf"][0]["items"]["enum"],
        "counted": "drop_last" in METHODS,
        "metrics": 'logitd_tokens_sampled_total{method="drop_last"} 1.0' in client.get("/metrics").text,
        "page": "## drop_last" in sampling_page(),
    }))
"""


def test_one_file_and_one_line_are_all_it_takes(tmp_path):
    package = tmp_path / "logitd_kernels"
    shutil.copytree(ROOT / "kernels" / "logitd_kernels", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "sampling" / "drop_last.py").write_text(FILE)
    registry = package / "sampling" / "registry.py"
    lines = registry.read_text().replace("    ADAPTIVE_P,\n", "    DROP_LAST,\n    ADAPTIVE_P,\n")
    imported = "from logitd_kernels.sampling.drop_last import DROP_LAST\nTRANSFORMS: tuple["
    registry.write_text(lines.replace("TRANSFORMS: tuple[", imported, 1))
    assert Path(logitd_kernels.__file__).parent != package
    command = [sys.executable, "-W", "ignore", "-c", ASKED, *map(str, (tmp_path, ROOT / "service", ROOT / "docs"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["from"].startswith(str(package))
    assert (told["row"]["token"], told["row"]["kept"], told["row"]["trace"][-1]["transform"]) == (0, 1, "drop_last")
    assert told["row"]["notes"][-1].startswith("drop_last 3 decided what could be drawn")
    assert told["effective"]["drop_last"] == 3
    assert told["refused"] == [422, "params.drop_last"]
    assert (told["schema"]["minimum"], told["schema"]["description"]) == (
        0,
        "How many of the least likely tokens to drop.",
    )
    assert told["ordered"]
    assert told["counted"]
    assert told["metrics"]
    assert told["page"]
