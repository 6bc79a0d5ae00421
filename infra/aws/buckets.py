"""The buckets of recorded decisions and of shared lists, stated once for both kinds of deployment.
They exist only on request.

A bucket outlives the stack, because a bucket with objects cannot be deleted; its
objects expire by themselves.
"""

from __future__ import annotations

from typing import Any

from infra.aws.resources import Resources

Json = dict[str, Any]

BUCKET, LISTS_BUCKET = "DecisionsBucket", "ListsBucket"
"""The logical ids."""
LISTS_DAYS = 1
"""Days until lists expire; functions use none that are older than ten minutes."""


def bucket_resources(
    bucket: str, days: Any, name: Any = None, encryption: Json | None = None
) -> Resources:
    """Return a bucket and its policy. bucket: its logical id. days: until an object expires, a
    number or a reference. name: None lets CloudFormation generate one. encryption: a rule other
    than that of keys of S3."""
    arn = {"Fn::GetAtt": [bucket, "Arn"]}
    own: Json = {"BucketName": name} if name is not None else {}
    return {
        bucket: {
            "Type": "AWS::S3::Bucket",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                **own,
                "BucketEncryption": {
                    "ServerSideEncryptionConfiguration": [encryption or by_default("AES256")],
                },
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
                "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
                "LifecycleConfiguration": {
                    "Rules": [{"Id": "expire", "Status": "Enabled", "ExpirationInDays": days}],
                },
            },
        },
        f"{bucket}Policy": {
            "Type": "AWS::S3::BucketPolicy",
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                "Bucket": {"Ref": bucket},
                "PolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Sid": "OnlyTls",
                            "Effect": "Deny",
                            "Principal": "*",
                            "Action": "s3:*",
                            "Resource": [arn, {"Fn::Join": ["", [arn, "/*"]]}],
                            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                        }
                    ],
                },
            },
        },
    }


def by_default(algorithm: str, key: Any = None) -> Json:
    """Return a rule of encryption: AES256, or aws:kms with a key."""
    with_key = {"KMSMasterKeyID": key} if key is not None else {}
    rule: Json = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": algorithm, **with_key}}
    return rule | ({"BucketKeyEnabled": True} if with_key else {})
