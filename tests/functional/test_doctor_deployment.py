"""`outscaler doctor` asks the webhook with a signed event, and compares growth
with the vendor's quota.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cli.doctor.deployment_checks import (
    FORMS,
    check_secrets,
    check_volume,
    check_webhook,
)
from chalicelib.cli.doctor.finding import DoctorContext
from chalicelib.cli.doctor.vendor_checks import (
    check_bounds,
    check_claims,
    check_groups,
    check_permissions,
    check_quotas,
)
from chalicelib.model.group import NodeGroup
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.schema import fields_of
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairAction, RepairRule
from chalicelib.policy.settings.notifications import NoticeWebhook, Notifications
from chalicelib.policy.settings.spot import Spot
from chalicelib.policy.value_types import SECRET
from chalicelib.policy.vendors.settings import settings_of
from chalicelib.providers.kit.errors import Unauthorized
from chalicelib.runtime.webhook_authentication import AuthResult, WebhookKeys, verify
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.cases import each_row
from tests.functional.doctor_cases import ACTIVE, NOW, told

KEY = "key-of-the-webhook"
RESTARTING = NodeLifecycle(
    repair=(RepairRule("KernelDeadlock", 600.0, action=RepairAction.RESTART),)
)
POLICY = msgspec.structs.replace(ACTIVE, webhook=Webhook(secret="outscaler/prod/webhook"))


def asked(url: str, secret: str = KEY, **fields: Any) -> DoctorContext:
    return DoctorContext(
        policy=fields.pop("policy", POLICY),
        clock=lambda: NOW,
        read_secret=lambda _: secret,
        webhook_url=url,
        **fields,
    )


RIGHT = {"accepted": 1, "matched": 0, "woken": False}


def test_the_webhook_is_asked_with_an_event_that_it_accepts_and_that_wakes_nothing() -> None:
    with HttpScript([Reply(202, RIGHT)]) as server:
        assert list(check_webhook(asked(server.url))) == []
        [seen] = server.requests
    assert seen.path == "/clusters/prod/events"
    headers = {name.lower(): value for name, value in seen.headers.items()}
    found = verify("prod", headers, seen.body, WebhookKeys(hmac=(KEY.encode(),)), b"decoy", NOW)
    assert found.verdict is AuthResult.ACCEPTED
    assert seen.json() == {
        "kind": "Event",
        "reason": "OutscalerDoctor",
        "type": "Normal",
        "message": "sent by outscaler doctor",
    }


@each_row(
    "status, body, says",
    [
        (401, {}, "answers 401"),
        (404, {}, "answers 404"),
        (202, {"accepted": 1, "matched": 1, "woken": True}, "is not the webhook of Outscaler"),
        (202, "<html>", "is not the webhook of Outscaler"),
    ],
)
def test_a_webhook_that_does_not_accept_the_event_is_an_error(
    status: int, body: object, says: str
) -> None:
    with HttpScript([Reply(status, body)]) as server:
        [finding] = check_webhook(asked(server.url))
    assert (finding.id, finding.severity) == ("DR28", "error")
    assert says in finding.message
    assert KEY not in str(finding)


def test_a_webhook_that_cannot_be_asked_is_unknown_or_an_error() -> None:
    assert told(check_webhook, asked("")) == ["DR28 unknown"]
    assert told(check_webhook, asked("http://127.0.0.1:9")) == ["DR28 error"]
    assert told(check_webhook, asked("", policy=ACTIVE)) == []
    assert told(check_webhook, asked("http://127.0.0.1:9", policy=ACTIVE)) == ["DR28 error"]


class AccountWithQuota:
    """A provider that knows its quota."""

    name = "exoscale"

    def __init__(self, left: int | None, *, readable: bool = True) -> None:
        self._left, self._readable = left, readable

    def remaining(self) -> int | None:
        if not self._readable:
            raise Unauthorized("the key may not read the quota")
        return self._left


def group(name: str, **fields: Any) -> NodeGroup:
    return NodeGroup(name, "exoscale", **{"max": 10, "target": 4, **fields})


@each_row("left, expected", [(None, []), (12, []), (11, ["DR13 warn"]), (0, ["DR13 warn"])])
def test_DOC_24_growth_is_compared_with_the_quota(left: int | None, expected: list[str]) -> None:
    snapshot = Snapshot(
        "prod", NOW, groups=(group("a"), group("b"), group("c", error="unreadable"))
    )
    given = asked("", snapshot=snapshot, providers=(("exoscale", AccountWithQuota(left)),))
    assert told(check_quotas, given) == expected


def test_DOC_24_a_quota_that_may_not_be_read_is_unknown() -> None:
    from chalicelib.cli.doctor.registry import examine

    given = asked(
        "",
        snapshot=Snapshot("prod", NOW),
        providers=(("exoscale", AccountWithQuota(1, readable=False)),),
    )
    assert [str(each.severity) for each in examine(given, ["quota"])] == ["unknown"]


def test_DOC_16_a_group_of_two_policies_or_two_names_is_an_error() -> None:
    other = msgspec.structs.replace(
        ACTIVE, name="shop", node_groups=(GroupPolicy("exoscale", "web"),)
    )
    mine = msgspec.structs.replace(ACTIVE, node_groups=(GroupPolicy("exoscale", "web"),))
    assert told(check_claims, asked("", policy=mine, policies=(other,))) == ["DR10 error"]
    elsewhere = msgspec.structs.replace(other, providers={"exoscale": {"zone": "de-fra-1"}})
    assert told(check_claims, asked("", policy=mine, policies=(elsewhere,))) == []
    twice = Snapshot("prod", NOW, groups=(group("web", claim="x/1"), group("5c5f", claim="x/1")))
    assert told(check_claims, asked("", snapshot=twice)) == ["DR10 error"]


def test_groups_that_cannot_be_used_are_errors() -> None:
    gap = MissingData(kind="provider/exoscale", detail="Unauthorized: no")
    policy = msgspec.structs.replace(
        ACTIVE, node_groups=(GroupPolicy("exoscale", "gone"), GroupPolicy("exoscale", "a"))
    )
    unread = Snapshot("prod", NOW, gaps=(gap,))
    assert told(check_groups, asked("", policy=policy, snapshot=unread)) == ["DR11 error"]
    read = Snapshot("prod", NOW, groups=(group("a", error="it is paused"),))
    found = list(check_groups(asked("", policy=policy, snapshot=read)))
    assert ["paused" in found[0].message, "gone" in found[1].message, len(found)] == [True, True, 2]


@pytest.mark.parametrize("most", [10, 20])
def test_bounds_that_the_vendor_narrows_are_told(most: int) -> None:
    policy = msgspec.structs.replace(ACTIVE, node_groups=(GroupPolicy("exoscale", "a", 0, most),))
    given = asked("", policy=policy, snapshot=Snapshot("prod", NOW, groups=(group("a"),)))
    assert told(check_bounds, given) == ([] if most == 10 else ["DR12 warn"])


def test_much_data_per_month_is_told() -> None:
    pods = tuple(Pod("a", f"p{at}", f"u{at}", 0) for at in range(10_000))
    assert told(check_volume, asked("", snapshot=Snapshot("prod", NOW, pods=pods))) == ["DR29 warn"]
    assert told(check_volume, asked("", snapshot=Snapshot("prod", NOW, pods=pods[:100]))) == []


KUBECONFIG = """\
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://203.0.113.1", insecure-skip-tls-verify: true}}]
users: [{name: a, user: {token: some-token}}]
"""
JSON_KEY = '{{"{}": "EXAMPLEKEY0000000000", "{}": "example-secret-0000000000"}}'
CHERRY_TOKEN, BOOTSTRAP = "CHERRY-EXAMPLE-TOKEN", "nf8atf.kwfs1t15pjmhk7n4"
RANDOM = "0123456789abcdef" * 4
RIGHT_TEXTS = {
    ("kubernetes", "kubeconfigSecret"): KUBECONFIG,
    ("kubernetes", "inClusterKubeconfigSecret"): KUBECONFIG,
    ("kubernetes", "watcherSecret"): RANDOM,
    ("providers", "clusterapi", "kubeconfigSecret"): KUBECONFIG,
    ("providers", "clusterapi", "observeSecret"): KUBECONFIG,
    ("providers", "alicloud", "credentialsSecret"): JSON_KEY.format(
        "accessKeyId", "accessKeySecret"
    ),
    ("providers", "alicloud", "observeSecret"): JSON_KEY.format("accessKeyId", "accessKeySecret"),
    ("providers", "alicloud", "oidcTokenSecret"): "eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl",
    ("providers", "cherryservers", "credentialsSecret"): CHERRY_TOKEN,
    ("providers", "cherryservers", "observeSecret"): CHERRY_TOKEN,
    (
        "providers",
        "cherryservers",
        "cloudConfigSecret",
    ): '[nodegroupdef "default"]\nproject-id=1\nregion=a\n',
    ("providers", "cherryservers", "bootstrapTokenSecret"): BOOTSTRAP,
    ("providers", "exoscale", "credentialsSecret"): JSON_KEY.format("apiKey", "apiSecret"),
    ("providers", "exoscale", "observeSecret"): JSON_KEY.format("apiKey", "apiSecret"),
    ("providers", "huaweicloud", "credentialsSecret"): JSON_KEY.format("accessKey", "secretKey"),
    ("providers", "huaweicloud", "observeSecret"): JSON_KEY.format("accessKey", "secretKey"),
    ("webhook", "secret"): RANDOM,
    ("notifications", "webhook", "secret"): f"whsec_{'c2VjcmV0' * 4}",
}


def naming(path: tuple[str, ...]) -> Policy:
    """A policy with one secret, named at that path."""
    name = "outscaler/prod/one"
    if path[0] == "kubernetes":
        access = msgspec.convert({path[1]: name, "allowInsecureTls": True}, KubernetesAccess)
        return msgspec.structs.replace(ACTIVE, kubernetes=access)
    insecure = msgspec.structs.replace(
        ACTIVE, providers={}, kubernetes=KubernetesAccess(allow_insecure_tls=True)
    )
    if path[0] == "providers":
        return msgspec.structs.replace(insecure, providers={path[1]: {path[2]: name}})
    if path[0] == "webhook":
        return msgspec.structs.replace(insecure, webhook=Webhook(secret=name))
    notices = Notifications(webhook=NoticeWebhook(url="https://example.test", secret=name))
    return msgspec.structs.replace(insecure, notifications=notices)


def test_every_key_of_a_policy_that_names_a_secret_has_its_form() -> None:
    keys: set[tuple[str, ...]] = {
        ("kubernetes", each.key) for each in fields_of(KubernetesAccess) if each.kind is SECRET
    }
    keys |= {
        ("providers", name, each.key)
        for name, settings in PROVIDERS.items()
        for each in settings_of(settings)
        if each.kind is SECRET
    }
    keys |= {("webhook", "secret"), ("notifications", "webhook", "secret")}
    assert set(FORMS) == keys == set(RIGHT_TEXTS)
    assert len(keys) > 15


@pytest.mark.parametrize("path", FORMS, ids=".".join)
def test_DOC_27_a_secret_is_read_as_what_its_key_names(path: tuple[str, ...]) -> None:
    def found(text: str) -> list[str]:
        given = DoctorContext(policy=naming(path), clock=lambda: NOW, read_secret=lambda _: text)
        return [f"{each.severity} {each.message}" for each in check_secrets(given)]

    assert found(RIGHT_TEXTS[path]) == []
    wrong = "whsec_abcde" if path[0] == "notifications" else "no: {"
    [line] = found(wrong)
    assert line.startswith("error secret outscaler/prod/one")
    assert wrong not in line


@pytest.mark.parametrize(
    ("api", "shown"), [("", "URL"), ("https://a.example/api", "https://a.example/api")]
)
def test_webhook_that_was_not_asked_is_named_with_the_address_that_login_has_kept(
    api: str, shown: str
) -> None:
    [finding] = check_webhook(msgspec.structs.replace(asked(""), api=api))
    assert (finding.severity, finding.fix) == ("unknown", f"give its address: --webhook {shown}")


@each_row(
    ("provider", "policy", "rights"),
    [
        ("alicloud", {"spot": Spot()}, ["notices of interruptions need ecs:DescribeInstances"]),
        ("alicloud", {"node_lifecycle": RESTARTING}, ["restarts need ecs:RebootInstance"]),
        (
            "exoscale",
            {"spot": Spot(), "node_lifecycle": RESTARTING},
            ["restarts need reboot-instance"],
        ),
        (
            "huaweicloud",
            {"spot": Spot(), "node_lifecycle": RESTARTING},
            ["restarts need ecs:cloudServers:reboot"],
        ),
        ("cherryservers", {"spot": Spot(), "node_lifecycle": RESTARTING}, []),
        ("exoscale", {"node_lifecycle": NodeLifecycle(repair=(RepairRule("A", 60.0),))}, []),
    ],
)
def test_doctor_names_the_rights_that_the_policy_needs_besides(
    provider: str, policy: dict[str, Any], rights: list[str]
) -> None:
    context = DoctorContext(
        policy=Policy(name="prod", providers={provider: {}}, **policy),
        clock=lambda: 0.0,
        read_secret=lambda name: name,
    )
    (finding,) = check_permissions(context)
    assert [
        text for text in finding.fix.split("; ") if text.startswith(("notices", "restarts"))
    ] == rights
