/* Heat in a plate, by ranks of MPI with a band of rows each. It writes a checkpoint every so many steps and goes on from the newest one.
 *
 * heat CHECKPOINTS STEPS EVERY RESULTS
 *   CHECKPOINTS  directory: CHECKPOINTS/STEP/RANK is a rank's band, CHECKPOINTS/newest a link to the newest complete STEP
 *   RESULTS      directory for the bands of the last step, one file a rank
 *
 * It knows nothing of a burst buffer. Each cell is the same sum in the same order, so two runs end with the same bits. */

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 256, COLUMNS = 1024 };

/* The band, with a row of each neighbour. */
static double now[ROWS + 2][COLUMNS], next[ROWS + 2][COLUMNS];
static int rank, ranks;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* Writes the band after a step. Success is that of the close: then the file is stored. */
static void write_band(const char *path, long step)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(&step, sizeof step, 1, file) != 1 || fwrite(now[1], sizeof now[1], ROWS, file) != ROWS)
        fail(path);
    if (fflush(file) || fsync(fileno(file)) || fclose(file))
        fail(path);
}

static void read_band(const char *path, long step)
{
    long of = -1;
    FILE *file = fopen(path, "rb");
    if (!file || fread(&of, sizeof of, 1, file) != 1 || fread(now[1], sizeof now[1], ROWS, file) != ROWS || of != step)
        fail(path);
    fclose(file);
}

/* The step of the newest checkpoint, 0 without one. Rank 0 looks, so that all ranks go on from the same. */
static long newest(const char *checkpoints)
{
    long step = 0;
    if (rank == 0) {
        char path[4096], target[64];
        snprintf(path, sizeof path, "%s/newest", checkpoints);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length > 0) {
            target[length] = 0;
            step = atol(target);
        } else if (errno != ENOENT) {
            fail(path);
        }
    }
    MPI_Bcast(&step, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return step;
}

static void begin(void)
{
    for (long row = 1; row <= ROWS; row++)
        for (long column = 0; column < COLUMNS; column++)
            now[row][column] = (double)((rank * ROWS + row) * 7919 % 1009) + (double)(column * 104729 % 997) / 997.0;
}

static void advance(void)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(now[1], COLUMNS, MPI_DOUBLE, above, 0, now[ROWS + 1], COLUMNS, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
        MPI_STATUS_IGNORE);
    MPI_Sendrecv(now[ROWS], COLUMNS, MPI_DOUBLE, below, 1, now[0], COLUMNS, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
        MPI_STATUS_IGNORE);
    for (int row = 1; row <= ROWS; row++) {
        memcpy(next[row], now[row], sizeof next[row]);
        for (int column = 1; column < COLUMNS - 1; column++)
            next[row][column] = now[row][column]
                + 0.2 * (now[row - 1][column] + now[row + 1][column] + now[row][column - 1] + now[row][column + 1] - 4.0 * now[row][column]);
    }
    memcpy(now[1], next[1], sizeof now[1] * ROWS);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 5) {
        errno = EINVAL;
        fail("heat CHECKPOINTS STEPS EVERY RESULTS");
    }
    const char *checkpoints = words[1], *results = words[4];
    long steps = atol(words[2]), every = atol(words[3]), step = newest(checkpoints);
    char path[4096];
    if (step > 0) {
        snprintf(path, sizeof path, "%s/%ld/%d", checkpoints, step, rank);
        read_band(path, step);
    } else {
        begin();
    }
    if (rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        library[strcspn(library, "\n,")] = 0;
        printf("%s; %d ranks from step %ld\n", library, ranks, step);
        fflush(stdout);
    }
    while (step < steps) {
        advance();
        step++;
        if (step % every == 0 && step < steps) {
            snprintf(path, sizeof path, "%s/%ld", checkpoints, step);
            if (mkdir(path, 0777) && errno != EEXIST)
                fail(path);
            snprintf(path, sizeof path, "%s/%ld/%d", checkpoints, step, rank);
            write_band(path, step);
        }
    }
    snprintf(path, sizeof path, "%s/%d", results, rank);
    write_band(path, step);
    MPI_Finalize();
    return 0;
}
