"""Translates the provider's flags, variables and mounts to spec.providers, and
names the secrets to store.

No value of a secret is read here. Each secret becomes a name and a command that stores it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib import DOCS
from chalicelib.cli.migrate.autoscaler_input import Argument, AutoscalerInput, FileMount, Variable
from chalicelib.cli.migrate.cherryservers_config import describe_cloud_config, names_cluster
from chalicelib.cli.migrate.flag_table import DEFAULT_ARCH
from chalicelib.cli.migrate.report import Draft, Verdict, copy_command
from chalicelib.cli.migrate.translate_flags import read_boolean
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import Diagnostics, Scalar, quote
from chalicelib.policy.providers import PROVIDERS, vendor_section


class Source(msgspec.Struct, frozen=True):
    """Input of one translation. arguments: by flag. name: of the cluster.
    secret_prefix: of the deployment's secrets. region, cluster_id, credentials_secret:
    of the command line, which count."""

    autoscaler: AutoscalerInput
    arguments: Mapping[str, Sequence[Argument]]
    name: str
    secret_prefix: str
    region: str = ""
    cluster_id: str = ""
    credentials_secret: str = ""
    reported: set[str] = msgspec.field(default_factory=set)  # names of variables that have a row

    def last(self, flag: str) -> Argument | None:
        """Return the argument that counts."""
        arguments = self.arguments.get(flag, ())
        return arguments[-1] if arguments else None

    def variable(self, *names: str) -> Variable | None:
        """Return the first variable with one of these names. It counts as reported."""
        variables = self.autoscaler.variables
        variable = next(
            (variable for name in names for variable in variables if variable.name == name), None
        )
        if variable is not None:
            self.reported.add(variable.name)
        return variable

    def present(self, *names: str) -> list[Variable]:
        """Return the variables with these names. They count as reported."""
        variables = [variable for variable in self.autoscaler.variables if variable.name in names]
        self.reported.update(variable.name for variable in variables)
        return variables

    def secret(self, purpose: str) -> str:
        """Return the name of a secret, such as outscaler/shop/alicloud."""
        return f"{self.secret_prefix}{self.name}/{purpose}"

    def object_at(self, path: str) -> str:
        """Return the Secret or ConfigMap that is mounted at a path or at one of its folders."""
        mounts = [
            mount
            for mount in self.autoscaler.mounts
            if mount.object
            and (path == mount.path or path.startswith(mount.path.rstrip("/") + "/"))
        ]
        return max(mounts, key=lambda mount: len(mount.path)).object if mounts else ""

    def file_at(self, path: str) -> FileMount | None:
        """Return the file that is mounted at a path, if the input has its text."""
        files = [
            mount
            for mount in self.autoscaler.mounts
            if mount.text is not None and mount.path == path
        ]
        return files[-1] if files else None


def provider_of(source: Source, draft: Draft) -> str:
    """Return the provider's name; empty, with a mistake in the draft, for one that
    Outscaler does not have."""
    known = ", ".join(_TRANSLATIONS)
    argument = source.last("cloud-provider")
    if argument is None:
        draft.problem(source.autoscaler.place, "has no --cloud-provider", f"give one of {known}")
        return ""
    name = argument.value or ""
    if name not in _TRANSLATIONS:
        draft.problem(argument.place, f"--cloud-provider: {quote(name)} is not among {known}", "")
        return ""
    _rows(source, draft, "cloud-provider", Verdict.TRANSLATED, f"spec.providers.{name}", "")
    return name


def translate_provider(provider: str, source: Source, draft: Draft) -> None:
    """Write the provider's settings and their rows into the draft."""
    _TRANSLATIONS[provider](source, draft)
    for variable in source.autoscaler.variables:
        if variable.name not in source.reported:
            text = f"{provider} has no setting for it here; it counts only where a flag names it"
            draft.row(variable.place, variable.name, Verdict.NO_EFFECT, "", text)
    if provider == "clusterapi":
        return
    text = f"Cluster Autoscaler does not read it for {provider}"
    _rows(source, draft, "node-group-auto-discovery", Verdict.NO_EFFECT, "", text)
    for flag in ("kubeconfig", "kubernetes"):
        text = "a kubeconfig that is valid outside the cluster is stored instead"
        _rows(source, draft, flag, Verdict.TO_STORE, "spec.kubernetes.kubeconfigSecret", text)
    if provider != "cherryservers":
        text = "a file of the container, which nothing reads here"
        _rows(source, draft, "cloud-config", Verdict.NO_EFFECT, "", text)
    for flag in ("clusterapi-cloud-config-authoritative", DEFAULT_ARCH):
        _rows(source, draft, flag, Verdict.NO_EFFECT, "", "for clusterapi only")


