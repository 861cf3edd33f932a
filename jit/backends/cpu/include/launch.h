// One program of the grid, and the loop over all of them.
#pragma once
#include "vector.h"

// The OpenMP runtime of the process, libgomp's entry points: whoever loads the library sets them to the runtime that torch
// uses (a kernel that brought its own would start a second pool of threads). Null: everything runs on one thread.
extern "C" {
__attribute__((visibility("default"))) void (*opgraft_parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
__attribute__((visibility("default"))) int (*opgraft_thread)() = nullptr;
__attribute__((visibility("default"))) int (*opgraft_threads)() = nullptr;
}
extern "C" int posix_memalign(void**, __SIZE_TYPE__, __SIZE_TYPE__) noexcept;

namespace opgraft {

struct Program {
  i32 id[3];    // tl.program_id
  i32 grid[3];  // tl.num_programs
};

// Numbers on axis A grow first, then those on axis B.
template <i32 A, i32 B, class Body> struct Grid {
  i32 size[3];
  i64 total;
  Body body;

  // Runs programs first, first + 1, ..., last - 1.
  void run(i64 first, i64 last, u8* scratch) const {
    Program program{{}, {size[0], size[1], size[2]}};
    const i64 plane = i64(size[A]) * size[B];
    for (i64 p = first; p < last; p++) {
      program.id[A] = i32(p % size[A]);
      program.id[B] = i32(p / size[A] % size[B]);
      program.id[3 - A - B] = i32(p / plane);
      body(program, scratch);
    }
  }
  // One thread's share of the grid, with memory for its blocks. Not inlined: compiled once for all its callers.
  template <i64 ScratchBytes> __attribute__((noinline)) void share(i64 thread, i64 threads) const {
    const i64 each = total / threads, more = total % threads;
    const i64 first = thread * each + (thread < more ? thread : more);
    const i64 last = first + each + (thread < more ? 1 : 0);
    if constexpr (ScratchBytes == 0) {
      run(first, last, nullptr);
    } else {
      void* memory = nullptr;
      if (posix_memalign(&memory, 64, ScratchBytes) != 0) __builtin_trap();
      run(first, last, static_cast<u8*>(memory));
      __builtin_free(memory);
    }
  }
};

// Iterations of a loop, roughly. As f64: products of these may exceed any integer.
INLINE f64 trips(i64 start, i64 stop, i64 step) {
  return step > 0 && start < stop ? (f64(stop) - f64(start)) / f64(step) : 0;
}
// Programs that are worth a thread, by the nanoseconds that one may take: enough for some microseconds of work.
INLINE i64 programs_worth_a_thread(f64 nanoseconds) {
  return nanoseconds < 4000 ? i64(4000 / (nanoseconds < 1 ? 1 : nanoseconds) + 0.5) : 1;
}

// Runs body(program, scratch) for every program of the grid on up to num_threads threads of the process's OpenMP pool.
// A thread is worth its start only when it gets at least `grain` programs.
template <i64 ScratchBytes, i32 A, i32 B, class Body>
inline void run_grid(i32 grid0, i32 grid1, i32 grid2, i32 num_threads, i64 grain, Body body) {
  const i64 total = (grid0 > 0 && grid1 > 0 && grid2 > 0) ? i64(grid0) * grid1 * grid2 : 0;
  const Grid<A, B, Body> grid{{grid0, grid1, grid2}, total, body};
  i64 threads = total / grain;
  if (threads > num_threads) threads = num_threads;
  if (threads <= 1 || opgraft_parallel == nullptr) {
    if (total > 0) grid.template share<ScratchBytes>(0, 1);
    return;
  }
  auto part = [](void* self) {
    static_cast<const Grid<A, B, Body>*>(self)->template share<ScratchBytes>(opgraft_thread(), opgraft_threads());
  };
  opgraft_parallel(part, const_cast<Grid<A, B, Body>*>(&grid), unsigned(threads), 0);
}

}  // namespace opgraft
