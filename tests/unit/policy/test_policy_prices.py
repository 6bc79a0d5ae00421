"""Price-based expanders and providers with prices: requirements of a document, and warnings."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.policy.load import load
from chalicelib.policy.providers import PROVIDERS, without_prices
from tests.unit.policy.policy_documents import HEAD

CHERRY = (
    "    cherryservers: {credentialsSecret: a/b, cloudConfigSecret: c/d, clusterName: a, nodes: "
    "['0:1:p']}\n"
)
EXOSCALE = "    exoscale: {credentialsSecret: a/b, zone: ch-gva-2}\n"
ALICLOUD = (
    "    alicloud: {credentialsSecret: a/b, region: cn-hangzhou, nodes: "
    "['0:1:asg-bp18p2yfxow2dloq0001']}\n"
)


def document(*providers: str, more: str = "") -> str:
    return (
        f"{HEAD}spec:\n  mode: active\n  kubernetes: {{eksCluster: a}}\n  providers:\n"
        f"{''.join(providers)}"
        f"  options: {{expander: [price, least-waste]}}\n{more}"
    )


def test_policy_price_expander_accepts_a_provider_with_prices() -> None:
    policy, warnings = load(document(CHERRY), place="p.yaml")
    assert policy.options.expander == ("price", "least-waste")
    assert warnings == ()


def test_policy_groups_without_a_future_price_are_reported_early() -> None:
    _, warnings = load(document(EXOSCALE, CHERRY), place="p.yaml")
    assert [text for text in warnings if "no price" in text] == [
        (
            "p.yaml:10: spec.options.expander: the groups of exoscale have no price and are not "
            "chosen by price; "
            "add spec.prices for them"
        )
    ]
    assert (
        load(
            document(EXOSCALE, CHERRY, more="  prices: {cpu: 0.03, memory: 0.004}\n"),
            place="p.yaml",
        )[1]
        == ()
    )


def test_policy_price_expander_without_any_prices_is_refused() -> None:
    with pytest.raises(BadInput, match="price cannot work without prices; add spec"):
        load(document(EXOSCALE), place="p.yaml")


def test_policy_provider_that_is_not_asked_for_prices_has_none() -> None:
    asked, not_asked = ALICLOUD, ALICLOUD.replace("region:", "readPrices: false, region:")
    assert load(document(asked), place="p.yaml")[0].options.expander == ("price", "least-waste")
    with pytest.raises(BadInput, match="price cannot work without prices"):
        load(document(not_asked), place="p.yaml")


def test_policy_providers_without_prices_are_reported() -> None:
    stating = {name for name, settings in PROVIDERS.items() if settings.states_prices}
    assert stating == {"alicloud", "cherryservers", "huaweicloud"}
    assert without_prices({}) is None
    assert without_prices({"exoscale": {}, "wibble": {}}) is None
    assert without_prices({"exoscale": {}, "cherryservers": {}, "wibble": {}}) == (
        "exoscale",
        "wibble",
    )
    assert without_prices({"cherryservers": {}, "alicloud": {"readPrices": "false"}}) == (
        "alicloud",
    )
    assert without_prices({"cherryservers": {}, "huaweicloud": {}}) == ()
