"""Compares the Terraform module with the published template: it passes only existing
parameters and all required ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hcl2
import pytest

from infra.aws.package import ROOT
from tests.functional.artifact import artifact

MODULE = ROOT / "infra" / "aws" / "terraform"
TERRAFORM = shutil.which("terraform")
WITHOUT = pytest.mark.skipif(TERRAFORM is None, reason="terraform is not installed")
#: : Set by the module itself, as a whole key.
NOT_PASSED = {"CodePrefix"}

Json = dict[str, Any]


def _file(name: str) -> Json:
    with (MODULE / name).open(encoding="utf-8") as opened:
        parsed: Json = hcl2.load(opened)
    return parsed


def _blocks(name: str, kind: str) -> dict[str, Json]:
    """Blocks by name: variable "x", output "x"."""
    return {
        label.strip('"'): body
        for block in _file(name).get(kind, [])
        for label, body in block.items()
    }


def _resource(kind: str, name: str) -> Json:
    [found] = [
        body
        for block in _file("main.tf")["resource"]
        for label, named in block.items()
        if label.strip('"') == kind
        for one, body in named.items()
        if one.strip('"') == name
    ]
    body: Json = found
    return body


def _stack() -> Json:
    return _resource("aws_cloudformation_stack", "outscaler")


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_terraform_passes_existing_parameters_and_the_rest_are_listed(stage: str) -> None:
    parameters = artifact().published(stage)["Parameters"]
    passed = set(_stack()["parameters"])
    assert passed <= set(parameters)
    assert set(parameters) - passed == NOT_PASSED
    assert {name for name, one in parameters.items() if "Default" not in one} <= passed


def test_terraform_variables_are_exactly_those_used() -> None:
    text = "".join(
        path.read_text("utf-8")
        for path in sorted(MODULE.glob("*.tf"))
        if path.name != "variables.tf"
    )
    used = set(re.findall(r"\bvar\.(\w+)", text))
    assert used == set(_blocks("variables.tf", "variable"))
    assert all(one["description"] for one in _blocks("variables.tf", "variable").values())


def test_terraform_defaults_are_accepted_by_the_template() -> None:
    parameters = artifact().published("prod")["Parameters"]
    variables = _blocks("variables.tf", "variable")
    plain = {
        name: found[1]
        for name, text in _stack()["parameters"].items()
        if (found := re.fullmatch(r"\$\{var\.(\w+)\}", str(text)))
    }
    assert len(plain) >= 8
    for parameter, variable in plain.items():
        default = str(variables[variable]["default"]).strip('"')
        given = parameters[parameter]
        assert re.fullmatch(given.get("AllowedPattern", ".*"), default), parameter
        assert default in map(str, given.get("AllowedValues", [default])), parameter


def test_terraform_provider_switches_follow_the_list_of_vendors() -> None:
    passed = {name: text for name, text in _stack()["parameters"].items() if name.startswith("Use")}
    known = [text.strip('"') for text in _blocks("variables.tf", "variable")["vendors"]["default"]]
    assert {f"Use{vendor.capitalize()}" for vendor in known} == set(passed)
    for name, text in passed.items():
        assert f'"{name.removeprefix("Use").lower()}"' in text


def test_terraform_outputs_exist_in_the_template() -> None:
    outputs = _blocks("outputs.tf", "output")
    named = {name: re.findall(r'"([A-Z]\w+)"', str(one["value"])) for name, one in outputs.items()}
    assert all(len(found) == 1 for found in named.values())
    always, dev = (set(artifact().published(stage)["Outputs"]) for stage in ("prod", "dev"))
    for name, [output] in named.items():
        assert output in (dev if "lookup(" in str(outputs[name]["value"]) else always), name


def test_terraform_stack_gets_one_capability_and_the_template_from_the_bucket() -> None:
    stack = _stack()
    assert stack["capabilities"] == ['"CAPABILITY_IAM"']
    assert "aws_s3_object.template.key" in stack["template_url"]


@pytest.mark.parametrize(("name", "file"), [("zip", "zip_file"), ("template", "template_file")])
def test_changed_file_gets_a_new_key_and_the_old_object_outlives_the_update(
    name: str, file: str
) -> None:
    """CloudFormation compares keys, not contents, and a stack that rolls back
    reads the previous object."""
    resource = _resource("aws_s3_object", name)
    [local] = re.findall(r"local\.(\w+)", resource["key"])
    assert f"filesha256(var.{file})" in _file("main.tf")["locals"][0][local]
    assert resource["lifecycle"][0]["create_before_destroy"] is True


def test_terraform_provider_is_pinned_to_a_major_version() -> None:
    [terraform] = _file("versions.tf")["terraform"]
    [providers] = terraform["required_providers"]
    assert providers["aws"]["source"] == '"hashicorp/aws"'
    assert re.fullmatch(r'"~> \d+\.\d+"', providers["aws"]["version"])


def test_terraform_readme_passes_required_values_and_names_existing_ones() -> None:
    [block] = re.findall(
        r"^```hcl\n(.*?)^```", (MODULE / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    parsed = hcl2.loads(block)
    [module] = [body for one in parsed["module"] for body in one.values()]
    variables = _blocks("variables.tf", "variable")
    given = {name for name in module if not name.startswith("__")} - {"source"}
    assert (
        {name for name, one in variables.items() if "default" not in one} <= given <= set(variables)
    )
    assert {
        name for one in re.findall(r"module\.outscaler\.(\w+)", block) for name in [one]
    } <= set(_blocks("outputs.tf", "output"))


@WITHOUT
def test_terraform_module_is_formatted() -> None:
    done = subprocess.run(
        [str(TERRAFORM), "fmt", "-check", "-diff", str(MODULE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "")


@WITHOUT
@pytest.mark.slow
def test_terraform_validates_the_module_where_a_registry_is_reachable(tmp_path: Path) -> None:
    for path in MODULE.glob("*.tf"):
        shutil.copy(path, tmp_path)
    made = subprocess.run(
        [str(TERRAFORM), "init", "-backend=false", "-input=false"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if made.returncode:
        pytest.skip("terraform init cannot fetch the provider: no registry is reached")
    done = subprocess.run(
        [str(TERRAFORM), "validate", "-no-color"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
