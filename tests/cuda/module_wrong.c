/* Modules that must be refused: of another ABI, of another layout, of another name, without what a
 * module exports (WRONG_ABI, WRONG_LAYOUT, WRONG_NAME, WRONG_SYMBOL). */
#include "executor/comm/device_module.h"

#ifdef WRONG_ABI
#define ABI (DTP_DEVICE_ABI + 1)
#else
#define ABI DTP_DEVICE_ABI
#endif
#ifdef WRONG_LAYOUT
#define LAYOUT (DTP_DEVICE_LAYOUT + 8)
#else
#define LAYOUT DTP_DEVICE_LAYOUT
#endif
#ifdef WRONG_NAME
#define NAME "npu"
#else
#define NAME "cuda"
#endif
#ifdef WRONG_SYMBOL
#define dtp_device_module dtp_device_of_nobody
extern const dtp_device dtp_device_module;
#endif

const dtp_device dtp_device_module = {.abi = ABI, .layout = LAYOUT, .name = NAME};
