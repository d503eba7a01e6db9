/* One bucket after another, decision by decision: what `aggregator.core.fairness.replay` does in Python, without the interpreter.
 *
 * Works on contiguous arrays through the buffer protocol and lets other threads run meanwhile. Must stay the same to the
 * last bit as the Python beside it: only + - * / on doubles, in the same order, never fused (-ffp-contract=off).
 */
#include "../_arrays.h"
#include "../_module.h"

#include <float.h>
#include <math.h>

#if FLT_EVAL_METHOD != 0
#error "doubles are kept wider than they are stored here: the Python replay is the exact one"
#endif

#define MICRO 1000000.0
#define ROUNDING 0.001
#define MINUTE_US INT64_C(60000000)
#define SECOND_US INT64_C(1000000)
#define DEGRADED 2
/* The year 2100: what no time in the record passes. */
#define END_OF_TIME 4102444800000000.0

/* The columns of `Levels`, `Marks` and `Counts` in aggregator/core/fairness/layout.py, in their order. */
enum { EXACT, REAL, POLICED, RATE, BURST, MOST_BURST, REMAINDERS, ALONE, DRIFT, LEVELS };
enum { EXCESS = LEVELS, EPSILON, ROW_LEVELS };
enum { AT, RETRY_UNTIL, CHANGED, FULL_AT, MARKS };
enum {
    GROUP = MARKS, MINUTE, OFFERED, ADMITTED, REFUSED, WRONGFUL, DISPLACED, OVER, EARLY, BUSIEST, BUSIEST_AT, K,
    COST_ADMITTED, LARGEST_COST, ROW_COUNTS
};
enum { F_EXACT = 1, F_WRONGFUL = 2, F_DISPLACED = 4, F_OVER = 8, F_EARLY = 16, F_POLICY = 32 };

/* floor((level + ROUNDING) / MICRO) >= cost, as `sizing.whole_tokens` has it; divides only where it could matter. */
static inline int
covers(double level, double cost)
{
    double need = cost * MICRO;
    if (level >= need || cost == 0.0) {
        return 1;
    }
    /* Further below than all roundings together could make up for. */
    if (level + ROUNDING < need * (1.0 - 1e-15)) {
        return 0;
    }
    return floor((level + ROUNDING) / MICRO) >= cost;
}

static inline double
refilled(double level, double rate, double burst, double elapsed)
{
    double grown = level + rate * elapsed;
    double capped = burst < grown ? burst : grown;
    return capped > level ? capped : level;
}

static inline double
larger(double a, double b)
{
    return b > a ? b : a;
}

typedef struct {
    const int64_t *starts, *at_us;
    const uint32_t *order, *cost, *copy, *terms;
    const uint8_t *code;
    const int32_t *retry_after_ms;
    const double *rates, *bursts;
    const double *carried_levels;
    const int64_t *carried_marks;
    double *row_levels;
    int64_t *row_counts;
    uint8_t *flags;
    int64_t *wrong_at, *wrong_row;
    double *wrong_real;
    Py_ssize_t groups, n, terms_count, row_room, wrong_room;
    /* Working memory: in which row a copy was last seen, and last seen alone. */
    int64_t *seen, *seen_alone;
    Py_ssize_t copies;
} Job;

typedef struct {
    double level[ROW_LEVELS];
    int64_t count[ROW_COUNTS];
    int64_t minute_end, second_end, in_second, alone, alone_from, alone_to;
    int full;
} Row;

static void
open_row(Row *row, int64_t group, int64_t at)
{
    int64_t minute = at / MINUTE_US;
    if (row->count[AT] >= 0 && minute * MINUTE_US >= row->count[FULL_AT]) {
        /* Nothing is left of what was: as if it had not been seen before. */
        for (int mark = AT; mark < MARKS; mark++) {
            row->count[mark] = -1;
        }
        memset(row->level, 0, sizeof row->level);
    }
    memset(row->count + GROUP, 0, (ROW_COUNTS - GROUP) * sizeof(int64_t));
    row->count[GROUP] = group;
    row->count[MINUTE] = minute;
    row->level[EXCESS] = 0.0;
    row->minute_end = (minute + 1) * MINUTE_US;
    row->second_end = 0;
    row->in_second = 0;
    row->alone = 0;
    row->full = 0;
}

