"""Translates the settings of Cherry Servers to spec.providers.cherryservers."""

from __future__ import annotations

from chalicelib.command.importers.cherryservers_config import describe_cloud_config, names_cluster
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.provider_source import Source, object_at, present, read_nodes, store, take
from chalicelib.command.importers.report import Verdict
from chalicelib.command.importers.secret_commands import store_command

_TRIAL_TIMES = ("scale-down-unneeded-time", "scale-down-delay-after-add", "scale-down-unready-time")


def translate_cherryservers(source: Source, draft: Draft) -> None:
    """Write the provider's settings and their rows into the draft."""
    cluster, config = source.last("cluster-name"), source.last("cloud-config")
    if cluster is not None and cluster.value:
        draft.provider["clusterName"] = cluster.value
    elif config is None or not names_cluster(source, config.value or ""):
        text = (
            "neither a flag nor a cloud-config in the input says it: add clusterName, the value of the servers' tag "
            "k8s-cluster, or import the cloud-config, too"
        )
        draft.row("", "no --cluster-name", Verdict.MISSING, "spec.providers.cherryservers.clusterName", text)
    keys = present(source, "CHERRY_AUTH_TOKEN")
    store(source, draft, "credentialsSecret", "cherryservers", keys, "cherryservers")
    if config is not None:
        name = source.secret("cherryservers-cloud-config")
        draft.provider["cloudConfigSecret"] = name
        at = object_at(source, config.value or "")
        text = f"{name}  {store_command(at, name)}"
        path = "spec.providers.cherryservers.cloudConfigSecret"
        draft.row(config.place, config.word, Verdict.TO_STORE, path, text)
        describe_cloud_config(source, config.value or "", draft)
    tokens = present(source, "BOOTSTRAP_TOKEN_ID", "BOOTSTRAP_TOKEN_SECRET")
    if tokens:
        store(source, draft, "bootstrapTokenSecret", "cherryservers-bootstrap-token", tokens, "cherryservers")
    take(source, draft, "cherryservers", "controllerNodeLabel", "CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL")
    for variable in present(source, "CHERRY_MANAGER", "CHERRY_USE_PRODUCTION_API"):
        draft.row(variable.place, variable.name, Verdict.NO_EFFECT, "", "nothing reads it here")
    read_nodes(source, draft, "cherryservers")
    if not source.given.get("max-node-provision-time"):
        text = "bare metal needs longer than 15m to join: consider maxNodeProvisionTime: 1h of the provider"
        draft.row("", "no --max-node-provision-time", Verdict.TOLD, "", text)
    _tell_of_trial_times(source, draft)


def _tell_of_trial_times(source: Source, draft: Draft) -> None:
    """Report the three removal times of the vendor's example, which are not meant for production."""
    found = [source.last(flag) for flag in _TRIAL_TIMES]
    if all(each is not None and each.value in ("1m", "60s", "1m0s") for each in found):
        text = "the vendor's example has them for trying out; Cluster Autoscaler's defaults are 10m, 10m and 20m"
        place = next(each.place for each in found if each is not None)
        draft.row(place, "three removal times of one minute", Verdict.TOLD, "spec.options", text)
