"""A key of the policy stands in exactly one module: where it is declared, with
its type, check and text.

Looked at are the packages that read a policy (policy, providers), for keys that are no
everyday word (with a capital letter inside). Commands write documents as a person
does, so they name keys, too.
"""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.policy.document import json_schema
from chalicelib.policy.options import ROWS
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.schema import fields_of
from chalicelib.policy.vendors.settings import keys_of
from tests.source_trees import nodes_of, parsed

ROOT = Path(__file__).resolve().parents[3] / "chalicelib"

# Module -> keys that it names although another module declares them. The list may only shrink.
EXCEPTIONS: Mapping[str, set[str]] = {
    # Rules across keys name the place of a mistake.
    "policy/admission.py": {"kubeconfigFile"},
    "policy/disruption_validation.py": {
        "disruptionBudgets",
        "maintenanceWindows",
        "maxNodeAge",
        "maxSurge",
        "nodeLifecycle",
        "onDemandBase",
        "returnAfter",
        "scanInterval",
    },
    "policy/managed_pool_validation.py": {
        "copyFrom",
        "managedPools",
        "nodeGroupDefs",
        "nodeGroups",
    },
    "policy/options.py": {
        "balancingIgnoreLabel",
        "bypassedSchedulerNames",
        "drainPriorityConfig",
        "enableDynamicResourceAllocation",
        "gpuTotal",
    },
    "policy/providers.py": {"nodeGroups"},
    # Rules are model's, so that their keys have a table.
    "policy/settings/rules.py": {"timeZone"},
    "policy/validation.py": {
        "allowInsecureTls",
        "autoDiscovery",
        "cloudConfigAuthoritative",
        "clusterName",
        "disruptionBudgets",
        "eksCluster",
        "expectedCost",
        "kubeconfigFile",
        "kubeconfigSecret",
        "maintenanceWindows",
        "managedPools",
        "nodeGroups",
        "scaleDownUtilizationThreshold",
        "scaleUp",
    },
    "policy/vendors/huaweicloud.py": {"agencyDomain", "agencyDuration", "agencyName"},
    "providers/alicloud/settings.py": {"oidcProviderArn", "oidcTokenSecret", "roleArn"},
    "providers/clusterapi/settings.py": {
        "autoDiscovery",
        "cloudConfigAuthoritative",
        "clusterName",
        "kubeconfigFile",
        "kubeconfigSecret",
    },
    # Which keys name secrets, and which credentials a pass reads with: functions ask
    # without loading the vendors.
    "policy/secret_names.py": {
        "agencyDomain",
        "agencyDuration",
        "agencyName",
        "credentialsSecret",
        "inClusterKubeconfigSecret",
        "kubeconfigSecret",
        "metadataEndpoint",
        "observeSecret",
        "oidcProviderArn",
        "oidcTokenFile",
        "oidcTokenSecret",
        "ramRole",
        "roleArn",
        "watcherSecret",
    },
    # The same words of other documents: pool definitions, discovery specs,
    # objects and answers of vendors.
    "policy/horizontal_node_autoscaler.py": {"apiVersion"},
    "policy/vendors/cherryservers.py": {"clusterName", "projectId"},
    "providers/cherryservers/definition_reader.py": {"clusterName", "projectId"},
    "providers/cherryservers/tokens.py": {"apiVersion"},
    "providers/huaweicloud/node_groups.py": {"scaleDownEnabled"},
    "providers/huaweicloud/decoding.py": {"scaleDownUnneededTime", "scaleDownUtilizationThreshold"},
}


def _keys(form: Mapping[str, Any]) -> Iterator[str]:
    for part in (form, *form.get("anyOf", ())):
        for key, inner in part.get("properties", {}).items():
            yield key
            yield from _keys(inner)
        if isinstance(part.get("items"), dict):
            yield from _keys(part["items"])


def _literals(path: Path) -> set[str]:
    return {
        node.value
        for node in nodes_of(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _declared_by(path: Path) -> set[str]:
    """The keys that the structs of a module of sections declare."""
    name = f"chalicelib.policy.settings.{path.stem}"
    structs = [
        value
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, msgspec.StructMeta) and value.__module__ == name
    ]
    return {
        field.key
        for struct in structs
        for field in (*fields_of(struct), *getattr(struct, "retired", ()))
    }


KEYS = {key for key in _keys(json_schema()) if key != key.lower()}
SECTIONS = {
    path.relative_to(ROOT).as_posix(): _declared_by(path) & KEYS
    for path in sorted((ROOT / "policy" / "settings").glob("*.py"))
}
# Declared by a field or a flag, which has the words of the key but not its spelling.
SPELT_NOWHERE = (
    {key for settings in PROVIDERS.values() for key in keys_of(settings)}
    | set(ROWS)
    | set().union(*SECTIONS.values())
)


def test_a_key_of_the_policy_stands_in_one_module() -> None:
    named: dict[str, set[str]] = {}
    for package in ("policy", "providers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            if found := _literals(path) & KEYS - SECTIONS.get(module, set()):
                named[module] = found
    declared = {"policy/document.py"}
    assert len(KEYS) > 200
    assert SPELT_NOWHERE | set().union(*(named[module] for module in declared)) >= KEYS
    own = Counter(key for module in declared for key in named[module])
    own += Counter(key for keys in SECTIONS.values() for key in keys)
    assert {key for key, modules in own.items() if modules > 1} == {"maxShare", "timeZone"}
    assert {module: keys for module, keys in named.items() if module not in declared} == EXCEPTIONS
