"""Secrets and EKS, against moto. The test computes the token's signature itself, by the
published rules of SigV4.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import boto3
import pytest
import requests
from moto import mock_aws

from chalicelib.aws.secrets_manager import SecretsManagerReader, eks_endpoint, eks_token
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import SecretUnavailable
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.certificates import CertificateAuthority
from tests.cases import each_row

KEY_ID, KEY = "testing", "testing-key"


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        yield


def test_secrets_manager_secret_is_fetched_once_and_again_on_demand() -> None:
    manager = boto3.client("secretsmanager")
    manager.create_secret(Name="outscaler/a", SecretString="one")
    read = SecretsManagerReader()
    assert read("outscaler/a") == "one"
    manager.put_secret_value(SecretId="outscaler/a", SecretString="two")
    assert read("outscaler/a") == "one"
    assert read.fresh("outscaler/a") == "two"
    assert read("outscaler/a") == "two"
    assert "two" not in repr(vars(read))


def test_secrets_manager_missing_secret_is_an_input_error() -> None:
    with pytest.raises(
        BadInput, match="secret outscaler/none: does not exist; create it, or correct its name"
    ):
        SecretsManagerReader()("outscaler/none")


def test_secrets_manager_binary_secret_is_refused() -> None:
    boto3.client("secretsmanager").create_secret(Name="b", SecretBinary=b"\x00")
    with pytest.raises(BadInput, match="store it as text"):
        SecretsManagerReader()("b")


def test_secrets_manager_unreachable_aws_is_not_an_input_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SecretUnavailable, match="no answer from AWS"):
        SecretsManagerReader()("a")


def test_secrets_manager_missing_region_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(BadInput, match=r"set kubernetes\.region in the policy"):
        eks_endpoint("a", "")


def create_cluster(name: str, region: str = "eu-central-1") -> dict[str, Any]:
    eks: Any = boto3.Session(region_name=region).client("eks")
    made = eks.create_cluster(
        name=name,
        roleArn="arn:aws:iam::123456789012:role/eks",
        resourcesVpcConfig={"subnetIds": ["subnet-1"]},
    )
    cluster: dict[str, Any] = made["cluster"]
    return cluster


def test_eks_cluster_is_found_by_name_and_region() -> None:
    cluster = create_cluster("prod", "eu-west-1")
    endpoint, ca = eks_endpoint("prod", "eu-west-1")
    assert endpoint == cluster["endpoint"].rstrip("/")
    assert base64.b64encode(ca).decode() == cluster["certificateAuthority"]["data"]


def test_eks_missing_cluster_is_an_input_error() -> None:
    with pytest.raises(BadInput, match="EKS cluster none: does not exist") as caught:
        connect(KubernetesAccess(eks_cluster="none"), SecretsManagerReader(), clock=lambda: 0.0)
    assert caught.value.remedy


def url_of(token: str) -> str:
    prefix, _, encoded = token.partition(".")
    assert prefix == "k8s-aws-v1"
    assert not encoded.endswith("=")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()


def signature(url: str, headers: dict[str, str]) -> str:
    """Computes SigV4 for a presigned GET, from AWS's published description of the algorithm."""
    parts = urlsplit(url)
    query = {
        name: values[0]
        for name, values in parse_qs(parts.query).items()
        if name != "X-Amz-Signature"
    }
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query.items())
    signed = query["X-Amz-SignedHeaders"]
    canonical = "\n".join(
        [
            "GET",
            "/",
            "&".join(f"{k}={v}" for k, v in pairs),
            *(f"{h}:{headers[h]}" for h in signed.split(";")),
            "",
            signed,
            hashlib.sha256(b"").hexdigest(),
        ]
    )
    _, date, region, service, end = query["X-Amz-Credential"].split("/")
    scope = f"{date}/{region}/{service}/{end}"
    to_sign = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            query["X-Amz-Date"],
            scope,
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    key = b"AWS4" + KEY.encode()
    for part in (date, region, service, end, to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


@each_row(
    ("region", "host"),
    [
        ("eu-west-1", "sts.eu-west-1.amazonaws.com"),
        ("", "sts.eu-central-1.amazonaws.com"),
        ("us-east-1", "sts.us-east-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_eks_token_is_a_presigned_get_caller_identity_naming_the_cluster(
    region: str, host: str
) -> None:
    url = url_of(eks_token("prod", region).reveal())
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert (parts.scheme, parts.netloc, parts.path) == ("https", host, "/")
    assert (query["Action"], query["Version"], query["X-Amz-Expires"]) == (
        "GetCallerIdentity",
        "2011-06-15",
        "60",
    )
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert query["X-Amz-Credential"].startswith(f"{KEY_ID}/")
    assert query["X-Amz-Signature"] == signature(url, {"host": host, "x-k8s-aws-id": "prod"})
    assert query["X-Amz-Signature"] != signature(url, {"host": host, "x-k8s-aws-id": "another"})


def test_eks_token_ignores_an_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert (
        urlsplit(url_of(eks_token("prod", "eu-west-1").reveal())).netloc
        == "sts.eu-west-1.amazonaws.com"
    )


def test_eks_token_is_answered_by_sts() -> None:
    url = url_of(eks_token("prod", "eu-west-1").reveal())
    # moto answers instead of STS
    answer = requests.get(url, headers={"x-k8s-aws-id": "prod"}, timeout=600)
    assert answer.status_code == 200
    assert "<Account>123456789012</Account>" in answer.text


def test_eks_reader_serves_a_connection() -> None:
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "clusters": [
            {
                "name": "a",
                "cluster": {
                    "server": "https://cluster.test",
                    "certificate-authority-data": base64.b64encode(
                        CertificateAuthority().pem
                    ).decode(),
                },
            }
        ],
    }
    boto3.client("secretsmanager").create_secret(Name="config", SecretString=json.dumps(config))
    cluster = connect(
        KubernetesAccess(kubeconfig_secret="config"), SecretsManagerReader(), clock=lambda: 0.0
    )
    assert isinstance(cluster, KubeClient)
    cluster.close()
