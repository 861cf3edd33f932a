/* Launching on the CPU: how many threads a grid gets. */
#include "launch.h"

/* A compiled kernel: runs the whole grid; `parameters` is shaped as the one of cuLaunchKernel. */
typedef void (*CpuKernel)(int32_t, int32_t, int32_t, int32_t, void **);

/* After a fork the pool's threads are gone in the child, and OpenMP would wait for them. */
static int forked;

static void mark_forked(void) { __atomic_store_n(&forked, 1, __ATOMIC_RELAXED); }

static int cpu_watch_forks(void) {
  static bool watching; /* written under the import lock */
  if (watching) return 0;
  watching = pthread_atfork(NULL, NULL, mark_forked) == 0;
  return watching ? 0 : -1;
}

/* As many threads as torch gives this thread, never more than programs, one in a forked child. */
static inline int32_t cpu_threads(int64_t programs) {
  if (programs <= 1 || !torch_access.get_num_threads || __atomic_load_n(&forked, __ATOMIC_RELAXED)) return 1;
  int64_t threads = torch_access.get_num_threads();
  return (int32_t)(threads < programs ? threads : programs);
}
