/*
 * Writes, reads, discards and replaces checkpoints as two nodes, and looks at the errors. Every step is checked.
 *
 *     checkpoints COORDINATOR PFS
 */
#include "entresol_burst.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB 7
#define STATE_BYTES (20u * 1024 * 1024 + 17)

/* Ends the program if a call has another result. */
#define IS(code, call) is(code, call, #call, __LINE__)
/* Ends the program if a condition is false. */
#define CHECK(condition) is(1, condition, #condition, __LINE__)

static void is(int expected, int result, const char *what, int line)
{
    if (expected != result) {
        fprintf(stderr, "line %d: %s: %d, not %d: %s\n", line, what, result, expected, entresol_burst_last_error());
        exit(EXIT_FAILURE);
    }
}

static unsigned char byte_at(size_t at)
{
    return (unsigned char)((at * 31) >> 7);
}

/* The file "state" in parts of odd lengths. */
static void write_state(entresol_burst_writer *writer)
{
    unsigned char *bytes = malloc(STATE_BYTES);
    CHECK(bytes != NULL);
    for (size_t at = 0; at < STATE_BYTES; at++)
        bytes[at] = byte_at(at);
    for (size_t at = 0, length = 1; at < STATE_BYTES; at += length, length = length * 3 + 1) {
        if (length > STATE_BYTES - at)
            length = STATE_BYTES - at;
        IS(ENTRESOL_BURST_OK, entresol_burst_write(writer, at, bytes + at, length));
    }
    free(bytes);
}

static void read_state(const entresol_burst_client *client)
{
    entresol_burst_reader *reader;
    IS(ENTRESOL_BURST_OK, entresol_burst_open_reader(client, JOB, 1, "state", &reader));
    CHECK(entresol_burst_length(reader) == STATE_BYTES);
    unsigned char *bytes = malloc(STATE_BYTES);
    CHECK(bytes != NULL);
    IS(ENTRESOL_BURST_OK, entresol_burst_read(reader, 0, bytes, STATE_BYTES));
    for (size_t at = 0; at < STATE_BYTES; at++)
        CHECK(bytes[at] == byte_at(at));
    IS(ENTRESOL_BURST_OK, entresol_burst_read(reader, STATE_BYTES - 5, bytes, 5));
    CHECK(bytes[4] == byte_at(STATE_BYTES - 1));
    IS(ENTRESOL_BURST_OK, entresol_burst_read(reader, STATE_BYTES, NULL, 0));
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_read(reader, STATE_BYTES - 5, bytes, 6));
    CHECK(strstr(entresol_burst_last_error(), "beyond the end at 20971537") != NULL);
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_read(reader, UINT64_MAX, bytes, 2));
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_read(reader, 0, NULL, 1));
    free(bytes);
    entresol_burst_close_reader(reader);
}

static void files(entresol_burst_client *a, const entresol_burst_client *b)
{
    uint64_t newest = 99;
    IS(ENTRESOL_BURST_NOT_FOUND, entresol_burst_newest(a, JOB, &newest));
    CHECK(newest == 99 && strcmp(entresol_burst_last_error(), "job 7 has no complete checkpoint") == 0);

    entresol_burst_writer *writer;
    entresol_burst_reader *reader;
    uint32_t level = 0;
    IS(ENTRESOL_BURST_OK, entresol_burst_open_writer(a, JOB, 1, 2, "state", 0, &writer));
    write_state(writer);
    IS(ENTRESOL_BURST_NOT_FOUND, entresol_burst_open_reader(b, JOB, 1, "state", &reader));
    CHECK(reader == NULL && strcmp(entresol_burst_last_error(), "no committed file of this name") == 0);
    IS(ENTRESOL_BURST_OK, entresol_burst_commit(writer, &level));
    CHECK(level == ENTRESOL_BURST_REPLICATED);
    entresol_burst_close_writer(writer);
    read_state(a);
    read_state(b);

    /* A file that is closed without a commit is none. */
    IS(ENTRESOL_BURST_OK, entresol_burst_open_writer(a, JOB, 1, 2, "other", 0, &writer));
    IS(ENTRESOL_BURST_OK, entresol_burst_write(writer, 0, "discarded", 9));
    entresol_burst_close_writer(writer);
    IS(ENTRESOL_BURST_NOT_FOUND, entresol_burst_open_reader(b, JOB, 1, "other", &reader));
    IS(ENTRESOL_BURST_NOT_FOUND, entresol_burst_newest(b, JOB, &newest));

    IS(ENTRESOL_BURST_LIMIT, entresol_burst_open_writer(a, JOB, 1, 2, "third", 0, &writer));
    CHECK(writer == NULL);
    IS(ENTRESOL_BURST_EXISTS, entresol_burst_open_writer(a, JOB, 1, 2, "state", 0, &writer));
    CHECK(strcmp(entresol_burst_last_error(), "the file is committed; replace writes it anew") == 0);

    /* What is written after a commit counts from the next one. */
    IS(ENTRESOL_BURST_OK, entresol_burst_open_writer(a, JOB, 1, 2, "other", 0, &writer));
    IS(ENTRESOL_BURST_OK, entresol_burst_write(writer, 0, "first", 5));
    IS(ENTRESOL_BURST_OK, entresol_burst_commit(writer, NULL));
    IS(ENTRESOL_BURST_OK, entresol_burst_open_reader(b, JOB, 1, "other", &reader));
    IS(ENTRESOL_BURST_OK, entresol_burst_newest(b, JOB, &newest));
    CHECK(newest == 1);
    IS(ENTRESOL_BURST_OK, entresol_burst_write(writer, 8, "second", 6));
    CHECK(entresol_burst_length(reader) == 5);
    IS(ENTRESOL_BURST_OK, entresol_burst_commit(writer, NULL));
    IS(ENTRESOL_BURST_OK, entresol_burst_write(writer, 14, "third", 5));
    entresol_burst_close_writer(writer);
    char text[14];
    IS(ENTRESOL_BURST_OK, entresol_burst_read(reader, 0, text, 5));
    CHECK(memcmp(text, "first", 5) == 0);
    entresol_burst_close_reader(reader);
    IS(ENTRESOL_BURST_OK, entresol_burst_open_reader(b, JOB, 1, "other", &reader));
    CHECK(entresol_burst_length(reader) == 14);
    IS(ENTRESOL_BURST_OK, entresol_burst_read(reader, 0, text, 14));
    CHECK(memcmp(text, "first\0\0\0second", 14) == 0);
    entresol_burst_close_reader(reader);

    /* Of two who replace a file the second one counts. */
    entresol_burst_writer *stale;
    IS(ENTRESOL_BURST_OK, entresol_burst_open_writer(a, JOB, 1, 2, "other", 1, &stale));
    IS(ENTRESOL_BURST_OK, entresol_burst_open_writer(b, JOB, 1, 2, "other", 1, &writer));
    IS(ENTRESOL_BURST_OK, entresol_burst_write(stale, 0, "stale", 5));
    IS(ENTRESOL_BURST_OK, entresol_burst_commit(writer, &level));
    IS(ENTRESOL_BURST_STALE, entresol_burst_commit(stale, &level));
    entresol_burst_close_writer(stale);
    entresol_burst_close_writer(writer);
    IS(ENTRESOL_BURST_OK, entresol_burst_open_reader(a, JOB, 1, "other", &reader));
    CHECK(entresol_burst_length(reader) == 0);
    entresol_burst_close_reader(reader);

    const char *names[] = {"", ".", "..", "a/b"};
    for (size_t name = 0; name < sizeof names / sizeof *names; name++) {
        IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_open_writer(a, JOB, 3, 1, names[name], 0, &writer));
        CHECK(strstr(entresol_burst_last_error(), "is no name of a file") != NULL);
    }
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_open_writer(a, JOB, 3, 0, "state", 0, &writer));
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_restore(a, JOB, 1, 0, text, sizeof text, NULL));
}

