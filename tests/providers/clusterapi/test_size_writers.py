"""Who wrote the size of a MachineDeployment last, by the API server's own notes."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.group import SizeWriter
from chalicelib.model.timestamps import parse_time
from chalicelib.providers.clusterapi.models import CapiResource
from chalicelib.providers.clusterapi.size_writer import size_writer
from tests.cases import each_row

REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
LABELS: dict[str, Any] = {"f:metadata": {"f:labels": {}}, "f:spec": {"f:template": {}}}


def note(
    manager: str, at: str = "2026-11-29T09:00:00Z", owned: dict[str, Any] = REPLICAS
) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "time": at,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    }


def writer_of(notes: object) -> SizeWriter | None:
    body = msgspec.json.encode(
        {"metadata": {"name": "web", "managedFields": notes}, "spec": {"replicas": 3}}
    )
    return size_writer(msgspec.json.decode(body, type=CapiResource))


@each_row(
    "notes, name",
    [
        ([note("cluster-autoscaler")], "cluster-autoscaler"),
        ([note("helm", owned=LABELS), note("kubectl")], "kubectl"),
        ([note("kubectl", "2026-11-29T09:01:00Z"), note("cluster-autoscaler")], "kubectl"),
        ([note("kubectl", "soon"), note("cluster-autoscaler")], "cluster-autoscaler"),
    ],
)
def test_last_manager_that_owns_the_replicas_is_the_writer(notes: object, name: str) -> None:
    writer = writer_of(notes)
    assert writer is not None
    assert (writer.name, writer.at > 0) == (name, True)


def test_time_of_the_note_is_the_time_of_the_write() -> None:
    assert writer_of([note("kubectl")]) == SizeWriter("kubectl", parse_time("2026-11-29T09:00:00Z"))


@each_row(
    "notes",
    [
        None,
        [],
        [note("helm", owned=LABELS)],
        [note("")],
        "text",
        {"manager": "kubectl"},
        [7],
        [{"manager": 7, "fieldsV1": REPLICAS}],
        [{"manager": "kubectl", "fieldsV1": {"f:spec": 5}}],
        [{"manager": "kubectl", "fieldsV1": None}],
    ],
)
def test_notes_that_cannot_be_read_are_none_and_the_resource_is_read(notes: object) -> None:
    assert writer_of(notes) is None


def test_resource_without_notes_has_no_writer() -> None:
    assert (
        size_writer(msgspec.json.decode(b'{"metadata": {"name": "web"}}', type=CapiResource))
        is None
    )


def test_long_names_of_managers_are_cut() -> None:
    writer = writer_of([note("x" * 5000)])
    assert writer is not None
    assert len(writer.name) == 128
