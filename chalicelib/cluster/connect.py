"""Connects to a cluster by the policy's `kubernetes` section: a kubeconfig in a secret or a
file, or an EKS cluster.

There is no default location. A Lambda function has no home directory and no service account of its
own, so "in-cluster" is one more kubeconfig in a secret, named by the policy, and a policy that
names no connection is invalid.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from chalicelib.aws import secrets_manager
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.credentials import (
    CredentialProvider,
    EksLogin,
    KubeconfigLogin,
    KubeCredential,
)
from chalicelib.cluster.kubeconfig import POLICY_CONTEXT, Plugin, from_kubeconfig
from chalicelib.cluster.transport import AT_A_TERMINAL, HOSTED, Dial, open_connection
from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret, place_of
from chalicelib.net.bounded_files import text as file_text
from chalicelib.net.vendor_hosts import FILE_PROBLEM, FILE_REMEDY
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess

__all__ = ["FreshReader", "connect", "from_kubeconfig"]

_PLACE = "spec.kubernetes"

#: Makes a login from a function that parses the kubeconfig with a plugin.
PluginLogins = Callable[[Callable[[Plugin], KubeCredential]], CredentialProvider]


@runtime_checkable
class FreshReader(Protocol):
    """A caching secret reader that can also bypass its cache (secrets_manager.SecretReader)."""

    def fresh(self, name: str) -> str:
        """Return the secret's current text."""


def connect(
    access: KubernetesAccess,
    read_secret: Callable[[str], str],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = random.random,
    dial: Dial = open_connection,
    hosted: bool = False,
    files: bool = False,
    plugins: PluginLogins | None = None,
    context_place: str = POLICY_CONTEXT,
    read_file: Callable[[Path], str] = file_text,
) -> KubeClient:
    """Connect as the policy says. Nothing is sent yet, except to AWS for an EKS cluster's address.

    read_secret: secret name -> text; if it also has `.fresh(name)`, a refused credential is read
    past its cache. dial: opens the connection to the server; the emulation has one without a
    network. hosted: for a function, which connects to no loopback address, ignores proxies of the
    environment, and has a minute or two. files: whether the kubeconfig may be a local file, which
    only a command may permit. context_place: what names the file's context, for errors. plugins:
    makes the login of a local file whose user has an exec plugin or an auth provider, which only a
    command may run. read_file: reads a local kubeconfig; raises OSError, UnicodeDecodeError.
    Raises BadInput for a mistake that an operator must correct, another OutscalerError
    where AWS does not respond.
    """
    if access.kubeconfig_file and not files:
        raise BadInput(f"{_PLACE}.kubeconfigFile", FILE_PROBLEM, FILE_REMEDY)
    login = _login(access, read_secret, clock, context_place, plugins, read_file, hosted=hosted)
    return KubeClient(
        login, sleep=sleep, jitter=jitter, dial=dial, bounds=HOSTED if hosted else AT_A_TERMINAL
    )


def _login(
    access: KubernetesAccess,
    read_secret: Callable[[str], str],
    clock: Callable[[], float],
    context_place: str,
    plugins: PluginLogins | None,
    read_file: Callable[[Path], str],
    *,
    hosted: bool,
) -> CredentialProvider:
    ways = [
        name
        for name in ("kubeconfig_secret", "kubeconfig_file", "eks_cluster")
        if getattr(access, name)
    ]
    # Upstream's rule: the named kubeconfig, otherwise in-cluster.
    secret = access.kubeconfig_secret or access.in_cluster_kubeconfig_secret
    if len(ways) > 1 or not (ways or secret):
        problem = (
            "gives more than one way to reach the cluster"
            if ways
            else "does not say how to reach the cluster"
        )
        remedy = (
            "give exactly one of kubeconfigSecret, kubeconfigFile, eksCluster, or "
            "inClusterKubeconfigSecret alone"
        )
        raise BadInput(_PLACE, problem, remedy)
    if access.eks_cluster:
        return _eks(access, clock, hosted=hosted)
    if access.kubeconfig_file:
        if plugins is not None:
            return plugins(
                lambda plugin: _from_file(access, context_place, plugin, read_file, hosted=hosted)
            )
        return KubeconfigLogin(
            lambda _fresh: _from_file(access, context_place, None, read_file, hosted=hosted)
        )

    def from_secret(fresh: bool) -> KubeCredential:  # noqa: FBT001 - a callable type cannot name its parameter
        reader = (
            read_secret.fresh if fresh and isinstance(read_secret, FreshReader) else read_secret
        )
        text = reader(secret)
        place, insecure = f"kubeconfig {place_of(secret)}", access.allow_insecure_tls
        return from_kubeconfig(
            text, context=access.context, place=place, allow_insecure_tls=insecure, hosted=hosted
        )

    return KubeconfigLogin(from_secret)


def _from_file(
    access: KubernetesAccess,
    context_place: str,
    plugin: Plugin | None,
    read_file: Callable[[Path], str],
    *,
    hosted: bool,
) -> KubeCredential:
    path = Path(access.kubeconfig_file).expanduser()
    place = f"kubeconfig file {access.kubeconfig_file}"
    try:
        text = read_file(path)
    except UnicodeDecodeError:
        raise BadInput(place, "is not text", "name a kubeconfig in YAML") from None
    except OSError as error:
        raise BadInput(
            place, f"cannot be read: {error.strerror}", "name a kubeconfig that exists"
        ) from None
    return from_kubeconfig(
        text,
        context=access.context,
        place=place,
        allow_insecure_tls=access.allow_insecure_tls,
        base_dir=path.resolve().parent,
        hosted=hosted,
        plugin=plugin,
        context_place=context_place,
    )


def _eks(
    access: KubernetesAccess, clock: Callable[[], float], *, hosted: bool
) -> CredentialProvider:
    name, region = access.eks_cluster, access.region

    def describe() -> KubeCredential:
        server, ca = secrets_manager.eks_endpoint(name, region)
        place = f"EKS cluster {name}"
        return KubeCredential(
            server=server, ca=ca, cluster_place=place, user_place=place, hosted=hosted, signed=True
        )

    def sign() -> Secret:
        return secrets_manager.eks_token(name, region)

    return EksLogin(describe, sign, clock)
