/* A fake engine for measuring what stands in front of it: many ports in one process, streams at an exact pace, faults
 * at a word, and a record of when each client's connection closed.
 *
 *   engine --ports 18001,18002 --control 18000 [--chunks N] [--chunk-bytes N] [--rate R] [--first-ms MS]
 *          [--step 1] [--answer-bytes N] [--fault NAME] [--die-after N] [--health STATUS]
 *
 * Every option can be changed while it runs: GET /set?port=18001&fault=500 on the control port (engine_control.c).
 * Prints "ready" on stdout when all ports listen. It never plays vLLM's timing; the twin does that. */
#define _GNU_SOURCE
#include "engine.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096, READ_BYTES = 1 << 18, LISTENER = 1, CONTROL = 2, TURN_NS = 100000, BYTES_PER_TOKEN = 4 };

struct engine engine;
static struct port control_port; /* only a place to hang control connections on */

/* connections */

static void watch(int fd, uint32_t events, void *data, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = data};
    if (epoll_ctl(engine.epoll, operation, fd, &event)) fail("epoll: %s", strerror(errno));
}

static void open_connection(struct port *port, int fd) {
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection) fail("out of memory");
    connection->fd = fd;
    connection->port = port;
    connection->timer = (struct timer){.place = -1, .owner = connection};
    connection->next = engine.open;
    if (engine.open) engine.open->previous = connection;
    engine.open = connection;
    port->accepted++;
    port->connections++;
    set_nodelay(fd);
    watch(fd, EPOLLIN, connection, EPOLL_CTL_ADD);
}

static const char *phase_of(const struct connection *connection) {
    switch (connection->state) {
        case STREAMING: return connection->sent ? "streaming" : "waiting";
        case WAITING: case HANGING: return connection->sent ? "streaming" : "waiting";
        default: return "answered";
    }
}

static void end_request(struct connection *connection, const char *how) {
    if (!connection->in_request) return;
    struct ending *ending = &engine.endings[engine.ended++ % ENDINGS];
    memcpy(ending->id, connection->id, sizeof ending->id);
    ending->port = connection->port->number;
    ending->sent = connection->sent;
    ending->how = how;
    ending->phase = phase_of(connection);
    ending->asked_ns = connection->asked_ns;
    ending->ended_ns = now_ns();
    connection->in_request = 0;
    connection->port->in_flight--;
    if (*how == 'd') connection->port->finished++;       /* done */
    else if (*how == 'l') connection->port->left++;      /* left */
    else connection->port->faulted++;                    /* faulted */
}

/* Frees it: the caller must not touch it again. */
static void close_connection(struct connection *connection, const char *how) {
    end_request(connection, how);
    timer_clear(&engine.timers, &connection->timer);
    close(connection->fd);
    connection->port->connections--;
    if (connection->next) connection->next->previous = connection->previous;
    if (connection->previous) connection->previous->next = connection->next;
    else engine.open = connection->next;
    bytes_free(&connection->in);
    bytes_free(&connection->out);
    free(connection);
}

/* Sends what is waiting. Returns 0 when the connection is gone. */
static int flush(struct connection *connection) {
    while (bytes_length(&connection->out)) {
        ssize_t sent = send(connection->fd, bytes_start(&connection->out), bytes_length(&connection->out), 0);
        if (sent < 0) {
            if (errno == EAGAIN) break;
            close_connection(connection, "left");
            return 0;
        }
        bytes_drop(&connection->out, (size_t)sent);
    }
    int wanted = bytes_length(&connection->out) > 0;
    if (wanted != connection->writable_wanted) {
        connection->writable_wanted = wanted;
        watch(connection->fd, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, connection, EPOLL_CTL_MOD);
    }
    if (!wanted && connection->close_when_sent) {
        close_connection(connection, "faulted");
        return 0;
    }
    return 1;
}

/* requests */

static int has_field(const char *head, size_t length, const char *name, const char *value) {
    const char *line = head, *end = head + length;
    size_t name_length = strlen(name);
    while ((line = memchr(line, '\n', (size_t)(end - line))) && ++line < end) {
        if ((size_t)(end - line) <= name_length || strncasecmp(line, name, name_length) || line[name_length] != ':')
            continue;
        if (!value) return 1;
        const char *stop = memchr(line, '\r', (size_t)(end - line));
        return stop && memmem(line, (size_t)(stop - line), value, strlen(value)) != NULL;
    }
    return 0;
}

static long content_length(const char *head, size_t length) {
    const char *line = head, *end = head + length;
    while ((line = memchr(line, '\n', (size_t)(end - line))) && ++line < end)
        if (end - line > 16 && !strncasecmp(line, "content-length:", 15)) return atol(line + 15);
    return 0;
}

