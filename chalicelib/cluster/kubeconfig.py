"""Parses a kubeconfig strictly: every setting is used or refused with a message, never ignored.

It has to work without a home directory, browser or plugin binary. Everything that needs a program
(exec, auth-provider) is therefore refused, and the error says what to use instead. A kubeconfig
from a secret may not name files at all, because there are none.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from chalicelib.cluster.credentials import KubeCredential, usable_token
from chalicelib.cluster.transport import client_context
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.secret import Secret
from chalicelib.net.addresses import address_of, is_loopback, never
from chalicelib.net.bounded_files import MOST_CONFIGURATION, content
from chalicelib.net.safe_yaml import parsed

_SERVICE_ACCOUNT = (
    "use a service-account token as `token`: `kubectl -n kube-system create token outscaler "
    "--duration=24h` for a "
    "day, or a Secret of type kubernetes.io/service-account-token for one that lasts: `outscaler "
    "manifests "
    "token | kubectl apply -f -` and `kubectl -n kube-system get secret outscaler-token "
    "-o jsonpath='{.data.token}' | base64 -d`"
)
_LOOPBACK = "is a loopback address, which is the Lambda function itself"
_EMBED = "embed it as `{key}-data`: kubectl config view --raw --flatten"


class PluginUser(msgspec.Struct, frozen=True):
    """A user entry whose credential comes from a program or an auth provider.

    document: the whole kubeconfig; context: the chosen one. user, cluster: its entries. base_dir:
    folder of the file. place: of the user entry, for errors.
    """

    document: Mapping[str, Any]
    context: str
    user: Mapping[str, Any]
    cluster: Mapping[str, Any]
    base_dir: Path | None
    place: str


class PluginCredential(msgspec.Struct, frozen=True):
    """What such a program returned: a token, or a client certificate with its key, as PEM."""

    token: Secret = Secret("")
    certificate: bytes = b""
    key: Secret = Secret("")


Plugin = Callable[[PluginUser], PluginCredential]

# The document is read only. A warm process connects for every message, and the text rarely changes.
_parsed = lru_cache(maxsize=16)(parsed)
# Keys that a user entry may not have, in the order of checking, with the reason.
_REFUSED = (
    ("exec", "uses an exec plugin, which a Lambda function cannot run"),
    ("auth-provider", "uses an auth-provider, which Kubernetes itself has removed"),
    ("username", "uses basic authentication, which Kubernetes itself has removed"),
    ("password", "uses basic authentication, which Kubernetes itself has removed"),
    ("as", "acts as another user (impersonation)"),
    ("as-uid", "acts as another user (impersonation)"),
    ("as-groups", "acts as another user (impersonation)"),
    ("as-user-extra", "acts as another user (impersonation)"),
)
_PLUGINS = ("exec", "auth-provider")  # which a command on a workstation may use
# A URL that all programs parse the same way: no user, query, fragment, backslash, blank,
# control character, zone of an IPv6 address, or percent sign in the host. An empty query or
# fragment would cut off the path.
_HOST = (
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,"
    r"5}))?"
)
_SERVER = re.compile(
    rf"(?P<scheme>(?i:https?))://{_HOST}(?P<path>(?:/[A-Za-z0-9._~:@!$&'()*+,;=-]*)*)"
)
_PROXY = re.compile(rf"(?P<scheme>(?i:https?))://(?:[!-.0-9;=A-Z_a-z~:%]*@)?{_HOST}(?P<path>/?)")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # of a host name
_HEADER_EXTENSION = "outscaler.dev/token-header"
_KNOWN_HEADERS = ("X-Auth-Token",)  # of Huawei Cloud's gateway to a CCE cluster


POLICY_CONTEXT = "the policy's context"
"""What names the context of a kubeconfig, in errors, unless a command line does."""


def from_kubeconfig(
    text: str,
    *,
    context: str = "",
    place: str,
    allow_insecure_tls: bool = False,
    base_dir: Path | None = None,
    hosted: bool = False,
    plugin: Plugin | None = None,
    context_place: str = POLICY_CONTEXT,
) -> KubeCredential:
    """Return the credential of one context: the named one, otherwise current-context.

    place: where the text comes from, for errors (`kubeconfig secret NAME`). base_dir: directory for
    relative paths; None forbids files. hosted: it is for a function, which connects to no loopback
    address. plugin: obtains the credential of a user with an exec plugin or auth provider; None
    refuses such users, as a function must. context_place: what names the context, for errors.
    Raises BadInput, which names the field and never quotes a value that may be secret.
    """
    document = _document(text, place)
    context_name = context or _text(document, "current-context", place, required=False)
    named_at = context_place if context else f"{place}: current-context"
    if not context_name:
        names = ", ".join(_names(document, "contexts")) or "none"
        raise BadInput(named_at, "names no context", f"name one of the contexts: {names}")
    at, chosen = _entry(document, "contexts", "context", context_name, named_at, place)
    cluster_at, cluster = _entry(
        document, "clusters", "cluster", _text(chosen, "cluster", at), f"{at}.cluster", place
    )
    user_name, user_at = _text(chosen, "user", at, required=False), f"{at}.user"
    user: Mapping[str, Any] = {}
    if user_name:
        user_at, user = _entry(document, "users", "user", user_name, f"{at}.user", place)
        _refuse(user, user_at, plugins=plugin is not None)
    server = _server(cluster, cluster_at, allow_insecure_tls=allow_insecure_tls, hosted=hosted)
    ca = _blob(cluster, "certificate-authority", cluster_at, base_dir)
    obtained = None
    if plugin is not None and any(user.get(name) for name in _PLUGINS):
        obtained = plugin(PluginUser(document, context_name, user, cluster, base_dir, user_at))
        user = {"extensions": user.get("extensions")}
    secrets, token_file = _user_secrets(user, user_at, base_dir, obtained)
    if user_name and not (secrets.token or token_file or secrets.certificate):
        raise BadInput(user_at, "has no credential", _SERVICE_ACCOUNT)
    bearer = "" if token_file else secrets.token.reveal()
    credential = KubeCredential(
        server=server,
        ca=ca,
        server_name=_server_name(cluster, cluster_at),
        insecure=_insecure(cluster, cluster_at, ca, allow=allow_insecure_tls),
        proxy=_proxy(cluster, cluster_at, hosted=hosted),
        hosted=hosted,
        certificate=secrets.certificate,
        key=secrets.key,
        token=usable_token(bearer, f"{user_at}.token") if bearer else Secret(""),
        token_file=token_file,
        token_header=_token_header(user, user_at),
        cluster_place=cluster_at,
        user_place=user_at,
    )
    if server.startswith("https:") and (ca or secrets.certificate):
        client_context(credential)  # reports an invalid certificate here, not at the first call
    return credential


def _user_secrets(
    user: Mapping[str, Any], place: str, base_dir: Path | None, obtained: PluginCredential | None
) -> tuple[PluginCredential, str]:
    """Return the certificate, key and token of a user, and its token file. obtained:
    what its program returned."""
    certificate = (
        obtained.certificate if obtained else _blob(user, "client-certificate", place, base_dir)
    )
    key = obtained.key.reveal().encode() if obtained else _blob(user, "client-key", place, base_dir)
    if bool(certificate) != bool(key):
        missing = "client-key-data" if certificate else "client-certificate-data"
        raise BadInput(
            f"{place}.{missing}", "is missing", "a client certificate and its key come together"
        )
    token_file = _path(user, "tokenFile", place, base_dir)
    token = obtained.token.reveal() if obtained else _text(user, "token", place, required=False)
    return PluginCredential(
        Secret(token), certificate, Secret(key.decode("utf-8", "replace"))
    ), token_file


def _document(text: str, place: str) -> Mapping[str, Any]:
    remedy = "write a kubeconfig as `kubectl config view --raw --flatten` prints it"
    if not text.strip():
        raise BadInput(place, "is empty", remedy)
    where, document = "", None
    try:
        document = _parsed(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
    except MALFORMED:  # an invalid date, or a huge number
        pass
    if not isinstance(document, dict):  # the parser's message may quote a secret
        raise BadInput(place, f"is not a YAML mapping{where}", remedy)
    return document


def _entry(
    document: Mapping[str, Any], section: str, key: str, name: str, named_at: str, place: str
) -> tuple[str, Mapping[str, Any]]:
    """Return the one entry of that name in contexts, clusters or users, and its place.
    named_at: what gives the name."""
    names = _names(document, section)
    numbers = [number for number, entry_name in enumerate(names) if entry_name == name]
    if not numbers:
        raise BadInput(
            named_at,
            f"{name!r} is not among {section}",
            f"{section} of {place}: {', '.join(names) or 'none'}",
        )
    if len(numbers) > 1:
        second = f"{place}: {section}[{numbers[1]}].name"
        raise BadInput(second, f"{name!r} is given twice", "give each a name of its own")
    at = f"{place}: {section}[{numbers[0]}].{key}"
    body = document[section][numbers[0]].get(key)
    if not isinstance(body, dict):
        raise BadInput(at, "is not a mapping", "write a kubeconfig as kubectl does")
    return at, body


def _names(document: Mapping[str, Any], section: str) -> list[str]:
    entries = document.get(section)
    if not isinstance(entries, list):
        return []
    names = (entry.get("name") if isinstance(entry, dict) else None for entry in entries)
    return [name if isinstance(name, str) else "" for name in names]


def _text(mapping: Mapping[str, Any], key: str, place: str, *, required: bool = True) -> str:
    value = mapping.get(key)
    if value is None or value == "":
        if required:
            raise BadInput(f"{place}.{key}", "is missing", "write a kubeconfig as kubectl does")
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{place}.{key}", "is not text", "put it in quotes")
    return value


def _refuse(user: Mapping[str, Any], place: str, *, plugins: bool) -> None:
    for key, why in _REFUSED:
        if user.get(key) and not (plugins and key in _PLUGINS):
            plugin = user.get("exec")
            command = plugin.get("command") if isinstance(plugin, dict) else ""
            is_eks = isinstance(command, str) and Path(command).name in {
                "aws",
                "aws-iam-authenticator",
            }
            remedy = (
                "for an EKS cluster set kubernetes.eksCluster to its name instead; or "
                if is_eks
                else ""
            )
            raise BadInput(f"{place}.{key}", why, remedy + _SERVICE_ACCOUNT)


def _blob(mapping: Mapping[str, Any], key: str, place: str, base_dir: Path | None) -> bytes:
    """Return `key-data` decoded, otherwise the content of the file that `key` names; as in kubectl,
    the data takes precedence."""
    data = _text(mapping, f"{key}-data", place, required=False)
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            remedy = "write the PEM text in base64, on one line"
            raise BadInput(f"{place}.{key}-data", "is not base64", remedy) from None
    path = _path(mapping, key, place, base_dir)
    if not path:
        return b""
    try:
        return content(Path(path), MOST_CONFIGURATION)
    except OSError as error:
        raise BadInput(
            f"{place}.{key}", f"{path} cannot be read: {error.strerror}", _EMBED.format(key=key)
        ) from None


def _path(mapping: Mapping[str, Any], key: str, place: str, base_dir: Path | None) -> str:
    """Return the file that `key` names, resolved as in kubectl: relative to the kubeconfig
    itself."""
    path = _text(mapping, key, place, required=False)
    if not path:
        return ""
    if base_dir is None:
        remedy = _SERVICE_ACCOUNT if key == "tokenFile" else _EMBED.format(key=key)
        raise BadInput(f"{place}.{key}", "names a file, but a secret cannot contain files", remedy)
    return str(base_dir / path)


def _server(
    cluster: Mapping[str, Any], place: str, *, allow_insecure_tls: bool, hosted: bool
) -> str:
    server, at = _text(cluster, "server", place), f"{place}.server"
    remedy = "write https://HOST:PORT without a user or a query"
    scheme, host = _address(server, at, "is not the URL of an API server", remedy, path=True)
    if hosted and is_loopback(host):
        raise BadInput(at, _LOOPBACK, "write the address of the API server")
    if scheme == "http" and not is_loopback(host) and not allow_insecure_tls:
        remedy = "write https://, or set kubernetes.allowInsecureTls: true in the policy"
        raise BadInput(at, "is plain http, which would send the credential in the clear", remedy)
    return f"{scheme}{server[len(scheme) :].rstrip('/')}"


def _address(text: str, place: str, problem: str, remedy: str, *, path: bool) -> tuple[str, str]:
    """Return scheme and host of a URL that every program parses the same way. path: whether it may
    have one. Raises BadInput, which does not quote it, because it may contain a password."""
    url = (_SERVER if path else _PROXY).fullmatch(text)
    host = url["host"].strip("[]") if url else ""
    port = int(url["port"] or 1) if url else 0
    if (
        url is None
        or not 0 < port < 65536
        or any(part in (".", "..") for part in (url["path"] or "").split("/"))
    ):
        raise BadInput(place, problem, remedy)
    if url["host"].startswith("[") and (":" not in host or address_of(host) is None):
        raise BadInput(place, problem, remedy)
    if never(host):
        raise BadInput(place, "is a link-local address or a metadata service", remedy)
    return url["scheme"].lower(), host


def _server_name(cluster: Mapping[str, Any], place: str) -> str:
    name = _text(cluster, "tls-server-name", place, required=False)
    address = ":" in name and address_of(name) is not None
    labels = name.removesuffix(".").split(".")
    if name and not address and not (len(name) <= 253 and all(map(_LABEL.fullmatch, labels))):
        remedy = "write a name that is in the server's certificate, or leave it out"
        raise BadInput(f"{place}.tls-server-name", "is not the name of a host", remedy)
    return name


def _token_header(user: Mapping[str, Any], place: str) -> str:
    """Return the token header from Outscaler's extension: `{name:
    outscaler.dev/token-header, extension: {header: …}}`. Extensions of
    other programs are ignored."""
    extensions = user.get("extensions")
    for number, extension in enumerate(extensions if isinstance(extensions, list) else ()):
        if not isinstance(extension, dict) or extension.get("name") != _HEADER_EXTENSION:
            continue
        at, body = f"{place}.extensions[{number}].extension", extension.get("extension")
        header = _text(body, "header", at) if isinstance(body, dict) else ""
        if header not in _KNOWN_HEADERS:
            raise BadInput(
                f"{at}.header",
                "is not a supported header for a token",
                f"write {_KNOWN_HEADERS[0]}",
            )
        return header
    return ""


def _insecure(cluster: Mapping[str, Any], place: str, ca: bytes, *, allow: bool) -> bool:
    key = f"{place}.insecure-skip-tls-verify"
    value = cluster.get("insecure-skip-tls-verify") or False
    if not isinstance(value, bool):
        raise BadInput(key, "is neither true nor false", "write true or false without quotes")
    if value and ca:
        problem = "contradicts the certificate-authority of the same cluster"
        raise BadInput(key, problem, "keep the CA and leave this out")
    if value and not allow:
        remedy = (
            "write certificate-authority-data instead, or set kubernetes.allowInsecureTls: true in "
            "the policy"
        )
        raise BadInput(key, "would trust any server", remedy)
    return value


def _proxy(cluster: Mapping[str, Any], place: str, *, hosted: bool) -> Secret:
    proxy, at = _text(cluster, "proxy-url", place, required=False), f"{place}.proxy-url"
    if not proxy:
        return Secret("")
    _, host = _address(
        proxy, at, "is not an http or https proxy", "write http://HOST:PORT", path=False
    )
    if hosted and is_loopback(host):
        raise BadInput(at, _LOOPBACK, "write the address of the proxy")
    return Secret(proxy)
