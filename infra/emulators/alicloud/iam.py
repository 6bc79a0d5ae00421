"""The account's RAM: access keys, sessions, and their permissions.

Policy documents are evaluated as a customer would attach them (infra/alicloud/ram-policy.json is
used), so tests prove that it grants enough and no more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec

from infra.emulators.vendor_common.keys import SessionTexts, VendorKey, VendorKeyRing


class Statement(msgspec.Struct, frozen=True):
    """One statement of a policy; patterns may contain `*`."""

    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]


class Policy(msgspec.Struct, frozen=True):
    """Permissions of a policy. An explicit Deny takes precedence."""

    statements: tuple[Statement, ...]

    def allows(self, action: str, resource: str) -> bool:
        """Return whether the policy allows an action on a resource. action: `ess:RemoveInstances`.
        resource: `acs:ess:region:account:scalinggroup/id`, or `*` if the action does not support
        resources; only a statement for all resources covers `*`."""
        fitting = [
            each
            for each in self.statements
            if _fits(each.actions, action) and _fits(each.resources, resource)
        ]
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
            Statement(
                {"Allow": True, "Deny": False}[each["Effect"]],
                _many(each["Action"]),
                _many(each["Resource"]),
            )
            for each in document["Statement"]
        )
    )


def _many(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


AlicloudKey = VendorKey[Policy]


@dataclass(slots=True)
class Role:
    """A RAM role. trusts: access key ids and OIDC provider ARNs that may assume it."""

    arn: str
    trusts: frozenset[str]
    policy: Policy | None = None
    longest: float = 3600.0


class AlicloudKeyRing(VendorKeyRing[Policy]):
    """All keys, roles and identity tokens of the account. identities: OIDC
    provider ARN -> valid tokens."""

    def __init__(self) -> None:
        super().__init__(
            SessionTexts("STS.local{}", "local-session-secret-{}", "CAIS+local/session*{}~token==")
        )
        self.roles: dict[str, Role] = {}
        self.identities: dict[str, set[str]] = {}

    def secrets(self) -> list[str]:
        """Return every confidential text."""
        return [*super().secrets(), *(token for held in self.identities.values() for token in held)]
