"""Validation of managedPools against the other sections, and against what each vendor can do.

One function per rule, as in validation.py, whose table includes this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from chalicelib.model.managed_group import PREFIX, declaration_in_name, short_declaration
from chalicelib.policy.diagnostics import Diagnostics, Path, closest, quote
from chalicelib.policy.providers import PROVIDERS, SPEC, PartialPolicy
from chalicelib.policy.settings.managed_pools import Market

_POOLS: Path = (*SPEC, "managedPools")
SUPPORTED = ("exoscale", "cherryservers")
_CHOICE = "least-cost"
_KUBERNETES = ("kubernetes.io", "k8s.io")
_FOR_EVERYBODY = "node-restriction.kubernetes.io"
_OWN = "outscaler.dev"

Pool = dict[str, Any]
"""The readable values of a declaration, by attribute."""


def managed_pools(partial: PartialPolicy) -> tuple[Pool, ...]:
    """Return the declarations of a document, each with its readable values by attribute."""
    pools: tuple[Pool, ...] = partial.spec.get("managed_pools", ())
    return pools


def _pools_of(partial: PartialPolicy, *providers: str) -> Iterator[tuple[Path, Pool]]:
    """Yield the declarations of these providers, each with its path."""
    for index, pool in enumerate(managed_pools(partial)):
        if pool.get("provider", "") in providers:
            yield (*_POOLS, index), pool


def _last_part(group: str) -> str:
    """Return the name of a group that a document may also call `cluster/name`."""
    return group.rpartition("/")[2]


# -- every vendor ----------------------------------------------------------------------------------


def _provider_makes_groups(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    others = (name for name in PROVIDERS if name not in SUPPORTED)
    for path, pool in _pools_of(partial, *others):
        diagnostics.problem(
            (*path, "provider"),
            f"managed pools of {pool['provider']} are not supported yet",
            f"supported: {', '.join(SUPPORTED)}",
        )


def _machines_are_chosen_by_cost(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    path = (*SPEC, "options", "expander")
    if not managed_pools(partial) or diagnostics.has_problem_under(path):
        return
    chain: tuple[str, ...] = partial.options.in_force.get("expander", ())
    if chain[:1] == (_CHOICE,):
        return
    rest = [name for name in chain if name != _CHOICE]
    remedy = f"[{_CHOICE}, {', '.join(rest)}]" if _CHOICE in chain else _CHOICE
    diagnostics.problem(
        path,
        f"does not begin with {_CHOICE}, which chooses the machines of managedPools",
        f"write expander: {remedy}",
    )


def _marks_differ(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse names that marks of groups could not tell apart."""
    first: dict[str, str] = {}
    for index, pool in enumerate(managed_pools(partial)):
        name = pool.get("name", "")
        earlier = first.setdefault(short_declaration(name), name) if name else name
        if earlier != name:
            diagnostics.problem(
                (*_POOLS, index, "name"),
                f"begins with the same 16 characters as {quote(earlier)}",
                "give it another name",
            )


