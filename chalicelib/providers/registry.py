"""Builds providers by their names in the policy.

Each package is imported only when its provider is requested: a function that acts on one cloud
must not load the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from chalicelib.model.errors import BadInput, InputErrors, OutscalerError
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.model.secret import place_of
from chalicelib.net.vendor_hosts import mistakes as not_permitted
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.services import ProviderServices

_NAMES = ("alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud")


def _make(name: str, connection: Connection) -> Provider:
    match name:
        case "alicloud":
            from chalicelib.providers.alicloud import provider as alicloud

            return alicloud.build(connection)
        case "cherryservers":
            from chalicelib.providers.cherryservers import provider as cherryservers

            return cherryservers.build(connection)
        case "clusterapi":
            from chalicelib.providers.clusterapi import provider as clusterapi

            return clusterapi.build(connection)
        case "exoscale":
            from chalicelib.providers.exoscale import provider as exoscale

            return exoscale.build(connection)
        case "huaweicloud":
            from chalicelib.providers.huaweicloud import provider as huaweicloud

            return huaweicloud.build(connection)
    raise BadInput(
        f"providers.{name}", f"{name!r} is not a provider", f"available: {', '.join(_NAMES)}"
    )


def _useless_settings(name: str, connection: Connection) -> tuple[BadInput, ...]:
    """Return the errors in settings with which a provider can be built but cannot work. At run time
    they affect only their own pool; when the policy is validated they are an error."""
    if name == "cherryservers":
        from chalicelib.policy.vendors.cherryservers import read_settings
        from chalicelib.providers.cherryservers import definition_reader

        managed = bool(connection.pools)
        settings = read_settings(connection.settings, connection.groups, managed=managed)
        return definition_reader.mistakes(settings)
    if name == "clusterapi":
        from chalicelib.providers.clusterapi import provider as clusterapi

        return clusterapi.mistakes(connection)
    return ()


def names() -> tuple[str, ...]:
    """Return the providers that can be built, sorted."""
    return _NAMES


def build(name: str, connection: Connection) -> Provider:
    """Return the provider of that name for one pass. Raises BadInput for a name that cannot be
    built, for invalid settings, and for what the deployment does not permit, regardless of
    earlier checks of the settings."""
    if name in _NAMES and (refused := _not_permitted(name, connection)):
        raise InputErrors(refused)
    return _make(name, connection)


def _not_permitted(name: str, connection: Connection) -> tuple[BadInput, ...]:
    return tuple(
        BadInput(f"providers.{name}.{key}", problem, remedy)
        for key, problem, remedy in not_permitted(
            name, connection.settings, connection.means.deployment
        )
    )


def mistakes(policy: Policy, deployment: Deployment = STRICT) -> tuple[BadInput, ...]:
    """Return the errors that providers find in a policy, for validation before it is applied. Only
    the provider knows which settings are valid together. Nothing is read or sent; a provider that
    is not part of this version is not checked."""
    services = ProviderServices(deployment=deployment)
    errors: list[BadInput] = []
    for name in sorted(policy.providers.keys() & set(_NAMES)):
        connection = _connection(policy, name, object(), _unread, lambda: 0.0, services)
        errors.extend(_not_permitted(name, connection))
        for check in (_make, _useless_settings):
            for error in _refused(check, name, connection):
                if (error.place, error.problem) not in {
                    (known.place, known.problem) for known in errors
                }:
                    errors.append(error)
    return tuple(errors)


def _refused(
    check: Callable[[str, Connection], object], name: str, connection: Connection
) -> tuple[BadInput, ...]:
    """Return the errors that the call raises or returns; a provider that
    was built is not an error."""
    try:
        result = check(name, connection)
    except InputErrors as several:
        return several.problems
    except BadInput as mistake:
        return (mistake,)
    return result if isinstance(result, tuple) else ()


def _unread(name: str) -> str:
    raise OutscalerError(f"{place_of(name)} is not read here")


def _connection(
    policy: Policy,
    name: str,
    kube: object | None,
    read_secret: Callable[[str], str],
    now: Callable[[], float],
    services: ProviderServices,
) -> Connection:
    groups = tuple(group for group in policy.node_groups if group.provider == name)
    settings = policy.providers[name]
    pools = tuple(pool for pool in policy.managed_pools if pool.provider == name)
    currency = policy.prices.currency if policy.prices is not None else ""
    return Connection(
        policy.name,
        settings,
        groups,
        read_secret,
        kube,
        now,
        policy.kubernetes,
        services,
        pools,
        currency,
    )


def providers(
    policy: Policy,
    kube: object | None,
    read_secret: Callable[[str], str],
    now: Callable[[], float],
    services: ProviderServices | None = None,
) -> tuple[Provider, ...]:
    """Return all providers that a policy names, by name, for one pass. A stand-in replaces a
    provider that cannot be built, which then does not affect the others."""
    services = services or ProviderServices()
    built: list[Provider] = []
    for name in sorted(policy.providers):
        try:
            built.append(build(name, _connection(policy, name, kube, read_secret, now, services)))
        except OutscalerError as error:
            built.append(UnavailableProvider(name, str(error).splitlines()[0]))
    return tuple(built)


class UnavailableProvider:
    """A stand-in for a provider that could not be built: wrong settings, no credential, or not part
    of this version. It answers every call with the same error, so it is handled like any
    failing provider: its groups are reported as missing data, where the configuration error would
    otherwise abort the whole pass. why: the reason in one line, safe to show."""

    def __init__(self, name: str, why: str) -> None:
        self._name, self._why = name, why

    @property
    def name(self) -> str:
        """The provider's name in the policy."""
        return self._name

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InvalidRequest(f"provider {self._name}: {self._why}", code="NotBuilt")

    observe = scale_up = has_requested = delete_nodes = cancel_delete = decrease_target = poll = (
        _refuse
    )
    catalogue = _refuse
