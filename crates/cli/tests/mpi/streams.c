/* A program for each rank of MPI, and TCP streams between these programs that MPI messages carry.
 *
 * streams NODE PORT SCRIPT
 *   NODE    ranks of a node
 *   PORT    in the network of each rank's program, port PORT + N of 127.0.0.1 is the program of rank N
 *   SCRIPT  `sh SCRIPT RANK RANKS` is the program of a rank
 *
 * Ranks have the order of chapter 5 of the thesis: rank 0 coordinates, the last rank of a node is its burst buffer, all others write. When the
 * programs of all writers have ended those of the buffers are terminated, and then that of rank 0. Each program is in a network of its own, which
 * has a loopback and nothing else (root alone may make one): what leaves a rank is an MPI message.
 *
 * No call waits for another rank between MPI_Init and MPI_Finalize. A rank that does not take a message within ten seconds is given up: its
 * streams are closed, as those of a lost host are. A stream that one side closes is closed for both. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, WINDOW = 8, RANKS_MAX = 64, STREAMS_MAX = 256, IDLE_MS = 1 };
static const double DEADLINE = 10.0;

enum kind { OPEN, DATA, TAKEN, CLOSE, DONE, KINDS };
enum role { COORDINATOR, BUFFER, WRITER, ROLES };

struct head {
    uint32_t kind, opener;
    uint64_t number;
};

/* A message: what is sent, or has come and is not written to its socket yet. */
struct message {
    struct message *next;
    MPI_Request request;
    double since;
    int peer;
    size_t length, written;
    struct head head;
    char bytes[];
};

/* A stream between the program here and that of a peer. The peer knows it by the rank that opened it, and the number that this rank gave it. */
struct stream {
    int socket, peer, not_taken, ended;
    uint32_t opener;
    uint64_t number;
    struct message *first, **last;
};

static int rank, ranks, of_node, port;
static int listeners[RANKS_MAX], done[RANKS_MAX], lost[RANKS_MAX];
static struct stream *streams[STREAMS_MAX];
static int stream_count;
static struct message *sending, *receiving[RANKS_MAX];
static unsigned long long messages_sent, bytes_sent[ROLES];

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static enum role role_of(int of)
{
    return of == 0 ? COORDINATOR : of % of_node == of_node - 1 ? BUFFER : WRITER;
}

static struct message *new_message(size_t length)
{
    struct message *message = calloc(1, sizeof *message + length);
    if (!message)
        fail("memory");
    message->length = length;
    return message;
}

static struct sockaddr_in address_of(int of)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)(port + of)) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* Sends a message, or drops it if the peer is lost. */
static void send_message(int peer, struct head head, struct message *message)
{
    if (!message)
        message = new_message(0);
    message->head = head;
    message->peer = peer;
    message->since = MPI_Wtime();
    if (lost[peer]) {
        free(message);
        return;
    }
    MPI_Isend(&message->head, (int)(sizeof head + message->length), MPI_BYTE, peer, 0, MPI_COMM_WORLD, &message->request);
    messages_sent++;
    bytes_sent[role_of(peer)] += message->length;
    message->next = sending;
    sending = message;
}

static void send_of(struct stream *stream, enum kind kind, struct message *message)
{
    send_message(stream->peer, (struct head) { kind, stream->opener, stream->number }, message);
}

/* Takes a stream whose socket is open. */
static void add_stream(int socket, int peer, uint32_t opener, uint64_t number)
{
    int on = 1;
    if (stream_count == STREAMS_MAX) {
        close(socket);
        return;
    }
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        fail("memory");
    *stream = (struct stream) { .socket = socket, .peer = peer, .opener = opener, .number = number };
    stream->last = &stream->first;
    streams[stream_count++] = stream;
}

static void close_stream(int at)
{
    struct stream *stream = streams[at];
    if (!stream->ended)
        send_of(stream, CLOSE, NULL);
    close(stream->socket);
    while (stream->first) {
        struct message *message = stream->first;
        stream->first = message->next;
        free(message);
    }
    free(stream);
    streams[at] = streams[--stream_count];
}

static void lose(int peer)
{
    fprintf(stderr, "rank %d: rank %d takes no messages\n", rank, peer);
    lost[peer] = done[peer] = 1;
    for (int at = stream_count - 1; at >= 0; at--)
        if (streams[at]->peer == peer)
            close_stream(at);
}

