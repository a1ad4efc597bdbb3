"""What the OpenAPI document needs beyond what FastAPI writes: path parameters, and references that resolve."""

import re
from typing import Any

from fastapi import FastAPI

Json = dict[str, Any]

_IN_PATH = re.compile(r"\{(\w+)\}")


def install(app: FastAPI) -> None:
    """Complete the document of an application."""
    written = app.openapi

    def openapi() -> Json:
        return app.openapi_schema or completed(written())

    app.openapi = openapi  # type: ignore[method-assign]


def completed(document: Json) -> Json:
    """Declare each path's parameters, and give schemas that a request body has of its own a common place."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for path, operations in document["paths"].items():
        for operation in operations.values():
            told = operation.setdefault("parameters", [])
            known = {one["name"] for one in told}
            told += [_path_parameter(name) for name in _IN_PATH.findall(path) if name not in known]
    _lift(document["paths"], schemas)
    return document


def _path_parameter(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _lift(node: Any, schemas: Json) -> None:  # noqa: ANN401
    """Move every `$defs` of a tree into `schemas`, and point what refers to it there."""
    if isinstance(node, list):
        for one in node:
            _lift(one, schemas)
    elif isinstance(node, dict):
        for name, schema in node.pop("$defs", {}).items():
            _lift(schema, schemas)
            schemas[name] = schema
        if isinstance(node.get("$ref"), str):
            node["$ref"] = node["$ref"].replace("#/$defs/", "#/components/schemas/")
        for one in node.values():
            _lift(one, schemas)
