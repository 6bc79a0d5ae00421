"""The vendor calls that this provider makes; the decisions behind them are in other modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from chalicelib.providers.alicloud.models import (
    Accepted,
    InstanceType,
    LaunchTemplateData,
    ScalingActivity,
    ScalingConfiguration,
    ScalingGroup,
    ScalingInstance,
)
from chalicelib.providers.alicloud.pagination import SIZE, pages_of, read_all, read_named
from chalicelib.providers.alicloud.responses import (
    ActivitiesPage,
    ConfigurationsPage,
    GroupsPage,
    InstancesPage,
    TypesAnswer,
    Version,
    VersionsPage,
    read_each,
    read_groups,
)
from chalicelib.providers.alicloud.rpc_client import Line
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import InvalidRequest, NotFound
from chalicelib.providers.services import Cache

T = TypeVar("T")

IDS = 20  # ids of groups, activities or instances per call
_TYPES = 10  # names of instance types per call
_CONFIGURATIONS = 10  # ids of scaling configurations per call
_LONGEST_TOKEN = 64
_DAY = 86400.0
_UNKNOWN_TYPE = 3600.0  # seconds until an unknown instance type is requested again
_MUTABLE = 300.0  # seconds to cache what can change: a configuration, a template's default version

Params = dict[str, str]


class _TooLong(Exception):
    """The list has more pages than the caller accepts."""


class AlicloudApi:
    """ESS and ECS of one region with one credential, for one pass. Every method raises ProviderError.

    key: maps a kind of item to its row in the shared cache; the row name contains account and region.
    """

    def __init__(
        self,
        region: str,
        ess_line: Line,
        ecs_line: Line,
        *,
        cache: Cache,
        key: Callable[[str], str],
        now: Callable[[], float],
    ) -> None:
        self._region, self._ess, self._ecs = region, ess_line, ecs_line
        self._types = TtlCache(cache, lambda: key("types"), InstanceType, now)
        self._configurations = TtlCache(cache, lambda: key("configurations"), ScalingConfiguration, now)
        self._templates = TtlCache(cache, lambda: key("templates"), LaunchTemplateData, now)

    def groups(self, ids: Sequence[str]) -> dict[str, ScalingGroup]:
        """Return scaling groups by id, 20 ids per call. Unknown groups are absent, since the vendor omits them."""
        found: dict[str, ScalingGroup] = {}
        for lot in _lots(ids, IDS):

            def page(number: int, lot: Sequence[str] = lot) -> tuple[int, list[ScalingGroup]]:
                body = self._ess.call(
                    "DescribeScalingGroups", self._paged(number) | _listed("ScalingGroupIds", lot), GroupsPage
                )
                return body.total_count, read_groups(body.scaling_groups)

            wanted = set(lot)
            found |= {
                each.scaling_group_id: each
                for each in read_named(page, lambda each: each.scaling_group_id)
                if each.scaling_group_id in wanted
            }
        return found

    def expect(self, calls: int) -> None:
        """Announce the number of ESS calls that will follow (rate_limit.py). Sends nothing."""
        self._ess.expect(calls)

    def instances(self, group: str, ids: Sequence[str] = ()) -> list[ScalingInstance]:
        """Return all instances of a group, 50 per page. A failed page fails the whole call, so a list is never partial.

        ids: only these, 20 per call, of the group, or of any group if the group is empty. Unknown instances are absent.
        """
        of_group = {"ScalingGroupId": group} if group else {}
        found: list[ScalingInstance] = []
        for lot in _lots(ids, IDS) or [()]:

            def page(number: int, lot: Sequence[str] = lot) -> tuple[int, list[ScalingInstance]]:
                body = self._ess.call(
                    "DescribeScalingInstances",
                    self._paged(number) | of_group | _listed("InstanceIds", lot),
                    InstancesPage,
                )
                return body.total_count, body.scaling_instances

            found += read_all("DescribeScalingInstances", page, lambda each: each.instance_id)
        wanted = frozenset(ids)
        return [each for each in found if each.instance_id in wanted] if ids else found

    def all_instances(self, most: int) -> list[ScalingInstance] | None:
        """Return all instances of the account in this region over all groups, 50 per page, never a partial list.

        None, after the first page, if the list has more than `most` pages."""

        def page(number: int) -> tuple[int, list[ScalingInstance]]:
            body = self._ess.call("DescribeScalingInstances", self._paged(number), InstancesPage)
            if pages_of(body.total_count) > most:
                raise _TooLong
            return body.total_count, body.scaling_instances

        try:
            return read_all("DescribeScalingInstances", page, lambda each: each.instance_id)
        except _TooLong:
            return None

    def configurations(self, ids: Sequence[str]) -> dict[str, ScalingConfiguration]:
        """Return scaling configurations by id, for all groups at once, cached for 5 min. Unknown ones are absent."""

        def ask(lot: Sequence[str]) -> list[ScalingConfiguration]:
            def page(number: int) -> tuple[int, list[ScalingConfiguration]]:
                body = self._ess.call(
                    "DescribeScalingConfigurations",
                    self._paged(number) | _listed("ScalingConfigurationIds", lot),
                    ConfigurationsPage,
                )
                return body.total_count, read_each(body.scaling_configurations, ScalingConfiguration, _configuration)

            return read_named(page, _configuration)

        return _through(
            self._configurations, ids, ask, _configuration, lot=_CONFIGURATIONS, known=_MUTABLE, unknown=0.0
        )

    def activities(self, group: str, *, ids: Sequence[str] = (), limit: int = 50) -> list[ScalingActivity]:
        """Return the newest activities of a group (one page), newest first, or those with these ids."""
        pages = (
            [self._paged(1) | _listed("ScalingActivityIds", lot) for lot in _lots(ids, IDS)]
            if ids
            else [self._paged(1) | {"ScalingGroupId": group, "PageSize": str(max(1, min(limit, SIZE)))}]
        )
        found = [
            each
            for params in pages
            for each in self._ess.call("DescribeScalingActivities", params, ActivitiesPage).scaling_activities
        ]
        return sorted(found, key=lambda each: each.start_time, reverse=True)

    def instance_types(self, names: Sequence[str]) -> dict[str, InstanceType]:
        """Return instance types by name, 10 per call, cached for 24 h. Unknown ones are absent."""

        def ask(lot: Sequence[str]) -> list[InstanceType]:
            params = {"RegionId": self._region} | _listed("InstanceTypes", lot)
            return read_each(
                self._ecs.call("DescribeInstanceTypes", params, TypesAnswer).instance_types, InstanceType, _type_name
            )

        return _through(self._types, names, ask, _type_name, lot=_TYPES, known=_DAY, unknown=_UNKNOWN_TYPE)

    def launch_template(self, template: str, version: str) -> LaunchTemplateData:
        """Return one version of a launch template; "Default" and "Latest" are versions too. Raises NotFound.

        A numbered version never changes and is cached for 24 h; the others can be changed and are cached for 5 min.
        """
        numbered = version.isascii() and version.isdigit()

        def ask(_: Sequence[str]) -> list[LaunchTemplateData]:
            return [self._version(template, version, numbered=numbered).launch_template_data]

        name = f"{template}/{version}"
        return _through(
            self._templates, [name], ask, lambda _: name, lot=1, known=_DAY if numbered else _MUTABLE, unknown=0.0
        )[name]

    def scale(
        self, group: str, kind: str, value: int, *, token: str, at_once: bool, metadata: Mapping[str, str]
    ) -> Accepted:
        """Call ScaleWithAdjustment.

        kind: TotalCapacity or QuantityChangeInCapacity; token: the ClientToken, at most 64 ASCII characters; at_once:
        SyncActivity."""
        return self._ess.call(
            "ScaleWithAdjustment",
            {
                "RegionId": self._region,
                "ScalingGroupId": group,
                "AdjustmentType": kind,
                "AdjustmentValue": str(value),
                "SyncActivity": _truth(at_once),
                "ActivityMetadata": msgspec.json.encode(metadata, order="deterministic").decode(),
                "ClientToken": _token(token),
            },
            Accepted,
        )

    def set_desired(self, group: str, size: int) -> None:
        """Call ModifyScalingGroup for the desired capacity alone. The number is absolute: a repeated call changes
        nothing. ESS takes no ClientToken and no metadata here, and answers without an activity."""
        self._ess.call(
            "ModifyScalingGroup",
            {"RegionId": self._region, "ScalingGroupId": group, "DesiredCapacity": str(size)},
            Accepted,
        )

    def remove(self, group: str, instances: Sequence[str], *, token: str, decrease: bool = True) -> Accepted:
        """Call RemoveInstances for at most 20 instances, with IgnoreInvalidInstance."""
        if not 1 <= len(instances) <= IDS:
            raise InvalidRequest(f"RemoveInstances: {len(instances)} instances in one call, 1 to {IDS} are allowed")
        return self._ess.call(
            "RemoveInstances",
            {
                "RegionId": self._region,
                "ScalingGroupId": group,
                "DecreaseDesiredCapacity": _truth(decrease),
                "IgnoreInvalidInstance": "true",
                "ClientToken": _token(token),
            }
            | _listed("InstanceIds", instances),
            Accepted,
        )

    def _version(self, template: str, version: str, *, numbered: bool) -> Version:
        """Return the version with this number, the default version, or the one with the highest number."""
        chosen = (
            {"LaunchTemplateVersion.1": version}
            if numbered
            else ({"DefaultVersion": "true"} if version in {"", "Default"} else {})
        )

        def page(number: int) -> tuple[int, list[Version]]:
            body = self._ecs.call(
                "DescribeLaunchTemplateVersions",
                self._paged(number) | {"LaunchTemplateId": template} | chosen,
                VersionsPage,
            )
            return body.total_count, body.launch_template_version_sets

        found = read_named(page, lambda each: str(each.version_number))
        if numbered:
            found = [each for each in found if each.version_number in {0, int(version)}]
        elif chosen:
            found = [each for each in found if each.default_version] or found
        if not found:
            raise NotFound(
                f"launch template {template} has no version {version or 'Default'}",
                code="InvalidLaunchTemplateVersion.NotFound",
            )
        return max(found, key=lambda each: each.version_number)

    def _paged(self, number: int) -> Params:
        return {"RegionId": self._region, "PageNumber": str(number), "PageSize": str(SIZE)}


def _through(
    kept: TtlCache[T],
    names: Sequence[str],
    ask: Callable[[Sequence[str]], list[T]],
    name_of: Callable[[T], str],
    *,
    lot: int,
    known: float,
    unknown: float,
) -> dict[str, T]:
    """Return items by name, from the shared cache or the vendor. known, unknown: seconds to cache found and missing
    items."""
    wanted = list(dict.fromkeys(filter(None, names)))
    found = kept.get(wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        came = {name_of(thing): thing for each in _lots(missing, lot) for thing in ask(each)}
        new = {name: came.get(name) for name in missing}
        kept.put(new, known=known, unknown=unknown)
        found |= new
    return {name: thing for name, thing in found.items() if thing is not None}


def _configuration(configuration: ScalingConfiguration) -> str:
    return configuration.scaling_configuration_id


def _type_name(instance_type: InstanceType) -> str:
    return instance_type.instance_type_id


def _lots(names: Sequence[str], size: int) -> list[Sequence[str]]:
    each = list(dict.fromkeys(names))
    return [each[at : at + size] for at in range(0, len(each), size)]


def _listed(name: str, values: Sequence[str]) -> Params:
    return {f"{name}.{number}": value for number, value in enumerate(values, 1)}


def _truth(value: object) -> str:
    return "true" if value else "false"


def _token(token: str) -> str:
    if not (0 < len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable()):
        raise InvalidRequest("the client token must be 1 to 64 ASCII characters", code="ClientToken")
    return token
