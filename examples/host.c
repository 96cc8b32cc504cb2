/* How fast does a memory serve random reads, so many at once? A C program that drives it.
 * Prints ticks a read, bytes a tick and row hits.
 *
 *     python -c 'import bankwise; bankwise.write_c_host("lpddr5-6400-x16", "c")'
 *     cc -O2 -I c examples/host.c c/bankwise.o -o host && ./host c/lpddr5-6400-x16.image 16
 */
#include "bankwise.h"

#define READS 20000

static uint64_t state = 1;

static int64_t random_line(int64_t lines)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(state >> 33) % lines;
}

int main(int argc, char **argv)
{
    int64_t at_once = argc > 2 ? atoi(argv[2]) : 16;
    bankwise *memory = argc > 1 ? bankwise_open(argv[1]) : NULL;
    if (!memory) {
        fprintf(stderr, "usage: host IMAGE [READS AT ONCE]\n");
        return 2;
    }
    static int64_t begun[READS];
    int64_t submitted = 0, done = 0, waited = 0, completed = at_once;
    while (done < READS) {
        for (int64_t i = 0; i < completed && submitted < READS; i++, submitted++) {
            int64_t size = 64, address = size * random_line(memory->port.capacity / size);
            uint8_t write = 0;
            begun[submitted] = memory->port.now;
            if (bankwise_submit(memory, 1, &begun[submitted], &address, &size, &write, &submitted))
                return 1;
        }
        completed = bankwise_advance(memory, memory->port.now + 1000000, BANKWISE_TO_COMPLETION);
        if (completed < 0) return 1;
        for (int64_t i = 0; i < completed; i++, done++)
            waited += memory->done_tick[i] - begun[memory->done_tag[i]];
    }
    printf("%.3f ticks a read, %.3f bytes a tick, %lld hits\n", (double)waited / READS,
           (double)bankwise_count(memory, BANKWISE_bytes) / (double)memory->port.now,
           (long long)bankwise_count(memory, BANKWISE_hits));
    bankwise_close(memory);
    return 0;
}
