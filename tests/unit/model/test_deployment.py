"""The template's parameters are the settings that the functions read from their environment."""

from __future__ import annotations

import json
import re
from pathlib import Path

from chalicelib.model.policy_permissions import (
    ALLOWED_ENDPOINTS,
    SECRET_PREFIX,
    SHARED_SECRETS,
    STRICT,
    Deployment,
    deployment_of,
)
from tests.cases import each_row

TEMPLATE = json.loads(
    (Path(__file__).resolve().parents[3] / "infra/aws/template.json").read_text("utf-8")
)
PARAMETERS = {
    SECRET_PREFIX: "SecretPrefix",
    SHARED_SECRETS: "SharedSecrets",
    ALLOWED_ENDPOINTS: "AllowedEndpoints",
}
IN_LAMBDA = {"AWS_LAMBDA_FUNCTION_NAME": "outscaler-reconcile"}


def test_deployment_every_function_gets_the_parameters() -> None:
    variables = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]
    assert {name: variables[name] for name in PARAMETERS} == {
        name: {"Ref": ref} for name, ref in PARAMETERS.items()
    }


def test_deployment_template_defaults_permit_only_the_usual() -> None:
    """The secret prefix is empty because it is derived from the stage
    (tests/functional/test_template_parameters.py)."""
    given = {name: TEMPLATE["Parameters"][ref]["Default"] for name, ref in PARAMETERS.items()}
    assert given[SECRET_PREFIX] == ""
    assert deployment_of(given | {SECRET_PREFIX: STRICT.secret_prefix} | IN_LAMBDA) == STRICT


@each_row(
    ("variable", "text"),
    [
        (SECRET_PREFIX, "team-a/scaler-1/"),
        (SHARED_SECRETS, "outscaler/shared/exoscale, outscaler/shared/kubeconfig-1"),
        (ALLOWED_ENDPOINTS, "proxy.example.com:8443,ess.example.com"),
    ],
)
def test_deployment_functions_accept_every_template_parameter_value(
    variable: str, text: str
) -> None:
    assert re.fullmatch(TEMPLATE["Parameters"][PARAMETERS[variable]]["AllowedPattern"], text)
    assert deployment_of(IN_LAMBDA | {variable: text}) != STRICT


def test_deployment_environment_alone_never_permits_files() -> None:
    assert not deployment_of({}).files
    assert not Deployment().files
    assert deployment_of({}, files=True).files
