"""What one emulated account offers a world: a table of its own and secrets of its own, of either of two makes.

FullServices    moto, in this process: every request is signed and serialized (aws_in_process.py)
QuickServices   the in-memory table (memory_table.py) and a dict: requests are function calls
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

from botocore.exceptions import ClientError

from chalicelib.model.secret import PARAMETER, parameter_name
from chalicelib.store.table_client import Table
from infra.emulators.aws import LocalAws, drop_table
from infra.emulators.aws_in_process import in_process
from infra.emulators.memory_table import MemoryAccount, MemoryTable


class Services(Protocol):
    """dynamodb, secrets, parameters: clients. table: the world's own. kind: the store's class for it. endpoint: where
    an ordinary client would go, if anywhere."""

    dynamodb: Any
    secrets: Any
    parameters: Any
    table: str
    kind: type[Table]
    endpoint: str | None

    def create(self) -> None:
        """Make the table."""

    def drop(self) -> None:
        """Forget the table."""

    def put_secret(self, name: str, text: str) -> None:
        """A secret that only this world sees."""


class FullServices:
    """aws must be running. Many worlds may share it, so table and secrets have names that nobody else has."""

    kind: type[Table] = Table

    def __init__(self, aws: LocalAws) -> None:
        self._aws, self.table, self.endpoint = aws, f"world-{uuid.uuid4().hex[:12]}", aws.endpoint or None
        self.dynamodb = in_process("dynamodb")
        self.secrets = _Prefixed(in_process("secretsmanager"), self.table)
        self.parameters = _PrefixedParameters(in_process("ssm"), self.table)

    def create(self) -> None:
        """See Services."""
        self._aws.create_table(self.table)

    def drop(self) -> None:
        """See Services. moto copies all tables there are for every transaction, so none is left behind."""
        drop_table(self.dynamodb, self.table)

    def put_secret(self, name: str, text: str) -> None:
        """See Services."""
        kind, path = (PARAMETER, name.removeprefix(PARAMETER)) if name.startswith(PARAMETER) else ("", name)
        self._aws.put_secret(f"{kind}{self.table}/{path}", text)


class _Prefixed:
    """Secrets Manager as one world sees it: names begin with its own."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def get_secret_value(self, SecretId: str) -> Any:  # noqa: N803 - the API's word
        """The secret of that name."""
        return self._client.get_secret_value(SecretId=f"{self._prefix}/{SecretId}")


class _PrefixedParameters:
    """SSM as one world sees it: names begin with its own."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def get_parameter(self, Name: str, WithDecryption: bool) -> Any:  # noqa: N803, FBT001 - the API's words
        """The parameter of that name."""
        return self._client.get_parameter(Name=f"/{self._prefix}{Name}", WithDecryption=WithDecryption)


class QuickServices:
    """Nothing is shared with any other."""

    kind: type[Table] = MemoryTable
    endpoint: str | None = None

    def __init__(self) -> None:
        self.table = "world"
        self.dynamodb, self.secrets = MemoryAccount(), MemorySecrets()
        self.parameters = MemoryParameters()

    def create(self) -> None:
        """See Services."""
        self.dynamodb.create(self.table)

    def drop(self) -> None:
        """See Services."""
        self.dynamodb.drop(self.table)

    def put_secret(self, name: str, text: str) -> None:
        """See Services."""
        if name.startswith(PARAMETER):
            self.parameters.texts[parameter_name(name)] = text
        else:
            self.secrets.texts[name] = text


class MemorySecrets:
    """A client of Secrets Manager. texts: by name. asked: the names that were asked for, oldest first."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.asked: list[str] = []

    def get_secret_value(self, SecretId: str) -> Any:  # noqa: N803 - the API's word
        """As AWS answers; ClientError where there is none."""
        self.asked.append(SecretId)
        if SecretId not in self.texts:
            message = "Secrets Manager can't find the specified secret."
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": message}}, "GetSecretValue")
        return {"Name": SecretId, "SecretString": self.texts[SecretId]}


class MemoryParameters:
    """A client of SSM, all of whose parameters are encrypted. texts: by name. asked: the names that were asked for."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.asked: list[str] = []

    def get_parameter(self, Name: str, WithDecryption: bool) -> Any:  # noqa: N803, FBT001 - the API's words
        """As AWS answers; ClientError where there is none."""
        self.asked.append(Name)
        assert WithDecryption
        if Name not in self.texts:
            raise ClientError({"Error": {"Code": "ParameterNotFound", "Message": ""}}, "GetParameter")
        return {"Parameter": {"Name": Name, "Type": "SecureString", "Value": self.texts[Name]}}
