"""Translates the provider's flags, variables and mounts to spec.providers, and names the secrets to store.

No value of a secret is read here. Each secret becomes a name and a command that stores it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, quote
from chalicelib.policy.importers.autoscaler_input import Argument, AutoscalerInput, Variable
from chalicelib.policy.importers.draft import Draft
from chalicelib.policy.importers.flag_table import DEFAULT_ARCH
from chalicelib.policy.importers.report import Verdict
from chalicelib.policy.importers.secret_commands import store_command
from chalicelib.policy.importers.translate_flags import read_boolean
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.yaml_document import Scalar
from chalicelib.policy.yaml_document import Sequence as NodeList

PROVIDER_NAMES = ("alicloud", "clusterapi", "cherryservers", "exoscale", "huaweicloud")
_ENDPOINT_REGION = re.compile(r"(?:https://)?(?:as|ecs)\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,4})\.")
_RRSA = (("oidcProviderArn", "OIDC_PROVIDER_ARN"), ("roleArn", "ROLE_ARN"), ("sessionName", "SESSION_NAME"))


class Source(msgspec.Struct, frozen=True):
    """Input of one translation. given: arguments by flag. name: of the cluster."""

    read: AutoscalerInput
    given: Mapping[str, Sequence[Argument]]
    name: str
    region: str = ""
    cluster_id: str = ""
    credentials_secret: str = ""

    def variable(self, *names: str) -> Variable | None:
        """Return the first variable with one of these names."""
        return next((each for name in names for each in self.read.variables if each.name == name), None)

    def secret(self, purpose: str) -> str:
        """Return the name of a secret, such as outscaler/shop/alicloud."""
        return f"outscaler/{self.name}/{purpose}"

    def last(self, flag: str) -> Argument | None:
        """Return the argument that counts."""
        found = self.given.get(flag, ())
        return found[-1] if found else None


def provider_of(given: Mapping[str, Sequence[Argument]], draft: Draft, *, place: str, kind: str) -> str:
    """Return the provider's name; empty, with a mistake in the draft, for one that Outscaler does not have."""
    known = ", ".join(PROVIDER_NAMES)
    found = given.get("cloud-provider", ())
    if not found:
        if kind == "ClusterAutoscaler":
            return "clusterapi"
        draft.problem(place, "has no --cloud-provider", f"give one of {known}")
        return ""
    name = found[-1].value or ""
    if name not in PROVIDER_NAMES:
        draft.problem(found[-1].place, f"--cloud-provider: {quote(name)} is not among {known}", "")
        return ""
    for argument in found:
        draft.row(argument.place, argument.word, Verdict.TRANSLATED, f"spec.providers.{name}")
    return name


def translate_provider(provider: str, source: Source, draft: Draft) -> str:
    """Write the provider's settings into the draft. Return what names the Secret with the cluster's kubeconfig in the
    input; empty: it is not there."""
    kubeconfig = _kubeconfig(source)
    _TRANSLATIONS[provider](source, draft)
    if provider != "clusterapi":
        _no_discovery(provider, source, draft)
        _topology_rows(source, draft, cloud_config=provider not in ("cherryservers",))
    return kubeconfig


def _kubeconfig(source: Source) -> str:
    argument = source.last("kubeconfig")
    return _object_at(source, argument.value or "") if argument is not None else ""


def _object_at(source: Source, path: str) -> str:
    """Return the Secret or ConfigMap that is mounted at a path or at one of its folders."""
    fits = [m for m in source.read.mounts if m.object and (path == m.path or path.startswith(m.path.rstrip("/") + "/"))]
    return max(fits, key=lambda mount: len(mount.path)).object if fits else ""


# -- parts that providers share --------------------------------------------------------------------------------------


def _take(source: Source, draft: Draft, provider: str, key: str, *names: str) -> bool:
    """Copy a variable that is not secret. Return whether it is in the input with a value."""
    found = source.variable(*names)
    if found is None:
        return False
    if found.value is None:
        where = f"comes from {found.object}, which is not in the input" if found.object else "has no value in the input"
        draft.problem(found.place, f"{found.name} {where}", f"add it, or give --env {found.name}=VALUE")
        return True
    draft.provider[key] = found.value
    draft.row(found.place, found.name, Verdict.TRANSLATED, f"spec.providers.{provider}.{key}")
    return True


