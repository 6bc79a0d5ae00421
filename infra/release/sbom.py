"""The software bill of materials: deployed dependencies of Outscaler, as CycloneDX JSON."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import metadata

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from chalicelib.page.assets import FOLDER
from infra.aws.wheels import Wheel

SCHEMA = SchemaVersion.V1_6
_NAMES = uuid.UUID("3d4f5b3c-0e0e-5c39-9a53-6a2f2f0c8d11")  # namespace of the serial numbers


def bill(version: str, epoch: int, wheels: Mapping[str, Sequence[Wheel]]) -> str:
    """Return the document. wheels: architecture -> the dependencies in its zip.
    epoch: seconds of the commit.

    The same arguments give the same text. Chalice's runtime files are in the zip too, but not in
    the document, because they come from no wheel there.
    """
    released = Component(
        name="outscaler",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"pkg:pypi/outscaler@{version}",
        licenses=_licences("Apache-2.0"),
        purl=PackageURL("pypi", None, "outscaler", version),
    )
    files: dict[tuple[str, str], list[tuple[str, Wheel]]] = {}
    for architecture, each in ((name, each) for name in sorted(wheels) for each in wheels[name]):
        files.setdefault((each.name, each.version), []).append((architecture, each))
    components = [
        _component(name, number, given) for (name, number), given in sorted(files.items())
    ]
    components += [_chalice(), _uplot()]
    made = Bom(
        components=components,
        version=1,
        serial_number=uuid.uuid5(_NAMES, f"{version} {epoch} {sorted(files)}"),
        metadata=BomMetaData(component=released, timestamp=datetime.fromtimestamp(epoch, UTC)),
    )
    made.register_dependency(released, components)
    return make_outputter(made, OutputFormat.JSON, SCHEMA).output_as_string(indent=2) + "\n"


def _component(name: str, version: str, files: Sequence[tuple[str, Wheel]]) -> Component:
    """Return a component. hashes: of every file that one of the zips was built from; the
    references identify the files."""
    by_file: dict[Wheel, list[str]] = {}
    for architecture, wheel in files:
        by_file.setdefault(wheel, []).append(architecture)
    references = [
        ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(wheel.file),
            hashes=[_hash(wheel)],
            comment=f"in the zip for {' and '.join(architectures)}",
        )
        for wheel, architectures in by_file.items()
    ]
    purl = PackageURL("pypi", None, name, version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=_licences(files[0][1].licence),
        hashes=[_hash(wheel) for wheel in by_file],
        external_references=references,
    )


def _chalice() -> Component:
    about = metadata("chalice").json
    purl = PackageURL("pypi", None, "chalice", str(about["version"]))
    return Component(
        name="chalice",
        version=purl.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=_licences(str(about.get("license_expression") or about.get("license") or "")),
    )


def _uplot() -> Component:
    """Return the library that draws the charts of the status page; the zip has one file
    of it (chalicelib/page)."""
    content = (FOLDER / "uPlot.js").read_bytes()
    version = re.search(rb"\(v([0-9.]+)\)", content[:200])
    assert version is not None
    purl = PackageURL("npm", None, "uplot", version[1].decode())
    return Component(
        name="uplot",
        version=purl.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=_licences("MIT"),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())],
    )


def _hash(wheel: Wheel) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)


def _licences(stated: str) -> list[License]:
    """Return the licences: None if the project states nothing, an SPDX id or expression if it is
    one, otherwise the text."""
    return [LicenseFactory().make_from_string(stated)] if stated else []
