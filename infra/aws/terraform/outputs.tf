output "table_name" {
  description = "OUTSCALER_TABLE for the outscaler command."
  value       = aws_cloudformation_stack.outscaler.outputs["TableName"]
}

output "policy_table_name" {
  description = "OUTSCALER_POLICY_TABLE for the outscaler command."
  value       = aws_cloudformation_stack.outscaler.outputs["PolicyTableName"]
}

output "policy_settings" {
  description = "What policies may name, as JSON, by which the outscaler command judges them."
  value       = aws_cloudformation_stack.outscaler.outputs["PolicySettings"]
}

output "endpoint_url" {
  description = "Where the API is."
  value       = aws_cloudformation_stack.outscaler.outputs["EndpointURL"]
}

output "webhook_url" {
  description = "Where an event exporter posts; put the cluster's name in place of NAME."
  value       = aws_cloudformation_stack.outscaler.outputs["WebhookURL"]
}

output "reader_key_id" {
  description = "The API key of readers, where the template was packaged for a stage with API keys; else null."
  value       = lookup(aws_cloudformation_stack.outscaler.outputs, "ReaderKeyId", null)
}
