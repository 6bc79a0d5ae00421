variable "name" {
  description = "Name of the CloudFormation stack."
  type        = string
  default     = "outscaler"
}

variable "bucket" {
  description = "An S3 bucket in the region of the stack, for the zip and the template."
  type        = string
}

variable "zip_file" {
  description = "The functions' zip, built for the processor of architecture."
  type        = string
}

variable "template_file" {
  description = "The published template: what python -m infra.aws.publish wrote."
  type        = string
}

variable "architecture" {
  description = "Processor of the functions: arm64 or x86_64."
  type        = string
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "The architecture is arm64 or x86_64."
  }
}

variable "stage" {
  description = "Tells deployments of one account apart, and is part of the default of secret_prefix."
  type        = string
  default     = "dev"
}

variable "secret_prefix" {
  description = "What the names of all secrets begin with; empty for outscaler/STAGE/."
  type        = string
  default     = ""
}

variable "shared_secrets" {
  description = "Full names of secrets that every cluster may use."
  type        = list(string)
  default     = []
}

variable "allowed_endpoints" {
  description = "Hosts (host or host:port) that policies may name besides the vendors' own."
  type        = list(string)
  default     = []
}

variable "eks_clusters" {
  description = "Names of the EKS clusters that the functions may look up, * as a wildcard."
  type        = string
  default     = "*"
}

variable "vendors" {
  description = "Providers whose operations are carried out."
  type        = set(string)
  default     = ["alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud"]

  validation {
    condition = alltrue([
      for vendor in var.vendors :
      contains(["alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud"], vendor)
    ])
    error_message = "The vendors are alicloud, cherryservers, clusterapi, exoscale and huaweicloud."
  }
}

variable "subnet_ids" {
  description = "Private subnets for the functions; empty for no VPC."
  type        = list(string)
  default     = []
}

variable "security_group_ids" {
  description = "Security groups of the functions; needed with subnet_ids."
  type        = list(string)
  default     = []
}

variable "kms_key_arn" {
  description = "Key for tables, queues, logs and variables; empty for keys of AWS."
  type        = string
  default     = ""
}

variable "log_retention_days" {
  description = "Days that logs are kept, one of the numbers that CloudWatch Logs knows."
  type        = number
  default     = 30
}

variable "alarm_topic_arn" {
  description = "SNS topic that alarms are sent to; empty for no alarms."
  type        = string
  default     = ""
}

variable "account_concurrency" {
  description = "Concurrent executions that Lambda's quota gives the account in this region; an alarm compares with it."
  type        = number
  default     = 1000
}

variable "decisions_days" {
  description = "Days that decisions of clusters with recordDecisions are kept in a bucket; 0 for no bucket."
  type        = number
  default     = 0
}

variable "share_lists" {
  description = "Whether processes share the lists of clusters through a bucket, so that more passes read changes only."
  type        = bool
  default     = false
}

variable "pass_concurrency" {
  description = "Passes at the same time; raise it where passes begin late."
  type        = number
  default     = 20
}

variable "dashboard" {
  description = "Whether there is a CloudWatch dashboard."
  type        = bool
  default     = false
}

variable "hosted_page" {
  description = "Whether the API serves the status page to browsers with a session."
  type        = bool
  default     = false
}

variable "tracing" {
  description = "Whether the functions are traced by X-Ray."
  type        = bool
  default     = false
}

variable "reserve" {
  description = "Whether concurrent executions are reserved for the functions."
  type        = bool
  default     = false
}

variable "access_log" {
  description = "Whether API Gateway logs each request; the account needs a CloudWatch role for API Gateway."
  type        = bool
  default     = true
}

variable "events_rate" {
  description = "Requests per second that POST /clusters/{name}/events takes."
  type        = number
  default     = 50
}

variable "events_burst" {
  description = "Requests at once that POST /clusters/{name}/events takes."
  type        = number
  default     = 100
}
