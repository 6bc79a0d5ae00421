"""The account's RAM: access keys, sessions, and their permissions.

Policy documents are evaluated as a customer would attach them (infra/alicloud/ram-policy.json is used), so tests prove
that it grants enough and no more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec


class Statement(msgspec.Struct, frozen=True):
    """One statement of a policy; patterns may contain `*`."""

    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]


class Policy(msgspec.Struct, frozen=True):
    """Permissions of a policy. An explicit Deny takes precedence."""

    statements: tuple[Statement, ...]

    def allows(self, action: str, resource: str) -> bool:
        """Return whether the policy allows an action on a resource. action: `ess:RemoveInstances`. resource:
        `acs:ess:region:account:scalinggroup/id`, or `*` if the action does not support resources; only a statement
        for all resources covers `*`."""
        fitting = [each for each in self.statements if _fits(each.actions, action) and _fits(each.resources, resource)]
        return bool(fitting) and all(each.allows for each in fitting)


def _fits(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_policy(text: str) -> Policy:
    """Parse a RAM policy document. Raises ValueError for a document that RAM would reject."""
    document = json.loads(text)
    if document.get("Version") != "1":
        raise ValueError(f'Version {document.get("Version")!r}: RAM knows "1"')
    return Policy(
        tuple(
            Statement({"Allow": True, "Deny": False}[each["Effect"]], _many(each["Action"]), _many(each["Resource"]))
            for each in document["Statement"]
        )
    )


def _many(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(slots=True)
class AlicloudKey:
    """An access key, or the key of a session if it has a token. policy: None for all permissions. expires: end of a
    session."""

    id: str
    secret: str
    policy: Policy | None = None
    token: str = ""
    expires: float = 0.0
    active: bool = True


@dataclass(slots=True)
class Role:
    """A RAM role. trusts: access key ids and OIDC provider ARNs that may assume it."""

    arn: str
    trusts: frozenset[str]
    policy: Policy | None = None
    longest: float = 3600.0


class AlicloudKeyRing:
    """All keys, roles and identity tokens of the account. identities: OIDC provider ARN -> valid tokens."""

    def __init__(self) -> None:
        self.keys: dict[str, AlicloudKey] = {}
        self.roles: dict[str, Role] = {}
        self.identities: dict[str, set[str]] = {}
        self._sessions = 0

    def add(self, id_: str, secret: str, policy: Policy | None = None) -> AlicloudKey:
        """Add a valid key."""
        self.keys[id_] = AlicloudKey(id_, secret, policy)
        return self.keys[id_]

    def session(self, role: Role, expires: float) -> AlicloudKey:
        """Create a session of a role."""
        self._sessions += 1
        number = f"{self._sessions:06d}"
        made = AlicloudKey(
            f"STS.local{number}",
            f"local-session-secret-{number}",
            role.policy,
            f"CAIS+local/session*{number}~token==",
            expires,
        )
        self.keys[made.id] = made
        return made

    def secrets(self) -> list[str]:
        """Return every confidential text."""
        tokens = [token for held in self.identities.values() for token in held]
        return [text for key in self.keys.values() for text in (key.secret, key.token) if text] + tokens
