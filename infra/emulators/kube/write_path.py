"""The API server's write path over the store: POST, PUT, PATCH and DELETE.

The order of a write is that of the real server: decoding, stale version, fields that a subresource
may change, pruning and defaults, validation, storage. All of it runs under the store's lock, so the
checked state is the state that is changed.
"""

from __future__ import annotations

from typing import Any

from chalicelib.model.errors import BadInput
from infra.emulators.kube import crds, patches, scale, status, validation
from infra.emulators.kube.listing import show, taken_in
from infra.emulators.kube.objects import KubeObject, clone, dig
from infra.emulators.kube.request import Request, ResourcePath, Response, answer
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.store import ObjectStore, terminating

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
# stored as sent
_STATUS_AT_CREATION = frozenset({("", "nodes"), ("storage.k8s.io", "volumeattachments")})
_ALWAYS_VERSIONED = frozenset(
    {("policy", "poddisruptionbudgets"), ("coordination.k8s.io", "leases")}
)
_LEFT_OUT = {
    "metadata": {"labels", "annotations", "finalizers", "ownerReferences"},
    "spec": {"taints"},
}
_JSON, _MERGE = "application/json-patch+json", "application/merge-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_CUSTOM_PATCHES = (_JSON, _MERGE, _APPLY)


def _tidy(obj: KubeObject) -> KubeObject:
    tidied = dict(obj)
    for part, fields in _LEFT_OUT.items():
        if isinstance(obj.get(part), dict):
            tidied[part] = {
                key: value for key, value in obj[part].items() if value or key not in fields
            }
    return tidied


class Target:
    """One resource in one version, with its store, as resolved from a request's route."""

    def __init__(
        self, store: ObjectStore, resource: ServedResource, version: Version, route: ResourcePath
    ) -> None:
        self.store, self.resource, self.version, self.route = store, resource, version, route
        self.group, self.plural = resource.alias or (resource.group, resource.plural)

    def stored(self) -> KubeObject:
        """Return the object (READ ONLY). Raises ApiError 404."""
        found = self.store.peek(self.plural, self.route.name, self.route.namespace, self.group)
        if found is None:
            raise status.not_found(self.resource.plural, self.resource.group, self.route.name)
        return found

    def show(self, obj: KubeObject) -> KubeObject:
        if self.route.subresource == "scale":
            return scale.scale_of(self.version, obj)
        return show(self.resource, self.version, obj)


def _check_definition(target: Target, obj: KubeObject) -> None:
    """Raise ApiError 422 for a CustomResourceDefinition that does not describe a resource."""
    if (target.group, target.plural) != (crds.GROUP, crds.PLURAL):
        return
    try:
        crds.resource(obj)
    except BadInput as error:
        why = status.cause("FieldValueInvalid", f"Invalid value: {error.problem}", "spec")
        raise status.invalid(
            target.resource.kind, target.group, obj["metadata"]["name"], [why]
        ) from None


