/* A load generator: what its files share. See load.c for what it does. */
#ifndef LOADLAB_LOAD_H
#define LOADLAB_LOAD_H

#include "common.h"

/* Samples kept exactly, one a request. */
struct samples {
    double *values;
    size_t count, room;
};

/* Many small values: 128 buckets an octave, so a quantile is within 0.6 %. */
enum { BUCKETS_PER_OCTAVE = 128, OCTAVES = 40 };
struct histogram {
    long counts[BUCKETS_PER_OCTAVE * OCTAVES], count;
    double sum, max;
};

void sample(struct samples *samples, double value);
void histogram_add(struct histogram *histogram, double value_s);
void print_samples(const char *name, struct samples *samples);
void print_histogram(const char *name, const struct histogram *histogram);

enum phase { IDLE, CONNECTING, ASKED, STREAMING };
enum framing { TO_LENGTH, CHUNKED, TO_CLOSE };

/* Where the parser is in an answer. */
struct answer {
    int in_body, status, stream, close, done_seen, error_seen, ours, whole;
    enum framing framing;
    enum { SIZE, DATA, DATA_END, TRAILER } part;
    uint64_t left, body_bytes;
    int newlines;          /* in a row, in the events */
    long events, reads;
    char tail[16];         /* the last payload bytes, to see [DONE] */
    size_t tail_length;
    char start[14];        /* the first bytes of the event in progress, to see an error */
    size_t start_length;
    int first_line;
};

struct connection {
    int fd, slow, leaving, uses, counted;
    enum phase phase;
    struct timer timer, leave;
    struct bytes in, out;
    struct answer answer;
    char id[16];
    uint64_t due_ns, asked_ns, first_ns;
    int want_stream, leave_after, readable_wanted, writable_wanted;
};

struct totals {
    long started, ok, left_asked, left_waiting, left_streaming, statuses[600];
    long connect_failed, reset, truncated, timed_out, bad_answer, error_events, wrong_answers, no_done, abandoned;
    long streams_whole, chunks, reads, chunked_reads, events, bytes, connections, ours_gone;
    uint64_t counted_from_ns; /* end of the warm-up */
    struct samples ttft, transit, e2e, late;
    struct histogram chunk_delay;
};

extern struct totals totals;

/* Reads what has come into `in`. Returns 1 when the answer is whole, 0 when more must come, -1 when it is no HTTP.
 * `at_ns` is when it was read; delays of stamped chunks
 * are counted after the warm-up. */
int read_answer(struct connection *connection, uint64_t at_ns);

#endif