# -- parts that providers share --------------------------------------------------------------------


def _rows(source: Source, draft: Draft, flag: str, verdict: Verdict, path: str, text: str) -> None:
    for argument in source.arguments.get(flag, ()):
        draft.row(argument.place, argument.word, verdict, path, text)


def _copy_variable(
    source: Source, draft: Draft, provider: str, key: str, *names: str, remedy: str = ""
) -> bool:
    """Copy a variable that is not secret. Return whether the input has it. One without a value is a
    mistake, whose remedy is --env unless another one is given."""
    variable = source.variable(*names)
    if variable is None:
        return False
    if variable.value is None:
        problem = f"{variable.name} has no value in the input"
        if variable.object:
            problem = f"{variable.name} comes from {variable.object}, which is not in the input"
        draft.problem(
            variable.place, problem, f"add it, or give {remedy or f'--env {variable.name}=VALUE'}"
        )
        return True
    draft.provider[key] = variable.value
    draft.row(variable.place, variable.name, Verdict.TRANSLATED, f"spec.providers.{provider}.{key}")
    return True


def _copy_region(source: Source, draft: Draft, key: str, variable_name: str) -> bool:
    """Write --region to a key. Return whether it is given; the variable
    that it replaces has a row."""
    if not source.region:
        return False
    draft.provider[key] = source.region
    variable = source.variable(variable_name)
    if variable is not None:
        draft.row(variable.place, variable.name, Verdict.TOLD, "", "--region counts")
    return True


def _store(
    source: Source,
    draft: Draft,
    provider: str,
    variables: Sequence[Variable],
    key: str = "",
    purpose: str = "",
) -> None:
    """Name a secret for variables that hold one: the provider's credentials, or those of
    another key and purpose."""
    name = source.secret(purpose or provider)
    if not key and source.credentials_secret:
        name = source.credentials_secret
    key = key or "credentialsSecret"
    draft.provider[key] = name
    objects = sorted({variable.object for variable in variables if variable.object})
    word = ", ".join(variable.name for variable in variables) or key
    draft.row(
        variables[0].place if variables else source.autoscaler.place,
        word + (f": {', '.join(objects)}" if objects else ""),
        Verdict.TO_STORE,
        f"spec.providers.{provider}.{key}",
        f"{name}  {copy_command(objects[0] if objects else '', name)}",
    )


def _copy_nodes(source: Source, draft: Draft, provider: str) -> None:
    """Copy --nodes as they are; those that the provider's own reader refuses are mistakes."""
    arguments = source.arguments.get("nodes", ())
    _rows(source, draft, "nodes", Verdict.TRANSLATED, f"spec.providers.{provider}.nodes", "")
    for index, argument in enumerate(arguments):
        if "," in (argument.value or ""):
            text = f"{quote(argument.value or '')} is one group in Cluster Autoscaler"
            draft.problem(f"{argument.place}: --nodes: [{index}]", text, "give the flag twice")
        else:
            _check_setting(provider, "nodes", argument, draft, index)
    if arguments:
        draft.provider["nodes"] = [argument.value or "" for argument in arguments]


def _check_setting(provider: str, key: str, argument: Argument, draft: Draft, index: int) -> None:
    """Report a value that the provider's own reader of a setting refuses. index: of the
    flag's occurrence, from 0."""
    try:
        _read_setting(
            provider, key, argument.value or "", f"{argument.place}: --{argument.flag}", (index,)
        )
    except BadInput as error:
        draft.add(error)


def _read_setting(
    provider: str, key: str, value: str, place: str, path: tuple[int, ...] = ()
) -> None:
    """Read one value of a setting as the provider's section of a policy does. Raises BadInput."""
    report = Diagnostics(place)
    for field in vendor_section(PROVIDERS[provider]).fields:
        if field.key == key:
            field.kind.read(Scalar(value, plain=False, line=1, column=1), path, report)
    report.check()


# -- providers -------------------------------------------------------------------------------------

