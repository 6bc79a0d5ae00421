"""Cross-field validation of the document, once each value is valid on its own.

One function per rule, in one ordered table. A rule only uses values that could be read, so a mistake that is already
reported does not cause a second one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from chalicelib.model.policy import Window
from chalicelib.policy.diagnostics import Diagnostics
from chalicelib.policy.options import check_options, check_prices
from chalicelib.policy.partial_policy import SPEC, PartialPolicy, names_once
from chalicelib.policy.providers import PROVIDERS, without_prices
from chalicelib.policy.validate_rules import RULE_CHECKS
from chalicelib.policy.validate_schedules import SCHEDULE_CHECKS

ACCESS_WAYS = {
    "kubeconfig_secret": "kubeconfigSecret",
    "kubeconfig_file": "kubeconfigFile",
    "eks_cluster": "eksCluster",
}


def _one_way_in(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    if draft_policy.kubernetes is None:
        return
    path = (*SPEC, "kubernetes")
    ways = [key for attribute, key in ACCESS_WAYS.items() if attribute in draft_policy.kubernetes]
    known = ", ".join(ACCESS_WAYS.values())
    if len(ways) > 1:
        diagnostics.problem(
            (*path, ways[1]), f"there is another way to the cluster already: {ways[0]}", f"keep one of {known}"
        )
    elif (
        not ways
        and "in_cluster_kubeconfig_secret" not in draft_policy.kubernetes
        and not diagnostics.has_problem_under(path)
    ):
        diagnostics.problem(path, "does not say how to reach the cluster", f"add one of {known}")


_OF_EVERY_KUBECONFIG = frozenset({"allow_insecure_tls"})


def _another_kubeconfig(draft_policy: PartialPolicy) -> bool:
    """Return whether the document names a kubeconfig other than that of the cluster itself."""
    settings = (draft_policy.providers or {}).get("clusterapi", {})
    return "in_cluster_kubeconfig_secret" in (draft_policy.kubernetes or {}) or _names_management(settings)


def _names_management(settings: dict[str, str]) -> bool:
    return "kubeconfigSecret" in settings or "kubeconfigFile" in settings


def _access_details(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    given = draft_policy.kubernetes or {}
    path = (*SPEC, "kubernetes")
    if "eks_cluster" in given:
        for attribute, key in (("context", "context"), ("allow_insecure_tls", "allowInsecureTls")):
            if given.get(attribute) and not (attribute in _OF_EVERY_KUBECONFIG and _another_kubeconfig(draft_policy)):
                diagnostics.problem(
                    (*path, key), "belongs to a kubeconfig, and eksCluster needs none", f"take {key} out"
                )
    elif "region" in given and not diagnostics.has_problem_under(path):
        diagnostics.problem(
            (*path, "region"), "belongs to eksCluster", "take region out, or name the cluster with eksCluster"
        )


def _bounds(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    for index, group in enumerate(draft_policy.groups):
        if "min" in group and "max" in group and group["min"] > group["max"]:
            diagnostics.problem(
                (*SPEC, "nodeGroups", index, "max"),
                f"{group['max']} is below min {group['min']}",
                f"write {group['min']} or more, or lower min",
            )


def _ids_once(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Group ids must be unique over all providers, because memory, operations and rules identify a group by its id
    alone."""
    first: dict[str, int] = {}
    for index, group in enumerate(draft_policy.groups):
        known = first.setdefault(group["id"], index) if "id" in group else index
        if known != index:
            diagnostics.problem(
                (*SPEC, "nodeGroups", index, "id"),
                f"{group['id']} is already nodeGroups[{known}]",
                "name each group once",
            )


