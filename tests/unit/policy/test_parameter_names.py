"""An SSM parameter instead of a secret: the same naming rules decide which cluster may use it."""

from __future__ import annotations

import pytest

from chalicelib.journal.redaction import without_secrets
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy_permissions import (
    DEFAULT_PREFIX,
    SHARED_SECRETS,
    STRICT,
    Deployment,
    deployment_of,
)
from chalicelib.model.secret import parameter_name, place_of
from chalicelib.policy.load import load
from chalicelib.policy.secret_names import USES, ClusterSecrets, problem
from infra.emulators import deployed_functions as deployed
from infra.emulators.iam import arn, roles
from tests.cases import each_row
from tests.unit.policy.policy_documents import with_access

SHARED = Deployment(
    shared_secrets=frozenset({"ssm:/outscaler/shared/exoscale", "outscaler/both/exoscale"})
)


@each_row("rest", ["", "-observe", ".old", "/eu/1", "-a_b"])
def test_parameter_names_of_a_cluster_are_its_own(rest: str) -> None:
    assert problem(f"ssm:/outscaler/prod/exoscale{rest}", "prod", ("exoscale",), STRICT) == ""


@each_row(
    "name",
    [
        "ssm:/outscaler/other/exoscale",
        "ssm:/outscaler/pro/exoscale",
        "ssm:/outscaler/prod-eu/exoscale",
        "ssm:outscaler/prod/exoscale",
        "ssm://outscaler/prod/exoscale",
        "ssm:/ssm:/outscaler/prod/exoscale",
        "SSM:/outscaler/prod/exoscale",
        "ssm:/",
        "ssm:",
        "/outscaler/prod/exoscale",
        " ssm:/outscaler/prod/exoscale",
        "ssm:/outscaler/prod/exoscale:3",
        "ssm:/outscaler/prod/exoscale:label",
        "ssm:/outscaler/prod/exoscale:",
        "ssm:/outscaler/prod/../other/exoscale",
        "ssm:/outscaler//prod/exoscale",
        "ssm:/./outscaler/prod/exoscale",
        "ssm:/outscaler/prod/exoscale\n",
        "ssm:/outscaler/prod/exoscale%2f",
        "ssm:/outscaler/prod/exoscale+a",
        "ssm:/outscaler/prod/exoscale@a",
        "ssm:/outscaler/prod/exoscale=a",
        "ssm:/outscaler/prod/exoscale*",
        "ssm:/outscaler/prod/kubeconfig",
        "ssm:/outscaler/prod/exoscale/webhook",
        "ssm:/outscaler/prod/x/exoscale",
        "arn:aws:ssm:eu-central-2:123456789012:parameter/outscaler/prod/exoscale",
        "ssm:/arn:aws:ssm:eu-central-2:123456789012:parameter/outscaler/prod/exoscale",
        "ssm:/outscaler/shared/exoscale-other",
        "outscaler/shared/exoscale",
        "ssm:/outscaler/both/exoscale",
        "ssm:/outscaler/PROD/exoscale",
        "ssm:/outscaler/prod/exoscaleother",
        "ssm:/outscaler/prod/" + "exoscale-" * 60,
    ],
)
def test_parameter_names_of_other_forms_are_not_its_own(name: str) -> None:
    assert problem(name, "prod", ("exoscale",), SHARED)


@pytest.mark.parametrize("use", ["kubeconfig", "webhook", "notifications", "alicloud", "exoscale"])
def test_parameter_names_secret_of_one_use_is_readable_for_no_other(use: str) -> None:
    name = f"ssm:/outscaler/prod/cherryservers/{use}"
    assert f"has a part that begins with {use}" in problem(name, "prod", ("cherryservers",), SHARED)


def test_parameter_names_shared_parameter_is_not_the_secret_of_that_name() -> None:
    assert problem("ssm:/outscaler/shared/exoscale", "prod", ("exoscale",), SHARED) == ""
    assert problem("outscaler/both/exoscale", "prod", ("exoscale",), SHARED) == ""
    listed = deployment_of(
        {SHARED_SECRETS: "ssm:/outscaler/shared/exoscale, outscaler/both/exoscale"}
    )
    assert listed.shared_secrets == SHARED.shared_secrets


def test_parameter_names_reader_requests_no_other_parameter() -> None:
    asked: list[str] = []

    def read(name: str) -> str:
        asked.append(name)
        return "text"

    mine = ClusterSecrets(read, "prod", ("exoscale",), STRICT)
    assert mine("ssm:/outscaler/prod/exoscale") == "text"
    with pytest.raises(
        BadInput, match=r"^parameter /outscaler/other/exoscale: is not a secret of cluster prod"
    ):
        mine("ssm:/outscaler/other/exoscale")
    assert asked == ["ssm:/outscaler/prod/exoscale"]


@each_row("use", USES)
def test_parameter_names_permitted_name_is_readable_only_for_its_use(use: str) -> None:
    """Applies to secrets and parameters: IAM roles derive the use from the name."""

    def readers(action: str, resource: str) -> set[str]:
        return {
            function
            for function, statements in roles("t", deployed.queues()).items()
            if any(each.allows(action, resource, frozenset()) for each in statements)
        }

    for name in (
        f"{DEFAULT_PREFIX}prod/{use}",
        f"{DEFAULT_PREFIX}prod/{use}-2",
        f"{DEFAULT_PREFIX}prod/{use}/x",
    ):
        of_secret = readers(
            "secretsmanager:GetSecretValue", arn("secretsmanager", f"secret:{name}-a1B2c3")
        )
        assert (
            readers("ssm:GetParameter", arn("ssm", f"parameter{parameter_name('ssm:/' + name)}"))
            == of_secret
        )
        assert of_secret
    assert not readers("ssm:GetParameter", arn("ssm", f"parameter/other/prod/{use}"))
    for action in (
        "ssm:GetParameters",
        "ssm:GetParametersByPath",
        "ssm:PutParameter",
        "ssm:GetParameterHistory",
    ):
        assert not readers(action, arn("ssm", f"parameter/{DEFAULT_PREFIX}prod/{use}"))


def test_parameter_names_parser_refuses_names_of_no_known_kind() -> None:
    for name in ("ssm:/a b", "ssm:x", "ssm:/a:3", "ssm:/"):
        with pytest.raises(
            InputErrors,
            match=r"kubeconfigSecret: is not the name of a secret; .*ssm:/ and the name",
        ):
            load(with_access(f"{{kubeconfigSecret: '{name}'}}"), place="p")


@each_row(
    "text",
    [
        "kubeconfig parameter /outscaler/prod/kubeconfig: does not exist; create it",
        "no way: parameter /outscaler/prod/exoscale: may not be read",
        "it says ssm:/outscaler/prod/exoscale.",
    ],
)
def test_parameter_names_are_not_shown_to_readers(text: str) -> None:
    assert "outscaler" not in without_secrets(text, "")
    assert "outscaler" not in without_secrets(
        "about /outscaler/prod/own-name",
        "spec: {webhook: {secret: 'ssm:/outscaler/prod/own-name'}}",
    )


def test_parameter_names_messages_say_secret_or_parameter_correctly() -> None:
    assert place_of("ssm:/outscaler/prod/exoscale") == "parameter /outscaler/prod/exoscale"
    assert place_of("outscaler/prod/exoscale") == "secret outscaler/prod/exoscale"