def _copied_group_is_made_by_hand(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for path, pool in _pools_of(partial, *SUPPORTED):
        name = pool.get("copy_from", "")
        if _last_part(name).startswith(PREFIX):
            diagnostics.problem(
                (*path, "copyFrom"),
                f"{quote(name)} is made by Outscaler itself",
                "name a group that was made by hand",
            )


def _spot_machines_exist(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for path, pool in _pools_of(partial, *SUPPORTED):
        if PROVIDERS[pool["provider"]].spot:
            continue
        for index, market in enumerate((pool.get("requirements") or {}).get("markets", ())):
            if market is Market.SPOT:
                diagnostics.problem(
                    (*path, "requirements", "markets", index),
                    f"{pool['provider']} has no spot machines",
                    "take it out",
                )


_MEANINGLESS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "cherryservers": {
        "disk": ("cherryservers has no choice of disk", "take it out"),
        "keep_empty": ("groups of cherryservers end with their last server", "take it out"),
        "delete_empty": ("groups of cherryservers end with their last server", "take it out"),
        "labels": (
            "the nodes of cherryservers get labels from their cloud-init",
            "write them there",
        ),
        "taints": (
            "the nodes of cherryservers get taints from their cloud-init",
            "write them there",
        ),
    }
}
"""Provider -> attributes of keys that mean nothing there -> problem and remedy."""


def _keys_mean_something(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for provider, refused in _MEANINGLESS.items():
        for path, pool in _pools_of(partial, provider):
            for key in refused:
                if key in pool:
                    diagnostics.problem((*path, _camel(key)), *refused[key])


def _camel(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(map(str.capitalize, others))


def _labels_are_free(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse labels that the cluster or Outscaler gives its nodes."""
    labelling = (name for name in SUPPORTED if "labels" not in _MEANINGLESS.get(name, {}))
    for path, pool in _pools_of(partial, *labelling):
        for key in pool.get("labels", ()):
            owner = _owner_of(key.rpartition("/")[0])
            if owner:
                problem = f"{quote(key)} is a label that {owner} sets itself"
                diagnostics.problem((*path, "labels", key), problem, "take it out")


def _owner_of(domain: str) -> str:
    """Return who sets the labels of a domain, "" if anybody may."""
    parts = domain.split(".")
    above = {".".join(parts[index:]) for index in range(len(parts))}
    if _OWN in above:
        return "Outscaler"
    return "Kubernetes" if above & {*_KUBERNETES} and _FOR_EVERYBODY not in above else ""


# -- exoscale --------------------------------------------------------------------------------------


def _nodepool_is_named(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for path, pool in _pools_of(partial, "exoscale"):
        if "copy_from" not in pool and not diagnostics.has_problem_under((*path, "copyFrom")):
            diagnostics.problem(
                (*path, "copyFrom"),
                "is missing",
                "name a Nodepool that was made by hand, such as copyFrom: workers",
            )


def _taints_have_values(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for path, pool in _pools_of(partial, "exoscale"):
        for index, taint in enumerate(pool.get("taints", ())):
            if not taint.value:
                diagnostics.problem(
                    (*path, "taints", index),
                    "Exoscale's taints have values",
                    f"write {taint.key}=true:{taint.effect}",
                )


def _zone_is_that_of_the_cluster(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    own = (partial.providers or {}).get("exoscale", {}).get("zone", "")
    if not own or diagnostics.has_problem_under((*SPEC, "providers", "exoscale")):
        return
    for path, pool in _pools_of(partial, "exoscale"):
        for index, zone in enumerate((pool.get("requirements") or {}).get("zones", ())):
            if zone != own:
                diagnostics.problem(
                    (*path, "requirements", "zones", index),
                    f"{quote(zone)} is not the zone of the cluster",
                    f"write {own}, or take zones out",
                )


# -- cherryservers ---------------------------------------------------------------------------------


def _definition_exists(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse the name of no definition, where the document has the definitions."""
    place = (*SPEC, "providers", "cherryservers")
    text = (partial.providers or {}).get("cherryservers", {}).get("nodeGroupDefs", "")
    if not text or diagnostics.has_problem_under(place):
        return
    definitions: dict[str, Any] = msgspec.json.decode(text)
    for path, pool in _pools_of(partial, "cherryservers"):
        name = pool.get("copy_from", "")
        if name and name not in definitions and not _last_part(name).startswith(PREFIX):
            near = closest(name, definitions)
            diagnostics.problem(
                (*path, "copyFrom"),
                f"{quote(name)} is no definition of nodeGroupDefs",
                f"did you mean {near}?" if near else f"known: {', '.join(definitions)}",
            )


# -- what other sections say of managed groups -----------------------------------------------------


def _made_groups_have_no_bounds(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    """Refuse bounds of a group that a declaration makes: the declaration has the limits."""
    names = [pool["name"] for pool in managed_pools(partial) if "name" in pool]
    by_short_name = {short_declaration(name): name for name in names}
    for index, group in enumerate(partial.groups):
        name = by_short_name.get(declaration_in_name(_last_part(group.get("id", ""))), "")
        if name:
            diagnostics.problem(
                (*SPEC, "nodeGroups", index, "id"),
                f"is made by managed pool {quote(name)}",
                "set limits there",
            )


def _schedules_set_no_minimum(partial: PartialPolicy, diagnostics: Diagnostics) -> None:
    for index, schedule in enumerate(partial.spec.get("schedules", ())):
        groups = schedule.get("groups", ())
        if "min" in schedule and any(_last_part(name).startswith(PREFIX) for name in groups):
            diagnostics.problem(
                (*SPEC, "schedules", index, "min"),
                "managed pools have no minimum",
                "use headroom",
            )


MANAGED_POOL_CHECKS: tuple[Callable[[PartialPolicy, Diagnostics], None], ...] = (
    _provider_makes_groups,
    _machines_are_chosen_by_cost,
    _marks_differ,
    _nodepool_is_named,
    _copied_group_is_made_by_hand,
    _definition_exists,
    _keys_mean_something,
    _labels_are_free,
    _taints_have_values,
    _spot_machines_exist,
    _zone_is_that_of_the_cluster,
    _made_groups_have_no_bounds,
    _schedules_set_no_minimum,
)
