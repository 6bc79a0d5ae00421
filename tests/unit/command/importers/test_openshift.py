"""OpenShift's objects become the flags that their operator writes, and bounds of groups."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.command.importers.autoscaler_policy import Converted, convert
from chalicelib.command.importers.build_policy import Wanted
from chalicelib.command.importers.openshift import read_openshift
from chalicelib.command.importers.report import Verdict
from chalicelib.model.errors import InputErrors
from tests.cases import each_row

FIXED = {"recordDuplicatedEvents": True, "maxBulkSoftTaintCount": 0}


def cluster(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def machines(name: str = "a", **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": f"workers-{name}"}
    return {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": name, "namespace": "openshift-machine-api"},
        "spec": {"minReplicas": 1, "maxReplicas": 12, "scaleTargetRef": target} | spec,
    }


def converted(*documents: dict[str, Any]) -> Converted:
    placed = [(f"openshift.yaml:{at}", each) for at, each in enumerate(documents, 1)]
    return convert(read_openshift(placed), Wanted(name="shop"))


def options(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = converted(cluster(**spec)).document["spec"]["options"]
    return found


def refused(*documents: dict[str, Any]) -> str:
    with pytest.raises(InputErrors) as found:
        converted(*documents)
    return str(found.value)


def test_the_settings_that_the_operator_fixes_are_written_out() -> None:
    assert options() == FIXED


@each_row(
    "spec, expected",
    [
        (
            {
                "resourceLimits": {
                    "maxNodesTotal": 24,
                    "cores": {"min": 8, "max": 128},
                    "memory": {"min": 4, "max": 256},
                }
            },
            {"maxNodesTotal": 24, "coresTotal": "8:128", "memoryTotal": "4:256"},
        ),
        (
            {"resourceLimits": {"gpus": [{"type": "gfx", "min": 0, "max": 16}, {"type": "ml", "min": 1, "max": 2}]}},
            {"gpuTotal": ["gfx:0:16", "ml:1:2"]},
        ),
        (
            {"podPriorityThreshold": -5, "maxPodGracePeriod": 300, "maxNodeProvisionTime": "20m"},
            {"expendablePodsPriorityCutoff": -5, "maxGracefulTerminationSec": 300, "maxNodeProvisionTime": "20m"},
        ),
        ({"expanders": ["Priority", "LeastWaste"]}, {"expander": ["priority", "least-waste"]}),
        (
            {"balancingIgnoredLabels": ["a", "b"], "balanceSimilarNodeGroups": True},
            {"balancingIgnoreLabel": ["a", "b"], "balanceSimilarNodeGroups": True},
        ),
        (
            {"startupTaints": ["x"], "enforceNodeGroupMinSize": "Enabled"},
            {"startupTaint": ["x"], "enforceNodeGroupMinSize": True},
        ),
        ({"skipNodesWithLocalStorage": False}, {"skipNodesWithLocalStorage": False}),
        ({"scaleUp": {"newPodScaleUpDelay": "10s"}}, {"newPodScaleUpDelay": "10s"}),
        (
            {
                "scaleDown": {
                    "enabled": True,
                    "delayAfterAdd": "5m",
                    "delayAfterDelete": "4m",
                    "delayAfterFailure": "30s",
                    "unneededTime": "60s",
                    "utilizationThreshold": "0.4",
                    "cordonNodeBeforeTerminating": "Disabled",
                }
            },
            {
                "scaleDownDelayAfterAdd": "5m",
                "scaleDownDelayAfterDelete": "4m",
                "scaleDownDelayAfterFailure": "30s",
                "scaleDownUnneededTime": "1m",
                "scaleDownUtilizationThreshold": 0.4,
                "cordonNodeBeforeTerminating": False,
            },
        ),
        ({"scaleDown": {}}, {"scaleDownEnabled": False}),
        ({"scaleDown": {"unneededTime": "5m"}}, {"scaleDownUnneededTime": "5m", "scaleDownEnabled": False}),
    ],
)
def test_IMP_36_settings_become_the_options_of_their_flags(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert options(**spec) == expected | FIXED


def test_IMP_36_a_misspelt_key_is_refused_with_the_nearest_one() -> None:
    assert "did you mean unneededTime?" in refused(cluster(scaleDown={"enabled": True, "uneededTime": "5m"}))


@each_row(
    "documents, says",
    [
        ((cluster(), cluster()), "is a second ClusterAutoscaler"),
        ((machines(), machines()), "has a MachineAutoscaler already"),
        ((machines(maxReplicas=None),), "does not say which machines it scales"),
        ((machines(minReplicas=-1),), "is not a whole number from 0"),
        ((machines(maxReplica=3),), "did you mean maxReplicas?"),
        ((cluster(expanders=["Cheapest"]),), "is not one of LeastWaste, Priority, Random"),
        ((cluster(enforceNodeGroupMinSize="Sometimes"),), "is not Enabled, Disabled, true or false"),
        ((cluster(resourceLimits={"cores": {"min": 1}}),), "write both min and max"),
        ((cluster(maxNodeProvisionTime="<time>"),), "'<time>' is a placeholder"),
        ((cluster(resourceLimits=[]),), "is not an object"),
        ((cluster(podPriorityThreshold={}),), "is not a text, a number, true or false"),
    ],
)
def test_objects_that_cannot_be_read_are_mistakes(documents: tuple[dict[str, Any], ...], says: str) -> None:
    assert says in refused(*documents)


def test_machine_autoscalers_become_groups_of_clusterapi() -> None:
    found = converted(cluster(), machines("a"), machines("b", minReplicas=0))
    spec = found.document["spec"]
    assert spec["providers"] == {"clusterapi": {"group": "machine.openshift.io"}}
    group = {"provider": "clusterapi", "min": 1, "max": 12}
    assert spec["nodeGroups"] == [
        group | {"id": "MachineSet/openshift-machine-api/workers-a"},
        group | {"id": "MachineSet/openshift-machine-api/workers-b", "min": 0},
    ]
    assert any(row.verdict is Verdict.NOT_HERE and "machine.openshift.io" in row.word for row in found.rows)


def test_machine_autoscalers_without_their_cluster_autoscaler_are_told() -> None:
    found = converted(machines())
    assert [row.verdict for row in found.rows if row.word == "no ClusterAutoscaler"] == [Verdict.TOLD]
