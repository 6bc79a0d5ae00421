"""Builds the policy's node groups from ESS responses.

An idle pass reads the groups, twenty per call, and each group's instances, fifty per call, or the instances of the
whole account if that takes fewer calls (bulk_read.py). Activities are read only where machines are missing. A group
that cannot be read carries its error and does not affect the others. After throttling or a refusal the remaining
requests are not sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.group import GroupOptions, Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.vendors.alicloud import AlicloudBounds
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.bulk_read import Asking, read_groups, read_instances
from chalicelib.providers.alicloud.instances import classify, placeholders, unremovable
from chalicelib.providers.alicloud.launch_config import Blueprint, read_blueprints
from chalicelib.providers.alicloud.models import InstanceType, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.node_template import candidates, make_template
from chalicelib.providers.alicloud.pagination import SIZE
from chalicelib.providers.alicloud.provider_ids import AlicloudGroupNames
from chalicelib.providers.alicloud.scaling_activities import last_failure
from chalicelib.providers.alicloud.settings import PROVIDER, AlicloudSettings
from chalicelib.providers.alicloud.size_bounds import held, occupied, off, range_of, target_of
from chalicelib.providers.alicloud.template_tags import read_tags
from chalicelib.providers.base import Observation
from chalicelib.providers.errors import ProviderError

_SHOWN = 5


def observe(api: AlicloudApi, settings: AlicloudSettings, nodes: Sequence[Node]) -> Observation:
    """Return all groups of the policy, in its order; raises ProviderError if no group can be read."""
    names = AlicloudGroupNames(nodes, settings.region)
    asking = Asking()
    found, unread = read_groups(api, asking, [each.id for each in settings.groups], len(names) // SIZE)
    usable = [group for group in found.values() if group.group_type in {"", "ECS"} and not group.problem]
    blueprints = read_blueprints(api, usable)
    maker = _AlicloudGroupBuilder(api, asking, settings, names, blueprints, read_instances(api, asking, usable))
    maker.know_types(usable)
    groups = tuple(
        maker.broken(bounds, unread[bounds.id]) if bounds.id in unread else maker.make(bounds, found.get(bounds.id))
        for bounds in settings.groups
    )
    return Observation(groups, tuple(maker.gaps))


class _AlicloudGroupBuilder:
    """Builds one group after another and collects the gaps."""

    def __init__(
        self,
        api: AlicloudApi,
        asking: Asking,
        settings: AlicloudSettings,
        names: AlicloudGroupNames,
        blueprints: Mapping[str, Blueprint],
        listed: Mapping[str, list[ScalingInstance]],
    ) -> None:
        self._api, self._asking, self._settings, self._listed = api, asking, settings, listed
        self._names, self._blueprints = names, blueprints
        self._types: dict[str, InstanceType] = {}
        self._types_problem = ""
        self.gaps: list[MissingData] = []

    def know_types(self, groups: Sequence[ScalingGroup]) -> None:
        """Read the instance types of all groups at once."""
        names = {name for group in groups for name in candidates(group, self._blueprints[group.scaling_group_id])}
        try:
            self._types = self._api.instance_types(sorted(names)) if names else {}
        except ProviderError as error:
            self._types_problem = f"instance types could not be read: {error.message}"

    def make(self, bounds: AlicloudBounds, group: ScalingGroup | None) -> NodeGroup:
        """Build the node group of one policy entry, whatever the state of its scaling group."""
        if group is None:
            return self.broken(
                bounds,
                (
                    f"there is no scaling group {bounds.id} in {self._settings.region} "
                    f"(ESS does not list inactive ones "
                    "either); check the id and the region, or take it out of the policy"
                ),
            )
        if group.problem or group.group_type not in {"", "ECS"}:
            return self.broken(bounds, off(group))
        try:
            instances = self._instances(bounds.id)
        except ProviderError as error:
            return msgspec.structs.replace(
                self.broken(bounds, f"its instances could not be read: {error.error_class}: {error.message}"),
                target=target_of(group),
            )
        return self._group(bounds, group, instances)

    def broken(self, bounds: AlicloudBounds, error: str) -> NodeGroup:
        """Build the node group of an entry about which nothing more is known."""
        return NodeGroup(
            id=bounds.id, provider=PROVIDER, min=bounds.min, max=bounds.max, error=error, priority=bounds.priority
        )

    def _instances(self, group: str) -> list[ScalingInstance]:
        return self._listed[group] if group in self._listed else self._asking.ask(lambda: self._api.instances(group))

    def _group(self, bounds: AlicloudBounds, group: ScalingGroup, instances: list[ScalingInstance]) -> NodeGroup:
        within = range_of(bounds, group)
        for text in (within.doubt, self._kept(instances)):
            if text:
                self._warn(bounds.id, text)
        template, options, problem = self._template(group, instances)
        return NodeGroup(
            id=bounds.id,
            provider=PROVIDER,
            min=within.min,
            max=within.max,
            target=target_of(group),
            instances=(*classify(instances, self._names), *self._missing(group, instances)),
            template=template,
            template_error=problem,
            error=off(group) or within.error,
            options=options,
            priority=bounds.priority,
            scale_down_held=held(group),
        )

    def _missing(self, group: ScalingGroup, instances: list[ScalingInstance]) -> tuple[Instance, ...]:
        """Return placeholders for instances that are desired, do not exist and are known to have failed.

        Instances below the group's own minimum get none, because the desired capacity cannot be lowered for them."""
        there = max(occupied(group, instances), group.min_size)
        missing = group.desired_capacity - there if group.enable_desired_capacity else 0
        if missing <= 0:
            return ()
        try:
            error = last_failure(self._api.activities(group.scaling_group_id))
        except ProviderError as trouble:
            self._warn(group.scaling_group_id, f"why machines are missing could not be read: {trouble.message}")
            return ()
        return placeholders(self._settings.region, group.scaling_group_id, missing, error) if error else ()

    def _template(self, group: ScalingGroup, instances: list[ScalingInstance]) -> tuple[Node | None, GroupOptions, str]:
        name = group.scaling_group_id
        blueprint = self._blueprints[name]
        said = read_tags((tag.pair for tag in group.tags or ()), blueprint.tags)
        made = make_template(
            group, instances, blueprint, said, self._types, self._settings.region, self._settings.reserve
        )
        for warning in (*said.warnings, *made.warnings):
            self._warn(name, warning)
        problem = self._types_problem if made.problem and candidates(group, blueprint) else ""
        return made.node, said.options, problem or made.problem

    def _kept(self, instances: list[ScalingInstance]) -> str:
        """Describe the instances that scale-down cannot remove, so that a warning precedes the attempt; empty if
        none."""
        kept = sorted(each.instance_id for each in instances if unremovable(each))
        more = ", …" if len(kept) > _SHOWN else ""
        return f"protected or attached manually, so not removed: {', '.join(kept[:_SHOWN])}{more}" if kept else ""

    def _warn(self, group: str, detail: str) -> None:
        self.gaps.append(
            MissingData("NodeGroup", detail, name=group, place=f"spec.nodeGroups[provider={PROVIDER}, id={group}]")
        )
