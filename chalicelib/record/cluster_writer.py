"""Writes Events and the status ConfigMap to the cluster (EventApi, ConfigMapApi), connecting at the first write.

Reporting must not delay a pass: each write has half the time of other writes.
"""

from __future__ import annotations

import msgspec

from chalicelib.kube import objects
from chalicelib.kube.client import LazyKubeClient
from chalicelib.kube.errors import Unavailable
from chalicelib.kube.objects import ConfigMap, get_pod, post_event
from chalicelib.record.events import Event


class _WrittenMeta(msgspec.Struct, frozen=True):
    uid: str


class _Object(msgspec.Struct, frozen=True):
    metadata: _WrittenMeta


class ClusterWriter(LazyKubeClient):
    """Implements EventApi and ConfigMapApi. connect: called when the first event is posted."""

    def uid_of(self, kind: str, namespace: str, name: str) -> str:
        """See EventApi."""
        if kind == "ConfigMap":
            return objects.get_config_map(self.connected, namespace, name).uid
        try:
            return msgspec.json.decode(get_pod(self.connected, namespace, name), type=_Object).metadata.uid
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the answer is not a Pod: {error}") from None

    def post(self, event: Event, now: float) -> None:
        """See EventApi."""
        involved = {"kind": event.kind, "name": event.name, "uid": event.uid}
        involved |= {"apiVersion": event.api_version} if event.api_version else {}
        post_event(
            self.connected,
            namespace=event.namespace,
            involved=involved,
            reason=event.reason,
            message=event.message,
            type_=event.type,
            now=now,
        )

    def find(self, namespace: str, name: str) -> ConfigMap:
        """See ConfigMapApi."""
        return objects.get_config_map(self.connected, namespace, name)

    def change(
        self, namespace: str, name: str, config_map: ConfigMap, data: dict[str, str], annotations: dict[str, str]
    ) -> None:
        """See ConfigMapApi."""
        objects.patch_config_map(self.connected, namespace, name, config_map, data, annotations)
