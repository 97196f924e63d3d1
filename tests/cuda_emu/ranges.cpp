/* Ranges of NVTX: names on a stack of each host thread. */
#include <string>
#include <vector>

#include "internal.h"
#include "nvtx3/nvToolsExt.h"

namespace
{

thread_local std::vector<std::string> ranges;

} // namespace

extern "C" {

int nvtxRangePushA(const char *message)
{
    emu::guard lock(emu::all().mutex);
    emu::all().counters.ranges++;
    emu::all().counters.live_objects++;
    ranges.push_back(message);
    return static_cast<int>(ranges.size()) - 1;
}

int nvtxRangePop(void)
{
    emu::guard lock(emu::all().mutex);
    if (ranges.empty()) {
        emu::fail(cudaErrorInvalidValue, "nvtxRangePop: no range is open in this thread");
        return -2;
    }
    emu::all().counters.live_objects--;
    ranges.pop_back();
    return static_cast<int>(ranges.size());
}

const char *cuda_emu_range(int outer)
{
    const size_t at = static_cast<size_t>(outer);
    return at < ranges.size() ? ranges[ranges.size() - 1 - at].c_str() : "";
}
}
