"""The part of an attached account that all vendors share: the account and its server, once there is a clock."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from infra.emulators.vendor_common.server import VendorServer

_Cloud = TypeVar("_Cloud")
_Server = TypeVar("_Server", bound=VendorServer[Any, Any])


class AttachedAccount(Generic[_Cloud, _Server]):
    """Base of the vendors' accounts. A subclass sets _cloud and _server when it is attached to a clock."""

    _cloud: _Cloud | None = None
    _server: _Server | None = None

    @property
    def cloud(self) -> _Cloud:
        """The account. AssertionError before it is attached."""
        assert self._cloud is not None, "attach the account first"
        return self._cloud

    @property
    def server(self) -> _Server:
        """The server of the account's API. AssertionError before it is attached."""
        assert self._server is not None, "attach the account first"
        return self._server

    def start(self) -> None:
        """Serve."""
        self.server.start()

    def stop(self) -> None:
        """Stop serving; harmless if it never began."""
        if self._server is not None:
            self._server.stop()
