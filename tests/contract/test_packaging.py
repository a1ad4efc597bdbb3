"""What is installed, what imports what, and that the documentation is true."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import logitd
import logitd_kernels

ROOT = Path(__file__).resolve().parents[2]
CONFIG = (ROOT / "pyproject.toml").read_text()


def test_both_packages_come_from_their_source_roots():
    assert Path(logitd.__file__).parent == ROOT / "service" / "logitd"
    assert Path(logitd_kernels.__file__).parent == ROOT / "kernels" / "logitd_kernels"


def test_no_other_distribution_provides_our_names():
    providers = importlib.metadata.packages_distributions()
    assert set(providers.get("logitd", ["logitd"])) == {"logitd"}
    assert set(providers.get("logitd_kernels", ["logitd"])) == {"logitd"}


def test_the_base_install_is_the_client_alone():
    requires = importlib.metadata.requires("logitd")
    base = {re.split(r"[<>=!~; ]", line)[0] for line in requires if "extra ==" not in line}
    assert base == {"httpx", "numpy"}


@pytest.mark.parametrize("package", [logitd, logitd_kernels])
def test_public_names_are_sorted_and_there(package):
    assert sorted(package.__all__) == sorted(set(package.__all__))
    for name in package.__all__:
        assert getattr(package, name) is not None


@pytest.fixture
def tree(tmp_path):
    """A copy of the sources with the import contract, to plant faults in."""
    for folder in ("service", "kernels"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    return tmp_path


def lint_imports(tree):
    # -S leaves out the editable install's import hook, which would lead to the sources that are really installed.
    code = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    paths = f"{tree / 'service'}:{tree / 'kernels'}:{sysconfig.get_path('purelib')}"
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, cwd=tree, env={"PYTHONPATH": paths}, capture_output=True, text=True)


def test_the_import_contract_holds(tree):
    result = lint_imports(tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("kernels/logitd_kernels/softmax.py", "import fastapi"),
        ("kernels/logitd_kernels/head.py", "from logitd.settings import Settings"),
        ("kernels/logitd_kernels/head.py", "from logitd_kernels.sampling.sample import sample"),
        ("service/logitd/engine.py", "from logitd.api.schemas import SampleFields"),
        ("service/logitd/client/call.py", "import torch"),
    ],
)
def test_a_planted_import_breaks_the_contract(tree, file, line):
    path = tree / file
    path.write_text(f"{path.read_text()}\n{line}\n")
    assert lint_imports(tree).returncode == 1


def test_the_version_is_the_changelogs():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog or f"## [{logitd.__version__}]" in changelog


def test_every_pin_satisfies_its_range():
    pins = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    pins = {name.replace("_", "-"): version for name, version in pins.items()}
    for line in importlib.metadata.requires("logitd"):
        name, floor = re.match(r"([A-Za-z0-9-]+)(?:\[[a-z,]+\])?>=([0-9.]+)", line).groups()
        pinned = tuple(int(part) for part in pins[name.lower()].split(".")[:2])
        assert pinned >= tuple(int(part) for part in floor.split(".")[:2]), line
