/* Reading answers: HTTP/1.1 framing, then events of a stream, counted and timed by the engine's stamps. */
#define _GNU_SOURCE
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int read_head(struct connection *connection) {
    struct answer *answer = &connection->answer;
    const char *head = bytes_start(&connection->in);
    const char *blank = find(head, bytes_length(&connection->in), "\r\n\r\n");
    if (!blank) return bytes_length(&connection->in) > 65536 ? -1 : 0;
    if (strncmp(head, "HTTP/1.", 7)) return -1;
    answer->status = atoi(head + 9);
    if (answer->status < 100 || answer->status > 599) return -1;
    answer->framing = TO_CLOSE;
    for (const char *line = head; (line = memchr(line, '\n', (size_t)(blank + 2 - line))) && ++line < blank;) {
        if (!strncasecmp(line, "content-length:", 15)) {
            answer->framing = TO_LENGTH;
            answer->left = strtoull(line + 15, NULL, 10);
        } else if (!strncasecmp(line, "transfer-encoding:", 18)) answer->framing = CHUNKED;
        else if (!strncasecmp(line, "content-type: text/event-stream", 31)) answer->stream = 1;
        else if (!strncasecmp(line, "connection: close", 17)) answer->close = 1;
    }
    bytes_drop(&connection->in, (size_t)(blank + 4 - head));
    if (answer->status < 200) {
        *answer = (struct answer){0};
        return read_head(connection);
    }
    if (answer->framing == TO_CLOSE) answer->close = 1;
    answer->in_body = 1;
    answer->newlines = 2;
    return 1;
}

static void keep_tail(struct answer *answer, const char *data, size_t length) {
    enum { KEEP = 14 }; /* "data: [DONE]\n\n" */
    if (length >= KEEP) {
        memcpy(answer->tail, data + length - KEEP, KEEP);
        answer->tail_length = KEEP;
        return;
    }
    size_t kept = answer->tail_length + length > KEEP ? KEEP - length : answer->tail_length;
    memmove(answer->tail, answer->tail + answer->tail_length - kept, kept);
    memcpy(answer->tail + kept, data, length);
    answer->tail_length = kept + length;
}

static void read_stamps(struct connection *connection, const char *data, size_t length, uint64_t at_ns) {
    const char *stamp, *end = data + length;
    while ((stamp = memmem(data, (size_t)(end - data), "\"ll_", 4)) && end - stamp >= 38) {
        uint64_t asked_ns = strtoull(stamp + 4, NULL, 16), sent_ns = strtoull(stamp + 21, NULL, 16);
        if (!connection->slow && at_ns >= totals.counted_from_ns && at_ns > sent_ns) {
            if (connection->want_stream) histogram_add(&totals.chunk_delay, (double)(at_ns - sent_ns) / 1e9);
            if (!connection->first_ns && connection->counted)
                sample(&totals.transit, (double)((asked_ns - connection->asked_ns) + (at_ns - sent_ns)) / 1e9);
        }
        data = stamp + 38;
    }
}

/* Notes an error event, wherever the reads cut it. */
static void read_event_start(struct answer *answer, const char *data, size_t length) {
    if (answer->newlines >= 2) {
        answer->first_line = 1;
        answer->start_length = 0;
    }
    answer->newlines = 0;
    if (!answer->first_line || answer->start_length == sizeof answer->start) return;
    size_t room = sizeof answer->start - answer->start_length, take = length < room ? length : room;
    memcpy(answer->start + answer->start_length, data, take);
    answer->start_length += take;
    if (answer->start_length == sizeof answer->start && !memcmp(answer->start, "data: {\"error\"", sizeof answer->start))
        answer->error_seen = 1;
}

static void payload(struct connection *connection, const char *data, size_t length, uint64_t at_ns) {
    struct answer *answer = &connection->answer;
    const char *end = data + length;
    if (!answer->body_bytes && answer->status == 200)
        answer->ours = memmem(data, length < 400 ? length : 400, connection->id, strlen(connection->id)) != NULL;
    answer->body_bytes += length;
    totals.bytes += (long)length;
    read_stamps(connection, data, length, at_ns);
    if (answer->status == 200 && !connection->first_ns) connection->first_ns = at_ns;
    if (!answer->stream) return;
    keep_tail(answer, data, length);
    for (const char *at = data; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *line_end = newline ? newline : end;
        if (line_end > at) read_event_start(answer, at, (size_t)(line_end - at));
        if (!newline) break;
        answer->first_line = 0;
        if (++answer->newlines == 2) answer->events++;
        at = newline + 1;
    }
    answer->done_seen = answer->tail_length == 14 && !memcmp(answer->tail, "data: [DONE]\n\n", 14);
}

/* One step of a chunked body. Returns as read_answer does, or 2 to go on. */
static int read_chunked(struct connection *connection, uint64_t at_ns) {
    struct answer *answer = &connection->answer;
    struct bytes *in = &connection->in;
    const char *data = bytes_start(in);
    size_t length = bytes_length(in);
    if (answer->part == DATA) {
        size_t take = length < answer->left ? length : (size_t)answer->left;
        if (!take) return 0;
        payload(connection, data, take, at_ns);
        bytes_drop(in, take);
        answer->left -= take;
        if (!answer->left) answer->part = DATA_END;
        return 2;
    }
    if (answer->part == DATA_END) {
        if (length < 2) return 0;
        if (memcmp(data, "\r\n", 2)) return -1;
        bytes_drop(in, 2);
        answer->part = SIZE;
        return 2;
    }
    const char *line_end = find(data, length, "\r\n");
    if (!line_end) return length > 1024 ? -1 : 0;
    if (answer->part == TRAILER) {
        int last = line_end == data;
        bytes_drop(in, (size_t)(line_end - data) + 2);
        return last ? 1 : 2;
    }
    char *number_end;
    answer->left = strtoull(data, &number_end, 16);
    if (number_end == data) return -1;
    answer->part = answer->left ? DATA : TRAILER;
    bytes_drop(in, (size_t)(line_end - data) + 2);
    return 2;
}

int read_answer(struct connection *connection, uint64_t at_ns) {
    struct answer *answer = &connection->answer;
    if (!answer->in_body) {
        int found = read_head(connection);
        if (found <= 0) return found;
    }
    long events = answer->events;
    int result = 2;
    if (answer->framing == CHUNKED) {
        while (result == 2) result = read_chunked(connection, at_ns);
    } else {
        size_t take = bytes_length(&connection->in);
        if (answer->framing == TO_LENGTH && take > answer->left) take = (size_t)answer->left;
        if (take) payload(connection, bytes_start(&connection->in), take, at_ns);
        bytes_drop(&connection->in, take);
        if (answer->framing == TO_LENGTH) answer->left -= take;
        result = answer->framing == TO_LENGTH && !answer->left;
    }
    /* [DONE] says nothing of coalescing: engines send it right behind the last chunk */
    long chunks = answer->events - events - (answer->done_seen && answer->events > events);
    if (answer->stream && chunks > 0 && !connection->slow && at_ns >= totals.counted_from_ns) {
        totals.chunks += chunks;
        totals.reads++;
    }
    return result;
}
