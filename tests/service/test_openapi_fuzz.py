"""Schemathesis sends every route what its document allows, and what it does not: nothing is answered by a fault."""

import subprocess
import sys

import pytest
from running import running

pytestmark = [pytest.mark.openapi, pytest.mark.timeout(900)]

# 501 is what a part that is switched off answers, 503 and 504 what a service does that has no room or no time.
_CONFIGURATION = """\
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501", "503", "504"]
"""


def test_no_input_is_answered_by_a_fault(tmp_path):
    (tmp_path / "schemathesis.toml").write_text(_CONFIGURATION)
    with running() as service:
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"),
            *(f"{service.url}/openapi.json", "--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "40", "--seed", "1", "--no-color", "--request-timeout", "30"),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=850)
    assert "Failures:" not in done.stdout, done.stdout
    assert "Schema Error" not in done.stdout, done.stdout
    assert "Tested: 0" not in done.stdout
    assert "Test cases:" in done.stdout, done.stdout + done.stderr
