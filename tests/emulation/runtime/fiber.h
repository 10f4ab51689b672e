/* Changing stacks within one thread. */
#ifndef TRI_EMULATION_FIBER_H
#define TRI_EMULATION_FIBER_H

#include <stddef.h>

extern "C" {
/* Saves the registers that a call preserves on this stack, leaves its top in *save, and goes on
 * where the stack `top` was left. */
void emu_fiber_switch(void **save, void *top);
}

namespace emu
{

/* Makes a stack of which emu_fiber_switch calls `entry`, which must never return; gives its top. */
void *fiber_prepare(void *stack, size_t bytes, void (*entry)());

} // namespace emu

#endif
