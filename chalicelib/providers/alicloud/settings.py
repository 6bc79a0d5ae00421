"""`providers.alicloud` of the policy (policy/vendors/alicloud.py), the hosts of the services,
the ways to credentials.

The vendor's location service would cost one more call, and upstream can resolve no host when it
fails, so hosts are a table by service and region. HTTPS is always used. The vendor's tables
disagree on a few regions, so each host can be overridden.

Exactly one way to credentials must be configured completely. Upstream takes the first complete set
of settings; an incomplete set falls through to the instance metadata service, whose address does
not respond outside ECS. Here an incomplete set is an error that names what is missing, and the
metadata service is used only if the settings request it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import place_of
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.vendors.alicloud import GROUPS, AlicloudSection
from chalicelib.policy.vendors.settings import typed

PROVIDER = "alicloud"
PLACE = "providers.alicloud"

# -- hosts


class Service(StrEnum):
    """The products that are called, named by the first label of their hosts."""

    ESS = "ess"
    ECS = "ecs"
    STS = "sts"
    VPC = "vpc"


class Network(StrEnum):
    """The network from which they are called."""

    PUBLIC = "public"
    VPC = "vpc"


VERSIONS = {
    Service.ESS: "2022-02-22",
    Service.ECS: "2014-05-26",
    Service.STS: "2015-04-01",
    Service.VPC: "2016-04-28",
}

# Regions that a central host serves on the public network (Alibaba Cloud's list of ESS endpoints).
_ESS_CENTRAL = frozenset(
    {
        "cn-qingdao",
        "cn-beijing",
        "cn-hangzhou",
        "cn-shanghai",
        "cn-shenzhen",
        "cn-hongkong",
        "ap-southeast-1",
        "us-east-1",
        "us-west-1",
        "cn-nanjing",
        "cn-shanghai-finance-1",
        "cn-shenzhen-finance-1",
        "cn-beijing-finance-1",
        "cn-hangzhou-finance",
        "cn-north-2-gov-1",
        "cn-beijing-gov-1",
    }
)
_HANGZHOU = "ecs-cn-hangzhou.aliyuncs.com"
_PINNED: dict[tuple[Service, str], str] = {
    **{(Service.ESS, region): "ess.aliyuncs.com" for region in _ESS_CENTRAL},
    (Service.ECS, "cn-hangzhou"): _HANGZHOU,
    (Service.ECS, "cn-shanghai-finance-1"): _HANGZHOU,
    (Service.ECS, "cn-shenzhen-finance-1"): _HANGZHOU,
    (Service.ECS, "cn-hangzhou-finance"): "ecs.aliyuncs.com",
    (Service.ECS, "cn-north-2-gov-1"): "ecs.aliyuncs.com",
    (Service.ECS, "cn-beijing-gov-1"): "ecs.aliyuncs.com",
}


class Endpoints(msgspec.Struct, frozen=True):
    """overrides: service -> URL of its root, with scheme, without a trailing slash."""

    region: str
    network: Network = Network.PUBLIC
    overrides: dict[Service, str] = {}

    def url(self, service: Service) -> str:
        """Return the service's root, such as `https://ess.aliyuncs.com`."""
        if self.overrides.get(service):
            return self.overrides[service]
        if self.network is Network.VPC:
            return f"https://{service}-vpc.{self.region}.aliyuncs.com"
        return (
            "https://"
            f"{_PINNED.get((service, self.region), f'{service}.{self.region}.aliyuncs.com')}"
        )


# -- credentials


class Way(StrEnum):
    """How credentials are obtained."""

    KEY = "access key"
    ROLE = "role, by access key"
    OIDC = "role, by OIDC token"
    METADATA = "role of an ECS instance"


