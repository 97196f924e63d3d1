/* When instructions run in a step: of a plan with stages in that of one stage. */
#include <math.h>
#include <stdlib.h>

#include "cost_models/timeline.h"
#include "tools/dtplan/page/page.h"

/* Makes slices of the tasks of a program that run from zero_s on. */
typedef struct slicer {
    page_schedule *out;
    const dtp_program *program;
    int32_t others;
    double zero_s, now_s, *ended_s;
} slicer;

/* Instructions from..to - 1 of microbatch j, the first of which has `task`. Returns the task after
 * them. */
static const dtp_schedule_task *add_slices(slicer *x, const dtp_schedule_task *task, int32_t from,
                                           int32_t to, int32_t j)
{
    for (int32_t i = from; i < to; i++) {
        const dtp_instr *instr = &x->program->instrs[i];
        if (!dtp_instr_runs_in(x->program, instr, j)) {
            continue;
        }
        page_slice *s = &x->out->slices[x->out->n++];
        *s = (page_slice){.lane = PAGE_WAIT,
                          .program = x->program,
                          .instr = i,
                          .microbatch = j,
                          .others = x->others,
                          .begin_s = x->now_s,
                          .end_s = x->now_s,
                          .at_s = x->now_s};
        if (instr->kind == DTP_INSTR_WAIT) {
            s->end_s = x->now_s = fmax(x->now_s, x->ended_s[instr->pair]);
            continue;
        }
        s->lane = task->lane == DTP_LANE_COMPUTE ? PAGE_COMPUTE
                  : task->lane == DTP_LANE_FAR   ? PAGE_FAR
                                                 : PAGE_COMMUNICATION;
        s->begin_s = x->zero_s + task->begin_s;
        s->end_s = x->ended_s[i] = x->zero_s + task->end_s;
        x->now_s = task->lane != DTP_LANE_COMPUTE ? x->now_s : s->end_s;
        task++;
    }
    return task;
}

static dtp_status add_step(slicer *x, const page_input *in, bool overlaps, dtp_err *err)
{
    const dtp_program *p = x->program;
    dtp_schedule_result result;
    dtp_schedule_task *tasks = dtp_schedule_simulate(p, in->machine, overlaps, &result);
    DTP_TRY(DTP_MEMORY(err, tasks));
    const dtp_schedule_task *task = tasks;
    for (int32_t j = 0; j < dtp_program_microbatches(p); j++) {
        task = add_slices(x, task, 0, p->n_instrs, j);
    }
    x->out->end_s = result.end_s;
    free(tasks);
    return DTP_OK;
}

/* The sections of a stage when the replay of the table says. */
static dtp_status add_stage(slicer *x, const page_input *in, bool overlaps, int32_t stage,
                            dtp_arena *arena, dtp_err *err)
{
    const dtp_pipeline *pipeline = in->job->pipeline;
    const dtp_stage_table *table = &pipeline->table;
    dtp_pipeline_step step;
    int32_t in_flight = 0;
    DTP_TRY(dtp_pipeline_replay(table, &pipeline->times, arena, &step, err));
    for (int32_t i = 0; i < table->n_actions[stage]; i++) {
        const dtp_stage_action *a = &table->actions[stage][i];
        const dtp_program *p = pipeline->programs[a->chunk];
        const int32_t from = dtp_section_begin(p, p->instrs, p->n_instrs, a->section);
        const int32_t to = dtp_section_begin(p, p->instrs, p->n_instrs, a->section + 1);
        dtp_schedule_result result;
        dtp_schedule_task *tasks =
            dtp_schedule_section(p, in->machine, overlaps, a->section, a->microbatch == 0, &result);
        DTP_TRY(DTP_MEMORY(err, tasks));
        in_flight += a->section == DTP_SECTION_FORWARD ? 1 : 0;
        x->program = p;
        x->others = a->section < DTP_SECTION_UPDATE ? in_flight - 1 : in_flight;
        x->zero_s = x->now_s = step.begin_s[stage][i];
        (void)add_slices(x, tasks, from, to, a->microbatch);
        in_flight -= a->section == DTP_SECTION_BACKWARD ? 1 : 0;
        free(tasks);
    }
    x->out->end_s = step.end_s;
    return DTP_OK;
}

dtp_status page_schedule_make(const page_input *in, int32_t stage, dtp_arena *arena,
                              page_schedule *out, dtp_err *err)
{
    const dtp_pipeline *p = in->job->pipeline;
    const int32_t n = p != NULL ? p->table.n_stages : 1;
    const bool overlaps = in->machine->overlap && in->job->program->target->asynchronous;
    slicer x = {.out = out, .program = in->job->program};
    int64_t most = 1;
    int32_t instrs = 1;
    for (int32_t c = p != NULL ? stage : 0; c < (p != NULL ? p->n : 1); c += n) {
        const dtp_program *of = p != NULL ? p->programs[c] : in->job->program;
        most += dtp_schedule_count(of);
        for (int32_t i = 0; i < of->n_instrs; i++) {
            const bool waits = of->instrs[i].kind == DTP_INSTR_WAIT;
            most += waits ? dtp_instr_runs(of, &of->instrs[i]) : 0;
        }
        instrs = of->n_instrs >= instrs ? of->n_instrs + 1 : instrs;
    }
    *out = (page_schedule){0};
    DTP_TRY(DTP_NEW(arena, x.ended_s, instrs, err));
    DTP_TRY(DTP_NEW(arena, out->slices, most, err));
    return p != NULL ? add_stage(&x, in, overlaps, stage, arena, err)
                     : add_step(&x, in, overlaps, err);
}

int32_t page_busiest_stage(const page_input *in)
{
    const dtp_pipeline *p = in->job->pipeline;
    int32_t most = 0;
    for (int32_t k = 1; p != NULL && k < p->table.n_stages; k++) {
        most = dtp_pipeline_work_s(p, k) > dtp_pipeline_work_s(p, most) ? k : most;
    }
    return most;
}
