"""AWS's list prices for the ledger of costs, in US dollars: region us-east-1, without free tiers and discounts."""

from __future__ import annotations

import msgspec

AS_OF = "November 2026"


class Prices(msgspec.Struct, frozen=True):
    """second_x86, second_arm: of a gigabyte of a function. call: of a function. read, write: a request unit of DynamoDB
    on demand. queue: an SQS request. secret, secret_read: a secret and month, and a call. decrypt: a KMS request, one
    per parameter that is read. series: a custom metric and month. ingest, keep: a gigabyte of logs, and of logs and
    month. egress: a gigabyte that leaves a cloud, which the cluster's cloud charges."""

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
    ingest: float = 0.50
    keep: float = 0.03
    egress: float = 0.09


LIST = Prices()
