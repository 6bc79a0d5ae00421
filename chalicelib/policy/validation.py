"""Cross-field validation of a document, once each value is valid on its own.

One function per rule, in one ordered table. A rule only uses values that could be read, so a
mistake that is already reported does not cause a second one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.disruption_validation import DISRUPTION_CHECKS
from chalicelib.policy.managed_pool_validation import MANAGED_POOL_CHECKS, managed_pools
from chalicelib.policy.options import check_options, check_prices
from chalicelib.policy.providers import PROVIDERS, SPEC, PartialPolicy, without_prices
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import SCHEDULED

if TYPE_CHECKING:
    from chalicelib.schedules.overlap import Span

_ACCESS = {
    "kubeconfig_secret": "kubeconfigSecret",
    "kubeconfig_file": "kubeconfigFile",
    "eks_cluster": "eksCluster",
}
_MOST_RULES_PER_GROUP = 10
_CLUSTER = "the cluster"

# -- names and bounds ------------------------------------------------------------------------------


def _names_once(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Group ids must be unique over all providers, because memory, operations and rules identify
    a group by its id alone."""
    for attribute, key, field, remedy in (
        ("node_groups", "nodeGroups", "id", "name each group once"),
        ("managed_pools", "managedPools", "name", "give it another name"),
        ("maintenance_windows", "maintenanceWindows", "name", "name each window once"),
        ("disruption_budgets", "disruptionBudgets", "name", "give it another name"),
        ("rules", "rules", "name", "name each rule once"),
        ("schedules", "schedules", "name", "name each schedule once"),
        ("headroom", "headroom", "name", "name each entry once"),
    ):
        first: dict[str, int] = {}
        for index, entry in enumerate(partial.spec.get(attribute, ())):
            name = entry.get(field, "")
            earlier = first.setdefault(name, index) if name else index
            if earlier != index:
                diagnostics.problem(
                    (*SPEC, key, index, field), f"{name} is already {key}[{earlier}]", remedy
                )


