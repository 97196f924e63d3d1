/* Pipeline stages: the layers of a model on groups of ranks, one behind the other. Microbatches pass
 * through them. */
#ifndef DTP_CORE_TRANSFORM_STAGES_H
#define DTP_CORE_TRANSFORM_STAGES_H

enum { DTP_MAX_STAGES = 64 };

/* Parts of a step on a stage. The update is in several parts where a part needs what another stage
 * sends: part k is section DTP_SECTION_UPDATE + k. */
enum { DTP_SECTION_FORWARD, DTP_SECTION_BACKWARD, DTP_SECTION_UPDATE };

#endif
