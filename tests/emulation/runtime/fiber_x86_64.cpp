/* Fibers on x86-64: six registers and the stack pointer. */
#include "fiber.h"

#include <stdint.h>

asm(R"(
    .text
    .globl emu_fiber_switch
    .type emu_fiber_switch, @function
emu_fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_fiber_switch, .-emu_fiber_switch
    .section .note.GNU-stack, "", @progbits
    .text
)");

void *emu::fiber_prepare(void *stack, size_t bytes, void (*entry)())
{
    uintptr_t end = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~static_cast<uintptr_t>(15);
    void **top = reinterpret_cast<void **>(end);

    *--top = nullptr; /* so that entry finds the alignment that a call leaves */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    return top;
}
