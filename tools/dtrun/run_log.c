/* The file of --log-json: a line of JSON after every step (docs/formats/report.md). */
#include "tools/dtrun/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/units.h"
#include "tools/report.h"

static const char line_head[] = "{\"step\": ";

/* The step of a line. */
static bool read_step(const char *line, int64_t *step)
{
    const char *at = line + sizeof line_head - 1;
    return strncmp(line, line_head, sizeof line_head - 1) == 0 && dtp_int_read(&at, step);
}

/* Cuts the file behind the line of step `last`. A line without its end is one of a killed job. */
static dtp_status cut(FILE *f, const char *path, int64_t last, dtp_err *err)
{
    char *line = NULL;
    size_t room = 0;
    int64_t end = 0, n = 1, step;
    dtp_status status = DTP_OK;
    for (; status == DTP_OK; n++) {
        const ssize_t got = getline(&line, &room, f);
        if (got < 0 && feof(f) == 0) {
            status = DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
        }
        if (got <= 0 || line[got - 1] != '\n') {
            break;
        }
        if (!read_step(line, &step)) {
            status =
                DTP_FAIL(err, DTP_INVALID,
                         "%s: line %" PRId64 " is not of a step: the file is not cut", path, n);
        } else if (step > last) {
            break;
        }
        end += got;
    }
    free(line);
    DTP_TRY(status);
    return ftruncate(fileno(f), (off_t)end) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
}

static dtp_status cut_file(const char *path, int64_t last, dtp_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return DTP_OK; /* there is none, or it is a pipe */
    }
    FILE *f = fopen(path, "r+");
    if (f == NULL) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    const dtp_status status = cut(f, path, last, err);
    (void)fclose(f);
    return status;
}

dtp_status dtrun_log_open(dtrun_log *log, const char *path, bool resumes, int64_t last,
                          dtp_err *err)
{
    *log = (dtrun_log){0};
    if (path == NULL) {
        return DTP_OK;
    }
    if (resumes) {
        DTP_TRY(cut_file(path, last, err));
    }
    const int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (resumes ? 0 : O_TRUNC), 0666);
    if (fd < 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    *log = (dtrun_log){.path = path, .fd = fd};
    return DTP_OK;
}

static dtp_status put(const dtrun_log *log, const dtp_strbuf *line, dtp_err *err)
{
    const char *text = dtp_strbuf_text(line);
    if (line->failed) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: no memory for a line", log->path);
    }
    for (size_t done = 0; done < line->len;) {
        const ssize_t n = write(log->fd, text + done, line->len - done);
        if (n < 0 && errno != EINTR) {
            return DTP_FAIL(err, DTP_OUTPUT, "%s: cannot write: %s", log->path, strerror(errno));
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return DTP_OK;
}

dtp_status dtrun_log_step(const dtrun_log *log, const dtp_report *r, dtp_err *err)
{
    if (log->path == NULL) {
        return DTP_OK;
    }
    const dtp_step_result *s = &r->steps[r->n_steps - 1];
    const double step_s = s->times.total_s;
    const bool evaluated = r->n_evals > 0 && r->evals[r->n_evals - 1].step == s->step + 1;
    char time[DTP_TIME_BYTES];
    dtp_json_writer j = {0};
    dtp_time_print(time);
    dtp_json_begin_line(&j, NULL);
    tool_write(&j, TOOL_FIELDS(FIELD_INT("step", s->step + 1), FIELD_TEXT("time", time),
                               FIELD_REAL_IF(s->has_loss, "loss", s->loss),
                               FIELD_REAL_IF(!isnan(s->rate), "rate", s->rate),
                               FIELD_REAL_IF(dtp_runner_program(r->runner)->graph->norm >= 0,
                                             "grad_norm", s->grad_norm),
                               FIELD_REAL_IF(evaluated, "eval_loss",
                                             evaluated ? r->evals[r->n_evals - 1].loss : 0.0),
                               FIELD_REAL("step_time_s", step_s), FIELD_REAL("feed_s", s->feed_s),
                               FIELD_REAL_IF(r->tokens > 0 && step_s > 0.0, "tokens_per_s",
                                             (double)r->tokens / step_s)));
    dtp_json_end_object(&j);
    dtp_strbuf_add(&j.buf, "\n");
    const dtp_status status = put(log, &j.buf, err);
    dtp_strbuf_free(&j.buf);
    return status;
}

void dtrun_log_close(dtrun_log *log)
{
    if (log->path != NULL) {
        (void)close(log->fd);
    }
    *log = (dtrun_log){0};
}
