/* The command line of mpirun, the job around a process, and the processors that it may use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "executor/comm/communicator.h"
#include "executor/device/cpus.h"
#include "executor/run/launch.h"

/* The words of the command line, separated by blanks. */
static void check_argv(const dtp_launch *launch, const char *want)
{
    char got[512] = "";
    dtp_err err = {0};
    char **argv = NULL;
    assert_int_equal(dtp_launch_argv(launch, &argv, &err), DTP_OK);
    for (size_t i = 0; argv[i] != NULL; i++) {
        strncat(got, i > 0 ? " " : "", sizeof got - strlen(got) - 1);
        strncat(got, argv[i], sizeof got - strlen(got) - 1);
    }
    assert_string_equal(got, want);
    dtp_launch_argv_free(argv);
}

static char run[] = "dtrun", plan[] = "plan.json";
static char *words[] = {run, plan};

#define HERE "mpirun -n 2 --stdin none --oversubscribe "
#define BOUND "--bind-to core:overload-allowed dtrun plan.json"

static void test_launch__binds_a_rank_to_as_many_cores_as_it_has_threads(void **unused)
{
    (void)unused;
    dtp_launch l = {.ranks = 2, .cpus = 8, .may_bind = true, .n_args = 2, .args = words};
    check_argv(&l, HERE "--map-by slot:PE=4 " BOUND);
    l.threads = 3;
    check_argv(&l, HERE "--map-by slot:PE=3 " BOUND);
    l.cpus_per_core = 2;
    check_argv(&l, HERE "--map-by slot:PE=2 " BOUND);
    l.threads = 5;
    check_argv(&l, HERE "--bind-to none dtrun plan.json");
    l.threads = 1;
    l.cpus = 1;
    check_argv(&l, HERE "--bind-to none dtrun plan.json");
}

/* mpirun would bind to processors outside of the set. */
static void test_launch__binds_nothing_within_a_set_of_processors(void **unused)
{
    (void)unused;
    dtp_launch l = {.ranks = 2, .cpus = 8, .n_args = 2, .args = words};
    check_argv(&l, HERE "--bind-to none dtrun plan.json");
}

static void test_launch__given_hosts_say_what_fits(void **unused)
{
    (void)unused;
    char nodes[] = "SLURM_JOB_NODELIST=n[1-2]", file[] = "OMPI_MCA_orte_default_hostfile=hosts";
    char other[] = "SLURM_JOB_NODELISTS=n1";
    char *slurm[] = {nodes, NULL}, *hosts[] = {file, NULL}, *none[] = {other, NULL};
    dtp_launch l = {.ranks = 16, .cpus = 2, .may_bind = true, .n_args = 2, .args = words};
    l.environment = slurm;
    check_argv(&l, "mpirun -n 16 --stdin none --bind-to none dtrun plan.json");
    l.threads = 4;
    l.environment = hosts;
    check_argv(&l, "mpirun -n 16 --stdin none --map-by slot:PE=4 " BOUND);
    l.environment = none;
    check_argv(&l, "mpirun -n 16 --stdin none --oversubscribe --bind-to none dtrun plan.json");
}

static void test_launch__root_needs_to_be_allowed(void **unused)
{
    (void)unused;
    char a[] = "OMPI_ALLOW_RUN_AS_ROOT=1", b[] = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    char *both[] = {a, b, NULL}, *half[] = {a, NULL};
    dtp_launch l = {.ranks = 2, .cpus = 1, .n_args = 2, .args = words, .is_root = true};
    dtp_err err = {0};
    char **argv = NULL;
    assert_int_equal(dtp_launch_argv(&l, &argv, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "--allow-run-as-root"));
    l.environment = half;
    assert_int_equal(dtp_launch_argv(&l, &argv, &err), DTP_UNSUPPORTED);
    l.environment = both;
    check_argv(&l, HERE "--bind-to none dtrun plan.json");
    l.environment = NULL;
    l.allow_root = true;
    check_argv(&l, "mpirun --allow-run-as-root -n 2 --stdin none --oversubscribe --bind-to none "
                   "dtrun plan.json");
}

static void test_job__srun_has_to_connect_its_tasks(void **unused)
{
    (void)unused;
    char step[] = "SLURM_STEP_NUM_TASKS=4", id[] = "SLURM_PROCID=2",
         one[] = "SLURM_STEP_NUM_TASKS=1";
    char pmi[] = "PMIX_RANK=0", shell[] = "SLURM_JOB_ID=7";
    char *four[] = {step, id, NULL}, *alone[] = {one, id, NULL}, *pmix[] = {step, id, pmi, NULL};
    char *salloc[] = {shell, id, NULL};
    dtp_err err = {0};
    assert_int_equal(dtp_comm_check_launcher(four, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "4 tasks"));
    assert_non_null(strstr(err.msg, "--mpi=pmix"));
    assert_true(err.told); /* the first task says so */
    id[strlen(id) - 1] = '0';
    assert_int_equal(dtp_comm_check_launcher(four, &err), DTP_INVALID);
    assert_false(err.told);
    assert_int_equal(dtp_comm_check_launcher(alone, NULL), DTP_OK);
    assert_int_equal(dtp_comm_check_launcher(salloc, NULL), DTP_OK);
    assert_int_equal(dtp_comm_check_launcher(pmix, NULL), DTP_OK);
    assert_int_equal(dtp_comm_check_launcher(NULL, NULL), DTP_OK);
    assert_true(dtp_comm_in_mpi_job(four));
    assert_false(dtp_comm_in_mpi_job(alone));
    assert_false(dtp_comm_in_mpi_job(salloc));
    assert_true(dtp_comm_in_mpi_job(pmix));
}

static void test_cpus__are_those_of_the_process(void **unused)
{
    (void)unused;
    assert_true(dtp_cpus_usable() >= 1);
    assert_true(dtp_cpus_per_core() >= 1);
    assert_true(dtp_cpus_key() == dtp_cpus_key());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch__binds_a_rank_to_as_many_cores_as_it_has_threads),
        cmocka_unit_test(test_launch__binds_nothing_within_a_set_of_processors),
        cmocka_unit_test(test_launch__given_hosts_say_what_fits),
        cmocka_unit_test(test_launch__root_needs_to_be_allowed),
        cmocka_unit_test(test_job__srun_has_to_connect_its_tasks),
        cmocka_unit_test(test_cpus__are_those_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