/* From when on nothing is left of what has been: the buckets are full, no wait lasts, no change of terms explains. */
static int64_t
full_at(const Row *row)
{
    double lowest = row->level[EXACT];
    lowest = row->level[REAL] < lowest ? row->level[REAL] : lowest;
    lowest = row->level[POLICED] < lowest ? row->level[POLICED] : lowest;
    double at = (double)row->count[AT] + ceil((row->level[BURST] - lowest) / row->level[RATE]) + 1.0;
    if (row->count[CHANGED] >= 0) {
        at = larger(at, (double)row->count[CHANGED] + ceil(row->level[BURST] / row->level[RATE]) + 1.0);
    }
    at = larger(at, (double)row->count[RETRY_UNTIL]);
    /* Never earlier than it was said before, so that the latest row of those that still matter is the latest of all. */
    at = larger(at, (double)row->count[FULL_AT]);
    return (int64_t)(at < END_OF_TIME ? at : END_OF_TIME);
}

/* What the plan's bound is at the end of the row, and the row itself into its place. */
static void
close_row(const Job *job, Row *row, Py_ssize_t place)
{
    double *state = row->level;
    if (row->full) {
        state[MOST_BURST] = 0.0;
        state[REMAINDERS] = 0.0;
        if (row->alone == 0) {
            state[ALONE] = 0.0;
            state[DRIFT] = 0.0;
        }
    }
    int64_t rest = row->count[LARGEST_COST] > 0 ? row->count[LARGEST_COST] - 1 : 0;
    state[MOST_BURST] = larger(state[MOST_BURST], state[BURST]);
    state[REMAINDERS] = larger(state[REMAINDERS], (double)row->count[K] * (double)rest * MICRO);
    if (row->alone > 0) {
        state[ALONE] = larger(state[ALONE], (double)row->alone * state[BURST]);
        state[DRIFT] = state[DRIFT] + (double)row->alone * (state[RATE] * (double)(row->alone_to - row->alone_from));
    }
    state[EPSILON] = state[MOST_BURST] + state[REMAINDERS] + state[ALONE] + state[DRIFT];
    row->count[FULL_AT] = full_at(row);
    memcpy(job->row_levels + place * ROW_LEVELS, row->level, sizeof row->level);
    memcpy(job->row_counts + place * ROW_COUNTS, row->count, sizeof row->count);
}

enum { FINE = 0, BAD_INDEX = -1, NO_ROOM = -2 };

/* A bucket not seen before is full; one that is held to other terms keeps what is left, up to the new burst. */
static inline void
enter(Row *row, int64_t at, double rate, double burst)
{
    if (row->count[AT] < 0) {
        row->level[EXACT] = row->level[REAL] = row->level[POLICED] = burst;
        row->count[AT] = at;
    }
    else if (rate == row->level[RATE] && burst == row->level[BURST]) {
        return;
    }
    else {
        row->count[CHANGED] = at;
        for (int bucket = EXACT; bucket <= POLICED; bucket++) {
            row->level[bucket] = burst < row->level[bucket] ? burst : row->level[bucket];
        }
    }
    row->level[RATE] = rate;
    row->level[BURST] = burst;
}

static inline void
refill(Row *row, int64_t at)
{
    double rate = row->level[RATE], burst = row->level[BURST];
    if (at > row->count[AT]) {
        double elapsed = (double)(at - row->count[AT]);
        row->count[AT] = at;
        for (int bucket = EXACT; bucket <= POLICED; bucket++) {
            row->level[bucket] = refilled(row->level[bucket], rate, burst, elapsed);
        }
    }
    row->full |= row->level[REAL] >= burst;
}

/* What every request counts as, whatever becomes of it; its flags. `stamp` is of this row alone. */
static inline int
offer(const Job *job, Row *row, uint32_t i, int64_t at, int64_t stamp)
{
    if (at >= row->second_end) {
        row->second_end = (at / SECOND_US + 1) * SECOND_US;
        row->in_second = 0;
    }
    row->in_second++;
    if (row->in_second > row->count[BUSIEST]) {
        row->count[BUSIEST] = row->in_second;
        row->count[BUSIEST_AT] = row->second_end / SECOND_US - 1;
    }
    row->count[OFFERED]++;
    if (job->seen[job->copy[i]] != stamp) {
        job->seen[job->copy[i]] = stamp;
        row->count[K]++;
    }
    int flags = 0;
    if (at < row->count[RETRY_UNTIL]) {
        flags |= F_EARLY;
        row->count[EARLY]++;
    }
    if (covers(row->level[EXACT], (double)job->cost[i])) {
        flags |= F_EXACT;
        row->level[EXACT] = row->level[EXACT] - (double)job->cost[i] * MICRO;
    }
    return flags;
}

