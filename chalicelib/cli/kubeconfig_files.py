"""Kubeconfigs on a person's machine: the files that kubectl would use, and
credentials that need a program.

The official `kubernetes` package merges several files of KUBECONFIG, too, but its last file sets
the current context where kubectl's first does, and its loader has no limit of size or depth. It is
used for exec plugins (EKS, GKE, OIDC logins) and auth providers: it runs the plugin or renews the
provider's token, as kubectl does. Functions never do: they have no such programs and no person to
log in.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from chalicelib.cluster.credentials import (
    CredentialProvider,
    KubeconfigLogin,
    KubeCredential,
    usable_token,
)
from chalicelib.cluster.kubeconfig import Plugin, PluginCredential, PluginUser
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.secret import Secret
from chalicelib.net.bounded_files import text as file_text

EARLY = 30.0
"""Seconds before its end at which a credential is renewed, so that a request does not
arrive with an expired one."""
_LONGEST_MESSAGE = 500  # characters of a plugin's message that are shown
_MOST_NAMED, _LONGEST_NAME = 5, 253  # of Secrets in errors
_SECTIONS = ("clusters", "contexts", "users")
_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
"""Keys with a path that is relative to its own file."""


def kubeconfig_of(environment: Mapping[str, str]) -> Path:
    """Return the path that kubectl would use: all of KUBECONFIG, otherwise ~/.kube/config.
    Several files are one path with separators, which read_kubeconfig understands. Raises
    BadInput where no file exists."""
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    existing = [part for part in named if Path(part).expanduser().exists()]
    if existing:
        return Path(os.pathsep.join(existing))
    path = Path(named[0]) if named else Path.home() / ".kube" / "config"
    if not path.exists():
        raise BadInput(
            str(path), "does not exist", "name the cluster's kubeconfig: --kubeconfig FILE"
        )
    return path


def read_kubeconfig(path: Path) -> str:
    """Return a kubeconfig's text; of several files, one document with absolute paths. For each name
    the first file counts, and the first current-context. A file may be a kubeconfig Secret of
    Cluster API, as kubectl prints it. Raises OSError, UnicodeDecodeError; BadInput for a file of
    several that is not a kubeconfig, and for a Secret without one."""
    files = [Path(part).expanduser() for part in str(path).split(os.pathsep)]
    if path.exists() or len(files) < 2:
        return opened_secret(file_text(path), f"kubeconfig file {path}")
    import yaml

    from chalicelib.net.safe_yaml import parsed

    malformed: tuple[type[Exception], ...] = (yaml.YAMLError, *MALFORMED)
    merged: dict[str, Any] = {section: [] for section in _SECTIONS}
    for file in files:
        try:
            document = parsed(opened_secret(file_text(file), f"kubeconfig file {file}")) or {}
        except malformed:  # the parser's message may quote a secret
            document = None
        if not isinstance(document, dict):
            remedy = "take it out of KUBECONFIG, or correct it"
            raise BadInput(f"kubeconfig file {file}", "is not a YAML mapping", remedy)
        if document.get("current-context") and not merged.get("current-context"):
            merged["current-context"] = document["current-context"]
        for section in _SECTIONS:
            names = {entry.get("name") for entry in merged[section]}
            entries = document.get(section)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("name") not in names:
                    merged[section].append(_with_paths(entry, file.resolve().parent))
    return yaml.safe_dump(merged)


def _with_paths(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return an entry of a section with absolute paths."""
    absolute = dict(entry)
    for kind, keys in _FILES.items():
        body = entry.get(kind)
        if not isinstance(body, dict):
            continue
        body = {
            key: _absolute(value, folder) if key in keys else value for key, value in body.items()
        }
        plugin = body.get("exec")
        if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
            body["exec"] = {**plugin, "command": _absolute(plugin["command"], folder)}
        absolute[kind] = body
    return absolute


def _absolute(value: object, folder: Path) -> object:
    return str(folder / value) if isinstance(value, str) and value else value


# -- kubeconfig Secrets of Cluster API -------------------------------------------------------------

