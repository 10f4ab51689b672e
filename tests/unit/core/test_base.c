/* Status, memory, element types, text, the name of the host. */
#include "runtime/core/dtype.h"
#include "runtime/core/host.h"
#include "runtime/core/memory.h"
#include "runtime/core/status.h"
#include "runtime/core/text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(status, message_may_quote_the_previous_one)
{
    cr_assert_eq(tri_fail(TRI_ERR_DATA, "file 'x' is empty"), TRI_ERR_DATA);
    (void)tri_fail(TRI_ERR_USAGE, "data.path: %s", tri_error_text());
    cr_assert_str_eq(tri_error_text(), "data.path: file 'x' is empty");
    cr_assert_str_eq(tri_status_name(TRI_ERR_DATA), "bad data");
    cr_assert_str_eq(tri_status_name((tri_status)99), "unknown status");
}

Test(memory, overflow_is_an_error)
{
    size_t bytes = 7;

    cr_assert_null(tri_realloc(NULL, SIZE_MAX / 2, 3, "test"));
    cr_assert_eq(tri_mul_size(SIZE_MAX / 2, 3, "table", &bytes), TRI_ERR_NOMEM);
    cr_assert_eq(bytes, 7);
    cr_assert_not_null(strstr(tri_error_text(), "table"));
    cr_assert_eq(tri_mul_size(6, 7, "table", &bytes), TRI_OK);
    cr_assert_eq(bytes, 42);
}

Test(memory, aligned_blocks)
{
    for (size_t bytes = 0; bytes < 300; bytes += 13) {
        void *p = tri_alloc_aligned(bytes, "test");

        cr_assert_eq((uintptr_t)p % TRI_ALIGN_BYTES, 0);
        tri_free(p);
    }
}

Test(memory, pool_zeroes_and_keeps_old_objects)
{
    struct tri_pool pool = {0};
    char *first = tri_pool_printf(&pool, "%s %d", "layer", 3);
    unsigned char *big = tri_pool_alloc(&pool, 200000);

    for (int i = 0; i < 200000; i++)
        cr_assert_eq(big[i], 0);
    for (int i = 0; i < 5000; i++)
        cr_assert_eq((uintptr_t)tri_pool_alloc(&pool, 24) % 16, 0);
    cr_assert_str_eq(first, "layer 3");
    cr_assert_str_eq(tri_pool_strdup(&pool, "w"), "w");
    tri_pool_finish(&pool);
    cr_assert_null(pool.head);
}

Test(dtype, rows)
{
    cr_assert_eq(tri_dtype_bytes(TRI_BF16), 2);
    cr_assert_str_eq(tri_dtype_name(TRI_I64), "i64");
    cr_assert(tri_dtype_is_float(TRI_F16));
    cr_assert_not(tri_dtype_is_float(TRI_U8));
}

/* Every 16-bit pattern survives the way through f32; NaNs stay NaN. */
Test(dtype, sixteen_bits_round_trip)
{
    for (unsigned h = 0; h <= 0xffffu; h++) {
        const float b = tri_bf16_to_f32((uint16_t)h), f = tri_f16_to_f32((uint16_t)h);

        cr_assert(isnan(b) ? isnan(tri_bf16_to_f32(tri_bf16_from_f32(b)))
                           : tri_bf16_from_f32(b) == h);
        cr_assert(isnan(f) ? isnan(tri_f16_to_f32(tri_f16_from_f32(f))) : tri_f16_from_f32(f) == h);
    }
    cr_assert_eq(tri_f16_to_f32(0x3c00), 1.0f);
    cr_assert_eq(tri_f16_to_f32(0x7bff), 65504.0f);
    cr_assert_eq(tri_f16_to_f32(0x8001), -0x1p-24f);
    cr_assert_eq(tri_bf16_to_f32(0x3f80), 1.0f);
}

/* Midpoints of neighbours go to the even one, and a hair beside them to the nearer one. */
Test(dtype, rounds_to_nearest_even)
{
    for (unsigned h = 0; h < 0x7bffu; h++) {
        const float lo = tri_f16_to_f32((uint16_t)h), hi = tri_f16_to_f32((uint16_t)(h + 1));
        const float mid = lo + (hi - lo) / 2; /* exact: one bit more than f16 has */

        cr_assert_eq(tri_f16_from_f32(mid), h + (h & 1u));
        cr_assert_eq(tri_f16_from_f32(nextafterf(mid, 0)), h);
        cr_assert_eq(tri_f16_from_f32(nextafterf(mid, 1e6f)), h + 1);
    }
    for (unsigned h = 0x80u; h < 0x7f7fu; h++) {
        const float lo = tri_bf16_to_f32((uint16_t)h), hi = tri_bf16_to_f32((uint16_t)(h + 1));
        const float mid = lo + (hi - lo) / 2;

        cr_assert_eq(tri_bf16_from_f32(mid), h + (h & 1u));
        cr_assert_eq(tri_bf16_from_f32(-mid), 0x8000u | (h + (h & 1u)));
    }
    cr_assert_eq(tri_f16_from_f32(65520.0f), 0x7c00);
    cr_assert_eq(tri_f16_from_f32(65519.0f), 0x7bff);
    cr_assert_eq(tri_bf16_from_f32(3.4e38f), 0x7f80);
}

Test(text, grows_and_escapes)
{
    struct tri_text t = {0};

    for (int i = 0; i < 1000; i++)
        tri_text_printf(&t, "%d,", i % 10);
    cr_assert_eq(t.len, 2000);
    cr_assert_eq(strlen(t.data), 2000);
    tri_text_clear(&t);
    tri_text_json_string(&t, "a\"b\\c\n\x01");
    cr_assert_str_eq(t.data, "\"a\\\"b\\\\c\\n\\u0001\"");
    tri_text_clear(&t);
    tri_text_json_double(&t, 0.1);
    tri_text_printf(&t, " ");
    tri_text_json_double(&t, (double)NAN);
    cr_assert_str_eq(t.data, "0.1 null");
    tri_text_finish(&t);
    cr_assert_null(t.data);
}

Test(host, name_is_cut_to_the_buffer)
{
    char name[TRI_HOST_BYTES], cut[2] = {'x', 'x'};

    tri_host_name(name, sizeof(name));
    cr_assert(name[0] != '\0');
    tri_host_name(cut, sizeof(cut));
    cr_assert(cut[0] == name[0] && cut[1] == '\0');
}
