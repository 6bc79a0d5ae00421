"""One botocore session for all clients of a process: loaded once, rebuilt for other
credentials, thread-safe.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import NoRegionError

from chalicelib.aws import session

SERVICES = ("dynamodb", "sqs", "secretsmanager", "sts", "eks")

_COUNT = """
import sys
from chalicelib.aws import session
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
for service in {services!r}:
    session.client(service, region="eu-central-1")
print(sum(name.endswith("endpoints.json") for name in opened))
"""


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "first"),
        ("AWS_SECRET_ACCESS_KEY", "none"),
        ("AWS_DEFAULT_REGION", "eu-central-1"),
        ("AWS_CONFIG_FILE", "/nonexistent"),
    ):
        monkeypatch.setenv(name, value)


def signer(client: Any) -> str:
    """Returns the access key with which a client signs."""
    return query(client)["X-Amz-Credential"][0].partition("/")[0]


def query(client: Any) -> dict[str, list[str]]:
    """Returns the query of the URL that an STS client signs."""
    url: str = client.generate_presigned_url(
        ClientMethod="get_caller_identity", ExpiresIn=60, HttpMethod="GET"
    )
    return parse_qs(urlsplit(url).query)


def test_aws_session_loads_the_endpoint_table_once_for_all_clients() -> None:
    command = [sys.executable, "-c", _COUNT.format(services=SERVICES)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1\n"


def test_aws_session_next_client_follows_a_changed_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = session.client("sts")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    assert (signer(before), signer(session.client("sts"))) == ("first", "second")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert session.client("sqs").meta.endpoint_url == "http://127.0.0.1:1"


def test_aws_session_client_has_the_requested_region_endpoint_and_settings() -> None:
    made = session.client("sqs", region="cn-north-1", read_timeout=5)
    assert (made.meta.region_name, made.meta.config.read_timeout) == ("cn-north-1", 5)
    assert made.meta.endpoint_url == "https://sqs.cn-north-1.amazonaws.com.cn"
    assert session.client("sqs").meta.region_name == "eu-central-1"
    assert session.client("sqs", region="").meta.region_name == "eu-central-1"
    assert (
        session.client("dynamodb", endpoint="http://127.0.0.1:2").meta.endpoint_url
        == "http://127.0.0.1:2"
    )


def test_aws_session_event_handlers_are_separate_for_each_client() -> None:
    """EKS tokens name their cluster in a header that a handler adds before signing."""

    def name_it(request: Any, **_: object) -> None:
        request.headers["x-k8s-aws-id"] = "one"

    one, other = session.client("sts"), session.client("sts")
    one.meta.events.register("before-sign.sts.GetCallerIdentity", name_it)
    signed = [
        query(client)["X-Amz-SignedHeaders"][0] for client in (one, other, session.client("sts"))
    ]
    assert signed == ["host;x-k8s-aws-id", "host", "host"]


def test_aws_session_creates_clients_from_several_threads() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(session.client, SERVICES * 8))
    assert [client.meta.service_model.service_name for client in made] == list(SERVICES * 8)


def test_aws_session_without_a_region_raises_botocores_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(NoRegionError):
        session.client("sqs")
