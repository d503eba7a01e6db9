/* Decisions into the order of the table, whatever order its parts gave them in: `arrange` of the module in _replay.c. */
#include "../_arrays.h"

#define MINUTE_US 60000000

typedef struct {
    uint64_t place; /* the minute, and within it the life by rank */
    uint64_t seq;
    uint32_t index;
} Item;

/* One life: a copy and an epoch. `next` is another epoch of the same copy, or -1. */
typedef struct {
    uint64_t epoch;
    uint32_t copy_rank, rank;
    int64_t next;
} Life;

typedef struct {
    const uint32_t *caller, *caller_rank, *copy, *copy_rank;
    const int64_t *at_us;
    const uint64_t *epoch, *seq;
    uint32_t *order;
    Py_ssize_t n, callers, copies;
    /* Working memory. */
    uint32_t *life_of, *ranked;
    int64_t *heads, *starts;
    Life *lives;
    int64_t lives_count, lives_room;
    Item *items;
} Task;

enum { FINE = 0, BAD_INDEX = -1, NO_MEMORY = -2 };

/* The number of a row's life; below 0 without memory. */
static inline int64_t
find_life(Task *task, Py_ssize_t i)
{
    uint32_t copy = task->copy[i];
    int64_t at = task->heads[copy];
    while (at >= 0 && task->lives[at].epoch != task->epoch[i]) {
        at = task->lives[at].next;
    }
    if (at >= 0) {
        return at;
    }
    if (task->lives_count == task->lives_room) {
        int64_t room = task->lives_room ? 2 * task->lives_room : 64;
        Life *grown = PyMem_RawRealloc(task->lives, (size_t)room * sizeof(Life));
        if (grown == NULL) {
            return NO_MEMORY;
        }
        task->lives = grown;
        task->lives_room = room;
    }
    Life *life = &task->lives[task->lives_count];
    life->epoch = task->epoch[i];
    life->copy_rank = task->copy_rank[copy];
    life->next = task->heads[copy];
    task->heads[copy] = task->lives_count;
    return task->lives_count++;
}

static int
compare_lives(const void *one, const void *other)
{
    const Life *a = *(const Life *const *)one, *b = *(const Life *const *)other;
    if (a->copy_rank != b->copy_rank) {
        return a->copy_rank < b->copy_rank ? -1 : 1;
    }
    return a->epoch < b->epoch ? -1 : a->epoch > b->epoch;
}

/* Each row's life, lives by rank, and how many decisions each caller has. */
static int
look(Task *task)
{
    for (Py_ssize_t i = 0; i < task->n; i++) {
        if (task->caller[i] >= (size_t)task->callers || task->copy[i] >= (size_t)task->copies
            || task->caller_rank[task->caller[i]] >= (size_t)task->callers) {
            return BAD_INDEX;
        }
        int64_t life = find_life(task, i);
        if (life < 0) {
            return NO_MEMORY;
        }
        task->life_of[i] = (uint32_t)life;
        task->starts[task->caller_rank[task->caller[i]] + 1]++;
    }
    for (Py_ssize_t c = 0; c < task->callers; c++) {
        task->starts[c + 1] += task->starts[c];
    }
    Life **sorted = PyMem_RawMalloc(((size_t)task->lives_count + 1) * sizeof(Life *));
    if (sorted == NULL) {
        return NO_MEMORY;
    }
    for (int64_t i = 0; i < task->lives_count; i++) {
        sorted[i] = &task->lives[i];
    }
    qsort(sorted, (size_t)task->lives_count, sizeof(Life *), compare_lives);
    for (int64_t i = 0; i < task->lives_count; i++) {
        sorted[i]->rank = (uint32_t)i;
    }
    PyMem_RawFree(sorted);
    return FINE;
}

static inline int
before(const Item *a, const Item *b)
{
    return a->place < b->place || (a->place == b->place && a->seq < b->seq);
}

/* A caller's decisions are one run of each part that they were read of. */
#define MERGE_ITEM Item
#define MERGE_BEFORE before
#include "_merge.h"

