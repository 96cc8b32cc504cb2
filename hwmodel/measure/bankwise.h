/* A memory that a C program drives: docs/drive-a-memory.md. Written by bankwise.write_c_host, with
 * bankwise.o, which holds bankwise_run and wants neither Python nor Numba, and a memory's image.
 *
 *     cc host.c bankwise.o                     or    cc -shared -o libbankwise.so bankwise.o
 *
 * Times are ticks, addresses and sizes bytes. All fit the kernel that wrote them, no other. */
#ifndef BANKWISE_H
#define BANKWISE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BANKWISE_KERNEL INT64_C(@KERNEL@)
enum { BANKWISE_TO_TICK, BANKWISE_TO_COMPLETION, BANKWISE_TO_END };

/* Word of a channel's state at which a count of it stands, for bankwise_count. Of `latencies`
 * (served requests) and `latency_sum` (their ticks from entry to the end of data) that of reads;
 * that of writes is the next word. */
enum {
@COUNTS@
    BANKWISE_channel_words = @CHANNEL_WORDS@
};

typedef struct {
@FIELDS@
} bankwise_port;

typedef struct {
    bankwise_port port;
    int64_t *states, *accesses, *completions, *runs, *others;
    int64_t *tick, *address, *size, *tag, *done_tick, *done_tag;
    uint8_t *write;
    int64_t rows, last, due; /* rows for waiting accesses; their last tick; completions given */
} bankwise;

int64_t bankwise_run(bankwise_port *port, int64_t to, int64_t how);

