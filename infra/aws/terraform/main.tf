# The keys follow from the contents: CloudFormation updates functions only if the key of their code changes.
locals {
  code_prefix  = "outscaler/${filesha256(var.zip_file)}/"
  template_key = "outscaler/${filesha256(var.template_file)}/template.json"
}

data "aws_s3_bucket" "artifacts" {
  bucket = var.bucket
}

resource "aws_s3_object" "zip" {
  bucket = data.aws_s3_bucket.artifacts.id
  key    = "${local.code_prefix}deployment-${var.architecture}.zip"
  source = var.zip_file

  lifecycle {
    create_before_destroy = true # a stack that rolls back needs the object from before
  }
}

resource "aws_s3_object" "template" {
  bucket       = data.aws_s3_bucket.artifacts.id
  key          = local.template_key
  source       = var.template_file
  content_type = "application/json"

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_cloudformation_stack" "outscaler" {
  name         = var.name
  template_url = "https://${data.aws_s3_bucket.artifacts.bucket_regional_domain_name}/${aws_s3_object.template.key}"
  capabilities = ["CAPABILITY_IAM"]

  parameters = {
    CodeBucket         = aws_s3_object.zip.bucket
    CodeKey            = aws_s3_object.zip.key
    Architecture       = var.architecture
    Stage              = var.stage
    SecretPrefix       = var.secret_prefix
    SharedSecrets      = join(",", var.shared_secrets)
    AllowedEndpoints   = join(",", var.allowed_endpoints)
    EksClusters        = var.eks_clusters
    SubnetIds          = join(",", var.subnet_ids)
    SecurityGroupIds   = join(",", var.security_group_ids)
    KmsKeyArn          = var.kms_key_arn
    LogRetention       = var.log_retention_days
    AlarmTopicArn      = var.alarm_topic_arn
    AccountConcurrency = var.account_concurrency
    Dashboard          = var.dashboard ? "on" : "off"
    DecisionsDays      = var.decisions_days
    ShareLists         = var.share_lists ? "on" : "off"
    PassConcurrency    = var.pass_concurrency
    HostedPage         = var.hosted_page ? "on" : "off"
    Tracing            = var.tracing ? "on" : "off"
    Reserve            = var.reserve ? "on" : "off"
    AccessLog          = var.access_log ? "on" : "off"
    EventsRate         = var.events_rate
    EventsBurst        = var.events_burst
    UseAlicloud        = contains(var.vendors, "alicloud") ? "on" : "off"
    UseCherryservers   = contains(var.vendors, "cherryservers") ? "on" : "off"
    UseClusterapi      = contains(var.vendors, "clusterapi") ? "on" : "off"
    UseExoscale        = contains(var.vendors, "exoscale") ? "on" : "off"
    UseHuaweicloud     = contains(var.vendors, "huaweicloud") ? "on" : "off"
  }

  lifecycle {
    precondition {
      condition     = (length(var.subnet_ids) == 0) == (length(var.security_group_ids) == 0)
      error_message = "Give subnet_ids and security_group_ids together, or neither."
    }
  }
}
