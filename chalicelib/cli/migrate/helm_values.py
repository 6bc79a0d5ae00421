"""Reads values of Cluster Autoscaler's Helm chart, as its templates make a command line of them.

Values state the same settings as flags under other names. Each value becomes the flag that the
chart renders, so that the translation of flags is the only one. The charts 1.x and 9.x are read
alike. Values of variables and files stay in the cluster; their names say which secrets the policy
needs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from chalicelib.cli.migrate.autoscaler_input import (
    Argument,
    AutoscalerInput,
    FileMount,
    Remark,
    Variable,
    VariableOrigin,
)
from chalicelib.cli.migrate.command_line import Word, placeholder_problems, read_command_line
from chalicelib.cli.migrate.documents import DEFAULT_NAMESPACE, Path, mapping
from chalicelib.cli.migrate.flag_table import release_of
from chalicelib.cli.migrate.public_values import is_secret_name
from chalicelib.cli.migrate.report import MOST_PROBLEMS, Verdict, shortened
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import closest, quote, show_path
from chalicelib.policy.priority_configmap import CONFIG_MAP, KEY

VALUES = "Helm values"
SUB_CHART = "cluster-autoscaler"
_HELM_KEYS = frozenset({"cloudProvider", "autoDiscovery", "autoscalingGroups", "extraArgs"})
_GROUP_KEYS = ("minSize", "maxSize", "name")
_DISCOVERY_KEYS = ("clusterName", "namespace", "labels")
_MOST_ENTRIES = 1_000
_INDEX = re.compile(r"[0-9]{1,6}\Z")

_OF_PODS = """
    additionalLabels affinity containerSecurityContext deployment dnsConfig dnsPolicy extraObjects \
fullnameOverride
    global hostNetwork initContainers kubeTargetVersionOverride livenessProbe nameOverride \
nodeSelector podAnnotations
    podDisruptionBudget podLabels priorityClassName priorityConfigMapAnnotations rbac replicaCount \
resources
    revisionHistoryLimit securityContext service serviceAccount startupProbe \
terminationGracePeriodSeconds tolerations
    topologySpreadConstraints updateStrategy vpa
"""
_OF_OTHER_PROVIDERS = """
    autoscalingGroupsnamePrefix awsAccessKeyID awsRegion awsSecretAccessKey azureClientID \
azureClientSecret
    azureClusterName azureEnableForceDelete azureNodeResourceGroup azureResourceGroup \
azureSubscriptionID azureTenantID
    azureUseManagedIdentityExtension azureUseWorkloadIdentityExtension azureUserAssignedIdentityID \
azureVMType
    civoApiKey civoApiUrl civoClusterID civoRegion kwokConfigMapName magnumCABundlePath \
magnumClusterName
    sslCertHostPath sslCertPath
