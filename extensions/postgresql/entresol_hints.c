/*
 * Tells a cache below the server which tables and indexes a query is going to use, and when it ends: one datagram each over
 * a Unix socket. docs/hints.md describes the messages. Nothing waits for the cache: a datagram that cannot be sent at once,
 * or that nobody takes, is dropped. PostgreSQL 12 to 18.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/guc.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* No datagram is longer, whatever a plan has. */
#define MESSAGE_MAX 8192
/* Queries of one backend that are noted as running: cursors, and functions that run queries of their own. */
#define RUNNING_MAX 64

static char *hint_socket = NULL;
static double hint_min_cost = 0;
static ExecutorStart_hook_type previous_start = NULL;
static ExecutorEnd_hook_type previous_end = NULL;

static int	hint_fd = -1;
static uint32 last_query = 0;
static struct
{
	QueryDesc  *desc;
	uint32		query;
}			running[RUNNING_MAX];
static int	running_count = 0;

typedef struct
{
	char		text[MESSAGE_MAX];
	int			len;
	int			relations;
	bool		full;
}			Message;

static void
send_message(const char *text, int len)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	if (strlen(hint_socket) >= sizeof(to.sun_path))
		return;
	strcpy(to.sun_path, hint_socket);
	if (hint_fd < 0)
	{
		hint_fd = socket(AF_UNIX, SOCK_DGRAM, 0);
		if (hint_fd < 0)
			return;
		(void) fcntl(hint_fd, F_SETFD, FD_CLOEXEC);
	}
	(void) sendto(hint_fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *) &to, sizeof(to));
}

static int
header(char *text, const char *what, uint32 query)
{
	return snprintf(text, MESSAGE_MAX, "entresol-hint 1\n%s %d %u\n", what, MyProcPid, query);
}

/* One line: how the relation is used, and where its files are in the data directory. */
static void
add_relation(Message *message, char how, Relation relation)
{
	char	   *path;
	int			len;

	/* Views, foreign and partitioned tables have no files. */
	if (relation == NULL || !RELKIND_HAS_STORAGE(relation->rd_rel->relkind))
		return;
#if PG_VERSION_NUM >= 180000
	path = pstrdup(relpathbackend(relation->rd_locator, relation->rd_backend, MAIN_FORKNUM).str);
#elif PG_VERSION_NUM >= 160000
	path = relpathbackend(relation->rd_locator, relation->rd_backend, MAIN_FORKNUM);
#else
	path = relpathbackend(relation->rd_node, relation->rd_backend, MAIN_FORKNUM);
#endif
	len = strlen(path) + 3;
	/* Room is left for the line that says that something is missing. */
	if (message->len + len > MESSAGE_MAX - 3)
		message->full = true;
	else
	{
		message->len += sprintf(message->text + message->len, "%c %s\n", how, path);
		message->relations++;
	}
	pfree(path);
}

static bool
walk(PlanState *state, void *context)
{
	Message    *message = context;

	switch (nodeTag(state))
	{
		case T_SeqScanState:
		case T_SampleScanState:
			add_relation(message, 's', ((ScanState *) state)->ss_currentRelation);
			break;
		case T_IndexScanState:
			add_relation(message, 'i', ((IndexScanState *) state)->iss_RelationDesc);
			add_relation(message, 'r', ((ScanState *) state)->ss_currentRelation);
			break;
		case T_IndexOnlyScanState:
			add_relation(message, 'i', ((IndexOnlyScanState *) state)->ioss_RelationDesc);
			add_relation(message, 'r', ((ScanState *) state)->ss_currentRelation);
			break;
		case T_BitmapIndexScanState:
			add_relation(message, 'i', ((BitmapIndexScanState *) state)->biss_RelationDesc);
			break;
		case T_BitmapHeapScanState:
			add_relation(message, 'b', ((ScanState *) state)->ss_currentRelation);
			break;
		case T_TidScanState:
#if PG_VERSION_NUM >= 140000
		case T_TidRangeScanState:
#endif
			add_relation(message, 'r', ((ScanState *) state)->ss_currentRelation);
			break;
		case T_ModifyTableState:
			{
				ModifyTableState *modify = (ModifyTableState *) state;

				/* Of a partitioned table those parts that the plan names. */
				for (ResultRelInfo *target = modify->resultRelInfo;
#if PG_VERSION_NUM >= 140000
					 target < modify->resultRelInfo + modify->mt_nrels;
#else
					 target < modify->resultRelInfo + modify->mt_nplans;
#endif
					 target++)
					add_relation(message, 'w', target->ri_RelationDesc);
				break;
			}
		default:
			break;
	}
	return planstate_tree_walker(state, walk, context);
}

static void
end_query(int at)
{
	char		text[MESSAGE_MAX];

	send_message(text, header(text, "end", running[at].query));
	running[at] = running[--running_count];
}

static void
hints_start(QueryDesc *desc, int flags)
{
	Message		message = {.relations = 0};

	if (previous_start)
		previous_start(desc, flags);
	else
		standard_ExecutorStart(desc, flags);
	/* Without a plan state there is nothing to walk; a parallel worker's leader has told already. */
	if (hint_socket == NULL || hint_socket[0] == '\0' || (flags & EXEC_FLAG_EXPLAIN_ONLY) || desc->planstate == NULL ||
		IsParallelWorker() || running_count == RUNNING_MAX ||
		desc->plannedstmt->planTree->total_cost < hint_min_cost)
		return;
	message.len = header(message.text, "begin", ++last_query);
	message.len += snprintf(message.text + message.len, MESSAGE_MAX / 2, "d %s\n", DataDir);
	walk(desc->planstate, &message);
	if (message.relations == 0)
		return;
	if (message.full)
		message.len += sprintf(message.text + message.len, "+\n");
	running[running_count].desc = desc;
	running[running_count++].query = last_query;
	send_message(message.text, message.len);
}

static void
hints_end(QueryDesc *desc)
{
	for (int at = running_count - 1; at >= 0; at--)
		if (running[at].desc == desc)
		{
			end_query(at);
			break;
		}
	if (previous_end)
		previous_end(desc);
	else
		standard_ExecutorEnd(desc);
}

/* An error ends queries without a word of the executor, and no query outlives its transaction. */
static void
hints_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
		while (running_count > 0)
			end_query(running_count - 1);
}

static bool
check_socket(char **value, void **extra, GucSource source)
{
	if (*value == NULL || strlen(*value) < sizeof(((struct sockaddr_un *) 0)->sun_path))
		return true;
	GUC_check_errdetail("A socket's path has at most %d bytes.", (int) sizeof(((struct sockaddr_un *) 0)->sun_path) - 1);
	return false;
}

void
_PG_init(void)
{
	DefineCustomStringVariable("entresol.hint_socket", "Unix datagram socket of the cache that wants to know of queries.",
							   "Empty: nothing is told.", &hint_socket, "", PGC_SUSET, 0, check_socket, NULL, NULL);
	DefineCustomRealVariable("entresol.hint_min_cost", "Queries whose plans cost less are not told of.",
							 "In the planner's units.", &hint_min_cost, 0, 0, 1e300, PGC_USERSET, 0, NULL, NULL, NULL);
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = hints_start;
	previous_end = ExecutorEnd_hook;
	ExecutorEnd_hook = hints_end;
	RegisterXactCallback(hints_transaction, NULL);
}
