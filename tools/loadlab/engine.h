/* A fake engine: what its files share. See engine.c for what it does. */
#ifndef LOADLAB_ENGINE_H
#define LOADLAB_ENGINE_H

#include "common.h"

enum fault {
    FAULT_NONE,
    FAULT_REFUSE,         /* the port does not listen and its connections are cut: a dead process */
    FAULT_NO_ACCEPT,      /* listens but connecting never ends: the backlog is full */
    FAULT_500,
    FAULT_503,
    FAULT_429,
    FAULT_REFUSED_STREAM, /* 200, then one error event, then [DONE], as vLLM refuses a stream; unary: 503 */
    FAULT_DIE,            /* cut after `die_after` chunks; unary: cut after half the answer */
    FAULT_HANG,           /* reads the request and never answers */
    FAULT_STALL,          /* a stream that goes silent after `die_after` chunks */
    FAULT_EARLY_CLOSE,    /* closes without a byte */
    FAULT_GARBAGE,        /* answers what is not HTTP */
    FAULT_COUNT
};

extern const char *const fault_names[FAULT_COUNT];

struct port {
    int number, listener;
    enum fault fault;
    int chunks;            /* of a stream whose request has no max_tokens */
    int chunk_bytes;       /* of one event, framing not counted */
    double rate;           /* chunks a second of one stream; 0: as fast as they are taken */
    int step;              /* all streams of the port speak at the same moment, as an engine's step ends */
    double first_ms;       /* request read to first byte */
    int answer_bytes;      /* of a unary body */
    int die_after;
    int health;            /* status of /health */
    int fillers[8], filler_count;
    /* counted since the start or the last reset */
    long accepted, requests, streams, finished, left, faulted, malformed, probes, chunks_sent, body_bytes;
    long secrets; /* completion requests that carried what an engine must never see: the client's key, hop-by-hop */
    int connections, in_flight;
};

enum state { READING, WAITING, STREAMING, HANGING, DRAINING };

struct connection {
    int fd;
    struct port *port;
    enum state state;
    struct timer timer;
    struct bytes in, out;
    struct connection *next, *previous;
    uint64_t asked_ns, due_ns;
    char id[40];
    int stream, usage, usage_each, chunks, sent, prompt_tokens, writable_wanted, close_when_sent, in_request;
};

/* How one completion request ended, for those who measure how soon a leaving client is noticed. */
struct ending {
    char id[40];
    int port, sent;
    const char *how, *phase;
    uint64_t asked_ns, ended_ns;
};

enum { ENDINGS = 1 << 16, PORTS = 64 };

struct engine {
    int epoll, port_count;
    struct port ports[PORTS];
    struct timers timers;
    struct connection *open;
    struct ending endings[ENDINGS];
    long ended;                /* of all time; the last ENDINGS are kept */
    double late_max_s;         /* how late the latest chunk was written: if large, the lab is too slow */
};

extern struct engine engine;

/* engine.c */
void port_apply_fault(struct port *port, enum fault fault);

/* engine_say.c: what an engine says, written to `out` */
void say_models(struct bytes *out);
void say_metrics(struct bytes *out, const struct port *port);
void say_response(struct bytes *out, int status, const char *kind, const char *body, size_t length);
void say_completion(struct bytes *out, const struct connection *connection);
void say_error(struct bytes *out, int status);
void say_stream_head(struct bytes *out);
void say_chunk(struct bytes *out, const struct connection *connection, uint64_t at_ns);
void say_refused_stream(struct bytes *out);
void say_end(struct bytes *out, const struct connection *connection);

/* engine_control.c: answers "GET /state", "/set?...", "/reset", "/endings?since=N" */
void control_answer(struct bytes *out, const char *target, size_t length);
void set_option(const char *name, const char *value, int port_number);

#endif