def _store(source: Source, draft: Draft, key: str, purpose: str, found: Sequence[Variable], provider: str) -> None:
    """Name a secret for variables that hold one."""
    name = source.secret(purpose)
    if key == "credentialsSecret" and source.credentials_secret:
        name = source.credentials_secret
    draft.provider[key] = name
    objects = sorted({each.object for each in found if each.object})
    words = ", ".join(each.name for each in found) or key
    draft.row(
        found[0].place if found else source.read.place,
        words + (f": {', '.join(objects)}" if objects else ""),
        Verdict.TO_STORE,
        f"spec.providers.{provider}.{key}",
        f"{name}  {store_command(objects[0] if objects else '', name)}",
    )


def _nodes(source: Source, draft: Draft, provider: str) -> None:
    found = source.given.get("nodes", ())
    if not found:
        return
    section = PROVIDERS[provider].section
    field = next(each for each in section.fields if each.key == "nodes") if section is not None else None
    for argument in found:
        draft.row(argument.place, argument.word, Verdict.TRANSLATED, f"spec.providers.{provider}.nodes")
        report = Diagnostics(f"{argument.place}: --nodes")
        item = Scalar(argument.value or "", plain=False, line=1, column=1)
        if "," in item.text:
            draft.problem(report.place, f"{quote(item.text)} is one group in Cluster Autoscaler", "give the flag twice")
            continue
        if field is not None:
            field.kind.read(NodeList((item,), line=1, column=1, size=1), (), report)
        try:
            report.check()
        except BadInput as error:
            draft.add(error)
    draft.provider["nodes"] = [argument.value or "" for argument in found]


def _no_discovery(provider: str, source: Source, draft: Draft) -> None:
    for argument in source.given.get("node-group-auto-discovery", ()):
        text = f"Cluster Autoscaler does not read it for {provider}"
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", text)


def _topology_rows(source: Source, draft: Draft, *, cloud_config: bool) -> None:
    flags = ("kubeconfig", "kubernetes", *(("cloud-config",) if cloud_config else ()))
    for argument in chain.from_iterable(source.given.get(flag, ()) for flag in flags):
        text = "a kubeconfig that is valid outside the cluster is stored instead"
        path = "" if argument.flag == "cloud-config" else "spec.kubernetes.kubeconfigSecret"
        draft.row(argument.place, argument.word, Verdict.TO_STORE if path else Verdict.NO_EFFECT, path, text)
    for argument in source.given.get("clusterapi-cloud-config-authoritative", ()):
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "for clusterapi only")
    for argument in source.given.get(DEFAULT_ARCH, ()):
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "for clusterapi only")


def _present(source: Source, *names: str) -> list[Variable]:
    return [each for each in source.read.variables if each.name in names]


# -- providers -------------------------------------------------------------------------------------------------------


def _alicloud(source: Source, draft: Draft) -> None:
    region = source.variable("REGION_ID")
    if source.region:
        draft.provider["region"] = source.region
    elif region is not None and region.value:
        _take(source, draft, "alicloud", "region", "REGION_ID")
    elif region is not None and region.object:
        draft.problem(
            region.place,
            f"REGION_ID comes from Secret {region.object}, which is not in the input",
            "add it, or give --region",
        )
    else:
        draft.problem(source.read.place, "has no REGION_ID", "give --region")
    keys = _present(source, "ACCESS_KEY_ID", "ACCESS_KEY_SECRET")
    arns = [
        key for key, part in _RRSA if _take(source, draft, "alicloud", key, f"ALIBABA_CLOUD_{part}", f"ALICLOUD_{part}")
    ]
    if keys or source.credentials_secret:
        _store(source, draft, "credentialsSecret", "alicloud", keys, "alicloud")
    if arns and not keys:
        name = source.secret("alicloud-oidc-token")
        draft.provider["oidcTokenSecret"] = name
        token = source.variable("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALICLOUD_OIDC_TOKEN_FILE_PATH")
        text = f"the projected token: outside the cluster nothing renews it; keep a current one in the secret {name}"
        place = token.place if token is not None else source.read.place
        draft.row(place, token.name if token is not None else "OIDC token", Verdict.NOT_HERE, "", text)
    elif not keys and not source.credentials_secret:
        text = "RAM role of the node: a Lambda function has no such metadata service; use roleArn by key or OIDC"
        draft.row(source.read.place, "no credentials", Verdict.NOT_HERE, "", text)
        _store(source, draft, "credentialsSecret", "alicloud", (), "alicloud")
    _nodes(source, draft, "alicloud")


