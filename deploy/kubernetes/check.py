"""Build what deploy/kubernetes and deploy/envoy describe and hold every document to its schema, asking nobody.

Kubernetes' own kinds go against its published schemas (kubernetes-validate, strict: an unknown field is a fault), those
of operators against the schemas here.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

HERE = Path(__file__).parent
KUBERNETES = "1.34"  # the oldest version that all fields used here are stable in
KUBECTL = Path(sys.executable).with_name("kubectl")
FOLDERS = [HERE / "overlays" / "cpu", HERE / "overlays" / "gpu", HERE.parent / "envoy"]
# What the overlays name as another choice.
CHOICES = ["components/monitoring", "components/hpa", "components/keys"]

Document = dict[str, Any]


def build(folder: Path) -> list[Document]:
    """Return the documents of a kustomization.

    Raises:
        subprocess.CalledProcessError: kustomize cannot build it.
    """
    command = [str(KUBECTL), "kustomize", str(folder)]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return list(yaml.safe_load_all(built.stdout))


def build_choices() -> list[Document]:
    """Return the documents of an overlay that chooses what the shipped ones do not."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.relpath(HERE / name, os.path.realpath(folder)) for name in ("base", *CHOICES)}
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [paths["base"]],
            "components": [paths[name] for name in CHOICES],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return build(Path(folder))


def fault(document: Document) -> str | None:
    """Return what is wrong with a document, None if nothing is."""
    schema = HERE / "schemas" / f"{document['kind']}.yaml"
    if schema.exists():
        for error in Draft202012Validator(yaml.safe_load(schema.read_text()), registry=_shared()).iter_errors(document):
            return f"{error.json_path}: {error.message}"
        return None
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return error.message
    return None


def _shared() -> Registry:
    schemas = yaml.safe_load((HERE / "schemas" / "common.yaml").read_text())
    resources = {name: Resource.from_contents(one, DRAFT202012) for name, one in schemas.items()}
    return Registry().with_resources(resources.items())


def _all() -> Iterator[tuple[str, Document]]:
    for folder in FOLDERS:
        for document in build(folder):
            yield f"{folder.relative_to(HERE.parent)}", document
    for document in build_choices():
        yield f"kubernetes with {', '.join(CHOICES)}", document


def main() -> int:
    """Print every fault; returns the exit status."""
    checked = faults = 0
    for place, document in _all():
        checked += 1
        if found := fault(document):
            faults += 1
            print(f"{place}: {document['kind']} {document['metadata']['name']}: {found}")
    print(f"{checked} documents against Kubernetes {KUBERNETES}, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
