/* say_findings.h: what a check found, on stderr, one line each. */
#ifndef PLEC_TOOLS_SAY_FINDINGS_H
#define PLEC_TOOLS_SAY_FINDINGS_H

#include "lyrw/findings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "<path>: <name>: <text>", notes with "remark: " in front. Returns 1 (enum plec_exit) when there
 * is a defect, else 0. */
int plec_say_findings(const char *path, const struct plec_findings *findings);

#ifdef __cplusplus
}
#endif
#endif
