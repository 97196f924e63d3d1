/* Functions on plain pointers marked DTP_CPU_CLONES are compiled once per instruction set; the
 * loader picks the copy for the processor at hand. Clones need indirect functions, whose resolvers
 * run before a sanitizer's runtime is up: sanitizer builds and other compilers get one plain copy.
 */
#ifndef DTP_CORE_BASE_CLONES_H
#define DTP_CORE_BASE_CLONES_H

#include <stddef.h> /* not an empty translation unit */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) &&   \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DTP_CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DTP_CPU_CLONES
#endif

#endif
