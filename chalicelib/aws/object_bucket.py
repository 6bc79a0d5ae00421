"""Objects in an S3 bucket: recorded decisions, and the lists of clusters.
Functions use one short attempt.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from chalicelib.aws import session
from chalicelib.model.errors import BadInput, OutscalerError

_MOST_PAGES = 1000  # of a thousand objects each
_ADDRESS = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[\w./-]{0,200}))?\Z"
)
_ABSENT = frozenset({"NoSuchKey", "404"})


class BucketFailure(OutscalerError):
    """S3 did not do what it was asked."""


class ObjectMissing(BucketFailure):
    """There is no object of this name."""


class ObjectBucket:
    """bucket, prefix: where the objects are; the prefix is empty or ends with a
    slash. client: instead of one that is made with the first call. seconds: for one
    answer. attempts: of one call."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        client: Any = None,
        *,
        seconds: float = 5.0,
        attempts: int = 1,
    ) -> None:
        self._bucket, self._prefix, self._client = bucket, prefix, client
        self._seconds, self._attempts = seconds, attempts

    def put(self, path: str, data: bytes) -> None:
        """Store an object, encrypted as the bucket does by default. Raises BucketFailure."""
        self._call(
            "put_object",
            Key=f"{self._prefix}{path}",
            Body=data,
            ContentType="application/octet-stream",
        )

    def get(self, path: str, largest: int) -> bytes:
        """Return an object. largest: bytes. Raises ObjectMissing, BucketFailure."""
        answer = self._call("get_object", Key=f"{self._prefix}{path}")
        try:
            data: bytes = answer["Body"].read(largest + 1)
        except Exception as error:  # a connection that ends early has an error of urllib3
            raise BucketFailure(f"{path}: {type(error).__name__}") from error
        if len(data) > largest:
            raise BucketFailure(f"{path} has more than {largest} bytes")
        return data

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths below a prefix in order, at most a million. Raises BucketFailure."""
        more: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            page = self._call("list_objects_v2", Prefix=f"{self._prefix}{prefix}", **more)
            for entry in page.get("Contents", ()):
                yield str(entry["Key"]).removeprefix(self._prefix)
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _call(self, method: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client = self._client or session.client(
                "s3",
                connect_timeout=min(2.0, self._seconds),
                read_timeout=self._seconds,
                retries={"mode": "standard", "total_max_attempts": self._attempts},
            )
            return getattr(self._client, method)(Bucket=self._bucket, **arguments)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "ClientError")
            kind = ObjectMissing if code in _ABSENT else BucketFailure
            raise kind(f"s3://{self._bucket}: {code}") from error
        except BotoCoreError as error:
            raise BucketFailure(f"s3://{self._bucket}: {type(error).__name__}") from error


def bucket_of(place: str) -> tuple[str, str] | None:
    """Return the bucket and the prefix of `s3://BUCKET/PREFIX`; None for the path of a
    folder. Raises BadInput."""
    if not place.startswith("s3:"):
        return None
    address = _ADDRESS.match(place)
    if address is None:
        raise BadInput(
            place, "is not the address of a bucket", "write s3://BUCKET, or s3://BUCKET/PREFIX"
        )
    prefix = (address["prefix"] or "").strip("/")
    return address["bucket"], f"{prefix}/" if prefix else ""
