/* Messages about faults of the program under test, and the settings of the emulation. */
#include "fail.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void emu::fail(const char *format, ...)
{
    char text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "emulation: %s\n", text);
    fflush(stderr);
    abort();
}

/* Static functions have no dynamic symbol: addr2line reads the symbol table of the file. */
std::string emu::symbol(const void *address)
{
    char text[256] = "", command[4352];
    Dl_info info = {};

    snprintf(text, sizeof(text), "%p", address);
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr)
        return text;
    snprintf(command, sizeof(command), "addr2line -s -C -f -e '%s' %#zx 2>/dev/null",
             info.dli_fname,
             static_cast<size_t>(static_cast<const char *>(address) -
                                 static_cast<const char *>(info.dli_fbase)));
    FILE *f = popen(command, "r");
    if (f == nullptr)
        return text;
    if (fgets(text, sizeof(text), f) != nullptr)
        text[strcspn(text, "\n")] = '\0';
    pclose(f);
    return text;
}

long emu::setting(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text == nullptr || *text == '\0' ? otherwise : atol(text);
}
