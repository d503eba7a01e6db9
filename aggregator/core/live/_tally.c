/* The loops of the live totals: what `aggregator.core.live.tally` and `.cells` do with numpy, in one pass each.
 *
 * Looks at everything before it changes anything: an index that points outside is an error, and no total has moved.
 * Knows no outcome by its number: which column a code counts in is an argument.
 */
#include "../_arrays.h"
#include "../_module.h"

enum {
    BASIS, CODE, COST, AT, RETRY, ROW, CALLER, FLEET_AT, SLOT, COLUMN, MARKS, COUNTS, TOLD, DIRTY, CALLERS, COUNTED,
    FLEET, ARRAYS
};
enum { CODES = 256, FLEET_WIDTH = 3, ADMITTED = 1, DEGRADED = 2 };

static const Wanted TALLY_ARRAYS[ARRAYS] = {
    {"basis", "IL", 4, 0},          {"code", "B", 1, 0},     {"cost", "IL", 4, 0},     {"at_us", "lq", 8, 0},
    {"retry_after_ms", "il", 4, 0}, {"row", "lq", 8, 0},     {"caller", "lq", 8, 0},   {"fleet_at", "lq", 8, 0},
    {"slot", "lq", 8, 0},           {"column", "B", 1, 0},   {"marks", "B", 1, 0},     {"counts", "lq", 8, 1},
    {"told", "lq", 8, 1},           {"dirty", "?", 1, 1},    {"callers", "lq", 8, 1},  {"counted", "?", 1, 1},
    {"fleet", "lq", 8, 1},
};

typedef struct {
    const uint32_t *basis, *cost;
    const uint8_t *code, *column, *marks;
    const int64_t *at, *row, *caller, *fleet_at, *slot;
    const int32_t *retry;
    int64_t *counts, *told, *callers, *fleet;
    uint8_t *dirty, *counted;
    Py_ssize_t n, bases, rows, caller_rows, places, width;
    /* Columns of a row. */
    Py_ssize_t degraded, early, offered_cost, admitted_cost;
} Job;

static int
points_inside(const Job *job)
{
    for (Py_ssize_t i = 0; i < CODES; i++) {
        if (job->column[i] >= job->width || job->slot[i] < 0) {
            return 0;
        }
    }
    for (Py_ssize_t i = 0; i < job->n; i++) {
        uint32_t basis = job->basis[i];
        if (basis >= job->bases || job->row[basis] < 0 || job->row[basis] >= job->rows || job->fleet_at[basis] < 0) {
            return 0;
        }
        if (job->caller[basis] < 0 || job->caller[basis] >= job->caller_rows) {
            return 0;
        }
        if (job->fleet_at[basis] > job->places || job->fleet_at[basis] + job->slot[job->code[i]] >= job->places) {
            return 0;
        }
    }
    return 1;
}

static inline void
count(const Job *job, int64_t *counts, uint8_t code, int64_t cost, int64_t early)
{
    counts[0]++;
    if (job->column[code]) {
        counts[job->column[code]]++;
    }
    counts[job->degraded] += (job->marks[code] & DEGRADED) != 0;
    counts[job->early] += early;
    counts[job->offered_cost] += cost;
    counts[job->admitted_cost] += job->marks[code] & ADMITTED ? cost : 0;
}

/* How many rows were clean before. */
static Py_ssize_t
run(const Job *job)
{
    Py_ssize_t fresh = 0;
    for (Py_ssize_t i = 0; i < job->n; i++) {
        uint32_t basis = job->basis[i];
        uint8_t code = job->code[i];
        int64_t row = job->row[basis], caller = job->caller[basis], at = job->at[i], cost = job->cost[i];
        int64_t *told = job->told + 2 * row;
        int64_t *fleet = job->fleet + FLEET_WIDTH * (job->fleet_at[basis] + job->slot[code]);
        int64_t early = at > told[0] && at < told[1];
        count(job, job->counts + row * job->width, code, cost, early);
        count(job, job->callers + caller * job->width, code, cost, early);
        fleet[0]++;
        fleet[1] += early;
        fleet[2] += cost;
        if (job->retry[i] > 0) {
            told[0] = at;
            told[1] = at + (int64_t)job->retry[i] * 1000;
        }
        fresh += !job->dirty[row];
        job->dirty[row] = 1;
        job->counted[caller] = 1;
    }
    return fresh;
}

