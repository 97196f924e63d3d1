/* Shared memory of the block that runs. */
#ifndef CUDA_EMU_FIBERS_H
#define CUDA_EMU_FIBERS_H

#include <cstddef>
#include <string>

namespace emu
{

/* Of the launch; `raised`: the kernel may have more than 48 KiB in all. */
void set_dynamic_shared(size_t bytes, bool raised);
/* A new block: nothing is laid out yet. */
void begin_shared();
/* A text when a red zone was written, "" otherwise. */
std::string end_shared();
/* Ends the kernel from one of its threads. */
[[noreturn]] void stop_block(const char *text);
/* Whether the fault CUDA_EMU_DROP_BARRIER removes the barrier of this line. */
bool barrier_dropped(const char *file, int line);

} // namespace emu

#endif
