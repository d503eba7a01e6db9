/* The decisions of each group by time, those of one moment as they came: `order` of the module in _replay.c. */
#include "../_arrays.h"

typedef struct {
    int64_t at;
    uint32_t index;
} Dated;

#define MERGE_ITEM Dated
#define MERGE_BEFORE(one, other) ((one)->at < (other)->at)
#include "_merge.h"

static void
sort_group(const int64_t *at_us, int64_t from, int64_t to, uint32_t *order, Dated *items, Dated *spare)
{
    int64_t count = to - from;
    for (int64_t i = 0; i < count; i++) {
        items[i].at = at_us[from + i];
        items[i].index = (uint32_t)(from + i);
    }
    const Dated *sorted = merge_runs(items, spare, count);
    for (int64_t i = 0; i < count; i++) {
        order[from + i] = sorted[i].index;
    }
}

static const Wanted ORDER_ARRAYS[] = {{"starts", "lq", 8, 0}, {"at_us", "lq", 8, 0}, {"order", "IL", 4, 1}};

PyObject *
tallygate_order(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Array in[3];
    if (open_arrays(in, ORDER_ARRAYS, args, nargs, 3) < 0) {
        return NULL;
    }
    const int64_t *starts = in[0].view.buf;
    Py_ssize_t groups = length(&in[0]) - 1;
    Dated *room = NULL;
    PyObject *result = NULL;
    if (length(&in[2]) != length(&in[1]) || length(&in[1]) > (Py_ssize_t)UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "order has %zd places for %zd decisions; allowed: as many, below 2**32",
                     length(&in[2]), length(&in[1]));
    }
    else if (check_starts(&in[0], length(&in[1])) == 0) {
        int64_t largest = 1;
        for (Py_ssize_t g = 0; g < groups; g++) {
            int64_t count = starts[g + 1] - starts[g];
            largest = count > largest ? count : largest;
        }
        room = PyMem_RawMalloc(2 * (size_t)largest * sizeof(Dated));
        if (room == NULL) {
            PyErr_NoMemory();
        }
        else {
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t g = 0; g < groups; g++) {
                sort_group(in[1].view.buf, starts[g], starts[g + 1], in[2].view.buf, room, room + largest);
            }
            Py_END_ALLOW_THREADS
            PyMem_RawFree(room);
            result = Py_NewRef(Py_None);
        }
    }
    close_arrays(in, 3);
    return result;
}
