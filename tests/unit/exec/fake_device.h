/* A device that is not the host and yet is: its memory is the process's and its calls run at once,
 * so that the executor's path for devices runs in unit tests. Order between streams is not tested:
 * the emulation does that. */
#ifndef TRI_TESTS_UNIT_EXEC_FAKE_DEVICE_H
#define TRI_TESTS_UNIT_EXEC_FAKE_DEVICE_H

#include "runtime/device/device.h"

/* Allocations beyond `limit` bytes in one call fail. One device a process. */
struct tri_device *fake_device(size_t limit);

#endif
