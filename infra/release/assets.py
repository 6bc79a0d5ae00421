"""What a release has besides its wheel and zips: the chart, the plugin of kubectl,
and the schema of policies.

Their sources state the release as 0.0.0, which is replaced here. Archives have the date of the
commit and no owner, so that the same commit gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from chalicelib.policy.document import json_schema

UNRELEASED, NO_SUM = "0.0.0", "0" * 64
CHART, KREW, MANIFESTS = "infra/helm", "infra/krew", "infra/kubernetes"
_PLAIN, _EXECUTABLE = 0o644, 0o755


def chart(source: Path, version: str, epoch: int) -> bytes:
    """Return the chart as Helm packs it, with the manifests that it links to."""
    files = {
        file.relative_to(source / CHART).as_posix(): file.read_bytes()
        for folder in (source / CHART, source / CHART / "templates")
        for file in folder.iterdir()
        if file.is_file()
    }
    files |= {
        f"manifests/{file.name}": file.read_bytes() for file in (source / MANIFESTS).glob("*.yaml")
    }
    files["Chart.yaml"] = _released(files["Chart.yaml"], version)
    return archive({f"outscaler/{name}": (data, _PLAIN) for name, data in files.items()}, epoch)


def plugin(source: Path, version: str, epoch: int) -> tuple[bytes, str]:
    """Return the archive of the plugin, and its manifest for krew with the archive's checksum."""
    script = _released((source / KREW / "kubectl-outscaler").read_bytes(), version)
    licence = (source / "LICENSE").read_bytes()
    packed = archive(
        {"kubectl-outscaler": (script, _EXECUTABLE), "LICENSE": (licence, _PLAIN)}, epoch
    )
    manifest = _released((source / KREW / "outscaler.yaml").read_bytes(), version).decode()
    return packed, manifest.replace(NO_SUM, hashlib.sha256(packed).hexdigest())


def schema() -> str:
    """Return the JSON schema of a policy, as `outscaler schema` prints it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def archive(files: Mapping[str, tuple[bytes, int]], epoch: int) -> bytes:
    """Return a tar.gz of files with their modes, by name."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name in sorted(files):
            data, permissions = files[name]
            entry = tarfile.TarInfo(name).replace(mode=permissions, mtime=epoch, deep=False)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _released(text: bytes, version: str) -> bytes:
    return text.replace(UNRELEASED.encode(), version.encode())