/* Where the value of a top-level looking `"name":` begins. Looks at both ends of a long body only. */
static const char *value_of(const char *body, size_t length, const char *name) {
    enum { END = 1024 };
    const char *at = find(body, length > END ? END : length, name);
    if (!at && length > END) at = find(body + length - END, END, name);
    if (!at) return NULL;
    for (at += strlen(name); *at == ' ' || *at == ':'; at++) {}
    return at;
}

/* The load generator's own id of the request: the first string of the body that begins with "ll-". */
static void read_id(struct connection *connection, const char *body, size_t length) {
    const char *id = find(body, length > 4096 ? 4096 : length, "\"ll-"), *end = body + length;
    size_t used = 0;
    for (const char *at = id ? id + 1 : end; at < end && used + 1 < sizeof connection->id; at++) {
        if (!isalnum((unsigned char)*at) && *at != '-') break;
        connection->id[used++] = *at;
    }
    connection->id[used] = 0;
}

static void read_body(struct connection *connection, const char *body, size_t length) {
    const char *value;
    struct port *port = connection->port;
    connection->stream = (value = value_of(body, length, "\"stream\"")) && !strncmp(value, "true", 4);
    connection->usage = (value = value_of(body, length, "\"include_usage\"")) && !strncmp(value, "true", 4);
    connection->usage_each = connection->usage && (value = value_of(body, length, "\"continuous_usage_stats\"")) &&
                             !strncmp(value, "true", 4);
    value = value_of(body, length, "\"max_tokens\"");
    connection->chunks = value && isdigit((unsigned char)*value) ? atoi(value) : port->chunks;
    read_id(connection, body, length);
    connection->prompt_tokens = (int)(length / BYTES_PER_TOKEN) + 1;
    port->body_bytes += (long)length;
}

static void start_request(struct connection *connection, const char *head, size_t head_length, const char *body,
                          size_t length) {
    struct port *port = connection->port;
    connection->asked_ns = now_ns();
    connection->in_request = 1;
    connection->sent = 0;
    read_body(connection, body, length);
    port->requests++;
    port->streams += connection->stream;
    port->in_flight++;
    if (has_field(head, head_length, "authorization", "sk-") || has_field(head, head_length, "te", NULL) ||
        has_field(head, head_length, "x-session-id", NULL) || has_field(head, head_length, "proxy-authorization", NULL))
        port->secrets++;
    connection->state = port->fault == FAULT_HANG ? HANGING : WAITING;
    connection->due_ns = connection->asked_ns + (uint64_t)(port->first_ms * 1e6);
    if (connection->state == WAITING) timer_set(&engine.timers, &connection->timer, connection->due_ns);
}

static void answer_probe(struct connection *connection, const char *target, size_t length) {
    struct bytes *out = &connection->out;
    connection->port->probes++;
    if (length >= 7 && !memcmp(target, "/health", 7)) say_response(out, connection->port->health, "application/json", "", 0);
    else if (length >= 10 && !memcmp(target, "/v1/models", 10)) say_models(out);
    else if (length >= 8 && !memcmp(target, "/metrics", 8)) say_metrics(out, connection->port);
    else if (length >= 8 && !memcmp(target, "/version", 8)) say_response(out, 200, "application/json", "{\"version\":\"0.32.0\"}", 20);
    else say_error(out, 404);
}

/* Takes one whole request out of what has been read. Returns 0 when the connection is gone or more must be read. */
static int take_request(struct connection *connection) {
    char *data = bytes_start(&connection->in);
    size_t length = bytes_length(&connection->in);
    const char *blank = find(data, length, "\r\n\r\n");
    if (connection->state != READING || !blank) return 0;
    size_t head_length = (size_t)(blank - data) + 4;
    long body_length = content_length(data, head_length);
    if (length < head_length + (size_t)body_length) return 0;
    const char *space = memchr(data, ' ', head_length), *target = space ? space + 1 : NULL;
    const char *target_end = target ? memchr(target, ' ', head_length - (size_t)(target - data)) : NULL;
    if (!target_end) {
        connection->port->malformed++;
        say_error(&connection->out, 400);
        connection->close_when_sent = 1;
        connection->state = DRAINING;
        return flush(connection);
    }
    if (connection->port == &control_port) control_answer(&connection->out, target, (size_t)(target_end - target));
    else if (!memcmp(data, "POST ", 5)) start_request(connection, data, head_length, data + head_length, (size_t)body_length);
    else answer_probe(connection, target, (size_t)(target_end - target));
    bytes_drop(&connection->in, head_length + (size_t)body_length);
    return flush(connection);
}

