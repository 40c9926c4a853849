"""Names of OpenTelemetry's GenAI conventions for servers (status: development), and of our own: nowhere else.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ - they change between releases; a change is made here.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
PROVIDER_VLLM = "vllm"
REQUEST_MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
ERROR_TYPE = "error.type"
HTTP_STATUS = "http.response.status_code"

OPERATIONS = {
    "chat": "chat",
    "messages": "chat",
    "responses": "chat",
    "text_completion": "text_completion",
    "embeddings": "embeddings",
}
"""The conventions' words for our operations; others stand as they are."""

OURS = "roadworthy."
SERVICE = "roadworthy-gateway"
