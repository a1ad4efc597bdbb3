"""The OpenAPI document holds together, and shows every sampling parameter as the registry has it."""

import re

import httpx
import pytest
from jsonschema import Draft202012Validator

from logitd_kernels import PARAMETERS, TRANSFORMS


@pytest.fixture(scope="module")
def document(service_url):
    return httpx.get(f"{service_url}/openapi.json").json()


def every(node, name):
    """Yield what stands under a name anywhere in a document."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict) and name in node:
        yield node[name]
    for child in children:
        yield from every(child, name)


def test_every_reference_resolves(document):
    references = {one for one in every(document, "$ref") if isinstance(one, str)}
    assert references
    for reference in references:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert node
    assert not list(every(document, "$defs"))


def test_every_parameter_of_a_path_is_declared(document):
    for path, operations in document["paths"].items():
        for operation in operations.values():
            declared = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert sorted(declared) == sorted(re.findall(r"\{(\w+)\}", path)), path


def test_every_schema_is_one(document):
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for schema in every(operation.get("requestBody", {}), "schema"):
                Draft202012Validator.check_schema(schema)
            assert operation["responses"], path


def params_of(document):
    body = document["paths"]["/v1/sample"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return body["properties"]["params"]["anyOf"][0]


def in_floats(node):
    """The same with all numbers as FastAPI has them, and without nulls, which it leaves out."""
    if isinstance(node, dict):
        return {key: in_floats(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [in_floats(one) for one in node]
    return float(node) if isinstance(node, int) and not isinstance(node, bool) else node


def test_every_parameter_is_there_with_its_bounds_and_a_description(document):
    shown = params_of(document)
    assert shown["additionalProperties"] is False
    assert set(shown["properties"]) == set(PARAMETERS)
    for name, parameter in PARAMETERS.items():
        schema = shown["properties"][name]
        assert schema["description"] == parameter.doc
        assert in_floats(schema) == in_floats(parameter.schema())


@pytest.mark.parametrize("name", [name for name, parameter in PARAMETERS.items() if "[" in parameter.bounds])
def test_the_schema_refuses_what_the_service_refuses(document, name):
    validator = Draft202012Validator(params_of(document))
    low = re.match(r"(?:integer in )?[\[(](-?[\d.]+)", PARAMETERS[name].bounds)
    if low:
        assert not validator.is_valid({name: float(low[1]) - 1})
    assert not validator.is_valid({name: "x"})
    assert validator.is_valid({name: PARAMETERS[name].neutral})


def test_orders_name_every_transform(document):
    body = document["paths"]["/v1/sample"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["order"]["anyOf"][0]["items"]["enum"] == [one.name for one in TRANSFORMS]
    assert body["properties"]["dialect"]["enum"] == ["vllm", "hf", "llama.cpp", "sglang", "exllama"]
