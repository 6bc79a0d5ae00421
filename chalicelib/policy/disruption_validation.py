"""Validation across the sections that say which needed nodes go: consolidation, nodeLifecycle,
spot, disruptionBudgets.

One function per rule, as in validation.py, whose table includes this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import OperationKind
from chalicelib.model.quantity import format_duration
from chalicelib.policy.diagnostics import Diagnostics, Path, closest, quote
from chalicelib.policy.providers import PROVIDERS, SPEC, PartialPolicy
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.node_lifecycle import DriftAction, RepairAction
from chalicelib.policy.timeouts import operation_timeout

_CONSOLIDATION: Path = (*SPEC, "consolidation")
_LIFECYCLE: Path = (*SPEC, "nodeLifecycle")
_SPOT: Path = (*SPEC, "spot")
_BUDGETS: Path = (*SPEC, "disruptionBudgets")
_SLOW_MACHINES = 3600.0
"""Seconds that bare metal usually takes at least until it is a node."""
_MOST_COMPARED = 50
"""Unknown names for which a similar one is looked for; it takes time with
the number of known ones."""
_NOTICES = {120.0: "two minutes", 300.0: "five minutes"}
_TOLERATED, _ADVISED = 1 / 4, 1 / 6
"""Parts of a notice that may pass before a pass sees it."""


def _consolidation_mode(partial: PartialPolicy) -> ConsolidationMode:
    mode: ConsolidationMode = (partial.spec.get("consolidation") or {}).get(
        "mode", ConsolidationMode.OFF
    )
    return mode


def _replacement_time(partial: PartialPolicy) -> float:
    """Return the seconds that the nodes of a replacement may take."""
    own: float | None = (partial.spec.get("consolidation") or {}).get("replace_timeout")
    return Options(**partial.options.in_force).max_node_provision_time if own is None else own


def _lifecycle_reasons(partial: PartialPolicy) -> dict[DisruptionReason, str]:
    """Return the reasons for which nodeLifecycle replaces nodes, with the key that asks for it."""
    lifecycle = partial.spec.get("node_lifecycle") or {}
    asked = {
        DisruptionReason.EXPIRED: ("maxNodeAge", "max_node_age" in lifecycle),
        DisruptionReason.DRIFTED: ("drift", lifecycle.get("drift") is DriftAction.REPLACE),
        DisruptionReason.REPAIR: ("repair", bool(lifecycle.get("repair"))),
    }
    return {reason: key for reason, (key, asks) in asked.items() if asks}


# -- groups that the sections name -----------------------------------------------------------------


def _named_groups(partial: PartialPolicy) -> Iterator[tuple[str, str]]:
    """Yield (provider, id) of every group that the document names in nodeGroups
    or in a provider's nodes."""
    for group in partial.groups:
        if "id" in group:
            yield group.get("provider", ""), group["id"]
    for provider, settings in (partial.providers or {}).items():
        for line in settings.get("nodes", "").split("\n"):
            if line.count(":") >= 2:
                yield provider, line.split(":", 2)[2].strip()


def _known_providers(partial: PartialPolicy) -> set[str]:
    return {name for name in partial.providers or {} if name in PROVIDERS}


def _owners(names: Iterable[str], partial: PartialPolicy) -> list[set[str]]:
    """Return, for each name of a group or pool, the providers that may have it: those of the
    document's own groups, otherwise those whose ids look like it, otherwise all."""
    known = _known_providers(partial)
    patterns = {provider: PROVIDERS[provider].group_id for provider in known}
    own: dict[str, set[str]] = {}
    for provider, group in _named_groups(partial):
        for name in {group, group.rpartition("/")[2]} if provider in known else ():
            own.setdefault(name, set()).add(provider)
    owners = []
    for name in names:
        alike = {
            provider
            for provider, pattern in patterns.items()
            if pattern and re.fullmatch(pattern, name)
        }
        owners.append(own.get(name) or alike or known)
    return owners


def _sections_with_groups(partial: PartialPolicy) -> Iterator[tuple[Path, dict[str, Any]]]:
    lifecycle = partial.spec.get("node_lifecycle") or {}
    yield _CONSOLIDATION, partial.spec.get("consolidation") or {}
    yield _LIFECYCLE, lifecycle
    yield from (
        ((*_LIFECYCLE, "repair", index), rule)
        for index, rule in enumerate(lifecycle.get("repair", ()))
    )
    yield _SPOT, partial.spec.get("spot") or {}
    budgets = enumerate(partial.spec.get("disruption_budgets", ()))
    yield from (((*_BUDGETS, index), budget) for index, budget in budgets)