/* Writes what has come for a stream. False if the stream is to be closed. */
static int write_out(struct stream *stream)
{
    while (stream->first) {
        struct message *message = stream->first;
        ssize_t count = send(stream->socket, message->bytes + message->written, message->length - message->written, MSG_NOSIGNAL);
        if (count < 0)
            return errno == EAGAIN || errno == ENOTCONN || errno == EINTR;
        message->written += (size_t)count;
        if (message->written < message->length)
            continue;
        stream->first = message->next;
        if (!stream->first)
            stream->last = &stream->first;
        free(message);
        if (!stream->ended)
            send_of(stream, TAKEN, NULL);
    }
    return !stream->ended;
}

/* Sends what the program has written to a stream. False if the stream is to be closed. */
static int read_in(struct stream *stream)
{
    while (stream->not_taken < WINDOW && !stream->ended) {
        struct message *message = new_message(CHUNK);
        ssize_t count = recv(stream->socket, message->bytes, CHUNK, 0);
        if (count <= 0) {
            free(message);
            return count < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINTR);
        }
        message->length = (size_t)count;
        stream->not_taken++;
        send_of(stream, DATA, message);
    }
    return 1;
}

static void open_stream(int peer, struct head head)
{
    struct sockaddr_in address = address_of(rank);
    int socket_here = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_here < 0)
        fail("socket");
    /* A refusal shows at the first read. */
    if (connect(socket_here, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) {
        close(socket_here);
        send_message(peer, (struct head) { CLOSE, head.opener, head.number }, NULL);
        return;
    }
    add_stream(socket_here, peer, head.opener, head.number);
}

/* Obeys a message, and keeps or frees it. */
static void obey(int peer, struct message *message)
{
    struct head head = message->head;
    int at = 0;
    if (head.kind == DONE)
        done[peer] = 1;
    else if (head.kind == OPEN)
        open_stream(peer, head);
    else
        while (at < stream_count
            && (streams[at]->peer != peer || streams[at]->opener != head.opener || streams[at]->number != head.number))
            at++;
    /* What comes for a stream that was closed here is of no use. */
    if (head.kind == DONE || head.kind == OPEN || at == stream_count) {
        free(message);
        return;
    }
    struct stream *stream = streams[at];
    if (head.kind == DATA) {
        message->next = NULL;
        *stream->last = message;
        stream->last = &message->next;
    } else {
        stream->not_taken -= head.kind == TAKEN;
        stream->ended |= head.kind == CLOSE;
        free(message);
    }
    if (!write_out(stream))
        close_stream(at);
}

/* Takes what has come, and frees what was taken. Returns the number of messages. */
static int progress(void)
{
    int moved = 0, there;
    for (int peer = 0; peer < ranks; peer++) {
        /* One at a time from each rank: they are obeyed in their order. */
        for (;;) {
            if (!receiving[peer]) {
                MPI_Message matched;
                MPI_Status status;
                int length;
                MPI_Improbe(peer, 0, MPI_COMM_WORLD, &there, &matched, &status);
                if (!there)
                    break;
                MPI_Get_count(&status, MPI_BYTE, &length);
                struct message *message = receiving[peer] = new_message((size_t)length - sizeof message->head);
                MPI_Imrecv(&message->head, length, MPI_BYTE, &matched, &message->request);
            }
            MPI_Test(&receiving[peer]->request, &there, MPI_STATUS_IGNORE);
            if (!there)
                break;
            struct message *message = receiving[peer];
            receiving[peer] = NULL;
            moved++;
            obey(peer, message);
        }
    }
    int silent[RANKS_MAX] = { 0 };
    for (struct message **at = &sending; *at;) {
        struct message *message = *at;
        MPI_Test(&message->request, &there, MPI_STATUS_IGNORE);
        if (there || lost[message->peer]) {
            /* Of a lost rank the request may still use the memory, which is left to it. */
            *at = message->next;
            moved++;
            if (there)
                free(message);
            continue;
        }
        silent[message->peer] |= MPI_Wtime() - message->since > DEADLINE;
        at = &message->next;
    }
    for (int peer = 0; peer < ranks; peer++)
        if (silent[peer] && !lost[peer])
            lose(peer);
    return moved;
}

