/* What a .cu file includes. */
#ifndef TRI_EMULATION_CUDA_RUNTIME_H
#define TRI_EMULATION_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include "emulation/kernel.h"
#include "emulation/launch.h"
#include "emulation/math.h"
#include "emulation/warp.h"
#include "vector_functions.h"
#endif

#endif
