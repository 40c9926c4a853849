#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

/* a binary heap, earliest first */

static void put(struct timers *timers, int place, struct timer *timer) {
    timers->heap[place] = timer;
    timer->place = place;
}

static void rise(struct timers *timers, int place) {
    struct timer *timer = timers->heap[place];
    while (place > 0) {
        int parent = (place - 1) / 2;
        if (timers->heap[parent]->due_ns <= timer->due_ns) break;
        put(timers, place, timers->heap[parent]);
        place = parent;
    }
    put(timers, place, timer);
}

static void sink(struct timers *timers, int place) {
    struct timer *timer = timers->heap[place];
    for (;;) {
        int child = 2 * place + 1;
        if (child >= timers->count) break;
        if (child + 1 < timers->count && timers->heap[child + 1]->due_ns < timers->heap[child]->due_ns) child++;
        if (timer->due_ns <= timers->heap[child]->due_ns) break;
        put(timers, place, timers->heap[child]);
        place = child;
    }
    put(timers, place, timer);
}

void timer_set(struct timers *timers, struct timer *timer, uint64_t due_ns) {
    timer_clear(timers, timer);
    if (timers->count == timers->room) {
        timers->room = timers->room ? 2 * timers->room : 256;
        timers->heap = realloc(timers->heap, sizeof(*timers->heap) * (size_t)timers->room);
        if (!timers->heap) fail("out of memory");
    }
    timer->due_ns = due_ns;
    put(timers, timers->count++, timer);
    rise(timers, timer->place);
}

void timer_clear(struct timers *timers, struct timer *timer) {
    int place = timer->place;
    if (place < 0) return;
    timer->place = -1;
    struct timer *last = timers->heap[--timers->count];
    if (last == timer) return;
    put(timers, place, last);
    rise(timers, place);
    sink(timers, last->place);
}

struct timer *timer_pop(struct timers *timers, uint64_t at_ns) {
    if (!timers->count || timers->heap[0]->due_ns > at_ns) return NULL;
    struct timer *timer = timers->heap[0];
    timer_clear(timers, timer);
    return timer;
}

int64_t timer_wait_ns(const struct timers *timers, uint64_t at_ns) {
    if (!timers->count) return -1;
    uint64_t due_ns = timers->heap[0]->due_ns;
    return due_ns <= at_ns ? 0 : (int64_t)(due_ns - at_ns);
}

char *bytes_reserve(struct bytes *bytes, size_t more) {
    if (bytes->from && bytes->to + more > bytes->room) {
        memmove(bytes->data, bytes->data + bytes->from, bytes_length(bytes));
        bytes->to -= bytes->from;
        bytes->from = 0;
    }
    if (bytes->to + more > bytes->room) {
        size_t room = bytes->room ? bytes->room : 1024;
        while (room < bytes->to + more) room *= 2;
        bytes->data = realloc(bytes->data, room);
        if (!bytes->data) fail("out of memory");
        bytes->room = room;
    }
    return bytes->data + bytes->to;
}

void bytes_add(struct bytes *bytes, const void *data, size_t length) {
    memcpy(bytes_reserve(bytes, length), data, length);
    bytes->to += length;
}

void bytes_print(struct bytes *bytes, const char *format, ...) {
    va_list arguments;
    char *place = bytes_reserve(bytes, 1024);
    va_start(arguments, format);
    int length = vsnprintf(place, 1024, format, arguments);
    va_end(arguments);
    if (length >= 1024) {
        place = bytes_reserve(bytes, (size_t)length + 1);
        va_start(arguments, format);
        vsnprintf(place, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    bytes->to += (size_t)length;
}

void bytes_drop(struct bytes *bytes, size_t length) {
    bytes->from += length;
    if (bytes->from == bytes->to) bytes_clear(bytes);
}

void bytes_clear(struct bytes *bytes) { bytes->from = bytes->to = 0; }

void bytes_free(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){0};
}

const char *find(const char *data, size_t length, const char *text) {
    return memmem(data, length, text, strlen(text));
}

int listen_on(int port, int backlog) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, backlog))
        fail("port %d: %s", port, strerror(errno));
    return fd;
}

void set_nodelay(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void set_reset_on_close(int fd) {
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

int wait_events(int epoll, struct epoll_event *events, int room, int64_t limit_ns) {
    struct timespec limit = {.tv_sec = limit_ns / 1000000000, .tv_nsec = limit_ns % 1000000000};
    int count = epoll_pwait2(epoll, events, room, limit_ns < 0 ? NULL : &limit, NULL);
    return count < 0 ? 0 : count;
}

void prepare_process(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1000); /* ns; the default of 50 us is half of what we measure */
}
