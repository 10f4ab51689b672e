/* Makes a program need the emulated backend, of which it else names no symbol: so it finds the
 * backend loaded and asks for no driver. */
#include "runtime/device/cuda_backend.h"

extern const struct tri_cuda_backend tri_cuda_backend;
extern const struct tri_cuda_backend *const tri_emulated_backend;

const struct tri_cuda_backend *const tri_emulated_backend = &tri_cuda_backend;
