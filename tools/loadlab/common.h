/* What the engine and the load generator share: time, timers, byte buffers, sockets. Linux and libc only. */
#ifndef LOADLAB_COMMON_H
#define LOADLAB_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* CLOCK_MONOTONIC in ns: one clock for all processes of a host, so stamps of the engine can be read by the client. */
uint64_t now_ns(void);

/* Prints "error: ..." and exits with 2. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* A timer lives inside its owner; `place` is its index in the heap, -1 when it is not set. */
struct timer {
    uint64_t due_ns;
    int place;
    void *owner;
};

struct timers {
    struct timer **heap;
    int count, room;
};

void timer_set(struct timers *timers, struct timer *timer, uint64_t due_ns);
void timer_clear(struct timers *timers, struct timer *timer);
/* The timer that is due at `at_ns` or before, taken out; NULL when there is none. */
struct timer *timer_pop(struct timers *timers, uint64_t at_ns);
/* ns until the next timer is due: 0 when late, -1 when there is none. */
int64_t timer_wait_ns(const struct timers *timers, uint64_t at_ns);

/* Bytes [from, to) of `data` are in use. */
struct bytes {
    char *data;
    size_t from, to, room;
};

char *bytes_reserve(struct bytes *bytes, size_t more);
void bytes_add(struct bytes *bytes, const void *data, size_t length);
void bytes_print(struct bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bytes_drop(struct bytes *bytes, size_t length);
void bytes_clear(struct bytes *bytes);
void bytes_free(struct bytes *bytes);
static inline size_t bytes_length(const struct bytes *bytes) { return bytes->to - bytes->from; }
static inline char *bytes_start(const struct bytes *bytes) { return bytes->data + bytes->from; }

/* Where `text` begins in [data, data + length), or NULL. */
const char *find(const char *data, size_t length, const char *text);

int listen_on(int port, int backlog);
void set_nodelay(int fd);
/* Closing then resets the connection, as a killed process with unread data does. */
void set_reset_on_close(int fd);

/* Waits like epoll_wait, with a limit in ns (-1: none). */
struct epoll_event;
int wait_events(int epoll, struct epoll_event *events, int room, int64_t limit_ns);
/* Raises the limit of open files to what the system allows and makes timers exact. */
void prepare_process(void);

#endif
