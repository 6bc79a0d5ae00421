"""Runs the artifact as Lambda does: unzipped, through the template's Handler names,
with nothing else available.
"""

from __future__ import annotations

import json
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import chalicelib
from chalicelib.policy.load import digest
from chalicelib.runtime.webhook_authentication import sign
from chalicelib.store import Store
from infra.aws.artifact import rewrite
from infra.aws.botocore_data import SERVICES
from infra.emulators.aws import LocalAws
from tests.functional.app_client import HMAC, sample
from tests.functional.artifact import artifact
from tests.functional.stack import HANDLERS, Stack

POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {kubeconfigSecret: outscaler/prod/shop/kubeconfig}
  providers: {clusterapi: {namespace: capi}}
  nodeGroups: [{provider: clusterapi, id: workers, min: 1, max: 9}]
  webhook: {secret: outscaler/prod/shop/webhook, debounce: 1s}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The deployment, with one cluster's policy and secrets."""
    with LocalAws() as aws:
        made = Stack(aws, artifact(), tmp_path_factory.mktemp("events"))
        store = Store(made.ids["StateTable"], clock=lambda: 0.0, client=aws.client("dynamodb"))
        store.policies.put("shop", POLICY, digest(POLICY), None)
        aws.put_secret("outscaler/prod/shop/webhook", json.dumps({"hmac": HMAC}))
        yield made


def test_zip_contains_bytecode_and_no_build_tools() -> None:
    names = zipfile.ZipFile(artifact().zip).namelist()
    modules = {name for name in names if name.endswith(".py")}
    cached = [name for name in names if name.endswith(".pyc")]
    compiled = {re.sub(r"__pycache__/(\w+)\.cpython-\d+\.pyc$", r"\1.py", name) for name in cached}
    assert compiled == modules
    assert not [
        name
        for name in names
        if re.search(r"(^|/)tests?/|\.pyi$|^chalicelib/cli/|^kubernetes/", name)
    ]
    assert {
        "app.py",
        "chalicelib/functions/tick.py",
        "chalice/app.py",
        "botocore/session.py",
    } <= modules


def test_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    """A part of the artifact, written again from entries in another order and of another date. The
    whole zip is built twice in test_release_build.py."""
    first, again = tmp_path / "first.zip", tmp_path / "again.zip"
    with zipfile.ZipFile(artifact().zip) as whole:
        parts = {
            name: whole.read(name)
            for name in whole.namelist()
            if name.startswith(("app.py", "__pycache__/app.", "chalicelib/", "botocore/data/"))
        }
    for archive, names, year in ((first, list(parts), 2030), (again, list(reversed(parts)), 2031)):
        with zipfile.ZipFile(archive, "w") as target:
            for name in names:
                target.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), parts[name])
        tree = tmp_path / archive.stem
        tree.mkdir()
        rewrite(archive, tree)
    assert first.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(first) as made:
        assert {name: made.read(name) for name in made.namelist()} == parts


def test_zip_describes_every_aws_service_that_is_called() -> None:
    package = Path(chalicelib.__file__).parent
    zipped = zipfile.ZipFile(artifact().zip).namelist()
    called = {
        name
        for path in package.rglob("*.py")
        if f"chalicelib/{path.relative_to(package)}" in zipped
        for name in re.findall(r"""client\(\s*["']([a-z0-9-]+)["']""", path.read_text())
    }
    assert {"dynamodb", "sns", "sqs", "secretsmanager", "eks", "sts"} <= called <= SERVICES
    shipped = {
        name.split("/")[2]
        for name in zipped
        if name.startswith("botocore/data/") and name.count("/") > 2
    }
    assert shipped == SERVICES


def test_stack_of_the_artifact_is_created(stack: Stack) -> None:
    assert stack.status == "CREATE_COMPLETE"
    assert set(HANDLERS) <= set(stack.ids)


def test_tick_queues_the_cluster_only_once(stack: Stack) -> None:
    event = json.loads(sample("eventbridge-schedule"))
    first = stack.invoke("Tick", event)
    assert first["answer"] == {"clusters": 1, "queued": ["shop"], "swept": [], "failed": []}
    assert stack.count("ReconcileQueue") == 3
    assert stack.invoke("Tick", event)["answer"]["queued"] == []
    assert stack.count("ReconcileQueue") == 3


def _posted(body: bytes, timestamp: int, key: str = HMAC) -> dict[str, object]:
    event: dict[str, object] = json.loads(sample("api-gateway-post"))
    signature = sign(key.encode(), "shop", str(timestamp), body)
    return event | {
        "body": body.decode(),
        "headers": {"X-Outscaler-Timestamp": str(timestamp), "X-Outscaler-Signature": signature},
    }


def test_webhook_of_the_artifact_requests_a_reconcile(stack: Stack) -> None:
    body, now, before = (
        sample("core-v1-failed-scheduling"),
        int(time.time()),
        stack.count("ReconcileQueue"),
    )
    answer = stack.invoke("APIHandler", _posted(body, now))["answer"]
    assert (answer["statusCode"], json.loads(answer["body"])) == (
        202,
        {"accepted": 1, "matched": 1, "woken": True},
    )
    assert stack.count("ReconcileQueue") == before + 1
    assert stack.invoke("APIHandler", _posted(body, now))["answer"]["statusCode"] == 401
    assert (
        stack.invoke("APIHandler", _posted(body, now, key="not-the-right-value"))["answer"][
            "statusCode"
        ]
        == 401
    )


def test_reconcile_of_an_unknown_cluster_ends_at_once(stack: Stack) -> None:
    event = json.loads(sample("sqs-message"))
    event["Records"][0]["body"] = '{"cluster": "nobody"}'
    assert stack.invoke("Reconcile", event)["answer"] == {"batchItemFailures": []}


@pytest.mark.parametrize("function", ["Reconcile", "ActClusterapi", "ActExoscale"])
def test_unreadable_message_returns_to_its_queue(stack: Stack, function: str) -> None:
    event = json.loads(sample("sqs-message"))
    event["Records"][0]["body"] = "rubbish"
    failed = stack.invoke(function, event)
    assert failed["answer"] == {
        "batchItemFailures": [{"itemIdentifier": event["Records"][0]["messageId"]}]
    }
    assert '"message failed"' in failed["log"]


@pytest.mark.parametrize("function", HANDLERS)
def test_function_runs_from_the_zip_alone(stack: Stack, function: str) -> None:
    assert stack.invoke(function, None)["foreign"] == []
