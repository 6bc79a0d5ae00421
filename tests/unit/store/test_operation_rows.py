"""Stored operations keep their bytes: the recorded file was written by the release before spec
and status were told apart."""

from __future__ import annotations

import pathlib
from typing import Any

import msgspec

from chalicelib.cli.plan_inputs import read_memory, write_memory
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationSpec, OperationStatus
from chalicelib.model.operation_document import OperationDocument, from_document, to_document
from chalicelib.store.memory_rows import to_operation, to_row
from chalicelib.store.staged_saves import Staged


class Recorded(msgspec.Struct):
    """operations: their fields; rows: as in the table; save: of a large save,
    hexadecimal; memory: the saved file."""

    operations: list[OperationDocument]
    rows: list[dict[str, dict[str, Any]]]
    save: str
    memory: str


RECORDED = msgspec.json.decode(
    pathlib.Path(__file__).with_name("recorded").joinpath("operations.json").read_bytes(),
    type=Recorded,
)
OPERATIONS = tuple(map(from_document, RECORDED.operations))


def test_rows_of_operations_keep_their_bytes() -> None:
    assert [to_row(operation).serialize() for operation in OPERATIONS] == RECORDED.rows


def test_rows_of_an_earlier_release_are_read() -> None:
    assert tuple(to_operation(row) for row in RECORDED.rows) == OPERATIONS


def test_large_save_keeps_its_bytes() -> None:
    save = bytes.fromhex(RECORDED.save)
    assert msgspec.msgpack.encode(Staged((), tuple(map(to_document, OPERATIONS)))) == save
    assert (
        tuple(map(from_document, msgspec.msgpack.decode(save, type=Staged).operations))
        == OPERATIONS
    )


def test_saved_memory_keeps_its_bytes(tmp_path: pathlib.Path) -> None:
    memory = Memory(operations=OPERATIONS[:3], first_seen=5.0, unregistered={"i": 1.0})
    write_memory(tmp_path / "memory.json", memory)
    assert (tmp_path / "memory.json").read_text() == RECORDED.memory
    assert read_memory(tmp_path / "memory.json") == memory


def test_operation_document_has_exactly_the_fields_of_spec_and_status() -> None:
    assert sorted(OperationDocument.__struct_fields__) == sorted(
        (*OperationSpec.__struct_fields__, *OperationStatus.__struct_fields__)
    )
    assert all(
        to_document(operation) == flat
        for operation, flat in zip(OPERATIONS, RECORDED.operations, strict=True)
    )
