"""`outscaler import` converts files of another autoscaler into one document that
`outscaler validate` accepts.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.policy.load import load
from tests.cases import each_row

Said = pytest.CaptureFixture[str]
CLUSTER = "2292498e-1111-11ee-8b5e-0255ac1001ba"
POOL = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
CUSTOM = {
    "maxNodesTotal": 200,
    "scaleDownEnabled": True,
    "scaleDownDelayAfterAdd": 0,
    "scaleUpCpuUtilizationThreshold": 0.8,
}
ADDONS = {
    "kind": "Addon",
    "apiVersion": "v3",
    "items": [
        {
            "kind": "Addon",
            "spec": {"addonTemplateName": "coredns", "values": {"custom": {"parameterA": 1}}},
        },
        {
            "kind": "Addon",
            "spec": {
                "clusterID": CLUSTER,
                "addonTemplateName": "autoscaler",
                "values": {"custom": CUSTOM},
            },
        },
    ],
}
FLAGS = (
    "--name",
    "prod",
    "--region",
    "eu-west-101",
    "--credentials-secret",
    "outscaler/prod/huaweicloud",
    "--kubeconfig-secret",
    "outscaler/prod/kubeconfig",
)


def cron(name: str = "evening", value: int = 1) -> dict[str, Any]:
    return {
        "ruleName": name,
        "type": "Cron",
        "disable": False,
        "cronTrigger": {"schedule": "47 20 * * *"},
        "action": {"type": "ScaleUp", "unit": "Node", "value": value},
    }


def metric(name: str = "busy", value: str = "70") -> dict[str, Any]:
    return {
        "ruleName": name,
        "type": "Metric",
        "metricTrigger": {
            "metricName": "Cpu",
            "metricOperation": ">",
            "metricValue": value,
            "unit": "Percent",
        },
        "action": {"type": "ScaleUp", "unit": "Node"},
    }


def horizontal(
    name: str, *rules: dict[str, Any], pools: tuple[str, ...] = (POOL,), **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.cce.io/v1alpha1",
        "kind": "HorizontalNodeAutoscaler",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"disable": False, "targetNodepoolIds": list(pools), "rules": list(rules), **spec},
    }


def file_of(folder: Path, name: str, *held: Any) -> str:
    """Writes one file with these documents."""
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(each) for each in held), encoding="utf-8")
    return str(path)


def test_import_merges_settings_and_objects_into_one_valid_document(
    tmp_path: Path, capsys: Said
) -> None:
    addons = file_of(tmp_path, "addons.json", ADDONS)
    objects = file_of(
        tmp_path,
        "rules.yaml",
        horizontal("a", cron(), metric()),
        horizontal("b", metric(value="-1"), pools=("other",)),
    )
    assert main(["import", addons, objects, *FLAGS, "--time-zone", "Europe/Paris"]) == 0
    document, reported = capsys.readouterr()
    policy, warnings = load(document, place="p.yaml")
    assert warnings == ()
    assert "not complete" not in reported
    assert (
        policy.name,
        policy.options.max_nodes_total,
        policy.options.scale_down_delay_after_delete,
    ) == (
        "prod",
        200,
        600.0,
    )
    assert policy.rules == (
        Rule("evening", (POOL,), cron="47 20 * * *", time_zone="Europe/Paris", add=1),
        Rule("busy", (POOL,), metric=Metric.CPU, above=70),
        Rule("b.busy", ("other",), metric=Metric.CPU),
    )
    assert policy.providers == {
        "huaweicloud": {
            "clusterId": CLUSTER,
            "region": "eu-west-101",
            "credentialsSecret": "outscaler/prod/huaweicloud",
        }
    }
    written = tmp_path / "policy.yaml"
    written.write_text(document, encoding="utf-8")
    assert main(["validate", str(written)]) == 0


def test_import_writes_shadow_mode_and_does_not_obey_the_objects_as_well(
    tmp_path: Path, capsys: Said
) -> None:
    assert (
        main(
            [
                "import",
                file_of(tmp_path, "a.json", horizontal("a", cron())),
                *FLAGS,
                "--cluster-id",
                CLUSTER,
            ]
        )
        == 0
    )
    policy, _ = load(capsys.readouterr().out, place="p.yaml")
    assert policy.mode == "shadow"
    assert policy.scale_up.horizontal_node_autoscalers is False
    assert main(["import", file_of(tmp_path, "b.json", ADDONS), *FLAGS]) == 0
    assert (
        load(capsys.readouterr().out, place="p.yaml")[0].scale_up.horizontal_node_autoscalers
        is None
    )


def test_import_and_validate_report_unset_required_values_with_their_flag(
    tmp_path: Path, capsys: Said
) -> None:
    assert main(["import", file_of(tmp_path, "a.json", CUSTOM)]) == 0
    document, reported = capsys.readouterr()
    for flag in (
        "--cluster-id",
        "--region",
        "--credentials-secret",
        "--kubeconfig-secret",
        "--name",
    ):
        assert flag in reported
    lacking = [line for line in reported.splitlines() if line.startswith("warning: not complete: ")]
    assert [line.split(": ")[2] for line in lacking] == [
        "spec.kubernetes",
        *(
            f"spec.providers.huaweicloud.{key}"
            for key in ("region", "clusterId", "credentialsSecret")
        ),
    ]
    assert all(
        f"# Not complete: {line.split(': ', 2)[2]}" in document.splitlines() for line in lacking
    )
    written = tmp_path / "policy.yaml"
    written.write_text(document, encoding="utf-8")
    assert main(["validate", str(written)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == len(lacking)


def test_import_json_output_is_the_same_document(tmp_path: Path, capsys: Said) -> None:
    file = file_of(tmp_path, "a.json", ADDONS)
    assert main(["import", file, *FLAGS]) == 0
    as_yaml = capsys.readouterr().out
    assert main(["import", file, *FLAGS, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == yaml.safe_load(as_yaml)


def test_import_reports_a_bad_object_with_file_and_all_errors_and_prints_nothing(
    tmp_path: Path, capsys: Said
) -> None:
    bad = metric()
    bad["metricTrigger"] |= {"metricValue": 40, "metricOperation": "<"}
    file = file_of(tmp_path, "rules.yaml", horizontal("good", cron()), horizontal("bad", bad))
    assert main(["import", file]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
    assert all(
        line.startswith(f"{file}: kube-system/bad: spec.rules[0].metricTrigger.")
        for line in said.err.splitlines()
    )


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ((ADDONS, ADDONS), "import one cluster at a time"),
        (
            (horizontal("a", cron()), horizontal("a", cron("later"))),
            "kube-system/a: is given twice; give each object once",
        ),
        (({"kind": "ConfigMap"},), "holds no Cluster Autoscaler, no settings of CCE's add-on"),
    ],
)
def test_import_refuses_contradictory_input_files(
    tmp_path: Path, capsys: Said, held: tuple[Any, ...], says: str
) -> None:
    assert main(["import", file_of(tmp_path, "a.yaml", *held)]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere.json",), "nowhere.json: No such file"),
        ((), "required: FILE"),
        (("-", "-"), "stdin: is named twice"),
        (("-", "--time-zone", "Mars"), "--time-zone: 'Mars' is not a time zone"),
    ],
)
def test_import_usage_error_is_one_line(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(CUSTOM).encode())))
    assert main(["import", *arguments]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert (said.out, len(said.err.splitlines())) == ("", 1)


def test_import_reads_standard_input(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(ADDONS).encode())))
    assert main(["import", "-", *FLAGS]) == 0
    assert load(capsys.readouterr().out, place="p")[0].options.max_nodes_total == 200


def test_import_changes_and_reports_names_invalid_in_a_policy(tmp_path: Path, capsys: Said) -> None:
    file = file_of(
        tmp_path,
        "a.yaml",
        horizontal("a", cron("at night"), cron("x/y")),
        horizontal("b", cron("at-night"), pools=("p2",)),
        horizontal("a.b", cron("at-night"), pools=("p3",)),
    )
    assert main(["import", file, *FLAGS, "--cluster-id", CLUSTER]) == 0
    document, reported = capsys.readouterr()
    names = [rule.name for rule in load(document, place="p")[0].rules]
    assert names == ["at-night", "x-y", "b.at-night", "a.b.at-night"]
    assert sum("is called" in line for line in reported.splitlines()) == 4


def test_import_reports_objects_without_effect(tmp_path: Path, capsys: Said) -> None:
    file = file_of(
        tmp_path,
        "a.yaml",
        horizontal("off", cron(), disable=True),
        horizontal("aimless", cron(), pools=()),
    )
    assert main(["import", file, *FLAGS, "--cluster-id", CLUSTER]) == 0
    document, reported = capsys.readouterr()
    assert load(document, place="p")[0].rules == ()
    assert "kube-system/off: is disabled" in reported
    assert "kube-system/aimless: rule evening: has no target" in reported


def test_CCE_A3_2_import_reports_a_rule_that_validate_will_refuse(
    tmp_path: Path, capsys: Said
) -> None:
    file = file_of(tmp_path, "a.yaml", horizontal("a", metric(value="50")), {"custom": CUSTOM})
    assert main(["import", file, *FLAGS, "--cluster-id", CLUSTER]) == 0
    assert (
        "not complete: spec.rules[0].above: 50% is not above options.scaleDown"
        in capsys.readouterr().err
    )


def test_IMP_35_objects_without_an_addon_get_the_addons_defaults(
    tmp_path: Path, capsys: Said
) -> None:
    file = file_of(tmp_path, "a.yaml", horizontal("a", metric(value="40")))
    assert main(["import", file, *FLAGS, "--cluster-id", CLUSTER]) == 0
    document, reported = capsys.readouterr()
    options = load(document, place="p")[0].options
    assert (options.scale_down_enabled, options.max_nodes_total) == (False, 1000)
    assert "its defaults are written out" in reported
    assert load(document, place="p")[0].scan_interval == 60.0


@each_row(
    "custom",
    [
        CUSTOM,
        CUSTOM | {"scaleDownEnabled": False},
        CUSTOM | {"tenant_id": "a", "scaleDownEnabled": False},
    ],
)
def test_IMP_35_objects_beside_an_addon_make_a_valid_policy(
    custom: Any, tmp_path: Path, capsys: Said
) -> None:
    file = file_of(tmp_path, "a.yaml", horizontal("a", metric(value="60")), {"custom": custom})
    assert main(["import", file, *FLAGS, "--cluster-id", CLUSTER]) == 0
    document, reported = capsys.readouterr()
    assert load(document, place="p")[0].options.max_nodes_total == 200
    assert reported.count("tenant_id") == ("tenant_id" in custom)
    assert "not complete" not in reported


def test_import_reports_settings_of_a_disabled_addon(tmp_path: Path, capsys: Said) -> None:
    off = {"scaleUpUnscheduledPodEnabled": False, "scaleUpUtilizationEnabled": False}
    assert main(["import", file_of(tmp_path, "a.json", off), *FLAGS, "--cluster-id", CLUSTER]) == 0
    document, reported = capsys.readouterr()
    assert "groups grow for no pod and by no rule" in reported
    assert "the vendor's add-on is switched on" not in reported
    assert load(document, place="p")[0].scale_up.rules is False


def test_import_reports_a_cluster_other_than_the_requested_one(
    tmp_path: Path, capsys: Said
) -> None:
    other = CLUSTER.replace("2292498e", "11111111")
    assert main(["import", file_of(tmp_path, "a.json", ADDONS), *FLAGS, "--cluster-id", other]) == 0
    document, reported = capsys.readouterr()
    assert f"settings are those of cluster {CLUSTER}, and --cluster-id says {other}" in reported
    assert load(document, place="p")[0].providers["huaweicloud"]["clusterId"] == other


def test_import_text_cannot_escape_a_comment_or_move_the_cursor(
    tmp_path: Path, capsys: Said
) -> None:
    file = file_of(
        tmp_path, "a.yaml", {"kind": "X\nmode: active\n\x1b[2J"}, {**CUSTOM, "key\nspec: {}": 1}
    )
    assert main(["import", file, *FLAGS, "--cluster-id", CLUSTER]) == 0
    document, reported = capsys.readouterr()
    assert load(document, place="p")[0].mode == "shadow"
    assert "\x1b" not in document + reported
    assert "passed over" in reported


def test_import_reads_the_vendors_objects_with_lowercase_keys(tmp_path: Path, capsys: Said) -> None:
    text = f"""\
apiversion: autoscaling.cce.io/v1alpha1
kind: horizontalnodeautoscaler
metadata:
  name: xxxx
  namespace: kube-system
spec:
  disable: false
  rules:
  - action: {{type: scaleup, unit: node, value: 1}}
    crontrigger: {{schedule: 47 20 * * *}}
    disable: false
    rulename: cronrule
    type: cron
  - action: {{type: scaleup, unit: node, value: 2}}
    disable: false
    metrictrigger: {{metricname: cpu, metricoperation: '>', metricvalue: "70", unit: '%'}}
    rulename: metricrule
    type: metric
  targetnodepoolids: [{POOL}]
"""
    (tmp_path / "seed.yaml").write_text(text, encoding="utf-8")
    assert main(["import", str(tmp_path / "seed.yaml"), *FLAGS, "--cluster-id", CLUSTER]) == 0
    assert load(capsys.readouterr().out, place="p")[0].rules == (
        Rule("cronrule", (POOL,), cron="47 20 * * *", add=1),
        Rule("metricrule", (POOL,), metric=Metric.CPU, above=70, add=2),
    )
