"""How the wheel is built: `[tool.setuptools.cmdclass]` of pyproject.toml names these classes.

Two things in it are not in the tree as they are. The manifests are copied from infra/kubernetes,
their only source, into the package of the command. The links of README.md lead to the release on
GitHub, because PyPI shows the page elsewhere.
Imports the standard library and setuptools only: a build has nothing else.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

ROOT = Path(__file__).resolve().parents[2]
#: The folder of the manifests in the tree, and in the wheel.
MANIFESTS, SHIPPED = "infra/kubernetes", "chalicelib/cli/files/kubernetes"
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_PICTURES = (".png", ".svg")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class BuildPackages(build_py):  # type: ignore[misc]  # setuptools has no types
    """Copies the manifests beside the packages, except into an editable
    installation, which reads the tree."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib) / SHIPPED
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted((ROOT / MANIFESTS).glob("*.yaml")):
            shutil.copyfile(file, folder / file.name)
            (folder / file.name).chmod(0o644)  # whatever the umask: the wheel has the mode


class DescribePackage(egg_info):  # type: ignore[misc]  # setuptools has no types
    """Writes the description with links that work everywhere."""

    def finalize_options(self) -> None:
        super().finalize_options()
        metadata = self.distribution.metadata
        metadata.long_description = absolute(
            metadata.long_description or "", repository(), f"v{metadata.version}"
        )


def repository() -> str:
    """Return the address of the repository, which pyproject.toml alone states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Source"])


def absolute(text: str, source: str, tag: str) -> str:
    """Return a Markdown page of the root whose relative links and pictures lead to
    that tag of the repository."""

    def leading(match: re.Match[str]) -> str:
        start, link, end = match.groups()
        if re.match(r"[a-z]+:|#", link):
            return match.group()
        view = "raw" if link.endswith(_PICTURES) else "blob"
        return f"{start}{source}/{view}/{tag}/{link}{end}"

    parts, at = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(leading, text[at : fence.start()]), fence.group()]
        at = fence.end()
    return "".join([*parts, _LINK.sub(leading, text[at:])])
