/* Names to numbers, many at once: what a dict does, with the memory that each look-up needs asked for ahead of it. */
#include "../_arrays.h"

/* How many look-ups are under way together. */
enum { TOGETHER = 64 };

#if defined(__GNUC__)
#define AHEAD(address) __builtin_prefetch(address)
#else
#define AHEAD(address) ((void)(address))
#endif

static const Wanted NAME_ARRAYS[] = {{"ids", "lq", 8, 1}, {"table", "lq", 8, 1}};

static inline int
is_same(PyObject *one, PyObject *other)
{
    return one == other
           || (PyUnicode_GET_LENGTH(one) == PyUnicode_GET_LENGTH(other) && PyUnicode_KIND(one) == PyUnicode_KIND(other)
               && memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other),
                         (size_t)PyUnicode_GET_LENGTH(one) * (size_t)PyUnicode_KIND(one)) == 0);
}

/* The number of a name, which is new if the table does not have it; -1 with an error set. */
static int64_t
number_of(PyObject *name, int64_t hash, PyObject *known, int64_t *table, Py_ssize_t mask)
{
    Py_ssize_t at = hash & mask;
    while (table[2 * at + 1] >= 0) {
        if (table[2 * at + 1] >= PyList_GET_SIZE(known)) {
            PyErr_SetString(PyExc_ValueError, "the table is of more names than are known");
            return -1;
        }
        if (table[2 * at] == hash && is_same(PyList_GET_ITEM(known, table[2 * at + 1]), name)) {
            return table[2 * at + 1];
        }
        at = (at + 1) & mask;
    }
    if (PyList_Append(known, name) < 0) {
        return -1;
    }
    table[2 * at] = hash;
    table[2 * at + 1] = PyList_GET_SIZE(known) - 1;
    return table[2 * at + 1];
}

/* 0, or -1 with an error set. */
static int
number_some(PyObject *names, Py_ssize_t from, Py_ssize_t count, PyObject *known, int64_t *table, Py_ssize_t mask,
            int64_t *ids)
{
    int64_t hashes[TOGETHER], met[TOGETHER];
    for (Py_ssize_t i = 0; i < count; i++) {
        hashes[i] = PyObject_Hash(PyList_GET_ITEM(names, from + i));
        AHEAD(&table[2 * (hashes[i] & mask)]);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const int64_t *entry = &table[2 * (hashes[i] & mask)];
        met[i] = entry[0] == hashes[i] && entry[1] < PyList_GET_SIZE(known) ? entry[1] : -1;
        if (met[i] >= 0) {
            AHEAD(&PyList_GET_ITEM(known, met[i]));
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (met[i] >= 0) {
            AHEAD(PyList_GET_ITEM(known, met[i]));
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ids[from + i] = number_of(PyList_GET_ITEM(names, from + i), hashes[i], known, table, mask);
        if (ids[from + i] < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *
tallygate_number_names(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || args[0] == args[1]) {
        PyErr_SetString(PyExc_TypeError, "allowed: a list of names, the list of known ones, and two arrays");
        return NULL;
    }
    Py_ssize_t n = PyList_GET_SIZE(args[0]), known = PyList_GET_SIZE(args[1]);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (!PyUnicode_CheckExact(PyList_GET_ITEM(args[0], i))) {
            PyErr_Format(PyExc_TypeError, "a name is a %s; allowed: str", Py_TYPE(PyList_GET_ITEM(args[0], i))->tp_name);
            return NULL;
        }
    }
    Array in[2];
    if (open_arrays(in, NAME_ARRAYS, args + 2, 2, 2) < 0) {
        return NULL;
    }
    Py_ssize_t size = length(&in[1]) / 2;
    int failed = 0;
    if (length(&in[0]) != n || size < 1 || (size & (size - 1)) || known + n >= size) {
        PyErr_Format(PyExc_ValueError, "the table has %zd places; allowed: a power of two above %zd", size, known + n);
        failed = 1;
    }
    for (Py_ssize_t from = 0; !failed && from < n; from += TOGETHER) {
        Py_ssize_t count = n - from < TOGETHER ? n - from : TOGETHER;
        failed = number_some(args[0], from, count, args[1], in[1].view.buf, size - 1, in[0].view.buf) < 0;
    }
    close_arrays(in, 2);
    return failed ? NULL : Py_NewRef(Py_None);
}