def _disruption_groups(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of groups that the document does not name anywhere else. Providers discover groups and
    pools, so the name may still be right."""
    named = {group for _, group in _named_groups(partial)}
    known = named | {name.rpartition("/")[2] for name in named}
    compared = 0
    for path, section in _sections_with_groups(partial):
        for index, name in enumerate(section.get("groups", ()) if known else ()):
            if name in known:
                continue
            compared += 1
            near = closest(name, sorted(known)) if compared <= _MOST_COMPARED else ""
            remedy = (
                f"did you mean {near}?"
                if near
                else "it counts only if a provider has such a group or pool"
            )
            diagnostics.warn(
                (*path, "groups", index), f"{quote(name)} is no group of this document; {remedy}"
            )


# -- consolidation and replacements ----------------------------------------------------------------


def _consolidation_has_prices(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """A group without a price is not consolidated. What a provider says is known in a pass only."""
    mode, path = _consolidation_mode(partial), (*_CONSOLIDATION, "mode")
    if mode is ConsolidationMode.OFF or partial.spec.get("prices") or not partial.providers:
        return
    if any(diagnostics.has_problem_under((*SPEC, key)) for key in ("prices", "providers")):
        return
    vendors = {name: PROVIDERS[name] for name in partial.providers if name in PROVIDERS}
    silent = [name for name, vendor in vendors.items() if not vendor.may_state_prices]
    unsure = [
        name
        for name, vendor in vendors.items()
        if vendor.may_state_prices and not vendor.states_prices
    ]
    example = "prices: {cpu: 0.03, memory: 0.004}"
    if len(silent) == len(vendors):
        problem = "does not know what any group costs"
        if mode is ConsolidationMode.FULL:
            diagnostics.problem(
                path, problem, f"add spec.prices, such as {example}, or write mode: off"
            )
        else:
            diagnostics.warn(
                path, f"{problem}, so nothing is consolidated; add spec.prices, such as {example}"
            )
        return
    if silent:
        diagnostics.warn(
            path,
            (
                f"the groups of {', '.join(silent)} have no price and are not consolidated; add "
                "spec.prices for them"
            ),
        )
    if unsure:
        diagnostics.warn(
            path,
            f"without spec.prices, groups of {', '.join(unsure)} are consolidated only where their "
            "provider says what "
            "they cost",
        )


def _removals_are_on(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of settings that would remove nodes where an option forbids every removal."""
    if partial.options.in_force.get("scale_down_enabled") is not False:
        return
    asking = [(*_LIFECYCLE, key) for key in _lifecycle_reasons(partial).values()]
    if _consolidation_mode(partial) is not ConsolidationMode.OFF:
        asking.append((*_CONSOLIDATION, "mode"))
    for path in asking:
        diagnostics.warn(path, "removes nothing: options.scaleDownEnabled is false")


def _replacements_have_time(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn if new machines come too late for a replacement, or if no maintenance
    window is long enough for one."""
    lifecycle = {
        key
        for reason, key in _lifecycle_reasons(partial).items()
        if reason is not DisruptionReason.REPAIR
    }
    asking: list[Path] = [(*_LIFECYCLE, key) for key in sorted(lifecycle)]
    if _consolidation_mode(partial) is ConsolidationMode.FULL:
        asking.insert(0, (*_CONSOLIDATION, "mode"))
    if not asking:
        return
    needs = _replacement_time(partial)
    if needs < _SLOW_MACHINES and "cherryservers" in (partial.providers or {}):
        wait = "replaceTimeout: 75m"
        remedy = wait if asking[0][:2] == _CONSOLIDATION else f"consolidation: {{{wait}}}"
        diagnostics.warn(
            asking[0], f"machines of cherryservers take 30 to 60 minutes; write {remedy}"
        )
    needs += operation_timeout(OperationKind.DELETE_NODES, Options(**partial.options.in_force))
    for index, window in enumerate(partial.spec.get("maintenance_windows", ())):
        if window.get("removals", True) and window.get("duration", needs) < needs:
            diagnostics.warn(
                (*SPEC, "maintenanceWindows", index, "duration"),
                "no replacement fits into window "
                f"{quote(window.get('name') or window.get('cron', ''))}: it may take "
                f"{format_duration(needs)} to buy nodes and to drain the old ones",
            )


def _replacements_have_room(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse a surge of no node where nodeLifecycle asks for new nodes beside the old ones. Mode
    full is judged where the section is read."""
    path = (*_CONSOLIDATION, "maxSurge")
    surge = (partial.spec.get("consolidation") or {}).get("max_surge")
    if surge is None or surge.nodes or surge.share or diagnostics.has_problem_under(path):
        return
    rules = (partial.spec.get("node_lifecycle") or {}).get("repair", ())
    replaces = any(
        rule.get("action", RepairAction.REPLACE) is RepairAction.REPLACE for rule in rules
    )
    if replaces or _lifecycle_reasons(partial).keys() - {DisruptionReason.REPAIR}:
        diagnostics.problem(
            path, "leaves no room for a new node beside the old one", "write at least 1"
        )


# -- nodeLifecycle ---------------------------------------------------------------------------------


def _nodes_live_long_enough(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse an age at which a node that was just bought by a replacement
    would be replaced again."""
    age = (partial.spec.get("node_lifecycle") or {}).get("max_node_age")
    consolidation = partial.spec.get("consolidation") or {}
    needs = consolidation.get("min_node_age", Consolidation().min_node_age) + _replacement_time(
        partial
    )
    if age is not None and age < needs:
        diagnostics.problem(
            (*_LIFECYCLE, "maxNodeAge"),
            "nodes would expire while they are replaced: consolidation.minNodeAge and the time of "
            "a replacement are "
            f"{format_duration(needs)}",
            "make it longer",
        )


def _restarts_are_possible(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse a restart of nodes whose provider has none."""
    providers = _known_providers(partial)
    unable = {name for name in providers if not PROVIDERS[name].restarts}
    rules = (partial.spec.get("node_lifecycle") or {}).get("repair", ())
    for index, rule in enumerate(rules):
        path = (*_LIFECYCLE, "repair", index)
        if rule.get("action") is not RepairAction.RESTART or diagnostics.has_problem_under(
            (*path, "groups")
        ):
            continue
        # A name that may also be a group of another provider is judged in a pass,
        # where its provider is known.
        owners = _owners(rule.get("groups", ()), partial)
        certain = (
            sorted(set().union(*(names for names in owners if names <= unable)))
            if owners
            else sorted(unable)
        )
        if certain:
            other = (
                ", or name the groups of other providers in groups"
                if not owners and unable < providers
                else ""
            )
            problem = f"{', '.join(certain)} cannot restart a node"
            diagnostics.problem((*path, "action"), problem, f"write action: replace{other}")


# -- spot ------------------------------------------------------------------------------------------


def _spot_exists(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse groups of a vendor that has no spot machines."""
    spot = partial.spec.get("spot")
    if spot is None or diagnostics.has_problem_under((*_SPOT, "groups")):
        return
    providers = _known_providers(partial)
    for index, owners in enumerate(_owners(spot.get("groups", ()), partial)):
        if owners and not any(PROVIDERS[owner].spot for owner in owners):
            problem = f"{', '.join(sorted(owners))} has no spot machines"
            diagnostics.problem((*_SPOT, "groups", index), problem, "take it out")
    if providers and "groups" not in spot and not any(PROVIDERS[name].spot for name in providers):
        diagnostics.warn(
            _SPOT, f"has no effect: {', '.join(sorted(providers))} has no spot machines"
        )


def _spot_providers(
    partial: PartialPolicy, diagnostics: Diagnostics
) -> list[tuple[Path, set[str]]]:
    """Return the place of each name of spec.spot.groups, or that of spec.spot where it names none,
    with the providers with spot machines that it may mean. Empty without spec.spot or where its
    groups or the providers could not be read."""
    spot = partial.spec.get("spot")
    unread = any(
        diagnostics.has_problem_under(path) for path in ((*_SPOT, "groups"), (*SPEC, "providers"))
    )
    if spot is None or unread:
        return []
    places: list[tuple[Path, set[str]]] = [
        ((*_SPOT, "groups", index), owners)
        for index, owners in enumerate(_owners(spot.get("groups", ()), partial))
    ]
    places = places or [(_SPOT, _known_providers(partial))]
    with_spot = [
        (path, {owner for owner in owners if PROVIDERS[owner].spot}) for path, owners in places
    ]
    return [(path, owners) for path, owners in with_spot if owners]


def _spot_has_prices(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of spot groups whose price is that of other nodes."""
    if (partial.spec.get("prices") or {}).get("spot") or diagnostics.has_problem_under(
        (*SPEC, "prices")
    ):
        return
    stated = {
        name
        for name, settings in (partial.providers or {}).items()
        if name in PROVIDERS
        and PROVIDERS[name].states_spot_prices
        and PROVIDERS[name].prices_with(settings)
    }
    for path, owners in _spot_providers(partial, diagnostics):
        silent = sorted(owners - stated)
        if not silent or (path != _SPOT and owners & stated):
            continue
        subject = f"a spot group of {' or '.join(silent)} " if path == _SPOT else ""
        diagnostics.warn(
            path,
            f"{subject}counts as dear as on demand, so nothing moves to it; add spec.prices.spot",
        )


def _spot_prices_count(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of prices of spot nodes where only their provider may call a group spot."""
    if (partial.spec.get("prices") or {}).get("spot") and "spot" not in partial.spec:
        if diagnostics.has_problem_under(_SPOT):
            return
        diagnostics.warn(
            (*SPEC, "prices", "spot"),
            "counts only for groups that their provider calls spot; with spec.spot, such as "
            "spot: {interruptions: report}, those that it or a label names count, too",
        )


def _notices_are_seen(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn if much of a vendor's notice is over before a pass sees it."""
    if diagnostics.has_problem_under((*SPEC, "scanInterval")):
        return
    interval = partial.spec.get("scan_interval", Policy(name="").scan_interval)
    path = (*SPEC, "scanInterval") if "scan_interval" in partial.spec else _SPOT
    owners = (owners for _, owners in _spot_providers(partial, diagnostics))
    for name in sorted(set().union(*owners)):
        notice = PROVIDERS[name].spot_notice
        if interval > notice * _TOLERATED and notice:
            better = notice * _ADVISED
            diagnostics.warn(
                path,
                f"notice is {_NOTICES[notice]}; a scanInterval of {format_duration(better)} leaves "
                f"{notice - better:.0f}s, one of {format_duration(interval)} leaves "
                f"{max(0.0, notice - interval):.0f}s "
                f"({name})",
            )


def _spot_nodes_fit(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of spot settings that have no effect, or leave no room for a spot node."""
    spot = partial.spec.get("spot") or {}
    mode = _consolidation_mode(partial)
    if "return_after" in spot and mode in {ConsolidationMode.OFF, ConsolidationMode.REMOVE}:
        buys = "is off" if mode is ConsolidationMode.OFF else "buys nothing in mode remove"
        diagnostics.warn((*_SPOT, "returnAfter"), f"nothing returns to spot: consolidation {buys}")
    most = partial.options.in_force.get("max_nodes_total", 0)
    if most and spot.get("on_demand_base", 0) >= most:
        diagnostics.warn(
            (*_SPOT, "onDemandBase"),
            f"leaves no place for a spot node: options.maxNodesTotal is {most}",
        )


# -- disruption budgets ----------------------------------------------------------------------------


def _budgets_limit_something(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Warn of reasons for which nothing is removed, and of budgets that are mistaken for those of
    the removal of unneeded nodes."""
    lifecycle = _lifecycle_reasons(partial)
    active = {*lifecycle} | (
        {DisruptionReason.CONSOLIDATION}
        if _consolidation_mode(partial) is not ConsolidationMode.OFF
        else set()
    )
    if any(diagnostics.has_problem_under(path) for path in (_LIFECYCLE, (*_CONSOLIDATION, "mode"))):
        return
    for index, budget in enumerate(partial.spec.get("disruption_budgets", ())):
        path = (*_BUDGETS, index)
        if diagnostics.has_problem_under((*path, "reasons")):
            continue
        reasons: tuple[DisruptionReason, ...] = budget.get("reasons", ())
        if idle := [
            reason for reason in reasons if reason in _OF_LIFECYCLE and reason not in lifecycle
        ]:
            remedies = ", ".join(_OF_LIFECYCLE[reason] for reason in idle)
            diagnostics.warn(
                (*path, "reasons"),
                (
                    f"nothing is removed for this reason: {', '.join(idle)}; it needs "
                    f"nodeLifecycle with {remedies}"
                ),
            )
        elif DisruptionReason.UNNEEDED not in reasons and not active & {*(reasons or active)}:
            diagnostics.warn(
                path,
                "limits nothing: consolidation is off, nodeLifecycle replaces nothing, and the "
                "removal of unneeded "
                "nodes is limited only where reasons names unneeded"
                if not active
                else "limits nothing: consolidation is off",
            )


_OF_LIFECYCLE = {
    DisruptionReason.EXPIRED: "maxNodeAge",
    DisruptionReason.DRIFTED: "drift: replace",
    DisruptionReason.REPAIR: "repair",
}
"""What nodeLifecycle must have, so that nodes go for the reason."""

DISRUPTION_CHECKS: tuple[Callable[[PartialPolicy, Diagnostics], None], ...] = (
    _consolidation_has_prices,
    _removals_are_on,
    _replacements_have_time,
    _replacements_have_room,
    _nodes_live_long_enough,
    _restarts_are_possible,
    _spot_exists,
    _spot_has_prices,
    _spot_prices_count,
    _notices_are_seen,
    _spot_nodes_fit,
    _disruption_groups,
    _budgets_limit_something,
)
