"""EventApi over a real cluster, connected at the first event."""

from __future__ import annotations

import msgspec

from chalicelib.kube.errors import Unavailable
from chalicelib.kube.events import post_event
from chalicelib.kube.lazily import Lazily
from chalicelib.kube.pods import get_pod
from chalicelib.record.events import Event


class _Meta(msgspec.Struct, frozen=True):
    uid: str


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta


class Board(Lazily):
    """connect: called when the first event is posted."""

    def uid_of(self, namespace: str, pod: str) -> str:
        """See EventApi."""
        try:
            return msgspec.json.decode(get_pod(self.connected, namespace, pod), type=_Object).metadata.uid
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the answer is not a Pod: {error}") from None

    def post(self, event: Event, now: float) -> None:
        """See EventApi."""
        involved = {"kind": event.kind, "name": event.name, "uid": event.uid}
        post_event(self.connected, namespace=event.namespace, involved=involved, reason=event.reason,
                   message=event.message, type_=event.type, now=now)
