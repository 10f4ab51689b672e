/* Faults of the program under test end it, with a message. */
#ifndef TRI_EMULATION_FAIL_H
#define TRI_EMULATION_FAIL_H

#include <string>

namespace emu
{

/* Prints "emulation: ..." on standard error and aborts. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Name of the function at an address, or the address. */
std::string symbol(const void *address);

/* An integer setting of the emulation: an environment variable, read each time. */
long setting(const char *name, long otherwise);

} // namespace emu

#endif
