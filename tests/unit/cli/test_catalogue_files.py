"""Catalogues in files: what is written is read again, and any other file is refused in one
line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.catalogue_files import KIND, read_catalogue, write_catalogue
from chalicelib.model.catalogue import Catalogue
from chalicelib.model.errors import BadInput
from tests.builders import NOW
from tests.unit.plan.managed_offers import entries

TYPE = {"name": "s", "family": "s", "zone": "z", "cores": 1, "memory": 1}
GOOD: dict[str, Any] = {
    "kind": KIND,
    "provider": "exoscale",
    "readAt": "2026-10-01T00:00:00Z",
    "currency": "EUR",
    "types": [TYPE],
}


def test_catalogue_that_was_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.json"
    catalogue = Catalogue("EUR", entries("z1", "z2"), 0.001)
    write_catalogue(file, "exoscale", catalogue, NOW)
    saved = read_catalogue(file)
    assert (saved.catalogue, saved.at, saved.provider) == (catalogue, NOW, "exoscale")


BAD = {
    "empty": (b"", "is not a saved catalogue"),
    "no JSON": (b"types: []", "is not a saved catalogue"),
    "no text": (b"\xff\xfe", "is not a saved catalogue"),
    "deep": (b"[" * 100_000, "is not a saved catalogue"),
    "another kind": (json.dumps(GOOD | {"kind": "List"}).encode(), "kind must be"),
    "no time": (json.dumps(GOOD | {"readAt": "yesterday"}).encode(), "readAt"),
    "no cores": (json.dumps(GOOD | {"types": [TYPE | {"cores": 0}]}).encode(), "types[0].cores"),
    "a price": (json.dumps(GOOD | {"types": [TYPE | {"price": -1}]}).encode(), "types[0].price"),
    "a disk": (json.dumps(GOOD | {"diskPrice": 1e300}).encode(), "diskPrice"),
    "no name": (json.dumps(GOOD | {"types": [TYPE | {"name": ""}]}).encode(), "types[0].name"),
}


@pytest.mark.parametrize(("data", "words"), BAD.values(), ids=BAD)
def test_file_that_is_no_catalogue_is_refused_with_place_and_remedy(
    tmp_path: Path, data: bytes, words: str
) -> None:
    file = tmp_path / "catalogue.json"
    file.write_bytes(data)
    with pytest.raises(BadInput) as raised:
        read_catalogue(file)
    assert words in raised.value.problem
    assert raised.value.place == str(file)
    assert "--save catalogue.json" in raised.value.remedy
