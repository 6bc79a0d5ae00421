"""`outscaler import` reads containers that start the autoscaler by a shell, and the raw
cloud-config of Cherry Servers beside or without a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.functional.import_runs import (
    ALICLOUD,
    GIVEN,
    Said,
    container,
    imported,
    manifest,
    workload,
    written,
)

FLAGS = " ".join(ALICLOUD)
ENV = [
    {"name": "GROUP", "value": "asg-bp18p2yfxow2dloq0001"},
    {"name": "NODES", "value": "1:10:$(GROUP)"},
    {"name": "PROVIDER", "value": "alicloud"},
]
RUN = f"./cluster-autoscaler {FLAGS}"
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "sh": (["sh", "-c", RUN], []),
    "bin": (["/bin/sh", "-c"], [RUN]),
    "bash": (["/bin/bash", "-ec"], [f"set -e; exec {RUN} 2>&1 | tee /log"]),
    "options": (["bash", "-o", "pipefail", "-c"], [f"ulimit -n 1024 && {RUN} || exit 1"]),
    "init": (["/sbin/tini", "--", "/bin/sh", "-c"], [f"exec env A=b {RUN}"]),
    "lines": (["/bin/sh", "-c"], ["./cluster-autoscaler \\\n" + " \\\n".join(ALICLOUD) + "\n"]),
    "of shell": (
        ["sh", "-c", "./cluster-autoscaler --cloud-provider=$PROVIDER --nodes=$NODES"],
        [],
    ),
    "of kubelet": (
        ["sh", "-c"],
        ["./cluster-autoscaler --cloud-provider=$(PROVIDER) --nodes=$(NODES)"],
    ),
    "default": (
        [
            "sh",
            "-c",
            'exec ./cluster-autoscaler --cloud-provider="${P:-alicloud}" --nodes=${NODES}',
        ],
        [],
    ),
    "default without colon": (
        [
            "sh",
            "-c",
            'exec ./cluster-autoscaler --cloud-provider="${P-alicloud}" --nodes=${NODES:?}',
        ],
        [],
    ),
    "assigned": (["sh", "-c", f"ARGS='{FLAGS}'; exec ./cluster-autoscaler $ARGS"], []),
    "positional": (["sh", "-c", 'exec ./cluster-autoscaler "$@"', "--", *ALICLOUD], []),
    "positional args": (["sh", "-c", "exec ./cluster-autoscaler $@", "sh"], list(ALICLOUD)),
    "set": (["sh", "-c", f'set -- {FLAGS}\nexec ./cluster-autoscaler "$@"'], []),
    "if": (["sh", "-c", f"if [ -f /ready ]; then exec {RUN}; fi"], []),
    "loop": (["sh", "-c", f"while true; do {RUN}; sleep 1; done"], []),
    "block": (["sh", "-c", f"sleep 5 && {{ {RUN}; }}"], []),
    "nice": (["sh", "-c", f"exec nice -n 10 {RUN}"], []),
    "user": (["sh", "-c", f"exec su-exec nobody {RUN}"], []),
    "shell in a shell": (["sh", "-c", f'exec bash -c "{RUN}"'], []),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_container_whose_shell_starts_the_autoscaler_is_read(
    name: str, tmp_path: Path, capsys: Said
) -> None:
    command, args = COMMANDS[name]
    text = manifest(workload(container(command, args, env=ENV)))
    opened = imported(capsys, written(tmp_path, text), *GIVEN)
    assert opened.code == 0, opened.err
    provider = opened.document["spec"]["providers"]["alicloud"]
    assert provider["nodes"] == ["1:10:asg-bp18p2yfxow2dloq0001"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exec /scripts/start.sh", "does not show the autoscaler's flags"),
        ('eval "$(cat /etc/command)"', "does not show the autoscaler's flags"),
        (f"if a; then {RUN}; else {RUN} --v=4; fi", "runs several autoscalers"),
        ("exec ./cluster-autoscaler --cloud-provider=$(cat /provider)", "runs a command"),
        ("exec ./cluster-autoscaler --cloud-provider=${P%/}", "give --env P=VALUE"),
    ],
)
def test_a_script_that_cannot_be_read_is_named_with_what_to_give(
    script: str, says: str, tmp_path: Path, capsys: Said
) -> None:
    text = manifest(workload(container(["/bin/sh", "-c", script], env=ENV)))
    refused = imported(capsys, written(tmp_path, text), *GIVEN)
    assert refused.code == 2
    assert "deploy.yaml:" in refused.err
    assert says in refused.err
    if "flags" in says:
        assert "kubectl -n kube-system exec deployment/cluster-autoscaler" in refused.err
        assert "--command" in refused.err


@pytest.mark.parametrize(
    "command", [["/bin/sh", "/scripts/run.sh"], ["bash", "-e", "/scripts/run.sh"]]
)
def test_a_script_of_a_config_map_in_the_input_is_read(
    command: list[str], tmp_path: Path, capsys: Said
) -> None:
    mounts = [{"name": "scripts", "mountPath": "/scripts"}]
    own = workload(container(command, list(ALICLOUD), env=ENV, volumeMounts=mounts))
    volumes = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    own["spec"]["template"]["spec"]["volumes"] = volumes
    script = '#!/bin/sh\nset -e\nexec ./cluster-autoscaler "$@" --v=4\n'
    scripts = {
        "kind": "ConfigMap",
        "metadata": {"name": "scripts", "namespace": "kube-system"},
        "data": {"run.sh": script},
    }
    opened = imported(capsys, written(tmp_path, manifest(own, scripts)), *GIVEN)
    assert opened.code == 0, opened.err
    assert "alicloud" in opened.document["spec"]["providers"]
    refused = imported(capsys, written(tmp_path, manifest(own)), *GIVEN)
    assert "does not show the autoscaler's flags" in refused.err


def test_a_shell_of_another_program_is_no_autoscaler(tmp_path: Path, capsys: Said) -> None:
    other = container(["/bin/sh", "-c", "sleep 1"], image="registry.test/busybox", name="web")
    refused = imported(capsys, written(tmp_path, manifest(workload(other))), *GIVEN)
    assert "holds no Cluster Autoscaler" in refused.err


CLOUD_CONFIG = """\
; of two pools
[Global]
project-id = 10001
[nodegroupdef "default"]
cluster-name = purple
region = EU-Nord-1
plan = e5_1620v4
os = ubuntu_22_04
cloudinit = aGlkZGVuLXNjcmlwdA==

