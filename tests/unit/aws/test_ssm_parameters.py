"""SSM parameters (in moto), read like secrets."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from chalicelib.aws.secrets_manager import SecretsManagerReader
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import SecretUnavailable
from tests.cases import each_row

NAME, PATH = "ssm:/outscaler/a/kubeconfig", "/outscaler/a/kubeconfig"


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        ("AWS_DEFAULT_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
    ):
        monkeypatch.setenv(name, value)
    with mock_aws():
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        yield


def put(text: str, kind: str = "SecureString") -> None:
    boto3.client("ssm").put_parameter(Name=PATH, Value=text, Type=kind, Overwrite=True)


def test_ssm_parameter_is_decrypted_cached_and_read_again_on_demand() -> None:
    put("one")
    read = SecretsManagerReader()
    assert read(NAME) == "one"
    put("two")
    assert (read(NAME), read.fresh(NAME), read(NAME)) == ("one", "two", "two")
    assert "two" not in repr(vars(read))


def test_ssm_parameter_and_secret_of_one_name_are_distinct() -> None:
    boto3.client("secretsmanager").create_secret(Name=PATH[1:], SecretString="secret")
    put("parameter")
    read = SecretsManagerReader()
    assert (read(PATH[1:]), read(NAME)) == ("secret", "parameter")


@each_row("kind", ["String", "StringList"])
def test_ssm_unencrypted_parameter_is_refused_without_its_text(kind: str) -> None:
    put("not-a-secret-any-more", kind)
    with pytest.raises(
        BadInput, match=r"^parameter /outscaler/a/kubeconfig: is not encrypted; store"
    ) as caught:
        SecretsManagerReader()(NAME)
    assert "any-more" not in str(caught.value)


def test_ssm_missing_parameter_is_an_input_error() -> None:
    with pytest.raises(
        BadInput, match=r"^parameter /outscaler/a/kubeconfig: does not exist; create it, or"
    ):
        SecretsManagerReader()(NAME)


def test_ssm_unreachable_is_not_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SecretUnavailable, match="no answer from AWS"):
        SecretsManagerReader()(NAME)


@each_row(
    ("code", "error", "words"),
    [
        ("AccessDeniedException", BadInput, "may not be read by this function"),
        ("InvalidKeyId", BadInput, "cannot be decrypted"),
        ("ValidationException", BadInput, "is not a valid name"),
        ("ThrottlingException", SecretUnavailable, "ThrottlingException"),
        ("InternalServerError", SecretUnavailable, "InternalServerError"),
    ],
)
def test_ssm_each_error_has_its_message(code: str, error: type[Exception], words: str) -> None:
    class Parameters:
        def get_parameter(self, **_: object) -> object:
            raise ClientError({"Error": {"Code": code, "Message": "x"}}, "GetParameter")

    with pytest.raises(error, match=rf"parameter {PATH}.*{words}"):
        SecretsManagerReader(parameters=Parameters())(NAME)
