/* The control port and the options: both set a port's behaviour by name. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

const char *const fault_names[FAULT_COUNT] = {
    "none", "refuse", "no_accept", "500",   "503",         "429",    "refused_stream",
    "die",  "hang",   "stall",     "early_close", "garbage",
};

static enum fault fault_named(const char *name) {
    for (int fault = 0; fault < FAULT_COUNT; fault++)
        if (!strcmp(fault_names[fault], name)) return (enum fault)fault;
    return FAULT_COUNT;
}

static int set_of_port(struct port *port, const char *name, const char *value) {
    if (!strcmp(name, "chunks")) port->chunks = atoi(value);
    else if (!strcmp(name, "chunk_bytes")) port->chunk_bytes = atoi(value);
    else if (!strcmp(name, "rate")) port->rate = atof(value);
    else if (!strcmp(name, "step")) port->step = atoi(value);
    else if (!strcmp(name, "first_ms")) port->first_ms = atof(value);
    else if (!strcmp(name, "answer_bytes")) port->answer_bytes = atoi(value);
    else if (!strcmp(name, "die_after")) port->die_after = atoi(value);
    else if (!strcmp(name, "health")) port->health = atoi(value);
    else if (!strcmp(name, "fault") && fault_named(value) != FAULT_COUNT) port_apply_fault(port, fault_named(value));
    else return 0;
    return 1;
}

static const char *set_ports(const char *name, const char *value, int port_number) {
    int ports = 0, known = 0;
    for (int at = 0; at < engine.port_count; at++) {
        if (port_number && engine.ports[at].number != port_number) continue;
        ports++;
        known += set_of_port(&engine.ports[at], name, value);
    }
    if (!ports) return "no such port";
    return known ? NULL : "no such setting, or no such fault";
}

void set_option(const char *name, const char *value, int port_number) {
    const char *problem = set_ports(name, value, port_number);
    if (problem) fail("%s=%s: %s", name, value, problem);
}

/* "/set?port=18001&fault=500&health=200": `port` first, else all ports */
static const char *set_query(char *query) {
    int port_number = 0;
    char *rest = NULL;
    for (char *pair = strtok_r(query, "&", &rest); pair; pair = strtok_r(NULL, "&", &rest)) {
        char *equals = strchr(pair, '=');
        if (!equals) return "wanted name=value";
        *equals = 0;
        if (!strcmp(pair, "port")) {
            port_number = atoi(equals + 1);
            continue;
        }
        const char *problem = set_ports(pair, equals + 1, port_number);
        if (problem) return problem;
    }
    return NULL;
}

static void state(struct bytes *body) {
    bytes_print(body, "{\"now_ns\":%llu,\"ended\":%ld,\"late_max_s\":%.6f,\"ports\":[",
                (unsigned long long)now_ns(), engine.ended, engine.late_max_s);
    for (int at = 0; at < engine.port_count; at++) {
        const struct port *port = &engine.ports[at];
        bytes_print(body,
                    "%s{\"port\":%d,\"fault\":\"%s\",\"connections\":%d,\"in_flight\":%d,\"accepted\":%ld,"
                    "\"requests\":%ld,\"streams\":%ld,\"finished\":%ld,\"left\":%ld,\"faulted\":%ld,"
                    "\"malformed\":%ld,\"probes\":%ld,\"chunks_sent\":%ld,\"body_bytes\":%ld,\"secrets\":%ld}",
                    at ? "," : "", port->number, fault_names[port->fault], port->connections, port->in_flight,
                    port->accepted, port->requests, port->streams, port->finished, port->left, port->faulted,
                    port->malformed, port->probes, port->chunks_sent, port->body_bytes, port->secrets);
    }
    bytes_print(body, "]}\n");
}

static void endings(struct bytes *body, long since) {
    long first = engine.ended > ENDINGS ? engine.ended - ENDINGS : 0;
    if (since > first) first = since;
    bytes_print(body, "{\"ended\":%ld,\"endings\":[", engine.ended);
    for (long at = first; at < engine.ended; at++) {
        const struct ending *ending = &engine.endings[at % ENDINGS];
        bytes_print(body,
                    "%s{\"id\":\"%s\",\"port\":%d,\"how\":\"%s\",\"phase\":\"%s\",\"chunks\":%d,\"asked_ns\":%llu,"
                    "\"ended_ns\":%llu}",
                    at > first ? "," : "", ending->id, ending->port, ending->how, ending->phase, ending->sent,
                    (unsigned long long)ending->asked_ns, (unsigned long long)ending->ended_ns);
    }
    bytes_print(body, "]}\n");
}

static void reset(void) {
    for (int at = 0; at < engine.port_count; at++) {
        struct port *port = &engine.ports[at];
        port->accepted = port->requests = port->streams = port->finished = port->left = port->faulted = 0;
        port->malformed = port->probes = port->chunks_sent = port->body_bytes = port->secrets = 0;
    }
    engine.late_max_s = 0;
}

void control_answer(struct bytes *out, const char *target, size_t length) {
    struct bytes body = {0};
    char text[1024];
    const char *problem = NULL;
    snprintf(text, sizeof text, "%.*s", (int)length, target);
    char *query = strchr(text, '?');
    if (query) *query++ = 0;
    if (!strcmp(text, "/set") && query) problem = set_query(query);
    else if (!strcmp(text, "/reset")) reset();
    else if (!strcmp(text, "/endings")) endings(&body, query && !strncmp(query, "since=", 6) ? atol(query + 6) : 0);
    else if (strcmp(text, "/state")) problem = "wanted /state, /set?name=value, /reset or /endings?since=N";
    if (problem) bytes_print(&body, "{\"error\":\"%s\"}\n", problem);
    else if (!bytes_length(&body)) state(&body);
    say_response(out, problem ? 400 : 200, "application/json", bytes_start(&body), bytes_length(&body));
    bytes_free(&body);
}
