"""`outscaler import` reads flags as Cluster Autoscaler does, not as their author meant them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.cli.migrate.flag_table import KNOWN, Fate
from chalicelib.policy.options import default_text
from tests.functional.import_runs import (
    ALICLOUD,
    GIVEN,
    Said,
    container,
    import_flags,
    imported,
    manifest,
    workload,
    written,
)


def test_IMP_6_the_old_removal_delay_counts_from_the_last_addition(
    tmp_path: Path, capsys: Said
) -> None:
    found = import_flags(capsys, tmp_path, "--scale-down-delay=5m")
    assert found.options["scaleDownDelayAfterAdd"] == "5m"
    assert "measured from the last scale-up" in found.rows_of("--scale-down-delay")[0][1]


def test_IMP_7_bulk_removal_of_empty_nodes_counts_before_1_25(tmp_path: Path, capsys: Said) -> None:
    old = (*GIVEN, "--image-version", "1.24")
    assert (
        import_flags(capsys, tmp_path, "--max-empty-bulk-delete=100", given=old).options[
            "maxScaleDownParallelism"
        ]
        == 100
    )
    both = import_flags(
        capsys, tmp_path, "--max-empty-bulk-delete=100", "--max-scale-down-parallelism=7", given=old
    )
    assert both.options["maxScaleDownParallelism"] == 7


def test_IMP_8_a_boolean_does_not_take_the_next_word(tmp_path: Path, capsys: Said) -> None:
    found = import_flags(capsys, tmp_path, "--skip-nodes-with-system-pods", "false")
    assert "skipNodesWithSystemPods" not in found.options  # true is the default
    (kept,) = found.rows_of("--skip-nodes-with-system-pods")
    assert "read this as true; write --skip-nodes-with-system-pods=false" in kept[1]
    assert found.rows_of("false")[0][0] == "told"


def test_IMP_9_booleans_may_be_written_as_go_reads_them(tmp_path: Path, capsys: Said) -> None:
    found = import_flags(capsys, tmp_path, "--leader-elect=T", "--cordon-node-before-terminating=f")
    assert found.rows_of("--leader-elect=T")[0][0] == "no effect"
    assert found.options["cordonNodeBeforeTerminating"] is False


@pytest.mark.parametrize("words", [("-v", "4"), ("-v=4",), ("-v4",), ("--v", "4")])
def test_IMP_10_all_forms_of_verbosity_are_one_row_without_effect(
    words: tuple[str, ...], tmp_path: Path, capsys: Said
) -> None:
    found = import_flags(capsys, tmp_path, *words, "--logtostderr")
    assert [verdict for verdict, _ in found.rows_of(" ".join(words))] == ["no effect"]
    assert found.rows_of(" ".join(words)) == found.rows_of("--logtostderr")


def test_IMP_11_underscores_in_a_flag_are_dashes(tmp_path: Path, capsys: Said) -> None:
    assert (
        import_flags(capsys, tmp_path, "--scale_down_unneeded_time=1m0s").options[
            "scaleDownUnneededTime"
        ]
        == "1m"
    )


def test_IMP_12_repeated_nodes_make_a_list_in_their_order(capsys: Said) -> None:
    text = (
        "cluster-autoscaler --cloud-provider=cherryservers --cluster-name=c --nodes 0:10:pool1 "
        "--nodes=0:9:pool2"
    )
    found = imported(capsys, "--command", text)
    assert found.document["spec"]["providers"]["cherryservers"]["nodes"] == [
        "0:10:pool1",
        "0:9:pool2",
    ]


@pytest.mark.parametrize("interval", ["1s", "2h"])
def test_IMP_13_a_scan_interval_out_of_range_is_refused(
    interval: str, tmp_path: Path, capsys: Said
) -> None:
    found = import_flags(capsys, tmp_path, f"--scan-interval={interval}")
    assert (found.code, found.out) == (2, "")
    assert "from 5s to 1h" in found.err


def test_IMP_14_what_follows_random_in_a_chain_is_left_out(tmp_path: Path, capsys: Said) -> None:
    found = import_flags(capsys, tmp_path, "--expander=random,least-waste")
    assert (found.code, found.options["expander"]) == (0, ["random"])
    assert found.rows_of("--expander: least-waste") == [
        ("no effect", "nothing is left to choose after random")
    ]


def test_IMP_15_the_last_of_two_scalars_counts_and_the_first_is_told(
    tmp_path: Path, capsys: Said
) -> None:
    found = import_flags(capsys, tmp_path, "--expander=priority", "--expander=random")
    assert found.options["expander"] == ["random"]
    assert found.rows_of("--expander=priority")[0][0] == "told"


def test_IMP_16_a_shell_script_in_a_container_ends_at_its_pipe(
    tmp_path: Path, capsys: Said
) -> None:
    script = f"exec ./cluster-autoscaler --v=4 {' '.join(ALICLOUD)} 2>&1 | tee /log"
    for shell in (
        ["sh", "-c", script],
        ["/bin/bash", "-ec", script],
        ["tini", "--", "sh", "-c", script],
    ):
        found = imported(capsys, written(tmp_path, manifest(workload(container(shell)))), *GIVEN)
        assert found.document["spec"]["providers"]["alicloud"]["nodes"] == [
            "1:10:asg-bp18p2yfxow2dloq0001"
        ]
        assert found.rows_of("--v=4")
        assert not found.rows_of("tee")


def test_IMP_17_command_and_args_are_one_command_line(tmp_path: Path, capsys: Said) -> None:
    flags = [*ALICLOUD, "--max-nodes-total=50"]
    forms = (
        container(["./cluster-autoscaler", *flags]),
        container(["./cluster-autoscaler"], flags),
        container(None, flags),
        container(None, ["./cluster-autoscaler", *flags]),
    )
    found = [
        imported(capsys, written(tmp_path, manifest(workload(form))), *GIVEN) for form in forms
    ]
    assert found[0].options["maxNodesTotal"] == 50
    assert all(each.document["spec"] == found[0].document["spec"] for each in found)


def test_IMP_30_nodes_of_cluster_api_have_no_effect(capsys: Said) -> None:
    found = imported(
        capsys, "--command", "cluster-autoscaler --cloud-provider=clusterapi --nodes=1:3:a"
    )
    assert found.rows_of("--nodes=1:3:a")[0][0] == "no effect"
    assert "nodes" not in found.document["spec"]["providers"]["clusterapi"]


def test_IMP_38_a_label_with_a_comma_is_one_label_upstream(tmp_path: Path, capsys: Said) -> None:
    assert (
        "give the flag twice" in import_flags(capsys, tmp_path, "--balancing-ignore-label=a,b").err
    )
    newer = import_flags(
        capsys, tmp_path, "--balancing-ignore-label=a", given=(*GIVEN, "--image-version", "1.37")
    ).rows_of("--balancing-ignore-label=a")
    assert (
        "told",
        "since 1.37 it had no effect with this provider; here it counts for every provider",
    ) in newer


OLD_NAMES = (  # of releases 0.5 to 1.24
    "--scale-down-delay=10m0s",
    "--scale-down-trial-interval=1m0s",
    "--unregistered-node-removal-time=15m0s",
    "--max-grateful-termination-sec=600",
    "--max-empty-bulk-delete=10",
    "--verify-unschedulable-pods=true",
    "--filter-out-schedulable-pods-uses-packing=true",
    "--configmap=",
    "--ignore-taint=",
)


def default_words() -> list[str]:
    """Every flag with its default, except those that have another place in a policy,
    and second names of flags."""
    return [
        f"--{known.flag}={default_text(known.option)}"
        for known in KNOWN.values()
        if known.option is not None and known.fate not in (Fate.PLACE, Fate.RENAMED)
    ]


def test_IMP_40_flags_with_their_defaults_write_no_option(tmp_path: Path, capsys: Said) -> None:
    words = [*default_words(), *OLD_NAMES]
    assert len(words) > 150
    found = import_flags(
        capsys, tmp_path, *words, "--scan-interval=10s", given=(*GIVEN, "--image-version", "1.37")
    )
    assert found.code == 0, found.err
    # the default of 1.37 is another
    assert found.options == {"blockingSystemPodDistruptionTimeout": "87600h"}
    assert "unknown" not in {row["verdict"] for row in found.rows}
    assert set(words) <= {word for row in found.rows for word in row["word"].split(", ")}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("", True),
        (" --startup-taint=example.com/starting", True),
        (" --startup-taint=node.cluster.x-k8s.io/uninitialized", False),
        (" --startup-taint-prefix=node.cluster.x-k8s.io/", False),
    ],
)
def test_startup_taint_of_cluster_api_that_it_does_not_know_is_told(
    capsys: Said, flags: str, told: bool
) -> None:
    command = "cluster-autoscaler --cloud-provider=clusterapi --nodes=1:3:a"
    found = imported(capsys, "--command", command + flags)
    rows = found.rows_of("no --startup-taint=node.cluster.x-k8s.io/uninitialized")
    assert [verdict for verdict, _ in rows] == (["told"] if told else [])
