"""`providers.alicloud` of the policy (policy/vendors/alicloud.py) with the provider's hosts and credentials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.model.policy import GroupPolicy
from chalicelib.policy.vendors.alicloud import GROUPS, AlicloudSection
from chalicelib.policy.vendors.settings import typed
from chalicelib.providers.alicloud.credentials import Access, check_access
from chalicelib.providers.alicloud.endpoints import Endpoints, Network, Service

PROVIDER = "alicloud"


class AlicloudSettings(AlicloudSection, frozen=True):
    """The settings of the policy; calls_per_second is per account, region and product."""

    @property
    def endpoints(self) -> Endpoints:
        """The hosts of the services."""
        roots = {Service.ESS: self.ess_endpoint, Service.ECS: self.ecs_endpoint, Service.STS: self.sts_endpoint}
        overrides = {service: url for service, url in roots.items() if url}
        return Endpoints(self.region, Network(self.network), overrides)

    @property
    def access(self) -> Access:
        """The settings about credentials."""
        return Access(*(getattr(self, name) for name in Access.__struct_fields__))


def read_settings(settings: Mapping[str, str], entries: Iterable[GroupPolicy] = ()) -> AlicloudSettings:
    """Return the settings of a policy's texts and of its entries of nodeGroups. Raises BadInput, or InputErrors for
    several mistakes."""
    return typed(AlicloudSettings, settings, (_check_credentials,), GROUPS, entries)


def _check_credentials(given: Mapping[str, Any]) -> None:
    check_access(Access(*(given.get(name, "") for name in Access.__struct_fields__)))
