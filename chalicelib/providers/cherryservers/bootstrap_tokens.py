"""Where a new machine gets the token from that lets it join: a secret that a person keeps, or one we make (§1.4,
§10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from chalicelib.model.secret import place_of
from chalicelib.providers.base import Connection
from chalicelib.providers.cherryservers.bootstrap_token import Token, parse_token
from chalicelib.providers.cherryservers.managed_tokens import MadeTokens, by_chance
from chalicelib.providers.cherryservers.settings import PLACE, CherrySettings
from chalicelib.providers.credential_source import as_provider_error, read_fresh
from chalicelib.providers.errors import Unauthorized
from chalicelib.providers.kube_protocol import KubeApi

__all__ = ["Token", "Tokens", "open_tokens"]


class Tokens(Protocol):
    """The bootstrap tokens of one cluster."""

    def current(self) -> Token:
        """The token for machines that are ordered now. Asked once for an order, not once for each machine.

        Raises ProviderError: Unauthorized where a person must mend something, Transient where there is no answer.
        """


class KeptTokens:
    """A token in a secret. It is read anew each time: machines with one that was replaced would be bought in vain."""

    def __init__(self, read_secret: Callable[[str], str], name: str) -> None:
        self._read_secret, self._name = read_secret, name

    def current(self) -> Token:
        """See Tokens."""
        return as_provider_error(lambda: parse_token(read_fresh(self._read_secret, self._name), place_of(self._name)))


class NoTokens:
    """None, and what to do about it."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def current(self) -> Token:
        """See Tokens."""
        raise Unauthorized(self._problem, code="Credentials")


def open_tokens(connection: Connection, settings: CherrySettings, *, draw: Callable[[], str] = by_chance) -> Tokens:
    """What the settings ask for; sends nothing. draw: the secret part of a new token, by chance."""
    bootstrap = settings.bootstrap
    if bootstrap.secret:
        return KeptTokens(connection.read_secret, bootstrap.secret)
    if not bootstrap.create:
        return NoTokens(f"{PLACE}.bootstrapTokenSecret: is missing; name a secret, or set createBootstrapTokens: true")
    if connection.kube is None:
        return NoTokens(f"{PLACE}.createBootstrapTokens: there is no cluster to make a token in; see spec.kubernetes")
    return MadeTokens(cast(KubeApi, connection.kube), connection.cluster, bootstrap.lifetime, connection.now, draw)
