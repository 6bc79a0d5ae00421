"""The status ConfigMap of Cluster Autoscaler in both forms."""

from __future__ import annotations

from chalicelib.model.timestamps import parse_time
from chalicelib.shadow.other_status import GroupStatus, OtherStatus, go_time, read_status
from tests.cases import each_row

YAML = """time: 2026-11-22 09:15:02.123456789 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health: {status: Healthy, lastTransitionTime: "2026-11-22T08:00:00Z"}
  scaleUp: {status: NoActivity, lastTransitionTime: "2026-11-22T09:00:00Z"}
  scaleDown: {status: CandidatesPresent, candidates: 2, lastTransitionTime: "2026-11-22T09:10:00Z"}
nodeGroups:
- name: web
  health: {status: Unhealthy, lastTransitionTime: "2026-11-22T08:01:00Z"}
  scaleUp: {status: InProgress, lastTransitionTime: "2026-11-22T09:14:00Z"}
  scaleDown: {status: NoCandidates, lastTransitionTime: "2026-11-22T08:02:00Z"}
- name: job
  health: {status: Healthy, lastTransitionTime: "2026-11-22T08:02:00Z"}
  scaleUp: {status: Backoff, backoffInfo: {errorCode: QUOTA}, lastTransitionTime: \
"2026-11-22T09:11:00Z"}
  scaleDown: {status: NoCandidates, lastTransitionTime: "2026-11-22T08:02:00Z"}
"""
TEXT = """Cluster-autoscaler status at 2026-11-22 09:15:02.123456789 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=4 unready=0 notStarted=0 registered=4 longUnregistered=0)
               LastProbeTime:      2026-11-22 09:15:00 +0000 UTC m=+12.3
               LastTransitionTime: 2026-11-22 08:00:00 +0000 UTC m=+1.3
  ScaleUp:     NoActivity (ready=4 registered=4)
               LastProbeTime:      2026-11-22 09:15:00 +0000 UTC m=+12.3
               LastTransitionTime: 2026-11-22 09:00:00 +0000 UTC m=+1.3
  ScaleDown:   CandidatesPresent (candidates=2)
               LastProbeTime:      2026-11-22 09:15:00 +0000 UTC m=+12.3
               LastTransitionTime: 2026-11-22 09:10:00 +0000 UTC m=+1.3

NodeGroups:
  Name:        web
  Health:      Unhealthy (ready=3 registered=3 cloudProviderTarget=4 (minSize=1, maxSize=5))
               LastTransitionTime: 2026-11-22 08:01:00 +0000 UTC m=+1.3
  ScaleUp:     InProgress (ready=3 registered=3)
               LastTransitionTime: 2026-11-22 09:14:00 +0000 UTC m=+1.3
  ScaleDown:   NoCandidates (candidates=0)
  Name:        job
  Health:      Healthy (ready=1 registered=1)
               LastTransitionTime: 2026-11-22 08:02:00 +0000 UTC m=+1.3
  ScaleUp:     Backoff (ready=1 registered=1)
               LastTransitionTime: 2026-11-22 09:11:00 +0000 UTC m=+1.3
"""


@each_row("text", [YAML, TEXT], ids=["yaml", "text"])
def test_SHA_9_both_forms_of_the_status_are_read(text: str) -> None:
    found = read_status(text)
    assert found is not None
    assert found.at == parse_time("2026-11-22T09:15:02Z")
    began = parse_time("2026-11-22T08:00:00Z")
    assert found.wide == GroupStatus("NoActivity", began + 3600, "Healthy", began)
    assert found.groups == {
        "web": GroupStatus(
            "InProgress", parse_time("2026-11-22T09:14:00Z"), "Unhealthy", began + 60
        ),
        "job": GroupStatus("Backoff", parse_time("2026-11-22T09:11:00Z"), "Healthy", began + 120),
    }
    assert found.candidates == 2
    assert found.began == began


@each_row(
    "text",
    [
        "",
        "no: status",
        "[" * 5000,
        "a: &a [*a]",
        "- 1",
        "clusterWide",
        "\x00",
        "time: {1: 2}",
        "a: b: c",
    ],
)
def test_text_that_is_no_status_is_not_read(text: str) -> None:
    assert read_status(text) is None


def test_status_with_parts_of_the_wrong_type_is_read_without_them() -> None:
    found = read_status(
        "clusterWide: 5\nnodeGroups: [1, {name: [x]}, {scaleUp: 7}]\ntime: 99999999-99-99"
    )
    assert found is not None
    assert (found.at, found.wide, found.candidates) == (0.0, GroupStatus(), 0)


def test_status_before_the_first_loop_has_a_time_and_no_groups() -> None:
    found = read_status(
        "time: 2026-11-22 09:15:02.1 +0000 UTC\nautoscalerStatus: Initializing\n", uid="7"
    )
    assert found == OtherStatus(parse_time("2026-11-22T09:15:02Z"), uid="7", starting=True)


@each_row("text", [YAML, TEXT], ids=["yaml", "text"])
def test_age_of_the_process_is_unknown_without_the_health_of_the_cluster(text: str) -> None:
    found = read_status(text.replace("08:00:00", "soon"))
    assert found is not None
    assert found.began == 0.0


def test_annotation_is_newer_than_the_text() -> None:
    found = read_status(YAML, "2026-11-22 09:20:00.5 +0000 UTC")
    assert found is not None
    assert not found.is_dead(parse_time("2026-11-22T09:25:00Z"))
    assert found.is_dead(parse_time("2026-11-22T09:25:01Z"))


@each_row(
    ("text", "at"),
    [
        ("2026-11-22 10:15:02.1 +0100 CET m=+0.5", "2026-11-22T09:15:02Z"),
        ("2026-11-22T09:15:02Z", "2026-11-22T09:15:02Z"),
        ("2026-13-41 10:15:02 +0000 UTC", ""),
        ("soon", ""),
    ],
)
def test_times_as_go_prints_them(text: str, at: str) -> None:
    assert go_time(text) == (parse_time(at) if at else 0.0)
