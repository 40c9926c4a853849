/* What a fake engine says: vLLM's shapes, with stamps that the load generator reads.
 *
 * Every event carries "ll_<asked>_<sent>" (ns of CLOCK_MONOTONIC, 16 hex digits each) as system_fingerprint, a field
 * that OpenAI's shape has and that proxies pass on. */
#include "engine.h"

#include <string.h>

enum { KV_TOKENS = 1 << 18 }; /* of the KV pool: routers size what they remember of prompts by it */

static const char *reason(int status) {
    switch (status) {
        case 200: return "OK";
        case 400: return "Bad Request";
        case 404: return "Not Found";
        case 429: return "Too Many Requests";
        case 500: return "Internal Server Error";
        default: return "Service Unavailable";
    }
}

void say_response(struct bytes *out, int status, const char *kind, const char *body, size_t length) {
    bytes_print(out, "HTTP/1.1 %d %s\r\nserver: uvicorn\r\ncontent-length: %zu\r\ncontent-type: %s\r\n\r\n", status,
                reason(status), length, kind);
    bytes_add(out, body, length);
}

static void say_json(struct bytes *out, int status, struct bytes *body) {
    say_response(out, status, "application/json", bytes_start(body), bytes_length(body));
    bytes_free(body);
}

void say_models(struct bytes *out) {
    struct bytes body = {0};
    bytes_print(&body,
                "{\"object\":\"list\",\"data\":[{\"id\":\"fake-model\",\"object\":\"model\",\"created\":1,"
                "\"owned_by\":\"vllm\",\"root\":\"fake-model\",\"parent\":null,\"max_model_len\":131072}]}");
    say_json(out, 200, &body);
}

void say_metrics(struct bytes *out, const struct port *port) {
    struct bytes body = {0};
    const char *label = "{engine=\"0\",model_name=\"fake-model\"}";
    bytes_print(&body, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running%s %d.0\n", label,
                port->in_flight);
    bytes_print(&body, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting%s 0.0\n", label);
    bytes_print(&body, "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc%s %.4f\n", label,
                port->in_flight > 1000 ? 1.0 : port->in_flight / 1000.0);
    bytes_print(&body, "# TYPE vllm:num_preemptions_total counter\nvllm:num_preemptions_total%s 0.0\n", label);
    bytes_print(&body, "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total%s %ld.0\n", label,
                port->body_bytes / 4);
    bytes_print(&body, "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total%s %ld.0\n", label,
                port->chunks_sent);
    bytes_print(&body, "# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total%s %ld.0\n",
                label, port->body_bytes / 4);
    bytes_print(&body, "# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total%s 0.0\n", label);
    bytes_print(&body,
                "# TYPE vllm:request_success_total counter\n"
                "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"fake-model\"} %ld.0\n",
                port->finished);
    bytes_print(&body,
                "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\","
                "engine=\"0\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\"} 1.0\n",
                KV_TOKENS, KV_TOKENS / 16);
    say_response(out, 200, "text/plain; version=0.0.4; charset=utf-8", bytes_start(&body), bytes_length(&body));
    bytes_free(&body);
}

static void pad(struct bytes *out, size_t length) {
    char *place = bytes_reserve(out, length);
    for (size_t at = 0; at < length; at++) place[at] = "token "[at % 6];
    out->to += length;
}

void say_completion(struct bytes *out, const struct connection *connection) {
    struct bytes body = {0};
    char tail[200];
    size_t tail_length = (size_t)snprintf(
        tail, sizeof tail,
        "\"},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}],"
        "\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":40}}",
        connection->prompt_tokens, connection->prompt_tokens + 40);
    bytes_print(&body,
                "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"fake-model\","
                "\"system_fingerprint\":\"ll_%016llx_%016llx\",\"choices\":[{\"index\":0,\"message\":"
                "{\"role\":\"assistant\",\"content\":\"",
                connection->id, (unsigned long long)connection->asked_ns, (unsigned long long)now_ns());
    size_t used = bytes_length(&body) + tail_length, wanted = (size_t)connection->port->answer_bytes;
    if (wanted > used) pad(&body, wanted - used);
    bytes_add(&body, tail, tail_length);
    say_json(out, 200, &body);
}

void say_error(struct bytes *out, int status) {
    struct bytes body = {0};
    bytes_print(&body, "{\"error\":{\"message\":\"engine text 10.0.0.7\",\"type\":\"%s\",\"param\":null,\"code\":%d}}",
                reason(status), status);
    say_json(out, status, &body);
}

void say_stream_head(struct bytes *out) {
    bytes_print(out,
                "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                "transfer-encoding: chunked\r\n\r\n");
}

void say_chunk(struct bytes *out, const struct connection *connection, uint64_t at_ns) {
    char event[512], tail[256];
    static const char choice[] = "\"},\"logprobs\":null,\"finish_reason\":null}]";
    size_t tail_length =
        connection->usage_each
            ? (size_t)snprintf(tail, sizeof tail,
                               "%s,\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n",
                               choice, connection->prompt_tokens, connection->prompt_tokens + connection->sent + 1,
                               connection->sent + 1)
            : (size_t)snprintf(tail, sizeof tail, "%s}\n\n", choice);
    int used = snprintf(event, sizeof event,
                        "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1,"
                        "\"model\":\"fake-model\",\"system_fingerprint\":\"ll_%016llx_%016llx\",\"choices\":"
                        "[{\"index\":0,\"delta\":{\"content\":\"",
                        connection->id, (unsigned long long)connection->asked_ns, (unsigned long long)at_ns);
    size_t whole = (size_t)used + tail_length, wanted = (size_t)connection->port->chunk_bytes;
    size_t filling = wanted > whole ? wanted - whole : 0;
    bytes_print(out, "%zx\r\n", whole + filling);
    bytes_add(out, event, (size_t)used);
    pad(out, filling);
    bytes_add(out, tail, tail_length);
    bytes_add(out, "\r\n", 2);
}

static void say_framed(struct bytes *out, const char *event) {
    bytes_print(out, "%zx\r\n%s\r\n", strlen(event), event);
}

void say_refused_stream(struct bytes *out) {
    say_stream_head(out);
    say_framed(out,
               "data: {\"error\":{\"message\":\"queue of 10.0.0.7 is full\",\"type\":\"ServiceUnavailableError\","
               "\"param\":null,\"code\":503}}\n\n");
    say_framed(out, "data: [DONE]\n\n");
    bytes_print(out, "0\r\n\r\n");
}

void say_end(struct bytes *out, const struct connection *connection) {
    if (connection->usage) {
        char event[400];
        snprintf(event, sizeof event,
                 "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1,"
                 "\"model\":\"fake-model\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,"
                 "\"completion_tokens\":%d}}\n\n",
                 connection->id, connection->prompt_tokens, connection->prompt_tokens + connection->sent, connection->sent);
        say_framed(out, event);
    }
    say_framed(out, "data: [DONE]\n\n");
    bytes_print(out, "0\r\n\r\n");
}
