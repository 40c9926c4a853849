/* A load generator for what stands before an engine: one thread, keep-alive, closed or open loop, and every way that a
 * client can be a burden. Prints one JSON document.
 *
 *   load --port 19000 --connections 64 (--requests N | --duration S) [--warmup S] [--ramp S]
 *        [--rate R]                    open loop: R requests a second, Poisson; without it closed loop
 *        [--stream 1] [--chunks LOW:HIGH] [--body-bytes N] [--key KEY] [--model NAME] [--fresh 1]
 *        [--leave-share P]             that share of requests is left, in any phase, by reset or by close
 *        [--slow N --slow-bytes R]     N of the connections read at most R bytes a second (0: not at all)
 *        [--timeout S] [--drain S] [--seed N] [--session 1] [--echo 0]
 *
 * The engine repeats a request's id, and an answer without it is a wrong one; `--echo 0` for engines that do not.
 * SIGTERM ends it at once, with its report; SIGUSR1 once what is in progress has ended.
 *
 * Samples are of requests sent after the warm-up; counts are of all. Run beside tools/loadlab's engine, whose stamps
 * it reads: `transit_s` is what lies between client and engine, there and back, the engine's own time left out. */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, SLOW_TICKS_PER_S = 20 };

struct options {
    int port, connections, stream, chunks_low, chunks_high, body_bytes, fresh, slow, session, echo;
    long requests, seed;
    double duration_s, warmup_s, ramp_s, rate, leave_share, slow_bytes, timeout_s, drain_s;
    const char *key, *model;
};

struct totals totals;
static struct options options = {
    .port = 19000, .connections = 1, .chunks_low = 100, .chunks_high = 100, .body_bytes = 300, .timeout_s = 30,
    .drain_s = 30, .key = "sk-bench", .model = "fake-model", .echo = 1,
};
static int epoll, busy;
static volatile sig_atomic_t stopping, finishing;
static struct timers timers;
static struct connection *connections;
static struct connection **idle; /* open loop: those that wait for a request */
static int idle_count;
static uint64_t start_ns, stop_ns, random_state;
static struct timer arrival = {.place = -1};
static uint64_t *backlog; /* open loop: due times of requests that found no connection */
static size_t backlog_from, backlog_to, backlog_room;

static void start_request(struct connection *connection, uint64_t due_ns);

static double random_share(void) { /* xorshift64*, in [0, 1) */
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * 2685821657736338717u) >> 11) / 9007199254740992.0;
}

static void watch(struct connection *connection, int readable, int writable) {
    if (connection->readable_wanted == readable && connection->writable_wanted == writable) return;
    connection->readable_wanted = readable;
    connection->writable_wanted = writable;
    struct epoll_event event = {.data.ptr = connection};
    event.events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, connection->fd, &event)) fail("epoll: %s", strerror(errno));
}

static void disconnect(struct connection *connection) {
    if (connection->fd >= 0) close(connection->fd);
    connection->fd = -1;
    bytes_clear(&connection->in);
    bytes_clear(&connection->out);
}

static int may_start(uint64_t at_ns) {
    return !finishing && at_ns < stop_ns && (!options.requests || totals.started < options.requests);
}

/* The request is over, in whatever way: go on with the next one. */
static void over(struct connection *connection) {
    timer_clear(&timers, &connection->timer);
    timer_clear(&timers, &connection->leave);
    connection->phase = IDLE;
    connection->uses++;
    busy--;
    if (options.fresh) disconnect(connection);
    if (options.rate > 0) {
        if (backlog_from < backlog_to) start_request(connection, backlog[backlog_from++]);
        else idle[idle_count++] = connection;
        return;
    }
    uint64_t at_ns = now_ns();
    if (may_start(at_ns)) start_request(connection, at_ns);
}

static void failed(struct connection *connection, long *kind) {
    ++*kind;
    disconnect(connection);
    over(connection);
}