_ALICLOUD_REMARKS = (
    (
        "rights of the key",
        (
            "infra/alicloud/ram-policy.json; the RAM policy in Cluster Autoscaler's documentation "
            "lacks "
            "ess:ScaleWithAdjustment, without which only scaling groups with an expected number of "
            "instances grow, and "
            "ecs:DescribeLaunchTemplateVersions"
        ),
    ),
    (
        "FPGA instance types",
        (
            "not supported: a template of their nodes has no FPGA, unless a tag of the scaling "
            "group, "
            "k8s.io/cluster-autoscaler/node-template/resources/NAME, states it"
        ),
    ),
)
_ROLE_VARIABLES = (
    ("oidcProviderArn", "OIDC_PROVIDER_ARN"),
    ("roleArn", "ROLE_ARN"),
    ("sessionName", "SESSION_NAME"),
)


def _alicloud(source: Source, draft: Draft) -> None:
    region, place = source.variable("REGION_ID"), source.autoscaler.place
    if not _copy_region(source, draft, "region", "REGION_ID"):
        if region is not None and region.value:
            _copy_variable(source, draft, "alicloud", "region", "REGION_ID")
        elif region is not None and region.object:
            problem = f"REGION_ID comes from Secret {region.object}, which is not in the input"
            draft.problem(region.place, problem, "add it, or give --region")
        else:
            draft.problem(place, "has no REGION_ID", "give --region")
    keys = source.present("ACCESS_KEY_ID", "ACCESS_KEY_SECRET")
    roles = [
        key
        for key, name in _ROLE_VARIABLES
        if _copy_variable(
            source, draft, "alicloud", key, f"ALIBABA_CLOUD_{name}", f"ALICLOUD_{name}"
        )
    ]
    if keys or source.credentials_secret:
        _store(source, draft, "alicloud", keys)
    if roles and not keys:
        name = source.secret("alicloud-oidc-token")
        draft.provider["oidcTokenSecret"] = name
        token = source.variable("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALICLOUD_OIDC_TOKEN_FILE_PATH")
        text = (
            "the projected token: outside the cluster nothing renews it; a job must write a "
            f"current one to {name}"
        )
        token_place, word = (
            (token.place, token.name) if token is not None else (place, "OIDC token")
        )
        draft.row(token_place, word, Verdict.NOT_HERE, "", text)
    elif not keys and not source.credentials_secret:
        text = (
            "RAM role of the node: a Lambda function has no such metadata service; create an "
            "access key of a RAM user "
            "with infra/alicloud/ram-policy.json, or a role by key or OIDC "
            f"({DOCS}/providers/alicloud.md)"
        )
        draft.row(place, "no credentials", Verdict.NOT_HERE, "", text)
        _store(source, draft, "alicloud", ())
    _copy_nodes(source, draft, "alicloud")
    for word, text in _ALICLOUD_REMARKS:
        draft.row("", word, Verdict.TOLD, "", text)


_CHERRY = "cherryservers"
_TRIAL_TIMES = ("scale-down-unneeded-time", "scale-down-delay-after-add", "scale-down-unready-time")


def _cherryservers(source: Source, draft: Draft) -> None:
    cluster, config = source.last("cluster-name"), source.last("cloud-config")
    config_file = source.file_at(config.value or "") if config is not None else None
    if cluster is not None and cluster.value:
        draft.provider["clusterName"] = cluster.value
    elif config_file is None or not names_cluster(config_file):
        text = (
            "neither a flag nor a cloud-config in the input says it: add clusterName, the value of "
            "the servers' tag "
            "k8s-cluster, or import the cloud-config, too"
        )
        draft.row(
            "",
            "no --cluster-name",
            Verdict.MISSING,
            "spec.providers.cherryservers.clusterName",
            text,
        )
    _store(source, draft, _CHERRY, source.present("CHERRY_AUTH_TOKEN"))
    if config is not None:
        name = source.secret("cherryservers-cloud-config")
        draft.provider["cloudConfigSecret"] = name
        text = f"{name}  {copy_command(source.object_at(config.value or ''), name)}"
        path = "spec.providers.cherryservers.cloudConfigSecret"
        draft.row(config.place, config.word, Verdict.TO_STORE, path, text)
        pools = (
            (argument.value or "").rpartition(":")[2]
            for argument in source.arguments.get("nodes", ())
        )
        describe_cloud_config(config_file, list(dict.fromkeys(pools)), draft)
    tokens = source.present("BOOTSTRAP_TOKEN_ID", "BOOTSTRAP_TOKEN_SECRET")
    if tokens:
        _store(
            source, draft, _CHERRY, tokens, "bootstrapTokenSecret", "cherryservers-bootstrap-token"
        )
    _copy_variable(
        source, draft, _CHERRY, "controllerNodeLabel", "CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL"
    )
    for variable in source.present("CHERRY_MANAGER", "CHERRY_USE_PRODUCTION_API"):
        draft.row(variable.place, variable.name, Verdict.NO_EFFECT, "", "nothing reads it here")
    _copy_nodes(source, draft, _CHERRY)
    if not source.arguments.get("max-node-provision-time"):
        text = (
            "bare metal needs longer than 15m to join: consider maxNodeProvisionTime: 1h of the "
            "provider"
        )
        draft.row("", "no --max-node-provision-time", Verdict.TOLD, "", text)
    times = [source.last(flag) for flag in _TRIAL_TIMES]
    if times[0] is not None and all(
        time is not None and time.value in ("1m", "60s", "1m0s") for time in times
    ):
        text = (
            "the vendor's example has them for trying out; Cluster Autoscaler's defaults are 10m, "
            "10m and 20m"
        )
        draft.row(
            times[0].place, "three removal times of one minute", Verdict.TOLD, "spec.options", text
        )


