"""The form of each secret that a policy may name, by the key that names it: what its user parses it as.

Several keys share a use in the names of secrets (a watcher's key and a kubeconfig, for example), so the use does not
say what a secret is.
"""

from __future__ import annotations

from chalicelib.kube.kubeconfig import from_kubeconfig
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from chalicelib.notify.webhook import signature
from chalicelib.providers.alicloud import credentials as alicloud
from chalicelib.providers.cherryservers import tokens
from chalicelib.providers.cherryservers.definition_reader import from_gcfg
from chalicelib.providers.exoscale import credentials as exoscale
from chalicelib.providers.huaweicloud import credentials as huaweicloud
from chalicelib.runtime.webhook_signature import read_keys
from chalicelib.snapshot.list_archive import watcher_key
from collections.abc import Callable
from collections.abc import Mapping
from types import MappingProxyType


Form = Callable[[Policy, str, str], object]
"""(policy, text, place for messages) -> what is parsed; raises BadInput that quotes no part of the text."""


def _kubeconfig(context: Callable[[Policy], str]) -> Form:
    def parse(policy: Policy, text: str, place: str) -> object:
        insecure = policy.kubernetes.allow_insecure_tls
        return from_kubeconfig(text, context=context(policy), place=place, allow_insecure_tls=insecure)

    return parse


def _plain(parse: Callable[[str, str], object]) -> Form:
    return lambda _, text, place: parse(text, place)


def _watcher(policy: Policy, text: str, place: str) -> object:
    del place
    return watcher_key(policy.name, text, policy.options.namespace)


def _notices(policy: Policy, text: str, place: str) -> object:
    del policy
    try:
        return signature(text, "", "", b"")
    except ValueError:
        raise BadInput(place, "is neither text nor whsec_ and base64", "store it as the receiver gave it") from None


_MANAGEMENT = _kubeconfig(lambda policy: policy.providers["clusterapi"].get("context", ""))
FORMS: Mapping[tuple[str, ...], Form] = MappingProxyType(
    {
        ("kubernetes", "kubeconfigSecret"): _kubeconfig(lambda policy: policy.kubernetes.context),
        # The context is that of the other kubeconfig, where there is one.
        ("kubernetes", "inClusterKubeconfigSecret"): _kubeconfig(
            lambda policy: "" if policy.kubernetes.has_own_way else policy.kubernetes.context
        ),
        ("kubernetes", "watcherSecret"): _watcher,
        ("providers", "clusterapi", "kubeconfigSecret"): _MANAGEMENT,
        ("providers", "clusterapi", "observeSecret"): _MANAGEMENT,
        ("providers", "alicloud", "credentialsSecret"): _plain(alicloud.parse_secret),
        ("providers", "alicloud", "observeSecret"): _plain(alicloud.parse_secret),
        ("providers", "alicloud", "oidcTokenSecret"): _plain(alicloud.parse_oidc_token),
        ("providers", "cherryservers", "credentialsSecret"): _plain(tokens.parse_api_token),
        ("providers", "cherryservers", "observeSecret"): _plain(tokens.parse_api_token),
        ("providers", "cherryservers", "cloudConfigSecret"): _plain(from_gcfg),
        ("providers", "cherryservers", "bootstrapTokenSecret"): _plain(tokens.parse_token),
        ("providers", "exoscale", "credentialsSecret"): _plain(exoscale.parse_secret),
        ("providers", "exoscale", "observeSecret"): _plain(exoscale.parse_secret),
        ("providers", "huaweicloud", "credentialsSecret"): _plain(huaweicloud.parse_secret),
        ("providers", "huaweicloud", "observeSecret"): _plain(huaweicloud.parse_secret),
        ("webhook", "secret"): _plain(read_keys),
        ("notifications", "webhook", "secret"): _notices,
    }
)