static void leave(struct connection *connection) {
    if (connection->phase == STREAMING) totals.left_streaming++;
    else if (connection->phase == ASKED) totals.left_waiting++;
    else totals.left_asked++;
    if (random_share() < 0.5) set_reset_on_close(connection->fd);
    disconnect(connection);
    over(connection);
}

static void build_request(struct connection *connection, long number) {
    char start[400];
    struct bytes *out = &connection->out;
    snprintf(connection->id, sizeof connection->id, "ll-%08lx", number & 0xffffffff);
    int chunks = options.chunks_low + (int)(random_share() * (options.chunks_high - options.chunks_low + 1));
    int used = snprintf(start, sizeof start,
                        "{\"model\":\"%s\",\"stream\":%s,\"max_tokens\":%d,\"temperature\":0.7,\"messages\":["
                        "{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"",
                        options.model, options.stream ? "true" : "false", chunks, connection->id);
    static const char end[] = "\"}]}";
    int filling = options.body_bytes - used - (int)sizeof end + 1;
    if (filling < 1) filling = 1;
    bytes_clear(out);
    bytes_print(out, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: loadlab\r\n", options.port);
    if (*options.key) bytes_print(out, "Authorization: Bearer %s\r\n", options.key);
    if (options.session) bytes_print(out, "X-Session-ID: s-%d\r\n", (int)(random_share() * 1000));
    bytes_print(out, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", used + filling + (int)sizeof end - 1,
                start);
    char *place = bytes_reserve(out, (size_t)filling);
    for (int at = 0; at < filling; at++) place[at] = "tell me more "[at % 13];
    out->to += (size_t)filling;
    bytes_add(out, end, sizeof end - 1);
    connection->want_stream = options.stream;
}

static void send_request(struct connection *connection) {
    while (bytes_length(&connection->out)) {
        ssize_t sent = send(connection->fd, bytes_start(&connection->out), bytes_length(&connection->out), 0);
        if (sent < 0 && errno == EAGAIN) {
            watch(connection, connection->readable_wanted, 1);
            return;
        }
        if (sent < 0) return; /* what was answered before, or the reset, is told by reading */
        bytes_drop(&connection->out, (size_t)sent);
    }
    watch(connection, connection->readable_wanted, 0);
}

static void connect_to_target(struct connection *connection) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) fail("socket: %s", strerror(errno));
    set_nodelay(connection->fd);
    int small = 4096;
    if (connection->slow) setsockopt(connection->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    connection->uses = 0;
    connection->phase = CONNECTING;
    totals.connections++;
    connect(connection->fd, (struct sockaddr *)&address, sizeof address);
    connection->readable_wanted = 0;
    connection->writable_wanted = 1;
    struct epoll_event event = {.data.ptr = connection, .events = EPOLLOUT};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event)) fail("epoll: %s", strerror(errno));
}

static void start_request(struct connection *connection, uint64_t due_ns) {
    uint64_t at_ns = now_ns();
    busy++;
    build_request(connection, totals.started++);
    connection->answer = (struct answer){0};
    connection->first_ns = 0;
    connection->due_ns = due_ns;
    connection->counted = !connection->slow && at_ns >= totals.counted_from_ns;
    connection->leaving = random_share() < options.leave_share;
    connection->leave_after = -1;
    if (connection->leaving) {
        if (random_share() < 0.5) connection->leave_after = (int)(random_share() * 20); /* chunks */
        else timer_set(&timers, &connection->leave, at_ns + (uint64_t)(random_share() * 0.05 * 1e9));
    }
    timer_set(&timers, &connection->timer, at_ns + (uint64_t)((connection->slow ? 1.0 / SLOW_TICKS_PER_S : options.timeout_s) * 1e9));
    if (connection->fd < 0) connect_to_target(connection);
    else {
        connection->phase = ASKED;
        watch(connection, !connection->slow, 0);
    }
    connection->asked_ns = now_ns();
    if (connection->phase == ASKED) send_request(connection);
    if (options.rate > 0 && connection->counted) sample(&totals.late, (double)(connection->asked_ns - due_ns) / 1e9);
}

