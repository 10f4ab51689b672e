/* Loading of the CUDA backend, once a process and never undone. */
#include "runtime/device/cuda_backend.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define OBJECT "libtrireme_cuda.so.0"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct tri_cuda_backend *backend;
static char reason[512];

static void load(void)
{
    void *object = dlopen(OBJECT, RTLD_NOW | RTLD_LOCAL);

    backend = object != NULL ? dlsym(object, TRI_CUDA_BACKEND) : NULL;
    if (backend == NULL)
        snprintf(reason, sizeof(reason), "%s", dlerror());
}

tri_status tri_cuda_backend_load(const struct tri_cuda_backend **out)
{
    pthread_once(&once, load);
    if (backend == NULL)
        return tri_fail(TRI_ERR_USAGE,
                        "no CUDA backend: %s; to build it, install CUDA 13 with cuBLASLt, cuDNN "
                        "and NCCL and set up the build with -Dcuda=enabled",
                        reason);
    *out = backend;
    return TRI_OK;
}

/* The driver's library costs little to look for and is what a machine without a device lacks;
 * a backend that is linked into the program needs none. */
static bool may_have_device(void)
{
    void *driver = dlopen(OBJECT, RTLD_NOW | RTLD_NOLOAD);

    return driver != NULL || dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
}

int tri_device_cuda_count(void)
{
    const struct tri_cuda_backend *b;

    if (!may_have_device() || tri_cuda_backend_load(&b) != TRI_OK)
        return 0;
    return b->count();
}

tri_status tri_device_cuda_open(int ordinal, struct tri_device **out)
{
    const struct tri_cuda_backend *b;

    TRI_TRY(tri_cuda_backend_load(&b));
    return b->open(ordinal, out);
}
