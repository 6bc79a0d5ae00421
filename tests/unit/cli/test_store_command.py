"""The commands that store a secret follow its name in the policy: SSM for `ssm:/`,
otherwise Secrets Manager.
"""

from __future__ import annotations

from chalicelib.cli.arguments import SECRET_STORES, store_command
from tests.cases import each_row

PUT = "aws ssm put-parameter --type SecureString --tier Intelligent-Tiering"


@each_row(
    "name, exists, command",
    [
        (
            "ssm:/outscaler/shop/kubeconfig",
            False,
            f"{PUT} --name /outscaler/shop/kubeconfig --value file://FILE",
        ),
        ("ssm:/outscaler/a", True, f"{PUT} --overwrite --name /outscaler/a --value file://FILE"),
        (
            "outscaler/a",
            False,
            "aws secretsmanager create-secret --name outscaler/a --secret-string file://FILE",
        ),
        (
            "outscaler/a",
            True,
            (
                "aws secretsmanager put-secret-value --secret-id outscaler/a --secret-string "
                "file://FILE"
            ),
        ),
        ("ssm:/a;b", False, f"{PUT} --name '/a;b' --value file://FILE"),
    ],
)
def test_store_command_follows_the_name(name: str, exists: bool, command: str) -> None:
    assert store_command(name, exists=exists) == command


def test_parameters_of_ssm_are_proposed_first() -> None:
    assert list(SECRET_STORES) == ["ssm", "secretsmanager"]
