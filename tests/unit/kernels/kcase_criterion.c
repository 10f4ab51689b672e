/* Failures of the cases as those of a Criterion test. */
#include "tests/unit/kernels/kcase.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void kcase_failed(const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cr_assert_fail("%s", text);
    abort(); /* the assertion has left the test */
}