/* 0, or -1 with an error set. */
static int
make_job(Job *job, Array *in, PyObject *const *places)
{
    Py_ssize_t *columns[4] = {&job->degraded, &job->early, &job->offered_cost, &job->admitted_cost};
    job->n = length(&in[BASIS]);
    job->bases = length(&in[ROW]);
    job->rows = length(&in[DIRTY]);
    job->places = length(&in[FLEET]) / FLEET_WIDTH;
    job->caller_rows = length(&in[COUNTED]);
    job->width = job->rows ? length(&in[COUNTS]) / job->rows : 0;
    if (length(&in[CODE]) != job->n || length(&in[COST]) != job->n || length(&in[AT]) != job->n
        || length(&in[RETRY]) != job->n || length(&in[CALLER]) != job->bases
        || length(&in[CALLERS]) != job->width * job->caller_rows || length(&in[FLEET_AT]) != job->bases || length(&in[SLOT]) != CODES
        || length(&in[COLUMN]) != CODES || length(&in[MARKS]) != CODES || length(&in[TOLD]) != 2 * job->rows
        || length(&in[COUNTS]) != job->width * job->rows || length(&in[FLEET]) != job->places * FLEET_WIDTH) {
        PyErr_SetString(PyExc_ValueError, "decisions, bases, codes, rows or the fleet's places differ in length");
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        *columns[i] = PyLong_AsSsize_t(places[i]);
        if (*columns[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (*columns[i] < 0 || *columns[i] >= job->width) {
            PyErr_Format(PyExc_ValueError, "a column is %zd; allowed: 0 to %zd", *columns[i], job->width - 1);
            return -1;
        }
    }
    job->basis = in[BASIS].view.buf;
    job->code = in[CODE].view.buf;
    job->cost = in[COST].view.buf;
    job->at = in[AT].view.buf;
    job->retry = in[RETRY].view.buf;
    job->row = in[ROW].view.buf;
    job->caller = in[CALLER].view.buf;
    job->fleet_at = in[FLEET_AT].view.buf;
    job->slot = in[SLOT].view.buf;
    job->column = in[COLUMN].view.buf;
    job->marks = in[MARKS].view.buf;
    job->counts = in[COUNTS].view.buf;
    job->told = in[TOLD].view.buf;
    job->dirty = in[DIRTY].view.buf;
    job->callers = in[CALLERS].view.buf;
    job->counted = in[COUNTED].view.buf;
    job->fleet = in[FLEET].view.buf;
    return 0;
}

PyDoc_STRVAR(tally_doc, "tally(basis, code, cost, …, /)\n--\n\nSee `aggregator.core.live.tally`.");

static PyObject *
tally(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != ARRAYS + 4) {
        PyErr_Format(PyExc_TypeError, "%zd arguments; allowed: %d arrays and 4 columns", nargs, ARRAYS);
        return NULL;
    }
    Array in[ARRAYS];
    if (open_arrays(in, TALLY_ARRAYS, args, ARRAYS, ARRAYS) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    Job job;
    if (make_job(&job, in, args + ARRAYS) == 0) {
        if (points_inside(&job)) {
            result = PyLong_FromSsize_t(run(&job));
        }
        else {
            PyErr_SetString(PyExc_ValueError, "basis, row, column or a place of the fleet points outside");
        }
    }
    close_arrays(in, ARRAYS);
    return result;
}

static const Wanted NUMBER_ARRAYS[] = {{"keys", "lq", 8, 0}, {"ids", "lq", 8, 1}, {"table", "lq", 8, 1}};

PyDoc_STRVAR(number_doc, "number(keys, ids, table, known, /)\n--\n\nSee `aggregator.core.live.cells`.");

/* `table` holds pairs of key and number, -1 where there is none; it has a power of two of them, and is never full. */
static PyObject *
number(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_Format(PyExc_TypeError, "%zd arguments; allowed: 3 arrays and how many are known", nargs);
        return NULL;
    }
    Py_ssize_t known = PyLong_AsSsize_t(args[3]);
    Array in[3];
    if ((known == -1 && PyErr_Occurred()) || open_arrays(in, NUMBER_ARRAYS, args, 3, 3) < 0) {
        return NULL;
    }
    Py_ssize_t n = length(&in[0]), size = length(&in[2]) / 2;
    PyObject *result = NULL;
    if (length(&in[1]) != n || known < 0 || size < 1 || (size & (size - 1)) || known + n >= size) {
        PyErr_Format(PyExc_ValueError, "the table has %zd places; allowed: a power of two above %zd", size, known + n);
    }
    else {
        const int64_t *keys = in[0].view.buf;
        int64_t *ids = in[1].view.buf, *table = in[2].view.buf;
        int shift = 64;
        for (Py_ssize_t half = size; half > 1; half /= 2) {
            shift--;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            /* The golden ratio spreads neighbouring keys over the table. */
            uint64_t spread = (uint64_t)keys[i] * UINT64_C(0x9E3779B97F4A7C15);
            Py_ssize_t at = shift == 64 ? 0 : (Py_ssize_t)(spread >> shift);
            while (table[2 * at + 1] >= 0 && table[2 * at] != keys[i]) {
                at = (at + 1) & (size - 1);
            }
            if (table[2 * at + 1] < 0) {
                table[2 * at] = keys[i];
                table[2 * at + 1] = known++;
            }
            ids[i] = table[2 * at + 1];
        }
        result = PyLong_FromSsize_t(known);
    }
    close_arrays(in, 3);
    return result;
}

enum { SEEN_ROWS, SEEN_PLANS, SEEN_K, PLAN_OF, K_OF, BITS, SEEN_DIRTY, SEEN_ARRAYS };

static const Wanted SEE_ARRAYS[SEEN_ARRAYS] = {
    {"rows", "lq", 8, 0}, {"plans", "lq", 8, 0}, {"k", "lq", 8, 0},     {"plan_of", "lq", 8, 1},
    {"k_of", "lq", 8, 1}, {"bits", "LQ", 8, 1},  {"dirty", "?", 1, 1},
};

enum { NO_PLAN = -1 };

/* As they were: what changed is what differs when all lines are through. `before` has places for two numbers a line. */
static Py_ssize_t
note_seen(Array *in, Py_ssize_t n, Py_ssize_t words, Py_ssize_t word, uint64_t mask, int64_t *before)
{
    const int64_t *rows = in[SEEN_ROWS].view.buf, *plans = in[SEEN_PLANS].view.buf, *k = in[SEEN_K].view.buf;
    int64_t *plan_of = in[PLAN_OF].view.buf, *k_of = in[K_OF].view.buf;
    uint64_t *bits = in[BITS].view.buf;
    uint8_t *dirty = in[SEEN_DIRTY].view.buf;
    Py_ssize_t fresh = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        int unseen = (bits[rows[i] * words + word] & mask) == 0;
        before[2 * i] = unseen ? NO_PLAN - 1 : plan_of[rows[i]];
        before[2 * i + 1] = k_of[rows[i]];
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t row = rows[i];
        plan_of[row] = plans[i] != NO_PLAN ? plans[i] : plan_of[row];
        k_of[row] = k[i] > k_of[row] ? k[i] : k_of[row];
        bits[row * words + word] |= mask;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        before[2 * i] = plan_of[rows[i]] != before[2 * i] || k_of[rows[i]] != before[2 * i + 1];
        fresh += before[2 * i] && !dirty[rows[i]];
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        dirty[rows[i]] |= before[2 * i] != 0;
    }
    return fresh;
}

