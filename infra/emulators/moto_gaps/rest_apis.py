"""API Gateway as Chalice and SAM use it: REST APIs from Swagger 2.0, and stages
that keep their settings.

moto reads only OpenAPI 3, requires a description, creates every API as an EDGE one, and recreates a
stage with each deployment, which loses its throttle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.apigateway.models import APIGatewayBackend, RestAPI
from moto.apigateway.responses import APIGatewayResponse

from infra.emulators.moto_gaps.stacks import replace

_ENDPOINT = "endpointConfigurationTypes"


def readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the document for moto. A Swagger 2.0 document differs from OpenAPI 3 only in
    parts that moto ignores."""
    made = {key: value for key, value in document.items() if key != "swagger"}
    if "swagger" in document:
        made["openapi"] = "3.0.1"
    return made | {"info": {"description": "", **document.get("info", {})}}


def install() -> None:
    _import_swagger()
    _keep_stage_settings()


def _import_swagger() -> None:
    put, imported = APIGatewayBackend.put_rest_api, APIGatewayBackend.import_rest_api
    create = APIGatewayResponse.create_rest_api

    def put_rest_api(
        self: Any, function_id: str, api_doc: Any, *arguments: Any, **named: Any
    ) -> Any:
        return put(self, function_id, readable(api_doc), *arguments, **named)

    def import_rest_api(self: Any, api_doc: Any, *arguments: Any, **named: Any) -> Any:
        api = imported(self, readable(api_doc), *arguments, **named)
        api.binaryMediaTypes = list(api_doc.get("x-amazon-apigateway-binary-media-types", ()))
        return api

    def create_rest_api(self: Any) -> Any:
        before = set(self.backend.apis)
        made = create(self)
        kinds = self.querystring.get(_ENDPOINT)
        for new in self.backend.apis.keys() - before if kinds else ():
            self.backend.apis[new].endpoint_configuration = {"types": list(kinds)}
        return made

    replace(APIGatewayBackend, put_rest_api=put_rest_api, import_rest_api=import_rest_api)
    replace(APIGatewayResponse, create_rest_api=create_rest_api)


def _keep_stage_settings() -> None:
    create = RestAPI.create_deployment

    def create_deployment(self: Any, name: str, *arguments: Any, **named: Any) -> Any:
        before = self.stages.get(name)
        made = create(self, name, *arguments, **named)
        if before is not None:
            before.deployment_id = made.id
            self.stages[name] = before
        return made

    replace(RestAPI, create_deployment=create_deployment)
