/*
 * Copies a file into a cached one, and reads it back through the cache:
 *
 *     copy SOURCE CACHE BACKING
 *
 * BACKING is made as large as SOURCE where it is absent, and CACHE a quarter of that, at least 1 MiB.
 *
 *     cc -I crates/frontends/capi/include crates/frontends/capi/examples/copy.c -L target/release -lentresol_capi -o copy
 */
#include "entresol.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 65536 };

static int complain(const char *doing)
{
    fprintf(stderr, "copy: %s: %s\n", doing, entresol_last_error());
    return EXIT_FAILURE;
}

/* Makes a file of this size if there is none; 0 when it could not be made. */
static int make_file(const char *path, long size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        file = fopen(path, "wb");
        if (file == NULL || fseek(file, size - 1, SEEK_SET) != 0 || fputc(0, file) == EOF) {
            if (file != NULL)
                fclose(file);
            return 0;
        }
    }
    return fclose(file) == 0;
}

/* Writes the source through the cache; the bytes copied, or -1. */
static long copy_in(FILE *source, const entresol_cache *cache)
{
    static unsigned char piece[PIECE];
    long done = 0;
    size_t length;
    while ((length = fread(piece, 1, sizeof piece, source)) > 0) {
        /* Not durable one by one: one flush at the end makes all of them so. */
        if (entresol_write(cache, (uint64_t)done, piece, length, 0) != ENTRESOL_OK)
            return -1;
        done += (long)length;
    }
    return entresol_flush(cache) == ENTRESOL_OK ? done : -1;
}

/* Compares the source with what the cache reads; 1 when they are the same. */
static int compare(FILE *source, const entresol_cache *cache)
{
    static unsigned char piece[PIECE], again[PIECE];
    uint64_t done = 0;
    size_t length;
    rewind(source);
    while ((length = fread(piece, 1, sizeof piece, source)) > 0) {
        if (entresol_read(cache, done, again, length) != ENTRESOL_OK || memcmp(piece, again, length) != 0)
            return 0;
        done += length;
    }
    return 1;
}

int main(int count, char **words)
{
    if (count != 4 || entresol_api_version() != ENTRESOL_API_VERSION) {
        fprintf(stderr, "usage: copy SOURCE CACHE BACKING\n");
        return EXIT_FAILURE;
    }
    FILE *source = fopen(words[1], "rb");
    if (source == NULL || fseek(source, 0, SEEK_END) != 0) {
        fprintf(stderr, "copy: %s cannot be read\n", words[1]);
        return EXIT_FAILURE;
    }
    long size = ftell(source);
    rewind(source);
    if (size <= 0 || !make_file(words[3], size)) {
        fprintf(stderr, "copy: %s is empty, or %s cannot be made\n", words[1], words[3]);
        return EXIT_FAILURE;
    }

    entresol_format_options format = {0};
    format.size_bytes = size / 4 > (1 << 20) ? (uint64_t)size / 4 : 1 << 20;
    int code = entresol_format(words[2], words[3], &format);
    if (code != ENTRESOL_OK && code != ENTRESOL_EXISTS)
        return complain("format");

    entresol_open_options options = {0};
    options.policy = "lru";
    entresol_cache *cache;
    if (entresol_open(words[2], words[3], &options, &cache) != ENTRESOL_OK)
        return complain("open");

    int same = 0;
    long copied = copy_in(source, cache);
    if (copied < 0)
        complain("write");
    else if (!(same = compare(source, cache)))
        complain("read");
    fclose(source);

    entresol_stats stats;
    stats.struct_bytes = sizeof stats;
    if (entresol_get_stats(cache, &stats) == ENTRESOL_OK)
        printf("%ld bytes, %" PRIu64 " page reads, %" PRIu64 " hits, %" PRIu64 " pages dirty\n", copied, stats.reads,
               stats.read_hits, stats.dirty_pages);

    /* Now the backing file is complete without the cache. */
    if (same && entresol_drain(cache) != ENTRESOL_OK)
        same = 0, complain("drain");
    if (entresol_close(cache) != ENTRESOL_OK)
        return complain("close");
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
