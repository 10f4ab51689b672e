#include "runtime/core/host.h"

#include <stdio.h>
#include <sys/utsname.h>

void tri_host_name(char *buf, size_t bytes)
{
    struct utsname u;

    TRI_ASSERT(bytes > 0);
    (void)snprintf(buf, bytes, "%s", uname(&u) == 0 ? u.nodename : "?");
}
