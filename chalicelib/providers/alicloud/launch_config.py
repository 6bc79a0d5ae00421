"""Reads the launch source of a scaling group: a scaling configuration or a launch template.

Both seldom change. api.py caches them for a few minutes for all functions, so an idle pass requests only groups and
instances.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.models import LaunchTemplateData, ScalingConfiguration, ScalingGroup, Tag
from chalicelib.providers.errors import ProviderError, Throttled, Unauthorized


class Blueprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """types: instance types in order of preference; disk: GiB; problem: why the launch source is unknown."""

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
    """Return the blueprints by group. Never raises: a group whose blueprint cannot be read has one with a problem."""
    sources = {group.scaling_group_id: source_of(group) for group in groups}
    found = _read(api, sorted({source for source in sources.values() if source}))
    return {group: found.get(source, _NOTHING) for group, source in sources.items()}


def source_of(group: ScalingGroup) -> str:
    """Return `asc-…` or `lt-…@version`; empty if the group has neither.

    The launch template takes precedence, as at ESS, where a group with a launch template has no active configuration.
    """
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
        if stopped:  # a refusal or throttling applies to all remaining requests
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


def _of_configuration(configuration: ScalingConfiguration) -> Blueprint:
    types = tuple(
        dict.fromkeys(each for each in (*(configuration.instance_types or ()), configuration.instance_type) if each)
    )
    return Blueprint(types, configuration.system_disk_size, configuration.spot_strategy, _pairs(configuration.tags))


def _of_launch_template(template: LaunchTemplateData) -> Blueprint:
    types = (template.instance_type,) if template.instance_type else ()
    return Blueprint(types, template.system_disk_size, template.spot_strategy, _pairs(template.tags))


def _pairs(tags: Iterable[Tag] | None) -> tuple[tuple[str, str], ...]:
    return tuple(tag.pair for tag in tags or () if tag.pair[0])
