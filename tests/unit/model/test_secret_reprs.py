"""No object that contains a credential shows it: a repr ends up in logs, in
tracebacks and in test output.
"""

from __future__ import annotations

import msgspec

from chalicelib.cluster import transport
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.model.secret import Secret
from chalicelib.net.http_exchange import Reply, Request
from chalicelib.providers.alicloud import credentials as alicloud
from chalicelib.providers.alicloud.credentials import Granted, StsAnswer
from chalicelib.providers.cherryservers.decoding import CreateServer
from chalicelib.providers.cherryservers.tokens import Token
from chalicelib.providers.exoscale import credentials as exoscale
from chalicelib.providers.huaweicloud import credentials as huaweicloud
from chalicelib.providers.kit import http
from tests.cases import each_row

HIDDEN = "hidden-word"
HEADERS = {"Authorization": f"Bearer {HIDDEN}"}
URL = f"https://user:{HIDDEN}@api.example.com/x?Signature={HIDDEN}"
BODY = HIDDEN.encode()
KEPT = Secret(HIDDEN)

HOLDERS = [
    KubeCredential(
        "https://c.test", token=KEPT, key=KEPT, proxy=Secret(f"http://me:{HIDDEN}@p.test")
    ),
    transport.KubeRequest(
        "POST", "/api/v1/namespaces/kube-system/secrets", {}, BODY, "application/json", (1.0, 1.0)
    ),
    Request("GET", URL, HEADERS, {"Signature": HIDDEN}, BODY),
    Reply(200, {"set-cookie": HIDDEN}, BODY),
    http.VendorRequest("GET", URL, HEADERS, {"Signature": HIDDEN}, BODY),
    http.VendorResponse("GET api.example.com/x", 200, {"set-cookie": HIDDEN}, BODY),
    Granted(HIDDEN, HIDDEN, HIDDEN),
    StsAnswer(Granted(HIDDEN, HIDDEN, HIDDEN)),
    CreateServer(1, "plan", "host", "image", "region", user_data=HIDDEN),
    Token("abcdef", KEPT),
    alicloud.AlicloudCredential(KEPT, KEPT, KEPT),
    exoscale.ExoscaleCredential(KEPT, KEPT),
    huaweicloud.CceCredential(KEPT, KEPT, KEPT),
]


@each_row(
    "holder", HOLDERS, ids=lambda holder: f"{type(holder).__module__}.{type(holder).__name__}"
)
def test_repr_of_a_credential_holder_hides_the_credential(holder: msgspec.Struct) -> None:
    for shown in (repr(holder), str(holder), f"{holder}", repr([holder]), repr({"a": holder})):
        assert HIDDEN not in shown
