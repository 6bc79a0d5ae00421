"""CustomResourceDefinitions: converts a manifest to a served resource, and loads a directory
of manifests into a store.

The simulation has its own short definitions (definitions/). If Cluster API's real ones are
available, the same code loads them, and objects are validated against their complete schemas.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.resources import CUSTOM, ServedResource, Version
from infra.emulators.kube.store import ObjectStore

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
OWN = Path(__file__).with_name("definitions")
HEALTH_CHECKS = OWN / "health_checks"
"""The definition of MachineHealthChecks, which is only loaded where a cluster is to have some: an
object more changes the random names of all that are created later."""
KARPENTER = OWN / "karpenter"
"""The definition of Karpenter's NodePools, which few clusters have."""


def _priority(name: str) -> tuple[int, int, int]:
    """Return a sort key for Kubernetes' version order: v2 before v1 before v1beta2 before
    v1beta1 before v1alpha1."""
    major, _, rest = name.removeprefix("v").partition("alpha" if "alpha" in name else "beta")
    stage = 0 if "beta" not in name and "alpha" not in name else (1 if "beta" in name else 2)
    return stage, -int(major or 0) if major.isdigit() else 0, -int(rest) if rest.isdigit() else 0


def resource(crd: KubeObject) -> ServedResource:
    """Return the resource of a definition. Raises BadInput if the
    definition lacks a required field."""
    try:
        spec, names = crd["spec"], crd["spec"]["names"]
        served = [each for each in spec["versions"] if each.get("served", True)]
        versions = [
            Version(
                name=each["name"],
                schema=dig(each, "schema", "openAPIV3Schema"),
                scale=dig(each, "subresources", "scale"),
                status=dig(each, "subresources", "status") is not None,
            )
            for each in served
        ]
        return ServedResource(
            group=spec["group"],
            plural=names["plural"],
            kind=names["kind"],
            versions=tuple(sorted(versions, key=lambda version: _priority(version.name))),
            storage=next(each["name"] for each in spec["versions"] if each.get("storage")),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            verbs=CUSTOM,
            generation=True,
            native=False,
            singular=names.get("singular", names["kind"].lower()),
            list_kind=names.get("listKind", f"{names['kind']}List"),
        )
    except (KeyError, TypeError, AttributeError, StopIteration):
        name = dig(crd, "metadata", "name") or "a CustomResourceDefinition"
        raise BadInput(
            str(name), "is not a complete definition", "see apiextensions.k8s.io/v1"
        ) from None


def establish(store: ObjectStore, crd: KubeObject) -> KubeObject:
    """Serve the resource of a definition and write the definition's status, as the
    API's own controller does."""
    made = resource(crd)
    store.resources.add(made)
    now = format_time(store.clock())
    names = crd["spec"]["names"]
    status: dict[str, Any] = {
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            for type_, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
        "acceptedNames": names,
        "storedVersions": [made.storage],
    }
    return store.update(PLURAL, {**crd, "status": status}, GROUP)


def retire(store: ObjectStore, crd: KubeObject) -> None:
    """Remove the objects and the resource of a deleted definition."""
    spec = crd["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    for obj in store.list(plural, group=group):
        store.remove(plural, obj["metadata"]["name"], obj["metadata"].get("namespace", ""), group)
    store.resources.drop(plural, group)


@functools.lru_cache(maxsize=64)  # every server loads the same files
def _documents(text: str) -> tuple[Any, ...]:
    """READ ONLY. Raises yaml.YAMLError."""
    return tuple(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def load(store: ObjectStore, directory: Path) -> None:
    """Create every definition of a directory that is not in the store yet. Raises
    BadInput for an unreadable file."""
    for path in sorted(directory.glob("*.yaml")):
        try:
            documents = _documents(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise BadInput(
                path.name, "is not readable YAML", str(error).replace("\n", " ")
            ) from None
        for crd in documents:
            if isinstance(crd, dict) and crd.get("kind") == "CustomResourceDefinition":
                name = crd["metadata"]["name"]
                if store.peek(PLURAL, name, group=GROUP) is None and resource(crd):
                    establish(store, store.create(PLURAL, crd, GROUP))