PyDoc_STRVAR(see_doc, "see(rows, plans, k, …, word, bit, /)\n--\n\nSee `aggregator.core.live.callers`.");

static PyObject *
see(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != SEEN_ARRAYS + 2) {
        PyErr_Format(PyExc_TypeError, "%zd arguments; allowed: %d arrays, a word and a bit", nargs, SEEN_ARRAYS);
        return NULL;
    }
    Py_ssize_t word = PyLong_AsSsize_t(args[SEEN_ARRAYS]), bit = PyLong_AsSsize_t(args[SEEN_ARRAYS + 1]);
    Array in[SEEN_ARRAYS];
    if (PyErr_Occurred() || open_arrays(in, SEE_ARRAYS, args, SEEN_ARRAYS, SEEN_ARRAYS) < 0) {
        return NULL;
    }
    Py_ssize_t n = length(&in[SEEN_ROWS]), size = length(&in[SEEN_DIRTY]);
    Py_ssize_t words = size ? length(&in[BITS]) / size : 0;
    const int64_t *rows = in[SEEN_ROWS].view.buf;
    int good = length(&in[SEEN_PLANS]) == n && length(&in[SEEN_K]) == n && length(&in[PLAN_OF]) == size
               && length(&in[K_OF]) == size && length(&in[BITS]) == words * size && word >= 0 && word < words
               && bit >= 0 && bit < 64;
    for (Py_ssize_t i = 0; good && i < n; i++) {
        good = rows[i] >= 0 && rows[i] < size;
    }
    PyObject *result = NULL;
    int64_t *before = good ? PyMem_Malloc(2 * (size_t)n * sizeof(int64_t)) : NULL;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "lines or rows differ in length, or a row, the word or the bit is outside");
    }
    else if (before == NULL) {
        PyErr_NoMemory();
    }
    else {
        result = PyLong_FromSsize_t(note_seen(in, n, words, word, UINT64_C(1) << bit, before));
    }
    PyMem_Free(before);
    close_arrays(in, SEEN_ARRAYS);
    return result;
}

PyDoc_STRVAR(number_names_doc,
             "number_names(names, known, ids, table, /)\n--\n\nSee `aggregator.core.live.tables`.");

static PyMethodDef module_methods[] = {
    {"number_names", (PyCFunction)(void (*)(void))tallygate_number_names, METH_FASTCALL, number_names_doc},
    {"see", (PyCFunction)(void (*)(void))see, METH_FASTCALL, see_doc},
    {"number", (PyCFunction)(void (*)(void))number, METH_FASTCALL, number_doc},
    {"tally", (PyCFunction)(void (*)(void))tally, METH_FASTCALL, tally_doc},
    {NULL, NULL, 0, NULL},
};

TALLYGATE_MODULE(_tally, "aggregator.core.live._tally")
