"""Write components/monitoring/prometheusrule.yaml: the rules of deploy/prometheus, for the Prometheus Operator."""

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SOURCES = [HERE.parent / "prometheus" / name for name in ("recording.yml", "alerts.yml")]
RULE = HERE / "components" / "monitoring" / "prometheusrule.yaml"
HEADER = "# Written by deploy/kubernetes/rules.py from deploy/prometheus; edit there.\n"


def document() -> dict[str, Any]:
    """Return the PrometheusRule that holds every group of the sources."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "logitd", "labels": {"app.kubernetes.io/name": "logitd"}},
        "spec": {"groups": [group for path in SOURCES for group in yaml.safe_load(path.read_text())["groups"]]},
    }


class _Dumper(yaml.SafeDumper):
    """Keeps expressions of several lines as they are read."""


def _string(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)


def text() -> str:
    """Return the file's text."""
    return HEADER + yaml.dump(document(), Dumper=_Dumper, sort_keys=False, width=1000)


if __name__ == "__main__":
    RULE.write_text(text())
