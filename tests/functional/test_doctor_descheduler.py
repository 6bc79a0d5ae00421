"""`outscaler doctor` names plugins of the descheduler that work against marks of nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cli.doctor.descheduler import check_descheduler
from chalicelib.cli.doctor.finding import Finding
from chalicelib.model.node import LEAVING_MARKS
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode, Steering
from tests.cases import each_row
from tests.functional.doctor_cases import ACTIVE, client, cluster, context, rules_of, told

STEERED = msgspec.structs.replace(ACTIVE, consolidation=Consolidation(mode=ConsolidationMode.FULL))
NEW = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: default
    pluginConfig:
      # includePreferNoSchedule: true is for later
      - name: DefaultEvictor
      - name: RemovePodsViolatingNodeTaints
        args:
          includePreferNoSchedule: true
      - name: RemoveDuplicates
    plugins:
      filter: null
      deschedule: {enabled: [RemovePodsViolatingNodeTaints, RemoveFailedPods]}
      balance:
        enabled:
          - LowNodeUtilization
          - RemovePodsViolatingTopologySpreadConstraint
"""
OLD = """\
apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
strategies:
  RemoveDuplicates:
    enabled: true
  LowNodeUtilization: {enabled: false}
  RemovePodsViolatingNodeTaints:
    enabled: true
    params: {includePreferNoSchedule: true}
"""
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]"
    for before, name in zip("abcd", "bcde", strict=True)
)
"""A hundred thousand values."""
SPARING = OLD.replace(
    "true}", "true, excludedTaints: [outscaler.dev/leaving, outscaler.dev/leaving-2, "
    "outscaler.dev/leaving-3]}",
)  # fmt: skip


def config_map(
    text: Any, name: str = "descheduler-policy", key: str = "policy.yaml", **labels: str
) -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "data": {key: text},
    }


def found(*objects: dict[str, Any], policy: Policy = STEERED) -> list[Finding]:
    with cluster(objects) as (_, kube):
        return list(check_descheduler(context(kube, policy)))


def plugins(findings: list[Finding]) -> dict[str, int]:
    """Plugin -> the line that is named, of the descheduler's only policy."""
    places = [finding.message.partition(", policy.yaml:")[2].split(" ")[:2] for finding in findings]
    return {plugin: int(line.rstrip(":")) for line, plugin in places}


@each_row(
    "text, expected",
    [
        (NEW, {
            "LowNodeUtilization": 17,
            "RemovePodsViolatingNodeTaints": 10,
            "RemovePodsViolatingTopologySpreadConstraint": 18,
        }),
        (OLD, {"RemoveDuplicates": 4, "RemovePodsViolatingNodeTaints": 9}),
        (OLD.replace("Schedule: true", "Schedule: false"), {"RemoveDuplicates": 4}),
        (SPARING, {"RemoveDuplicates": 4}),
        ("profiles: [{plugins: {balance: {enabled: []}}}]", {}),
        ("{}", {}),
    ],
    ids=["v1alpha2", "v1alpha1", "hard taints only", "marks are spared", "none", "empty"],
)  # fmt: skip
def test_plugins_against_marks_are_named_with_their_lines(
    text: str, expected: dict[str, int]
) -> None:
    findings = found(config_map(text))
    assert plugins(findings) == expected
    assert all(f"{each.id} {each.severity}" == "DR36 warn" for each in findings)


def test_the_fix_for_the_plugin_of_taints_spares_marks() -> None:
    fixes = [each.fix for each in found(config_map(OLD))]
    assert [fix.partition(":")[0] for fix in fixes] == [
        "take the plugin out of the descheduler's policy, or set consolidation.steering",
        "add excludedTaints",
    ]
    assert all(key in fixes[1] for key in LEAVING_MARKS)


@each_row(
    "name, labels, seen",
    [
        ("descheduler", {}, True),
        ("policy", {"app": "descheduler"}, True),
        ("policy", {"app.kubernetes.io/name": "descheduler"}, True),
        ("policy", {"app": "other"}, False),
    ],
)
def test_the_descheduler_is_known_by_a_name_or_a_label(
    name: str, labels: dict[str, str], seen: bool
) -> None:
    assert bool(found(config_map(OLD, name, **labels))) is seen


def test_a_config_map_without_a_policy_is_none_of_the_descheduler() -> None:
    assert found(config_map(OLD, key="other.yaml")) == []


@pytest.mark.parametrize(
    "policy",
    [
        ACTIVE,
        msgspec.structs.replace(
            ACTIVE,
            consolidation=Consolidation(mode=ConsolidationMode.FULL, steering=Steering.OFF),
        ),
    ],
    ids=["consolidation off", "steering off"],
)
def test_the_descheduler_is_not_looked_for_where_nothing_is_marked(policy: Policy) -> None:
    assert found(config_map(NEW), policy=policy) == []


@each_row(
    "text",
    [
        "[",
        "- a",
        "a word",
        "7",
        "strategies: 7",
        "strategies: {RemoveDuplicates: on}",
        "profiles: [7]",
        "profiles: {a: b}",
        "profiles: [{pluginConfig: [{args: {}}]}]",
        "profiles: [{plugins: {balance: {enabled: [[a]]}}}]",
        "profiles: [{pluginConfig: [{name: [a]}]}]",
        ALIASES,
        "[" * 500,
        "a: 1\n---\nb: 2",
        "x: " + "y" * 700_000,
    ],
)
def test_a_policy_that_cannot_be_read_is_a_warning(text: str) -> None:
    [finding] = found(config_map(text))
    assert (finding.severity, finding.message) == (
        "warn",
        "ConfigMap kube-system/descheduler-policy, policy.yaml: cannot be read",
    )


def test_config_maps_that_may_not_be_listed_are_unknown_and_found_as_a_person() -> None:
    with cluster([config_map(NEW)], rules_of("rbac-workload.yaml")) as (server, kube):
        given = context(kube, STEERED)
        [unknown] = check_descheduler(given)
        assert (unknown.severity, "--as-person" in unknown.fix) == ("unknown", True)
        as_person = msgspec.structs.replace(given, person=client(server, "admin"))
        assert told(check_descheduler, as_person) == ["DR36 warn"] * 3