static inline int
admit(const Job *job, Row *row, uint32_t i, int64_t at, int64_t stamp)
{
    int flags = 0;
    uint32_t cost = job->cost[i];
    row->count[ADMITTED]++;
    row->count[COST_ADMITTED] += cost;
    if (cost > row->count[LARGEST_COST]) {
        row->count[LARGEST_COST] = cost;
    }
    row->level[REAL] = row->level[REAL] - (double)cost * MICRO;
    row->level[EXCESS] = larger(row->level[EXCESS], -row->level[REAL]);
    if (covers(row->level[POLICED], (double)cost)) {
        row->level[POLICED] = row->level[POLICED] - (double)cost * MICRO;
    }
    else {
        flags |= F_OVER;
        row->count[OVER]++;
    }
    if (job->code[i] >> 4 == DEGRADED) {
        row->alone_from = row->alone ? row->alone_from : at;
        row->alone_to = at;
        if (job->seen_alone[job->copy[i]] != stamp) {
            job->seen_alone[job->copy[i]] = stamp;
            row->alone++;
        }
    }
    return flags;
}

/* Given the flags of a refused request, all that it has. */
static inline int
refuse(const Job *job, Row *row, uint32_t i, int64_t at, int flags)
{
    int64_t until = at + (int64_t)job->retry_after_ms[i] * 1000;
    row->count[REFUSED]++;
    if (job->retry_after_ms[i] > 0 && until > row->count[RETRY_UNTIL]) {
        row->count[RETRY_UNTIL] = until;
    }
    if (!(flags & F_EXACT)) {
        return flags;
    }
    row->count[WRONGFUL]++;
    flags |= F_WRONGFUL;
    if (row->count[CHANGED] >= 0 && row->level[RATE] * (double)(at - row->count[CHANGED]) < row->level[BURST]) {
        flags |= F_POLICY;
    }
    if (!covers(row->level[REAL], (double)job->cost[i])) {
        flags |= F_DISPLACED;
        row->count[DISPLACED]++;
    }
    return flags;
}

typedef struct {
    Py_ssize_t rows, wrongs;
} Written;

/* Replays one group, and appends its rows; FINE or a fault. */
static int
replay_group(const Job *job, Py_ssize_t g, Written *written)
{
    Row row;
    int open = 0;
    memcpy(row.level, job->carried_levels + g * LEVELS, LEVELS * sizeof(double));
    memcpy(row.count, job->carried_marks + g * MARKS, MARKS * sizeof(int64_t));
    for (int64_t j = job->starts[g]; j < job->starts[g + 1]; j++) {
        uint32_t i = job->order[j];
        if (i >= (size_t)job->n || job->terms[i] >= (size_t)job->terms_count || job->copy[i] >= (size_t)job->copies) {
            return BAD_INDEX;
        }
        int64_t at = job->at_us[i];
        if (!open || at >= row.minute_end) {
            if (open) {
                close_row(job, &row, written->rows++);
            }
            if (written->rows >= job->row_room) {
                return NO_ROOM;
            }
            open_row(&row, g, at);
            open = 1;
        }
        enter(&row, at, job->rates[job->terms[i]], job->bursts[job->terms[i]]);
        refill(&row, at);
        int64_t stamp = written->rows + 1;
        int flags = offer(job, &row, i, at, stamp);
        if ((job->code[i] & 15) == 0) {
            flags |= admit(job, &row, i, at, stamp);
        }
        else {
            flags = refuse(job, &row, i, at, flags);
        }
        job->flags[i] = (uint8_t)flags;
        if ((flags & (F_WRONGFUL | F_DISPLACED)) == F_WRONGFUL) {
            if (written->wrongs >= job->wrong_room) {
                return NO_ROOM;
            }
            job->wrong_at[written->wrongs] = i;
            job->wrong_row[written->wrongs] = written->rows;
            job->wrong_real[written->wrongs++] = row.level[REAL];
        }
    }
    if (open) {
        close_row(job, &row, written->rows++);
    }
    return FINE;
}

static int
run(const Job *job, Written *written)
{
    int fault = FINE;
    for (Py_ssize_t g = 0; g < job->groups && fault == FINE; g++) {
        fault = replay_group(job, g, written);
    }
    return fault;
}

