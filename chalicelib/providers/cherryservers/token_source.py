"""Provides the bootstrap token with which a new server joins: from the operator's secret, or generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from chalicelib.model.secret import place_of
from chalicelib.policy.vendors.cherryservers import PLACE, CherrySettings
from chalicelib.providers.base import Connection
from chalicelib.providers.cherryservers.bootstrap_token import Token, parse_token
from chalicelib.providers.cherryservers.managed_tokens import MadeTokens, by_chance
from chalicelib.providers.credential_source import as_provider_error, read_fresh
from chalicelib.providers.errors import Unauthorized
from chalicelib.providers.kube_protocol import KubeApi

__all__ = ["Token", "Tokens", "open_tokens"]


class Tokens(Protocol):
    """The bootstrap tokens of one cluster."""

    def current(self) -> Token:
        """Return the token for servers that are ordered now. Called once per order, not once per server.

        Raises ProviderError: Unauthorized if the operator must act, Transient if there is no response.
        """


class KeptTokens:
    """A token in a secret. It is read each time, because servers with a replaced token could never join."""

    def __init__(self, read_secret: Callable[[str], str], name: str) -> None:
        self._read_secret, self._name = read_secret, name

    def current(self) -> Token:
        """See Tokens."""
        return as_provider_error(lambda: parse_token(read_fresh(self._read_secret, self._name), place_of(self._name)))


class NoTokens:
    """No token; its error names the remedy."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def current(self) -> Token:
        """See Tokens."""
        raise Unauthorized(self._problem, code="Credentials")


def open_tokens(connection: Connection, settings: CherrySettings, *, draw: Callable[[], str] = by_chance) -> Tokens:
    """Return the token source that the settings select; sends nothing. draw: generates the secret part of a new
    token."""
    bootstrap = settings.bootstrap
    if bootstrap.secret:
        return KeptTokens(connection.read_secret, bootstrap.secret)
    if not bootstrap.create:
        return NoTokens(f"{PLACE}.bootstrapTokenSecret: is missing; name a secret, or set createBootstrapTokens: true")
    if connection.kube is None:
        return NoTokens(f"{PLACE}.createBootstrapTokens: there is no cluster to make a token in; see spec.kubernetes")
    return MadeTokens(cast(KubeApi, connection.kube), connection.cluster, bootstrap.lifetime, connection.now, draw)
