"""A stand-in for a provider that could not be built: wrong settings, no credential, or not part of this version.

It takes the place of a real provider and answers every call with the same error. A configuration error would otherwise
abort the whole pass. Here it is handled like any failing provider: its groups are reported as missing data, and the
other providers continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.providers.base import Observation
from chalicelib.providers.errors import InvalidRequest


class UnavailableProvider:
    """A provider whose every call fails. why: the reason in one line, safe to show."""

    def __init__(self, name: str, why: str) -> None:
        self._name, self._why = name, why

    @property
    def name(self) -> str:
        """The provider's name in the policy."""
        return self._name

    def observe(self, nodes: Sequence[Node]) -> Observation:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def scale_up(self, operation: Operation) -> Outcome:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def has_requested(self, operation: Operation) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def delete_nodes(self, operation: Operation) -> Outcome:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def cancel_delete(self, operation: Operation) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def decrease_target(self, operation: Operation) -> Outcome:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def poll(self, operation: Operation) -> Outcome:  # noqa: ARG002 - the protocol's parameter
        """Raises InvalidRequest."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InvalidRequest(f"provider {self._name}: {self._why}", code="NotBuilt")
