/* A CUDA driver that loads no program and finds no device, under the name libcuda.so.1: enough for
 * cuDNN to compile kernels at run time for a device that is only described. What the library looks
 * up but must not need here fails with 999. */
#include <stddef.h>

enum { SUCCESS = 0, NO_DEVICE = 100, UNKNOWN = 999 };

#define STUB(name)                                                                                 \
    int name(void);                                                                                \
    int name(void)

STUB(cuInit)
{
    return NO_DEVICE;
}

/* Handles are only passed on. */
int cuLibraryLoadData(void **library);
int cuLibraryLoadData(void **library)
{
    *library = library;
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel)
{
    *kernel = kernel;
    return SUCCESS;
}

#define DONE(name)                                                                                 \
    STUB(name)                                                                                     \
    {                                                                                              \
        return SUCCESS;                                                                            \
    }
#define FAIL(name)                                                                                 \
    STUB(name)                                                                                     \
    {                                                                                              \
        return UNKNOWN;                                                                            \
    }

DONE(cuLibraryUnload)
DONE(cuKernelSetAttribute)
DONE(cuFuncSetAttribute)
FAIL(cuCtxGetCurrent)
FAIL(cuCtxGetDevice)
FAIL(cuCtxGetLimit)
FAIL(cuCtxPopCurrent)
FAIL(cuCtxPushCurrent)
FAIL(cuDeviceGet)
FAIL(cuDeviceGetAttribute)
FAIL(cuDeviceGetCount)
FAIL(cuDevicePrimaryCtxRelease)
FAIL(cuDevicePrimaryCtxReset)
FAIL(cuDevicePrimaryCtxRetain)
FAIL(cuDriverGetVersion)
FAIL(cuFuncGetAttribute)
FAIL(cuGetErrorName)
FAIL(cuGetErrorString)
FAIL(cuKernelGetAttribute)
FAIL(cuLaunchCooperativeKernel)
FAIL(cuLaunchKernel)
FAIL(cuLaunchKernelEx)
FAIL(cuLibraryLoadFromFile)
FAIL(cuLinkAddData)
FAIL(cuLinkAddData_v2)
FAIL(cuLinkAddFile_v2)
FAIL(cuLinkComplete)
FAIL(cuLinkCreate)
FAIL(cuLinkCreate_v2)
FAIL(cuLinkDestroy)
FAIL(cuMemcpyDtoH_v2)
FAIL(cuModuleGetFunction)
FAIL(cuModuleGetGlobal_v2)
FAIL(cuModuleLoadData)
FAIL(cuModuleLoadDataEx)
FAIL(cuModuleLoadFatBinary)
FAIL(cuModuleUnload)
FAIL(cuOccupancyMaxActiveBlocksPerMultiprocessor)
FAIL(cuOccupancyMaxPotentialClusterSize)
FAIL(cuStreamGetCtx)
FAIL(cuStreamSynchronize)
FAIL(cuTensorMapEncodeTiled)
