"""AWS list prices for the cost page in US dollars: region us-east-1, without free tiers and discounts."""

from __future__ import annotations

import msgspec

AS_OF = "November 2026"


class Prices(msgspec.Struct, frozen=True):
    """Prices in US dollars. second_x86, second_arm: of a gigabyte-second of a function. call: of a function invocation.
    read, write: of a DynamoDB on-demand request unit. queue: of an SQS request. secret, secret_read: of a secret per
    month, and of a call. decrypt: of a KMS request, one per parameter that is read. series: of a custom metric per
    month. alarm: of a metric that an alarm watches, per month. dashboard: per month. ingest, keep: of a gigabyte of
    ingested logs, and of stored logs per month. put, get: of an S3 request. egress: of a gigabyte that leaves a cloud,
    charged by the cluster's cloud."""

    second_x86: float = 0.0000166667
    second_arm: float = 0.0000133334
    call: float = 0.20 / 1e6
    read: float = 0.125 / 1e6
    write: float = 0.625 / 1e6
    queue: float = 0.40 / 1e6
    secret: float = 0.40
    secret_read: float = 0.05 / 10_000
    decrypt: float = 0.03 / 10_000
    series: float = 0.30
    alarm: float = 0.10
    dashboard: float = 3.00
    ingest: float = 0.50
    keep: float = 0.03
    put: float = 0.005 / 1000
    get: float = 0.0004 / 1000
    egress: float = 0.09


LIST = Prices()
