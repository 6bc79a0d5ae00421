"""Builds one policy from all converted settings, with warnings for its author."""

from __future__ import annotations

import re

import msgspec

from chalicelib.command.importers.cce_addon import AddonSettings, read_addon
from chalicelib.command.importers.hna_rules import read_rules
from chalicelib.command.importers.input_files import Found, InputFile
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import KubernetesAccess, Policy
from chalicelib.model.policy_permissions import DEFAULT_PREFIX
from chalicelib.model.scaling_rules import ScaleUp

PROVIDER = "huaweicloud"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class Wanted(msgspec.Struct, frozen=True):
    """Values that no file contains, from the command line; empty: not given.

    secret_prefix: of the deployment's secrets. inline_priorities: the ConfigMap of the expander priority becomes
    priorities of spec.nodeGroups.
    """

    name: str = ""
    cluster_id: str = ""
    region: str = ""
    project_id: str = ""
    credentials_secret: str = ""
    kubeconfig_secret: str = ""
    secret_prefix: str = DEFAULT_PREFIX
    time_zone: str = "UTC"
    inline_priorities: bool = False


def assemble(found: Found, wanted: Wanted) -> tuple[Policy, tuple[str, ...]]:
    """Return (policy, warnings). The mode is shadow, so that an operator reviews the policy before it acts.

    The policy lacks values that were not given; reading it reports them. Raises InputErrors for objects with mistakes,
    and for settings of two clusters.
    """
    addon = _addon(found.addons)
    rules, reported = read_rules(found.objects, wanted.time_zone)
    cluster_id, clashes = _cluster_id(addon, wanted)
    name = wanted.name or (cluster_id if _LABEL.match(cluster_id) else "imported")
    warnings = [f"{other}: passed over" for other in found.others]
    if addon is not None:
        warnings += addon.warnings
        if addon.scale_up.unschedulable_pods or addon.scale_up.rules or addon.options.scale_down_enabled:
            warnings.append(
                "the vendor's add-on is switched on: switch it off (scaleUpUnscheduledPodEnabled, "
                "scaleUpUtilizationEnabled, scaleDownEnabled) before the mode is active"
            )
    else:
        # The interval is not a decision about nodes, and ten seconds would multiply the passes.
        addon = msgspec.structs.replace(
            read_addon({}, "the add-on's defaults"), scan_interval=Policy(name=name).scan_interval
        )
        warnings.append("no settings of the add-on are given: its defaults are written out, removals off among them")
    warnings += [*reported, *clashes]
    if not wanted.name:
        warnings.append(f"the cluster is called {name}; --name says otherwise")
    scale_up = msgspec.structs.replace(
        addon.scale_up if addon is not None else ScaleUp(), cron_time_zone=wanted.time_zone
    )
    if found.objects:
        scale_up = msgspec.structs.replace(scale_up, horizontal_node_autoscalers=False)
        warnings.append(
            "scaleUp.horizontalNodeAutoscalers is false, so that the objects do not count in addition to these rules"
        )
    settings = {
        "clusterId": cluster_id,
        "region": wanted.region,
        "projectId": wanted.project_id,
        "credentialsSecret": wanted.credentials_secret,
    }
    policy = Policy(
        name=name,
        kubernetes=KubernetesAccess(kubeconfig_secret=wanted.kubeconfig_secret),
        providers={PROVIDER: {key: value for key, value in settings.items() if value}},
        rules=rules,
        scale_up=scale_up,
    )
    if addon is not None:
        policy = msgspec.structs.replace(policy, options=addon.options, scan_interval=addon.scan_interval)
    return policy, tuple(warnings)


def _addon(sources: tuple[InputFile, ...]) -> AddonSettings | None:
    if not sources:
        return None
    if len(sources) > 1:
        raise BadInput(
            sources[1].place,
            f"holds settings of the add-on, and so does {sources[0].place}",
            "import one cluster at a time",
        )
    settings = read_addon(sources[0].content, sources[0].place)
    return msgspec.structs.replace(settings, cluster_id=sources[0].cluster_id or settings.cluster_id)


def _cluster_id(addon: AddonSettings | None, wanted: Wanted) -> tuple[str, tuple[str, ...]]:
    said = addon.cluster_id if addon is not None else ""
    if wanted.cluster_id and said and wanted.cluster_id != said:
        clash = f"the settings are those of cluster {said}, and --cluster-id says {wanted.cluster_id}"
        return wanted.cluster_id, (clash,)
    return wanted.cluster_id or said, ()
