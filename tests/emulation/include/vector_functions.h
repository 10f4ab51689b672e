/* make_float4 and its like. */
#ifndef TRI_EMULATION_VECTOR_FUNCTIONS_H
#define TRI_EMULATION_VECTOR_FUNCTIONS_H

#include "vector_types.h"

#define EMU_MAKE(name, type)                                                                       \
    static inline name##1 make_##name##1(type x)                                                   \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    static inline name##2 make_##name##2(type x, type y)                                           \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(type x, type y, type z)                                   \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                           \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }

EMU_MAKE(char, signed char)
EMU_MAKE(uchar, unsigned char)
EMU_MAKE(short, short)
EMU_MAKE(ushort, unsigned short)
EMU_MAKE(int, int)
EMU_MAKE(uint, unsigned int)
EMU_MAKE(float, float)
EMU_MAKE(double, double)
EMU_MAKE(longlong, long long)
EMU_MAKE(ulonglong, unsigned long long)
#undef EMU_MAKE

#endif