static void finish(struct connection *connection, uint64_t at_ns) {
    struct answer *answer = &connection->answer;
    int close_it = answer->close;
    totals.statuses[answer->status]++;
    if (answer->status != 200) {
    } else if (options.echo && !answer->ours && !answer->error_seen) totals.wrong_answers++;
    else if (answer->error_seen) totals.error_events++;
    else if (answer->stream && !answer->done_seen) totals.no_done++;
    else {
        totals.ok++;
        totals.streams_whole += answer->stream;
        if (connection->counted) {
            sample(&totals.ttft, (double)(connection->first_ns - connection->asked_ns) / 1e9);
            sample(&totals.e2e, (double)(at_ns - connection->asked_ns) / 1e9);
        }
    }
    totals.events += answer->events;
    if (close_it || bytes_length(&connection->in)) {
        totals.bad_answer += bytes_length(&connection->in) > 0;
        disconnect(connection);
    }
    over(connection);
}

static void readable(struct connection *connection, size_t most) {
    char *place = bytes_reserve(&connection->in, READ_BYTES);
    ssize_t count = recv(connection->fd, place, most, 0);
    uint64_t at_ns = now_ns();
    if (count < 0 && errno == EAGAIN) return;
    if (connection->phase == IDLE) { /* closed between two requests, or words that nobody asked for */
        totals.bad_answer += count > 0;
        disconnect(connection);
        return;
    }
    if (count <= 0) {
        struct answer *answer = &connection->answer;
        if (count == 0 && answer->in_body && answer->framing == TO_CLOSE) finish(connection, at_ns);
        else if (answer->in_body || bytes_length(&connection->in)) failed(connection, &totals.truncated);
        else if (connection->uses) { /* closed as we sent: a kept connection may do that; ask again on a new one */
            totals.ours_gone++;
            totals.started--;
            busy--;
            timer_clear(&timers, &connection->timer);
            timer_clear(&timers, &connection->leave);
            disconnect(connection);
            start_request(connection, connection->due_ns);
        } else failed(connection, &totals.reset);
        return;
    }
    connection->in.to += (size_t)count;
    int result = read_answer(connection, at_ns);
    if (connection->answer.body_bytes) connection->phase = STREAMING;
    if (result < 0) failed(connection, &totals.bad_answer);
    else if (result > 0) finish(connection, at_ns);
    else if (connection->leave_after >= 0 && connection->answer.events >= connection->leave_after &&
             connection->phase == STREAMING)
        leave(connection);
}

static void writable(struct connection *connection) {
    if (connection->phase == CONNECTING) {
        int problem = 0;
        socklen_t length = sizeof problem;
        getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &problem, &length);
        if (problem) {
            /* do not spin on a target that is down */
            disconnect(connection);
            totals.connect_failed++;
            connection->phase = IDLE;
            timer_clear(&timers, &connection->leave);
            timer_set(&timers, &connection->timer, now_ns() + 20000000);
            return;
        }
        connection->phase = ASKED;
        watch(connection, !connection->slow, 1);
    }
    send_request(connection);
}

static void next_arrival(void) {
    uint64_t due_ns = arrival.due_ns;
    if (!may_start(due_ns)) return;
    if (idle_count) start_request(idle[--idle_count], due_ns);
    else {
        if (backlog_to == backlog_room) {
            backlog_room = backlog_room ? 2 * backlog_room : 1024;
            backlog = realloc(backlog, sizeof(*backlog) * backlog_room);
            if (!backlog) fail("out of memory");
        }
        backlog[backlog_to++] = due_ns;
    }
    timer_set(&timers, &arrival, due_ns + (uint64_t)(-log(1 - random_share()) / options.rate * 1e9));
}

