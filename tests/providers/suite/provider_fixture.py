"""The interface that the provider suite requires of a provider's emulator, so that one
suite can test all providers.

A bench is one running emulator with the groups of one cluster in it. Times
are virtual; nothing waits.

To add a provider: write a class in tests/providers/<name>/fixture.py that implements
`ProviderFixture`, takes no arguments and is a context manager, and name it in
tests/providers/suite/conftest.py. Each test enters a new bench, so entering must be cheap: the
class keeps what all tests of a process can share (a server, certificates), but nothing that a test
can change.

A bench gives its providers `ProviderServices` with a sleep that advances the bench's clock and is
counted in slept(), and with a rate limiter that all of the bench's providers share
(tests/providers/suite/shared_services.py's `shared(clock)`), so that the suite can see one function
observe the pause that another was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, Self

from chalicelib.model.node import Node
from chalicelib.providers.kit.base import Provider


class Trouble(StrEnum):
    """Faults of the next calls."""

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
    """Failures of the next machines."""

    OUT_OF_STOCK = "out of stock"
    QUOTA = "quota exceeded"
    NEVER_COMES = "provisioning failure"


class ProviderFixture(Protocol):
    """The emulator of one provider.

    name: the provider's. lacks: features that the vendor does not have, so that their tests are
    skipped with this reason;
    keys are Trouble and Misfortune values and

        min          no minimum of its own
        tls          nothing goes over a network
        pace         no call budget is kept
        discovery    groups are named in the policy; a provider without any is not
                     built, and says so (BadInput)
        shrink       no target that can be lowered independently of its machines
        discard      a machine cannot fail to join
        zero         a group keeps at least one machine
        sizes        machines are ordered one by one, so that a scale-up may be carried out in part

    differs: the error class of a Trouble where the vendor's contract differs from the suite, by
    `<trouble's value> read` or `<trouble's value> write`: `{"404 read": "InvalidRequest"}`. `<the
    same> again` is for a change that is immediately requested again and finds its own effect.
    repeatable: scale-ups carry the vendor's own idempotency token, or name the absolute size, so
    that an immediate repetition is safe.

    A bench where the Nodes themselves name their machine also has `kubelets`, by which they name
    another one (tests/providers/suite/kubelets.py)."""

    name: str
    lacks: dict[str, str]
    differs: dict[str, str]
    repeatable: bool

    def __enter__(self) -> Self:
        """Starts the bench without groups."""

    def __exit__(self, *_: object) -> None:
        """Stops the bench."""

    def now(self) -> float:
        """Returns the virtual time in epoch seconds."""

    def most_calls(self, groups: int, machines: int) -> int:
        """Returns the maximum number of calls of one observation, as the provider promises
        it. No call per machine."""

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
        """Adds a group with `size` running machines, each with its Node; returns the group's id.
        cluster `theirs`: another cluster's group in the same account or management cluster, whose
        machines have no Node here."""

    def nodes(self) -> tuple[Node, ...]:
        """Returns our cluster's Nodes, as a reconcile pass has just listed them."""

    def provider(self, *, credential: str = "good") -> Provider:
        """Returns a new provider object as a reconcile pass builds it, without state of an earlier
        one. credential: `good`,
        `wrong`, or `rotated` (valid from now on; the previous one is refused). The secret
        that a provider reads is always the newest, so a provider that was built before a
        rotation can read the new one."""

    def machines(self, group: str) -> list[str]:
        """Returns the handles of the group's machines that exist and are not
        being deleted, oldest first."""

    def target(self, group: str) -> int:
        """Returns the size that the vendor has been asked for."""

    def settle(self, seconds: float = 600.0) -> None:
        """Lets the vendor work and virtual time pass until requested machines run and have their
        Nodes, and machines in deletion are gone."""

    def trouble(self, kind: Trouble, *, on: str = "any", times: int = 1) -> None:
        """Makes the next `times` calls fail. on: `read`, `write` or `any`.
        times -1: all until calm()."""

    def calm(self) -> None:
        """Ends all faults."""

    def untrusted(self) -> Provider:
        """Returns a provider whose emulator is behind TLS with a certificate of an authority that
        it does not trust; its credential is valid and must not leak."""

    def misfortune(self, group: str, kind: Misfortune, *, times: int = 1) -> None:
        """Makes the next `times` machines requested in this group fail; for a vendor that retries
        by itself, the next `times`
        attempts."""

    def calls(self) -> list[str]:
        """Returns the requests that reached the emulator since the previous call, one
        line each, oldest first."""

    def writes(self) -> list[str]:
        """Returns those of calls() that ask for a change, granted or not. Like
        calls(), it resets the log."""

    def secrets(self) -> Sequence[str]:
        """Returns every secret text in use: keys, tokens, signatures seen in requests."""

    def slept(self) -> float:
        """Returns the seconds that providers of this bench have asked to sleep so far."""


class NodeLifeFixture(ProviderFixture, Protocol):
    """What happens to running machines at the vendor, for
    tests/providers/suite/test_suite_node_life.py. A bench has those of the methods that its vendor
    knows; the tests of the others are skipped."""

    def add_spot_group(
        self, name: str, *, size: int = 0, least: int = 0, cluster: str = "ours"
    ) -> str:
        """See add_group; the vendor may take its machines back."""

    def interrupt(self, machine: str) -> float:
        """Makes the vendor announce that it takes back this machine of a spot group;
        returns when, in epoch seconds."""

    def redefine(self, group: str) -> None:
        """Changes what the group creates from now on, as a person does; its
        machines stay as they are."""

    def occupy(self, group: str) -> None:
        """Makes the vendor change something of the group by itself; it has ended after settle()."""

    def reboots(self, machine: str) -> int:
        """Returns how often the vendor has restarted the machine. A restart
        has ended after settle()."""
