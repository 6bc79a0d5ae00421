"""The emulated Cherry Servers API on a loopback port, over HTTP or TLS.

with CherryHttpServer(Cloud(clock)) as server:
    server.add_token("CHERRY-EXAMPLE-TOKEN")
    server.cloud.add_server("workers")
    ...                                             # a client with the root server.root
    assert [call.line for call in server.log] == ["GET /projects/10001/servers", …]
"""

from __future__ import annotations

from infra.emulators.certificates import Pair
from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.dispatcher import VERSION, CherryDispatcher, CherryLoggedRequest, Token
from infra.emulators.vendor_common.server import VendorServer


class CherryHttpServer(VendorServer[CherryDispatcher, CherryLoggedRequest]):
    """Serves an account. As a context manager it starts on entry and stops on exit; the account stays."""

    def __init__(self, cloud: CherryCloud, *, tls: Pair | None = None, in_process: bool = False) -> None:
        super().__init__(CherryDispatcher(cloud), tls=tls, in_process=in_process)
        self.cloud = cloud

    @property
    def root(self) -> str:
        """Return the API's address with its version, as in a client's endpoint."""
        return f"{self.url}{VERSION}"

    def add_token(self, text: str, *, writes: bool = True) -> None:
        """Accept this token from now on. writes: it permits changes."""
        self.front.tokens[text] = Token(writes)
