/* What the parts of the launch extension share.
 *
 * build.py joins the files of this folder into one translation unit (this header, tensor.c, scalar.c, cuda.c, cpu.c,
 * watch.c, handle.c, key.c, dispatcher.c, launcher.c, plain_call.c, module.c), so everything but the module's init function is static.
 */
#ifndef OPGRAFT_LAUNCH_H
#define OPGRAFT_LAUNCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a Slot is read at its parameter's width, which needs a little-endian machine"
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Longest parameter list that a launch accepts (CUDA's own limit is 4096 bytes, 32764 since CUDA 12.1). */
#define MAX_ARGUMENTS 4096

/* One kernel parameter: the parameter array points at it, and the kernel reads as many bytes as the type has. */
typedef union {
  uint64_t u64;
  int64_t i64;
  double f64;
  float f32;
  uint16_t bits16;
  void *pointer;
} Slot;

/* Built once from Python (module.c, `configure`): how to read tensors, and who words the errors. */
typedef struct {
  PyTypeObject *tensor_type;    /* torch.Tensor */
  PyTypeObject *parameter_type; /* torch.nn.Parameter */
  Py_ssize_t tensor_offset;     /* where a Python tensor holds its at::Tensor; 0: not known, use methods */
  int32_t (*get_data_ptr)(void *, void **);
  int32_t (*get_dtype)(void *, int32_t *);
  int32_t (*get_device_type)(void *, int32_t *);
  int32_t (*get_device_index)(void *, int32_t *);
  int (*get_num_threads)(void); /* torch.get_num_threads() of this thread; NULL: one thread */
  int32_t (*get_cuda_stream)(int32_t, void **);
  int64_t (*count_modes)(void);   /* entered torch dispatch modes of this thread */
  bool (*key_included)(uint16_t); /* whether a dispatch key is active in this thread */
  uint16_t functorch_key;         /* the key that is active under torch.func transforms */
  int64_t (*count_function_modes)(void); /* entered torch function modes; NULL, as the next three: ask in Python */
  bool (*profiler_enabled)(void);
  bool (*grad_enabled)(void);
  bool (*requires_grad)(const void *); /* of a TensorImpl */
  bool (*is_neg)(const void *);        /* of an at::Tensor, as the next two: its memory does not hold its values */
  bool (*is_conj)(const void *);
  bool (*is_zerotensor)(const void *);
  PyObject *cuda_error;         /* (result, error name, error text, handle, arguments, grid) -> exception */
  PyObject *guard_error;        /* (handle, argument index, value) -> exception */
  PyObject *resolve_grid;       /* (kernel's name, grid) -> tuple of three ints */
  PyObject *with_hooks;         /* (handle, stream, *arguments, grid0, grid1, grid2), when a launch hook may be set */
} Configuration;

static Configuration torch_access;

static PyObject *name_data_ptr; /* interned "data_ptr" */

#endif