def _exoscale(source: Source, draft: Draft) -> None:
    remedy = "--region with the zone"
    if not _copy_region(source, draft, "zone", "EXOSCALE_ZONE") and not _copy_variable(
        source, draft, "exoscale", "zone", "EXOSCALE_ZONE", remedy=remedy
    ):
        draft.problem(
            source.autoscaler.place, "has no EXOSCALE_ZONE", f"give {remedy}, such as ch-gva-2"
        )
    _store(source, draft, "exoscale", source.present("EXOSCALE_API_KEY", "EXOSCALE_API_SECRET"))
    _copy_nodes(source, draft, "exoscale")
    _copy_variable(source, draft, "exoscale", "environment", "EXOSCALE_API_ENVIRONMENT")
    draft.provider["scaleFromZero"] = False
    text = (
        "so that the same groups exist: Cluster Autoscaler sees pools with a node only; the first "
        "setting to change"
    )
    draft.row(
        "",
        "scaleFromZero: false",
        Verdict.WRITTEN_OUT,
        "spec.providers.exoscale.scaleFromZero",
        text,
    )
    if "nodes" in draft.provider:
        draft.provider["autoDiscovery"] = True
        text = (
            "so that the other pools with a node are groups, too: --nodes only bounds one in "
            "Cluster Autoscaler"
        )
        draft.row(
            "",
            "autoDiscovery: true",
            Verdict.WRITTEN_OUT,
            "spec.providers.exoscale.autoDiscovery",
            text,
        )
    else:
        text = (
            "any pool with a node is scaled, from 1 to the account's quota; name pools under nodes "
            "to bound them"
        )
        draft.row("", "no --nodes", Verdict.TOLD, "", text)


_MANAGEMENT = "spec.providers.clusterapi.kubeconfigSecret"


def _clusterapi(source: Source, draft: Draft) -> None:
    specs = source.arguments.get("node-group-auto-discovery", ())
    path = "spec.providers.clusterapi.autoDiscovery"
    _rows(source, draft, "node-group-auto-discovery", Verdict.TRANSLATED, path, "")
    for index, argument in enumerate(specs):
        _check_setting("clusterapi", "autoDiscovery", argument, draft, index)
    if specs:
        draft.provider["autoDiscovery"] = [argument.value or "" for argument in specs]
    if sum("namespace=" in (argument.value or "") for argument in specs) > 1:
        text = (
            "Cluster Autoscaler watched the first namespace only; here groups of all of them count"
        )
        draft.row(specs[0].place, "several --node-group-auto-discovery", Verdict.TOLD, "", text)
    text = "Cluster Autoscaler does not read it for clusterapi; bounds come from annotations"
    _rows(source, draft, "nodes", Verdict.NO_EFFECT, "", text)
    _copy_variable(source, draft, "clusterapi", "group", "CAPI_GROUP")
    _copy_variable(source, draft, "clusterapi", "version", "CAPI_VERSION")
    _copy_architecture(source, draft)
    _name_management_cluster(source, draft)


