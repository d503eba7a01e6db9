/* The tail of a module in C: what it says of interpreters and the GIL, and how Python finds it. Its functions stand in
 * `module_methods` before. */
#ifndef TALLYGATE_MODULE_H
#define TALLYGATE_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyModuleDef_Slot module_slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

#define TALLYGATE_MODULE(name, dotted)        \
    static struct PyModuleDef definition = {  \
        PyModuleDef_HEAD_INIT,                \
        .m_name = dotted,                     \
        .m_methods = module_methods,          \
        .m_slots = module_slots,              \
    };                                        \
                                              \
    PyMODINIT_FUNC                            \
    PyInit_##name(void)                       \
    {                                         \
        return PyModuleDef_Init(&definition); \
    }

#endif
