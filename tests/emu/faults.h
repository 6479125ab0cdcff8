/* faults.h: what a stray address of the host or of a kernel means: said, then the process ends. */
#ifndef PLEC_TESTS_EMU_FAULTS_H
#define PLEC_TESTS_EMU_FAULTS_H

namespace plec_emu {

/* Exit statuses. */
enum { HOST_TOUCHED_DEVICE = 67, STACK_OVERFLOWED = 68, BAD_ADDRESS = 69 };

void catch_faults(void);

/* Gives the calling thread a stack for the handler, that an overflown fiber has none left for. */
void prepare_fault_stack(void);

} // namespace plec_emu

#endif
