"""`outscaler cost --managed` and `plan --catalogue`: machines of a saved catalogue for the pods
of a saved cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.cli.catalogue_files import write_catalogue
from chalicelib.cli.main import main
from chalicelib.model.catalogue import Catalogue
from tests.functional import saved_cluster
from tests.scenario.policies import document
from tests.unit.plan.managed_offers import entries

Said = pytest.CaptureFixture[str]
POOL = {
    "name": "general",
    "provider": "exoscale",
    "copyFrom": "workers",
    "requirements": {"cpu": "2..16"},
}


class SavedFiles:
    """The folder of a cluster, a policy with a managed pool, and a catalogue."""

    def __init__(self, folder: Path, zone: str = "ch-gva-2", **pool: Any) -> None:
        self.cluster = saved_cluster.shop(folder / "shop")
        self.policy, self.catalogue = folder / "policy.yaml", folder / "catalogue.json"
        settings = {"zone": "ch-gva-2", "credentialsSecret": "outscaler/c/exoscale"}
        text = document(
            providers={"exoscale": settings},
            options={"expander": "least-cost"},
            managedPools=[POOL | pool],
        )
        self.policy.write_text(text, "utf-8")
        types = entries(zone)
        write_catalogue(self.catalogue, "exoscale", Catalogue("EUR", types), time.time())

    @property
    def words(self) -> list[str]:
        """The arguments of both commands."""
        return ["--policy", str(self.policy), "--catalogue", str(self.catalogue)]

    def cost(self, *words: str) -> int:
        """Run cost --managed."""
        return main(["cost", str(self.cluster), "--managed", *words])


@pytest.fixture
def files(tmp_path: Path) -> SavedFiles:
    return SavedFiles(tmp_path)


def test_cost_is_that_of_the_cheapest_mix_beside_a_bound_below_it(
    files: SavedFiles, capsys: Said
) -> None:
    assert files.cost(*files.words, "-o", "json") == 0
    managed = json.loads(capsys.readouterr().out)
    estimate = managed["managed"]
    assert estimate["currency"] == "EUR"
    assert 0 < estimate["lowerBound"] <= estimate["perHour"]
    prices = [machine["perHour"] for machine in estimate["machines"]]
    assert estimate["perHour"] == pytest.approx(sum(prices))
    assert sum(machine["pods"] for machine in estimate["machines"]) == 6
    assert managed["withoutPlace"] == ["other/web-0", "shop/huge"]
    assert managed["now"] == []


def test_cost_says_both_sums_the_machines_and_the_pods_without_a_place(
    files: SavedFiles, capsys: Said
) -> None:
    assert files.cost(*files.words) == 0
    said = capsys.readouterr().out
    assert "no machine has a price now." in said
    assert "With its managed pools alone: 0." in said
    assert "No choice of such machines for these pods is below 0." in said
    assert "ch-gva-2 on-demand" in said
    assert "Pods without a place on such machines" in said


def test_plan_opens_groups_by_a_saved_catalogue(files: SavedFiles, capsys: Said) -> None:
    assert main(["plan", str(files.cluster), *files.words, "-o", "json"]) == 0
    growths = json.loads(capsys.readouterr().out)["scaleUps"]
    (opened,) = [growth for growth in growths if growth.get("opens")]
    assert opened["choice"]["zone"] == "ch-gva-2"
    assert opened["pods"] == ["shop/web-0", "shop/web-1"]


def test_machines_in_other_zones_than_the_policys_are_not_bought(
    tmp_path: Path, capsys: Said
) -> None:
    files = SavedFiles(tmp_path, zone="de-fra-1")
    assert files.cost(*files.words) == 2
    assert "no machine can be bought" in capsys.readouterr().err
    assert main(["plan", str(files.cluster), *files.words, "-o", "json"]) == 0
    growths = json.loads(capsys.readouterr().out)["scaleUps"]
    assert not [growth for growth in growths if growth.get("opens")]


def test_missing_catalogue_is_named_with_the_command_that_writes_it(
    files: SavedFiles, capsys: Said
) -> None:
    assert files.cost("--policy", str(files.policy)) == 2
    said = capsys.readouterr().err
    assert "--catalogue: is missing" in said
    assert "outscaler catalogue exoscale --policy FILE --save catalogue.json" in said


def test_missing_policy_and_stray_arguments_are_refused(files: SavedFiles, capsys: Said) -> None:
    assert files.cost() == 2
    assert "give --policy FILE" in capsys.readouterr().err
    assert main(["cost", str(files.cluster), "--catalogue", str(files.catalogue)]) == 2
    assert "belongs to --managed" in capsys.readouterr().err


def test_policy_without_managed_pools_of_the_catalogues_provider_is_refused(
    files: SavedFiles, capsys: Said
) -> None:
    saved = json.loads(files.catalogue.read_text("utf-8")) | {"provider": "cherryservers"}
    files.catalogue.write_bytes(msgspec.json.encode(saved))
    assert files.cost(*files.words) == 2
    assert "is of cherryservers, and no managed pool of the policy is" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": 1}', "\x00"])
def test_file_that_is_no_catalogue_is_refused_without_a_traceback(
    files: SavedFiles, capsys: Said, text: str
) -> None:
    files.catalogue.write_text(text, "utf-8")
    assert files.cost(*files.words) == 2
    said = capsys.readouterr().err
    assert "is not a saved catalogue" in said
    assert "Traceback" not in said