[nodegroupdef "pool1"]
cluster-name = purple
plan = e5_1650v4
"""
CHERRY = "cluster-autoscaler --cloud-provider=cherryservers --nodes=0:10:pool1"


@pytest.mark.parametrize("flag", ["", " --cloud-config=/config/cloud-config"])
@pytest.mark.parametrize("name", ["cloud-config", "cloud-config.cfg", "config.yaml"])
def test_a_bare_cloud_config_is_the_file_that_the_flag_names(
    flag: str, name: str, tmp_path: Path, capsys: Said
) -> None:
    config = written(tmp_path, CLOUD_CONFIG, name)
    opened = imported(capsys, config, "--command", CHERRY + flag, "--name", "shop")
    assert opened.code == 0, opened.err
    provider = opened.document["spec"]["providers"]["cherryservers"]
    assert provider["cloudConfigSecret"].endswith("cherryservers-cloud-config")
    assert "missing" not in [verdict for verdict, _ in opened.rows_of("cluster-name")]
    ((verdict, text),) = opened.rows_of('line 4: [nodegroupdef "default"]')
    assert (verdict, text.partition(",")[0]) == ("read", "cluster-name purple")
    assert "aGlkZGVuLXNjcmlwdA" not in opened.out + opened.err


def test_a_cloud_config_alone_gives_its_pools_and_names_what_is_missing(
    tmp_path: Path, capsys: Said
) -> None:
    config = written(tmp_path, CLOUD_CONFIG, "cloud-config")
    opened = imported(capsys, config, "--name", "shop")
    assert opened.code == 0, opened.err
    assert list(opened.document["spec"]["providers"]) == ["cherryservers"]
    ((verdict, text),) = opened.rows_of("no --nodes")
    assert verdict == "missing"
    assert "nodes: [MIN:MAX:pool1]" in text
    assert imported(capsys, config, "--name", "shop", "--strict").code == 1


def test_two_cloud_configs_are_refused(tmp_path: Path, capsys: Said) -> None:
    files = [written(tmp_path, CLOUD_CONFIG, name) for name in ("one", "two")]
    refused = imported(capsys, *files)
    assert refused.code == 2
    assert "give one of them" in refused.err


def test_a_cloud_config_has_no_effect_for_another_provider(tmp_path: Path, capsys: Said) -> None:
    config = written(tmp_path, CLOUD_CONFIG, "cloud-config")
    opened = imported(capsys, config, "--command", f"cluster-autoscaler {FLAGS}", *GIVEN)
    assert [verdict for verdict, _ in opened.rows_of("cloud-config of Cherry")] == ["no effect"]


@pytest.mark.parametrize(
    "text",
    [
        '[nodegroupdef "' + "x" * 100_000 + '"]\n',
        '[nodegroupdef "a"]\n' * 100_000,
        '[nodegroupdef "a"]\n' + "plan = x\\\n" * 100_000,
        '[nodegroupdef "a"]\n' + "cloudinit = " + "y" * 1_000_000,
        "[global]\nplan=\n" + "[" * 100_000,
    ],
)
def test_a_hostile_cloud_config_is_read_in_bounded_time(
    text: str, tmp_path: Path, capsys: Said
) -> None:
    config = written(tmp_path, text, "cloud-config")
    answer: Any = imported(capsys, config, "--command", CHERRY, "--name", "shop")
    assert answer.code in (0, 2)
    assert len(answer.err + answer.out) < 200_000


def test_a_cloud_config_of_another_cloud_is_not_taken_for_one(tmp_path: Path, capsys: Said) -> None:
    text = "[Global]\nauth-url=https://keystone.test\nusername=a\n"
    refused = imported(capsys, written(tmp_path, text, "cloud.conf"), "--name", "shop")
    assert refused.code == 2
    assert "Cherry" not in refused.err
