"""Decides which secrets a cluster may use: those whose names begin with the deployment's prefix,
the cluster, and the use. Selects the credentials that a pass reads with.

The functions may read every secret of the deployment, and a policy names the ones to read. A secret
therefore belongs to a cluster by its name alone: `<prefix><cluster>/<use>`, where the use says
which key of the policy may name it. A name may continue after the use with `-`, `.` or `/`. The
deployment lists secrets that several clusters share.

The functions' roles identify a secret by its use, wherever the use stands between slashes. No
later part of a name may therefore begin with another use, because functions for that use
could read the secret, too.

A secret may also be an SSM parameter. Its name here is `ssm:/`, followed by what the name of a
secret would be; the same rules apply to that part.

Only names are accepted, no ARNs: an ARN may refer to another region or account and ends in
characters that the name does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import SECRET_PREFIX, SHARED_SECRETS, Deployment
from chalicelib.model.secret import PARAMETER, place_of
from chalicelib.net.vendor_hosts import VENDORS
from chalicelib.policy.settings.cluster_policy import Policy

KUBECONFIG, WEBHOOK, NOTIFICATIONS = "kubeconfig", "webhook", "notifications"
USES = (KUBECONFIG, WEBHOOK, NOTIFICATIONS, *VENDORS)
"""Uses of a role: the first words of the patterns in the functions' policies."""

# no slash, so a name cannot extend into another one
_CLUSTER = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_CHARACTERS = re.compile(r"[A-Za-z0-9/_+=.@-]{1,512}\Z")
# no colon: no version, and no label
_OF_PARAMETERS = re.compile(r"[A-Za-z0-9_.-][A-Za-z0-9/_.-]{0,511}\Z")
_FURTHER = ("-", ".", "/")  # separators permitted after the use


def problem(name: str, cluster: str, uses: tuple[str, ...], deployment: Deployment) -> str:
    """Return why this cluster may not use the secret of that name for one of
    these uses; empty if it may."""
    if why := never(name, uses):
        return why
    path = name.removeprefix(PARAMETER)
    if other := _another_use(path.removeprefix(deployment.secret_prefix), uses):
        return f"has a part that begins with {other}, so functions for {other} could read it too"
    own = f"{deployment.secret_prefix}{cluster}/"
    if _CLUSTER.match(cluster) and path.startswith(own) and _is_for(path.removeprefix(own), uses):
        return ""
    if name in deployment.shared_secrets:
        return ""
    return (
        f"is not a secret of cluster {cluster} for {' or '.join(uses)}, nor one that the "
        "deployment shares"
    )


def never(name: str, uses: tuple[str, ...]) -> str:
    """Return why no deployment would let any cluster use the secret of that name for one of
    these uses; empty if one may."""
    path = name.removeprefix(PARAMETER)
    characters = _CHARACTERS if path == name else _OF_PARAMETERS
    if not characters.match(path) or ".." in path:
        return (
            "is not the name of a cluster's own secret: it is an ARN or contains invalid characters"
        )
    parts = path.split("/")
    if not any(_is_for("/".join(parts[at:]), uses) for at in range(len(parts))):
        return f"is not the name of a secret for {' or '.join(uses)}"
    return ""


def remedy(cluster: str, uses: tuple[str, ...], deployment: Deployment) -> str:
    """Return the form that the name must have."""
    return (
        f"name it {deployment.secret_prefix}{cluster}/{uses[0]}, or have the deployment list it in "
        f"{SHARED_SECRETS} (its {SECRET_PREFIX} is {deployment.secret_prefix!r})"
    )


def _is_for(rest: str, uses: tuple[str, ...]) -> bool:
    return any(
        rest == use or rest.startswith(tuple(use + further for further in _FURTHER)) for use in uses
    )


def _another_use(rest: str, uses: tuple[str, ...]) -> str:
    """Return the first use outside `uses` with which a part after a slash begins; empty if there is
    none. rest: the name without the deployment's prefix."""
    parts = rest.split("/")[1:]
    return next(
        (use for use in USES if use not in uses and any(part.startswith(use) for part in parts)), ""
    )