/* Makes a network for this process and its program, in which this process listens for all other ranks. */
static void make_network(void)
{
    struct ifreq loopback = { .ifr_name = "lo" };
    if (unshare(CLONE_NEWNET))
        fail("a network of its own");
    int control = socket(AF_INET, SOCK_DGRAM, 0);
    if (control < 0 || ioctl(control, SIOCGIFFLAGS, &loopback))
        fail("the loopback");
    loopback.ifr_flags |= IFF_UP;
    if (ioctl(control, SIOCSIFFLAGS, &loopback))
        fail("the loopback");
    close(control);
    for (int peer = 0; peer < ranks; peer++) {
        struct sockaddr_in address = address_of(peer);
        listeners[peer] = -1;
        if (peer == rank)
            continue;
        listeners[peer] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (bind(listeners[peer], (struct sockaddr *)&address, sizeof address) || listen(listeners[peer], 64))
            fail("listening");
    }
}

static pid_t start(const char *script)
{
    char own[16], all[16];
    snprintf(own, sizeof own, "%d", rank);
    snprintf(all, sizeof all, "%d", ranks);
    pid_t program = fork();
    if (program < 0)
        fail("fork");
    if (program == 0) {
        setpgid(0, 0);
        execlp("sh", "sh", script, own, all, (char *)NULL);
        _exit(127);
    }
    return program;
}

/* True if the programs of all ranks of the roles behind one have ended. */
static int are_done(enum role behind)
{
    for (int peer = 0; peer < ranks; peer++)
        if (role_of(peer) > behind && !done[peer])
            return 0;
    return 1;
}

/* Moves bytes between sockets and messages until the programs of all ranks have ended. Returns the status of the program here. */
static int serve(pid_t program)
{
    uint64_t next = 0;
    int status = 0, terminated = 0, all = 0;
    while (!all || sending) {
        struct pollfd polled[RANKS_MAX + STREAMS_MAX];
        int idle = progress() == 0, count = stream_count;
        for (int peer = 0; peer < ranks; peer++)
            polled[peer] = (struct pollfd) { .fd = listeners[peer], .events = POLLIN };
        for (int at = 0; at < count; at++) {
            int reads = streams[at]->not_taken < WINDOW && !streams[at]->ended, writes = streams[at]->first != NULL;
            polled[ranks + at] = (struct pollfd) { .fd = streams[at]->socket, .events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0) };
        }
        poll(polled, (nfds_t)(ranks + count), idle ? IDLE_MS : 0);
        /* From the last on: one that is closed gives its place to the last. */
        for (int at = count - 1; at >= 0; at--)
            if (polled[ranks + at].revents && !(write_out(streams[at]) && read_in(streams[at])))
                close_stream(at);
        for (int peer = 0; peer < ranks; peer++) {
            int socket_here = polled[peer].revents ? accept4(listeners[peer], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
            if (socket_here < 0)
                continue;
            if (lost[peer]) {
                close(socket_here);
                continue;
            }
            send_message(peer, (struct head) { OPEN, (uint32_t)rank, next }, NULL);
            add_stream(socket_here, peer, (uint32_t)rank, next++);
        }
        if (!done[rank] && waitpid(program, &status, WNOHANG) == program) {
            done[rank] = 1;
            for (int peer = 0; peer < ranks; peer++)
                if (peer != rank)
                    send_message(peer, (struct head) { DONE, (uint32_t)rank, 0 }, NULL);
        }
        if (!done[rank] && !terminated && role_of(rank) != WRITER && are_done(role_of(rank))) {
            terminated = 1;
            kill(-program, SIGTERM);
        }
        all = done[COORDINATOR] && are_done(COORDINATOR);
    }
    return status;
}

int main(int count, char **words)
{
    int given;
    MPI_Init_thread(&count, &words, MPI_THREAD_SINGLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 4 || ranks > RANKS_MAX || atoi(words[1]) < 2 || ranks % atoi(words[1]) != 0) {
        errno = EINVAL;
        fail("streams NODE PORT SCRIPT");
    }
    of_node = atoi(words[1]);
    port = atoi(words[2]);
    if (rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        library[strcspn(library, "\n,")] = 0;
        printf("%s\n", library);
    }
    make_network();
    int status = serve(start(words[3]));
    printf("rank %d: %llu messages, %llu bytes to the coordinator, %llu to buffers, %llu to writers; ", rank, messages_sent,
        bytes_sent[COORDINATOR], bytes_sent[BUFFER], bytes_sent[WRITER]);
    if (WIFSIGNALED(status))
        printf("ended by signal %d\n", WTERMSIG(status));
    else
        printf("exit code %d\n", WEXITSTATUS(status));
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
