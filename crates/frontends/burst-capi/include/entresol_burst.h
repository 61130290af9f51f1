/*
 * Checkpoints of a program in Entresol's burst buffer: in memory beside the compute nodes first, and on the parallel
 * file system (PFS) later.
 *
 * A job has checkpoints by number, and a checkpoint has either files or ranks without files. A job numbers each
 * checkpoint once. docs/burst.md says what is promised.
 *
 * Results: every function that can fail returns ENTRESOL_BURST_OK or another entresol_burst_code, and
 * entresol_burst_last_error() has one line of text about it. Lengths, offsets and capacities are in bytes. A call may
 * wait: up to ten seconds for buffers that do not answer, and as long as the PFS takes.
 *
 * Memory: no function keeps a pointer after it returned, but for clients, writers and readers. Nobody may change memory
 * that a call reads, or use memory that it fills, before it returns.
 *
 * Threads: all functions may be called from several threads at once, with the same client, writer or reader too; calls
 * with one writer, or with one reader, take turns. The call that closes one must be the last with it. A client may be
 * closed before its writers and readers. After fork() a child opens a client of its own, and does not use or close its
 * parent's.
 *
 * Link with -lentresol_burst_capi.
 */
#ifndef ENTRESOL_BURST_H
#define ENTRESOL_BURST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header: changed when a program must be compiled anew. */
#define ENTRESOL_BURST_API_VERSION 1u

/* Version of the library that is linked; it must be ENTRESOL_BURST_API_VERSION. */
uint32_t entresol_burst_api_version(void);

/* Result of a call. */
typedef enum entresol_burst_code {
    ENTRESOL_BURST_OK = 0,
    ENTRESOL_BURST_ARGUMENT = 1,    /* a null pointer, a text that is no name, a range or rank beyond the end, a
                                     * directory that is not that of the nodes, a ticket that is none */
    ENTRESOL_BURST_NOT_FOUND = 2,   /* no committed file of this name, no complete checkpoint; no directory, no ticket */
    ENTRESOL_BURST_EXISTS = 3,      /* the file is committed, and replace is 0 */
    ENTRESOL_BURST_STALE = 4,       /* the file was opened for writing again since: this writer cannot commit it */
    ENTRESOL_BURST_LIMIT = 5,       /* the checkpoint has its files; 64 openings of a file; too many pieces */
    ENTRESOL_BURST_SHORT = 6,       /* the memory is shorter than the bytes */
    ENTRESOL_BURST_NOT_STORED = 7,  /* neither a buffer nor the PFS takes the bytes; the call may be repeated */
    ENTRESOL_BURST_DAMAGED = 8,     /* no source has a part of the bytes with its checksum */
    ENTRESOL_BURST_UNAVAILABLE = 9, /* the coordinator or a node does not answer, or refuses, as without a ticket */
    ENTRESOL_BURST_IO = 10,         /* the PFS or the system failed */
    ENTRESOL_BURST_FAULT = 11       /* a fault of the library itself; what was used in the call is to be closed */
} entresol_burst_code;

/*
 * One line about the last call of this thread that failed; the empty text before any did. It stays valid until this
 * thread's next call that fails, or its end.
 */
const char *entresol_burst_last_error(void);

/* Safety of stored bytes when they were acknowledged: that of the weakest part. */
typedef enum entresol_burst_level {
    ENTRESOL_BURST_ABSORBED = 1,   /* in the memory of one node: its loss loses them */
    ENTRESOL_BURST_REPLICATED = 2, /* in the memory of two nodes */
    ENTRESOL_BURST_DURABLE = 3     /* on the PFS */
} entresol_burst_level;

/* A writer and reader of checkpoints. */
typedef struct entresol_burst_client entresol_burst_client;

/*
 * Opens a client, which is null after a failure. Nothing is asked before it is used.
 *
 * coordinator: ADDRESS:PORT. Null: bytes go to the PFS, and are read there alone.
 * pfs: the directory on the PFS, the same one on every node.
 * node: number of the node on which this process runs.
 * ticket: path of the file with the job's ticket, where the cluster has a key. Null: the one that the environment
 *   variable ENTRESOL_BURST_TICKET names; if that is not set, none.
 */