static void due(struct timer *timer) {
    struct connection *connection = timer->owner;
    if (timer == &arrival) next_arrival();
    else if (timer == &connection->leave) {
        if (connection->phase != IDLE) leave(connection);
    } else if (connection->phase == IDLE) {
        if (connection->fd < 0 && busy && connection->asked_ns) over(connection); /* after a failed connect */
        else if (may_start(now_ns())) start_request(connection, now_ns());
    } else if (connection->slow) {
        timer_set(&timers, timer, timer->due_ns + 1000000000 / SLOW_TICKS_PER_S);
        size_t most = (size_t)(options.slow_bytes / SLOW_TICKS_PER_S);
        if (most > READ_BYTES) most = READ_BYTES;
        if (most && connection->phase != CONNECTING) readable(connection, most);
    } else failed(connection, &totals.timed_out);
}

static void told_to_end(int number) {
    if (number == SIGTERM) stopping = 1;
    finishing = 1;
}

static void run(void) {
    static struct epoll_event events[1024];
    uint64_t drain_until_ns = 0;
    for (;;) {
        uint64_t at_ns = now_ns();
        struct timer *timer;
        while ((timer = timer_pop(&timers, at_ns))) due(timer);
        if (!may_start(at_ns)) {
            if (!drain_until_ns) drain_until_ns = at_ns + (uint64_t)(options.drain_s * 1e9);
            if (!busy && backlog_from == backlog_to) return;
            if (stopping || at_ns > drain_until_ns) {
                totals.abandoned = busy + (long)(backlog_to - backlog_from);
                return;
            }
        }
        int64_t wait_ns = timer_wait_ns(&timers, at_ns);
        if (wait_ns < 0 || wait_ns > 50000000) wait_ns = 50000000;
        int count = wait_events(epoll, events, 1024, wait_ns);
        for (int at = 0; at < count; at++) {
            struct connection *connection = events[at].data.ptr;
            if (connection->fd < 0) continue;
            if (events[at].events & EPOLLOUT || (connection->phase == CONNECTING && events[at].events & (EPOLLERR | EPOLLHUP)))
                writable(connection);
            else if (connection->slow && connection->phase != IDLE) {
                if (events[at].events & (EPOLLERR | EPOLLHUP)) readable(connection, READ_BYTES);
            } else readable(connection, READ_BYTES);
        }
    }
}

static void report(void) {
    struct rusage usage;
    double wall_s = (double)(now_ns() - start_ns) / 1e9;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"started\":%ld,\"ok\":%ld,\"left\":{\"asked\":%ld,\"waiting\":%ld,\"streaming\":%ld},", totals.started,
           totals.ok, totals.left_asked, totals.left_waiting, totals.left_streaming);
    printf("\"failed\":{\"connect\":%ld,\"reset\":%ld,\"truncated\":%ld,\"timed_out\":%ld,\"bad_answer\":%ld,"
           "\"error_event\":%ld,\"wrong_answer\":%ld,\"no_done\":%ld,\"abandoned\":%ld},",
           totals.connect_failed, totals.reset, totals.truncated, totals.timed_out, totals.bad_answer,
           totals.error_events, totals.wrong_answers, totals.no_done, totals.abandoned);
    fputs("\"statuses\":{", stdout);
    for (int status = 0, any = 0; status < 600; status++)
        if (totals.statuses[status]) printf("%s\"%d\":%ld", any++ ? "," : "", status, totals.statuses[status]);
    printf("},\"streams_whole\":%ld,\"events\":%ld,\"bytes\":%ld,\"connections\":%ld,\"stale\":%ld,", totals.streams_whole,
           totals.events, totals.bytes, totals.connections, totals.ours_gone);
    printf("\"chunks\":%ld,\"reads\":%ld,\"chunks_per_read\":%.4f,", totals.chunks, totals.reads,
           totals.reads ? (double)totals.chunks / (double)totals.reads : 0.0);
    print_samples("ttft_s", &totals.ttft);
    print_samples("transit_s", &totals.transit);
    print_samples("e2e_s", &totals.e2e);
    print_samples("late_s", &totals.late);
    print_histogram("chunk_delay_s", &totals.chunk_delay);
    double cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("\"duration_s\":%.6f,\"cpu_s\":%.6f}\n", wall_s, cpu_s);
}

