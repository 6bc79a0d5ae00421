"""Selects the credentials that a pass reads with: those of `observeSecret` where a provider has one, otherwise the ones
for changes.

The planning function reads every cluster and changes nothing, so it should hold no key that permits changes. The
executors use the provider's other credentials and ignore `observeSecret`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from chalicelib.model.policy import Policy

OBSERVE = "observeSecret"

# Provider -> the key that receives the secret, and the keys of the other credentials.
_PLACES: Mapping[str, tuple[str, frozenset[str]]] = MappingProxyType(
    {
        "alicloud": (
            "credentialsSecret",
            frozenset(
                {"roleArn", "oidcProviderArn", "oidcTokenSecret", "oidcTokenFile", "metadataEndpoint", "ramRole"}
            ),
        ),
        "cherryservers": ("credentialsSecret", frozenset()),
        "clusterapi": ("kubeconfigSecret", frozenset()),
        "exoscale": ("credentialsSecret", frozenset()),
        "huaweicloud": ("credentialsSecret", frozenset({"agencyName", "agencyDomain", "agencyDuration"})),
    }
)


def observing(policy: Policy) -> Policy:
    """Return the policy with each provider's read credentials in place of those for changes."""
    providers = {name: _observing(name, settings) for name, settings in policy.providers.items()}
    return msgspec.structs.replace(policy, providers=providers)


def _observing(name: str, settings: dict[str, str]) -> dict[str, str]:
    secret = settings.get(OBSERVE, "")
    if not secret or name not in _PLACES:
        return settings
    key, others = _PLACES[name]
    return {each: text for each, text in settings.items() if each not in others and each != OBSERVE} | {key: secret}