static void readable(struct connection *connection) {
    char *place = bytes_reserve(&connection->in, READ_BYTES);
    ssize_t count = recv(connection->fd, place, READ_BYTES, 0);
    if (count <= 0) {
        if (count == 0 || errno != EAGAIN) close_connection(connection, "left");
        return;
    }
    connection->in.to += (size_t)count;
    while (take_request(connection)) {}
}

/* answers */

static void back_to_reading(struct connection *connection) {
    end_request(connection, "done");
    connection->state = READING;
    while (take_request(connection)) {}
}

static void answer_fault(struct connection *connection, enum fault fault) {
    struct bytes *out = &connection->out;
    switch (fault) {
        case FAULT_500: say_error(out, 500); break;
        case FAULT_503: say_error(out, 503); break;
        case FAULT_429: say_error(out, 429); break;
        case FAULT_REFUSED_STREAM: connection->stream ? say_refused_stream(out) : say_error(out, 503); break;
        case FAULT_GARBAGE: bytes_print(out, "\001\002 not HTTP at all\r\n\r\n"); connection->close_when_sent = 1; break;
        default: close_connection(connection, "faulted"); return;
    }
    end_request(connection, "faulted");
    connection->state = READING;
    if (flush(connection))
        while (take_request(connection)) {}
}

static void answer_unary(struct connection *connection) {
    say_completion(&connection->out, connection);
    if (connection->port->fault == FAULT_DIE) {
        connection->out.to -= bytes_length(&connection->out) / 2;
        connection->close_when_sent = 1;
        flush(connection);
        return;
    }
    if (flush(connection)) back_to_reading(connection);
}

/* A turn of the loop every 100 us is enough: what falls due meanwhile is sent in one go, chunk by chunk. */
static void wake_at(struct connection *connection, uint64_t due_ns) {
    timer_set(&engine.timers, &connection->timer, (due_ns + TURN_NS - 1) / TURN_NS * TURN_NS);
}

static void stream_one(struct connection *connection, uint64_t at_ns) {
    struct port *port = connection->port;
    if (connection->sent >= connection->chunks) {
        say_end(&connection->out, connection);
        if (flush(connection)) back_to_reading(connection);
        return;
    }
    double late_s = (double)(at_ns - connection->due_ns) / 1e9;
    if (port->rate > 0 && late_s > engine.late_max_s) engine.late_max_s = late_s;
    say_chunk(&connection->out, connection, at_ns);
    connection->sent++;
    port->chunks_sent++;
    if (!flush(connection)) return;
    int broken = port->fault == FAULT_DIE || port->fault == FAULT_STALL;
    if (broken && connection->sent >= port->die_after) {
        if (port->fault == FAULT_DIE) close_connection(connection, "faulted");
        else connection->state = HANGING;
        return;
    }
    uint64_t period_ns = port->rate > 0 ? (uint64_t)(1e9 / port->rate) : 0;
    if (connection->sent >= connection->chunks || !period_ns) connection->due_ns = at_ns; /* vLLM sends [DONE] at once */
    else if (port->step) connection->due_ns = (connection->due_ns / period_ns + 1) * period_ns;
    else connection->due_ns += period_ns;
    if (!connection->writable_wanted) wake_at(connection, connection->due_ns);
}

static void due(struct connection *connection, uint64_t at_ns) {
    enum fault fault = connection->port->fault;
    if (connection->state == STREAMING) {
        stream_one(connection, at_ns);
    } else if (fault != FAULT_NONE && fault != FAULT_DIE && fault != FAULT_STALL && fault != FAULT_HANG) {
        answer_fault(connection, fault);
    } else if (!connection->stream) {
        answer_unary(connection);
    } else {
        connection->state = STREAMING;
        say_stream_head(&connection->out);
        stream_one(connection, at_ns);
    }
}

static void writable(struct connection *connection) {
    if (!flush(connection) || connection->writable_wanted || connection->state != STREAMING) return;
    uint64_t at_ns = now_ns();
    if (connection->due_ns < at_ns) connection->due_ns = at_ns; /* a reader that was slow gets no burst afterwards */
    timer_set(&engine.timers, &connection->timer, connection->due_ns);
}

/* ports */

static void cut_connections(struct port *port) {
    for (struct connection *connection = engine.open, *next; connection; connection = next) {
        next = connection->next;
        if (connection->port != port) continue;
        set_reset_on_close(connection->fd);
        close_connection(connection, "faulted");
    }
}

static void stop_listening(struct port *port) {
    if (port->listener >= 0) close(port->listener);
    port->listener = -1;
}