def _windows_once(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    names_once(draft_policy, "maintenance_windows", "maintenanceWindows", "window", diagnostics)


def _windows_open(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn if removals are never allowed, which is seldom intended."""
    path = (*SPEC, "maintenanceWindows")
    given = draft_policy.spec.get("maintenance_windows", ())
    if not given or diagnostics.has_problem_under(path):
        return
    from chalicelib.schedules.maintenance_windows import never_allowed  # as in policy/cron_values.py

    if never_allowed(tuple(Window(**window) for window in given)):
        diagnostics.warn(
            path, "no removal is ever allowed: the windows that forbid removals cover those that allow them"
        )


def _groups_have_providers(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    if draft_policy.providers is None:
        return
    for index, group in enumerate(draft_policy.groups):
        name = group.get("provider")
        if name is not None and name not in draft_policy.providers:
            diagnostics.problem(
                (*SPEC, "nodeGroups", index, "provider"),
                f"{name} is not among spec.providers",
                f"add {name} there, or write one of: {', '.join(draft_policy.providers) or 'none yet'}",
            )


def _group_ids(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    for index, group in enumerate(draft_policy.groups):
        table = PROVIDERS.get(group.get("provider", ""))
        if table is not None and "id" in group and table.group_id and not re.match(table.group_id, group["id"]):
            diagnostics.warn(
                (*SPEC, "nodeGroups", index, "id"),
                f"no group of {table.name} is named like this; its ids look like {table.group_example}",
            )


def _one_way_to_discover(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    settings = (draft_policy.providers or {}).get("clusterapi", {})
    for key in ("namespace", "clusterName", "labels"):
        if key in settings and "autoDiscovery" in settings:
            diagnostics.problem(
                (*SPEC, "providers", "clusterapi", key),
                "cannot be combined with autoDiscovery",
                "put it into the specs of autoDiscovery, or take autoDiscovery out",
            )


def _management(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Permit only one kubeconfig of the management cluster, and require one where a setting needs a cluster other than
    this one."""
    settings, access = (draft_policy.providers or {}).get("clusterapi", {}), draft_policy.kubernetes or {}
    path = (*SPEC, "providers", "clusterapi")
    if "kubeconfigSecret" in settings and "kubeconfigFile" in settings:
        diagnostics.problem(
            (*path, "kubeconfigFile"),
            "there is another way to the management cluster already: kubeconfigSecret",
            "keep one of the two",
        )
    if _names_management(settings) or diagnostics.has_problem_under((*SPEC, "kubernetes")):
        return
    if "context" in settings and not diagnostics.has_problem_under(path):
        diagnostics.problem(
            (*path, "context"),
            "belongs to a kubeconfig of the management cluster, and none is named here",
            "add kubeconfigSecret, or write the context into spec.kubernetes",
        )
    own = any(attribute in access for attribute in ACCESS_WAYS)
    if settings.get("cloudConfigAuthoritative") == "true" and own and "in_cluster_kubeconfig_secret" not in access:
        diagnostics.problem(
            (*path, "cloudConfigAuthoritative"),
            "keeps spec.kubernetes for the workload cluster, and nothing else says where the management cluster is",
            "name its kubeconfig in spec.kubernetes.inClusterKubeconfigSecret or in kubeconfigSecret here, "
            "or take cloudConfigAuthoritative out",
        )


def _mode_given(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    if "mode" not in draft_policy.spec and not diagnostics.has_problem_under((*SPEC, "mode")):
        diagnostics.warn(SPEC, "mode is not given, so it is shadow: planned and explained, nothing is changed")


def _options(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    check_options(draft_policy.options, (*SPEC, "options"), diagnostics)


def _prices(draft_policy: PartialPolicy, diagnostics: Diagnostics) -> None:
    path = (*SPEC, "prices")
    given: dict[str, Any] | None = draft_policy.spec.get("prices")
    if not diagnostics.has_problem_under(path):
        chain = draft_policy.options.in_force.get("expander", ())
        check_prices(
            chain,
            listed=given is not None,
            unpriced=without_prices(draft_policy.providers or ()),
            path=(*SPEC, "options"),
            diagnostics=diagnostics,
        )
        if given is not None and not (given.get("instance_types") or given.keys() & {"cpu", "memory"}):
            diagnostics.problem(
                path,
                "does not say what a node costs",
                "add cpu and memory, what a core and a GiB cost per hour, or instanceTypes",
            )


CHECKS: tuple[Callable[[PartialPolicy, Diagnostics], None], ...] = (
    _one_way_in,
    _access_details,
    _bounds,
    _ids_once,
    _windows_once,
    _windows_open,
    _groups_have_providers,
    _group_ids,
    _one_way_to_discover,
    _management,
    _mode_given,
    _options,
    _prices,
    *RULE_CHECKS,
    *SCHEDULE_CHECKS,
)
