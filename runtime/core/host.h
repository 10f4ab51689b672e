/* The name of this host, for messages and for telling machines apart. */
#ifndef TRI_RUNTIME_CORE_HOST_H
#define TRI_RUNTIME_CORE_HOST_H

#include "runtime/core/status.h"

#include <stddef.h>

TRI_BEGIN_DECLS

enum { TRI_HOST_BYTES = 65 }; /* a buffer for any name: Linux allows 64 characters */

/* The name in buf, cut to bytes - 1 (bytes > 0); "?" when it is not known. Local. */
void tri_host_name(char *buf, size_t bytes);

TRI_END_DECLS

#endif