static const Wanted REPLAY_ARRAYS[] = {
    {"starts", "lq", 8, 0},       {"order", "IL", 4, 0},          {"at_us", "lq", 8, 0},
    {"cost", "IL", 4, 0},         {"code", "B", 1, 0},            {"retry_after_ms", "il", 4, 0},
    {"copy", "IL", 4, 0},         {"terms", "IL", 4, 0},          {"rates", "d", 8, 0},
    {"bursts", "d", 8, 0},        {"carried_levels", "d", 8, 0},  {"carried_marks", "lq", 8, 0},
    {"seen", "lq", 8, 1},         {"row_levels", "d", 8, 1},      {"row_counts", "lq", 8, 1},
    {"flags", "B", 1, 1},         {"wrong_at", "lq", 8, 1},       {"wrong_row", "lq", 8, 1},
    {"wrong_real", "d", 8, 1},
};
enum { ARRAYS = sizeof REPLAY_ARRAYS / sizeof *REPLAY_ARRAYS };

/* 0 if all arrays are as long as they must be. */
static int
check_lengths(const Array *in)
{
    Py_ssize_t groups = length(&in[0]) - 1, n = length(&in[2]);
    for (int i = 1; i <= 7; i++) {
        if (length(&in[i]) != n) {
            PyErr_Format(PyExc_ValueError, "%s has %zd items; allowed: %zd, one a decision", in[i].name,
                         length(&in[i]), n);
            return -1;
        }
    }
    if (length(&in[9]) != length(&in[8]) || length(&in[10]) != groups * LEVELS || length(&in[11]) != groups * MARKS
        || length(&in[12]) % 2 || length(&in[13]) / ROW_LEVELS != length(&in[14]) / ROW_COUNTS || length(&in[15]) != n
        || length(&in[17]) != length(&in[16]) || length(&in[18]) != length(&in[16])) {
        PyErr_SetString(PyExc_ValueError, "terms, carried states, rows, flags or the list of refusals differ in length");
        return -1;
    }
    return check_starts(&in[0], n);
}

PyDoc_STRVAR(order_doc, "order(starts, at_us, order, /)\n--\n\nSee `aggregator.core.fairness.replay.Replayer`.");

PyDoc_STRVAR(arrange_doc, "arrange(caller, caller_rank, copy, …, /)\n--\n\nSee `aggregator.core.fairness.arranging`.");

PyDoc_STRVAR(replay_doc, "replay(starts, order, at_us, cost, …, /)\n--\n\nSee `aggregator.core.fairness.replay.Replayer`.");

static PyObject *
replay(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Array in[ARRAYS];
    if (open_arrays(in, REPLAY_ARRAYS, args, nargs, ARRAYS) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (check_lengths(in) == 0) {
        Py_ssize_t copies = length(&in[12]) / 2;
        Written written = {0, 0};
        int fault;
        Job job = {
            .starts = in[0].view.buf, .order = in[1].view.buf, .at_us = in[2].view.buf, .cost = in[3].view.buf,
            .code = in[4].view.buf, .retry_after_ms = in[5].view.buf, .copy = in[6].view.buf,
            .terms = in[7].view.buf, .rates = in[8].view.buf, .bursts = in[9].view.buf,
            .carried_levels = in[10].view.buf, .carried_marks = in[11].view.buf, .seen = in[12].view.buf,
            .seen_alone = (int64_t *)in[12].view.buf + copies, .copies = copies, .row_levels = in[13].view.buf,
            .row_counts = in[14].view.buf, .flags = in[15].view.buf, .wrong_at = in[16].view.buf,
            .wrong_row = in[17].view.buf, .wrong_real = in[18].view.buf, .groups = length(&in[0]) - 1,
            .n = length(&in[2]), .terms_count = length(&in[8]), .row_room = length(&in[14]) / ROW_COUNTS,
            .wrong_room = length(&in[16]),
        };
        Py_BEGIN_ALLOW_THREADS
        fault = run(&job, &written);
        Py_END_ALLOW_THREADS
        if (fault == FINE) {
            result = Py_BuildValue("(nn)", written.rows, written.wrongs);
        }
        else {
            PyErr_SetString(PyExc_ValueError, fault == NO_ROOM ? "there are more rows or refusals than places for them"
                                                              : "order, terms or copy points outside");
        }
    }
    close_arrays(in, ARRAYS);
    return result;
}

static PyMethodDef module_methods[] = {
    {"order", (PyCFunction)(void (*)(void))tallygate_order, METH_FASTCALL, order_doc},
    {"arrange", (PyCFunction)(void (*)(void))tallygate_arrange, METH_FASTCALL, arrange_doc},
    {"replay", (PyCFunction)(void (*)(void))replay, METH_FASTCALL, replay_doc},
    {NULL, NULL, 0, NULL},
};

TALLYGATE_MODULE(_replay, "aggregator.core.fairness._replay")
