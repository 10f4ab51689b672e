/* Starts and ends the environment as the program does; exit code 2: the launcher was refused. */
#include "launch/env.h"

#include <stdio.h>

int main(void)
{
    struct tri_env env;
    int code = 0;

    if (tri_env_init(&env) != TRI_OK) {
        (void)fprintf(stderr, "%s\n", tri_error_text());
        code = 2;
    }
    tri_env_finish(&env);
    return code;
}