_SECRET_TYPE, _SECRET_KEY = "cluster.x-k8s.io/secret", "value"
_SECRET_KIND = re.compile(r"""["']?kind["']?\s*:\s*["']?(?:Secret|SecretList|List)\b""")
_REMEDY = (
    "give a kubeconfig, or the Secret that Cluster API keeps it in: "
    "kubectl -n NAMESPACE get secret CLUSTER-kubeconfig -o yaml"
)


def opened_secret(text: str, place: str) -> str:
    """Return the kubeconfig inside a Secret of Cluster API; other text as it is.

    place: of the text, for errors. Raises BadInput, which quotes no value, for Secrets of which
    not exactly one has a kubeconfig.
    """
    if _SECRET_KIND.search(text) is None:
        return text
    import yaml

    from chalicelib.net.safe_yaml import documents

    malformed: tuple[type[Exception], ...] = (yaml.YAMLError, *MALFORMED)
    try:
        secrets = [secret for document in documents(text) for secret in _secrets(document)]
    except malformed:
        return text  # the parser of kubeconfigs says what is wrong
    if not secrets:
        return text
    configs = [secret for secret in secrets if _has_kubeconfig(secret)]
    if len(configs) > 1:
        names = ", ".join(_secret_name(secret) for secret in configs[:_MOST_NAMED])
        raise BadInput(place, f"has {len(configs)} kubeconfig Secrets: {names}", "give one of them")
    if not configs:
        raise BadInput(place, _no_kubeconfig(secrets[0]), _REMEDY)
    return _decoded(configs[0], place)


def _secrets(document: Any) -> Iterator[dict[str, Any]]:
    """Return the Secret that a document is, or those among its items."""
    if not isinstance(document, dict):
        return
    if document.get("kind") == "Secret":
        yield document
    items = document.get("items")
    of_secrets = document.get("kind") == "SecretList"
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and (item.get("kind") == "Secret" or of_secrets):
            yield item


def _has_kubeconfig(secret: Mapping[str, Any]) -> bool:
    return secret.get("type") == _SECRET_TYPE and any(_secret_values(secret))


def _secret_values(secret: Mapping[str, Any]) -> tuple[str, str]:
    """Return the value as it stands in stringData, and as it stands in data; empty for none."""
    plain, encoded = (secret.get(part) for part in ("stringData", "data"))
    values = [
        part.get(_SECRET_KEY) if isinstance(part, dict) else None for part in (plain, encoded)
    ]
    plain_value, encoded_value = (value if isinstance(value, str) else "" for value in values)
    return plain_value, encoded_value


def _secret_name(secret: Mapping[str, Any]) -> str:
    metadata = secret.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    parts = (str(fields.get(key) or "")[:_LONGEST_NAME] for key in ("namespace", "name"))
    return "/".join(filter(None, parts)) or "without a name"


def _no_kubeconfig(secret: Mapping[str, Any]) -> str:
    """Return why a Secret is no kubeconfig Secret."""
    name, kind = _secret_name(secret), secret.get("type")
    if kind != _SECRET_TYPE:
        shown = str(kind)[:_LONGEST_NAME] if kind else "Opaque"
        return (
            f"is the Secret {name} of type {shown}; a kubeconfig Secret of Cluster API has type "
            f"{_SECRET_TYPE}"
        )
    return f"is the Secret {name}, which has no kubeconfig in its key {_SECRET_KEY}"


