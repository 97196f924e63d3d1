/* Parameters under the names of another framework, for loading and saving. */
#include "executor/files/checkpoint.h"
#include "tools/dtrun/options.h"

dtp_status dtrun_stored(const tool_source *source, const tool_job *job, const char *load,
                        const char *save, const dtp_stored_params **out, dtp_err *err)
{
    tool_path path;
    const char *file = tool_beside(source, source->names, "names", &path);
    *out = NULL;
    if (save != NULL && file == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--save-hf: there is no names file beside '%s'; --names FILE names one",
                        source->model);
    }
    bool foreign = false;
    if (file != NULL && load != NULL) {
        DTP_TRY(dtp_checkpoint_is_foreign(load, &foreign, err));
    }
    return file != NULL && (foreign || save != NULL) ? dtp_job_stored(job->run, file, out, err)
                                                     : DTP_OK;
}