def _exoscale(source: Source, draft: Draft) -> None:
    if source.region:
        draft.provider["zone"] = source.region
    elif not _take(source, draft, "exoscale", "zone", "EXOSCALE_ZONE"):
        draft.problem(source.read.place, "has no EXOSCALE_ZONE", "give --region with the zone, such as ch-gva-2")
    keys = _present(source, "EXOSCALE_API_KEY", "EXOSCALE_API_SECRET")
    _store(source, draft, "credentialsSecret", "exoscale", keys, "exoscale")
    _nodes(source, draft, "exoscale")
    _take(source, draft, "exoscale", "environment", "EXOSCALE_API_ENVIRONMENT")
    draft.provider["scaleFromZero"] = False
    text = "so that the same groups exist: Cluster Autoscaler sees pools with a node only; the first setting to change"
    draft.row("", "scaleFromZero: false", Verdict.WRITTEN_OUT, "spec.providers.exoscale.scaleFromZero", text)
    if "nodes" not in draft.provider:
        text = "any pool with a node is scaled, from 1 to the account's quota; name pools under nodes to bound them"
        draft.row("", "no --nodes", Verdict.TOLD, "", text)


def _cherryservers(source: Source, draft: Draft) -> None:
    cluster = source.last("cluster-name")
    if cluster is not None and cluster.value:
        draft.provider["clusterName"] = cluster.value
    keys = _present(source, "CHERRY_AUTH_TOKEN")
    _store(source, draft, "credentialsSecret", "cherryservers", keys, "cherryservers")
    config = source.last("cloud-config")
    if config is not None:
        name = source.secret("cherryservers-cloud-config")
        draft.provider["cloudConfigSecret"] = name
        at = _object_at(source, config.value or "")
        text = f"{name}  {store_command(at, name)}"
        path = "spec.providers.cherryservers.cloudConfigSecret"
        draft.row(config.place, config.word, Verdict.TO_STORE, path, text)
    tokens = _present(source, "BOOTSTRAP_TOKEN_ID", "BOOTSTRAP_TOKEN_SECRET")
    if tokens:
        _store(source, draft, "bootstrapTokenSecret", "cherryservers-bootstrap-token", tokens, "cherryservers")
    _take(source, draft, "cherryservers", "controllerNodeLabel", "CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL")
    for variable in _present(source, "CHERRY_MANAGER", "CHERRY_USE_PRODUCTION_API"):
        draft.row(variable.place, variable.name, Verdict.NO_EFFECT, "", "nothing reads it here")
    _nodes(source, draft, "cherryservers")
    if not source.given.get("max-node-provision-time"):
        text = "bare metal needs longer than 15m to join: consider maxNodeProvisionTime: 1h of the provider"
        draft.row("", "no --max-node-provision-time", Verdict.TOLD, "", text)