class Writer:
    """The write path of one server."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self._owners = store, patches.FieldOwners()

    # -- create

    def create(self, request: Request, target: Target) -> Response:
        obj = request.object()
        with self._store.transaction():
            made = self._admitted(target, obj)
            stored = self._store.create(target.plural, made, target.group, dry_run=request.dry_run)
            if not request.dry_run:
                self._owners.note(request.manager, None, stored)
                if (target.group, target.plural) == (crds.GROUP, crds.PLURAL):
                    stored = crds.establish(self._store, stored)
        return answer(201, target.show(stored))

    def _admitted(self, target: Target, obj: KubeObject) -> KubeObject:
        resource, route = target.resource, target.route
        self._typed(target, obj)
        meta = obj.setdefault("metadata", {})
        if not resource.namespaced:
            meta.pop("namespace", None)
        elif meta.setdefault("namespace", route.namespace) != route.namespace:
            why = (
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
            raise status.bad_request(why)
        elif self._store.peek("namespaces", route.namespace) is None:
            raise status.not_found("namespaces", "", route.namespace)
        meta.pop("resourceVersion", None)
        if not meta.get("name") and meta.get("generateName"):
            space = route.namespace if resource.namespaced else ""
            meta["name"] = self._store.new_name(
                target.plural, meta["generateName"], space, target.group
            )
        made = self._shaped(target, obj)
        if target.version.status and (target.group, target.plural) not in _STATUS_AT_CREATION:
            made.pop("status", None)
        if (target.group, target.plural) == ("", "nodes"):
            spec = made.setdefault("spec", {})
            if not any(taint.get("key") == _NOT_READY["key"] for taint in spec.get("taints") or ()):
                spec["taints"] = [*(spec.get("taints") or ()), dict(_NOT_READY)]
        validation.check(resource, target.version, made)
        _check_definition(target, made)
        return _tidy(taken_in(resource, made))

    def _typed(self, target: Target, obj: KubeObject) -> None:
        """Check that apiVersion and kind are the route's. Built-in objects may omit them."""
        resource, expected = target.resource, target.resource.at(target.version.name)
        for field, right in (("kind", resource.kind), ("apiVersion", expected)):
            if not obj.get(field) and not resource.native:
                raise status.bad_request(
                    f"Object '{field[:1].upper() + field[1:]}' is missing in the request"
                )
            if obj.setdefault(field, right) == right:
                continue
            if field == "kind":
                text = (
                    f'{obj[field]} in version "{target.version.name}" cannot be handled as a '
                    f"{right}"
                )
                raise status.bad_request(text)
            text = (
                f"the API version in the data ({obj[field]}) does not match the expected API "
                f"version ({right})"
            )
            raise status.bad_request(text)

    def _shaped(self, target: Target, obj: KubeObject) -> KubeObject:
        if target.version.schema is None:
            return obj
        pruned: KubeObject = clone(validation.prune(target.version.schema, obj))
        validation.fill_defaults(target.version.schema, pruned)
        return pruned

    # -- update and patch

    def update(self, request: Request, target: Target) -> Response:
        sent = request.object()
        with self._store.transaction():
            old = target.stored()
            return answer(200, target.show(self._replaced(request, target, old, sent)))

    def patch(self, request: Request, target: Target) -> Response:
        """PATCH of any type to an object or its status or scale."""
        kind = request.content_type
        allowed = (*_CUSTOM_PATCHES, _STRATEGIC) if target.resource.native else _CUSTOM_PATCHES
        if kind not in allowed:
            if target.resource.native:
                raise status.ApiError(
                    415, "UnsupportedMediaType", "415: Unsupported Media Type", {}
                )
            raise status.ApiError(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - "
                f"accepted media types include: {', '.join(_CUSTOM_PATCHES)}",
            )
        if kind == _APPLY:
            return self._applied(request, target)
        patch = patches.decode(request.body)
        with self._store.transaction():
            old = target.stored()
            shown = target.show(old)
            if kind == _JSON:
                sent = patches.json_patch(shown, patch)
            elif not isinstance(patch, dict):
                raise status.bad_request(
                    "error decoding patch: json: cannot unmarshal into an object"
                )
            else:
                sent = (
                    patches.merge(shown, patch)
                    if kind == _MERGE
                    else patches.strategic(shown, patch)
                )
            return answer(200, target.show(self._replaced(request, target, old, sent)))

    def _applied(self, request: Request, target: Target) -> Response:
        if not request.query.get("fieldManager"):
            why = status.cause(
                "FieldValueRequired", "Required value: is required for apply patch", "fieldManager"
            )
            raise status.invalid("PatchOptions", "meta.k8s.io", "", [why])
        config, manager = patches.decode_applied(request.body), request.query["fieldManager"]
        force = request.query.get("force") in {"true", "1"}
        route = target.route
        with self._store.transaction():
            old = self._store.peek(target.plural, route.name, route.namespace, target.group)
            if old is None:
                config.setdefault("metadata", {})["name"] = route.name
                made = self._store.create(
                    target.plural, self._admitted(target, config), target.group
                )
                self._owners.created(manager, config, made)
                return answer(201, target.show(made))
            merged = self._owners.merge(manager, target.show(old), config, force=force)
            return answer(
                200, target.show(self._replaced(request, target, old, merged, owned=True))
            )

    def _replaced(
        self,
        request: Request,
        target: Target,
        old: KubeObject,
        sent: KubeObject,
        *,
        owned: bool = False,
    ) -> KubeObject:
        resource, route = target.resource, target.route
        if route.subresource == "scale":
            made = scale.apply_scale(resource, target.version, old, sent)
        else:
            self._typed(target, sent)
            meta = sent.setdefault("metadata", {})
            if meta.setdefault("name", route.name) != route.name:
                raise status.bad_request(
                    f"the name of the object ({meta['name']}) does not match the name on the URL "
                    f"({route.name})"
                )
            if resource.namespaced:
                meta["namespace"] = route.namespace
            self._check_version(target, old, meta)
            made = _tidy(self._touched(target, old, taken_in(resource, self._shaped(target, sent))))
            shown = show(resource, target.version, made)
            validation.check(resource, target.version, shown, show(resource, target.version, old))
            _check_definition(target, made)
        stored = self._store.update(target.plural, made, target.group, dry_run=request.dry_run)
        if not request.dry_run and not owned:
            self._owners.note(request.manager, old, stored)
        if (target.group, target.plural) == (crds.GROUP, crds.PLURAL) and not route.subresource:
            stored = crds.establish(self._store, stored)
        return stored

    def _check_version(self, target: Target, old: KubeObject, meta: KubeObject) -> None:
        given = meta.get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            raise status.conflict(target.resource.plural, target.resource.group, target.route.name)
        if not given and (target.group, target.plural) in _ALWAYS_VERSIONED:
            text = 'Invalid value: "": must be specified for an update'
            raise status.invalid(
                target.resource.kind,
                target.group,
                target.route.name,
                [status.cause("FieldValueInvalid", text, "metadata.resourceVersion")],
            )

    def _touched(self, target: Target, old: KubeObject, sent: KubeObject) -> KubeObject:
        """Return what this path may change: everything but the status, or only the status."""
        if not target.version.status:
            return sent
        if target.route.subresource != "status":
            made = {key: value for key, value in sent.items() if key != "status"}
            return {**made, "status": old["status"]} if "status" in old else made
        made = {key: value for key, value in old.items() if key not in {"status", "metadata"}}
        version = dig(sent, "metadata", "resourceVersion")
        # only built-in kinds permit changes of metadata through /status
        meta = (
            sent["metadata"]
            if target.resource.native
            else {**old["metadata"], "resourceVersion": version}
        )
        made["metadata"] = meta
        return {**made, "status": sent["status"]} if "status" in sent else made

    # -- delete

    def delete(self, target: Target, options: dict[str, Any], *, dry_run: bool = False) -> Response:
        """DELETE one object. options: a DeleteOptions object."""
        with self._store.transaction():
            old = target.stored()
            meta, wanted = old["metadata"], options.get("preconditions") or {}
            for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                if wanted.get(field) not in {None, meta[field]}:
                    why = (
                        f"Precondition failed: {words} in precondition: {wanted[field]}, {words} "
                        "in object meta: "
                        f"{meta[field]}"
                    )
                    raise status.conflict(
                        target.resource.plural, target.resource.group, meta["name"], why
                    )
            left: KubeObject | None = None
            if not dry_run:
                left = self._store.delete(
                    target.plural,
                    meta["name"],
                    meta.get("namespace", ""),
                    target.group,
                    grace=options.get("gracePeriodSeconds"),
                )
            if left is None and not dry_run:
                self._owners.forget(meta["uid"])
                if (target.group, target.plural) == (crds.GROUP, crds.PLURAL):
                    crds.retire(self._store, old)
        if left is not None or (target.group, target.plural) == ("", "pods"):
            return answer(200, target.show(left or terminating(old, self._store.clock(), 0)))
        details = status.about(meta["name"], target.resource.group, target.resource.plural)
        return answer(200, status.success(details={**details, "uid": meta["uid"]}))
