/*
 * Entresol's block cache: a fast file or device in front of a slow file, as one range of bytes.
 *
 * A write that returned is seen by every later read. It is durable after an entresol_flush that began after it
 * returned, or when it was asked to be durable itself. After a crash every durable write is read back.
 * docs/OPERATING.md says what is durable where in which mode, docs/SEMANTICS.md what each operation promises.
 *
 * Every function that can fail returns ENTRESOL_OK or another entresol_code; entresol_last_error() has one line of text
 * about it. No function keeps a pointer that it was given after it returned, but for the cache itself.
 *
 * Threads: all functions may be called from several threads at once, with the same cache too, except that
 * entresol_close must be the last call with its cache. One process has a cache open at a time, once.
 *
 * Link with -lentresol_capi.
 */
#ifndef ENTRESOL_H
#define ENTRESOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header: changed when a program must be compiled anew. */
#define ENTRESOL_API_VERSION 1u

/* Version of the library that is linked; it must be ENTRESOL_API_VERSION. */
uint32_t entresol_api_version(void);

/* What a call came to. */
typedef enum entresol_code {
    ENTRESOL_OK = 0,
    ENTRESOL_ARGUMENT = 1,    /* a null pointer, an unknown mode, a range beyond the end, a size that makes no cache */
    ENTRESOL_NOT_FOUND = 2,   /* a file is not there */
    ENTRESOL_IN_USE = 3,      /* another process, or this one, has the cache or the backing store open */
    ENTRESOL_EXISTS = 4,      /* entresol_format: something is there already */
    ENTRESOL_NOT_CACHE = 5,   /* no cache, of another version, of another backing store, or retired after a failure */
    ENTRESOL_DAMAGED = 6,     /* what was durable is not there any more, or the only copy of a page is bad */
    ENTRESOL_POLICY = 7,      /* there is no such policy, it cannot run live, or its options or sizes are wrong */
    ENTRESOL_READ_ONLY = 8,   /* a write or discard in read-only mode */
    ENTRESOL_NO_SPACE = 9,    /* a device or file system is full */
    ENTRESOL_IO = 10,         /* a device or the system failed */
    ENTRESOL_FAULT = 11       /* a fault of the library itself; the cache must be closed */
} entresol_code;

/*
 * One line about the last call of this thread that failed; the empty text before any did. It stays valid until this
 * thread's next call that fails.
 */
const char *entresol_last_error(void);

/* What becomes of writes. */
typedef enum entresol_mode {
    ENTRESOL_WRITE_BACK = 0,    /* they stay in the cache until the policy writes them back */
    ENTRESOL_WRITE_THROUGH = 1, /* they go to the cache and below; the cache can be lost */
    ENTRESOL_WRITE_AROUND = 2,  /* they go below, and to the cache where that has the page */
    ENTRESOL_MODE_READ_ONLY = 3 /* they are refused */
} entresol_mode;

/* How a cache is made. Zeros are the defaults. */
typedef struct entresol_format_options {
    uint64_t size_bytes; /* of the cache; 0: that of the file or device, which must be there */
    uint32_t page_bytes; /* a power of two from 512 to 65536; 0: 4096 */
    uint32_t force;      /* not 0: overwrite what is there, with the dirty pages that only it may have */
} entresol_format_options;

/*
 * Makes a cache of the file or device `cache` for the file `backing`, which must be there and must not be empty. A file
 * that is absent is made, and removed again on failure. `options` may be null.
 */
int entresol_format(const char *cache, const char *backing, const entresol_format_options *options);

/* How a cache is run. Zeros are the defaults. */
typedef struct entresol_open_options {
    const char *policy;    /* NAME or NAME:OPTION=VALUE:... as `entresol policies` lists them; null: reuse, or face-gsc
                            * over a cache of the layout log */
    uint64_t memory_bytes; /* above the cache: the upper tier of a policy that manages two, an LRU pool above any
                            * other; 0: the share that a policy of two tiers has for it, else none */
    uint64_t cache_pages;  /* that the policy may keep; 0: all that there is room for */
    uint32_t mode;         /* an entresol_mode */
    uint32_t reserved;     /* must be 0 */
} entresol_open_options;

/* An open cache. */
typedef struct entresol_cache entresol_cache;

/*
 * Opens a cache and its backing store for this process alone, recovers what a crash left, and puts the cache into
 * `*opened`, which is null after a failure. `options` may be null.
 */
int entresol_open(const char *cache, const char *backing, const entresol_open_options *options,
                  entresol_cache **opened);

/* Size of the backing store, and so of the range of bytes that the cache serves. 0 for a null cache. */
uint64_t entresol_size_bytes(const entresol_cache *cache);

/* Fills `bytes` from `offset` on. Any alignment and length will do; whole pages are cheaper. */
int entresol_read(const entresol_cache *cache, uint64_t offset, void *bytes, size_t length);

/*
 * Writes `bytes` from `offset` on. With `durable` not 0 it is durable when this returns. To a crash, a write of several
 * pages is several writes; after an error pages before the one that failed are written. Nothing may
 * change the bytes before the call returns: their checksum is computed first.
 */
int entresol_write(const entresol_cache *cache, uint64_t offset, const void *bytes, size_t length, int durable);

/* Makes durable every write that returned before. After an error they may be lost. */
int entresol_flush(const entresol_cache *cache);

/* Declares a range no longer needed: its whole pages read as zeros or as they were. */
int entresol_discard(const entresol_cache *cache, uint64_t offset, uint64_t length);

/* Changes the mode. Leaving write-back writes every dirty page below first; on failure the mode stays. */
int entresol_set_mode(const entresol_cache *cache, uint32_t mode);

/* Puts another policy in place of the one that decides; what is cached stays. Text as in entresol_open_options. */
int entresol_set_policy(const entresol_cache *cache, const char *policy);

/* Writes every dirty page below, durably: the backing file is then complete without the cache. */
int entresol_drain(const entresol_cache *cache);

/* Counts since the cache was opened, and its state now. */
typedef struct entresol_stats {
    uint64_t struct_bytes; /* set by the caller to sizeof(entresol_stats) */
    uint64_t page_bytes;
    uint64_t reads; /* of pages, as all counts of requests */
    uint64_t read_hits;
    uint64_t writes;
    uint64_t write_hits;
    uint64_t fetches;
    uint64_t admissions;
    uint64_t write_backs;
    uint64_t bypasses;
    uint64_t dirty_pages; /* durable nowhere but in the cache, or not yet known to be */
    uint64_t lost_pages;  /* whose only copy could not be read: an error until they are written again */
    uint64_t cache_writes;
    uint64_t cache_written_bytes;
    uint64_t cache_syncs;
    uint64_t backing_reads; /* pages */
    uint64_t backing_writes;
    uint64_t backing_written_pages;
    uint64_t backing_syncs;
    uint32_t mode;   /* an entresol_mode */
    uint32_t failed; /* 1: the cache device has failed, and requests go to the backing store */
} entresol_stats;

/* Fills `stats`, of which at most `struct_bytes` are written: a program may be older than the library. */
int entresol_get_stats(const entresol_cache *cache, entresol_stats *stats);

/*
 * Flushes, notes that the cache was left in good order and frees it, whatever is returned. A failure means that a flush
 * would have failed. Null is no cache and no error. What the policy has learned is kept beside the cache's file, in one with
 * the suffix `.learned`, if there were as many requests as it has blocks of 512 bytes: the next open goes on with it. Where
 * that fails, the policy learns anew.
 */
int entresol_close(entresol_cache *cache);

#ifdef __cplusplus
}
#endif

#endif
