"""What a scaling group makes its machines from: a scaling configuration or a launch template (alicloud.md §3.6).

Both seldom change, and api.py keeps them for some minutes for all functions, so that a quiet pass asks for groups and
instances and for nothing else (defect 14).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.models import LaunchTemplateData, ScalingConfiguration, ScalingGroup, Tag
from chalicelib.providers.errors import ProviderError, Throttled, Unauthorized


class Blueprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """types: instance types in order of preference; disk: GiB. problem: why there is none."""

    types: tuple[str, ...] = ()
    disk: int = 0
    spot: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    problem: str = ""


_NOTHING = Blueprint(
    problem="the scaling group has neither a scaling configuration nor a launch template; give it one "
    "and make it active"
)


def read_blueprints(api: AlicloudApi, groups: Iterable[ScalingGroup]) -> dict[str, Blueprint]:
    """By group. Never raises: a group whose blueprint cannot be read has one with a problem."""
    sources = {group.scaling_group_id: source_of(group) for group in groups}
    found = _read(api, sorted({source for source in sources.values() if source}))
    return {group: found.get(source, _NOTHING) for group, source in sources.items()}


def source_of(group: ScalingGroup) -> str:
    """`asc-…` or `lt-…@version`; empty where the group has neither. The launch template wins, as it does at ESS, which
    knows no active configuration beside it."""
    if group.launch_template_id:
        return f"{group.launch_template_id}@{group.launch_template_version or 'Default'}"
    return group.active_scaling_configuration_id


def _read(api: AlicloudApi, wanted: list[str]) -> dict[str, Blueprint]:
    plain = [source for source in wanted if "@" not in source]
    found: dict[str, Blueprint] = {}
    try:
        configurations = api.configurations(plain) if plain else {}
        missing = Blueprint(problem="its scaling configuration does not exist")
        found = {name: _of_configuration(configurations[name]) if name in configurations else missing for name in plain}
    except ProviderError as error:
        found = dict.fromkeys(plain, Blueprint(problem=f"its scaling configuration could not be read: {error.message}"))
    stopped = ""
    for source in (each for each in wanted if "@" in each):
        template, _, version = source.partition("@")
        if stopped:  # who is refused or throttled now is so for all of them
            found[source] = Blueprint(problem=stopped)
            continue
        try:
            found[source] = _of_launch_template(api.launch_template(template, version))
        except ProviderError as error:
            problem = f"launch template {template} ({version}) could not be read: {error.message}"
            found[source] = Blueprint(problem=problem)
            refused = isinstance(error, Throttled | Unauthorized)
            stopped = f"launch templates could not be read: {error.message}" if refused else ""
    return found


def _of_configuration(found: ScalingConfiguration) -> Blueprint:
    types = tuple(dict.fromkeys(each for each in (*(found.instance_types or ()), found.instance_type) if each))
    return Blueprint(types, found.system_disk_size, found.spot_strategy, _pairs(found.tags))


def _of_launch_template(found: LaunchTemplateData) -> Blueprint:
    types = (found.instance_type,) if found.instance_type else ()
    return Blueprint(types, found.system_disk_size, found.spot_strategy, _pairs(found.tags))


def _pairs(tags: Iterable[Tag] | None) -> tuple[tuple[str, str], ...]:
    return tuple(tag.pair for tag in tags or () if tag.pair[0])