def _clusterapi(source: Source, draft: Draft) -> None:
    found = source.given.get("node-group-auto-discovery", ())
    for argument in found:
        _check_discovery(argument, draft)
        path = "spec.providers.clusterapi.autoDiscovery"
        draft.row(argument.place, argument.word, Verdict.TRANSLATED, path)
    if found:
        draft.provider["autoDiscovery"] = [argument.value or "" for argument in found]
    if sum("namespace=" in (argument.value or "") for argument in found) > 1:
        text = "Cluster Autoscaler watched the first namespace only; here groups of all of them count"
        draft.row(found[0].place, "several --node-group-auto-discovery", Verdict.TOLD, "", text)
    for argument in source.given.get("nodes", ()):
        text = "Cluster Autoscaler does not read it for clusterapi; bounds come from annotations"
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", text)
    _take(source, draft, "clusterapi", "group", "CAPI_GROUP")
    _take(source, draft, "clusterapi", "version", "CAPI_VERSION")
    _take(source, draft, "clusterapi", "scaleZeroDefaultArch", "CAPI_SCALE_ZERO_DEFAULT_ARCH")
    arch = source.last(DEFAULT_ARCH)
    if arch is not None:
        draft.provider["scaleZeroDefaultArch"] = arch.value or ""
        path = "spec.providers.clusterapi.scaleZeroDefaultArch"
        draft.row(arch.place, arch.word, Verdict.TRANSLATED, path)
    _management(source, draft)


def _check_discovery(argument: Argument, draft: Draft) -> None:
    section = PROVIDERS["clusterapi"].section
    report = Diagnostics(f"{argument.place}: --node-group-auto-discovery")
    item = Scalar(argument.value or "", plain=False, line=1, column=1)
    if section is not None:
        field = next(each for each in section.fields if each.key == "autoDiscovery")
        field.kind.read(NodeList((item,), line=1, column=1, size=1), (), report)
    try:
        report.check()
    except BadInput as error:
        draft.add(error)


def _management(source: Source, draft: Draft) -> None:
    """Two clusters (management and workload) need two kubeconfigs; one that is both needs one."""
    cloud_config, kubeconfig = source.last("cloud-config"), source.last("kubeconfig")
    authoritative = source.last("clusterapi-cloud-config-authoritative")
    alone = authoritative is not None
    if authoritative is not None:
        try:
            alone = read_boolean(authoritative)
        except BadInput as error:
            draft.add(error)
        path = "spec.providers.clusterapi.kubeconfigSecret"
        draft.row(authoritative.place, authoritative.word, Verdict.TRANSLATED, path)
    if kubeconfig is not None:
        text = "the workload cluster's kubeconfig"
        draft.row(kubeconfig.place, kubeconfig.word, Verdict.TO_STORE, "spec.kubernetes.kubeconfigSecret", text)
    if cloud_config is None and not (kubeconfig is not None and alone):
        return
    name = source.secret("clusterapi")
    draft.provider["kubeconfigSecret"] = name
    if cloud_config is not None:
        at = _object_at(source, cloud_config.value or "")
        path = "spec.providers.clusterapi.kubeconfigSecret"
        text = f"{name}  {store_command(at, name)}"
        draft.row(cloud_config.place, cloud_config.word, Verdict.TO_STORE, path, text)


def _huaweicloud(source: Source, draft: Draft) -> None:
    place = source.read.place
    if not source.cluster_id:
        draft.problem(
            place,
            "huaweicloud of Cluster Autoscaler scales groups of Auto Scaling: there is no CCE cluster behind these "
            "groups",
            "give --cluster-id if the cluster has moved to CCE",
        )
        return
    texts = [mount.text for mount in source.read.mounts if mount.text]
    region = source.region or next((m[1] for text in texts for m in _ENDPOINT_REGION.finditer(text)), "")
    if not region:
        draft.problem(place, "has no region", "give --region")
    draft.provider.update({"region": region, "clusterId": source.cluster_id})
    project = next((m[1] for text in texts for m in re.finditer(r"project-id\s*[=:]\s*\"?([0-9a-f]{32})", text)), "")
    if project:
        draft.provider["projectId"] = project
    _store(source, draft, "credentialsSecret", "huaweicloud", (), "huaweicloud")
    for argument in source.given.get("nodes", ()):
        text = "names a group of Auto Scaling, not a CCE node pool: write the pools under nodes"
        draft.row(argument.place, argument.word, Verdict.NOT_HERE, "", text)


_TRANSLATIONS: Mapping[str, Callable[[Source, Draft], None]] = {
    "alicloud": _alicloud,
    "cherryservers": _cherryservers,
    "clusterapi": _clusterapi,
    "exoscale": _exoscale,
    "huaweicloud": _huaweicloud,
}
