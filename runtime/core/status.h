/* Result codes and the error message that travels with them.
 *
 * The function that first knows of an error writes the message with tri_fail() (lower case, subject
 * in quotes, what is allowed, no full stop) and returns the code; every caller only passes the code
 * on. The message lives in thread-local storage until the next tri_fail() of the same thread; a
 * thread that hands a failure to another one carries the text across (tri_error_text /
 * tri_error_set). */
#ifndef TRI_RUNTIME_CORE_STATUS_H
#define TRI_RUNTIME_CORE_STATUS_H

#ifdef __cplusplus
#define TRI_BEGIN_DECLS extern "C" {
#define TRI_END_DECLS   }
#else
#define TRI_BEGIN_DECLS
#define TRI_END_DECLS
#endif

#define TRI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TRI_CHECKED           __attribute__((warn_unused_result))

TRI_BEGIN_DECLS

/* X(name, text): one row a code; the enum and tri_status_name() come from it. */
#define TRI_STATUS_LIST(X)                                                                         \
    X(OK, "ok")                                                                                    \
    X(ERR_USAGE, "wrong usage or configuration")                                                   \
    X(ERR_DATA, "bad data")                                                                        \
    X(ERR_CHECKPOINT, "bad checkpoint")                                                            \
    X(ERR_UNSUPPORTED, "unsupported")                                                              \
    X(ERR_NOMEM, "out of memory")                                                                  \
    X(ERR_IO, "input/output error")                                                                \
    X(ERR_COMM, "communication error")                                                             \
    X(ERR_TIMEOUT, "timed out")                                                                    \
    X(ERR_NUMERIC, "numeric failure")                                                              \
    X(ERR_INTERNAL, "internal error")

typedef enum tri_status {
#define X(name, text) TRI_##name,
    TRI_STATUS_LIST(X)
#undef X
        TRI_STATUS_COUNT
} tri_status;

/* Short fixed text of a code. Local. */
const char *tri_status_name(tri_status st);

/* Stores the formatted message for this thread and returns code. Local. */
tri_status tri_fail(tri_status code, const char *fmt, ...) TRI_PRINTF(2, 3);

/* The message of the last tri_fail() of this thread ("" if none), valid until the next. Local. */
const char *tri_error_text(void);

/* Sets this thread's message: used when a failure is carried over from another thread or rank.
 * Local. */
void tri_error_set(const char *text);

/* Reports a bug of ours (file, line, condition) to standard error and ends the process. Never for
 * input. */
void tri_assert_fail(const char *file, int line, const char *cond) __attribute__((noreturn));

#define TRI_TRY(call)                                                                              \
    do {                                                                                           \
        tri_status tri_st_ = (call);                                                               \
        if (tri_st_ != TRI_OK)                                                                     \
            return tri_st_;                                                                        \
    } while (0)

#define TRI_TRY_GOTO(st, call, label)                                                              \
    do {                                                                                           \
        (st) = (call);                                                                             \
        if ((st) != TRI_OK)                                                                        \
            goto label;                                                                            \
    } while (0)

#define TRI_ASSERT(cond)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            tri_assert_fail(__FILE__, __LINE__, #cond);                                            \
    } while (0)

TRI_END_DECLS
#endif