def _decoded(secret: Mapping[str, Any], place: str) -> str:
    plain, encoded = _secret_values(secret)
    if plain:
        return plain
    name = _secret_name(secret)
    try:
        return base64.b64decode("".join(encoded.split()), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        problem = f"Secret {name}: its key {_SECRET_KEY} is not text in base64"
        raise BadInput(place, problem, _REMEDY) from None


# -- credentials that need a program ---------------------------------------------------------------


def plugin_logins(
    clock: Callable[[], float],
) -> Callable[[Callable[[Plugin], KubeCredential]], CredentialProvider]:
    """Return the `plugins` argument of kube.connect. clock: epoch seconds, for
    the renewal of credentials."""
    return lambda parse: PluginLogin(parse, clock)


class PluginLogin(KubeconfigLogin):
    """A kubeconfig file whose plugin runs again when its credential ends or the cluster refuses it.

    A kubeconfig without a plugin behaves as in KubeconfigLogin.
    """

    def __init__(
        self, parse: Callable[[Plugin], KubeCredential], clock: Callable[[], float]
    ) -> None:
        self._clock, self._ends = clock, 0.0
        self._renewal = threading.Lock()
        super().__init__(lambda _fresh: parse(self._obtain))

    def current(self) -> KubeCredential:
        """Return the credential, renewed shortly before its end. Raises BadInput
        with the plugin's message."""
        with self._renewal:
            if self._ends and self._clock() >= self._ends - EARLY:
                self.renew()
        return super().current()

    def _obtain(self, user: PluginUser) -> PluginCredential:
        self._ends = 0.0
        if user.user.get("exec"):
            credential, self._ends = _from_exec(user)
            return credential
        return _from_auth_provider(user)


def _from_exec(user: PluginUser) -> tuple[PluginCredential, float]:
    """Return the plugin's credential and its end in epoch seconds, 0 for none."""
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    place, settings = f"{user.place}.exec", user.user["exec"]
    command = settings.get("command") if isinstance(settings, Mapping) else None
    if not isinstance(command, str) or not command:
        raise BadInput(
            f"{place}.command", "is missing", "name the plugin's program, as kubectl needs it"
        )
    name = command[:100]
    folder = str(user.base_dir) if user.base_dir else None
    try:
        status = ExecProvider(
            ConfigNode(place, dict(settings)), folder, ConfigNode("cluster", user.cluster)
        ).run()
    except ConfigException as error:
        raise BadInput(
            place, f"{name}: {_line(str(error).removeprefix('exec: '))}", _try(name)
        ) from None
    except OSError as error:
        hint = settings.get("installHint")
        remedy = (
            _line(hint) if isinstance(hint, str) and hint else f"install {name}, or add it to PATH"
        )
        raise BadInput(
            place, f"{name} cannot be run: {error.strerror or 'not found'}", remedy
        ) from None
    except Exception as error:
        # At a terminal the package leaves the plugin's message there and fails on
        # the missing text itself.
        raise BadInput(place, f"{name} failed ({type(error).__name__})", _try(name)) from None
    return _credential(status, place, name), _end(status, place, name)


def _credential(status: Any, place: str, name: str) -> PluginCredential:
    fields = status if isinstance(status, Mapping) else {}
    token, certificate, key = (
        fields.get(field) for field in ("token", "clientCertificateData", "clientKeyData")
    )
    if isinstance(token, str) and token:
        return PluginCredential(token=usable_token(token, place))
    if isinstance(certificate, str) and isinstance(key, str) and certificate and key:
        return PluginCredential(certificate=certificate.encode(), key=Secret(key))
    raise BadInput(
        place, f"{name} returned neither a token nor a client certificate with its key", _try(name)
    )


def _end(status: Any, place: str, name: str) -> float:
    text = status.get("expirationTimestamp")
    if not text:
        return 0.0
    try:
        end = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise BadInput(
            place, f"{name} returned an expirationTimestamp that is not a time", _try(name)
        ) from None
    if end.tzinfo is None:
        raise BadInput(
            place, f"{name} returned an expirationTimestamp without a time zone", _try(name)
        )
    return end.timestamp()


def _from_auth_provider(user: PluginUser) -> PluginCredential:
    """Return the token of an auth provider (oidc, gcp, azure), renewed where it has ended."""
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config_from_dict

    place, configuration = f"{user.place}.auth-provider", Configuration()
    name = (
        user.user["auth-provider"].get("name")
        if isinstance(user.user["auth-provider"], Mapping)
        else None
    )
    try:
        load_kube_config_from_dict(
            dict(user.document),
            context=user.context,
            client_configuration=configuration,
            persist_config=False,
        )
        header = configuration.api_key.get("authorization", "")
    except Exception as error:
        raise BadInput(
            place, f"{name}: {_line(str(error)) or type(error).__name__}", "log in again"
        ) from None
    if not header:
        raise BadInput(place, f"{name!r} gave no token", "log in again, or use an exec plugin")
    return PluginCredential(token=usable_token(header.removeprefix("Bearer "), place))


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_MESSAGE]


def _try(name: str) -> str:
    return f"run {name} yourself, or kubectl get nodes with this kubeconfig"
