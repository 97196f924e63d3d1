/* Which kernel set OpenBLAS gets, in processes that have not loaded it: every case is a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/cpu/gemm/blas.h"
#include "executor/cpu/cpu.h"
#include "executor/device/backend.h"

static const char SONAME[] = "libopenblas.so.0";
static const char CORETYPE[] = "OPENBLAS_CORETYPE";

/* A check of a child; the first that fails is printed. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                  \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static void in_child(bool (*body)(void))
{
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)unsetenv(CORETYPE);
        _exit(body() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const char *haswell(const char *core)
{
    return strcmp(core, "Haswell") != 0 ? "Haswell" : "Nehalem";
}

static const char *nothing(const char *core)
{
    (void)core;
    return NULL;
}

static bool multiplies(const dtp_blas *blas)
{
    const float a[] = {1.0f, 2.0f, 3.0f, 4.0f}, b[] = {5.0f, 6.0f, 7.0f, 8.0f};
    float c[4] = {0.0f};
    blas->sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 2, 2, 2, 1.0f, a, 2, b, 2, 0.0f, c, 2);
    return c[0] == 19.0f && c[1] == 22.0f && c[2] == 43.0f && c[3] == 50.0f;
}

static bool takes_the_preferred_set(void)
{
    dtp_blas blas;
    CHECK(dtp_blas__open(SONAME, haswell, &blas, NULL) == DTP_OK);
    CHECK(!blas.found_loaded && getenv(CORETYPE) == NULL);
    CHECK(strcmp(blas.corename(), "Haswell") == 0 || strcmp(blas.corename(), "Nehalem") == 0);
    CHECK(strstr(blas.config(), blas.corename()) != NULL);
    return multiplies(&blas);
}

static bool leaves_the_users_choice(void)
{
    dtp_blas blas;
    CHECK(setenv(CORETYPE, "Sandybridge", 1) == 0);
    CHECK(dtp_blas__open(SONAME, haswell, &blas, NULL) == DTP_OK);
    CHECK(strcmp(blas.corename(), "Sandybridge") == 0);
    const char *left = getenv(CORETYPE);
    CHECK(left != NULL && strcmp(left, "Sandybridge") == 0);
    return multiplies(&blas);
}

static bool keeps_what_others_loaded(void)
{
    dtp_blas blas;
    CHECK(setenv(CORETYPE, "Sandybridge", 1) == 0);
    CHECK(dlopen(SONAME, RTLD_NOW) != NULL);
    CHECK(unsetenv(CORETYPE) == 0);
    CHECK(dtp_blas__open(SONAME, haswell, &blas, NULL) == DTP_OK);
    CHECK(blas.found_loaded && strcmp(blas.corename(), "Sandybridge") == 0);
    return multiplies(&blas);
}

static bool says_what_is_missing(void)
{
    dtp_blas blas;
    dtp_err err = {0};
    CHECK(dtp_blas__open("libnosuchblas.so.0", nothing, &blas, &err) == DTP_UNSUPPORTED);
    CHECK(strstr(err.msg, "OpenBLAS cannot be loaded: libnosuchblas.so.0") == err.msg);
    CHECK(dtp_blas__open("libm.so.6", nothing, &blas, &err) == DTP_UNSUPPORTED);
    CHECK(strcmp(err.msg, "libm.so.6 has no cblas_sgemm: it is not OpenBLAS") == 0);
    return true;
}

static void *make_backend(void *user)
{
    dtp_backend **out = user;
    return dtp_backend_cpu_create(1, out, NULL) == DTP_OK ? user : NULL;
}

static void keep_line(void *user, dtp_log_level level, const char *line)
{
    (void)level;
    (void)snprintf(user, 256, "%s", line);
}

static bool has_wide_kernels(const char *core)
{
    return strcmp(core, "SkylakeX") == 0 || strcmp(core, "Cooperlake") == 0 ||
           strcmp(core, "Sapphirerapids") == 0;
}

/* Virtual ranks make their backends at the same time. */
static bool serves_backends_of_many_threads(void)
{
    enum { THREADS = 8 };
    pthread_t id[THREADS];
    dtp_backend *b[THREADS] = {NULL};
    void *made = NULL;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&id[i], NULL, make_backend, &b[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(id[i], &made) == 0 && made == &b[i]);
    }
    char line[256] = "", expected[256];
    dtp_ctx ctx = dtp_ctx_default();
    ctx.level = DTP_LOG_INFO;
    ctx.log_sink = keep_line;
    ctx.log_user = line;
    dtp_backend_say(b[0], &ctx);
    (void)snprintf(expected, sizeof expected, "info cpu blas kernels=%s loaded=here threads=1",
                   dtp_blas_get()->corename());
    CHECK(strcmp(line, expected) == 0);
#if defined(__x86_64__)
    CHECK(!__builtin_cpu_supports("avx512vl") || has_wide_kernels(dtp_blas_get()->corename()));
#endif
    for (int i = 0; i < THREADS; i++) {
        dtp_backend_destroy(b[i]);
    }
    return getenv(CORETYPE) == NULL && multiplies(dtp_blas_get());
}

static void test_blas__kernel_set(void **unused)
{
    (void)unused;
#if !defined(__x86_64__)
    skip(); /* the names of kernel sets are those of x86 */
#endif
    in_child(takes_the_preferred_set);
    in_child(leaves_the_users_choice);
    in_child(keeps_what_others_loaded);
}

static void test_blas__missing(void **unused)
{
    (void)unused;
    in_child(says_what_is_missing);
}

static void test_blas__backends(void **unused)
{
    (void)unused;
    in_child(serves_backends_of_many_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blas__kernel_set),
                                       cmocka_unit_test(test_blas__missing),
                                       cmocka_unit_test(test_blas__backends)};
    return cmocka_run_group_tests_name("blas", tests, NULL, NULL);
}