static void ranks(const entresol_burst_client *a, const entresol_burst_client *b)
{
    uint32_t level = 0;
    uint64_t length = 0;
    char text[8];
    IS(ENTRESOL_BURST_OK, entresol_burst_put(a, JOB, 2, 0, 2, "rank 0", 6, &level));
    CHECK(level == ENTRESOL_BURST_REPLICATED);
    IS(ENTRESOL_BURST_NOT_FOUND, entresol_burst_restore(b, JOB, 2, 0, text, sizeof text, &length));
    IS(ENTRESOL_BURST_OK, entresol_burst_put(b, JOB, 2, 1, 2, NULL, 0, NULL));
    IS(ENTRESOL_BURST_SHORT, entresol_burst_restore(b, JOB, 2, 0, NULL, 0, &length));
    CHECK(length == 6 && strcmp(entresol_burst_last_error(), "the rank has 6 bytes, the memory 0") == 0);
    IS(ENTRESOL_BURST_SHORT, entresol_burst_restore(b, JOB, 2, 0, text, 5, NULL));
    IS(ENTRESOL_BURST_OK, entresol_burst_restore(b, JOB, 2, 0, text, sizeof text, &length));
    CHECK(length == 6 && memcmp(text, "rank 0", 6) == 0);
    IS(ENTRESOL_BURST_OK, entresol_burst_restore(a, JOB, 2, 1, text, sizeof text, &length));
    CHECK(length == 0);
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_restore(a, JOB, 2, 2, text, sizeof text, &length));
    IS(ENTRESOL_BURST_ARGUMENT, entresol_burst_put(a, JOB, 2, 2, 2, "", 0, NULL));
    uint64_t newest;
    IS(ENTRESOL_BURST_OK, entresol_burst_newest(a, JOB, &newest));
    CHECK(newest == 2);
}

int main(int count, char **words)
{
    CHECK(count == 3 && entresol_burst_api_version() == ENTRESOL_BURST_API_VERSION);
    CHECK(strcmp(entresol_burst_last_error(), "") == 0);
    entresol_burst_client *a, *b;
    IS(ENTRESOL_BURST_OK, entresol_burst_open_client(words[1], words[2], 0, NULL, &a));
    IS(ENTRESOL_BURST_OK, entresol_burst_open_client(words[1], words[2], 1, NULL, &b));
    files(a, b);
    ranks(a, b);

    /* A writer outlives its client. */
    entresol_burst_writer *writer;
    uint32_t level = 0;
    IS(ENTRESOL_BURST_OK, entresol_burst_open_writer(a, JOB, 4, 1, "state", 0, &writer));
    entresol_burst_close_client(a);
    IS(ENTRESOL_BURST_OK, entresol_burst_write(writer, 0, "state", 5));
    IS(ENTRESOL_BURST_OK, entresol_burst_commit(writer, &level));
    CHECK(level == ENTRESOL_BURST_REPLICATED);
    entresol_burst_close_writer(writer);
    entresol_burst_close_client(b);
    return EXIT_SUCCESS;
}
