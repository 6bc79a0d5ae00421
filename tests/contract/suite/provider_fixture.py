"""What the provider suite needs of a provider's emulator, so that one suite can ask the same of all of them.

A bench is one running emulator with one cluster's worth of groups in it. Times are virtual; nothing waits.

How a provider joins: tests/contract/provider_fixtures/<name>.py has a class that fulfils `Bench`, takes no arguments
and is a
context manager; tests/contract/suite/conftest.py names it. Each test enters a fresh one, so entering must be cheap:
what can be kept for all tests of a process (a server, certificates) is kept by the class, what a test can change is
not.

Whoever builds a bench's providers gives them `Means` with: a sleep that lets the bench's clock pass and is counted in
slept(), and a pacer that all of the bench's providers share, tests/contract/suite/shared_services.py's `shared(clock)`,
so that
the suite can see one function keep the pause that another was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, Self

from chalicelib.model.node import Node
from chalicelib.providers.base import Provider


class Trouble(StrEnum):
    """What can go wrong with the next calls."""

    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    CONFLICT = "409"
    THROTTLED = "429"
    THROTTLED_FOR = "429 with Retry-After"  # 7 seconds
    SERVER_ERROR = "500"
    CUT_OFF = "truncated body"
    WEB_PAGE = "HTML body with status 200"
    HANGS = "no answer, connection closed or timed out"
    LOST_ANSWER = "the call takes effect and its answer is lost"


class Misfortune(StrEnum):
    """What can go wrong with the next machines."""

    OUT_OF_STOCK = "out of stock"
    QUOTA = "quota exceeded"
    NEVER_COMES = "provisioning failure"


class ProviderFixture(Protocol):
    """name: the provider's. lacks: what the vendor does not know, so that its tests are skipped with this reason: keys
    are Trouble and Misfortune values and

        min          no minimum of its own
        tls          nothing goes over a network
        pace         no budget of calls is kept
        discovery    groups are named in the policy; a provider that was told none is not built, and says so (BadInput)
        shrink       no target that can be lowered apart from its machines
        discard      a machine cannot fail to join
        zero         a group keeps one machine at least
        sizes        machines are ordered one by one, so that a growth may be carried out in part

    differs: the error class that a Trouble comes to where it is by the vendor's contract another than the suite says,
    by `<trouble's value> read` or `<trouble's value> write`: `{"404 read": "InvalidRequest"}`. `<the same>
    again` is for a change that is asked for once more at once, and meets what it has done itself.
    repeatable: growths carry the vendor's own token for idempotency, or name the size that is wanted, so that sending
    one again at once is safe.

    A bench where the Nodes themselves say which machine they are has `kubelets` as well, by which they say something
    else (tests/contract/suite/kubelets.py)."""

    name: str
    lacks: dict[str, str]
    differs: dict[str, str]
    repeatable: bool

    def __enter__(self) -> Self:
        """Running, with no groups in it."""

    def __exit__(self, *_: object) -> None:
        """Stopped."""

    def now(self) -> float:
        """The virtual time, epoch seconds."""

    def most_calls(self, groups: int, machines: int) -> int:
        """The provider's own promise: how many calls one observation takes at most. No call per machine."""

    def add_group(
        self,
        name: str,
        *,
        size: int = 0,
        least: int = 0,
        most: int = 10,
        cluster: str = "ours",
        instance_type: str = "",
    ) -> str:
        """A group with `size` running machines, each with its Node; returns the group's id. cluster `theirs`: another
        cluster's group in the same account or management cluster, whose machines have no Node here."""

    def nodes(self) -> tuple[Node, ...]:
        """Our cluster's Nodes, as a pass has just listed them."""

    def provider(self, *, credential: str = "good") -> Provider:
        """A fresh provider object as a pass builds it; nothing is carried over from another. credential: `good`,
        `wrong`, or `rotated` (good from now on; the one before is refused). The secret that a provider reads is always
        the newest, so one that was built before a rotation can read itself the new one."""

    def machines(self, group: str) -> list[str]:
        """Handles of the group's machines that exist and are not being deleted, oldest first."""

    def target(self, group: str) -> int:
        """The size the vendor has been asked for."""

    def settle(self, seconds: float = 600.0) -> None:
        """Let the vendor work and virtual time pass: machines that were asked for run and have their Nodes, those that
        are being deleted are gone."""

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """The next `times` calls go wrong. on: `read`, `write` or `any`. times -1: all until calm()."""

    def calm(self) -> None:
        """No more trouble."""

    def untrusted(self) -> Provider:
        """A provider that finds its emulator behind TLS with a certificate of an authority it does not trust, and that
        has a good credential which nobody may see."""

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """The next `times` machines asked for in this group go wrong; for a vendor that tries again by itself, these
        are tries."""

    def calls(self) -> list[str]:
        """The requests that reached the emulator since the last look, one line each, oldest first."""

    def writes(self) -> list[str]:
        """Those of calls() that ask for a change, whether it was granted or not. Looks, as calls() does."""

    def secrets(self) -> Sequence[str]:
        """Every secret text in play: keys, tokens, signatures seen on the wire."""

    def slept(self) -> float:
        """Seconds that providers of this bench have asked to sleep so far."""
