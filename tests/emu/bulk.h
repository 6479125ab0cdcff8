/* bulk.h: copies that land by themselves. */
#ifndef PLEC_TESTS_EMU_BULK_H
#define PLEC_TESTS_EMU_BULK_H

namespace plec_emu {

/* One bulk copy of a resident block lands; false: none is under way. */
bool land_a_copy(void);

} // namespace plec_emu

#endif
