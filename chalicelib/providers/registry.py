"""Builds providers by their names in the policy.

Each package is imported only when its provider is requested: a function that acts on one cloud must not load the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from chalicelib.model.errors import BadInput, InputErrors, OutscalerError
from chalicelib.model.policy import Policy
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.model.secret import place_of
from chalicelib.model.vendor_hosts import mistakes as not_permitted
from chalicelib.providers.base import Connection, Provider
from chalicelib.providers.services import ProviderServices
from chalicelib.providers.unavailable import UnavailableProvider


def _clusterapi(connection: Connection) -> Provider:
    from chalicelib.providers.clusterapi.provider import build as make

    return make(connection)


def _alicloud(connection: Connection) -> Provider:
    from chalicelib.providers.alicloud.provider import build as make

    return make(connection)


def _cherryservers(connection: Connection) -> Provider:
    from chalicelib.providers.cherryservers.provider import build as make

    return make(connection)


def _exoscale(connection: Connection) -> Provider:
    from chalicelib.providers.exoscale.provider import build as make

    return make(connection)


def _huaweicloud(connection: Connection) -> Provider:
    from chalicelib.providers.huaweicloud.provider import build as make

    return make(connection)


_AVAILABLE: Mapping[str, Callable[[Connection], Provider]] = MappingProxyType(
    {
        "alicloud": _alicloud,
        "cherryservers": _cherryservers,
        "clusterapi": _clusterapi,
        "exoscale": _exoscale,
        "huaweicloud": _huaweicloud,
    }
)


def _cherryservers_definitions(connection: Connection) -> tuple[BadInput, ...]:
    from chalicelib.policy.vendors.cherryservers import read_settings
    from chalicelib.providers.cherryservers.definition_reader import mistakes as found

    return found(read_settings(connection.settings, connection.groups))


def _clusterapi_names(connection: Connection) -> tuple[BadInput, ...]:
    from chalicelib.providers.clusterapi.provider import mistakes as found

    return found(connection)


# Settings with which a provider can be built but cannot work. At run time they affect only their own pool; when the
# policy is validated they are an error.
_LOOKED_AT: Mapping[str, Callable[[Connection], tuple[BadInput, ...]]] = MappingProxyType(
    {"cherryservers": _cherryservers_definitions, "clusterapi": _clusterapi_names}
)


def names() -> tuple[str, ...]:
    """Return the providers that can be built, sorted."""
    return tuple(sorted(_AVAILABLE))


def build(name: str, connection: Connection) -> Provider:
    """Return the provider of that name for one pass.

    Raises BadInput for a name that cannot be built, for invalid settings, and for what the deployment does not permit,
    regardless of earlier checks of the settings."""
    make = _AVAILABLE.get(name)
    if make is None:
        raise BadInput(f"providers.{name}", f"{name!r} is not a provider", f"available: {', '.join(names())}")
    if refused := _not_permitted(name, connection):
        raise InputErrors(refused)
    return make(connection)


def _not_permitted(name: str, connection: Connection) -> tuple[BadInput, ...]:
    return tuple(
        BadInput(f"providers.{name}.{key}", problem, remedy)
        for key, problem, remedy in not_permitted(name, connection.settings, connection.means.deployment)
    )


def mistakes(policy: Policy, deployment: Deployment = STRICT) -> tuple[BadInput, ...]:
    """Return the errors that providers find in a policy, for validation before it is applied.

    Only the provider knows which settings are valid together. Nothing is read or sent; a provider that is not part of
    this version is not checked."""
    means = ProviderServices(deployment=deployment)
    found: list[BadInput] = []
    for name in sorted(policy.providers.keys() & _AVAILABLE.keys()):
        groups = tuple(group for group in policy.node_groups if group.provider == name)
        connection = Connection(
            policy.name, policy.providers[name], groups, _unread, object(), lambda: 0.0, policy.kubernetes, means
        )
        found.extend(_not_permitted(name, connection))
        for look in (_AVAILABLE[name], _LOOKED_AT.get(name)):
            found.extend(
                each
                for each in _refused(look, connection)
                if (each.place, each.problem) not in {(known.place, known.problem) for known in found}
            )
    return tuple(found)


def _refused(look: Callable[[Connection], object] | None, connection: Connection) -> tuple[BadInput, ...]:
    """Return the errors that the call raises or returns; a provider that was built is not an error."""
    try:
        found = look(connection) if look is not None else ()
    except InputErrors as several:
        return several.problems
    except BadInput as mistake:
        return (mistake,)
    return found if isinstance(found, tuple) else ()


def _unread(name: str) -> str:
    raise OutscalerError(f"{place_of(name)} is not read here")


def providers(
    policy: Policy,
    kube: object | None,
    read_secret: Callable[[str], str],
    now: Callable[[], float],
    services: ProviderServices | None = None,
) -> tuple[Provider, ...]:
    """Return all providers that a policy names, by name, for one pass.

    A provider that cannot be built is replaced by a stand-in (unavailable.py) and does not affect the others."""
    made, services = [], services or ProviderServices()
    for name, settings in sorted(policy.providers.items()):
        groups = tuple(group for group in policy.node_groups if group.provider == name)
        made.append(
            _built(name, Connection(policy.name, settings, groups, read_secret, kube, now, policy.kubernetes, services))
        )
    return tuple(made)


def _built(name: str, connection: Connection) -> Provider:
    try:
        return build(name, connection)
    except OutscalerError as error:
        return UnavailableProvider(name, str(error).splitlines()[0])
