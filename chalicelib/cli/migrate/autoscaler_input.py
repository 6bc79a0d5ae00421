"""Types between the readers of Cluster Autoscaler's configuration and its translation to a policy.

Readers (workloads, Helm values, command lines) give one AutoscalerInput. The translation uses
nothing but that. Every word that a reader finds has a place, such as `deploy.yaml:31`, so
that the report can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from chalicelib.cli.migrate.report import Verdict
from chalicelib.model.policy_permissions import DEFAULT_PREFIX


class Argument(msgspec.Struct, frozen=True):
    """One flag of a command line, as pflag reads it.

    word: as written, for the report. flag: its name with dashes, without leading dashes, such as
    `scale-down-unneeded-time`; `v` for -v. value: None where the flag was given without a value.
    read_as: text that is added to the report's row, such as "upstream read this as true"; empty
    where the word has no pitfall.
    """

    place: str
    word: str
    flag: str
    value: str | None = None
    read_as: str = ""


class VariableOrigin(StrEnum):
    """Where the value of an environment variable comes from."""

    LITERAL = "literal"
    # only the keys of docs/from-cluster-autoscaler.md "Secrets" are decoded
    OF_SECRETS = "secret key"
    OF_CONFIG_MAP = "config map key"
    FIELD = "field"  # the downward API: unknown outside a Pod


class Variable(msgspec.Struct, frozen=True):
    """An environment variable of the container.

    value: None where it is not known from the input. object: `kube-system/cloud-config` of a Secret
    or ConfigMap. key: in that object.
    """

    place: str
    name: str
    value: str | None = None
    origin: VariableOrigin = VariableOrigin.LITERAL
    object: str = ""
    key: str = ""


class FileMount(msgspec.Struct, frozen=True):
    """A file that the container reads from a Secret, ConfigMap or projected token.

    path: of the file or folder in the container. object, key: as of a Variable. audience: of a
    projected token; else empty. text: the file's content, for a ConfigMap in the input and for the
    allow-listed keys of a cloud-config in a Secret; else None.
    """

    place: str
    path: str
    object: str = ""
    key: str = ""
    audience: str = ""
    text: str | None = None


class Remark(msgspec.Struct, frozen=True):
    """A row of the report that a reader has decided by itself."""

    place: str
    word: str
    verdict: Verdict
    text: str = ""
    path: str = ""


class AutoscalerInput(msgspec.Struct, frozen=True):
    """The configuration of one Cluster Autoscaler, from whatever form.

    place: of the workload, values or command line. kind: `Deployment`, `Helm values`, `command
    line`. image: as written, empty where there is none. version: (major, minor) that counts, from
    the image's tag or --image-version; None where the tag has none. objects: (place, document) of
    further objects of the input, such as MachineDeployments and the priority ConfigMap. release: of
    Helm, which an object of the input installs; otherwise empty.
    """

    place: str
    kind: str
    namespace: str = "kube-system"
    name: str = ""
    container: str = ""
    image: str = ""
    version: tuple[int, int] | None = None
    arguments: tuple[Argument, ...] = ()
    variables: tuple[Variable, ...] = ()
    mounts: tuple[FileMount, ...] = ()
    remarks: tuple[Remark, ...] = ()
    objects: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    release: str = ""


class ImportArguments(msgspec.Struct, frozen=True):
    """Values that no file contains, from the command line. An empty one is not given.

    secret_prefix: of the deployment's secrets. inline_priorities: the ConfigMap of the expander
    priority becomes priorities of spec.nodeGroups.
    """

    name: str = ""
    cluster_id: str = ""
    region: str = ""
    project_id: str = ""
    credentials_secret: str = ""
    kubeconfig_secret: str = ""
    secret_prefix: str = DEFAULT_PREFIX
    time_zone: str = "UTC"
    inline_priorities: bool = False
