"""Which secrets a cluster may use: those whose names begin with the deployment's prefix, the cluster, and the use.

The functions may read every secret of the deployment, and a policy names the ones to read. So a secret belongs to a
cluster by its name alone: `<prefix><cluster>/<use>`, where the use says which key of the policy may name it. A name may
go on after the use with `-`, `.` or `/`. Secrets that several clusters share are listed by the deployment.

The functions' roles know a secret by its use, wherever the use stands between slashes. So no later part of a name may
begin with another use: functions for that use could read the secret too.

A secret may also be a parameter of SSM. Its name here is `ssm:/`, and then what the name of a secret would be; the same
rules hold for that part.

Names only, no ARNs: an ARN may point at another region or account and ends in characters that the name does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import SECRET_PREFIX, SHARED_SECRETS, Deployment
from chalicelib.model.secret import PARAMETER, place_of
from chalicelib.model.vendor_hosts import VENDORS

KUBECONFIG, WEBHOOK = "kubeconfig", "webhook"
USES = (KUBECONFIG, WEBHOOK, *VENDORS)
"""What a role may be for: the first words of the patterns in the functions' policies."""

_CLUSTER = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")  # without a slash: no name reaches into another's
_CHARACTERS = re.compile(r"[A-Za-z0-9/_+=.@-]{1,512}\Z")
_OF_PARAMETERS = re.compile(r"[A-Za-z0-9_.-][A-Za-z0-9/_.-]{0,511}\Z")  # no colon: no version, and no label
_FURTHER = ("-", ".", "/")  # what may follow the use


def problem(name: str, cluster: str, uses: tuple[str, ...], deployment: Deployment) -> str:
    """Why this cluster may not use the secret of that name for one of these uses; empty if it may."""
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
    return f"is no secret of cluster {cluster} for {' or '.join(uses)}, nor one that the deployment shares"


def never(name: str, uses: tuple[str, ...]) -> str:
    """Why no deployment would let any cluster use the secret of that name for one of these uses; empty if one may."""
    path = name.removeprefix(PARAMETER)
    characters = _CHARACTERS if path == name else _OF_PARAMETERS
    if not characters.match(path) or ".." in path:
        return "is no name of a secret that is a cluster's own: an ARN, or with characters that are not used here"
    parts = path.split("/")
    if not any(_is_for("/".join(parts[at:]), uses) for at in range(len(parts))):
        return f"is no name of a secret for {' or '.join(uses)}"
    return ""


def remedy(cluster: str, uses: tuple[str, ...], deployment: Deployment) -> str:
    """What the name would have to be."""
    return (
        f"name it {deployment.secret_prefix}{cluster}/{uses[0]}, or have the deployment list it in "
        f"{SHARED_SECRETS} ({SECRET_PREFIX} is {deployment.secret_prefix!r} here)"
    )


def _is_for(rest: str, uses: tuple[str, ...]) -> bool:
    return any(rest == use or rest.startswith(tuple(use + further for further in _FURTHER)) for use in uses)


def _another_use(rest: str, uses: tuple[str, ...]) -> str:
    """The first use, none of `uses`, that a part after a slash begins with; empty if there is none. rest: the name
    without the deployment's prefix."""
    parts = rest.split("/")[1:]
    return next((use for use in USES if use not in uses and any(part.startswith(use) for part in parts)), "")


class ClusterSecrets:
    """Reads the secrets of one cluster for certain uses, and refuses every other name before anything is asked of AWS.

    read: secret name -> text; if it also has `fresh(name)`, so it is used. Raises BadInput for a name that is not the
    cluster's, else what `read` raises. Whatever the rest of the program was told, this is what reads for it.
    """

    def __init__(self, read: Callable[[str], str], cluster: str, uses: tuple[str, ...], deployment: Deployment) -> None:
        self._read, self._cluster, self._uses, self._deployment = read, cluster, uses, deployment

    def __call__(self, name: str) -> str:
        """The secret's text, perhaps from a cache."""
        self._check(name)
        return self._read(name)

    def fresh(self, name: str) -> str:
        """The secret's text as it is now."""
        self._check(name)
        again: Callable[[str], str] = getattr(self._read, "fresh", self._read)
        return again(name)

    def _check(self, name: str) -> None:
        if why := problem(name, self._cluster, self._uses, self._deployment):
            raise BadInput(place_of(name), why, remedy(self._cluster, self._uses, self._deployment))


def named_in(
    kubernetes: Mapping[str, Any], providers: Mapping[str, Mapping[str, str]], webhook: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(path below spec, name, use) of each secret that a policy names. kubernetes, webhook: attribute -> value."""
    for attribute, key in (
        ("kubeconfig_secret", "kubeconfigSecret"),
        ("in_cluster_kubeconfig_secret", "inClusterKubeconfigSecret"),
    ):
        if name := kubernetes.get(attribute):
            yield ("kubernetes", key), name, KUBECONFIG
    for provider, settings in providers.items():
        for key, name in settings.items():
            if key.endswith("Secret") and name:
                yield ("providers", provider, key), name, provider
    if name := webhook.get("secret"):
        yield ("webhook", "secret"), name, WEBHOOK
