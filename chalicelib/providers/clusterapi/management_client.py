"""The connection to the management cluster, opened at its first use.

A provider that cannot be built counts as misconfigured, and its planned operations fail permanently. A secret that AWS
cannot return at the moment is only a temporary error. The connection is therefore opened late, and its errors have the
class that decides whether to retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy import KubernetesAccess
from chalicelib.model.secret import SecretUnavailable
from chalicelib.providers.errors import InvalidRequest, ProviderError, Transient
from chalicelib.providers.http_statuses import class_for
from chalicelib.providers.kube_protocol import Identified, KubeApi


class Reach:
    """way: access settings of the management cluster, None if it is the workload cluster. connect: creates its
    client."""

    def __init__(
        self, workload_api: KubeApi, access: KubernetesAccess | None, connect: Callable[[KubernetesAccess], object]
    ) -> None:
        self.workload, self._way, self._connect = workload_api, access, connect
        self._management = workload_api if access is None else None

    def management(self) -> KubeApi:
        """Return the client, the same one each time.

        Raises ProviderError: Transient if the secret cannot be read now, InvalidRequest if its contents are wrong."""
        if self._management is None:
            assert self._way is not None
            try:
                self._management = cast(KubeApi, self._connect(self._way))
            except ProviderError:
                raise
            except OutscalerError as error:
                raise _classified(error) from error
        return self._management

    def identity(self) -> str:
        """Return the management cluster's identity (kube_protocol.py); empty if its client reports none."""
        client = self.management()
        return client.identity if isinstance(client, Identified) else ""


def _classified(error: OutscalerError) -> ProviderError:
    first = str(error).partition("\n")[0]
    text = f"the management cluster cannot be reached: {first}"
    if isinstance(error, SecretUnavailable):
        return Transient(text)
    if hasattr(error, "status"):
        return class_for(error.status)(text, retry_after=float(getattr(error, "retry_after", 0.0) or 0.0))
    return InvalidRequest(text)
