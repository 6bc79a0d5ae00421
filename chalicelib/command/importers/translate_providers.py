"""Translates the provider's flags, variables and mounts to spec.providers, and names the secrets to store.

No value of a secret is read here. Each secret becomes a name and a command that stores it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from chalicelib.command.importers.autoscaler_input import Argument
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.flag_table import DEFAULT_ARCH
from chalicelib.command.importers.provider_source import (
    Source,
    check_setting,
    object_at,
    present,
    read_nodes,
    read_setting,
    store,
    take,
)
from chalicelib.command.importers.report import Verdict
from chalicelib.command.importers.secret_commands import store_command
from chalicelib.command.importers.translate_cherryservers import translate_cherryservers
from chalicelib.command.importers.translate_flags import read_boolean
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import quote

_ALICLOUD_REMARKS = (
    (
        "rights of the key",
        (
            "infra/alicloud/ram-policy.json; the RAM policy in Cluster Autoscaler's documentation lacks "
            "ess:ScaleWithAdjustment, without which only scaling groups with an expected number of instances grow, and "
            "ecs:DescribeLaunchTemplateVersions"
        ),
    ),
    (
        "FPGA instance types",
        (
            "not supported: a template of their nodes has no FPGA, unless a tag of the scaling group, "
            "k8s.io/cluster-autoscaler/node-template/resources/NAME, states it"
        ),
    ),
)
PROVIDER_NAMES = ("alicloud", "clusterapi", "cherryservers", "exoscale", "huaweicloud")
_ENDPOINT_REGION = re.compile(r"(?:https://)?(?:as|ecs)\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,4})\.")
_RRSA = (("oidcProviderArn", "OIDC_PROVIDER_ARN"), ("roleArn", "ROLE_ARN"), ("sessionName", "SESSION_NAME"))


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
    for variable in source.read.variables:
        if variable.name not in source.used:
            text = f"{provider} has no setting for it here; it counts only where a flag names it"
            draft.row(variable.place, variable.name, Verdict.NO_EFFECT, "", text)
    if provider != "clusterapi":
        _no_discovery(provider, source, draft)
        _topology_rows(source, draft, cloud_config=provider not in ("cherryservers",))
    return kubeconfig


def _kubeconfig(source: Source) -> str:
    argument = source.last("kubeconfig")
    return object_at(source, argument.value or "") if argument is not None else ""


# -- parts that providers share --------------------------------------------------------------------------------------


def _no_discovery(provider: str, source: Source, draft: Draft) -> None:
    for argument in source.given.get("node-group-auto-discovery", ()):
        text = f"Cluster Autoscaler does not read it for {provider}"
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", text)


def _topology_rows(source: Source, draft: Draft, *, cloud_config: bool) -> None:
    flags = ("kubeconfig", "kubernetes", *(("cloud-config",) if cloud_config else ()))
    for argument in chain.from_iterable(source.given.get(flag, ()) for flag in flags):
        text = "a kubeconfig that is valid outside the cluster is stored instead"
        path = "spec.kubernetes.kubeconfigSecret"
        if argument.flag == "cloud-config":
            text, path = "a file of the container, which nothing reads here", ""
        draft.row(argument.place, argument.word, Verdict.TO_STORE if path else Verdict.NO_EFFECT, path, text)
    for argument in source.given.get("clusterapi-cloud-config-authoritative", ()):
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "for clusterapi only")
    for argument in source.given.get(DEFAULT_ARCH, ()):
        draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "for clusterapi only")


# -- providers -------------------------------------------------------------------------------------------------------


def _alicloud(source: Source, draft: Draft) -> None:
    region = source.variable("REGION_ID")
    if source.region:
        draft.provider["region"] = source.region
        source.not_counting(draft, "REGION_ID", "--region counts")
    elif region is not None and region.value:
        take(source, draft, "alicloud", "region", "REGION_ID")
    elif region is not None and region.object:
        draft.problem(
            region.place,
            f"REGION_ID comes from Secret {region.object}, which is not in the input",
            "add it, or give --region",
        )
    else:
        draft.problem(source.read.place, "has no REGION_ID", "give --region")
    keys = present(source, "ACCESS_KEY_ID", "ACCESS_KEY_SECRET")
    arns = [
        key for key, part in _RRSA if take(source, draft, "alicloud", key, f"ALIBABA_CLOUD_{part}", f"ALICLOUD_{part}")
    ]
    if keys or source.credentials_secret:
        store(source, draft, "credentialsSecret", "alicloud", keys, "alicloud")
    if arns and not keys:
        name = source.secret("alicloud-oidc-token")
        draft.provider["oidcTokenSecret"] = name
        token = source.variable("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALICLOUD_OIDC_TOKEN_FILE_PATH")
        text = f"the projected token: outside the cluster nothing renews it; a job must write a current one to {name}"
        place = token.place if token is not None else source.read.place
        draft.row(place, token.name if token is not None else "OIDC token", Verdict.NOT_HERE, "", text)
    elif not keys and not source.credentials_secret:
        text = (
            "RAM role of the node: a Lambda function has no such metadata service; create an access key of a RAM user "
            "with infra/alicloud/ram-policy.json, or a role by key or OIDC (docs/providers/alicloud.md)"
        )
        draft.row(source.read.place, "no credentials", Verdict.NOT_HERE, "", text)
        store(source, draft, "credentialsSecret", "alicloud", (), "alicloud")
    read_nodes(source, draft, "alicloud")
    for word, text in _ALICLOUD_REMARKS:
        draft.row("", word, Verdict.TOLD, "", text)


def _exoscale(source: Source, draft: Draft) -> None:
    if source.region:
        draft.provider["zone"] = source.region
        source.not_counting(draft, "EXOSCALE_ZONE", "--region counts")
    elif not take(source, draft, "exoscale", "zone", "EXOSCALE_ZONE", remedy="--region with the zone"):
        draft.problem(source.read.place, "has no EXOSCALE_ZONE", "give --region with the zone, such as ch-gva-2")
    keys = present(source, "EXOSCALE_API_KEY", "EXOSCALE_API_SECRET")
    store(source, draft, "credentialsSecret", "exoscale", keys, "exoscale")
    read_nodes(source, draft, "exoscale")
    take(source, draft, "exoscale", "environment", "EXOSCALE_API_ENVIRONMENT")
    draft.provider["scaleFromZero"] = False
    text = "so that the same groups exist: Cluster Autoscaler sees pools with a node only; the first setting to change"
    draft.row("", "scaleFromZero: false", Verdict.WRITTEN_OUT, "spec.providers.exoscale.scaleFromZero", text)
    if "nodes" in draft.provider:
        draft.provider["autoDiscovery"] = True
        text = "so that the other pools with a node are groups, too: --nodes only bounds one in Cluster Autoscaler"
        draft.row("", "autoDiscovery: true", Verdict.WRITTEN_OUT, "spec.providers.exoscale.autoDiscovery", text)
    else:
        text = "any pool with a node is scaled, from 1 to the account's quota; name pools under nodes to bound them"
        draft.row("", "no --nodes", Verdict.TOLD, "", text)


def _clusterapi(source: Source, draft: Draft) -> None:
    found = source.given.get("node-group-auto-discovery", ())
    for index, argument in enumerate(found):
        check_setting("clusterapi", "autoDiscovery", argument, draft, index=index)
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
    take(source, draft, "clusterapi", "group", "CAPI_GROUP")
    take(source, draft, "clusterapi", "version", "CAPI_VERSION")
    _architecture(source, draft)
    _management(source, draft)


def _architecture(source: Source, draft: Draft) -> None:
    """Copy the architecture of new nodes. Cluster Autoscaler takes the default for one that it does not know."""
    variable, argument = source.variable("CAPI_SCALE_ZERO_DEFAULT_ARCH"), source.last(DEFAULT_ARCH)
    path = "spec.providers.clusterapi.scaleZeroDefaultArch"
    for given, word in ((variable, variable.name if variable else ""), (argument, argument.word if argument else "")):
        if given is None:
            continue
        if given.value is None:
            take(source, draft, "clusterapi", "scaleZeroDefaultArch", "CAPI_SCALE_ZERO_DEFAULT_ARCH")
            continue
        try:
            read_setting("clusterapi", "scaleZeroDefaultArch", given.value, given.place)
        except BadInput as error:
            draft.provider.pop("scaleZeroDefaultArch", None)
            text = f"{error.problems[0].problem if isinstance(error, InputErrors) else error.problem}: "
            draft.row(given.place, word, Verdict.TOLD, path, f"{text}amd64 counts, as in Cluster Autoscaler")
        else:
            draft.provider["scaleZeroDefaultArch"] = given.value
            draft.row(given.place, word, Verdict.TRANSLATED, path)


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
        at = object_at(source, cloud_config.value or "")
        path = "spec.providers.clusterapi.kubeconfigSecret"
        text = f"{name}  {store_command(at, name)}"
        draft.row(cloud_config.place, cloud_config.word, Verdict.TO_STORE, path, text)
    elif authoritative is not None:
        path = "spec.providers.clusterapi.kubeconfigSecret"
        text = f"{name}  {store_command('', name)}  (a kubeconfig of the cluster that Cluster Autoscaler runs in)"
        draft.row(authoritative.place, "kubeconfig of the management cluster", Verdict.TO_STORE, path, text)


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
    store(source, draft, "credentialsSecret", "huaweicloud", (), "huaweicloud")
    for argument in source.given.get("nodes", ()):
        text = "names a group of Auto Scaling, not a CCE node pool: write the pools under nodes"
        draft.row(argument.place, argument.word, Verdict.NOT_HERE, "", text)


_TRANSLATIONS: Mapping[str, Callable[[Source, Draft], None]] = {
    "alicloud": _alicloud,
    "cherryservers": translate_cherryservers,
    "clusterapi": _clusterapi,
    "exoscale": _exoscale,
    "huaweicloud": _huaweicloud,
}
