/* Arrays through the buffer protocol, for the modules in C beside this file: opened, checked, and let go again. */
#ifndef TALLYGATE_ARRAYS_H
#define TALLYGATE_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Py_buffer view;
    const char *name;
} Array;

/* 0, or -1 with an error that names the array. `kinds` are the struct codes that are taken. */
static inline int
open_array(Array *array, PyObject *object, const char *name, const char *kinds, Py_ssize_t size, int writable)
{
    array->name = name;
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &array->view, flags) < 0) {
        return -1;
    }
    const char *format = array->view.format == NULL ? "B" : array->view.format;
    if (array->view.itemsize != size || format[0] == '\0' || format[1] != '\0' || strchr(kinds, format[0]) == NULL) {
        PyErr_Format(PyExc_TypeError, "%s has items of %zd bytes in the format '%s'; allowed: %zd bytes, one of '%s'",
                     name, array->view.itemsize, format, size, kinds);
        PyBuffer_Release(&array->view);
        array->view.obj = NULL;
        return -1;
    }
    return 0;
}

static inline Py_ssize_t
length(const Array *array)
{
    return array->view.len / array->view.itemsize;
}

typedef struct {
    const char *name, *kinds;
    Py_ssize_t size;
    int writable;
} Wanted;

static inline int
open_arrays(Array *arrays, const Wanted *wanted, PyObject *const *args, Py_ssize_t nargs, Py_ssize_t count)
{
    if (nargs != count) {
        PyErr_Format(PyExc_TypeError, "%zd arguments; allowed: %zd arrays", nargs, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (open_array(&arrays[i], args[i], wanted[i].name, wanted[i].kinds, wanted[i].size, wanted[i].writable) < 0) {
            while (i-- > 0) {
                PyBuffer_Release(&arrays[i].view);
            }
            return -1;
        }
    }
    return 0;
}

static inline void
close_arrays(Array *arrays, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyBuffer_Release(&arrays[i].view);
    }
}

/* 0 if `starts` runs from 0 to `n` without going back. */
static inline int
check_starts(const Array *starts, Py_ssize_t n)
{
    const int64_t *at = starts->view.buf;
    Py_ssize_t count = length(starts);
    int good = count >= 1 && at[0] == 0 && at[count - 1] == n;
    for (Py_ssize_t i = 1; good && i < count; i++) {
        good = at[i] >= at[i - 1];
    }
    if (!good) {
        PyErr_Format(PyExc_ValueError, "starts does not rise from 0 to %zd, the number of decisions", n);
        return -1;
    }
    return 0;
}

/* Defined in fairness/_order.c and live/_names.c. */
PyObject *tallygate_order(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *tallygate_number_names(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
/* Defined in fairness/_arrange.c. */
PyObject *tallygate_arrange(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