/* Fills `order`; returns how many rows stand under a key that another one has. */
static Py_ssize_t
sort_callers(Task *task)
{
    Py_ssize_t repeats = 0;
    int64_t largest = 0;
    for (Py_ssize_t c = 0; c < task->callers; c++) {
        int64_t count = task->starts[c + 1] - task->starts[c];
        largest = count > largest ? count : largest;
    }
    task->items = PyMem_RawMalloc(2 * ((size_t)largest + 1) * sizeof(Item));
    if (task->items == NULL) {
        return NO_MEMORY;
    }
    /* The rows of each caller, as they came; starts[c] runs to its end, where the next caller's were. */
    for (Py_ssize_t i = 0; i < task->n; i++) {
        task->ranked[task->starts[task->caller_rank[task->caller[i]]]++] = (uint32_t)i;
    }
    int64_t from = 0;
    for (Py_ssize_t c = 0; c < task->callers; c++) {
        int64_t count = task->starts[c] - from;
        for (int64_t j = 0; j < count; j++) {
            uint32_t i = task->ranked[from + j];
            uint64_t minute = (uint64_t)(task->at_us[i] / MINUTE_US);
            task->items[j] = (Item){minute << 32 | task->lives[task->life_of[i]].rank, task->seq[i], i};
        }
        const Item *sorted = count ? merge_runs(task->items, task->items + largest + 1, count) : task->items;
        for (int64_t j = 0; j < count; j++) {
            task->order[from + j] = sorted[j].index;
            repeats += j > 0 && sorted[j].place == sorted[j - 1].place && sorted[j].seq == sorted[j - 1].seq;
        }
        from = task->starts[c];
    }
    return repeats;
}

static Py_ssize_t
run(Task *task)
{
    task->life_of = PyMem_RawMalloc(((size_t)task->n + 1) * sizeof(uint32_t));
    task->ranked = PyMem_RawMalloc(((size_t)task->n + 1) * sizeof(uint32_t));
    task->heads = PyMem_RawMalloc(((size_t)task->copies + 1) * sizeof(int64_t));
    task->starts = PyMem_RawCalloc((size_t)task->callers + 1, sizeof(int64_t));
    Py_ssize_t found = NO_MEMORY;
    if (task->life_of != NULL && task->ranked != NULL && task->heads != NULL && task->starts != NULL) {
        memset(task->heads, -1, ((size_t)task->copies + 1) * sizeof(int64_t));
        found = look(task);
        if (found == FINE) {
            found = sort_callers(task);
        }
    }
    PyMem_RawFree(task->life_of);
    PyMem_RawFree(task->ranked);
    PyMem_RawFree(task->heads);
    PyMem_RawFree(task->starts);
    PyMem_RawFree(task->lives);
    PyMem_RawFree(task->items);
    return found;
}

static const Wanted ARRANGE_ARRAYS[] = {
    {"caller", "IL", 4, 0}, {"caller_rank", "IL", 4, 0}, {"copy", "IL", 4, 0},  {"copy_rank", "IL", 4, 0},
    {"at_us", "lq", 8, 0},  {"epoch", "LQ", 8, 0},       {"seq", "LQ", 8, 0},   {"order", "IL", 4, 1},
};
enum { ARRAYS = sizeof ARRANGE_ARRAYS / sizeof *ARRANGE_ARRAYS };

PyObject *
tallygate_arrange(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Array in[ARRAYS];
    if (open_arrays(in, ARRANGE_ARRAYS, args, nargs, ARRAYS) < 0) {
        return NULL;
    }
    Py_ssize_t n = length(&in[0]), found = FINE;
    for (int i = 2; i < ARRAYS; i++) {
        found = i != 3 && length(&in[i]) != n ? BAD_INDEX : found;
    }
    if (found == FINE && n < (Py_ssize_t)UINT32_MAX) {
        Task task = {
            .caller = in[0].view.buf, .caller_rank = in[1].view.buf, .copy = in[2].view.buf,
            .copy_rank = in[3].view.buf, .at_us = in[4].view.buf, .epoch = in[5].view.buf, .seq = in[6].view.buf,
            .order = in[7].view.buf, .n = n, .callers = length(&in[1]), .copies = length(&in[3]),
        };
        Py_BEGIN_ALLOW_THREADS
        found = run(&task);
        Py_END_ALLOW_THREADS
    }
    else {
        found = BAD_INDEX;
    }
    close_arrays(in, ARRAYS);
    if (found == NO_MEMORY) {
        return PyErr_NoMemory();
    }
    if (found == BAD_INDEX) {
        PyErr_SetString(PyExc_ValueError, "columns differ in length, or a caller or copy points outside its ranks");
        return NULL;
    }
    return PyLong_FromSsize_t(found);
}
