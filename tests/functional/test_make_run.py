"""Runs `make run` in its own process to the end.

In the story the act function is killed five times between the provider's call and the record, and
nothing is bought twice. The cluster uses five clouds: one has no stock, one has no quota, one
delivers a server that never joins, and one scales up by rules, two of which are true at once while
the preferred flavour is sold out. At the end, a dear node is replaced by a cheaper one, and another
one is drained into room that exists; a spot node is taken back, a sick and an old node are
replaced; last, groups are opened that nobody has made by hand, and deleted again. The run checks
this itself and reports it in its exit code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.demo.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.demo.__main__", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3_600,
        check=False,
    )


def test_make_run_completes_its_story(tmp_path: Path) -> None:
    place = tmp_path / "local"
    done = _run("--place", str(place))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-6000:]
    reported = done.stdout
    for words in (
        "scheduler refuses",
        "webhook:",
        "plan: grow burst-g7 from 0 to 2",
        "OperationDenied.NoStock",
        "plan: grow burst-c7 from 0 to 2",
        "Quota exceeded",
        "plan: grow render-metal from 0 to 2",
        "will never join the cluster",
        "plan: render-metal: no longer ask for 1 instance",
        "Cherry Servers terminates",
        "kubectl apply: HorizontalNodeAutoscaler kube-system/night, cron rule at ",
        "adds 1 node, of night-m7",
        "another rule acts on the pool in this pass (kube-system/night/cronrule)",
        "The flavor is sold out",
        "1 node did not come: asks night-c7 for it",
        "rule busy: pods ask for 90.6 % of the cpu of 2 nodes of day, more than 60 %: adds 2 nodes",
        "Cluster API creates",
        "nothing is bought again",
        "unneeded for:",
        "cooldown:",
        "tainted and cordoned",
        "evicted",
        "outscaler cost: 2.50 EUR per hour for 10 machines",
        "by 1 of lean; saves 0.60 EUR an hour",
        "into room that exists; saves 0.20 EUR an hour",
        "plan: grow lean from 0 to 1 to replace a node",
        "outscaler cost: 1.70 EUR per hour for 9 machines",
        "saved per hour now 0.80 (by removal 0.20, by replacement 0.60)",
        "not consolidated: no cheaper place for its pods",
        "Alibaba Cloud announces that it takes the node of stream-spot back in 300 s",
        "(its vendor takes it back at ",
        "the pods of the spot node run elsewhere, ",
        "It is sick: KernelDeadlock=True has not lasted for long enough",
        "plan: grow search from 3 to 4 to replace a sick node",
        "(it is sick): drain 4 pods, then delete it",
        "and waits: maintenance windows forbid removals now (night, until ",
        "plan: grow lean from 1 to 2 to replace an old node",
        "(it is old): drain 3 pods, then delete it",
        "plan: grow studio standard.large from 0 to 2",
        "Exoscale was asked for a Nodepool of one machine: studio standard.large",
        "Exoscale has none for studio memory.extra-large: No capacity is left",
        "plan: grow studio standard.huge from 0 to 1",
        "of cellar cloud_vps_4: k8s-osc-",
        "you outscaler pools prune shop: studio memory.extra-large, studio standard.huge",
        "plan: delete the empty group studio standard.large",
        "Everything happened as it should.",
    ):
        assert words in reported, words
    assert reported.count("was killed after its call to the provider") == 5
    assert " NO " not in reported
    assert "Traceback" not in reported
    assert [path.name for path in place.iterdir()] == ["run.log"], "nothing else is left behind"
    lines = (place / "run.log").read_text("utf-8").splitlines()
    assert all(json.loads(line) for line in lines), "the functions' log is JSON lines"


def test_invalid_make_run_argument_is_one_line_with_exit_code_2() -> None:
    done = _run("--speed", "0")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "arguments", [("--speed", "0"), ("--speed", "fast"), ("--kill-act", "9"), ("--nonsense",)]
)
def test_invalid_make_run_argument_ends_with_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
