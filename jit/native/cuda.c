/* Launching on CUDA through the driver, libcuda.so.1, which is opened at the first use.
 *
 * Types and numbers are those of cuda.h; they are part of the driver's ABI. The attributes of a launch (cooperative,
 * cluster, programmatic dependent launch) are the ones that Triton's driver sets.
 */
#include "launch.h"

typedef int CUresult;
typedef struct CUctx_st *CUcontext;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

enum {
  CUDA_SUCCESS = 0,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
  CU_CLUSTER_SCHEDULING_POLICY_SPREAD = 1,
};

typedef struct {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int flag;
    unsigned dimensions[3];
  } value;
} CUlaunchAttribute;

typedef struct {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned n_attributes;
} CUlaunchConfig;

typedef struct {
  void *library;
  CUresult (*init)(unsigned);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                     void **, void **);
  CUresult (*launch_ex)(const CUlaunchConfig *, CUfunction, void **, void **);
  CUresult (*context_get)(CUcontext *);
  CUresult (*context_set)(CUcontext);
  CUresult (*context_push)(CUcontext);
  CUresult (*context_pop)(CUcontext *);
  CUresult (*device_get)(int *, int);
  CUresult (*primary_retain)(CUcontext *, int);
  CUresult (*function_set)(CUfunction, int, int);
  CUresult (*error_name)(CUresult, const char **);
  CUresult (*error_text)(CUresult, const char **);
} Driver;

static Driver cuda_driver;

/* What one kernel's launches have in common. */
typedef struct {
  CUcontext context;
  unsigned threads, shared_bytes, ctas, n_attributes;
  CUlaunchAttribute attributes[4];
} CudaLaunch;

/* Opens libcuda (`path` or the loader's libcuda.so.1). Returns 0, or -1 with an exception. Called with the GIL. */
static int cuda_open(const char *path) {
  if (cuda_driver.library) return 0;
  Driver driver = {.library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)};
  if (!driver.library) {
    PyErr_Format(PyExc_RuntimeError, "the CUDA driver could not be loaded: %s", dlerror());
    return -1;
  }
  struct {
    const char *name;
    void *target;
  } symbols[] = {
      {"cuInit", &driver.init},
      {"cuLaunchKernel", &driver.launch},
      {"cuCtxGetCurrent", &driver.context_get},
      {"cuCtxSetCurrent", &driver.context_set},
      {"cuCtxPushCurrent_v2", &driver.context_push},
      {"cuCtxPopCurrent_v2", &driver.context_pop},
      {"cuDeviceGet", &driver.device_get},
      {"cuDevicePrimaryCtxRetain", &driver.primary_retain},
      {"cuFuncSetAttribute", &driver.function_set},
      {"cuGetErrorName", &driver.error_name},
      {"cuGetErrorString", &driver.error_text},
      {"cuLaunchKernelEx", &driver.launch_ex}, /* the last: absent before CUDA 11.8 */
  };
  size_t count = sizeof symbols / sizeof *symbols;
  for (size_t i = 0; i < count; ++i) {
    void *address = dlsym(driver.library, symbols[i].name);
    if (!address && i + 1 < count) {
      PyErr_Format(PyExc_RuntimeError, "the CUDA driver has no %s; a driver for CUDA 11 or later is needed",
                   symbols[i].name);
      dlclose(driver.library);
      return -1;
    }
    memcpy(symbols[i].target, &address, sizeof address);
  }
  cuda_driver = driver;
  return 0;
}

static int cuda_check(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return 0;
  const char *text = NULL;
  cuda_driver.error_text(result, &text);
  PyErr_Format(PyExc_RuntimeError, "Triton Error [CUDA]: %s (%d) from %s", text ? text : "unknown error", result, what);
  return -1;
}

/* Fills `launch` for a kernel. `device` -1: the context that is current now. Returns 0, or -1 with an exception. */
static int cuda_prepare(CudaLaunch *launch, CUfunction function, int device, unsigned threads, unsigned shared_bytes,
                        unsigned ctas, bool cooperative, bool dependent) {
  memset(launch, 0, sizeof *launch);
  launch->threads = threads;
  launch->shared_bytes = shared_bytes;
  launch->ctas = ctas;
  CUlaunchAttribute *attributes = launch->attributes;
  unsigned n = 0;
  if (dependent) {
    attributes[n].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[n++].value.flag = 1;
  }
  if (cooperative) {
    attributes[n].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[n++].value.flag = 1;
  }
  if (ctas != 1) {
    attributes[n].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[n].value.dimensions[0] = ctas;
    attributes[n].value.dimensions[1] = 1;
    attributes[n++].value.dimensions[2] = 1;
    attributes[n].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
    attributes[n++].value.flag = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
  }
  launch->n_attributes = n;
  if (n && !cuda_driver.launch_ex) {
    PyErr_SetString(PyExc_RuntimeError, "cooperative, cluster and dependent launches need a driver for CUDA 11.8");
    return -1;
  }
  if (device < 0) {
    if (cuda_check(cuda_driver.context_get(&launch->context), "cuCtxGetCurrent") < 0) return -1;
  }
  if (!launch->context) {
    int handle;
    if (cuda_check(cuda_driver.init(0), "cuInit") < 0) return -1;
    if (cuda_check(cuda_driver.device_get(&handle, device < 0 ? 0 : device), "cuDeviceGet") < 0) return -1;
    if (cuda_check(cuda_driver.primary_retain(&launch->context, handle), "cuDevicePrimaryCtxRetain") < 0) return -1;
  }
  /* Sixteen blocks are more than the portable cluster size of 8. */
  if (ctas > 8)
    return cuda_check(
        cuda_driver.function_set(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), "cuFuncSetAttribute");
  return 0;
}

/* One launch in the kernel's own context, whatever context the thread has. Needs no GIL. */
static CUresult cuda_launch(const CudaLaunch *launch, CUfunction function, CUstream stream, const int32_t grid[3],
                            void **parameters) {
  CUcontext current;
  CUresult result = cuda_driver.context_get(&current);
  if (UNLIKELY(result != CUDA_SUCCESS)) return result;
  bool pushed = false;
  if (UNLIKELY(current != launch->context)) {
    /* A new thread has no context: it keeps this one. Another device's context comes back after the launch. */
    pushed = current != NULL;
    result = pushed ? cuda_driver.context_push(launch->context) : cuda_driver.context_set(launch->context);
    if (result != CUDA_SUCCESS) return result;
  }
  if (LIKELY(launch->n_attributes == 0)) {
    result = cuda_driver.launch(function, grid[0], grid[1], grid[2], launch->threads, 1, 1, launch->shared_bytes,
                                stream, parameters, NULL);
  } else {
    CUlaunchConfig config = {
        .grid = {(unsigned)grid[0] * launch->ctas, grid[1], grid[2]},
        .block = {launch->threads, 1, 1},
        .shared_bytes = launch->shared_bytes,
        .stream = stream,
        .attributes = (CUlaunchAttribute *)launch->attributes,
        .n_attributes = launch->n_attributes,
    };
    result = cuda_driver.launch_ex(&config, function, parameters, NULL);
  }
  if (UNLIKELY(pushed)) cuda_driver.context_pop(&current);
  return result;
}
