"""No GET route shows the name of a secret, even if it was recorded during a pass."""

from __future__ import annotations

import json

import msgspec
import pytest

from chalicelib.journal.redaction import without_secrets
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import MissingData
from chalicelib.store import JournalEntry
from tests.functional.app_client import AppClient

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")

CREDENTIALS = "outscaler/prod/cherry-cloud"
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:outscaler/prod/cherry-cloud-AbCdEf"
WORDS = (
    f"secret {CREDENTIALS}: does not exist; create it, or correct its name in the policy",
    f"kubeconfig secret {CREDENTIALS}: users[0].user has no credential",
    f"{CREDENTIALS} was asked for",
    f"see {CREDENTIALS}.",
    f"denied on {ARN}",
    "secret old-one: is binary",
    "no way to provider x: secret team/old: may not be read by this function",
)


def shown(desk: AppClient, name: str) -> str:
    paths = (
        "/clusters",
        f"/clusters/{name}",
        f"/clusters/{name}/decisions",
        f"/clusters/{name}/decisions?full=true",
    )
    answers = [desk.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * 4
    return "\n".join(json.dumps(answer.json_body) for answer in answers)


def test_no_get_route_shows_the_name_of_a_secret(desk: AppClient) -> None:
    name = desk.cluster(
        spec={"providers": {"cherryservers": {"credentialsSecret": CREDENTIALS, "teamId": "1"}}}
    )
    now = desk.clock()
    for number, words in enumerate(WORDS):
        plan = Plan(
            id=f"p{number}",
            cluster=name,
            at=now,
            gaps=(MissingData("provider/cherryservers", words),),
        )
        body = msgspec.json.encode(plan).decode()
        desk.store.journal.append(
            name,
            JournalEntry(
                at=now + number, kind="plan", plan=f"p{number}", body=body, facts={"why": words}
            ),
        )
    failed = [Backoff(300.0, now + 240, now, "Unauthorized", "NoSecret", words) for words in WORDS]
    after = Memory(
        groups={f"g{number}": GroupMemory(backoff=each) for number, each in enumerate(failed)}
    )
    lease = desk.store.leases.acquire(name, "pass", 60)
    desk.store.memory.save(name, Memory(), after, (), lease)
    desk.store.leases.release(lease, passed_at=now)
    text = shown(desk, name)
    assert "does not exist; create it" in text
    for hidden in (
        CREDENTIALS,
        "cherry-cloud",
        "old-one",
        "team/old",
        f"outscaler/{name}/webhook",
        "AbCdEf",
        f"outscaler/{name}/kubeconfig",
    ):
        assert hidden not in text


def test_unreadable_policy_does_not_reveal_the_name_of_a_secret(desk: AppClient) -> None:
    name = desk.cluster()
    desk.store_text(
        name,
        json.dumps(
            {
                "apiVersion": "outscaler.dev/v1",
                "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {
                    "mode": "active",
                    "kubernetes": {"kubeconfigSecret": ["hidden/word"]},
                    "webhook": {"secret": ["hidden/word"]},
                },
            }
        ),
    )
    assert "hidden/word" not in shown(desk, name)


@pytest.mark.parametrize(
    "text",
    [
        "the secret is binary",
        "a secret of another cluster",
        "secret",
        "Secret kube-system/x",
        "n1: no secret was named",
    ],
)
def test_texts_without_secret_names_are_unchanged(text: str) -> None:
    assert without_secrets({"a": [text]}, "webhook: {}") == {"a": [text]}