static inline void bankwise_close(bankwise *m)
{
    if (!m) return;
    void *all[] = {m->states, m->accesses, m->completions, m->runs, m->others, m->tick, m->address,
                   m->size, m->tag, m->done_tick, m->done_tag, m->write, m};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* More rows of `words` words; 0, or -1 where there is no memory. */
static inline int bankwise_grow(int64_t **table, int64_t rows, int64_t words)
{
    int64_t *grown = realloc(*table, (size_t)(rows * words) * sizeof **table);
    if (grown) *table = grown;
    return grown ? 0 : -1;
}

static inline int bankwise_point(bankwise *m)
{
    bankwise_port *p = &m->port;
    if (bankwise_grow(&m->accesses, p->access_rows, @ACCESS_FIELDS@) ||
        bankwise_grow(&m->completions, p->access_rows, 2) ||
        bankwise_grow(&m->runs, p->run_rows, @RUN_FIELDS@)) return -1;
    p->accesses = (intptr_t)m->accesses, p->completions = (intptr_t)m->completions;
    p->runs = (intptr_t)m->runs, p->states = (intptr_t)m->states;
    p->constants = (intptr_t)m->others;
    p->backlog = p->constants + 8 * @CONSTANTS_WORDS@;
    p->log = p->backlog + 8 * @BACKLOG_FIELDS@ * p->channels;
    p->tick = (intptr_t)m->tick, p->address = (intptr_t)m->address;
    p->size = (intptr_t)m->size, p->write = (intptr_t)m->write, p->tag = (intptr_t)m->tag;
    p->done_tick = (intptr_t)m->done_tick, p->done_tag = (intptr_t)m->done_tag;
    return 0;
}

/* An idle memory at tick 0; NULL where the image cannot be read or is of another kernel. */
static inline bankwise *bankwise_open(const char *image)
{
    FILE *file = fopen(image, "rb");
    bankwise *m = calloc(1, sizeof *m);
    int64_t kernel = 0, backlog, pairs, pair[2];
    int ok = file && m && fread(&kernel, 8, 1, file) == 1 && kernel == BANKWISE_KERNEL &&
             fread(&m->port, sizeof m->port, 1, file) == 1 && fread(&pairs, 8, 1, file) == 1;
    if (ok) {
        backlog = @BACKLOG_FIELDS@ * m->port.channels;
        m->states = calloc((size_t)m->port.channels, 8 * BANKWISE_channel_words);
        m->others = calloc((size_t)(@CONSTANTS_WORDS@ + backlog + @LOG_WORDS@), 8);
        ok = m->states && m->others && bankwise_point(m) == 0 &&
             fread(m->others, 8, @CONSTANTS_WORDS@, file) == @CONSTANTS_WORDS@ &&
             fread(m->others + @CONSTANTS_WORDS@, 8, (size_t)backlog, file) == (size_t)backlog;
    }
    for (; ok && pairs > 0; pairs--) /* words of the states that are not 0 */
        if ((ok = fread(pair, 8, 2, file) == 2)) m->states[pair[0]] = pair[1];
    if (file) fclose(file);
    if (!ok) bankwise_close(m), m = NULL;
    return m;
}

/* Hand over n accesses, by tick, from those before and from `now` on; 0. Nothing is handed over for
 * -1: a tick too early, no bytes, an address outside; -2: no memory. */
static inline int bankwise_submit(
    bankwise *m, int64_t n, const int64_t *tick, const int64_t *address, const int64_t *size,
    const uint8_t *write, const int64_t *tag)
{
    bankwise_port *p = &m->port;
    int64_t last = m->last > p->now ? m->last : p->now;
    for (int64_t i = 0; i < n; last = tick[i++])
        if (tick[i] < last || tick[i] > INT64_C(1) << 42 || size[i] < 1 || address[i] < 0 ||
            size[i] > p->capacity || address[i] > p->capacity - size[i]) return -1;
    int64_t rest = p->waiting - p->staged, rows = rest + n;
    int64_t **to[] = {&m->tick, &m->address, &m->size, &m->tag};
    const int64_t *from[] = {tick, address, size, tag};
    if (rows > m->rows) {
        uint8_t *bytes = realloc(m->write, (size_t)rows);
        if (!bytes) return -2;
        m->write = bytes;
        for (int i = 0; i < 4; i++)
            if (bankwise_grow(to[i], rows, 1)) return -2;
        m->rows = rows;
    }
    for (int i = 0; n && i < 4; i++) {
        memmove(*to[i], *to[i] + p->staged, 8 * (size_t)rest);
        memcpy(*to[i] + rest, from[i], 8 * (size_t)n);
    }
    for (int64_t i = 0; n && i < rest; i++) m->write[i] = m->write[i + p->staged];
    for (int64_t i = 0; i < n; i++) m->write[rest + i] = write[i] != 0;
    if (n) p->staged = 0, p->waiting = rows, m->last = last;
    return 0;
}

/* Simulate: to tick `to`; to the first completion, at `to` the latest; or until all is complete
 * (`to` does not matter). How many accesses have completed by port.now that were not given before:
 * done_tag[i] at tick done_tick[i] until the next call, by tick where there is one channel or a
 * window. -1: `to` is before `now` or too late; -2: no memory. */
static inline int64_t bankwise_advance(bankwise *m, int64_t to, int64_t how)
{
    bankwise_port *p = &m->port;
    int64_t start = p->now, why = 1, last = 0, held = p->done - m->due;
    int64_t most = held + p->accesses_held + p->waiting - p->staged;
    if (how == BANKWISE_TO_END) to = INT64_C(1) << 43;
    else if (to < start || to > INT64_C(1) << 42) return -1;
    if (held) memmove(m->done_tick, m->done_tick + m->due, 8 * (size_t)held);
    if (held) memmove(m->done_tag, m->done_tag + m->due, 8 * (size_t)held);
    p->done = held, p->settled = 0, m->due = 0;
    if (bankwise_grow(&m->done_tick, most + 1, 1) || bankwise_grow(&m->done_tag, most + 1, 1))
        return -2;
    while (why) {
        if (bankwise_point(m)) return -2;
        why = bankwise_run(p, to, how);
        if (why) p->access_rows *= 2, p->run_rows *= 2;
    }
    for (int64_t i = 0; i < p->done; i++)
        if (m->done_tick[i] > last) last = m->done_tick[i];
    if (how == BANKWISE_TO_END) p->now = last > start ? last : start;
    for (int64_t i = 0; i < p->done; i++)
        if (m->done_tick[i] <= p->now) {
            int64_t at = m->due++, tick = m->done_tick[at], tag = m->done_tag[at];
            m->done_tick[at] = m->done_tick[i], m->done_tag[at] = m->done_tag[i];
            m->done_tick[i] = tick, m->done_tag[i] = tag;
        }
    return m->due;
}

/* A count so far, over all channels: bankwise_count(m, BANKWISE_bytes). */
static inline int64_t bankwise_count(const bankwise *m, int word)
{
    int64_t total = 0;
    for (int64_t i = 0; i < m->port.channels; i++)
        total += m->states[i * BANKWISE_channel_words + word];
    return total;
}
#endif
