"""File format of `plan --save-memory` and `plan --memory`: a memory with a kind field that identifies it.

Every JSON object could be decoded as an empty memory. A wrong file would then change the plan silently, so only a file
that is recognisably a memory is accepted.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from chalicelib.model.api_integers import unbounded_numbers
from chalicelib.model.errors import BadInput
from chalicelib.model.memory import Memory
from chalicelib.model.operation_document import OperationDocument, from_document, to_document
from chalicelib.net.bounded_files import content

_KIND = "outscaler/memory"
_MOST_BYTES = 2**28
_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(Memory))


class _Operations(msgspec.Struct, frozen=True):
    """The operations of an encoded Memory."""

    operations: tuple[OperationDocument, ...] = ()


def write(path: Path, memory: Memory) -> None:
    """Write the memory with its kind; raises OSError."""
    # Only for encoding: the type of the field is Operation.
    flat = msgspec.structs.replace(memory, operations=tuple(map(to_document, memory.operations)))
    path.write_bytes(msgspec.json.format(msgspec.json.encode({"kind": _KIND, "memory": flat}), indent=1) + b"\n")


def read(path: Path) -> Memory:
    """Read a saved memory, or a bare Memory object without other keys. Raises BadInput, OSError."""
    data = content(path, _MOST_BYTES)
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "kind" not in fields:
            return _bare(data, fields, "kind is missing")
        if msgspec.json.decode(fields["kind"]) != _KIND or set(fields) != {"kind", "memory"}:
            raise msgspec.ValidationError(f"kind and memory must be all it has, and kind must be {_KIND}")
        inner = msgspec.json.decode(fields["memory"], type=dict[str, msgspec.Raw])
        return _bare(bytes(fields["memory"]), inner, "") if inner else Memory()
    except RecursionError:
        raise BadInput(str(path), "is not a saved memory (nested too deeply)", "write one with --save-memory") from None
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: text that is not UTF-8, an overlong number
        raise BadInput(str(path), f"is not a saved memory ({error})", "write one with --save-memory") from None


def _bare(data: bytes, fields: dict[str, msgspec.Raw], empty: str) -> Memory:
    """Decode a Memory that has at least one known field and no unknown ones; raises msgspec.ValidationError, ValueError
    for a number beyond the bounds of stored data."""
    unknown = sorted(set(fields) - _KNOWN)
    if unknown or not fields:
        raise msgspec.ValidationError(f"{unknown[0]} is nothing that is remembered" if unknown else empty)
    operations = msgspec.json.decode(data, type=_Operations).operations
    others = msgspec.json.encode({name: value for name, value in fields.items() if name != "operations"})
    memory = msgspec.json.decode(others, type=Memory)
    if mistake := next(unbounded_numbers(memory, "memory"), ""):
        raise ValueError(mistake)
    return msgspec.structs.replace(memory, operations=tuple(map(from_document, operations)))