static void read_option(const char *name, const char *value) {
    struct { const char *name; int *whole; double *real; const char **text; long *big; } known[] = {
        {.name = "port", .whole = &options.port}, {.name = "connections", .whole = &options.connections},
        {.name = "stream", .whole = &options.stream}, {.name = "body-bytes", .whole = &options.body_bytes},
        {.name = "fresh", .whole = &options.fresh}, {.name = "slow", .whole = &options.slow},
        {.name = "session", .whole = &options.session}, {.name = "echo", .whole = &options.echo},
         {.name = "requests", .big = &options.requests},
        {.name = "seed", .big = &options.seed}, {.name = "duration", .real = &options.duration_s},
        {.name = "warmup", .real = &options.warmup_s}, {.name = "ramp", .real = &options.ramp_s},
        {.name = "rate", .real = &options.rate}, {.name = "leave-share", .real = &options.leave_share},
        {.name = "slow-bytes", .real = &options.slow_bytes}, {.name = "timeout", .real = &options.timeout_s},
        {.name = "drain", .real = &options.drain_s}, {.name = "key", .text = &options.key},
        {.name = "model", .text = &options.model},
    };
    if (!strncmp(name, "--", 2) && !strcmp(name + 2, "chunks")) {
        int read = sscanf(value, "%d:%d", &options.chunks_low, &options.chunks_high);
        if (read == 1) options.chunks_high = options.chunks_low;
        if (read < 1 || options.chunks_high < options.chunks_low) fail("--chunks %s: wanted N or LOW:HIGH", value);
        return;
    }
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        if (strncmp(name, "--", 2) || strcmp(name + 2, known[at].name)) continue;
        if (known[at].whole) *known[at].whole = atoi(value);
        if (known[at].real) *known[at].real = atof(value);
        if (known[at].text) *known[at].text = value;
        if (known[at].big) *known[at].big = atol(value);
        return;
    }
    fail("%s: no such option", name);
}

int main(int count, char **arguments) {
    prepare_process();
    signal(SIGTERM, told_to_end);
    signal(SIGUSR1, told_to_end);
    if (count % 2 == 0) fail("options come as --name value");
    for (int at = 1; at + 1 < count; at += 2) read_option(arguments[at], arguments[at + 1]);
    if (options.connections < 1 || options.slow > options.connections) fail("--connections %d", options.connections);
    if (!options.requests && options.duration_s <= 0) fail("--requests or --duration must be given");
    random_state = (uint64_t)options.seed * 2 + 88172645463325253u;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    connections = calloc((size_t)options.connections, sizeof *connections);
    idle = calloc((size_t)options.connections, sizeof *idle);
    if (!connections || !idle) fail("out of memory");
    start_ns = now_ns();
    totals.counted_from_ns = start_ns + (uint64_t)(options.warmup_s * 1e9);
    stop_ns = options.duration_s > 0 ? start_ns + (uint64_t)(options.duration_s * 1e9) : UINT64_MAX;
    for (int at = 0; at < options.connections; at++) {
        struct connection *connection = &connections[at];
        *connection = (struct connection){.fd = -1, .slow = at < options.slow};
        connection->timer = (struct timer){.place = -1, .owner = connection};
        connection->leave = connection->timer;
        if (options.rate > 0) idle[idle_count++] = connection;
        else timer_set(&timers, &connection->timer, start_ns + (uint64_t)(options.ramp_s * 1e9 * at / options.connections));
    }
    if (options.rate > 0) timer_set(&timers, &arrival, start_ns);
    run();
    report();
}