class ClusterSecrets:
    """Reads the secrets of one cluster for certain uses, and refuses every other
    name before any call to AWS.

    read: secret name -> text; if it also has `fresh(name)`, that is used, too. Raises BadInput for
    a name that does not belong to the cluster, otherwise what `read` raises. All secrets of a
    cluster are read through this class.
    """

    def __init__(
        self,
        read: Callable[[str], str],
        cluster: str,
        uses: tuple[str, ...],
        deployment: Deployment,
    ) -> None:
        self._read, self._cluster, self._uses, self._deployment = read, cluster, uses, deployment

    def __call__(self, name: str) -> str:
        """Return the secret's text, possibly from a cache."""
        self._check(name)
        return self._read(name)

    def fresh(self, name: str) -> str:
        """Return the secret's current text."""
        self._check(name)
        again: Callable[[str], str] = getattr(self._read, "fresh", self._read)
        return again(name)

    def _check(self, name: str) -> None:
        if why := problem(name, self._cluster, self._uses, self._deployment):
            raise BadInput(place_of(name), why, remedy(self._cluster, self._uses, self._deployment))


def named_by(policy: Policy) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Return (path below spec, name, use) of each secret that a policy names."""
    notices = policy.notifications.webhook if policy.notifications is not None else None
    kubernetes, webhook = (
        msgspec.structs.asdict(policy.kubernetes),
        {"secret": policy.webhook.secret},
    )
    return named_in(
        kubernetes, policy.providers, webhook, notices.secret if notices is not None else ""
    )


def named_in(
    kubernetes: Mapping[str, Any],
    providers: Mapping[str, Mapping[str, str]],
    webhook: Mapping[str, Any],
    notice_secret: str = "",
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Return (path below spec, name, use) of each secret that a policy names. kubernetes, webhook:
    attribute -> value. notice_secret: of spec.notifications.webhook."""
    for attribute, key in (
        ("kubeconfig_secret", "kubeconfigSecret"),
        ("in_cluster_kubeconfig_secret", "inClusterKubeconfigSecret"),
        ("watcher_secret", "watcherSecret"),
    ):
        if name := kubernetes.get(attribute):
            yield ("kubernetes", key), name, KUBECONFIG
    for provider, settings in providers.items():
        for key, name in settings.items():
            if key.endswith("Secret") and name:
                yield ("providers", provider, key), name, provider
    if name := webhook.get("secret"):
        yield ("webhook", "secret"), name, WEBHOOK
    if notice_secret:
        yield ("notifications", "webhook", "secret"), notice_secret, NOTIFICATIONS


# -- the credentials of passes ---------------------------------------------------------------------

# Provider -> the key that receives the secret, and the keys of the other credentials.
_CREDENTIALS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "alicloud": (
            "credentialsSecret",
            (
                "roleArn",
                "oidcProviderArn",
                "oidcTokenSecret",
                "oidcTokenFile",
                "metadataEndpoint",
                "ramRole",
            ),
        ),
        "cherryservers": ("credentialsSecret", ()),
        "clusterapi": ("kubeconfigSecret", ()),
        "exoscale": ("credentialsSecret", ()),
        "huaweicloud": ("credentialsSecret", ("agencyName", "agencyDomain", "agencyDuration")),
    }
)


def observing(policy: Policy) -> Policy:
    """Return the policy with each provider's read credentials (observeSecret, if given) in
    place of those for changes.

    The planning function reads every cluster and changes nothing, so it should hold no key that
    permits changes. The executors use the provider's other credentials and ignore observeSecret.
    """
    providers = dict(policy.providers)
    for name, settings in policy.providers.items():
        if settings.get("observeSecret") and name in _CREDENTIALS:
            credentials_key, others = _CREDENTIALS[name]
            shared = {
                key: text for key, text in settings.items() if key not in (*others, "observeSecret")
            }
            providers[name] = shared | {credentials_key: settings["observeSecret"]}
    return msgspec.structs.replace(policy, providers=providers)
