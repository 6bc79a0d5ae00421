"""The connection to the management cluster, made at its first use.

A provider that cannot be built is taken for one with wrong settings, and what was planned for it fails for good. A
secret that AWS does not give at this moment is no such thing; so the way is opened late, and what goes wrong then has
the class that says whether coming back helps.
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
    """way: to the management cluster, None where it is the workload cluster. connect: makes a client of it."""

    def __init__(
        self, workload: KubeApi, way: KubernetesAccess | None, connect: Callable[[KubernetesAccess], object]
    ) -> None:
        self.workload, self._way, self._connect = workload, way, connect
        self._management = workload if way is None else None

    def management(self) -> KubeApi:
        """The client; the same one each time. Raises ProviderError: Transient where the secret cannot be read just now,
        InvalidRequest where a person must mend what is in it."""
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
        """Which cluster the management cluster is (kube_api.py); empty where its client does not tell."""
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
