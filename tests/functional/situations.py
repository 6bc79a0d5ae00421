"""Ten clusters with trouble in them, on the local emulation, and what each surface says of them.

    python -m tests.functional.situations                     the answers, one after another
    python -m tests.functional.situations burst paused        of these only
    python -m tests.functional.situations --pictures FOLDER   and pictures of the page, at 1,440
                                                              and 390 pixels, by Chromium

A situation is a world on virtual time whose functions have run. The page, the commands and the
notifications read its tables, as they read those of a deployment.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from chalicelib.cli.main import main as outscaler
from chalicelib.model.pause import Pause
from chalicelib.model.policy_permissions import Deployment
from chalicelib.page.render import Links
from chalicelib.page.routes import PageRequest, respond
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.cloud_account import permitted
from infra.emulators.controllers import objects
from infra.emulators.kube.faults import KubeFault
from infra.emulators.local_world import LocalWorld
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.virtual_sqs import lost
from infra.tools.screenshots import ARGUMENTS, chromium, served
from tests.scenario.policies import document, refusal

CLUSTER = "shop"
TOPIC = "arn:aws:sns:eu-central-2:123456789012:outscaler-events"
MINUTE = 60.0
_TAGS = "k8s.io/cluster-autoscaler/node-template/label/"
_QUICK_REMOVALS = {"scaleDownUnneededTime": "2m", "scaleDownDelayAfterAdd": "1m"}
_MARKUP = re.compile(r"<(style|script|svg|title)\b.*?</\1>|<[^>]+>", re.DOTALL)
_BLOCK = re.compile(
    r"</?(p|div|li|tr|h[1-6]|section|dl|dt|dd|table|summary|header|main|nav)\b[^>]*>"
)


class Situation:
    """One world and its trouble. account: of Alibaba Cloud, beside Cluster API."""

    def __init__(self) -> None:
        self.account = AlicloudAccount()
        self.world = LocalWorld(quick=True, name=CLUSTER, clouds=(self.account,))

    def apply(self, **spec: Any) -> None:
        """Apply a policy with notifications; see tests/scenario/policies.py."""
        self.world.apply_policy(document(CLUSTER, notifications={"topic": TOPIC}, **spec))

    @property
    def deployment(self) -> Deployment:
        """What policies may name here: the emulated vendor's address and secret, too."""
        return permitted((self.account,))

    def minutes(self, count: int) -> None:
        self.world.step(count * MINUTE)

    @property
    def notices(self) -> list[Any]:
        """The events that the topic has received, oldest first."""
        return [json.loads(text) for _, text in self.world.published]

    # -- answers

    def command(self, *words: str, columns: int = 120) -> tuple[int, str]:
        """Return the exit code and the text of a command: what it prints, then its notes."""
        out, err = io.StringIO(), io.StringIO()
        store = self.world.store
        with (
            mock.patch("chalicelib.store.Store", return_value=store),
            mock.patch("time.time", self.world.clock),
            mock.patch.dict(os.environ, {"OUTSCALER_TABLE": "emulated", "COLUMNS": str(columns)}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = outscaler(words)
        return code, out.getvalue() + err.getvalue()

    def page(self, path: str = f"/clusters/{CLUSTER}") -> list[str]:
        """Return the lines of a page as a reader sees them, without markup."""
        request, now = PageRequest(path, {}), self.world.clock()
        answer = respond(self.world.store, request, now, Links(), self.deployment)
        text = _MARKUP.sub(" ", _BLOCK.sub("\n", answer.body.decode()))
        lines = (" ".join(html.unescape(line).split()) for line in text.splitlines())
        return [line for line in lines if line]


def maximum(here: Situation) -> None:
    """14 groups; pods that only the seventh takes, which is at its maximum."""
    groups = [
        objects.machine_deployment(f"pool-{number:02}", 1, 0, 9, labels={"pool": f"{number:02}"})
        for number in range(14)
        if number != 7
    ]
    full = objects.machine_deployment("pool-07", 2, 0, 2, labels={"pool": "07"})
    here.apply(options={"scaleDownEnabled": False})
    here.world.seed(*groups, full)
    here.minutes(3)
    here.world.seed(objects.deployment("web", replicas=20, cpu="1", nodeSelector={"pool": "07"}))
    here.minutes(4)


def sold_out(here: Situation) -> None:
    """The only group that the pods fit has no machines at its vendor."""
    group = here.account.cloud.add_group("burst", most=5, machine_tags={f"{_TAGS}tier": "burst"})
    here.account.cloud.sell_out()
    here.apply(
        providers={"clusterapi": {}, "alicloud": here.account.settings()},
        nodeGroups=[{"provider": "alicloud", "id": group.id, "min": 0, "max": 5}],
    )
    here.world.seed(objects.machine_deployment("workers", 1, 1, 5))
    here.minutes(3)
    here.world.seed(
        objects.deployment("reports", replicas=3, cpu="2", nodeSelector={"tier": "burst"})
    )
    here.minutes(8)


def webhook_refuses(here: Situation) -> None:
    """An admission webhook of the cluster refuses every eviction."""
    _half_empty(here)
    message = 'admission webhook "guard.example.org" denied the request: not in business hours'

    refused = KubeFault(**refusal(403, message))

    def refuse(method: str, target: str) -> KubeFault | None:
        return refused if target.partition("?")[0].endswith("/eviction") else None

    here.world.line.ask = refuse
    here.minutes(12)


def budget_never_allows(here: Situation) -> None:
    """A PodDisruptionBudget allows no disruption, whatever happens."""
    _half_empty(here, objects.pdb("web", max_unavailable=0))
    here.minutes(12)


def vendor_down(here: Situation) -> None:
    """The vendor's API answers every call with an internal error."""
    _beside_a_vendor(here, VendorFault.SERVER_ERROR)


def credentials_expired(here: Situation) -> None:
    """The vendor no longer accepts the key."""
    _beside_a_vendor(here, VendorFault.UNAUTHORIZED)


def never_started(here: Situation) -> None:
    """A policy was applied 34 minutes ago, and no pass has begun."""
    here.world.queues.tamper = lost
    here.apply()
    here.world.seed(objects.machine_deployment("workers", 2, 1, 5))
    here.minutes(34)


def paused(here: Situation) -> None:
    """Somebody has paused the cluster, and pods wait."""
    here.apply()
    here.world.seed(objects.machine_deployment("workers", 1, 1, 5))
    here.minutes(3)
    pause = Pause(
        here.world.clock() + 2 * 3600.0, here.world.clock(), reason="network upgrade", by="ops"
    )
    here.world.store.pauses.change(CLUSTER, lambda _: (pause,))
    here.world.seed(objects.deployment("web", replicas=12, cpu="1"))
    here.minutes(4)


def burst(here: Situation) -> None:
    """60 pods arrive at once; their nodes have been bought and are not ready yet."""
    here.apply()
    here.world.seed(objects.machine_deployment("workers", 2, 1, 40))
    here.minutes(3)
    here.world.seed(objects.deployment("crawl", replicas=60, cpu="1"))
    here.minutes(1)


def spot_wave(here: Situation) -> None:
    """The vendor announces that it takes four spot nodes back."""
    cloud = here.account.cloud
    spot = cloud.add_group(
        "spot", size=4, most=6, spot="SpotAsPriceGo", machine_tags={f"{_TAGS}market": "spot"}
    )
    here.apply(
        providers={"clusterapi": {}, "alicloud": here.account.settings()},
        nodeGroups=[{"provider": "alicloud", "id": spot.id, "min": 0, "max": 6}],
        spot={"interruptions": "act"},
    )
    here.world.seed(
        objects.machine_deployment("workers", 1, 1, 6),
        objects.deployment("web", replicas=8, cpu="1"),
    )
    here.minutes(4)
    for machine in cloud.machines():
        cloud.interrupt(machine.id)
    here.minutes(2)


def _half_empty(here: Situation, *more: Any) -> None:
    here.apply(options=_QUICK_REMOVALS)
    here.world.seed(objects.machine_deployment("workers", 3, 1, 5), *more)
    here.world.seed(objects.deployment("web", replicas=9, cpu="1"))
    here.minutes(3)
    deployment = here.world.kube.get("deployments", "web", "default", "apps")
    assert deployment is not None
    fewer = {**deployment["spec"], "replicas": 3}
    here.world.kube.update("deployments", {**deployment, "spec": fewer}, "apps")


def _beside_a_vendor(here: Situation, fault: VendorFault) -> None:
    group = here.account.cloud.add_group("burst", most=5, machine_tags={f"{_TAGS}tier": "burst"})
    here.apply(
        providers={"clusterapi": {}, "alicloud": here.account.settings()},
        nodeGroups=[{"provider": "alicloud", "id": group.id, "min": 0, "max": 5}],
    )
    here.world.seed(objects.machine_deployment("workers", 1, 1, 5))
    here.minutes(3)
    here.account.server.faults.next(fault, times=-1)
    here.world.seed(
        objects.deployment("reports", replicas=3, cpu="2", nodeSelector={"tier": "burst"})
    )
    here.minutes(8)


SITUATIONS: Mapping[str, Callable[[Situation], None]] = {
    "maximum": maximum,
    "sold-out": sold_out,
    "webhook": webhook_refuses,
    "budget": budget_never_allows,
    "vendor-down": vendor_down,
    "credentials": credentials_expired,
    "never-started": never_started,
    "paused": paused,
    "burst": burst,
    "spot-wave": spot_wave,
}


@contextlib.contextmanager
def played(name: str) -> Iterator[Situation]:
    """A situation with its trouble, by its name."""
    here = Situation()
    logging.disable(logging.CRITICAL)
    try:
        with here.world:
            SITUATIONS[name](here)
            yield here
    finally:
        logging.disable(logging.NOTSET)


def main(arguments: list[str] | None = None) -> int:
    """Print what the surfaces say; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.situations")
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(SITUATIONS))
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    given = parser.parse_args(arguments)
    for name in given.names:
        with played(name) as here:
            print(f"\n{'=' * 100}\n{name}: {SITUATIONS[name].__doc__}")
            for words in (
                ("get",),
                ("get", "groups", CLUSTER),
                ("get", "pods", CLUSTER),
                ("get", "nodes", CLUSTER),
                ("history", CLUSTER, "--limit", "6"),
            ):
                print(f"\n$ outscaler {' '.join(words)}\n{here.command(*words)[1]}")
            print("\n-- page\n" + "\n".join(here.page()[:40]))
            print("\n-- notifications")
            for event in here.notices:
                print(event["type"], event["state"], event["data"])
            if given.pictures is not None:
                _picture(here, name, given.pictures)
    return 0


def _picture(here: Situation, name: str, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    pages = served(here.world.store, here.world.clock, here.deployment)
    with pages as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        for width in (1440, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(f"{address}/clusters/{CLUSTER}")
            page.screenshot(path=folder / f"{name}-{width}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