def _group_entries(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for index, group in enumerate(partial.groups):
        path: Path = (*SPEC, "nodeGroups", index)
        if "min" in group and "max" in group and group["min"] > group["max"]:
            diagnostics.problem(
                (*path, "max"),
                f"{group['max']} is below min {group['min']}",
                f"write {group['min']} or more, or lower min",
            )
        name = group.get("provider", "")
        vendor = PROVIDERS.get(name)
        pattern = vendor.group_id if vendor is not None else ""
        if (
            vendor is not None
            and pattern
            and "id" in group
            and not re.fullmatch(pattern, group["id"])
        ):
            example = f"its ids look like {vendor.group_example}"
            diagnostics.warn((*path, "id"), f"no group of {name} is named like this; {example}")


def _providers_listed(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse an entry whose provider is not one of the document's."""
    if partial.providers is None:
        return
    known = ", ".join(partial.providers) or "none yet"
    for key, entries in (("nodeGroups", partial.groups), ("managedPools", managed_pools(partial))):
        for index, entry in enumerate(entries):
            name = entry.get("provider", "")
            if name and name not in partial.providers:
                diagnostics.problem(
                    (*SPEC, key, index, "provider"),
                    f"{name} is not among spec.providers",
                    f"add {name} there, or write one of: {known}",
                )


def _windows_open(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn if removals are never allowed, which is seldom intended."""
    path = (*SPEC, "maintenanceWindows")
    windows = partial.spec.get("maintenance_windows", ())
    if not windows or diagnostics.has_problem_under(path):
        return
    from chalicelib.schedules.maintenance_windows import never_allowed  # as in names_and_times.py

    if never_allowed(tuple(Window(**window) for window in windows)):
        diagnostics.warn(
            path,
            (
                "no removal is ever allowed: the windows that forbid removals cover those that "
                "allow them"
            ),
        )


# -- access ----------------------------------------------------------------------------------------


def _one_way_in(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    if partial.kubernetes is None:
        return
    path = (*SPEC, "kubernetes")
    ways = [key for attribute, key in _ACCESS.items() if attribute in partial.kubernetes]
    all_ways = ", ".join(_ACCESS.values())
    if len(ways) > 1:
        diagnostics.problem(
            (*path, ways[1]),
            f"there is another way to the cluster already: {ways[0]}",
            f"keep one of {all_ways}",
        )
    elif not (
        ways
        or "in_cluster_kubeconfig_secret" in partial.kubernetes
        or diagnostics.has_problem_under(path)
    ):
        diagnostics.problem(path, "does not say how to reach the cluster", f"add one of {all_ways}")


def _access_details(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    access, management = partial.kubernetes or {}, (partial.providers or {}).get("clusterapi", {})
    path = (*SPEC, "kubernetes")
    if "eks_cluster" in access:
        # allowInsecureTls holds for every kubeconfig of the document, not only for
        # that of the cluster itself.
        another = "in_cluster_kubeconfig_secret" in access or _names_management(management)
        for attribute, key, without_use in (
            ("context", "context", True),
            ("allow_insecure_tls", "allowInsecureTls", not another),
        ):
            if access.get(attribute) and without_use:
                diagnostics.problem(
                    (*path, key),
                    "belongs to a kubeconfig, and eksCluster needs none",
                    f"take {key} out",
                )
    elif "region" in access and not diagnostics.has_problem_under(path):
        diagnostics.problem(
            (*path, "region"),
            "belongs to eksCluster",
            "take region out, or name the cluster with eksCluster",
        )


def _names_management(settings: dict[str, str]) -> bool:
    return "kubeconfigSecret" in settings or "kubeconfigFile" in settings


def _one_way_to_discover(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    settings = (partial.providers or {}).get("clusterapi", {})
    for key in ("namespace", "clusterName", "labels"):
        if key in settings and "autoDiscovery" in settings:
            diagnostics.problem(
                (*SPEC, "providers", "clusterapi", key),
                "cannot be combined with autoDiscovery",
                "put it into the specs of autoDiscovery, or take autoDiscovery out",
            )


def _management(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Permit only one kubeconfig of the management cluster, and require one where a setting needs a
    cluster other than this one."""
    settings, access = (partial.providers or {}).get("clusterapi", {}), partial.kubernetes or {}
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
    own = any(attribute in access for attribute in _ACCESS)
    if (
        settings.get("cloudConfigAuthoritative") == "true"
        and own
        and "in_cluster_kubeconfig_secret" not in access
    ):
        diagnostics.problem(
            (*path, "cloudConfigAuthoritative"),
            (
                "keeps spec.kubernetes for the workload cluster, and nothing else says where the "
                "management cluster is"
            ),
            "name its kubeconfig in spec.kubernetes.inClusterKubeconfigSecret or in "
            "kubeconfigSecret here, "
            "or take cloudConfigAuthoritative out",
        )


# -- mode, options, prices -------------------------------------------------------------------------


def _mode_given(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    if "mode" not in partial.spec and not diagnostics.has_problem_under((*SPEC, "mode")):
        diagnostics.warn(
            SPEC, "mode is not given, so it is shadow: planned and explained, nothing is changed"
        )


def _options_and_prices(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    check_options(partial.options, (*SPEC, "options"), diagnostics)
    path = (*SPEC, "prices")
    prices: dict[str, Any] | None = partial.spec.get("prices")
    if diagnostics.has_problem_under(path):
        return
    unpriced = without_prices(partial.providers or {}, managed=bool(managed_pools(partial)))
    check_prices(
        partial.options.in_force.get("expander", ()),
        listed=prices is not None,
        unpriced=unpriced,
        path=(*SPEC, "options"),
        diagnostics=diagnostics,
    )
    named = prices is not None and (prices.get("instance_types") or prices.get("spot"))
    if prices is not None and not (named or prices.keys() & {"cpu", "memory"}):
        diagnostics.problem(
            path,
            "does not say what a node costs",
            "add cpu and memory, what a core and a GiB cost per hour, or instanceTypes",
        )


# -- scaling rules ---------------------------------------------------------------------------------


def _few_rules_per_group(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """A group has at most ten rules, one of them about cpu and one about memory. A rule counts for
    each of its groups; two names that may mean one pool are detected where groups are known
    (plan/scale_up/rule_purchases)."""
    counts: dict[str, int] = {}
    metrics: dict[tuple[str, str], int] = {}
    for index, rule in enumerate(partial.spec.get("rules", ())):
        path = (*SPEC, "rules", index)
        for group in rule.get("groups", ()):
            counts[group] = counts.get(group, 0) + 1
            if counts[group] == _MOST_RULES_PER_GROUP + 1:
                diagnostics.problem(
                    (*path, "groups"),
                    f"is the eleventh rule for {group}",
                    f"keep at most {_MOST_RULES_PER_GROUP} rules per group",
                )
            if "metric" not in rule:
                continue
            first = metrics.setdefault((group, rule["metric"]), index)
            if first != index:
                diagnostics.problem(
                    (*path, "metric"),
                    f"{group} has a rule about {rule['metric']} already: rules[{first}]",
                    f"keep one rule about {rule['metric']} per group",
                )


def _threshold(partial: PartialPolicy, rule: dict[str, Any]) -> int:
    """Return the percentage above which a metric rule acts; without `above` it
    is that of spec.scaleUp."""
    name = f"{rule['metric']}_threshold"
    usual = (partial.spec.get("scale_up") or {}).get(name, getattr(ScaleUp(), name))
    return int(rule.get("above") or usual)


def _above_the_scale_down_threshold(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """A rule must act strictly above the utilization up to which nodes are removed; otherwise nodes
    are added and removed in turn. A policy that never removes nodes is exempt."""
    options = partial.options.in_force
    option = (*SPEC, "options", "scaleDownUtilizationThreshold")
    if options.get("scale_down_enabled") is False:
        return
    if diagnostics.has_problem_under(option) or diagnostics.has_problem_under((*SPEC, "scaleUp")):
        return
    name = "scale_down_utilization_threshold"
    least = round(options.get(name, getattr(Options(), name)) * 100, 9)
    for index, rule in enumerate(partial.spec.get("rules", ())):
        path = (*SPEC, "rules", index)
        if "metric" not in rule or diagnostics.has_problem_under((*path, "above")):
            continue
        above = _threshold(partial, rule)
        if above <= least:
            subject = f"{above}%" if rule.get("above") else f"scaleUp's threshold, {above}%,"
            higher = f"write more than {least:g}, or " if least < 100 else ""
            diagnostics.problem(
                (*path, "above" if "above" in rule else "metric"),
                f"{subject} is not above options.scaleDownUtilizationThreshold, {least:g}%: nodes "
                "would be "
                "added and removed in turns",
                f"{higher}lower that option",
            )


def _exceedable(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of a metric rule that acts above 100%: a pool's requests do not exceed its
    allocatable. CCE's "-1" (the threshold is automatic) is a rule without `above`, and its
    add-on's default for it is 100%."""
    for index, rule in enumerate(partial.spec.get("rules", ())):
        if "metric" not in rule or _threshold(partial, rule) < 100:
            continue
        usual = f"has no threshold of its own, and scaleUp.{rule['metric']}Threshold is 100%"
        diagnostics.warn(
            (*SPEC, "rules", index, "above" if "above" in rule else "metric"),
            f"{'is 100%' if rule.get('above') else usual}, which the requests of a pool do not "
            "exceed: it adds "
            "nothing; write a lower one",
        )


def _switches(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of settings that are written in the document but disabled."""
    scale_up: dict[str, Any] = partial.spec.get("scale_up") or {}
    if scale_up.get("rules") is False and partial.spec.get("rules"):
        diagnostics.warn((*SPEC, "rules"), "none of them is in force: scaleUp.rules is false")
    if scale_up.get("rules") is False and scale_up.get("unschedulable_pods") is False:
        diagnostics.warn(
            (*SPEC, "scaleUp"), "groups grow for no pod and by no rule: both switches are false"
        )
    if scale_up.get("expected_cost") and not {"price", "least-cost"} & {
        *partial.options.in_force.get("expander", ())
    }:
        path = (*SPEC, "scaleUp", "expectedCost")
        diagnostics.warn(path, "has no effect without the expander price or least-cost")


# -- schedules and headroom: two of them must never set different values at the same instant -------

Entry = dict[str, Any]
_SCHEDULES: Path = (*SPEC, "schedules")


def _schedules_within_groups(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """If a schedule sets only one bound, it must be consistent with the group's own other bound."""
    for index, schedule in enumerate(partial.spec.get("schedules", ())):
        ids = schedule.get("groups")
        groups = [group for group in partial.groups if not ids or group.get("id") in ids]
        path = (*_SCHEDULES, index)
        if diagnostics.has_problem_under(path):
            continue
        lowest = min(
            (group for group in groups if "max" in group),
            key=lambda group: group["max"],
            default={},
        )
        highest = max(
            (group for group in groups if "min" in group),
            key=lambda group: group["min"],
            default={},
        )
        if "max" not in schedule and lowest.get("max", schedule.get("min", 0)) < schedule.get(
            "min", 0
        ):
            diagnostics.problem(
                (*path, "min"),
                (
                    f"{schedule['min']} is above max {lowest['max']} of {lowest.get('id')} in "
                    "nodeGroups"
                ),
                f"write {lowest['max']} or less, or add max",
            )
        if "min" not in schedule and highest.get("min", 0) > schedule.get(
            "max", highest.get("min", 0)
        ):
            diagnostics.problem(
                (*path, "max"),
                (
                    f"{schedule['max']} is below min {highest['min']} of {highest.get('id')} in "
                    "nodeGroups"
                ),
                f"write {highest['min']} or more, or add min",
            )


def _one_schedule_at_a_time(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Two schedules that set the same value of a group, or of the cluster, must never be open at
    once, nor may one schedule's min exceed the other's max. Day and night schedules of one time
    zone cannot be written so that this holds on the day with 23 hours without leaving a gap on
    other days; an overlap that only a clock change causes is therefore a warning."""
    schedules: Sequence[Entry] = partial.spec.get("schedules", ())
    readable = [
        index
        for index, schedule in enumerate(schedules)
        if schedule.keys() >= {"cron", "duration"}
        and not diagnostics.has_problem_under((*_SCHEDULES, index))
    ]
    for first_index, second_index in combinations(readable, 2):
        first, second = schedules[first_index], schedules[second_index]
        clash = _clash(first, second, partial.spec.get("headroom", ()))
        instant = _both_open(first, second) if clash is not None else ""
        if clash is None or not instant:
            continue
        from chalicelib.schedules.overlap import by_change_of_clock

        key, sentence = clash
        place = f"schedules[{first_index}]"
        earlier = f"{first['name']} ({place})" if "name" in first else place
        if by_change_of_clock(_span(first), _span(second)):
            outcome = "this one has the word" if key in first else "max holds"
            diagnostics.warn(
                (*_SCHEDULES, second_index, key),
                f"{sentence} {earlier}, and both are open when the clock is changed, for example "
                f"at {instant}: "
                f"{outcome} then",
            )
        else:
            diagnostics.problem(
                (*_SCHEDULES, second_index, key),
                f"{sentence} {earlier}, and both are open for example at {instant}",
                "let one of them end before the other begins",
            )


def _clash(
    first_entry: Entry, second_entry: Entry, headroom: Sequence[Entry]
) -> tuple[str, str] | None:
    """Return (the key of the second, the problem if both are open), or None where there is none."""
    shared = _shared_group(first_entry, second_entry)
    for key in SCHEDULED:
        if key not in first_entry or key not in second_entry:
            continue
        scope = shared
        if key == "mode":
            scope = _CLUSTER
        elif key == "headroom":
            scope = _shared_headroom(first_entry, second_entry, headroom)
        if scope:
            return key, f"the {key} of {scope} is also set by"
    for key, low, high in (("min", second_entry, first_entry), ("max", first_entry, second_entry)):
        if shared and low.get("min", 0) > high.get("max", low.get("min", 0)):
            relation = (
                f"above the max {high['max']}" if key == "min" else f"below the min {low['min']}"
            )
            return key, f"{second_entry[key]} is {relation} for {shared} of"
    return None


def _shared_group(first_entry: Entry, second_entry: Entry) -> str:
    """Return a group whose bounds both set; a schedule without groups applies to all groups."""
    first_groups, second_groups = first_entry.get("groups", ()), second_entry.get("groups", ())
    if not (first_groups and second_groups):
        return next(iter(first_groups or second_groups), "every group")
    return next((name for name in second_groups if name in first_groups), "")


def _shared_headroom(first_entry: Entry, second_entry: Entry, headroom: Sequence[Entry]) -> str:
    """Return a group whose headroom both set, or an entry of spec.headroom that has a group of
    each. A schedule without groups only sets the entries without groups."""
    first_groups, second_groups = first_entry.get("groups", ()), second_entry.get("groups", ())
    if not first_groups and not second_groups:
        return _CLUSTER
    shared = next((name for name in second_groups if name in first_groups), "")
    entries = (
        entry.get("name", "an entry")
        for entry in headroom
        if {*first_groups} & {*entry.get("groups", ())}
        and {*second_groups} & {*entry.get("groups", ())}
    )
    return shared or next(entries, "")


def _both_open(first_entry: Entry, second_entry: Entry) -> str:
    """Describe an instant at which both are open, on the clock of the second;
    empty where there is none."""
    from chalicelib.schedules.overlap import both_open  # as in names_and_times.py

    instant = both_open(_span(first_entry), _span(second_entry))
    if instant is None:
        return ""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    zone = second_entry.get("time_zone", "UTC")
    return f"{datetime.fromtimestamp(instant, ZoneInfo(zone)):%Y-%m-%d %H:%M} {zone}"


def _span(schedule_entry: Entry) -> Span:
    from chalicelib.schedules.overlap import Span

    return Span(
        schedule_entry["cron"], schedule_entry.get("time_zone", "UTC"), schedule_entry["duration"]
    )


def _one_headroom_per_scope(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse two amounts for one scope: it would be unclear whether to add them
    or to use the larger one."""
    first: dict[str, int] = {}
    for index, entry in enumerate(partial.spec.get("headroom", ())):
        path = (*SPEC, "headroom", index)
        if not entry or diagnostics.has_problem_under((*path, "groups")):
            continue
        for scope in entry.get("groups", (_CLUSTER,)):
            earlier = first.setdefault(scope, index)
            if earlier != index:
                diagnostics.problem(
                    (*path, "groups") if "groups" in entry else path,
                    f"{scope} has headroom already: headroom[{earlier}]",
                    "keep one entry for it, or add the two up",
                )


CHECKS: tuple[Callable[[PartialPolicy, Diagnostics], None], ...] = (
    _one_way_in,
    _access_details,
    _group_entries,
    _providers_listed,
    _names_once,
    _windows_open,
    _one_way_to_discover,
    _management,
    _mode_given,
    _options_and_prices,
    *MANAGED_POOL_CHECKS,
    *DISRUPTION_CHECKS,
    _few_rules_per_group,
    _above_the_scale_down_threshold,
    _exceedable,
    _switches,
    _schedules_within_groups,
    _one_schedule_at_a_time,
    _one_headroom_per_scope,
)
