"""Service accounts of a simulated cluster, as far as kubeconfigs with their tokens need them: the
controller that fills Secrets with tokens, and the roles that bindings grant."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from infra.emulators.kube.auth import KubeAuthority, RbacRule, User, granted
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore

TYPE = "kubernetes.io/service-account-token"
_ACCOUNT = "kubernetes.io/service-account.name"
_RBAC = "rbac.authorization.k8s.io"
_RBAC_KINDS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")


class ServiceAccountTokens:
    """A controller of one store. authority: of the server that has the store.

    A token is good from the next step on, with the rights that the store's bindings grant then.
    """

    def __init__(self, store: ObjectStore, authority: KubeAuthority) -> None:
        self._store, self._authority = store, authority
        self._admitted: dict[str, tuple[str, list[RbacRule]]] = {}

    def step(self) -> None:
        """Fill the Secrets that have no token, and let the holders of tokens do what roles say."""
        for secret, account in self._secrets():
            token = _token(secret)
            if not token:
                token = f"practice-{secret['metadata']['uid']}"
                data = {"token": base64.b64encode(token.encode()).decode()}
                self._store.update("secrets", {**secret, "data": data})
            self._admit(account, token)

    def _secrets(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield each Secret of a token whose account exists, and the account's full name."""
        for listed in self._store.list("secrets"):
            if listed.get("type") != TYPE:
                continue
            namespace = listed["metadata"]["namespace"]
            name = listed["metadata"].get("annotations", {}).get(_ACCOUNT, "")
            if self._store.peek("serviceaccounts", name, namespace) is None:
                continue
            secret = self._store.get("secrets", listed["metadata"]["name"], namespace)
            if secret is not None:
                yield secret, f"system:serviceaccount:{namespace}:{name}"

    def _admit(self, account: str, token: str) -> None:
        documents = [
            document for kind in _RBAC_KINDS for document in self._store.list(kind, group=_RBAC)
        ]
        rules = granted(documents, account)
        if self._admitted.get(account) != (token, rules):
            self._admitted[account] = token, rules
            self._authority.admit(User(account, token), rules)


def _token(secret: KubeObject) -> str:
    encoded = (secret.get("data") or {}).get("token", "")
    return base64.b64decode(encoded).decode()
