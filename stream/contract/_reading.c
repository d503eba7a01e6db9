/* Columns out of many objects of one class: what `stream.contract.reading` does in Python, without the interpreter.
 *
 * Reads a slot at the offset that its member descriptor states: it follows any class with slots and knows none by itself.
 * Never writes to an object, never calls back into Python while it reads, and borrows every reference from the list,
 * whose objects must keep what stands in their slots meanwhile (as frozen ones do).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>

#ifndef Py_BEGIN_CRITICAL_SECTION /* before CPython 3.13 the GIL is lock enough */
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION() }
#endif

typedef struct {
    PyObject *objects; /* a list */
    PyTypeObject *owner;
    PyObject *name;
    Py_ssize_t offset;
} Slots;

static int
open_slots(Slots *slots, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError, "%zd arguments; allowed: a list of objects and the descriptor of a slot", nargs);
        return -1;
    }
    if (!PyList_CheckExact(args[0])) {
        PyErr_Format(PyExc_TypeError, "objects is a %s; allowed: a list", Py_TYPE(args[0])->tp_name);
        return -1;
    }
    PyMemberDescrObject *member = (PyMemberDescrObject *)args[1];
    if (!Py_IS_TYPE(args[1], &PyMemberDescr_Type)
        || (member->d_member->type != T_OBJECT_EX && member->d_member->type != T_OBJECT)) {
        PyErr_Format(PyExc_TypeError, "member is a %s; allowed: the descriptor of a slot", Py_TYPE(args[1])->tp_name);
        return -1;
    }
    slots->objects = args[0];
    slots->owner = PyDescr_TYPE(member);
    slots->name = PyDescr_NAME(member);
    slots->offset = member->d_member->offset;
    return 0;
}

/* What stands in the slot of object `at`, borrowed; NULL with an error set if there is nothing. */
static inline PyObject *
read_slot(const Slots *slots, Py_ssize_t at)
{
    PyObject *object = PyList_GET_ITEM(slots->objects, at);
    if (!PyObject_TypeCheck(object, slots->owner)) {
        PyErr_Format(PyExc_TypeError, "objects holds a %s; allowed: %s", Py_TYPE(object)->tp_name,
                     slots->owner->tp_name);
        return NULL;
    }
    PyObject *value = *(PyObject **)((char *)object + slots->offset);
    if (value == NULL) {
        PyErr_SetObject(PyExc_AttributeError, slots->name);
    }
    return value;
}

/* Reads an integer of at most 64 bits; -1 with an error set if it is none. */
static inline int64_t
read_integer(const Slots *slots, Py_ssize_t at)
{
    PyObject *value = read_slot(slots, at);
    if (value == NULL) {
        return -1;
    }
    if (!PyLong_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%U is a %s; allowed: int", slots->name, Py_TYPE(value)->tp_name);
        return -1;
    }
#if SIZEOF_LONG >= 8
    return PyLong_AsLong(value); /* several times faster than PyLong_AsLongLong before CPython 3.13 */
#else
    return PyLong_AsLongLong(value);
#endif
}

/* Whether the list still has the length for which there is room: making an object may have run a finalizer. */
static int
is_as_long(const Slots *slots, Py_ssize_t count)
{
    if (PyList_GET_SIZE(slots->objects) != count) {
        PyErr_SetString(PyExc_RuntimeError, "objects changed its length while it was read");
        return 0;
    }
    return 1;
}

static int
read_integers(const Slots *slots, Py_ssize_t count, int64_t *out)
{
    if (!is_as_long(slots, count)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = read_integer(slots, i);
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(integers_doc, "integers(objects, member, /)\n--\n\nSee `stream.contract.reading.integers`.");

static PyObject *
integers(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Slots slots;
    if (open_slots(&slots, args, nargs) < 0) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(slots.objects);
    PyObject *column = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    if (column == NULL) {
        return NULL;
    }
    int failed;
    Py_BEGIN_CRITICAL_SECTION(slots.objects);
    failed = read_integers(&slots, count, (int64_t *)PyBytes_AS_STRING(column));
    Py_END_CRITICAL_SECTION();
    if (failed) {
        Py_CLEAR(column);
    }
    return column;
}

typedef struct {
    PyObject *object;
    int64_t number;
} Entry;

/* The entry of an object in a table that is never full, or the free one where it belongs. */
static inline Entry *
find_entry(Entry *table, size_t mask, PyObject *object)
{
    /* The last four bits of all addresses are alike; the multiplication spreads those that lie side by side. */
    size_t at = (size_t)((((uint64_t)(uintptr_t)object >> 4) * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & mask;
    while (table[at].object != NULL && table[at].object != object) {
        at = (at + 1) & mask;
    }
    return &table[at];
}

/* Appending makes no object that the collector knows, so no Python runs in between.
 * Fills `found` with the distinct values and `out` with each object's index among them; -1 with an error set. */
static int
number_values(const Slots *slots, Py_ssize_t count, Entry *table, size_t size, PyObject *found, int64_t *out)
{
    if (!is_as_long(slots, count)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = read_slot(slots, i);
        if (value == NULL) {
            return -1;
        }
        Entry *entry = find_entry(table, size - 1, value);
        if (entry->object == NULL) {
            entry->object = value;
            entry->number = PyList_GET_SIZE(found);
            if (PyList_Append(found, value) < 0) {
                return -1;
            }
        }
        out[i] = entry->number;
    }
    return 0;
}

PyDoc_STRVAR(distinct_doc, "distinct(objects, member, /)\n--\n\nSee `stream.contract.reading.distinct`.");

static PyObject *
distinct(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Slots slots;
    if (open_slots(&slots, args, nargs) < 0) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(slots.objects);
    size_t size = 16;
    while (size < 2 * (size_t)count) {
        size *= 2;
    }
    Entry *table = PyMem_Calloc(size, sizeof(Entry));
    if (table == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *pair = NULL;
    PyObject *found = PyList_New(0);
    PyObject *index = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    if (found != NULL && index != NULL) {
        int failed;
        Py_BEGIN_CRITICAL_SECTION(slots.objects);
        failed = number_values(&slots, count, table, size, found, (int64_t *)PyBytes_AS_STRING(index));
        Py_END_CRITICAL_SECTION();
        pair = failed ? NULL : PyTuple_Pack(2, found, index);
    }
    Py_XDECREF(found);
    Py_XDECREF(index);
    PyMem_Free(table);
    return pair;
}

static PyMethodDef module_methods[] = {
    {"integers", (PyCFunction)(void (*)(void))integers, METH_FASTCALL, integers_doc},
    {"distinct", (PyCFunction)(void (*)(void))distinct, METH_FASTCALL, distinct_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stream.contract._reading",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__reading(void)
{
    return PyModuleDef_Init(&module_definition);
}