"""
_WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(_OF_PODS.split(), "about a process in the cluster, which does not exist here"),
    "serviceMonitor": "metrics of Outscaler are not scraped from a pod",
    "prometheusRule": (
        "not carried over: rules for Outscaler's own metrics are written by the operator"
    ),
    **dict.fromkeys(_OF_OTHER_PROVIDERS.split(), "about a provider that Outscaler does not have"),
    **dict.fromkeys(("USER-SUPPLIED VALUES", "COMPUTED VALUES"), "a heading of helm get values"),
}
# provider -> variables that a Secret of its own has
_CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "alicloud": ("ACCESS_KEY_ID", "ACCESS_KEY_SECRET"),
    "cherryservers": ("CHERRY_AUTH_TOKEN",),
    "exoscale": ("EXOSCALE_API_KEY", "EXOSCALE_API_SECRET"),
}
_EXOSCALE_KEYS = {
    "EXOSCALE_API_KEY": "api-key",
    "EXOSCALE_API_SECRET": "api-secret",
    "EXOSCALE_ZONE": "api-zone",
}
_MODES = {  # of clusterAPIMode -> the flags that the chart renders
    "incluster-incluster": (),
    "incluster-kubeconfig": ("cloud-config",),
    "kubeconfig-incluster": ("kubeconfig", "clusterapi-cloud-config-authoritative"),
    "kubeconfig-kubeconfig": (
        "kubeconfig",
        "cloud-config",
        "clusterapi-cloud-config-authoritative",
    ),
    "single-kubeconfig": ("kubeconfig",),
}
_KUBECONFIG_PATHS = {
    "cloud-config": ("clusterAPICloudConfigPath", "/etc/kubernetes/mgmt-kubeconfig"),
    "kubeconfig": ("clusterAPIWorkloadKubeconfigPath", "/etc/kubernetes/value"),
}
_TOPOLOGY_KEYS = (
    "clusterAPIMode",
    "clusterAPIKubeconfigSecret",
    *(key for key, _ in _KUBECONFIG_PATHS.values()),
    "clusterAPIConfigMapsNamespace",
)
_FILES = "files of the container; a flag that names one decides what is stored"


def is_helm_values(values: Mapping[str, Any]) -> bool:
    """Return whether these are values of the autoscaler's chart, or of a chart
    that has it below its name."""
    return "kind" not in values and not (
        _HELM_KEYS.isdisjoint(values) and _HELM_KEYS.isdisjoint(mapping(values.get(SUB_CHART)))
    )


def read_helm_values(
    place: str,
    document: Mapping[str, Any],
    places: Mapping[Path, str],
    *,
    namespace: str,
    image_version: str,
    kind: str = VALUES,
) -> AutoscalerInput:
    """Return the configuration that the values describe.

    places: path of keys -> `values.yaml:7`; may be empty. namespace: of the release, kube-system if
    it is empty. image_version: the release that counts instead of the image's tag. kind: what has
    the values. Raises InputErrors for templates and for values that deploy nothing.
    """
    values: Mapping[str, Any] = document
    root: Path = ()
    sub_chart = document.get(SUB_CHART)
    if isinstance(sub_chart, Mapping) and _HELM_KEYS.isdisjoint(document):
        values, root = sub_chart, (SUB_CHART,)
    reader = _ValuesReader(place, places, root, values, namespace or DEFAULT_NAMESPACE)
    reader.of_object = kind != VALUES
    if root and len(document) > 1:
        others = sorted(str(key) for key in document if key != SUB_CHART)
        names = ", ".join(others[:8]) + (", …" if len(others) > 8 else "")
        reader.remark((), Verdict.NO_EFFECT, "values of other charts", word=names)
    discovery = mapping(values.get("autoDiscovery"))
    if not values.get("autoscalingGroups") and not any(
        discovery.get(key) for key in _DISCOVERY_KEYS
    ):
        reader.problem(
            (),
            "these values deploy no autoscaler: autoscalingGroups and autoDiscovery are both empty",
            "set one of them, or give the manifest that runs",
        )
    reader.read()
    reader.problems += placeholder_problems(reader.arguments, reader.variables)
    if reader.problems:
        raise InputErrors(tuple(reader.problems[:MOST_PROBLEMS]))
    image, tag = "", mapping(values.get("image")).get("tag")
    if isinstance(tag, str | int | float):
        repository = mapping(values.get("image")).get("repository") or "cluster-autoscaler"
        image = f"{str(repository)[:200]}:{str(tag)[:100]}"
    return AutoscalerInput(
        place=place,
        kind=kind,
        namespace=reader.namespace,
        image=image,
        version=release_of(image, image_version),
        arguments=tuple(reader.arguments),
        variables=tuple(reader.variables),
        mounts=tuple(reader.mounts),
        remarks=tuple(reader.remarks),
        objects=reader.objects,
    )


class _ValuesReader:
    """Collects flags, variables, files and remarks of the values, with the place
    of each and all mistakes.

    root: path of the chart's values in the file.
    """

    def __init__(
        self,
        place: str,
        places: Mapping[Path, str],
        root: Path,
        values: Mapping[str, Any],
        namespace: str,
    ) -> None:
        self._whole, self._places, self._root = place, places, root
        self.values, self.namespace = values, namespace
        provider = values.get("cloudProvider")
        self.provider = provider if isinstance(provider, str) else ""
        self.arguments: list[Argument] = []
        self.variables: list[Variable] = []
        self.mounts: list[FileMount] = []
        self.remarks: list[Remark] = []
        self.problems: list[BadInput] = []
        self.objects: tuple[tuple[str, Mapping[str, Any]], ...] = ()
        self.of_object = False  # which says the release's namespace

    def read(self) -> None:
        """Read all values: first each by itself, then those that depend on others."""
        for name, value in self._entries((), self.values).items():
            if name in _READERS:
                _READERS[name](self, (name,), value)
            elif name in _WITHOUT_EFFECT:
                self.remark((name,), Verdict.NO_EFFECT, _WITHOUT_EFFECT[name])
            elif name not in _READ_TOGETHER:
                near = closest(name, (*_READERS, *_READ_TOGETHER, *_WITHOUT_EFFECT))
                self.remark((name,), Verdict.UNKNOWN, f"did you mean {near}?" if near else "")
        if "cloudProvider" not in self.values:
            self._argument(
                (), "cloud-provider", "aws", word="no cloudProvider: aws, the chart's default"
            )
        self._read_topology()
        self._read_variables()
        self._read_credentials()
        self._read_volumes()
        text = "the release's namespace is not in its values: --workload NAMESPACE/NAME gives it"
        if self.of_object:
            text = "the release's namespace"
        if self.namespace != DEFAULT_NAMESPACE:
            text = "Outscaler's Role and RoleBinding belong into this namespace, too"
        word = f"--namespace={self.namespace}"
        self._argument((), "namespace", self.namespace, word=word, read_as=text)

    # -- single values -----------------------------------------------------------------------------

    def read_provider(self, path: Path, value: Any) -> None:
        """Add the provider's flag."""
        if text := self._text(path, value):
            self._argument(path, "cloud-provider", text)

    def read_groups(self, path: Path, value: Any) -> None:
        """Add one --nodes per group."""
        for at, group in enumerate(self._items(path, value)):
            group_path = (*path, str(at))
            entries = self._entries(group_path, group)
            for key in _unlisted(entries, _GROUP_KEYS):
                self.remark(
                    (*group_path, key), Verdict.UNKNOWN, "a group has name, minSize and maxSize"
                )
            parts = [self._text((*group_path, key), entries.get(key)) for key in _GROUP_KEYS]
            if not all(key in entries for key in _GROUP_KEYS):
                self.problem(
                    group_path,
                    "has not all of name, minSize and maxSize",
                    "write the three of them",
                )
            elif None not in parts:
                self._argument(
                    group_path, "nodes", ":".join(part for part in parts if part is not None)
                )

    def read_discovery(self, path: Path, value: Any) -> None:
        """Add the flag of discovery for clusterapi, the only provider here that has one."""
        entries = self._entries(path, value)
        parts = [
            f"{key}={text}"
            for key in ("clusterName", "namespace")
            if (text := self._text((*path, key), entries.get(key) or None))
        ]
        labels_path, labels = (*path, "labels"), entries.get("labels")
        maps = {labels_path: labels}
        if not isinstance(labels, Mapping):
            maps = {
                (*labels_path, str(at)): item
                for at, item in enumerate(self._items(labels_path, labels))
            }
        for own_path, label_map in maps.items():
            for key, label in self._entries(own_path, label_map).items():
                parts.append(f"{key}={self._text((*own_path, key), label) or ''}")
        for key in _unlisted(entries, _DISCOVERY_KEYS):
            if key in ("tags", "roles"):
                self.remark((*path, key), Verdict.NO_EFFECT, "for other providers")
            else:
                self.remark((*path, key), Verdict.UNKNOWN)
        if parts and self.provider == "clusterapi":
            spec = f"clusterapi:{','.join(parts)}"
            self._argument(path, "node-group-auto-discovery", spec)
        elif parts:
            named = self.provider or "this provider"
            self.remark(path, Verdict.NO_EFFECT, f"the chart renders no flag of it for {named}")

    def read_extra_args(self, path: Path, value: Any) -> None:
        """Add flags, in the order of a template's output: by name. A part after `_`
        only makes a key unique."""
        for key, flag_value in sorted(self._entries(path, value).items()):
            flag, text = key.partition("_")[0], self._text((*path, key), flag_value)
            if text is None and flag_value is not None:
                continue
            self._argument((*path, key), flag, text)
            if not flag:
                self.problem(
                    (*path, key), "has no name before '_'", "write the flag's name with dashes"
                )

    def read_custom_args(self, path: Path, value: Any) -> None:
        """Add words of a command line."""
        words: list[Word] = []
        for at, item in enumerate(self._items(path, value)):
            word_path = (*path, str(at))
            text = self._text(word_path, item)
            if text is not None:
                words.append(Word(self._place(word_path), text))
        line = read_command_line(words)
        self.arguments.extend(line.arguments)
        self.remarks.extend(line.remarks)
        self.problems.extend(line.problems)

    def read_priorities(self, path: Path, value: Any) -> None:
        """Keep the ConfigMap of the priority expander, which the chart
        renders for that expander only."""
        if not value:
            return
        if "priority" not in str(mapping(self.values.get("extraArgs")).get("expander", ""))[:500]:
            self.remark(
                path,
                Verdict.NO_EFFECT,
                "the chart renders it only with expander priority in extraArgs",
            )
            return
        text = value
        if not isinstance(value, str):
            import yaml

            patterns = self._entries(path, value) and value
            text = yaml.safe_dump(patterns, sort_keys=False, allow_unicode=True) if patterns else ""
        metadata = {"name": CONFIG_MAP, "namespace": self.namespace}
        content = {"kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}
        self.objects = ((self._place(path), content),)

    def read_cloud_config_path(self, path: Path, value: Any) -> None:
        """Report a path that the chart hands to other providers only."""
        if value:
            named = self.provider or "this provider"
            text = f"the chart renders no flag of it for {named}: it needs extraArgs.cloud-config"
            self.remark(path, Verdict.TOLD, text)

    # -- values that depend on others --------------------------------------------------------------

    def _read_topology(self) -> None:
        """Add the flags of one or two kubeconfigs of clusterapi."""
        if self.provider != "clusterapi":
            for key in _TOPOLOGY_KEYS:
                if self.values.get(key):
                    self.remark((key,), Verdict.NO_EFFECT, "for clusterapi only")
            return
        path = ("clusterAPIMode",)
        mode = self._text(path, self.values.get("clusterAPIMode")) or "incluster-incluster"
        if mode not in _MODES:
            self.problem(path, f"is not one of {', '.join(_MODES)}")
            return
        if self.values.get("clusterAPIMode"):
            self.remark(
                path, Verdict.TRANSLATED, f"mode {mode}", "spec.kubernetes.kubeconfigSecret"
            )
        paths: list[str] = []
        for flag in _MODES[mode]:
            if flag not in _KUBECONFIG_PATHS:
                self._argument(path, flag, None, word=f"clusterAPIMode: {mode}")
                continue
            key, default = _KUBECONFIG_PATHS[flag]
            paths.append(self._named(key) or default)
            self._argument((key,), flag, paths[-1])
        for flag, (key, _) in _KUBECONFIG_PATHS.items():
            if self.values.get(key) and flag not in _MODES[mode]:
                self.remark((key,), Verdict.NO_EFFECT, f"mode {mode} does not use it")
        self._mount_kubeconfigs(paths)
        self._read_config_maps_namespace(mode)

    def _mount_kubeconfigs(self, paths: list[str]) -> None:
        path, secret = ("clusterAPIKubeconfigSecret",), self._named("clusterAPIKubeconfigSecret")
        if secret and not paths:
            self.remark(path, Verdict.NO_EFFECT, "the mode has no kubeconfig")
        elif secret:
            for folder in sorted({posixpath.dirname(file) for file in paths}):
                self._mount(path, folder, f"{self.namespace}/{secret}")
            self.remark(path, Verdict.TO_STORE, "its key value is what goes into Secrets Manager")

    def _read_config_maps_namespace(self, mode: str) -> None:
        path, namespace = (
            ("clusterAPIConfigMapsNamespace",),
            self._named("clusterAPIConfigMapsNamespace"),
        )
        if mode == "kubeconfig-incluster":
            self.namespace = namespace or DEFAULT_NAMESPACE
            if namespace:
                self.remark(path, Verdict.TRANSLATED, "", "spec.options.namespace")
        elif namespace:
            self.remark(path, Verdict.NO_EFFECT, "for mode kubeconfig-incluster only")

    def _read_variables(self) -> None:
        for name, value in self._entries(("extraEnv",), self.values.get("extraEnv")).items():
            text = self._text(("extraEnv", name), value)
            self._variable(("extraEnv", name), name, text, VariableOrigin.LITERAL, "", "")
        for section, origin in (
            ("extraEnvConfigMaps", VariableOrigin.OF_CONFIG_MAP),
            ("extraEnvSecrets", VariableOrigin.OF_SECRETS),
        ):
            for name, reference in self._entries((section,), self.values.get(section)).items():
                path = (section, name)
                entries = self._entries(path, reference)
                owner = self._text((*path, "name"), entries.get("name")) or ""
                key = self._text((*path, "key"), entries.get("key")) or name
                self._variable(path, name, None, origin, f"{self.namespace}/{owner}", key)

    def _read_credentials(self) -> None:
        """Add variables of whole Secrets, and those that the chart takes from its
        own Secret for exoscale."""
        if secret := self._named("envFromSecret"):
            text = (
                f"variables of Secret {self.namespace}/{secret}, whose names are not in the values"
            )
            self.remark(("envFromSecret",), Verdict.TOLD, text)
            for variable in self._unknown_variables(_CREDENTIALS.get(self.provider, ())):
                owner = f"{self.namespace}/{secret}"
                self._variable(
                    ("envFromSecret",), variable, None, VariableOrigin.OF_SECRETS, owner, variable
                )
        if config_map := self._named("envFromConfigMap"):
            name = f"{self.namespace}/{config_map}"
            text = (
                f"variables of ConfigMap {name} are not in the values: render them with helm "
                "template"
            )
            self.remark(("envFromConfigMap",), Verdict.TOLD, text)
        path = ("secretKeyRefNameOverride",)
        override = self._named("secretKeyRefNameOverride")
        if self.provider != "exoscale":
            if override:
                text = f"the chart does not use it for {self.provider or 'this provider'}"
                self.remark(path, Verdict.NO_EFFECT, text)
            return
        name = override or self._named("fullnameOverride")
        if override:
            self.remark(path, Verdict.TO_STORE, "the Secret with api-key, api-secret and api-zone")
        elif not name:
            text = "RELEASE-exoscale-cluster-autoscaler has api-key, api-secret and api-zone"
            self.remark((), Verdict.TOLD, text, word="Secret of the chart")
        owner = f"{self.namespace}/{name}" if name else ""
        for variable in self._unknown_variables(_EXOSCALE_KEYS):
            self._variable(
                path, variable, None, VariableOrigin.OF_SECRETS, owner, _EXOSCALE_KEYS[variable]
            )

    def _unknown_variables(self, names: Iterable[str]) -> list[str]:
        known = {variable.name for variable in self.variables}
        return [name for name in names if name not in known]

    def _read_volumes(self) -> None:
        section = "extraVolumeSecrets"
        for key, volume in self._entries((section,), self.values.get(section)).items():
            path = (section, key)
            entries = self._entries(path, volume)
            folder = self._text((*path, "mountPath"), entries.get("mountPath"))
            if folder:
                name = self._text((*path, "name"), entries.get("name")) or key
                self._mount(path, folder, f"{self.namespace}/{name}")
            self.remark(path, Verdict.NO_EFFECT, _FILES)
        owners: dict[str, str] = {}
        audiences: dict[str, str] = {}
        for at, volume in enumerate(
            self._items(("extraVolumes",), self.values.get("extraVolumes"))
        ):
            path = ("extraVolumes", str(at))
            entries = self._entries(path, volume)
            name = str(entries.get("name", ""))[:253]
            secret, config_map = mapping(entries.get("secret")), mapping(entries.get("configMap"))
            owner = secret.get("secretName") or config_map.get("name")
            if isinstance(owner, str):
                owners[name] = f"{self.namespace}/{owner}"
            sources = mapping(entries.get("projected")).get("sources")
            for source in sources[:20] if isinstance(sources, list) else ():
                audience = mapping(mapping(source).get("serviceAccountToken")).get("audience")
                if isinstance(audience, str):
                    audiences[name] = audience[:253]
            self.remark(path, Verdict.NO_EFFECT, _FILES)
        for at, mount in enumerate(
            self._items(("extraVolumeMounts",), self.values.get("extraVolumeMounts"))
        ):
            path = ("extraVolumeMounts", str(at))
            entries = self._entries(path, mount)
            name = str(entries.get("name", ""))[:253]
            folder = self._text((*path, "mountPath"), entries.get("mountPath"))
            if folder and (name in owners or name in audiences):
                self._mount(path, folder, owners.get(name, ""), audience=audiences.get(name, ""))
            self.remark(path, Verdict.NO_EFFECT, "files of the container")

    # -- parts -------------------------------------------------------------------------------------

    def _place(self, path: Path) -> str:
        """Return `values.yaml:7` for the value at a path, or for the
        nearest parent that has a line."""
        full_path = (*self._root, *path)
        for depth in range(len(full_path), -1, -1):
            if place := self._places.get(full_path[:depth]):
                return place
        return self._whole

    def _word(self, path: Path) -> str:
        """Return a path as text, such as `autoDiscovery.clusterName`."""
        return shortened(
            show_path(
                tuple(int(part) if _INDEX.match(part) else part for part in (*self._root, *path))
            )
        )

    def problem(self, path: Path, problem: str, remedy: str = "") -> None:
        """Add a mistake, for which the import is refused."""
        place = ": ".join(filter(None, (self._place(path), self._word(path))))
        self.problems.append(BadInput(place, problem, remedy))

    def remark(
        self, path: Path, verdict: Verdict, text: str = "", policy_path: str = "", *, word: str = ""
    ) -> None:
        """Add a row of the report for the value at a path."""
        self.remarks.append(
            Remark(self._place(path), word or self._word(path), verdict, text, policy_path)
        )

    def _argument(
        self, path: Path, flag: str, value: str | None, *, word: str = "", read_as: str = ""
    ) -> None:
        word = word or (self._word(path) if value is None else f"{self._word(path)}: {value}")
        self.arguments.append(Argument(self._place(path), word, flag, value, read_as))

    def _variable(
        self, path: Path, name: str, value: str | None, origin: VariableOrigin, owner: str, key: str
    ) -> None:
        value = None if is_secret_name(name) else value
        self.variables.append(Variable(self._place(path), name, value, origin, owner, key))

    def _mount(self, path: Path, folder: str, owner: str, *, audience: str = "") -> None:
        self.mounts.append(FileMount(self._place(path), folder, owner, audience=audience))

    def _named(self, key: str) -> str:
        """Return the text of a value at the top, empty where there is none."""
        return self._text((key,), self.values.get(key) or None) or ""

    def _text(self, path: Path, value: Any) -> str | None:
        """Return a scalar as the text of a flag, None for null. Objects, lists
        and templates are mistakes."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            self.problem(path, "is not a text, a number, true or false")
            return None
        text = str(value)
        if "{{" in text:
            self.problem(
                path, f"{quote(text)} is a template of Helm", "render it first: helm template"
            )
            return None
        return text

    def _entries(self, path: Path, value: Any) -> dict[str, Any]:
        """Return an object's entries, none for null; anything else is a
        mistake, and so are too many."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problem(path, "is not an object")
            return {}
        if len(value) > _MOST_ENTRIES:
            self.problem(path, f"has more than {_MOST_ENTRIES} entries")
            return {}
        return {str(key): entry for key, entry in value.items()}

    def _items(self, path: Path, value: Any) -> list[Any]:
        """Return a list's items, none for null; anything else is a mistake, and so are too many."""
        if value is None:
            return []
        if not isinstance(value, list):
            self.problem(path, "is not a list")
            return []
        if len(value) > _MOST_ENTRIES:
            self.problem(path, f"has more than {_MOST_ENTRIES} items")
            return []
        return value


def _unlisted(entries: Mapping[str, Any], known: Container[str]) -> list[str]:
    return [key for key in entries if key not in known]


_READERS: Mapping[str, Callable[[_ValuesReader, Path, Any], None]] = {
    "cloudProvider": _ValuesReader.read_provider,
    "autoscalingGroups": _ValuesReader.read_groups,
    "autoDiscovery": _ValuesReader.read_discovery,
    "extraArgs": _ValuesReader.read_extra_args,
    "customArgs": _ValuesReader.read_custom_args,
    "expanderPriorities": _ValuesReader.read_priorities,
    "cloudConfigPath": _ValuesReader.read_cloud_config_path,
}
_DEPENDENT = """
    image clusterAPIMode clusterAPIKubeconfigSecret clusterAPICloudConfigPath \
clusterAPIWorkloadKubeconfigPath
    clusterAPIConfigMapsNamespace secretKeyRefNameOverride envFromSecret envFromConfigMap extraEnv \
extraEnvConfigMaps
    extraEnvSecrets extraVolumeSecrets extraVolumes extraVolumeMounts
"""
_READ_TOGETHER = frozenset(_DEPENDENT.split())
