"""`outscaler kubeconfig`: makes the kubeconfig that the deployment stores, of a
service account's token.

A workstation's kubeconfig often needs a login program, and it is a person's. The functions need the
address and the CA of the same cluster with the token of Outscaler's own service account.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import os
import sys

import msgspec

from chalicelib.cli.arguments import add_cluster_arguments
from chalicelib.cli.doctor.kubeconfig_checks import private_address
from chalicelib.cli.kubeconfig_files import kubeconfig_of
from chalicelib.cli.output import warn
from chalicelib.cluster.client import KubeClient, path_segment
from chalicelib.cluster.errors import Forbidden, NotFound
from chalicelib.model.errors import BadInput

TYPE = "kubernetes.io/service-account-token"
_USER = "outscaler"
_MANIFESTS = "outscaler manifests rbac token | kubectl apply -f -"


class _TokenSecret(msgspec.Struct, frozen=True):
    type: str = ""
    data: dict[str, str] | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the Secret and the cluster's kubeconfig."""
    parser.add_argument(
        "--from",
        dest="secret",
        default="outscaler-token",
        metavar="SECRET",
        help="the Secret with the service account's token (default: outscaler-token)",
    )
    parser.add_argument(
        "--namespace", default="kube-system", help="its namespace (default: kube-system)"
    )
    add_cluster_arguments(parser, "the cluster (default: $KUBECONFIG, otherwise ~/.kube/config)")
    parser.add_argument(
        "--server", default="", metavar="URL", help="another address of the same API server"
    )


def run(args: argparse.Namespace) -> int:
    """Print the kubeconfig as YAML. Returns 0; raises BadInput without the Secret, ClusterError."""
    import yaml

    from chalicelib.cli.live_cluster import connected_by_file

    kube = connected_by_file(args.kubeconfig or kubeconfig_of(os.environ), args.context or "")
    server, ca, tls_name = kube.server()
    server = args.server or server
    if problem := private_address(server):
        warn(problem)
    token = _token(kube, args.namespace, args.secret)
    cluster: dict[str, str] = {"server": server}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    if tls_name:
        cluster["tls-server-name"] = tls_name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _USER,
        "clusters": [{"name": _USER, "cluster": cluster}],
        "users": [{"name": _USER, "user": {"token": token}}],
        "contexts": [{"name": _USER, "context": {"cluster": _USER, "user": _USER}}],
    }
    sys.stdout.write(yaml.safe_dump(document, sort_keys=False))
    return 0


def _token(kube: KubeClient, namespace: str, secret: str) -> str:
    place = f"Secret {namespace}/{secret}"
    try:
        stored = kube.read(
            f"/api/v1/namespaces/{path_segment(namespace)}/secrets/{path_segment(secret)}",
            _TokenSecret,
        )
    except NotFound:
        raise BadInput(place, "does not exist", _MANIFESTS) from None
    except Forbidden:
        raise BadInput(
            place, "may not be read with this kubeconfig", "use an administrator's kubeconfig"
        ) from None
    if stored.type != TYPE:
        raise BadInput(place, f"is not of type {TYPE}", _MANIFESTS)
    try:
        token = base64.b64decode((stored.data or {}).get("token", ""), validate=True).decode(
            "ascii"
        )
    except (binascii.Error, UnicodeDecodeError):
        token = ""
    if not token:
        raise BadInput(
            place, "has no token yet", "the cluster writes it within seconds; repeat the command"
        )
    return token
