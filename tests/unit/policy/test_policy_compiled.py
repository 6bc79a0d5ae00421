"""The compiled form says what the text says, or is not used."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chalicelib
from chalicelib.model.errors import InputErrors
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.model.struct_form import parts_of
from chalicelib.policy import compiled as module
from chalicelib.policy.compiled import LARGEST, NotUsable, compiled, decompiled, form_version
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.policy.settings.node_limit import NodeLimit
from tests.unit.policy import (
    policy_documents,
    test_policy_alicloud,
    test_policy_cherryservers,
    test_policy_exoscale,
    test_policy_huaweicloud,
)

ROOT = Path(__file__).resolve().parents[3]
_FENCE = re.compile(r"```ya?ml\n(.*?)```", re.DOTALL)
HEAD = 52  # characters of version and digest
TEXT = policy_documents.GOOD
NAME = "prod-geneva"


def _documents() -> list[str]:
    """Every whole policy document of docs/, and those of the tests."""
    found = [
        fence
        for path in sorted(ROOT.glob("**/*.md"))
        if ".venv" not in path.parts
        for fence in _FENCE.findall(path.read_text(encoding="utf-8"))
        if "kind: Cluster\n" in fence
    ]
    sources = (
        policy_documents,
        test_policy_alicloud,
        test_policy_cherryservers,
        test_policy_exoscale,
        test_policy_huaweicloud,
    )
    found += [
        value
        for source in sources
        for value in vars(source).values()
        if isinstance(value, str) and "kind: Cluster\n" in value
    ]
    return found


def _readable() -> list[Policy]:
    policies = []
    for text in _documents():
        try:
            policies.append(load(text, place="p")[0])
        except InputErrors:
            continue  # documents that show a mistake
    return policies


def _form(policy: Any, text: str = TEXT) -> bytes:
    """A form with the right head, whatever is in it."""
    head = compiled(load(TEXT, place="p")[0], text)
    assert head is not None
    return head[:HEAD] + zlib.compress(
        policy if isinstance(policy, bytes) else msgspec.msgpack.encode(policy)
    )


def _good() -> Policy:
    return load(TEXT, place="p")[0]


def _decompiled_or_text(form: bytes, policy: Policy) -> Policy:
    """Some documents name files, which functions leave to the text; nothing else
    may be wrong with a form."""
    try:
        return decompiled(form, "text", policy.name, STRICT)
    except NotUsable as refused:
        if not refused.other:
            raise
        return policy


def test_every_documented_policy_survives_compilation() -> None:
    policies = _readable()
    assert len(policies) >= 8
    for policy in policies:
        data = msgspec.msgpack.encode(policy)
        again = msgspec.msgpack.decode(data, type=Policy)
        assert again == policy
        assert msgspec.json.encode(again) == msgspec.json.encode(policy)
        form = compiled(policy, "text")
        assert form is not None
        assert _decompiled_or_text(form, policy) == policy


def test_the_compiled_form_is_that_of_the_text() -> None:
    form = compiled(_good(), TEXT)
    assert form is not None
    assert decompiled(form, TEXT, NAME, STRICT) == _good()
    for other in (f"{TEXT} ", TEXT.replace("\n", "\r\n"), ""):
        with pytest.raises(NotUsable, match="of another text"):
            decompiled(form, other, NAME, STRICT)


@pytest.mark.parametrize("change", ["release", "format", "types"])
def test_compiled_policy_of_another_release_format_or_type_is_not_used(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = compiled(_good(), TEXT)
    assert form is not None
    if change == "release":
        monkeypatch.setattr(chalicelib, "__version__", "9.9.9")
    elif change == "format":
        monkeypatch.setattr(module, "FORMAT", 2)
    else:
        monkeypatch.setattr(
            module, "Policy", msgspec.defstruct("Policy", [("name", str), ("mode", str, "off")])
        )
    with pytest.raises(NotUsable, match="another release") as refused:
        decompiled(form, TEXT, NAME, STRICT)
    assert refused.value.other


def test_the_version_covers_every_type_below_the_policy() -> None:
    described = parts_of(Policy)
    assert {
        "Policy",
        "Options",
        "GroupPolicy",
        "ManagedPool",
        "Requirements",
        "Taint",
        "KubernetesAccess",
        "Webhook",
        "NodePrices",
        "MaxDisruption",
        "Consolidation",
        "DisruptionBudget",
        "NodeLimit",
        "DisruptionReason",
        "Window",
        "Rule",
        "Schedule",
        "Headroom",
        "ScaleUp",
        "Mode",
        "Metrics",
        "Metric",
    } <= set(described)
    assert not [line for lines in described.values() for line in lines if " at 0x" in line]


def test_the_version_is_the_same_in_another_process() -> None:
    script = "from chalicelib.policy.compiled import form_version; print(form_version())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == form_version()


def test_process_that_reads_a_compiled_policy_loads_neither_yaml_nor_the_parser() -> None:
    form = compiled(_good(), TEXT)
    assert form is not None
    script = (
        "import sys; from chalicelib.runtime.active_policy import read\n"
        f"assert read({TEXT!r}, {NAME!r}, 3, {form!r}).version == 3\n"
        "print([m for m in sys.modules if m == 'yaml' or m in "
        "('chalicelib.policy.load', 'chalicelib.policy.admission', "
        "'chalicelib.policy.yaml_document')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_rubbish_is_never_used() -> None:
    form = compiled(_good(), TEXT)
    assert form is not None
    for end in range(len(form)):
        with pytest.raises(NotUsable):
            decompiled(form[:end], TEXT, NAME, STRICT)
    wrong = (
        form + b"x",
        form[:HEAD] + b"\0" * 40,
        _form(b""),
        _form(b"\xc1"),
        _form(b"\x91" * 100_000),
        _form({"name": NAME, "nodeGroups": "x"}),
        _form({"mode": "active"}),
        _form({"name": NAME, "mode": "on"}),
        _form([1]),
        _form({"name": 5}),
        _form({"name": NAME, "scanInterval": "60"}),
    )
    for bad in wrong:
        with pytest.raises(NotUsable):
            decompiled(bad, TEXT, NAME, STRICT)


def test_compiled_policy_with_an_excessive_size_is_not_fully_unpacked() -> None:
    with pytest.raises(NotUsable, match="too large"):
        decompiled(_form(b"\0" * (LARGEST * 8)), TEXT, NAME, STRICT)


@pytest.mark.parametrize(
    "changes",
    [
        {"scan_interval": 0.0},
        {"scan_interval": float("nan")},
        {"scan_interval": 4.9},
        {"scan_interval": 3601.0},
        {"options": {"maxNodesPerScaleup": -1}},
        {"options": {"scaleDownUtilizationThreshold": float("inf")}},
        {"node_groups": (GroupPolicy("clusterapi", "a", min=5, max=1),)},
        {"node_groups": (GroupPolicy("clusterapi", "a", min=-1),)},
        {"node_groups": (GroupPolicy("exoscale", "a"),)},
        {"maintenance_windows": (Window("not cron", 60.0),)},
        {"maintenance_windows": (Window("0 1 * * *", 60.0, time_zone="Mars/Base"),)},
        {"disruption_budgets": (DisruptionBudget("a", NodeLimit(nodes=-1)),)},
        {
            "disruption_budgets": (
                DisruptionBudget("a", NodeLimit(nodes=1), cron="not cron", duration=60.0),
            )
        },
        {
            "disruption_budgets": (
                DisruptionBudget("a", NodeLimit(nodes=1), cron="0 1 * * *", time_zone="Mars/Base"),
            )
        },
        {"managed_pools": (ManagedPool("a", "exoscale", copy_from="web"),)},
        {"managed_pools": (ManagedPool("a", "clusterapi", max_pools=-1),)},
        {"consolidation": {"minSavings": -0.1}},
        {"consolidation": {"mode": "all"}},
        {"nodeLifecycle": {"jitter": -0.1}},
        {"nodeLifecycle": {"drift": "all"}},
        {"nodeLifecycle": {"repair": [{"condition": "Ready", "after": -1.0}]}},
        {"nodeLifecycle": {"repair": [{"condition": "Ready", "after": 60.0, "action": "delete"}]}},
        {"spot": {"maxShare": -0.5}},
        {"prices": {"instanceTypes": {"m5.large": -0.1}}},
        {"ownMinimums": {"a": -1}},
        {"spot": {"interruptions": "ignore"}},
    ],
    ids=str,
)
def test_values_that_no_document_can_say_are_not_used(changes: dict[str, Any]) -> None:
    plain = msgspec.to_builtins(_good()) | {
        {
            "scan_interval": "scanInterval",
            "node_groups": "nodeGroups",
            "managed_pools": "managedPools",
            "maintenance_windows": "maintenanceWindows",
            "disruption_budgets": "disruptionBudgets",
        }.get(name, name): msgspec.to_builtins(value)
        for name, value in changes.items()
    }
    with pytest.raises(NotUsable) as refused:
        decompiled(_form(plain), TEXT, NAME, STRICT)
    assert not refused.value.other


@pytest.mark.parametrize("seconds", [5.0, 3600.0])
def test_longest_and_shortest_scan_interval_are_used(seconds: float) -> None:
    policy = msgspec.structs.replace(_good(), scan_interval=seconds)
    assert decompiled(_form(policy), TEXT, NAME, STRICT).scan_interval == seconds


@pytest.mark.parametrize(
    "changes",
    [
        {"kubernetes": KubernetesAccess(kubeconfig_secret="outscaler/other/kubeconfig")},
        {"kubernetes": KubernetesAccess(kubeconfig_file="/etc/passwd")},
        {"providers": {"clusterapi": {"kubeconfigFile": "x"}}},
        {
            "providers": {
                "exoscale": {"zone": "ch-gva-2", "credentialsSecret": "outscaler/other/exoscale"}
            }
        },
        {"providers": {"exoscale": {"zone": "ch-gva-2", "endpoint": "https://evil.example"}}},
        {"webhook": Webhook(secret="outscaler/other/webhook")},
    ],
    ids=str,
)
def test_what_the_deployment_does_not_permit_is_left_to_the_text(changes: dict[str, Any]) -> None:
    with pytest.raises(NotUsable, match="does not permit") as refused:
        decompiled(_form(msgspec.structs.replace(_good(), **changes)), TEXT, NAME, STRICT)
    assert refused.value.other


def test_the_secrets_prefix_of_the_reader_counts_not_that_of_the_writer() -> None:
    form = compiled(_good(), TEXT)
    assert form is not None
    with pytest.raises(NotUsable, match="does not permit"):
        decompiled(form, TEXT, NAME, Deployment(secret_prefix="elsewhere/"))
    with pytest.raises(NotUsable, match="does not permit"):
        decompiled(form, TEXT, "another-cluster", STRICT)


def test_random_changes_of_bytes_never_raise_anything_else() -> None:
    form = compiled(_good(), TEXT)
    assert form is not None
    plain = zlib.decompress(form[HEAD:])
    for at in range(len(plain)):
        for value in (0, 0x7F, 0x80, 0xC1, 0xFF, plain[at] ^ 1):
            bent = plain[:at] + struct.pack("B", value) + plain[at + 1 :]
            try:
                policy = decompiled(form[:HEAD] + zlib.compress(bent, 1), TEXT, NAME, STRICT)
            except NotUsable:
                continue
            assert isinstance(policy, Policy)
