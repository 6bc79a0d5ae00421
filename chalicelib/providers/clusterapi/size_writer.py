"""Who wrote the size of a resource last, as the API server notes it in metadata.managedFields.

The field manager of `kubectl scale` is kubectl, that of Cluster Autoscaler is its program,
cluster-autoscaler. Both write through the subresource `scale`. The notes are for comparisons only,
so notes that cannot be read are none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.group import SizeWriter
from chalicelib.model.timestamps import instant
from chalicelib.providers.clusterapi.models import CapiResource

LONGEST_NAME = 128  # what the API server permits for a field manager
MOST_NOTES = 200


class _OwnedFields(msgspec.Struct, frozen=True):
    spec: dict[str, Any] | None = msgspec.field(default=None, name="f:spec")


class _Note(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    time: str | None = None
    fields_v1: _OwnedFields | None = msgspec.field(default=None, name="fieldsV1")


def size_writer(resource: CapiResource) -> SizeWriter | None:
    """Return the manager that owns spec.replicas; the last one of several,
    None where none is noted."""
    try:
        notes = msgspec.json.decode(resource.metadata.managed_fields, type=list[_Note] | None)
    except msgspec.MsgspecError:
        return None
    writers = [
        SizeWriter(note.manager[:LONGEST_NAME], instant(note.time or ""))
        for note in (notes or ())[:MOST_NOTES]
        if note.manager
        and note.fields_v1 is not None
        and "f:replicas" in (note.fields_v1.spec or {})
    ]
    return max(writers, key=lambda writer: writer.at, default=None)
