// What is written differently for one compiler or the other, so that nothing else is.
#pragma once

// One compiled variant of a hot loop for each x86-64 level, chosen at load time; a plain function elsewhere, and under
// AddressSanitizer or ThreadSanitizer, which are not yet there when the choice is made.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define XCLEARN_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define XCLEARN_CLONES
#endif

// Into its caller, so that it is compiled for the caller's processor variant.
#if defined(_MSC_VER) && !defined(__clang__)
#define XCLEARN_INLINE __forceinline
#else
#define XCLEARN_INLINE inline __attribute__((always_inline))
#endif
