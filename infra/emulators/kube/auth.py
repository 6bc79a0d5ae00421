"""Authentication and authorization: bearer tokens, client certificates, and RBAC as
rules per user or group.

Error texts are those of the real server, because the program shows them to people and reports the
missing permission. Tokens exist only here, and nothing logs them.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from infra.emulators.kube import status

ANONYMOUS = "system:anonymous"
AUTHENTICATED, UNAUTHENTICATED, MASTERS = (
    "system:authenticated",
    "system:unauthenticated",
    "system:masters",
)


class User(msgspec.Struct, frozen=True):
    """A user as the server knows it. token: "" for a user with a client certificate only."""

    name: str
    token: str = ""
    groups: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"User({self.name!r})"


class RbacRule(msgspec.Struct, frozen=True):
    """One RBAC rule; `*` matches everything. resources: plurals, with `/subresource`. namespaces:
    () for all of them and the cluster scope. names: () for all. urls: non-resource paths, `*` at
    the end matches the rest."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        if not _among(self.verbs, asked.verb):
            return False
        if asked.url:
            return any(
                url == asked.url or (url[-1:] == "*" and asked.url.startswith(url[:-1]))
                for url in self.urls
            )
        return (
            _among(self.groups, asked.group)
            and _among(self.resources, asked.resource_path)
            and (not self.namespaces or asked.namespace in self.namespaces)
            and (not self.names or asked.name in self.names)
        )


class Attributes(msgspec.Struct, frozen=True):
    """What a request does, as authorization sees it. url: for requests that
    are not about a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    url: str = ""

    @property
    def resource_path(self) -> str:
        """Return `pods` or `pods/eviction`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def _among(allowed: tuple[str, ...], value: str) -> bool:
    return "*" in allowed or value in allowed


def granted(documents: Iterable[Mapping[str, Any]], account: str) -> list[RbacRule]:
    """Return the rules that manifests grant to a service account through their bindings,
    in the order of the roles.

    A Role counts in the namespace of its RoleBinding only, and so does a ClusterRole that a
    RoleBinding refers to. account: `system:serviceaccount:NAMESPACE:NAME`.
    """
    known = list(documents)
    rules: list[RbacRule] = []
    for binding in (
        each for each in known if each["kind"] in ("RoleBinding", "ClusterRoleBinding")
    ):
        named = {
            f"system:serviceaccount:{each.get('namespace', '')}:{each['name']}"
            for each in binding["subjects"]
        }
        space = binding["metadata"].get("namespace", "") if binding["kind"] == "RoleBinding" else ""
        if account in named:
            rules.extend(_rules_of_role(known, binding["roleRef"], space))
    return rules


def _rules_of_role(
    documents: Iterable[Mapping[str, Any]], reference: Mapping[str, str], space: str
) -> Iterable[RbacRule]:
    """Yield the rules of a role. space: the namespace of its binding, empty for all of them."""
    home = space if reference["kind"] == "Role" else ""
    for role in documents:
        meta = role["metadata"]
        if (role["kind"], meta["name"], meta.get("namespace", "")) == (
            reference["kind"],
            reference["name"],
            home,
        ):
            for rule in role["rules"]:
                yield RbacRule(
                    verbs=tuple(rule["verbs"]),
                    groups=tuple(rule["apiGroups"]),
                    resources=tuple(rule["resources"]),
                    names=tuple(rule.get("resourceNames", ())),
                    namespaces=(space,) if space else (),
                )


