"""The shipped RBAC allows exactly the calls that the code makes: the reads of the resource table,
and the writes of kube/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from chalicelib.cluster.listed_resources import PRIORITY_CONFIG, RESOURCES, RULE_OBJECTS
from chalicelib.cluster.storage import NAMESPACE
from chalicelib.operations.drain_recheck import CONTROLLERS
from chalicelib.policy.settings.cluster_options import Options

FOLDER = Path(__file__).resolve().parents[3] / "infra" / "kubernetes"
# (group, resource, verb) -> the call that needs it. The table of cluster/listed_resources.py has
# the reads of complete kinds.
CALLS = {
    ("", "nodes", "get"): "get_node",
    ("", "nodes", "patch"): "add_taint, remove_taint",
    ("", "pods", "get"): "get_pod",
    ("", "pods/eviction", "create"): "evict",
    ("", "events", "create"): "events.post_event",
    **{
        (group, f"{kind.lower()}s", "get"): "handlers.rechecking"
        for kind, group in (
            (kind, path.split("/")[2] if path.startswith("/apis/") else "")
            for kind, path in CONTROLLERS.items()
        )
    },
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def role(name: str) -> dict[str, Any]:
    [found] = (
        doc
        for doc in documents("rbac-workload.yaml")
        if (doc["kind"], doc["metadata"]["name"]) == ("Role", name)
    )
    return found


def granted(kind: str) -> set[tuple[str, str, str]]:
    rules = [
        rule
        for doc in documents("rbac-workload.yaml")
        if doc["kind"] == kind
        for rule in doc["rules"]
    ]
    return {
        (g, r, v)
        for rule in rules
        for g in rule["apiGroups"]
        for r in rule["resources"]
        for v in rule["verbs"]
    }


def test_rbac_cluster_role_equals_the_resource_table_and_the_calls() -> None:
    lists = {(r.group, r.plural, "list") for r in RESOURCES}
    watches = {(r.group, r.plural, "watch") for r in RESOURCES}
    assert granted("ClusterRole") == lists | watches | CALLS.keys()


def test_rbac_role_allows_two_named_config_maps_and_no_creation() -> None:
    own = role("outscaler")
    namespace = own["metadata"]["namespace"]
    assert all(
        (rule["apiGroups"], rule["resources"]) == ([""], ["configmaps"]) for rule in own["rules"]
    )
    rules = {tuple(rule.get("resourceNames", ())): rule["verbs"] for rule in own["rules"]}
    [(priorities, _)] = (item for item in rules.items() if item[1] == ["get"])
    assert (
        PRIORITY_CONFIG.format(NAMESPACE)
        == f"/api/v1/namespaces/{namespace}/configmaps/{priorities[0]}"
    )
    # get_config_map and patch_config_map
    assert rules == {priorities: ["get"], (Options().status_config_map_name,): ["get", "patch"]}
    assert namespace == Options().namespace


def test_rbac_rule_objects_are_listed_in_their_namespace_only() -> None:
    own = role("outscaler-node-autoscalers")
    assert f"/namespaces/{own['metadata']['namespace']}/" in RULE_OBJECTS.path
    assert own["rules"] == [
        {"apiGroups": [RULE_OBJECTS.group], "resources": [RULE_OBJECTS.plural], "verbs": ["list"]}
    ]


def test_rbac_status_config_map_is_shipped_without_data() -> None:
    """With data in the file, applying it again would reset the status to the file's."""
    [shipped] = (doc for doc in documents("rbac-workload.yaml") if doc["kind"] == "ConfigMap")
    assert shipped == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": Options().status_config_map_name, "namespace": Options().namespace},
    }


def test_rbac_only_evictions_and_events_are_created() -> None:
    rules = granted("ClusterRole") | granted("Role")
    assert {
        (resource, verb)
        for _, resource, verb in rules
        if verb not in {"get", "list", "watch", "patch"}
    } == {
        ("pods/eviction", "create"),
        ("events", "create"),
    }


def test_rbac_grants_nothing_by_wildcard() -> None:
    words = {word for kind in ("ClusterRole", "Role") for rule in granted(kind) for word in rule}
    assert "*" not in words


def test_rbac_bindings_and_token_belong_to_the_service_account() -> None:
    rbac = documents("rbac-workload.yaml")
    account = next(doc["metadata"] for doc in rbac if doc["kind"] == "ServiceAccount")
    for binding in (doc for doc in rbac if doc["kind"].endswith("Binding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert binding["roleRef"]["kind"] == binding["kind"].removesuffix("Binding")
    [secret] = documents("token-secret.yaml")
    assert secret["metadata"]["namespace"] == account["namespace"]
    assert secret["metadata"]["annotations"] == {
        "kubernetes.io/service-account.name": account["name"]
    }
    assert "data" not in secret