static void start_listening(struct port *port) {
    if (port->listener >= 0) return;
    port->listener = listen_on(port->number, BACKLOG);
    watch(port->listener, EPOLLIN, (void *)((uintptr_t)port | LISTENER), EPOLL_CTL_ADD);
}

/* A listener with room for one, and that one taken by ourselves: further connects wait in SYN_SENT. */
static void fill_backlog(struct port *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port->number)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    epoll_ctl(engine.epoll, EPOLL_CTL_DEL, port->listener, NULL);
    listen(port->listener, 0);
    for (port->filler_count = 0; port->filler_count < 2; port->filler_count++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) fail("filling the backlog");
        port->fillers[port->filler_count] = fd;
    }
}

void port_apply_fault(struct port *port, enum fault fault) {
    if (port->fault == FAULT_NO_ACCEPT && fault != FAULT_NO_ACCEPT) {
        stop_listening(port);
        while (port->filler_count) close(port->fillers[--port->filler_count]);
    }
    port->fault = fault;
    if (fault == FAULT_REFUSE) {
        stop_listening(port);
        cut_connections(port);
        return;
    }
    start_listening(port);
    if (fault == FAULT_NO_ACCEPT && !port->filler_count) {
        cut_connections(port);
        fill_backlog(port);
    }
}

static void accept_all(struct port *port, int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) open_connection(port, fd);
}

static void serve(int control_listener) {
    static struct epoll_event events[512];
    for (;;) {
        uint64_t at_ns = now_ns();
        struct timer *timer;
        for (int turn = 0; turn < 256 && (timer = timer_pop(&engine.timers, at_ns)); turn++) due(timer->owner, now_ns());
        int count = wait_events(engine.epoll, events, 512, timer_wait_ns(&engine.timers, now_ns()));
        int listeners = 0;
        for (int at = 0; at < count; at++) {
            uintptr_t data = (uintptr_t)events[at].data.ptr;
            if (data & (LISTENER | CONTROL)) { listeners = 1; continue; }
            struct connection *connection = (struct connection *)data;
            if (events[at].events & EPOLLOUT) { /* may free it: what else there is comes again in the next turn */
                writable(connection);
                continue;
            }
            int control = connection->port == &control_port;
            readable(connection); /* may free it */
            /* a control connection may have cut others that are in this batch: see them again in the next turn */
            if (control) break;
        }
        if (!listeners) continue;
        for (int at = 0; at < engine.port_count; at++)
            if (engine.ports[at].listener >= 0 && engine.ports[at].fault != FAULT_NO_ACCEPT)
                accept_all(&engine.ports[at], engine.ports[at].listener);
        if (control_listener >= 0) accept_all(&control_port, control_listener);
    }
}

int main(int count, char **arguments) {
    int control = 0, control_listener = -1;
    prepare_process();
    engine.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int at = 1; at + 1 < count; at += 2) {
        if (!strcmp(arguments[at], "--control")) control = atoi(arguments[at + 1]);
        if (strcmp(arguments[at], "--ports")) continue;
        char *rest = NULL;
        for (char *port = strtok_r(arguments[at + 1], ",", &rest); port; port = strtok_r(NULL, ",", &rest)) {
            if (engine.port_count == PORTS) fail("at most %d ports", PORTS);
            engine.ports[engine.port_count++] = (struct port){
                .number = atoi(port), .listener = -1, .chunks = 100, .chunk_bytes = 256, .rate = 50, .first_ms = 0,
                .answer_bytes = 500, .die_after = 3, .health = 200,
            };
        }
    }
    if (!engine.port_count || count % 2 == 0) fail("usage: engine --ports N,N... [--control N] [--name value]...");
    for (int at = 0; at < engine.port_count; at++) start_listening(&engine.ports[at]);
    for (int at = 1; at + 1 < count; at += 2) {
        char name[64];
        if (!strcmp(arguments[at], "--control") || !strcmp(arguments[at], "--ports")) continue;
        if (strncmp(arguments[at], "--", 2)) fail("%s: wanted --name value", arguments[at]);
        snprintf(name, sizeof name, "%s", arguments[at] + 2);
        for (char *dash = name; (dash = strchr(dash, '-')); *dash = '_') {}
        set_option(name, arguments[at + 1], 0);
    }
    if (control) {
        control_listener = listen_on(control, 64);
        control_port.number = control;
        watch(control_listener, EPOLLIN, (void *)(uintptr_t)CONTROL, EPOLL_CTL_ADD);
    }
    puts("ready");
    fflush(stdout);
    serve(control_listener);
}