int entresol_burst_open_client(const char *coordinator, const char *pfs, uint32_t node, const char *ticket,
                               entresol_burst_client **client);

/* Frees a client. Null is none. */
void entresol_burst_close_client(entresol_burst_client *client);

/*
 * Puts the number of the newest complete checkpoint of a job into `*checkpoint`, of files or of ranks;
 * ENTRESOL_BURST_NOT_FOUND if there is none.
 */
int entresol_burst_newest(const entresol_burst_client *client, uint64_t job, uint64_t *checkpoint);

/*
 * Stores the bytes of one rank, below `ranks`, of a checkpoint that has no files. The checkpoint is complete when all its
 * ranks are stored. `level` may be null; else an entresol_burst_level is put there.
 */
int entresol_burst_put(const entresol_burst_client *client, uint64_t job, uint64_t checkpoint, uint32_t rank,
                       uint32_t ranks, const void *bytes, size_t length, uint32_t *level);

/*
 * Reads the bytes of one rank of a complete checkpoint of ranks, and puts their number into `*length`, which may be null.
 * ENTRESOL_BURST_SHORT if they are more than `capacity`: `*length` is set then, and nothing is read, so that a capacity
 * of 0 asks for the length. Up to `capacity` bytes may have changed, after an error too. All ranks must restore the same
 * checkpoint: let one ask for the newest, and tell the others.
 */
int entresol_burst_restore(const entresol_burst_client *client, uint64_t job, uint64_t checkpoint, uint32_t rank,
                           void *bytes, size_t capacity, uint64_t *length);

/* A file of a checkpoint that is written. At most 32 MiB of it are in this process. */
typedef struct entresol_burst_writer entresol_burst_writer;

/*
 * Opens a file of a checkpoint for writing; the writer is null after a failure. The checkpoint is complete when `files`
 * files are committed; all who write it give the same number. `name` has 1 to 255 bytes and no '/'.
 * With `replace` not 0 a committed file is written anew; its former version stays until the new one is committed.
 */
int entresol_burst_open_writer(const entresol_burst_client *client, uint64_t job, uint64_t checkpoint, uint32_t files,
                               const char *name, int replace, entresol_burst_writer **writer);

/*
 * Writes a range. Ranges that continue each other are cheapest: bytes are stored by 16 MiB, or by less after a jump. The
 * length of the file is the end of its last byte, and bytes that were not written are zero. ENTRESOL_BURST_NOT_STORED may
 * be that of an earlier range: what was written is kept, and the call may be repeated.
 */
int entresol_burst_write(entresol_burst_writer *writer, uint64_t offset, const void *bytes, size_t length);

/*
 * Stores what is left and commits the file: every reader that is opened afterwards sees it. `level` may be null; else the
 * entresol_burst_level of the whole file is put there. After an error the file is not committed: commit it again, or
 * close it. More may be written after a commit, and counts from the next one.
 */
int entresol_burst_commit(entresol_burst_writer *writer, uint32_t *level);

/*
 * Frees a writer. All that was written since its last commit is discarded: nobody sees it. Its process's end does the
 * same. Null is none.
 */
void entresol_burst_close_writer(entresol_burst_writer *writer);

/* A committed file that is read. It stays the version that was opened. */
typedef struct entresol_burst_reader entresol_burst_reader;

/* Opens a committed file; the reader is null after a failure. */
int entresol_burst_open_reader(const entresol_burst_client *client, uint64_t job, uint64_t checkpoint, const char *name,
                               entresol_burst_reader **reader);

/* Length of the file in bytes. 0 for a null reader. */
uint64_t entresol_burst_length(const entresol_burst_reader *reader);

/*
 * Fills `bytes` from `offset` on. Every chunk of 1 MiB comes from the nearest source that has it with its checksum: the
 * memory of this node, that of others, or the PFS. ENTRESOL_BURST_ARGUMENT if the range ends beyond the file.
 */
int entresol_burst_read(entresol_burst_reader *reader, uint64_t offset, void *bytes, size_t length);

/* Frees a reader. Null is none. */
void entresol_burst_close_reader(entresol_burst_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