def _copy_architecture(source: Source, draft: Draft) -> None:
    """Copy the architecture of new nodes. Cluster Autoscaler takes the default for
    one that it does not know."""
    variable, argument = source.variable("CAPI_SCALE_ZERO_DEFAULT_ARCH"), source.last(DEFAULT_ARCH)
    key, path = "scaleZeroDefaultArch", "spec.providers.clusterapi.scaleZeroDefaultArch"
    if variable is not None and variable.value is None:
        _copy_variable(source, draft, "clusterapi", key, variable.name)
        variable = None
    settings = (
        [(variable.place, variable.name, variable.value or "")] if variable is not None else []
    )
    settings += (
        [(argument.place, argument.word, argument.value or "")] if argument is not None else []
    )
    for place, word, value in settings:
        try:
            _read_setting("clusterapi", key, value, place)
        except BadInput as error:
            draft.provider.pop(key, None)
            problem = error.problems[0].problem if isinstance(error, InputErrors) else error.problem
            draft.row(
                place,
                word,
                Verdict.TOLD,
                path,
                f"{problem}: amd64 counts, as in Cluster Autoscaler",
            )
        else:
            draft.provider[key] = value
            draft.row(place, word, Verdict.TRANSLATED, path)


def _name_management_cluster(source: Source, draft: Draft) -> None:
    """Two clusters (management and workload) need two kubeconfigs; one that is both needs one."""
    cloud_config, kubeconfig = source.last("cloud-config"), source.last("kubeconfig")
    authoritative = source.last("clusterapi-cloud-config-authoritative")
    separate = authoritative is not None
    if authoritative is not None:
        try:
            separate = read_boolean(authoritative)
        except BadInput as error:
            draft.add(error)
        draft.row(authoritative.place, authoritative.word, Verdict.TRANSLATED, _MANAGEMENT)
    if kubeconfig is not None:
        text = "the workload cluster's kubeconfig"
        draft.row(
            kubeconfig.place,
            kubeconfig.word,
            Verdict.TO_STORE,
            "spec.kubernetes.kubeconfigSecret",
            text,
        )
    if cloud_config is None and not (kubeconfig is not None and separate):
        return
    name = source.secret("clusterapi")
    draft.provider["kubeconfigSecret"] = name
    if cloud_config is not None:
        text = f"{name}  {copy_command(source.object_at(cloud_config.value or ''), name)}"
        draft.row(cloud_config.place, cloud_config.word, Verdict.TO_STORE, _MANAGEMENT, text)
    elif authoritative is not None:
        text = (
            f"{name}  {copy_command('', name)}  (a kubeconfig of the cluster that Cluster "
            "Autoscaler runs in)"
        )
        word = "kubeconfig of the management cluster"
        draft.row(authoritative.place, word, Verdict.TO_STORE, _MANAGEMENT, text)


_ENDPOINT_REGION = re.compile(r"(?:https://)?(?:as|ecs)\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,4})\.")
_PROJECT = re.compile(r"project-id\s*[=:]\s*\"?([0-9a-f]{32})")


def _huaweicloud(source: Source, draft: Draft) -> None:
    place = source.autoscaler.place
    if not source.cluster_id:
        draft.problem(
            place,
            "huaweicloud of Cluster Autoscaler scales groups of Auto Scaling: there is no CCE "
            "cluster behind these "
            "groups",
            "give --cluster-id if the cluster has moved to CCE",
        )
        return
    texts = [mount.text for mount in source.autoscaler.mounts if mount.text]
    region = source.region or next(
        (match[1] for text in texts for match in _ENDPOINT_REGION.finditer(text)), ""
    )
    if not region:
        draft.problem(place, "has no region", "give --region")
    draft.provider.update({"region": region, "clusterId": source.cluster_id})
    project = next((match[1] for text in texts for match in _PROJECT.finditer(text)), "")
    if project:
        draft.provider["projectId"] = project
    _store(source, draft, "huaweicloud", ())
    text = "names a group of Auto Scaling, not a CCE node pool: write the pools under nodes"
    _rows(source, draft, "nodes", Verdict.NOT_HERE, "", text)


_TRANSLATIONS: Mapping[str, Callable[[Source, Draft], None]] = {
    "alicloud": _alicloud,
    "clusterapi": _clusterapi,
    "cherryservers": _cherryservers,
    "exoscale": _exoscale,
    "huaweicloud": _huaweicloud,
}
