"""`outscaler catalogue`: machine types of Exoscale and Cherry Servers, with prices and stock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.catalogue_files import read_catalogue
from chalicelib.cli.main import main
from chalicelib.model.timestamps import parse_time
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.exoscale.attached_account import KEY, SECRET_NAME, ExoscaleAccount
from infra.emulators.exoscale.server import PRICE_LIST
from infra.emulators.kube.store import ObjectStore
from infra.emulators.vendor_common.http_messages import scripted
from tests.scenario.policies import document

Said = pytest.CaptureFixture[str]


class VendorFiles:
    """An account of each vendor, and the files of a policy with both."""

    def __init__(self, folder: Path) -> None:
        self.exoscale, self.cherry = ExoscaleAccount(), CherryAccount()
        self._policy, self._folder = folder / "policy.yaml", folder
        store = ObjectStore(time.time)
        self.secrets: dict[str, str] = {}
        for account in (self.exoscale, self.cherry):
            account.attach(time.time, store)
            account.start()
            self.secrets |= account.secrets()

    def run(self, *words: str, **prices: object) -> int:
        """Run the command on the policy of both vendors."""
        providers = {
            "exoscale": self.exoscale.settings(),
            "cherryservers": self.cherry.settings() | {"nodes": "0:3:pool1"},
        }
        more: dict[str, Any] = {"prices": prices} if prices else {}
        self._policy.write_text(document(providers=providers, **more), "utf-8")
        options = ["--policy", str(self._policy)]
        for number, (name, text) in enumerate(sorted(self.secrets.items())):
            file = self._folder / f"secret-{number}"
            file.write_text(text, "utf-8")
            options += ["--secret", f"{name}={file}"]
        return main(["catalogue", *words, *options])

    def stop(self) -> None:
        """Stop both accounts."""
        self.exoscale.stop()
        self.cherry.stop()


@pytest.fixture
def vendors(tmp_path: Path) -> Iterator[VendorFiles]:
    files = VendorFiles(tmp_path)
    yield files
    files.stop()


def types(said: str) -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads(said)["types"]
    by_name = {(row["name"], row["zone"]): row for row in rows}
    assert len(by_name) == len(rows)
    return by_name


def test_exoscale_types_have_the_prices_of_the_public_list(
    vendors: VendorFiles, capsys: Said
) -> None:
    assert vendors.run("exoscale", "-o", "json") == 0
    said = capsys.readouterr()
    answer, rows = json.loads(said.out), types(said.out)
    assert said.err == ""
    assert (answer["provider"], answer["currency"]) == ("exoscale", "EUR")
    assert answer["diskPrice"] == pytest.approx(0.00014 * 1.04)
    assert rows["standard.medium", "ch-gva-2"] == {
        "name": "standard.medium",
        "family": "standard",
        "zone": "ch-gva-2",
        "cores": 2,
        "memory": 4 * 2**30,
        "gpus": 0,
        "disk": 0,
        "architecture": "",
        "vendorId": "a1000000-0000-4000-8000-000000000002",
        "price": pytest.approx(0.04 * 1.04),
        "spotPrice": None,
        "stock": None,
        "spotStock": None,
    }
    assert rows["memory.extra-large", "ch-gva-2"]["price"] == pytest.approx(0.2 * 1.04)
    assert rows["gpu3.small", "ch-gva-2"]["price"] is None, "the list does not name it"
    assert ("gpua5000.small", "ch-gva-2") not in rows, "the organisation may not use it"
    assert len(rows) == 8


CHF = {"currency": "CHF", "cpu": 0.03, "memory": 0.01}


@pytest.mark.parametrize(
    ("words", "prices", "currency"),
    [
        (("--currency", "CHF"), {}, "CHF"),
        ((), CHF, "CHF"),
        (("--currency", "USD"), CHF, "USD"),
    ],
)
def test_currency_is_that_of_the_command_or_of_the_policy(
    vendors: VendorFiles,
    capsys: Said,
    words: tuple[str, ...],
    prices: dict[str, str],
    currency: str,
) -> None:
    assert vendors.run("exoscale", *words, "-o", "json", **prices) == 0
    assert json.loads(capsys.readouterr().out)["currency"] == currency


def test_unknown_currency_is_refused_with_those_that_there_are(
    vendors: VendorFiles, capsys: Said
) -> None:
    assert vendors.run("exoscale", "--currency", "GBP") == 2
    assert "there is no price list in GBP, but in CHF, EUR, USD" in capsys.readouterr().err
    assert vendors.run("cherryservers", "--currency", "CHF") == 2
    assert "there are no prices in CHF, but in EUR" in capsys.readouterr().err


BROKEN = {
    "no answer": (503, b""),
    "no list": (200, b"[]"),
    "another currency only": (200, b'{"gbp": {"running_medium": "1"}}'),
    "no object of prices": (200, b'{"eur": "free"}'),
    "no JSON": (200, b"<html>"),
}


@pytest.mark.parametrize(("status", "body"), BROKEN.values(), ids=BROKEN)
def test_types_are_listed_without_prices_if_the_price_list_cannot_be_read(
    vendors: VendorFiles, capsys: Said, status: int, body: bytes
) -> None:
    vendors.exoscale.server.reply(PRICE_LIST, *[scripted(status, body)] * 3)
    assert vendors.run("exoscale", "-o", "json") == 0
    said = capsys.readouterr()
    rows = types(said.out)
    assert len(rows) == 8
    assert {row["price"] for row in rows.values()} == {None}
    assert said.err.startswith("note: prices: ")


def test_prices_that_cannot_be_are_left_out(vendors: VendorFiles, capsys: Said) -> None:
    body = {"eur": {"running_medium": "-1", "running_small": "nan", "running_large": "0.2",
                    "running_huge": ["1"], "volume": "1e400"}}  # fmt: skip
    reply = scripted(200, json.dumps(body).encode())
    vendors.exoscale.server.reply(PRICE_LIST, reply)
    assert vendors.run("exoscale", "-o", "json") == 0
    said = capsys.readouterr().out
    priced = {name: row["price"] for (name, _), row in types(said).items() if row["price"]}
    assert priced == {"standard.large": 0.2}
    assert json.loads(said)["diskPrice"] is None


def test_price_list_is_read_without_the_key(vendors: VendorFiles) -> None:
    assert vendors.run("exoscale") == 0
    keys = {call.path: call.key for call in vendors.exoscale.server.log}
    assert (keys.pop(PRICE_LIST), set(keys.values())) == ("", {KEY})


def test_cherry_plans_have_stock_and_spot_prices_by_region(
    vendors: VendorFiles, capsys: Said
) -> None:
    assert vendors.run("cherryservers", "-o", "json") == 0
    rows = types(capsys.readouterr().out)
    plan = rows["e3_1240v3", "eu_nord_1"]
    assert (plan["cores"], plan["memory"]) == (4, 16 * 2**30)
    assert (plan["price"], plan["spotPrice"]) == (0.1016, 0.0812)
    assert plan["stock"] >= 0
    assert rows["2x_gold_6230r", "LT-Siauliai"]["spotPrice"] is None
    assert len({name for name, _ in rows}) > 2


def test_table_shows_sizes_and_prices(vendors: VendorFiles, capsys: Said) -> None:
    assert vendors.run("exoscale", "--currency", "CHF") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Prices in CHF an hour; a GiB of disk 0.00014"
    assert lines[1].split() == ["TYPE", "ZONE", "CORES", "GIB", "GPUS", "PRICE", "SPOT", "STOCK",
                                "SPOT", "STOCK"]  # fmt: skip
    [medium] = [line.split() for line in lines if line.startswith("standard.medium")]
    assert medium == ["standard.medium", "ch-gva-2", "2", "4", "0", "0.04"]


def test_provider_without_settings_is_refused_with_those_that_have(
    vendors: VendorFiles, capsys: Said
) -> None:
    assert vendors.run("huaweicloud") == 2
    said = capsys.readouterr().err
    assert "is not in the policy, which has cherryservers, exoscale" in said


def test_wrong_key_is_an_error_of_one_line(vendors: VendorFiles, capsys: Said) -> None:
    vendors.secrets[SECRET_NAME] = '{"apiKey": "EXOwrong", "apiSecret": "wrong"}'
    assert vendors.run("exoscale") == 2
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert "401" in said.err


def test_saved_catalogue_has_date_provider_and_types_and_nothing_of_the_account(
    vendors: VendorFiles, tmp_path: Path
) -> None:
    file = tmp_path / "catalogue.json"
    assert vendors.run("exoscale", "--save", str(file)) == 0
    saved = json.loads(file.read_text("utf-8"))
    assert (saved["kind"], saved["provider"]) == ("outscaler/catalogue", "exoscale")
    assert saved["currency"] == "EUR"
    assert parse_time(saved["readAt"]) == pytest.approx(time.time(), abs=60)
    assert len(saved["types"]) == 8
    assert {entry["vendorId"] for entry in saved["types"]} == {""}
    assert len(read_catalogue(file).catalogue.entries) == 8


def test_requirements_leave_types_and_say_how_many_fail_at_what(
    vendors: VendorFiles, capsys: Said
) -> None:
    assert vendors.run("exoscale", "--requirements", "cpu: 2..4, families: [standard]") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("exoscale: 8 machine types x zones x markets > ")
    assert "fail at families" in lines[0]
    names = [line.split()[0] for line in lines[4:] if line]
    assert names
    assert all(name.startswith("standard.") for name in names)


BAD_REQUIREMENTS = {
    "cpu: 8..2": "from 8 to 2 is empty",
    "cores: 2": "cores",
    "[standard]": "--requirements",
    "cpu: [": "--requirements",
}


@pytest.mark.parametrize(("text", "words"), BAD_REQUIREMENTS.items(), ids=list(BAD_REQUIREMENTS))
def test_bad_requirements_are_refused_before_anything_is_read(
    vendors: VendorFiles, capsys: Said, text: str, words: str
) -> None:
    assert vendors.run("exoscale", "--requirements", text) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err
    assert vendors.exoscale.server.log == []