class Access(msgspec.Struct, frozen=True):
    """The credential settings. They hold names of secrets, never secrets. An
    empty text means "not given"."""

    credentials_secret: str = ""
    role_arn: str = ""
    session_name: str = ""
    oidc_provider_arn: str = ""
    oidc_token_secret: str = ""
    oidc_token_file: str = ""
    metadata_endpoint: str = ""
    ram_role: str = ""

    @property
    def by_oidc(self) -> bool:
        """Whether any OIDC setting is given."""
        return bool(self.oidc_provider_arn or self.oidc_token_secret or self.oidc_token_file)

    @property
    def by_metadata(self) -> bool:
        """Whether the settings request the metadata service."""
        return bool(self.metadata_endpoint or self.ram_role)


def way_of(access: Access, *, key_id: bool, key_secret: bool, token: bool) -> Way:
    """Return the one method that is configured. key_id, key_secret, token: contents of the secret.
    Raises BadInput naming what is missing, or if two methods are configured."""
    by_key = key_id or key_secret or token
    methods = {
        "an access key": by_key,
        "OIDC": access.by_oidc,
        "instance metadata": access.by_metadata,
    }
    configured = [name for name, is_configured in methods.items() if is_configured]
    if len(configured) > 1:
        raise BadInput(
            PLACE, f"names two ways to credentials: {' and '.join(configured)}", "keep one of them"
        )
    if access.by_oidc:
        how_to_name_it = (
            "name the secret that holds the token (or oidcTokenFile, a file of this machine)"
        )
        for field, value, remedy in (
            ("oidcProviderArn", access.oidc_provider_arn, "add oidcProviderArn"),
            ("roleArn", access.role_arn, "add roleArn"),
            ("oidcTokenSecret", access.oidc_token_secret or access.oidc_token_file, how_to_name_it),
        ):
            if not value:
                raise BadInput(
                    f"{PLACE}.{field}", "is missing, and credentials by OIDC need it", remedy
                )
        return Way.OIDC
    if access.by_metadata:
        return Way.METADATA
    secret = (
        place_of(access.credentials_secret)
        if access.credentials_secret
        else f"{PLACE}.credentialsSecret"
    )
    if not by_key:
        raise BadInput(
            secret,
            "holds no access key"
            if access.credentials_secret
            else "is missing, and no other credentials are named",
            (
                "name a secret with accessKeyId and accessKeySecret, or give oidcProviderArn, "
                "roleArn and oidcTokenSecret"
            ),
        )
    for present, field in ((key_id, "accessKeyId"), (key_secret, "accessKeySecret")):
        if not present:
            raise BadInput(secret, f"{field} is missing", f"add {field} to it")
    return Way.ROLE if access.role_arn else Way.KEY


def check_access(access: Access) -> None:
    """Run the checks that are possible before the secret is read. Raises BadInput."""
    if access.oidc_token_secret and access.oidc_token_file:
        raise BadInput(
            f"{PLACE}.oidcTokenFile", "conflicts with oidcTokenSecret", "keep one of the two"
        )
    if not access.credentials_secret:
        way_of(access, key_id=False, key_secret=False, token=False)


# -- settings


class AlicloudSettings(AlicloudSection, frozen=True):
    """The settings of the policy; calls_per_second is per account, region and product."""

    @property
    def endpoints(self) -> Endpoints:
        """The hosts of the services."""
        roots = {
            Service.ESS: self.ess_endpoint,
            Service.ECS: self.ecs_endpoint,
            Service.STS: self.sts_endpoint,
            Service.VPC: self.vpc_endpoint,
        }
        overrides = {service: url for service, url in roots.items() if url}
        return Endpoints(self.region, Network(self.network), overrides)

    @property
    def access(self) -> Access:
        """The settings about credentials."""
        return Access(*(getattr(self, name) for name in Access.__struct_fields__))


def read_settings(
    settings: Mapping[str, str], entries: Iterable[GroupPolicy] = ()
) -> AlicloudSettings:
    """Return the settings of a policy's texts and of its entries of nodeGroups. Raises BadInput, or
    InputErrors for several mistakes."""

    def check(given: Mapping[str, Any]) -> None:
        check_access(Access(*(given.get(name, "") for name in Access.__struct_fields__)))

    return typed(AlicloudSettings, settings, (check,), GROUPS, entries)
