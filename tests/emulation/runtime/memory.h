/* Memory of the emulated devices. */
#ifndef TRI_EMULATION_MEMORY_H
#define TRI_EMULATION_MEMORY_H

#include "cuda_runtime_api.h"

namespace emu
{

/* Poisoned memory of the current device; nullptr where it is full. */
void *device_alloc(size_t bytes);
cudaError_t device_free(void *p);

} // namespace emu

#endif
