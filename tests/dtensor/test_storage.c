/* Memory of tensors on one rank: what is given back is used again, and what is kept never raises
 * the peak. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "dtp/tensor.h"
#include "executor/comm/communicator.h"
#include "executor/cpu/cpu.h"

enum { MIB = 1 << 20 };

typedef struct fixture {
    dtp_comm *comm;
    dtp_backend *backend;
    dtp_device_mesh *mesh;
} fixture;

static fixture begin(void)
{
    fixture f;
    assert_int_equal(dtp_comm_self_create(&f.comm, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:1", &f.comm->mesh, NULL), DTP_OK);
    assert_int_equal(dtp_backend_cpu_create(1, &f.backend, NULL), DTP_OK);
    assert_int_equal(dtp_device_mesh_create(f.comm, f.backend, NULL, &f.mesh, NULL), DTP_OK);
    return f;
}

static void end(fixture *f)
{
    dtp_device_mesh_destroy(f->mesh);
    assert_int_equal(f->backend->allocated_bytes, 0);
    dtp_backend_destroy(f->backend);
    dtp_comm_destroy(f->comm);
}

static dtp_tensor make(const fixture *f, int64_t mib)
{
    dtp_tensor t;
    dtp_tensor_desc desc;
    const int64_t shape[] = {mib * MIB / 4};
    assert_int_equal(dtp_tensor_desc_init(f->mesh, DTP_F32, 1, shape, "0@x", &desc, NULL), DTP_OK);
    assert_int_equal(dtp_tensor_zeros(f->mesh, &desc, &t, NULL), DTP_OK);
    return t;
}

static const void *data_of(dtp_tensor t)
{
    dtp_local local;
    assert_int_equal(dtp_tensor_local(t, &local, NULL), DTP_OK);
    return local.data;
}

static void test_storage__is_used_again(void **unused)
{
    (void)unused;
    fixture f = begin();
    dtp_tensor a = make(&f, 4);
    const void *first = data_of(a);
    dtp_tensor_destroy(a);
    a = make(&f, 4);
    assert_ptr_equal(data_of(a), first);
    dtp_tensor b = make(&f, 4); /* not while somebody has it */
    assert_ptr_not_equal(data_of(b), first);
    end(&f);
}

static void test_storage__kept_memory_does_not_raise_the_peak(void **unused)
{
    (void)unused;
    fixture f = begin();
    for (int64_t mib = 1; mib <= 6; mib++) {
        dtp_tensor_destroy(make(&f, mib));
        assert_int_equal(f.backend->peak_allocated_bytes, mib * MIB);
        assert_true(f.backend->allocated_bytes <= mib * MIB);
    }
    dtp_tensor a = make(&f, 2), b = make(&f, 4); /* six at once, from what is kept or not */
    assert_int_equal(f.backend->peak_allocated_bytes, 6 * MIB);
    assert_int_equal(f.backend->allocated_bytes, 6 * MIB);
    dtp_tensor_destroy(a);
    dtp_tensor_destroy(b);
    end(&f);
}

static void test_storage__keeps_a_few_only(void **unused)
{
    (void)unused;
    enum { MANY = 20 };
    fixture f = begin();
    dtp_tensor t[MANY];
    for (int i = 0; i < MANY; i++) {
        t[i] = make(&f, 1);
    }
    for (int i = 0; i < MANY; i++) {
        dtp_tensor_destroy(t[i]);
    }
    assert_true(f.backend->allocated_bytes < MANY / 2 * MIB);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storage__is_used_again),
        cmocka_unit_test(test_storage__kept_memory_does_not_raise_the_peak),
        cmocka_unit_test(test_storage__keeps_a_few_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
