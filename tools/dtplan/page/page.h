/* The report of a plan as a page, and its drawings (docs/report.md). One HTML file that loads
 * nothing; drawings are SVG and can be had alone. */
#ifndef DTP_TOOLS_DTPLAN_PAGE_PAGE_H
#define DTP_TOOLS_DTPLAN_PAGE_PAGE_H

#include "cost_models/job.h"
#include "planner/reports/pareto.h"
#include "planner/reports/plan_diff.h"
#include "tools/dtplan/page/svg.h"

/* What `dtrun run --json` measured of a step (dtp.report/1), as medians; NaN: not said. */
typedef struct page_run {
    const char *file, *backend, *comm;
    int64_t steps;
    double step_time_s, compute_s, exposed_comm_s, peak_bytes;
} page_run;

/* Reads such a report; texts from `arena`. DTP_INVALID naming file and place, also when it is the
 * report of another model or mesh than that of the plan. */
dtp_status page_run_read(const char *file, const dtp_plan *plan, dtp_arena *arena, page_run *out,
                         dtp_err *err) DTP_MUST_CHECK;

/* What a page says. All borrowed; NULL where there is none. */
typedef struct page_input {
    const dtp_plan *plan;
    const dtp_job *job; /* of the plan, predicted on the machine */
    const dtp_machine *machine;
    bool current; /* the plan was made for this model and machine */
    const dtp_pareto *pareto;
    const page_run *run;
    const dtp_plan *against; /* another plan, */
    const char *against_file;
    const dtp_plan_diff *diff; /* and what it does otherwise: side 0 is `plan` */
} page_input;

/* ---- the step, by time ---- */

/* PAGE_FAR: collectives across hosts, where they have a lane of their own. */
typedef enum page_lane {
    PAGE_COMPUTE,
    PAGE_COMMUNICATION,
    PAGE_WAIT,
    PAGE_FAR,
    PAGE_N_LANES
} page_lane;
static inline bool page_is_communication(page_lane lane)
{
    return lane == PAGE_COMMUNICATION || lane == PAGE_FAR;
}

/* An instruction when a step runs it. WAIT: compute waits for a collective. */
typedef struct page_slice {
    page_lane lane;
    const dtp_program *program; /* of the plan, or of a chunk of the stage */
    int32_t instr, microbatch;
    int32_t others; /* of a stage: microbatches of its chunks in flight but this one */
    double begin_s, end_s;
    double at_s; /* when compute reaches it */
} page_slice;

typedef struct page_schedule {
    int64_t n;
    page_slice *slices; /* in the order in which a step runs them */
    double end_s;
} page_schedule;

/* The simulated schedule (cost_models/timeline.h), of a plan with stages that of one of them; from
 * `arena`. */
dtp_status page_schedule_make(const page_input *in, int32_t stage, dtp_arena *arena,
                              page_schedule *out, dtp_err *err) DTP_MUST_CHECK;
/* The stage with most work, which the prediction is of; 0 where there are none. */
int32_t page_busiest_stage(const page_input *in);

/* ---- drawings: each appends one SVG element ---- */

dtp_status page_stages(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_timeline(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_memory(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_blocks(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_baselines(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_pareto(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

/* What a rank holds of a tensor, as a small picture of so many pixels: cells are shards, those of
 * rank 0 are filled. */
void page_layout(const dtp_layout *layout, const dtp_mesh *mesh, const double box[4],
                 dtp_strbuf *out);
/* Whether the report lists node n: of instances of a block the first, of the forward pass. */
bool page_lists(const dtp_graph *g, dtp_node_id n);
/* The name that people have for a baseline. */
const char *page_baseline_name(const char *name);

/* ---- the page ---- */

/* A row of a table; the first cell is a head, the others have the tag. */
void page_row(dtp_strbuf *out, const char *tag, int32_t n, const char *const *cells);
#define PAGE_ROW(out, tag, ...)                                                                    \
    page_row(out, tag, (int32_t)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),          \
             (const char *[]){__VA_ARGS__})

/* Tables of HTML for tensors and their alternatives, differences and measurements. */
dtp_status page_explain(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_diff(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
dtp_status page_measured(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

/* The drawing with this name as an SVG file of its own; the page. */
dtp_status page_drawing(const page_input *in, const char *name, dtp_strbuf *out,
                        dtp_err *err) DTP_MUST_CHECK;
dtp_status page_write(const page_input *in, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

#endif