ADMIN = RbacRule(verbs=("*",), groups=("*",), resources=("*",), urls=("*",))
# permissions in every cluster, as a recorded SelfSubjectRulesReview lists them
_INFO = RbacRule(verbs=("get",), urls=("/healthz", "/livez", "/readyz", "/version", "/version/"))
_BASIC: tuple[RbacRule, ...] = (
    RbacRule(
        verbs=("create",),
        groups=("authorization.k8s.io",),
        resources=("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    ),
    RbacRule(
        verbs=("create",), groups=("authentication.k8s.io",), resources=("selfsubjectreviews",)
    ),
    _INFO,
    RbacRule(verbs=("get",), urls=("/.well-known", "/.well-known/*")),
    RbacRule(
        verbs=("get",),
        urls=(
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        ),
    ),
    RbacRule(
        verbs=("get",),
        urls=(
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
            "/version/",
        ),
    ),
)


class KubeAuthority:
    """Authentication and authorization of one server.

    users: the users, tokens included; rbac: user or group name -> rules. Members of
    system:masters may do everything.
    """

    def __init__(self, users: Iterable[User], rbac: Mapping[str, Iterable[RbacRule]]) -> None:
        self._users = {user.name: user for user in users}
        self._rules = {name: tuple(rules) for name, rules in rbac.items()}
        self._known: dict[str, User] = {}  # header -> user; users are not changed later

    def admit(self, user: User, rules: Iterable[RbacRule]) -> None:
        self._users[user.name], self._rules[user.name] = user, tuple(rules)
        self._known.clear()

    def user(self, name: str) -> User:
        """Return the user with that name. Raises KeyError if it does not exist."""
        return self._users[name]

    def identify(self, authorization: str, certificate: User | None = None) -> User:
        """Return the user of a request, anonymous without credentials. Raises ApiError
        401 for wrong credentials.

        authorization: the header; certificate: the user that a verified client certificate names
        """
        if not authorization:
            if certificate is None:
                return User(ANONYMOUS, groups=(UNAUTHENTICATED,))
            known = self._users.get(certificate.name)
            groups = (*certificate.groups, *(known.groups if known else ()), AUTHENTICATED)
            return User(certificate.name, groups=groups)
        if authorization in self._known:
            return self._known[authorization]
        scheme, _, token = authorization.partition(" ")
        for user in self._users.values():
            if (
                user.token
                and scheme.lower() == "bearer"
                and hmac.compare_digest(user.token, token.strip())
            ):
                return self._known.setdefault(
                    authorization, User(user.name, groups=(*user.groups, AUTHENTICATED))
                )
        raise status.ApiError(401, "Unauthorized", "Unauthorized")

    def rules(self, user: User) -> tuple[RbacRule, ...]:
        if MASTERS in user.groups:
            return (ADMIN, *_BASIC)
        base = _BASIC if AUTHENTICATED in user.groups else (_INFO,)
        own = [rule for name in (user.name, *user.groups) for rule in self._rules.get(name, ())]
        return (*base, *own)

    def allows(self, user: User, asked: Attributes) -> bool:
        return any(rule.allows(asked) for rule in self.rules(user))

    def demand(self, user: User, asked: Attributes) -> None:
        """Raise ApiError 403 unless the user may do that."""
        if self.allows(user, asked):
            return
        if asked.url:
            message = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.url}"'
            raise status.ApiError(403, "Forbidden", message, {})
        plural = status.qualified(asked.resource, asked.group)
        subject = f'{plural} "{asked.name}"' if asked.name else plural
        where = (
            f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        )
        message = (
            f'{subject} is forbidden: User "{user.name}" cannot {asked.verb} resource '
            f'"{asked.resource_path}" '
            f'in API group "{asked.group}" {where}'
        )
        raise status.ApiError(
            403, "Forbidden", message, status.about(asked.name, asked.group, asked.resource)
        )

    def access_review(self, user: User, spec: Mapping[str, Any]) -> dict[str, Any]:
        asked = spec.get("resourceAttributes")
        if asked is not None:
            fields = ("verb", "group", "resource", "subresource", "namespace", "name")
            attributes = Attributes(**{field: asked.get(field, "") for field in fields})
        else:
            other = spec.get("nonResourceAttributes") or {}
            attributes = Attributes(verb=other.get("verb", ""), url=other.get("path", ""))
        return {"allowed": self.allows(user, attributes)}

    def rules_review(self, user: User, namespace: str) -> dict[str, Any]:
        resources: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for rule in self.rules(user):
            if rule.resources and (not rule.namespaces or namespace in rule.namespaces):
                entry = {
                    "verbs": list(rule.verbs),
                    "apiGroups": list(rule.groups),
                    "resources": list(rule.resources),
                }
                resources.append(
                    {**entry, "resourceNames": list(rule.names)} if rule.names else entry
                )
            if rule.urls:
                others.append({"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)})
        return {"resourceRules": resources, "nonResourceRules": others, "incomplete": False}
